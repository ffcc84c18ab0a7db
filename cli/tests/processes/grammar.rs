//! Scripts rely on the grammar: names and order of fields, the formats of keys and files, exit statuses, and what is
//! printed on standard output. These tests check it exactly, with the binary against a real cluster.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{BINARY, Client, Dev, bounded, errors_of, eventually, terrane, text_of, unescaped};

/// A line of JSON without its strings and numbers: the fields and their order.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let mut end = 1;
            while rest.as_bytes()[end] != b'"' {
                end += if rest.as_bytes()[end] == b'\\' { 2 } else { 1 };
            }
            let (text, after) = rest.split_at(end + 1);
            shape.push_str(if after.starts_with(':') { text } else { "\"\"" });
            rest = after;
        } else if first.is_ascii_digit() || first == '-' {
            shape.push('0');
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "-+.eE".contains(c));
        } else {
            shape.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shape
}

/// Ten rows `row0` to `row9`; `f:q` is the digit, with timestamps from 1000 on.
fn ten_rows(client: &Client, table: &str) {
    let lines: String = (0..10).map(|digit| format!("row{digit}\tf:q\t{}\t{digit}\n", 1000 + digit)).collect();
    text_of(&client.run_with_input(&["import", table, "--format", "tsv", "-"], &lines), 0);
}

/// The digits of the printed rows.
fn digits(output: &str) -> String {
    let rows = output.lines().filter(|line| line.starts_with("{\"row\""));
    rows.map(|line| line.strip_prefix("{\"row\":\"row").expect("a row")[..1].to_owned()).collect()
}

#[test]
fn rows_are_printed_byte_for_byte() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f:versions=3", "g"]);
    assert_eq!(client.succeed(&["put", "t", r"k\x00\\", r"f:q\x09:\xFF", "v \"q\" é", "--timestamp", "1234"]), "");
    assert_eq!(client.succeed(&["put", "t", r"k\x00\\", "g:", "", "--timestamp", "0", "--json"]), "");
    let row = concat!(
        r#"{"row":"k\\x00\\\\","cells":[{"column":"f:q\\x09:\\xFF","timestamp":1234,"value":"v \"q\" é"},"#,
        r#"{"column":"g:","timestamp":0,"value":""}]}"#,
        "\n"
    );
    for line in [
        &["get", "t", r"k\x00\\"][..],
        &["scan", "t"],
        &["first", "t"],
        &["last", "t"],
        &["scan", "t", "--prefix", r"k\x00"],
        &["get", "t", r"k\x00\\", r"f:q\x09:\xFF", "g:"],
        &["get", "t", r"k\x00\\", "f", "g"],
    ] {
        assert_eq!(client.succeed(&[line, &["--json"]].concat()), row, "{line:?}");
    }
    assert_eq!(client.succeed(&["count", "t", "--json"]), "{\"count\":1}\n");
    assert_eq!(client.succeed(&["count", "t"]), "1\n");
    assert_eq!(client.succeed(&["export", "t"]), row);
    assert_eq!(client.succeed(&["export", "t", "--format", "jsonl", "--json"]), row);
    let tsv = "k\\x00\\\\\tf:q\\x09:\\xFF\t1234\tv \"q\" é\nk\\x00\\\\\tg:\t0\t\n";
    assert_eq!(client.succeed(&["export", "t", "--format", "tsv"]), tsv);
    // Printed rows can be imported and then print the same.
    client.succeed(&["table", "create", "u", "--family", "f:versions=3", "g"]);
    text_of(&client.run_with_input(&["import", "u", "--format", "tsv", "-"], tsv), 0);
    assert_eq!(client.succeed(&["export", "u"]), row);

    for (timestamp, value) in [("1", "old"), ("3", "new"), ("2", "middle")] {
        client.succeed(&["put", "t", "v", "f:q", value, "--timestamp", timestamp]);
    }
    let cells = |versions: &str| client.succeed(&["get", "t", "v", "f:q", "--versions", versions, "--json"]);
    let cell = |timestamp: u8, value: &str| format!(r#"{{"column":"f:q","timestamp":{timestamp},"value":"{value}"}}"#);
    let line = |cells: &[String]| format!("{{\"row\":\"v\",\"cells\":[{}]}}\n", cells.join(","));
    assert_eq!(cells("1"), line(&[cell(3, "new")]));
    assert_eq!(cells("2"), line(&[cell(3, "new"), cell(2, "middle")]));
    assert_eq!(cells("9"), line(&[cell(3, "new"), cell(2, "middle"), cell(1, "old")]));
    let exported = client.succeed(&["export", "t", "--start", "v"]);
    assert_eq!(exported, cells("3"), "export writes every version that the table keeps");
}

