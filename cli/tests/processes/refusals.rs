//! What `terrane` rejects, and how: with the exit status of the grammar, a message that names the problem and the limit
//! or the remedy, no panic, and nothing written.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::harness::{
    COMMAND_MAX, Client, Dev, Pair, errors_of, eventually, free_ports, local, refused, server_arguments, single_master,
    started, terrane, text_of, words,
};

fn assert_names(message: &str, names: &[&str]) {
    for name in names {
        assert!(message.contains(name), "{message:?} does not name {name:?}");
    }
}

#[test]
fn a_directory_serves_one_process_of_its_own_kind() {
    let directory = tempfile::tempdir().expect("a directory");
    let pair = Pair::start(directory.path(), free_ports(), "memory", [&[], &[]]);
    let (master_data, server_data) = (directory.path().join("master"), directory.path().join("server"));
    let [port, console] = free_ports();
    let in_use = refused(&single_master(&master_data, port, console), 1);
    assert_names(&in_use, &[&master_data.display().to_string(), "another process"]);
    let arguments = |engine: &str| server_arguments(&server_data, port, console, &pair.client.masters, engine);
    let in_use = refused(&arguments("memory"), 1);
    assert_names(&in_use, &[&server_data.display().to_string(), "another process"]);

    pair.client.succeed(&["table", "create", "t", "--family", "f"]);
    pair.client.succeed(&["put", "t", "r", "f:q", "v"]);
    pair.server.stop().expect("it stops");
    let other_engine = refused(&arguments("sled"), 1);
    assert_names(&other_engine, &["memory", "sled", &server_data.display().to_string()]);
    let unknown = refused(&arguments("rocks"), 2);
    assert_names(&unknown, &["rocks", "memory", "sled"]);
    // The refused start did not damage the directory.
    let _server = started(&arguments("memory"));
    pair.client.wait_until_well();
    assert_eq!(pair.client.json(&["get", "t", "r"])["cells"][0]["value"], "v");
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let [taken, free, console] = free_ports();
    let _holder = TcpListener::bind(("127.0.0.1", taken)).expect("a free port");
    let data = directory.path();
    let serving = single_master(&data.join("m"), taken, console);
    assert_names(&refused(&serving, 1), &[&local(taken), "in use"]);
    let with_console = single_master(&data.join("n"), free, taken);
    assert_names(&refused(&with_console, 1), &[&local(taken), "in use", "console"]);
    let dev = words(&format!("dev --engine memory --listen-base {taken} --data {}", data.join("d").display()));
    assert_names(&refused(&dev, 1), &[&local(taken), "in use"]);
    let server = server_arguments(&data.join("s"), taken, console, "127.0.0.1:1", "memory");
    assert_names(&refused(&server, 1), &[&local(taken), "in use"]);
}

#[test]
fn a_server_without_a_master_gives_up_with_advice() {
    let directory = tempfile::tempdir().expect("a directory");
    let [listen, console] = free_ports();
    // Port 1 is reserved; nothing listens there.
    let message = refused(&server_arguments(directory.path(), listen, console, "127.0.0.1:1", "memory"), 1);
    assert_names(&message, &["127.0.0.1:1", "--masters", "no master answered"]);
}

