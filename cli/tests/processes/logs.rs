//! What the processes log, in real processes: JSON lines, filters replaced while they run, the audit stream, and slow requests.

use std::path::Path;

use serde_json::Value;

use crate::harness::{Pair, errors_of, free_ports, local, master_arguments, refused, terrane};

/// A pair with further arguments, and their addresses.
fn pair(data: &Path, more: [&[&str]; 2]) -> (Pair, [String; 2]) {
    let ports = free_ports();
    (Pair::start(data, ports, "memory", more), ports.map(local))
}

/// The lines of a log, which are all objects.
fn objects(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn filters_are_shown_and_replaced_while_processes_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pair, [master, server]) = pair(directory.path(), [&["--log-format", "json"]; 2]);
    let filters = |arguments: &[&str]| -> Vec<(String, String, String)> {
        let lines = pair.client.json_lines(&[&["admin", "log"], arguments].concat());
        let text = |line: &Value, name: &str| line[name].as_str().expect("text").to_owned();
        lines.iter().map(|line| (text(line, "address"), text(line, "role"), text(line, "filter"))).collect()
    };
    let line = |address: &str, role: &str, filter: &str| (address.to_owned(), role.to_owned(), filter.to_owned());
    let default = "warn,openraft=off,audit=info";
    assert_eq!(filters(&[]), [line(&master, "master", default), line(&server, "server", default)]);
    assert_eq!(filters(&["info", "--server", &server]), [line(&server, "server", "info")]);
    assert_eq!(filters(&[]), [line(&master, "master", default), line(&server, "server", "info")]);

    let said = errors_of(&pair.client.run(&["admin", "log", "terrane_raft=loud"]));
    assert!(said.contains("is not a filter of the log"), "{said}");
    let said = errors_of(&pair.client.run(&["admin", "log", "--server", "127.0.0.1:1"]));
    assert!(said.contains("process at 127.0.0.1:1 does not exist"), "{said}");
    // A bad filter has replaced nothing.
    assert_eq!(filters(&["--server", &server]), [line(&server, "server", "info")]);

    pair.client.succeed(&["table", "create", "t", "--family", "f"]);
    let lines = objects(&pair.master.messages());
    let audit: Vec<&Value> = lines.iter().filter(|line| line["target"] == "audit").collect();
    let created = audit.iter().find(|line| line["fields"]["action"] == "create table");
    let created = created.unwrap_or_else(|| panic!("no audit line: {lines:?}"));
    assert_eq!((&created["fields"]["subject"], &created["fields"]["outcome"]), (&"t".into(), &"done".into()));
    assert!(created["fields"]["peer"].as_str().expect("text").starts_with("127.0.0.1:"), "{created}");
    let lines = objects(&pair.server.messages());
    assert!(
        lines.iter().any(|line| line["target"] == "audit" && line["fields"]["action"] == "log filter"),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line["level"] != "ERROR"), "{lines:?}");
    let is_setting = |line: &&Value| line["target"] == "terrane::settings" && line["fields"]["key"] == "log-format";
    let setting = lines.iter().find(is_setting).unwrap_or_else(|| panic!("no settings: {lines:?}"));
    assert_eq!(
        (&setting["fields"]["value"], &setting["fields"]["origin"]),
        (&"json".into(), &"flag --log-format".into())
    );
}

#[test]
fn a_start_that_fails_says_so_in_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("t.toml");
    std::fs::write(&file, "[server]\nlog-format = 'json'\nlog-limt = '1GiB'\n").expect("a file");
    let file = file.display().to_string();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("its address").to_string();
    let data = directory.path().join("master").display().to_string();
    for (arguments, part, status) in [
        (vec!["server", "--log-format", "json", "--bogus"], "unexpected argument '--bogus'", 2),
        (vec!["master", "--log-format=json", "--replication", "2"], "must be 1, 3 or 5", 2),
        (vec!["server", "--config", &file], "did you mean log-limit?", 2),
        (vec!["master", "--log-format", "json", "--data", &data, "--listen", &taken], "the port is in use", 1),
    ] {
        let output = terrane(&arguments);
        let errors = errors_of(&output);
        assert_eq!(output.status.code(), Some(status), "{errors}");
        let lines = objects(&errors);
        let last = lines.last().unwrap_or_else(|| panic!("{arguments:?} said nothing"));
        assert_eq!(last["level"], "ERROR", "{errors}");
        assert!(last["message"].as_str().expect("text").contains(part), "{errors}");
    }
}

