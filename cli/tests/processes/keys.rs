//! Tables that declare their keys and the types of their columns, at the command line: rows are written, shown, paged and
//! counted part by part, values as their type, and whatever is malformed exits with status 2 before anything is written.

use crate::harness::{Client, Dev, errors_of, text_of};

fn actions(client: &Client) {
    let key = "user:u64, time:desc i64, action:u32";
    let create = [
        "table",
        "create",
        "actions",
        "--family",
        "d:versions=3",
        "--key",
        key,
        "--column",
        "d:count=i64",
        "d:ratio=f64",
    ];
    client.succeed(&[&create[..], &["--split-at", "user=8"]].concat());
    for (row, count) in
        [("user=7,time=1000,action=1", "5"), ("7,3000,2", "-6"), ("user=7,time=2000,action=1", "7"), ("9,1,1", "1")]
    {
        client.succeed(&["put", "actions", row, "d:count", count]);
    }
    client.succeed(&["put", "actions", "7,3000,2", "d:kind", "login"]);
}

/// The first column of what a command prints as text.
fn keys(text: &str) -> Vec<&str> {
    let mut keys: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    keys.dedup();
    keys
}

#[test]
fn a_declared_key_is_written_and_shown_part_by_part() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    actions(client);
    assert_eq!(client.regions("actions"), 2);

    let newest = client.succeed(&["scan", "actions", "--prefix", "user=7"]);
    let by_time = ["user=7,time=3000,action=2", "user=7,time=2000,action=1", "user=7,time=1000,action=1"];
    assert_eq!(keys(&newest), by_time, "{newest}");
    assert!(newest.contains("-6") && newest.contains("login"), "{newest}");
    let reverse = client.succeed(&["scan", "actions", "--prefix", "7", "--reverse", "--limit", "2"]);
    assert_eq!(keys(&reverse), [by_time[2], by_time[1]]);
    assert_eq!(keys(&client.succeed(&["scan", "actions", "--start", "7,2500", "--stop", "user=9"])), by_time[1..]);
    assert_eq!(client.json(&["count", "actions", "--prefix", "user=7"])["count"], 3);
    assert_eq!(client.json(&["first", "actions", "--prefix", "user=7"])["key"]["time"], 3000);
    assert_eq!(client.json(&["last", "actions"])["key"]["user"], 9);
    let latest = client.succeed(&["latest", "actions", "--parts", "1"]);
    assert_eq!(keys(&latest), [by_time[0], "user=9,time=1,action=1"]);

    let row = client.succeed(&["get", "actions", "user=7,time=3000,action=2", "--json"]);
    let shown = r#""key":{"user":7,"time":3000,"action":2}"#;
    assert!(row.contains(shown) && row.contains(r#""typed":-6"#) && row.contains(r#""value":"login""#), "{row}");
    let bytes = r"\x00\x00\x00\x00\x00\x00\x00\x07\x7F\xFF\xFF\xFF\xFF\xFF\xF4G\x00\x00\x00\x02";
    assert_eq!(client.json(&["get", "actions", "7,3000,2"])["row"], bytes, "`row` stays bytes");
    let raw = client.succeed(&["get", "actions", bytes, "--raw", "--json"]);
    assert!(raw.starts_with(r#"{"row":"\\x00"#) && !raw.contains("\"key\"") && !raw.contains("typed"), "{raw}");
    assert!(
        client
            .succeed(&["scan", "actions", "--raw", "--prefix", r"\x00\x00\x00\x00\x00\x00\x00\x09"])
            .contains(r"\x09")
    );

    // A page is continued by its token.
    let page = client.succeed(&["scan", "actions", "--prefix", "user=7", "--limit", "2", "--token", "--json"]);
    let token: serde_json::Value = serde_json::from_str(page.lines().last().expect("a token")).expect("JSON");
    let token = token["after"].as_str().expect("more follows");
    assert_eq!(
        keys(&format!(
            "\n{}",
            client
                .succeed(&["scan", "actions", "--prefix", "user=7", "--after", token])
                .split_once('\n')
                .expect("a heading")
                .1
        )),
        by_time[2..]
    );

    client.succeed(&["delete", "actions", "7,2000,1"]);
    client.fail(&["get", "actions", "7,2000,1"], 3);
    assert_eq!(client.succeed(&["incr", "actions", "7,1000,1", "d:count", "2"]), "7\n");
    assert_eq!(client.json(&["aggregate", "actions", "sum", "d:count"])["sum"], 2, "a declared type needs no TYPE()");

    // What is exported can be imported.
    let exported = client.succeed(&["export", "actions"]);
    assert!(
        exported.starts_with("{\"row\":") && exported.contains(r#""key":{"user":7,"time":3000,"action":2}"#),
        "{exported}"
    );
    let bytes_only = client.succeed(&["export", "actions", "--raw"]);
    assert!(!bytes_only.contains("\"key\""), "{bytes_only}");
    let key = "user:u64, time:desc i64, action:u32";
    client.succeed(&["table", "create", "copy", "--family", "d:versions=3", "--key", key, "--column", "d:count=i64"]);
    text_of(&client.run_with_input(&["import", "copy", "--format", "jsonl", "-"], &exported), 0);
    assert_eq!(client.succeed(&["export", "copy"]), exported);

    let region = client.json_lines(&["admin", "regions", "actions"])[0]["region"].as_u64().expect("a number");
    client.succeed(&["admin", "split", &region.to_string(), "--at", "user=7"]);
    assert_eq!(client.regions("actions"), 3);
    assert_eq!(client.json(&["count", "actions"])["count"], 3);
}

#[test]
fn malformed_keys_and_values_are_status_two_and_write_nothing() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    actions(client);
    let before = client.succeed(&["export", "actions"]);
    let cases: [(&[&str], &[&str]); 12] = [
        (&["put", "actions", "user=x,time=1,action=1", "d:kind", "v"], &["part user (u64)", "the table's key is"]),
        (&["put", "actions", "user=7,time=1", "d:kind", "v"], &["part action (u32) is missing"]),
        (&["put", "actions", "user=7,tme=1,action=1", "d:kind", "v"], &["\"tme\"", "did you mean time?"]),
        (&["put", "actions", "7,1,4294967296", "d:kind", "v"], &["part action (u32)", "4294967295"]),
        (&["put", "actions", "7,1,1,1", "d:kind", "v"], &["4 parts"]),
        (&["put", "actions", "7,1,1", "d:count", "five"], &["d:count (i64)", "five"]),
        (&["put", "actions", "7,1,1", "d:ratio", "half"], &["d:ratio (f64)"]),
        (&["incr", "actions", "7,1,1", "d:ratio"], &["d:ratio", "f64", "i64"]),
        (&["scan", "actions", "--prefix", "time=1"], &["without user"]),
        (&["count", "actions", "--start", "user=9", "--stop", "user=7"], &["--start user=9 sorts after --stop user=7"]),
        (&["aggregate", "actions", "sum", "d:kind"], &["d:kind", "no declared type", "i64(d:kind)"]),
        (&["delete", "actions", "seven"], &["part time (desc i64) is missing"]),
    ];
    for (line, named) in cases {
        let error = client.fail(line, 2);
        assert!(named.iter().all(|name| error.contains(name)), "{line:?}: {error}");
    }
    assert_eq!(client.succeed(&["export", "actions"]), before);
}

#[test]
fn salted_keys_are_read_in_the_order_of_their_keys() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "events", "--family", "d", "--key", "bucket4, time:i64, id:text"]);
    for time in 0..12 {
        client.succeed(&["put", "events", &format!("{time},'a,b'"), "d:n", &time.to_string()]);
    }
    let key = |time: u32| format!("time={time},id='a,b'");
    let all = client.succeed(&["scan", "events"]);
    assert_eq!(keys(&all), (0..12).map(key).collect::<Vec<_>>(), "{all}");
    let some = client.succeed(&["scan", "events", "--start", "3", "--stop", "time=9", "--offset", "2", "--limit", "3"]);
    assert_eq!(keys(&some), (5..8).map(key).collect::<Vec<_>>());
    let back = client.succeed(&["scan", "events", "--reverse", "--offset", "1", "--limit", "2"]);
    assert_eq!(keys(&back), [key(10), key(9)]);
    assert_eq!(client.json(&["count", "events", "--start", "3", "--stop", "9"])["count"], 6);
    assert_eq!(client.json(&["last", "events"])["key"]["time"], 11);
    assert_eq!(client.json(&["first", "events", "--prefix", "4"])["key"]["id"], "a,b");
    assert!(client.fail(&["latest", "events", "--parts", "2", "--prefix", "4"], 2).contains("salted"));
}