#[test]
fn deletes_hide_what_was_written_before_them() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f:versions=3", "g"]);
    for (column, timestamp) in [("f:a", "10"), ("f:a", "20"), ("f:b", "10"), ("g:a", "10")] {
        client.succeed(&["put", "t", "r", column, "v", "--timestamp", timestamp]);
    }
    assert_eq!(client.succeed(&["delete", "t", "r", "f:a"]), "");
    client.fail(&["get", "t", "r", "f:a", "--versions", "3"], 3);
    let columns = |row: &Value| -> Vec<String> {
        row["cells"]
            .as_array()
            .expect("cells")
            .iter()
            .map(|cell| cell["column"].as_str().expect("text").into())
            .collect()
    };
    assert_eq!(columns(&client.json(&["get", "t", "r"])), ["f:b", "g:a"]);
    // A delete only hides cells written before it, whatever their timestamps.
    client.succeed(&["put", "t", "r", "f:a", "again", "--timestamp", "5"]);
    assert_eq!(client.json(&["get", "t", "r", "f:a", "--versions", "3"])["cells"][0]["value"], "again");
    // "All versions" includes those with future timestamps, but only those already written.
    for column in [&["f:a"][..], &["f"], &[]] {
        client.succeed(&["put", "t", "r", "f:a", "to come", "--timestamp", "9000000000000000"]);
        client.succeed(&[&["delete", "t", "r"], column].concat());
        client.fail(&["get", "t", "r", "f:a"], 3);
        client.succeed(&["put", "t", "r", "f:a", "now"]);
        client.json(&["get", "t", "r", "f:a"]);
    }
    client.succeed(&["delete", "t", "r"]);
    client.fail(&["get", "t", "r"], 3);
    assert_eq!(client.json(&["count", "t"])["count"], 0);
    // Deleting a missing row succeeds.
    client.succeed(&["delete", "t", "r"]);
    client.succeed(&["delete", "t", "other", "g:a"]);
}