#[test]
fn settings_change_while_processes_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pair, [_, server]) = pair(directory.path(), [&[]; 2]);
    let Pair { client, .. } = &pair;
    let of = |arguments: &[&str]| client.json_lines(&[&["admin", "set"], arguments].concat());
    let names: Vec<String> = of(&[]).iter().map(|line| line["setting"].as_str().expect("text").to_owned()).collect();
    assert_eq!(names, ["replace-after", "replication", "balancing", "slow-request", "log-filter", "log-filter"]);
    assert_eq!(of(&["replace-after"])[0]["default"], "5m");
    assert_eq!(of(&["replace-after", "10m"])[0]["value"], "10m");
    assert!(client.succeed(&["status"]).contains("servers are replaced 10m after they went away"));
    assert_eq!(client.json(&["status"])["replace_after_seconds"], 600);
    let refused = client.run(&["admin", "set", "replace-after", "1s"]);
    assert!(errors_of(&refused).contains("counts as silent only after 3000 ms"), "{}", errors_of(&refused));
    assert_eq!(of(&["replace-after", "default"])[0]["value"], "5m");

    let slow = of(&["slow-request", "1ms", "--server", &server]);
    assert_eq!(
        (&slow[0]["value"], &slow[0]["default"], &slow[0]["process"]),
        (&"1ms".into(), &"500ms".into(), &server.as_str().into())
    );
    assert_eq!(of(&["slow-request", "default"])[0]["value"], "500ms");
    let refused = client.run(&["admin", "set", "balancing", "maybe"]);
    assert_eq!(refused.status.code(), Some(2), "{}", errors_of(&refused));
    assert!(
        errors_of(&client.run(&["admin", "set", "balancing", "off", "--server", &server]))
            .contains("leave out --server")
    );
    assert_eq!(client.json(&["admin", "repair", "--wait", "60s"])["done"], true);
}

#[test]
fn the_audit_stream_has_a_file_of_its_own_whatever_the_filter_selects() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("audit.log");
    let (pair, _) = pair(directory.path(), [&["--audit-log", file.to_str().expect("text")]; 2]);
    pair.client.succeed(&["admin", "log", "off"]);
    pair.client.succeed(&["table", "create", "t", "--family", "f"]);
    pair.client.succeed(&["table", "drop", "t", "--yes"]);
    let log = std::fs::read_to_string(&file).expect("the audit log");
    let lines = objects(&log);
    assert_eq!(lines.len(), log.lines().count(), "{log}");
    let actions: Vec<&str> = lines.iter().filter_map(|line| line["fields"]["action"].as_str()).collect();
    let of_tables: Vec<&&str> = actions.iter().filter(|action| action.ends_with("table")).collect();
    assert_eq!(of_tables, [&"create table", &"drop table"], "{log}");
}

#[test]
fn slow_requests_are_listed_with_keys_and_stages() {
    let directory = tempfile::tempdir().expect("a directory");
    // Everything is slow by this measure.
    let (Pair { client, .. }, _) = &pair(directory.path(), [&[], &["--slow-request", "0.000001ms"]]);
    assert_eq!(client.succeed(&["admin", "slow", "--limit", "0"]).lines().count(), 1, "says that there are none");
    client.succeed(&["table", "create", "t", "--family", "f", "--key", "user:u64"]);
    client.succeed(&["put", "t", "user=7", "f:q", "v"]);
    let text = client.succeed(&["admin", "slow"]);
    assert!(text.contains("user=7") && text.lines().next().expect("a heading").starts_with("AGE"), "{text}");
    let lines = client.json_lines(&["admin", "slow", "--limit", "100"]);
    let write = lines.iter().find(|line| line["operation"] == "write" && line["table"] == "t").expect("a write");
    let stages = write["stages_ms"].as_object().expect("an object");
    assert_eq!(stages.keys().collect::<Vec<_>>(), ["apply", "commit", "edge", "queue"]);
    assert!(write["took_ms"].as_f64().expect("a number") > 0.0 && write["rows"] == 1, "{write}");
}

#[test]
fn bad_settings_of_the_log_are_refused_with_the_next_step() {
    let directory = tempfile::tempdir().expect("a directory");
    for (more, part) in [
        (["--log-format", "xml"], "text or json"),
        (["--audit-log", "/no/such/directory/audit.log"], "name a file in a directory that exists"),
    ] {
        let [listen, console] = free_ports();
        let mut arguments = master_arguments(&directory.path().join("master"), listen, console);
        arguments.extend(more.map(str::to_owned));
        let errors = refused(&arguments, 2);
        assert!(errors.contains(part), "{errors}");
    }
}
