//! The data model through the binary, against real clusters: counters, conditions, filters, aggregates, the latest rows
//! of prefixes, consistency, and the workloads of `bench` that measure them.

use serde_json::Value;

use crate::harness::{Client, Dev, errors_of, text_of};

#[test]
fn counters_and_conditions_answer_with_value_and_status() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f"]);
    assert_eq!(client.succeed(&["incr", "t", "r", "f:n", "--json"]), "{\"value\":1}\n");
    assert_eq!(client.succeed(&["incr", "t", "r", "f:n", "41"]), "42\n");
    assert_eq!(client.succeed(&["incr", "t", "r", "f:n", "-50", "--json"]), "{\"value\":-8}\n");
    let row = client.json(&["get", "t", "r", "f:n"]);
    assert_eq!(row["cells"][0]["value"], r"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xF8", "64 bits, big-endian");
    client.fail(&["incr", "none", "r", "f:n"], 1);
    client.fail(&["incr", "t", "r", "g:n"], 1);
    // A value that is not a counter, or would overflow, is an error that names its place; it is left unchanged.
    client.succeed(&["put", "t", "r", "f:text", "five"]);
    let refused = client.fail(&["incr", "t", "r", "f:text"], 1);
    assert!(refused.contains("f:text") && refused.contains('r'), "{refused}");
    client.succeed(&["incr", "t", "r", "f:large", &i64::MAX.to_string()]);
    let refused = client.fail(&["incr", "t", "r", "f:large"], 1);
    assert!(refused.contains("f:large"), "{refused}");
    assert_eq!(client.json(&["incr", "t", "r", "f:large", "0"])["value"], i64::MAX);
    assert_eq!(client.json(&["get", "t", "r", "f:text"])["cells"][0]["value"], "five");

    let owner = || client.json(&["get", "t", "job", "f:owner"])["cells"][0]["value"].clone();
    let take = |name, condition| ["put", "t", "job", "f:owner", name, "--if", condition];
    assert_eq!(client.succeed(&take("ann", "not exists(f:owner)")), "");
    let refused = client.fail(&take("bob", "not exists(f:owner)"), 4);
    assert!(refused.contains("does not hold"), "{refused}");
    assert_eq!(owner(), "ann");
    client.succeed(&take("bob", "f:owner in ('ann', 'eve') and i64(f:tries) < 3 or f:owner = 'ann'"));
    assert_eq!(owner(), "bob");
    client.succeed(&["incr", "t", "job", "f:tries", "3"]);
    client.fail(&take("eve", "i64(f:tries) < 3"), 4);
    client.succeed(&take("eve", "i64(f:tries) >= 3"));
    client.fail(&["delete", "t", "job", "f:owner", "--if", "f:owner = 'bob'"], 4);
    client.succeed(&["delete", "t", "job", "--if", "f:owner = 'eve'"]);
    client.fail(&["get", "t", "job"], 3);
    let wrong = client.fail(&take("eve", "f:owner = "), 2);
    assert!(wrong.contains('^'), "{wrong}");
    client.fail(&take("eve", "prefix(row, 'j')"), 2);
}

/// Stations `a`, `b` and `c` with five readings each; `f:t` is an `i32`: 10, 20, … 150 in the order of rows. A region
/// boundary lies among the readings of `b`.
fn readings(client: &Client, table: &str) {
    let key = "station:bytes4, reading:tail";
    client.succeed(&["table", "create", table, "--family", "f", "--key", key, "--split-at", "bbbb,3"]);
    let mut lines = String::new();
    for (station, letter) in ["a", "b", "c"].into_iter().enumerate() {
        for reading in 0..5 {
            let value = 10 * (station * 5 + reading + 1);
            let row = letter.repeat(4);
            lines += &format!("{row}{reading}\tf:t\t1000\t\\x00\\x00\\x00\\x{value:02X}\n");
        }
    }
    text_of(&client.run_with_input(&["import", table, "--format", "tsv", "-"], &lines), 0);
}

/// The printed rows, with the first letter of the station: `a0 a1`.
fn rows(client: &Client, line: &[&str]) -> String {
    let rows = client.json_lines(line);
    let short = |row: &Value| row["row"].as_str().expect("text")[3..].to_owned();
    rows.iter().map(short).collect::<Vec<_>>().join(" ")
}