#[test]
fn ranges_limits_and_pages_are_those_of_the_grammar() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "row3", "--split-at", "row7"]);
    assert_eq!(client.regions("t"), 3);
    ten_rows(client, "t");
    client.succeed(&["put", "t", "row5", "f:other", "v"]);
    let cases: [(&[&str], &str); 14] = [
        (&[], "0123456789"),
        (&["--reverse"], "9876543210"),
        (&["--prefix", "row"], "0123456789"),
        (&["--prefix", "row4"], "4"),
        (&["--start", "row2", "--stop", "row8"], "234567"),
        (&["--start", "row2", "--stop", "row8", "--reverse"], "765432"),
        (&["--start", "row8"], "89"),
        (&["--stop", "row2"], "01"),
        (&["--offset", "4", "--limit", "3"], "456"),
        (&["--offset", "4", "--limit", "3", "--reverse"], "543"),
        (&["--offset", "20"], ""),
        (&["--limit", "0"], ""),
        (&["--column", "f:other"], "5"),
        (&["--column", "f:other", "--column", "f:q", "--limit", "2"], "01"),
    ];
    for (flags, expected) in cases {
        let output = client.succeed(&[&["scan", "t", "--json"], flags].concat());
        assert_eq!(digits(&output), expected, "{flags:?}");
    }
    assert_eq!(client.json(&["count", "t", "--start", "row2", "--stop", "row8"])["count"], 6);
    assert_eq!(client.json(&["count", "t", "--prefix", "row4"])["count"], 1);
    assert_eq!(client.json(&["first", "t", "--prefix", "row4"])["row"], "row4");
    assert_eq!(client.json(&["last", "t", "--prefix", "row"])["row"], "row9");
    assert_eq!(
        (&client.json(&["first", "t"])["row"], &client.json(&["last", "t"])["row"]),
        (&"row0".into(), &"row9".into())
    );
    client.fail(&["first", "t", "--prefix", "s"], 3);
    client.fail(&["last", "t", "--prefix", "a"], 3);

    for (direction, expected) in [(&[][..], "0123456789"), (&["--reverse"], "9876543210")] {
        let scan = [&["scan", "t", "--limit", "4", "--token", "--json"], direction].concat();
        let mut pages = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let output = match &after {
                None => client.succeed(&scan),
                Some(token) => client.succeed(&[&scan[..], &["--after", token]].concat()),
            };
            pages.push(digits(&output));
            let last = output.lines().last().expect("a token");
            if last == r#"{"after":null}"# {
                break;
            }
            assert_eq!(shape(last), r#"{"after":""}"#);
            let line: Value = serde_json::from_str(last).expect("JSON");
            after = line["after"].as_str().map(str::to_owned);
        }
        assert_eq!(pages.concat(), expected);
        assert_eq!(pages.iter().map(String::len).collect::<Vec<_>>(), [4, 4, 2]);
    }
    let whole = client.succeed(&["scan", "t", "--limit", "10", "--token", "--json"]);
    assert!(whole.ends_with("{\"after\":null}\n"), "{whole}");
    let nothing = client.succeed(&["scan", "t", "--prefix", "s", "--limit", "3", "--token", "--json"]);
    assert_eq!(nothing, "{\"after\":null}\n");
}

#[test]
fn a_missing_row_is_status_three_and_a_missing_table_one() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f"]);
    let rows: [&[&str]; 4] = [&["get", "t", "r"], &["get", "t", "r", "f:q"], &["first", "t"], &["last", "t"]];
    let tables: [&[&str]; 19] = [
        &["get", "none", "r"],
        &["put", "none", "r", "f:q", "v"],
        &["delete", "none", "r"],
        &["scan", "none"],
        &["count", "none"],
        &["first", "none"],
        &["export", "none"],
        &["import", "none", "--format", "tsv", "/dev/null"],
        &["table", "describe", "none"],
        &["table", "drop", "none"],
        &["table", "disable", "none"],
        &["table", "enable", "none"],
        &["table", "truncate", "none"],
        &["incr", "none", "r", "f:q"],
        &["table", "alter", "none", "--set", "read_only=true"],
        &["admin", "regions", "none"],
        &["admin", "split", "999999999"],
        &["admin", "flush", "none"],
        &["admin", "compact", "none"],
    ];
    for (lines, status) in [(&rows[..], 3), (&tables, 1)] {
        for line in lines {
            assert!(!client.fail(line, status).is_empty(), "{line:?} says nothing");
            assert!(!client.fail(&[line, &["--json"][..]].concat(), status).is_empty(), "{line:?} says nothing");
        }
    }
    // An empty range is not an error for commands that return any number of rows.
    assert_eq!(client.succeed(&["scan", "t", "--json"]), "");
    assert_eq!(client.json(&["count", "t"])["count"], 0);
    assert_eq!(client.succeed(&["export", "t"]), "");
}

const REGION: &str =
    r#"{"table":"","region":0,"start":"","stop":"","epoch":0,"group":0,"leader":"","bytes":0,"state":""}"#;
const SERVER: &str = r#"{"server":0,"address":"","state":"","leaders":0,"replicas":0,"regions":0,"memtable_bytes":0,"log_bytes":0,"store_bytes":0,"disk_free_bytes":0}"#;
const WORK: &str = r#"{"table":"","servers":0,"replicas":0,"bytes":0,"seconds":0,"failures":[]}"#;
const SUMMARY: &str = r#"{"workload":"","operations":0,"rows":0,"seconds":0,"rate":0,"rows_rate":0,"p50_us":0,"p99_us":0,"p999_us":0,"errors":0}"#;