#[test]
fn commands_without_a_master_give_up_with_advice() {
    for line in ["status", "table list", "get t r", "put t r f:q v", "scan t", "count t", "admin regions", "bench put"]
    {
        let line: Vec<&str> = line.split_whitespace().collect();
        let output = terrane(&[&line, &["--masters", "127.0.0.1:1", "--timeout", "300ms"][..]].concat());
        assert_eq!(text_of(&output, 1), "", "{line:?}");
        assert_names(&errors_of(&output), &["127.0.0.1:1", "next: ", "--masters"]);
    }
    // Masters that were named are down: another cluster would not help.
    let several = terrane(&["status", "--masters", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--timeout", "300ms"]);
    let said = errors_of(&several);
    assert_names(&said, &["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "see that the master runs", "port is open"]);
    assert!(!said.contains("terrane dev"), "{said}");
}

#[test]
fn other_machines_can_connect_only_with_insecure() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().display().to_string();
    let console = "--console 127.0.0.1:0";
    for role in ["master", "server"] {
        let exposed = refused(&words(&format!("{role} --data {data}/a --listen 10.1.2.3:7700 {console}")), 2);
        assert_names(&exposed, &["10.1.2.3:7700", "--insecure", "TLS"]);
        let wildcard =
            refused(&words(&format!("{role} --data {data}/a --listen 0.0.0.0:7700 --insecure {console}")), 2);
        assert_names(&wildcard, &["0.0.0.0:7700", "--advertise"]);
        let told = refused(
            &words(&format!("{role} --data {data}/a --listen 127.0.0.1:0 --advertise 0.0.0.0:7 --insecure {console}")),
            2,
        );
        assert_names(&told, &["0.0.0.0:7"]);
        let seen = refused(&words(&format!("{role} --data {data}/a --listen 127.0.0.1:0 --console 0.0.0.0:7710")), 2);
        assert_names(&seen, &["0.0.0.0:7710", "--insecure"]);
    }
    assert!(!directory.path().join("a").exists(), "a refused process made its directory");

    let [port] = free_ports();
    let insisted =
        format!("master --data {data}/b --listen 0.0.0.0:{port} --advertise 127.0.0.1:{port} --insecure {console}");
    let master = started(&words(&insisted));
    assert_names(&master.messages(), &["warning", "not encrypted", "--insecure"]);
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports: [u16; 2] = free_ports();
    let first = Pair::start(&directory.path().join("first"), ports, "memory", [&[], &[]]);
    let cluster = first.client.json(&["status"])["cluster"].as_str().expect("text").to_owned();
    first.server.stop().expect("it stops");

    let [other, other_console, console] = free_ports();
    let _second = started(&single_master(&directory.path().join("second"), other, other_console));
    let client = Client { masters: local(other) };
    let data = directory.path().join("first/server");
    let message = refused(&server_arguments(&data, ports[1], console, &client.masters, "memory"), 1);
    assert_names(&message, &["cluster", &cluster, &client.masters]);
    assert_eq!(client.json_lines(&["admin", "servers"]), Vec::<Value>::new(), "the stranger was taken in");
}

/// Another cluster takes over the ports of the first, while a client and a server of the first still run.
#[test]
fn the_rest_of_an_old_cluster_writes_nothing_to_a_new_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = free_ports();
    let yesterday = Pair::start(&directory.path().join("yesterday"), ports, "memory", [&[], &[]]);
    let client = yesterday.client.clone();
    client.succeed(&["table", "create", "t", "--family", "f"]);
    let mut warm = client.start(&["import", "t", "--format", "tsv", "--json", "--timeout", "3s", "-"]);
    let lines = |name: &str| -> String { (0..10_000).map(|row| format!("{name}{row:05}\tf:q\t1\tv\n")).collect() };
    assert!(warm.feed(&lines("yesterday")));
    eventually(COMMAND_MAX, "the client is warm", || {
        let count = client.json(&["count", "t"])["count"].as_u64().expect("a number");
        if count > 0 { Ok(()) } else { Err("no rows yet".to_owned()) }
    });
    yesterday.master.kill();
    yesterday.server.kill();

    let today = Pair::start(&directory.path().join("today"), ports, "memory", [&[], &[]]);
    today.client.succeed(&["table", "create", "t", "--family", "f"]);
    warm.feed(&lines("zombie"));
    let output = warm.finish().expect("it ends");
    text_of(&output, 1);
    assert_names(&errors_of(&output), &["cluster"]);
    assert_eq!(today.client.json(&["count", "t"])["count"], 0);

    // A server of the old cluster that still runs finds another master on its master's port.
    let [stray, console] = free_ports();
    let arguments = server_arguments(&directory.path().join("stray"), stray, console, &client.masters, "memory");
    let stray = started(&arguments);
    today.client.wait_until_well();
    today.master.kill();
    today.server.kill();
    let tomorrow = Pair::start(&directory.path().join("tomorrow"), ports, "memory", [&[], &[]]);
    tomorrow.client.succeed(&["table", "create", "t", "--family", "f"]);
    tomorrow.client.succeed(&["put", "t", "r", "f:q", "v"]);
    let servers = tomorrow.client.json_lines(&["admin", "servers"]);
    assert_eq!(servers.len(), 1, "{servers:?}");
    assert_eq!(tomorrow.client.json(&["count", "t"])["count"], 1);
    drop(stray);
}

#[test]
fn requests_beyond_a_limit_name_it_and_write_nothing() {
    let dev = Dev::start("memory");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f"]);
    let before = client.json_lines(&["table", "list"]);

    let cases: [(&[&str], &[&str]); 18] = [
        (&["table", "create", "u", "--family", "f", "--set", "colour=red"], &["colour"]),
        (&["table", "create", "u", "--family", "f:colour=red"], &["colour"]),
        (&["table", "create", "u", "--family", "f:compression=gzip"], &["compression", "gzip", "zstd"]),
        (&["table", "create", "u", "--family", "f:block_size=2MiB"], &["block_size", "1MiB"]),
        (&["table", "create", "u", "--family", "f", "--set", "bloom_prefix=1"], &["bloom_prefix", "key"]),
        (&["table", "create", "u", "--family", "f", "--set", "history=soon"], &["soon", "time span"]),
        (&["table", "create", "u", "--family", "f", "--region-size", "1KiB"], &["16KiB", "region"]),
        (&["table", "create", "u", "--family", "f", "--key", "a:u3"], &["u3"]),
        (&["table", "create", "u", "--family", "f", "--set", "atomic=1"], &["atomic", "key"]),
        (&["table", "create", "u", "--family", "f:versions=0"], &["versions"]),
        (&["table", "create", "t", "--family", "f"], &["t", "exists"]),
        (&["table", "create", "meta", "--family", "f"], &["meta"]),
        (&["table", "alter", "t", "--set", "region_size=1KiB"], &["16KiB"]),
        (&["put", "t", "", "f:q", "v"], &["row", "32767"]),
        (&["put", "t", "r", "g:q", "v"], &["family", "g"]),
        (&["put", "t", "r", "f:q", "v", "--timestamp", "-5"], &["timestamp", "-5"]),
        (&["put", "t", "r", "f:q", "v", "--timestamp", "9223372036854775807"], &["timestamp", "9223372036854775806"]),
        (&["put", "meta", "r", "info:q", "v"], &["meta", "read-only"]),
    ];
    for (line, names) in cases {
        assert_names(&client.fail(line, 1), names);
    }
    let long = "r".repeat(32_768);
    assert_names(&client.fail(&["put", "t", &long, "f:q", "v"], 1), &["32768", "32767"]);
    assert_names(&client.fail(&["get", "t", &long], 1), &["32768", "32767"]);
    assert_names(&client.fail(&["delete", "t", ""], 1), &["row", "32767"]);
    let column = format!("f:{long}");
    assert_names(&client.fail(&["put", "t", "r", &column, "v"], 1), &["32768", "32767"]);
    for line in [["get", "t", r"\q"], ["delete", "t", r"a\x0"], ["get", "t", r"ends\"]] {
        assert_names(&client.fail(&line, 2), &[line[2]]);
    }
    assert_names(&client.fail(&["put", "t", r"\xZZ", "f:q", "v"], 2), &[r"\xZZ"]);
    assert_names(&client.fail(&["scan", "t", "--start", "b", "--stop", "a"], 2), &["a", "b"]);
    assert_names(&client.fail(&["scan", "t", "--after", "no-token"], 2), &["--after"]);
    assert_names(&client.fail(&["scan", "t", "--after", &"A".repeat(80)], 1), &["page token", "first page"]);
    assert_names(
        &client.fail(&["import", "t", "--format", "xml", "f"], 2),
        &["xml", "ncdc", "stations", "tsv", "jsonl", "csv", "parquet"],
    );

    assert_eq!(client.json(&["count", "t"])["count"], 0);
    assert_eq!(client.json_lines(&["table", "list"]), before);

    // The longest row is accepted, and a value too long for a command line is imported from a file.
    client.succeed(&["put", "t", &long[1..], "f:q", "v"]);
    let line = |row: &str, bytes: usize| format!("{row}\tf:q\t1\t{}\n", "v".repeat(bytes));
    let lines = line("longest", 10 << 20) + &line("longer", (10 << 20) + 1) + &line("short", 1);
    let imported = client.run_with_input(&["import", "t", "--format", "tsv", "--json", "-"], &lines);
    assert_counts(&imported, 2, 1);
    assert_names(&errors_of(&imported), &["-:2: ", "10485761", "10485760"]);
    assert_eq!(client.json(&["count", "t"])["count"], 3);
    let longest = client.json(&["get", "t", "longest"]);
    assert_eq!(longest["cells"][0]["value"].as_str().map(str::len), Some(10 << 20));
}

fn assert_counts(output: &Output, imported: u64, malformed: u64) {
    let counts: Value = serde_json::from_str(&text_of(output, 0)).expect("JSON");
    assert_eq!((&counts["imported"], &counts["malformed"]), (&imported.into(), &malformed.into()), "{counts}");
}

#[test]
fn a_directory_of_another_role_or_with_other_files_is_refused_by_what_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let [master, server, first, second] = free_ports();
    let of_dev = data.join("dev");
    std::fs::create_dir_all(of_dev.join("master")).expect("made");
    std::fs::create_dir_all(of_dev.join("server-1")).expect("made");
    let foreign = data.join("foreign");
    std::fs::create_dir_all(&foreign).expect("made");
    std::fs::write(foreign.join("notes.txt"), b"x").expect("written");
    let masters = local(master);
    for (at, says) in [(&of_dev, "a whole cluster"), (&foreign, "notes.txt")] {
        let errors = refused(&single_master(at, master, first), 1);
        assert!(errors.contains(&at.display().to_string()) && errors.contains(says), "{errors}");
        let errors = refused(&server_arguments(at, server, second, &masters, "lsm"), 1);
        assert!(errors.contains(&at.display().to_string()) && errors.contains(says), "{errors}");
    }
    let names = |at: &Path| std::fs::read_dir(at).expect("read").count();
    assert_eq!((names(&of_dev), names(&foreign)), (2, 1), "a refused directory stays as it is");
}

#[test]
fn a_refused_setting_leaves_no_server_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let [master, server, third, console] = free_ports();
    let pair = Pair::start(directory.path(), [master, server], "lsm", [&[], &[]]);
    let mut arguments = server_arguments(&directory.path().join("other"), third, console, &pair.client.masters, "lsm");
    arguments.extend(["--log-limit".to_owned(), "1KiB".to_owned()]);
    let errors = refused(&arguments, 2);
    assert!(errors.contains("--log-limit is 1024 bytes"), "{errors}");
    let servers = pair.client.json_lines(&["admin", "servers"]);
    assert_eq!(servers.len(), 1, "{servers:?}");
}
