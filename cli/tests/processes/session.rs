//! The binary itself, as users and scripts run it: exit statuses, JSON, and a session against `terrane dev`.
//!
//! The commands' own modules have unit tests; here everything runs in real processes.

use serde_json::Value;

use crate::harness::{Dev, bounded, errors_of, terrane, text_of};

#[test]
fn what_was_exported_is_imported_to_the_same_cells() {
    let dev = Dev::start("lsm");
    let lines = concat!(
        r#"{"row":"a\\x00\\\\\\x09","cells":[{"column":"f:","timestamp":7,"value":""},{"column":"f:q\\xFF:","timestamp":5,"value":"v"}]}"#,
        "\nnot JSON\n",
        r#"{"row":"b","cells":[{"column":"g:q","timestamp":9,"value":"new"},{"column":"g:q","timestamp":8,"value":"old"}]}"#,
        "\n",
        r#"{"row":"c","cells":[{"column":"h:q","timestamp":9,"value":"no such family"}]}"#,
        "\n"
    );
    for table in ["one", "two", "three"] {
        dev.client.succeed(&["table", "create", table, "--family", "f", "g:versions=2"]);
    }
    let imported = dev.client.run_with_input(&["import", "one", "--format", "jsonl", "-", "--json"], lines);
    let counts: Value = serde_json::from_str(&text_of(&imported, 0)).expect("JSON");
    assert_eq!((&counts["imported"], &counts["malformed"]), (&2.into(), &2.into()));
    let errors = errors_of(&imported);
    assert!(errors.contains("-:2: ") && errors.contains("-:4: "), "{errors}");

    let exported = dev.client.succeed(&["export", "one"]);
    assert_eq!(exported.lines().count(), 2, "{exported}");
    text_of(&dev.client.run_with_input(&["import", "two", "--format", "jsonl", "-"], &exported), 0);
    assert_eq!(dev.client.succeed(&["export", "two"]), exported);
    let cells = dev.client.succeed(&["export", "two", "--format", "tsv"]);
    assert_eq!(cells.lines().count(), 4, "{cells}");
    text_of(&dev.client.run_with_input(&["import", "three", "--format", "tsv", "-"], &cells), 0);
    assert_eq!(dev.client.succeed(&["export", "three"]), exported);

    let strict = dev.client.run_with_input(&["import", "three", "--format", "jsonl", "-", "--strict"], lines);
    text_of(&strict, 1);
    assert!(errors_of(&strict).contains("-:2: "));
    let absent = dev.client.run_with_input(&["import", "absent", "--format", "ncdc", "-"], "");
    text_of(&absent, 1);
    assert!(errors_of(&absent).contains("terrane table create absent --family data"), "{}", errors_of(&absent));
}

#[test]
fn acknowledged_rows_outlive_a_clean_stop() {
    let dev = Dev::start("lsm");
    dev.client.succeed(&["table", "create", "t", "--family", "f"]);
    dev.client.succeed(&["put", "t", "r", "f:q", "v", "--timestamp", "1"]);
    let row = dev.client.succeed(&["get", "t", "r", "--json"]);
    let dev = Dev::start_in(dev.stop(), "lsm", &[]);
    assert_eq!(dev.client.succeed(&["get", "t", "r", "--json"]), row);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the page is a real file of a real process")]
fn every_named_workload_runs_and_its_reports_compare() {
    let dev = Dev::start("lsm");
    let path = |name: &str| dev.path(name);
    let flags = "--rows 500 --regions 2 --in-flight 4 --scan-rows 5 --batch 10 --warm-up 0 --seconds 600ms";
    let flags: Vec<&str> = flags.split(' ').collect();
    for workload in ["a", "b", "c", "d", "e", "f", "counters", "pages", "latest", "timeseries"] {
        let mut line = [&["bench", "run", workload], &flags[..]].concat();
        let reports = [path("last.json"), path("last.html")];
        line.extend(reports.iter().flat_map(|report| ["--report", report]));
        let lines = dev.client.json_lines(&line);
        let summary = lines.last().expect("a summary");
        for part in ["errors", "missing"] {
            assert_eq!(summary[part], 0, "{workload}: {summary}");
        }
        let operations = summary["operations"].as_u64().expect("a number");
        let rows = summary["rows"].as_u64().expect("a number");
        assert!(operations > 0 && rows >= operations, "{workload}: {summary}");
        let counted: u64 =
            lines.iter().filter_map(|line| line["second"].as_u64().and(line["operations"].as_u64())).sum();
        assert!(counted > 0 && counted <= operations, "{workload}: the seconds have {counted} of {operations} calls");
    }
    let report = path("open.json");
    let open = [&["bench", "run", "b"], &flags[..], &["--rate", "100/s", "--report", &report]].concat();
    let summary = dev.client.json_lines(&open).pop().expect("a summary");
    assert_eq!((&summary["open"]["asked_rate"], &summary["errors"]), (&100.0.into(), &0.into()), "{summary}");
    // A page is a report as well.
    let page = path("both.html");
    let compared = terrane(&["bench", "compare", &path("last.html"), &report, "--json", "--report", &page]);
    let figures: Vec<Value> =
        text_of(&compared, 0).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(figures[0]["figure"], "calls per second");
    assert_eq!(figures[0]["verdict"], "unknown", "a second is too short to know the noise");
    draws_three_charts(&page);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.contains("\"comparison\":{"));
}

/// Opens a page in a real browser.
fn draws_three_charts(page: &str) {
    let browser = || std::process::Command::new("chromium");
    if let Err(error) = browser().arg("--version").output() {
        eprintln!("skipped: the page was not opened, since chromium does not start: {error}");
        return;
    }
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"];
    let profile = format!("--user-data-dir={page}.profile");
    let output = bounded(browser().args(flags).args([profile, format!("file://{page}")]));
    let drawn = String::from_utf8_lossy(&output.stdout);
    assert_eq!(drawn.matches("role=\"img\"").count(), 3, "{drawn}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_demo_succeeds() {
    let output = terrane(&["demo", "--records", "20000"]);
    let report = text_of(&output, 0);
    assert_eq!(report.matches("the same rows").count(), 2, "{report}");
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
}