#[test]
fn lists_of_the_cluster_have_the_documented_format() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f", "--split-at", r"k\x00,"]);
    client.succeed(&["table", "create", "ns:u", "--family", "f"]);
    eventually(Duration::from_secs(20), "every server knows its disk", || {
        let servers = client.succeed(&["admin", "servers", "--json"]);
        let shapes: Vec<String> = servers.lines().map(shape).collect();
        if shapes == [SERVER; 3] { Ok(()) } else { Err(servers) }
    });
    let regions = client.succeed(&["admin", "regions", "--json"]);
    assert_eq!(regions.lines().map(shape).collect::<Vec<_>>(), [REGION; 3], "{regions}");

    let of_table = client.json_lines(&["admin", "regions", "t"]);
    let server_addresses: Vec<Value> =
        client.json_lines(&["admin", "servers"]).into_iter().map(|server| server["address"].clone()).collect();
    let bounds = |region: &Value| (region["start"].clone(), region["stop"].clone());
    assert_eq!(bounds(&of_table[0]), ("".into(), r"k\x00,".into()));
    assert_eq!(bounds(&of_table[1]), (r"k\x00,".into(), "".into()));
    for region in &of_table {
        assert_eq!((&region["table"], &region["state"], &region["epoch"]), (&"t".into(), &"open".into(), &1.into()));
        assert!(server_addresses.contains(&region["leader"]), "{region}");
    }

    meta_shows_every_region(client, &of_table);
    let number = of_table[0]["region"].to_string();
    let daughters = client.json_lines(&["admin", "split", &number, "--at", "c"]);
    assert_eq!(daughters.len(), 2, "{daughters:?}");
    eventually(Duration::from_secs(20), "the split shows", || {
        let regions = client.json_lines(&["admin", "regions", "t"]);
        let starts: Vec<&str> = regions.iter().map(|region| region["start"].as_str().expect("text")).collect();
        let epochs: Vec<u64> = regions.iter().map(|region| region["epoch"].as_u64().expect("a number")).collect();
        if starts == ["", "c", r"k\x00,"] && epochs == [2, 2, 1] { Ok(()) } else { Err(format!("{regions:?}")) }
    });
    client.fail(&["admin", "split", &daughters[0]["region"].to_string(), "--at", "x"], 1);
}

#[test]
fn a_table_is_flushed_and_compacted_on_all_its_servers() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "m"]);
    for row in ["a", "n", "z"] {
        client.succeed(&["put", "t", row, "f:q", "v"]);
    }
    for (command, what) in [("flush", "flushed"), ("compact", "compacted")] {
        let told = client.succeed(&["admin", command, "t"]);
        assert!(told.starts_with(&format!("{what} 6 replicas on 3 servers, ")), "{told}");
        let json = client.succeed(&["admin", command, "t", "--json"]);
        assert_eq!(shape(json.trim_end()), WORK, "{json}");
    }
    assert_eq!(client.json(&["count", "t"])["count"], 3);
}

