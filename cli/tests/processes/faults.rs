//! A master and three region servers as separate processes, killed with `kill -9` under load: acknowledged writes
//! survive, and writers recover by themselves.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::harness::{
    COMMAND_MAX, Cells, Client, Cluster, assert_same_cells, errors_of, eventually, no_trace, text_of,
};

/// Settings with frequent flushes and splits, so that a short test has many of both.
const SMALL: [&str; 3] = ["--region-size=32KiB", "--set", "flush_size=16KiB"];

/// Cells to import, and the same cells as they must be exported.
struct Written {
    lines: String,
    cells: Cells,
}

/// Rows from number `first` on, with a cell in each family. They are ordered so that writes always spread over the
/// whole key range; values differ between rows.
fn rows(first: u64, count: u64, families: &[&str]) -> Written {
    let mut written = Written { lines: String::new(), cells: Cells::new() };
    for number in first..first + count {
        // Multiplying by an odd factor visits every number below a power of two once.
        let row = format!("{:08x}", number.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF);
        for family in families {
            let value = format!("{family} of {number} {}", "x".repeat(40));
            writeln!(written.lines, "{row}\t{family}:q\t{}\t{value}", number + 1).expect("memory");
            written.cells.insert((row.clone().into_bytes(), format!("{family}:q").into_bytes()), value.into_bytes());
        }
    }
    written
}

fn create(client: &Client, table: &str, families: &[&str], flags: &[&str]) {
    let family_flags = [&["--family"], families].concat();
    client.succeed(&[&["table", "create", table], &family_flags[..], flags].concat());
}

fn import(client: &Client, table: &str, lines: &str) {
    let output = client.run_with_input(&["import", table, "--format", "tsv", "--json", "-"], lines);
    let counts: Value = serde_json::from_str(&text_of(&output, 0)).expect("JSON");
    assert_eq!((&counts["malformed"], &counts["refused"]), (&0.into(), &0.into()), "{}", errors_of(&output));
}

/// A suspended process keeps its connections but does not respond. The import completes meanwhile.
#[test]
fn an_import_completes_without_a_suspended_server() {
    let cluster = Cluster::start("lsm", &[]);
    let client = cluster.client.clone();
    create(&client, "t", &["f"], &SMALL);
    let written = rows(0, 9_000, &["f"]);
    let lines: Vec<&str> = written.lines.split_inclusive('\n').collect();
    let mut importing = client.start(&["import", "t", "--format", "tsv", "--json", "-"]);
    let (first, second) = lines.split_at(lines.len() / 2);
    assert!(importing.feed(&first.concat()), "the import ended early");
    // From here on the import is certainly running, and every server leads part of the table.
    client.wait_for_regions("t", 3);
    cluster.signal_server(0, "STOP");
    assert!(importing.feed(&second.concat()), "the import ended early");
    let output = importing.finish().expect("it ends");
    let counts: Value = serde_json::from_str(&text_of(&output, 0)).expect("JSON");
    assert_eq!(counts["imported"], 9_000, "{}", errors_of(&output));
    assert_same_cells(&client.cells("t"), &written.cells);
    cluster.signal_server(0, "CONT");
    client.wait_until_well();
    assert_same_cells(&client.cells("t"), &written.cells);
}

/// Kills each server in turn during one import.
fn an_import_survives_the_loss_of_a_server(engine: &str) {
    let mut cluster = Cluster::start(engine, &[]);
    let client = cluster.client.clone();
    create(&client, "t", &["f"], &SMALL);
    let written = rows(0, 15_000, &["f"]);
    // Parts larger than the writer's batches.
    let lines: Vec<&str> = written.lines.split_inclusive('\n').collect();
    let mut importing = client.start(&["import", "t", "--format", "tsv", "--json", "-"]);
    let mut parts = lines.chunks(lines.len().div_ceil(3));
    let mut feed = || assert!(importing.feed(&parts.next().expect("three parts").concat()), "the import ended early");

    feed();
    // From here on the import is certainly running, and every server leads part of the table.
    client.wait_for_regions("t", 3);
    cluster.kill_server(0);
    feed();
    cluster.start_server(0);
    client.wait_until_well();
    cluster.kill_server(1);
    feed();

    let output = importing.finish().expect("it ends");
    let counts: Value = serde_json::from_str(&text_of(&output, 0)).expect("JSON");
    assert_eq!(counts["imported"], 15_000, "{}", errors_of(&output));
    assert_same_cells(&client.cells("t"), &written.cells);
    cluster.start_server(1);
    client.wait_until_well();
    assert_same_cells(&client.cells("t"), &written.cells);
}

#[test]
fn an_import_survives_the_loss_of_a_server_on_lsm() {
    an_import_survives_the_loss_of_a_server("lsm");
}