#[test]
fn tables_are_disabled_enabled_and_truncated() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "m"]);
    client.succeed(&["put", "t", "r", "f:q", "v"]);
    client.succeed(&["table", "disable", "t"]);
    let refused = client.run(&["get", "t", "r"]);
    text_of(&refused, 1);
    let said = errors_of(&refused);
    assert!(said.contains("disabled") && said.contains("terrane table enable"), "{said}");
    assert_eq!(client.json(&["table", "describe", "t"])["state"], "disabled");
    client.succeed(&["table", "enable", "t"]);
    assert_eq!(client.json(&["get", "t", "r"])["row"], "r");
    client.succeed(&["table", "truncate", "t", "--yes"]);
    assert_eq!((client.json(&["count", "t"])["count"].as_u64(), client.regions("t")), (Some(0), 2));
}

#[test]
fn reads_can_select_timestamps() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "--family", "f:versions=5", "t"]);
    for timestamp in ["10", "20", "30"] {
        client.succeed(&["put", "t", "r", "f:q", timestamp, "--timestamp", timestamp]);
    }
    let value = |line: &[&str]| client.json(line)["cells"][0]["value"].clone();
    assert_eq!(value(&["get", "t", "r", "--time-range", "..30"]), "20");
    assert_eq!(value(&["scan", "t", "--time-range", "10..20"]), "10");
    assert_eq!(value(&["first", "t", "--time-range", "30.."]), "30");
    client.fail(&["get", "t", "r", "--time-range", "40.."], 3);
    assert_eq!(client.json(&["count", "t", "--time-range", "40.."])["count"], 0);
}