/// `scan meta` prints a row per region with key `table,start,region`, the start escaped, and eight text columns.
fn meta_shows_every_region(client: &Client, regions: &[Value]) {
    let lines = client.json_lines(&["scan", "meta", "--prefix", "t,"]);
    assert_eq!(lines.len(), regions.len());
    for (line, region) in lines.iter().zip(regions) {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let key = format!("t,{},{}", text(&region["start"]), region["region"]);
        assert_eq!(unescaped(&text(&line["row"])), key.as_bytes());
        let cells = line["cells"].as_array().expect("cells");
        let cell = |index: usize| (text(&cells[index]["column"]), unescaped(&text(&cells[index]["value"])));
        let columns = ["epoch", "group", "leader", "region", "servers", "start", "stop", "table"];
        assert_eq!(cells.len(), columns.len(), "{line}");
        for (index, column) in columns.into_iter().enumerate() {
            let (name, value) = cell(index);
            assert_eq!(name, format!("info:{column}"));
            if column == "servers" {
                let servers = String::from_utf8(value).expect("text");
                assert!(servers.split(',').count() == 3 && servers.contains(&text(&region["leader"])), "{servers}");
            } else {
                assert_eq!(value, text(&region[column]).into_bytes(), "{column}");
            }
        }
        let got = client.json(&["get", "meta", &text(&line["row"]), "info:region"]);
        assert_eq!(got["cells"][0]["value"], region["region"].to_string());
    }
    assert_eq!(client.json(&["count", "meta"])["count"], 3);
    // Pages work as for any table.
    let (mut paged, mut after): (Vec<Value>, Option<String>) = (Vec::new(), None);
    loop {
        let mut call = vec!["scan", "meta", "--prefix", "t,", "--limit", "2", "--token"];
        if let Some(token) = &after {
            call.extend(["--after", token]);
        }
        let mut page = client.json_lines(&call);
        let last = page.pop().expect("a line with the token");
        paged.extend(page);
        after = last["after"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, lines);
    for line in
        [&["put", "meta", "t,,1", "info:start", "v"][..], &["delete", "meta", "t,,1"], &["table", "drop", "meta"]]
    {
        assert!(client.fail(line, 1).contains("meta"), "{line:?}");
    }
}

#[test]
fn benchmarks_end_with_the_documented_line() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    let flags = [
        "--table",
        "b",
        "--rows",
        "300",
        "--value-bytes",
        "10",
        "--in-flight",
        "4",
        "--seconds",
        "1",
        "--regions",
        "4",
    ];
    for (workload, batch, rows_per_call) in
        [("load", "100", 100), ("put", "1", 1), ("get", "5", 5), ("scan", "100", 100)]
    {
        let line = [&["bench", workload], &flags[..], &["--batch", batch, "--json"]].concat();
        let output = client.succeed(&line);
        for line in output.lines() {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        }
        let last = output.lines().last().expect("a summary");
        // A workload may append its own fields.
        assert!(shape(last).starts_with(SUMMARY.trim_end_matches('}')), "{last}");
        let summary: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!((&summary["workload"], &summary["errors"]), (&workload.into(), &0.into()));
        let (operations, rows) = (summary["operations"].as_u64().expect("N"), summary["rows"].as_u64().expect("N"));
        assert!(operations > 0 && rows <= operations * rows_per_call && rows >= operations, "{last}");
        if workload == "load" {
            assert_eq!((operations, rows), (3, 300), "{last}");
            assert_eq!(client.json(&["count", "b"])["count"], 300);
            assert_eq!(client.regions("b"), 4);
        }
    }
}

#[test]
fn tables_are_created_altered_and_dropped() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    let key = "user:u64, time:desc i64, action:u32";
    assert_eq!(
        client.succeed(&["table", "create", "a", "--family", "f:versions=2,ttl=1d", "--key", key, "--set", "atomic=1"]),
        ""
    );
    let described = client.json(&["table", "describe", "a"]);
    assert_eq!((&described["name"], &described["attributes"]["key"]), (&"a".into(), &key.into()));
    assert_eq!((&described["attributes"]["atomic"], &described["families"][0]["versions"]), (&"1".into(), &"2".into()));
    client.succeed(&["table", "create", "n.s-1:b_2", "--family", "f", "--region-size", "1MiB"]);
    let names: Vec<Value> = client.json_lines(&["table", "list"]).iter().map(|table| table["name"].clone()).collect();
    assert_eq!(names, ["a", "n.s-1:b_2"]);

    client.succeed(&["put", "n.s-1:b_2", "r", "f:q", "v"]);
    client.fail(&["put", "n.s-1:b_2", "r", "g:q", "v"], 1);
    client.succeed(&["table", "alter", "n.s-1:b_2", "--add-family", "g:versions=2", "--family", "f:versions=5"]);
    client.succeed(&["put", "n.s-1:b_2", "r", "g:q", "v"]);
    client.succeed(&["table", "alter", "n.s-1:b_2", "--drop-family", "f", "--set", "region_size=2MiB"]);
    let row = client.json(&["get", "n.s-1:b_2", "r"]);
    assert_eq!(row["cells"].as_array().map(Vec::len), Some(1), "{row}");
    assert_eq!(client.json(&["table", "describe", "n.s-1:b_2"])["attributes"]["region_size"], "2MiB");
    let family = "g:compression=zstd,bloom=rowcol,block_size=4KiB,in_memory=true";
    client.succeed(&["table", "alter", "n.s-1:b_2", "--family", family]);
    let family = client.json(&["table", "describe", "n.s-1:b_2"])["families"][0].clone();
    assert_eq!(
        ["versions", "compression", "bloom", "block_size", "in_memory"].map(|name| family[name].clone()),
        ["2", "zstd", "rowcol", "4KiB", "true"].map(Value::from)
    );
    assert_eq!(client.json(&["get", "n.s-1:b_2", "r"]), row, "what is read does not depend on how it is stored");
    client.succeed(&["table", "alter", "n.s-1:b_2", "--set", "read_only=true"]);
    assert!(client.fail(&["put", "n.s-1:b_2", "r", "g:q", "w"], 1).contains("read-only"));
    client.succeed(&["table", "drop", "n.s-1:b_2"]);
    client.fail(&["get", "n.s-1:b_2", "r"], 1);
    // The name can be used again, and nothing of the old table is visible.
    client.succeed(&["table", "create", "n.s-1:b_2", "--family", "g"]);
    assert_eq!(client.json(&["count", "n.s-1:b_2"])["count"], 0);
}