#[test]
fn an_import_survives_the_loss_of_a_server_on_sled() {
    an_import_survives_the_loss_of_a_server("sled");
}

/// Puts rows one by one until stopped or refused; returns the acknowledged ones.
fn put_until(client: &Client, name: &str, stop: &AtomicBool) -> Cells {
    let mut acknowledged = Cells::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (row, value) = (format!("{name}{number:05}"), format!("value {number}"));
        let output = client.run(&["put", "t", &row, "f:put", &value, "--timeout", "10s"]);
        no_trace(&errors_of(&output));
        if output.status.success() {
            acknowledged.insert((row.into_bytes(), b"f:put".to_vec()), value.into_bytes());
        }
    }
    acknowledged
}

#[test]
fn acknowledged_rows_outlive_the_loss_of_every_process() {
    let mut cluster = Cluster::start("lsm", &[]);
    let client = cluster.client.clone();
    create(&client, "t", &["f"], &SMALL);
    let first = rows(0, 2_000, &["f"]);
    import(&client, "t", &first.lines);

    let stop = AtomicBool::new(false);
    let second = rows(2_000, 20_000, &["f"]);
    let mut importing = client.start(&["import", "t", "--format", "tsv", "--timeout", "3s", "-"]);
    let acknowledged = std::thread::scope(|scope| {
        let putting = ["p", "z"].map(|name| {
            scope.spawn({
                let (client, stop) = (&client, &stop);
                move || put_until(client, name, stop)
            })
        });
        // In the middle: rows of the import have arrived, more are in flight, and puts were acknowledged.
        let feeding = scope.spawn(|| importing.feed(&second.lines));
        eventually(COMMAND_MAX, "writes are under way", || {
            let count = client.json(&["count", "t"])["count"].as_u64().expect("a number");
            let puts = client.json(&["count", "t", "--prefix", "z"])["count"].as_u64().expect("a number");
            if count > 3_000 && puts > 3 { Ok(()) } else { Err(format!("{count} rows, {puts} puts")) }
        });
        cluster.kill_all();
        stop.store(true, Ordering::Relaxed);
        feeding.join().expect("the feeding thread");
        putting.map(|thread| thread.join().expect("a putting thread"))
    });
    drop(importing);
    assert!(acknowledged.iter().all(|cells| !cells.is_empty()), "nothing was acknowledged before the end");

    cluster.start_all();
    let found = client.cells("t");
    for cells in [&first.cells].into_iter().chain(&acknowledged) {
        let missing = cells.iter().find(|&(key, value)| found.get(key) != Some(value));
        assert_eq!(missing, None, "an acknowledged cell is gone or changed");
    }
    // Writes in flight may or may not be there, but nothing else is.
    let puts = |row: &[u8]| row.starts_with(b"p") || row.starts_with(b"z");
    for (key, value) in found.iter().filter(|((row, _), _)| !puts(row)) {
        let known = first.cells.get(key).or_else(|| second.cells.get(key));
        assert_eq!(known, Some(value), "a cell that was never written: {key:?}");
    }
    // The cluster works: it accepts everything that was interrupted.
    import(&client, "t", &second.lines);
    assert_eq!(client.cells("t").len(), found.keys().filter(|(row, _)| puts(row)).count() + 22_000);
}

#[test]
fn flushed_and_split_families_outlive_the_loss_of_every_process_on_lsm() {
    flushed_and_split_families_outlive_the_loss_of_every_process("lsm");
}

#[test]
fn flushed_and_split_families_outlive_the_loss_of_every_process_on_sled() {
    flushed_and_split_families_outlive_the_loss_of_every_process("sled");
}

fn flushed_and_split_families_outlive_the_loss_of_every_process(engine: &str) {
    let families = ["a", "b", "c"];
    let mut cluster = Cluster::start(engine, &["--memtable-budget", "64KiB"]);
    let client = cluster.client.clone();
    create(&client, "t", &families, &SMALL);
    let mut expected = Cells::new();
    for round in 0..2 {
        let mut written = rows(round * 800, 800, &families);
        import(&client, "t", &written.lines);
        expected.append(&mut written.cells);
        // A deleted family and a deleted row survive as well.
        let (row, _) = expected.keys().nth(30).expect("cells").clone();
        let text = String::from_utf8(row.clone()).expect("hex");
        client.succeed(&["delete", "t", &text, "b:q"]);
        expected.remove(&(row.clone(), b"b:q".to_vec()));
        let (gone, _) = expected.keys().nth(90).expect("cells").clone();
        client.succeed(&["delete", "t", std::str::from_utf8(&gone).expect("hex")]);
        expected.retain(|(row, _), _| *row != gone);
        client.wait_for_regions("t", 3);
        cluster.kill_all();
        cluster.start_all();
        assert_same_cells(&client.cells("t"), &expected);
        for family in families {
            let scanned = client.json_lines(&["scan", "t", "--column", family]);
            let column = format!("{family}:q").into_bytes();
            let rows = expected.keys().filter(|(_, of)| *of == column).count();
            assert_eq!(scanned.len(), rows, "rows with family {family}");
        }
    }
    let regions = client.regions("t");
    assert!(regions >= 5, "{regions} regions: too few splits for this test to mean much");
}