#[test]
fn filters_aggregates_and_latest_rows_are_those_of_the_grammar() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    readings(client, "t");

    let warm = "i32(f:t) > 60 and prefix(row, 'bbbb')";
    assert_eq!(rows(client, &["scan", "t", "--filter", warm]), "b1 b2 b3 b4");
    assert_eq!(rows(client, &["scan", "t", "--filter", warm, "--reverse", "--limit", "2"]), "b4 b3");
    assert_eq!(rows(client, &["scan", "t", "--filter", warm, "--offset", "1", "--limit", "2"]), "b2 b3");
    assert_eq!(client.json(&["count", "t", "--filter", warm])["count"], 4);
    assert_eq!(rows(client, &["first", "t", "--filter", warm]), "b1");
    assert_eq!(rows(client, &["last", "t", "--filter", warm]), "b4");
    assert_eq!(rows(client, &["get", "t", "bbbb,1", "--filter", "i32(f:t) = 70"]), "b1");
    client.fail(&["get", "t", "bbbb,1", "--filter", "i32(f:t) = 71"], 3);
    let wrong = client.fail(&["scan", "t", "--filter", "i32(f:t > 100"], 2);
    let place = wrong.lines().position(|line| line == "  i32(f:t > 100").unwrap_or_else(|| panic!("{wrong}"));
    assert!(wrong.lines().nth(place + 1).expect("a caret").trim() == "^", "{wrong}");

    let aggregate = |line: &[&str]| client.succeed(&[&["aggregate", "t"], line, &["--json"]].concat());
    assert_eq!(aggregate(&["sum", "i32(f:t)"]), "{\"sum\":1200}\n");
    assert_eq!(aggregate(&["min", "i32(f:t)"]), "{\"min\":10}\n");
    assert_eq!(aggregate(&["max", "i32(f:t)"]), "{\"max\":150}\n");
    assert_eq!(aggregate(&["avg", "i32(f:t)"]), "{\"avg\":80.0}\n");
    assert_eq!(aggregate(&["count", "i32(f:t)"]), "{\"count\":15}\n");
    assert_eq!(aggregate(&["sum", "i32(f:t)", "--prefix", "bbbb"]), "{\"sum\":400}\n");
    assert_eq!(aggregate(&["sum", "i32(f:t)", "--start", "bbbb,4", "--stop", "cccc,1"]), "{\"sum\":210}\n");
    assert_eq!(aggregate(&["sum", "i32(f:t)", "--filter", warm]), "{\"sum\":340}\n");
    assert_eq!(client.succeed(&["aggregate", "t", "sum", "i32(f:t)"]), "1200\n");
    // The sum of no values is 0; the other figures do not exist.
    assert_eq!(aggregate(&["sum", "i32(f:t)", "--prefix", "dddd"]), "{\"sum\":0}\n");
    assert_eq!(aggregate(&["count", "i32(f:none)"]), "{\"count\":0}\n");
    for what in ["min", "max", "avg"] {
        client.fail(&["aggregate", "t", what, "i32(f:none)"], 3);
    }
    let refused = client.fail(&["aggregate", "t", "sum", "i64(f:t)"], 1);
    // Regions are read in parallel: the error names the value that was found first.
    let names_a_row = ["row aaaa", "row bbbb", "row cccc"].iter().any(|row| refused.contains(row));
    assert!(refused.contains("column f:t: i64 values have 8 bytes") && names_a_row, "row, column and rule: {refused}");

    assert_eq!(rows(client, &["latest", "t", "--parts", "1"]), "a0 b0 c0");
    assert_eq!(rows(client, &["latest", "t", "--prefix-bytes", "4"]), "a0 b0 c0");
    assert_eq!(rows(client, &["latest", "t", "--parts", "1", "--rows", "2"]), "a0 a1 b0 b1 c0 c1");
    assert_eq!(rows(client, &["latest", "t", "--parts", "1", "--rows", "4", "--prefix", "bbbb"]), "b0 b1 b2 b3");
    assert_eq!(rows(client, &["latest", "t", "--parts", "1", "--reverse"]), "c4 b4 a4");
    assert_eq!(rows(client, &["latest", "t", "--parts", "1", "--limit", "2"]), "a0 b0");
    assert_eq!(rows(client, &["latest", "t", "--prefix-bytes", "4", "--filter", "i32(f:t) > 20"]), "a2 b0 c0");
    client.fail(&["latest", "t", "--parts", "3"], 1);
    client.fail(&["latest", "t"], 2);
}