#[test]
fn masters_and_timeout_come_from_flags_and_environment() {
    let dev = Dev::start("lsm");
    let masters = dev.client.masters.as_str();
    let run = |environment: &str, timeout: &str, flags: &[&str]| {
        bounded(
            Command::new(BINARY)
                .args(["status", "--json", "--timeout", timeout])
                .args(flags)
                .env("TERRANE_MASTERS", environment),
        )
    };
    text_of(&run(masters, "10s", &[]), 0);
    text_of(&run("127.0.0.1:1", "10s", &["--masters", masters]), 0);
    // Of several addresses, any that responds.
    text_of(&run(&format!("127.0.0.1:1,{masters}"), "10s", &[]), 0);
    let begun = Instant::now();
    text_of(&run("127.0.0.1:1", "500ms", &[]), 1);
    assert!(begun.elapsed() < Duration::from_secs(10), "a call of half a second took {:?}", begun.elapsed());
    text_of(&run("nowhere", "500ms", &[]), 2);
    assert_eq!(text_of(&terrane(&["status", "--timeout", "0"]), 2), "");

    // The first line is `ready`, with the configured addresses.
    assert!(dev.process.ready.starts_with("ready "), "{}", dev.process.ready);
    assert!(dev.process.ready.contains(masters), "{}", dev.process.ready);
    for server in dev.client.json_lines(&["admin", "servers"]) {
        assert!(dev.process.ready.contains(server["address"].as_str().expect("text")), "{}", dev.process.ready);
    }
    let ended = dev.process.stop().expect("it stops");
    assert_eq!(ended.stdout.lines().count(), 1, "more than the ready line is on standard output: {}", ended.stdout);
}

#[test]
fn unknown_commands_are_status_two() {
    let nowhere = ["--masters", "127.0.0.1:1", "--timeout", "100ms"];
    for line in [
        "admin servers",
        "admin groups",
        "admin split 7 --at k",
        "table create t --family f:versions=3,ttl=1d --split-at 5 --split-at user=7 --region-size 16KiB --key user:u64 --set x=y",
        "table alter t --set a=b --family f:versions=2 --add-family g --drop-family i",
        "put t r f:q v --timestamp 5",
        "get t r f:q f:p --versions 3",
        "scan t --start a --stop b --reverse --offset 5 --limit 10 --column f:q --column f:p --versions 2 --token",
        "first t --prefix k",
        "import t --format ncdc a b.gz",
        "export t --format tsv --start a --stop b",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = terrane(&[&words[..], &nowhere].concat());
        text_of(&output, 1);
    }
    for line in [
        "",
        "nonsense",
        "put t r",
        r"get t r \q",
        "scan t --limit x",
        "table create t",
        "get a/b r",
        "admin split x",
        "import t f",
        "server --listen 0.0.0.0:1",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = terrane(&words);
        assert_eq!(text_of(&output, 2), "", "{line}");
        assert!(!errors_of(&output).is_empty(), "{line:?} says nothing");
    }
}