#[test]
fn a_killed_server_stops_no_write_however_small_the_log_is_and_catches_up() {
    let mut cluster = Cluster::start("lsm", &["--log-limit", "256KiB"]);
    let client = cluster.client.clone();
    create(&client, "t", &["f"], &["--split-at", "4", "8", "c"]);
    client.succeed(&["put", "t", "before", "f:q", "there"]);
    cluster.kill_server(2);

    // Several times the limit.
    let value = "x".repeat(16 << 10);
    let row = |number: usize| format!("{:x}{number:04}", number % 16);
    let written = 96;
    for number in 0..written {
        client.succeed(&["put", "t", &row(number), "f:q", &value]);
    }
    assert_eq!(client.json(&["get", "t", "before"])["cells"][0]["value"], "there");
    eventually(COMMAND_MAX, "the loss is shown", || {
        let status = client.json(&["status"]);
        if status["healthy"] == false { Ok(()) } else { Err(status.to_string()) }
    });

    cluster.start_server(2);
    client.succeed(&["put", "t", "after", "f:q", &value]);
    eventually(COMMAND_MAX, "all is well", || {
        let status = client.json(&["status"]);
        if status["healthy"] == true { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(client.json(&["count", "t"])["count"], written + 2);
}

#[test]
fn a_group_without_a_majority_is_recovered_once_it_is_confirmed() {
    let mut cluster = Cluster::start("lsm", &[]);
    let client = cluster.client.clone();
    create(&client, "t", &["f"], &[]);
    client.succeed(&["put", "t", "r", "f:q", "v"]);
    let group = client.json_lines(&["admin", "regions", "t"])[0]["group"].to_string();
    let recover = ["admin", "recover-group", &group];
    let refused = client.run(&[&recover[..], &["--yes"]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors_of(&refused).contains("is not lost"), "{}", errors_of(&refused));
    let unknown = client.run(&["admin", "recover-group", "999", "--yes"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", errors_of(&unknown));

    cluster.kill_server(0);
    cluster.kill_server(1);
    // There is no terminal: it only shows what is left.
    eventually(COMMAND_MAX, "it is described", || {
        let shown = client.run(&recover);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let is_complete = text.contains("What may be lost") && text.contains("nothing was changed");
        if shown.status.success() && is_complete { Ok(()) } else { Err(text + &errors_of(&shown)) }
    });
    let described = client.json(&recover);
    assert_eq!((&described["recovered"], described["lost"].as_array().map(Vec::len)), (&false.into(), Some(2)));
    eventually(COMMAND_MAX, "the loss is shown", || {
        let issues = client.json(&["status"])["issues"].clone();
        let number: u64 = group.parse().expect("a group's id");
        let of_group =
            |issue: &serde_json::Value| issue["kind"] == "lost_majority" && issue["place"]["group"] == number;
        if issues.as_array().expect("a list").iter().any(of_group) { Ok(()) } else { Err(issues.to_string()) }
    });
    assert!(client.succeed(&[&recover[..], &["--yes"]].concat()).contains("serves again"));
    assert_eq!(client.json(&["get", "t", "r"])["cells"][0]["value"], "v");
    client.succeed(&["put", "t", "s", "f:q", "w"]);
}

#[test]
fn a_killed_master_resumes_the_same_cluster() {
    let mut cluster = Cluster::start("lsm", &[]);
    let client = cluster.client.clone();
    create(&client, "t", &["f"], &[]);
    client.succeed(&["put", "t", "r", "f:q", "v"]);
    let before = client.json(&["status"])["cluster"].clone();
    cluster.kill_master();
    let output = client.run(&["get", "t", "r", "--timeout", "1s"]);
    text_of(&output, 1);
    assert!(errors_of(&output).contains(&client.masters), "{}", errors_of(&output));
    cluster.start_master();
    client.wait_until_well();
    assert_eq!(client.json(&["status"])["cluster"], before);
    assert_eq!(client.json(&["get", "t", "r", "--timeout", "10s"])["cells"][0]["value"], "v");
    create(&client, "u", &["f"], &[]);
}