#[test]
fn reads_have_the_requested_consistency() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    readings(client, "t");
    for how in ["linearizable", "leased", "strict"] {
        let output = client.run(&["get", "t", "aaaa,0", "--json", "--consistency", how]);
        assert!(text_of(&output, 0).starts_with("{\"row\":\"aaaa0\""), "{how}");
        assert!(!errors_of(&output).contains("as of"), "{how}: what is linearizable has no bound");
        assert_eq!(client.json(&["count", "t", "--consistency", how])["count"], 15);
    }
    // A follower may lack the newest writes, and says as of when its result is complete.
    crate::harness::eventually(std::time::Duration::from_secs(20), "a follower has the row", || {
        let output = client.run(&["get", "t", "aaaa,0", "--json", "--consistency", "stale"]);
        let (errors, found) = (errors_of(&output), output.status.success());
        if found && errors.contains("complete as of") { Ok(()) } else { Err(errors) }
    });
    assert_eq!(rows(client, &["scan", "t", "--snapshot", "--prefix", "bbbb"]), "b0 b1 b2 b3 b4");
    assert_eq!(rows(client, &["scan", "t", "--snapshot", "--reverse", "--limit", "3"]), "c4 c3 c2");

    // A token continues after its page: with the next page, or with all remaining rows.
    let page = client.json_lines(&["scan", "t", "--limit", "4", "--token"]);
    let token = page.last().expect("a token")["after"].as_str().expect("more follows").to_owned();
    assert_eq!(rows(client, &["scan", "t", "--limit", "3", "--after", &token]), "a4 b0 b1");
    assert_eq!(rows(client, &["scan", "t", "--after", &token, "--offset", "9"]), "c3 c4");
    let rest = client.json_lines(&["scan", "t", "--after", &token, "--token"]);
    assert_eq!((rest.len(), &rest[11]["after"]), (12, &Value::Null));
    // It is sealed for its table, range, direction and filter, and cannot be modified.
    client.succeed(&["table", "create", "u", "--family", "f"]);
    let changed = format!("{}A", &token[..token.len() - 1]);
    let other = if changed == token { format!("{}B", &token[..token.len() - 1]) } else { changed };
    for line in [
        &["scan", "t", "--after", &other][..],
        &["scan", "u", "--after", &token],
        &["scan", "t", "--reverse", "--after", &token],
        &["scan", "t", "--prefix", "aaaa", "--after", &token],
        &["scan", "t", "--filter", "i32(f:t) > 5", "--after", &token],
    ] {
        let refused = client.fail(line, 1);
        assert!(refused.contains("token"), "{line:?}: {refused}");
    }
    client.fail(&["scan", "t", "--after", "no token"], 2);
}

/// The fields of every summary, in order.
const SUMMARY: [&str; 10] =
    ["workload", "operations", "rows", "seconds", "rate", "rows_rate", "p50_us", "p99_us", "p999_us", "errors"];

#[test]
fn benchmarks_of_the_model_check_what_they_measure() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    let bench = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let flags = ["--seconds", "1", "--regions", "3", "--value-bytes", "10", "--json"];
        let output = client.succeed(&[&["bench"], &words[..], &flags].concat());
        let last = output.lines().last().expect("a summary");
        let mut rest = last;
        for field in SUMMARY {
            let name = format!("\"{field}\":");
            rest = rest.split_once(&name).unwrap_or_else(|| panic!("{field} is missing or out of order: {last}")).1;
        }
        let summary: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!((&summary["workload"], &summary["errors"]), (&words[0].into(), &0.into()), "{last}");
        assert!(summary["operations"].as_u64().expect("N") > 0, "{last}");
        summary
    };
    // Many counters, one hot counter, batches: the table has exactly what was acknowledged.
    for words in
        ["incr --table c --rows 50", "incr --table c --rows 1", "incr --table c --rows 50 --batch 20 --in-flight 4"]
    {
        let summary = bench(words);
        assert_eq!((&summary["exact"], &summary["uncertain"]), (&true.into(), &0.into()), "{summary}");
        assert_eq!(summary["grew"], summary["acknowledged"], "{summary}");
        assert!(summary["acknowledged"].as_u64() >= summary["rows"].as_u64(), "{summary}");
    }
    for _ in 0..2 {
        let summary = bench("cas --table c --rows 100 --in-flight 10");
        assert_eq!(summary["lost"], 0, "{summary}");
        assert!(summary["refused"].as_u64().expect("N") <= 100, "each row's state is learnt once: {summary}");
    }
    let page = bench("page --table p --rows 1000 --offset 900");
    assert_eq!(page["rows"].as_u64(), page["operations"].as_u64().map(|calls| calls * 10), "{page}");
    assert_eq!(client.json(&["count", "p"])["count"], 1000);
    let count = bench("count --table p");
    assert_eq!(count["rows"].as_u64(), count["operations"].as_u64().map(|calls| calls * 1000), "{count}");
    let sum = bench("sum --table s --rows 500");
    assert_eq!((&sum["values"], &sum["sum"]), (&500.into(), &(500 * 499 / 2).into()), "{sum}");
    let ends = bench("ends --table p --rows 1000 --in-flight 4");
    for kind in ["get", "first", "last", "floor", "ceiling"] {
        assert!(ends[kind]["operations"].as_u64().expect("N") > 0, "{ends}");
        assert!(ends[kind]["ratio"].as_f64().expect("a ratio") > 0.0, "{ends}");
    }
    let latest = bench("latest --table l --rows 5000");
    assert_eq!(
        (&latest["prefixes"], latest["rows"].as_u64()),
        (&5.into(), latest["operations"].as_u64().map(|n| n * 5))
    );
    assert!(latest["ratio"].as_f64().expect("a ratio") > 0.0, "{latest}");
}
