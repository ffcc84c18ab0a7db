//! Import and export in real processes: every format there and back, what is refused, and imports that are stopped.

use std::path::Path;

use serde_json::Value;

use crate::harness::{COMMAND_MAX, Client, Dev, errors_of, eventually, signal, terrane, text_of};

fn imported(client: &Client, arguments: &[&str]) -> Value {
    client.json(&[&["import"], arguments].concat())
}

#[test]
fn every_exact_layout_comes_back_byte_for_byte() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    let rows = concat!(
        r#"{"row":"a\\x00\\\\,\"'\\x09\\x0A","cells":[{"column":"f:","timestamp":7,"value":""},{"column":"f:q\\xFF:,\"","timestamp":5,"value":" \\x0D\\x0A\" "}]}"#,
        "\n",
        r#"{"row":"b","cells":[{"column":"g:q","timestamp":9223372036854775806,"value":"new"},{"column":"g:q","timestamp":8,"value":"old"},{"column":"g:q","timestamp":0,"value":"\\xEF\\xBB\\xBFé"}]}"#,
        "\n"
    );
    let create = |table: &str| client.succeed(&["table", "create", table, "--family", "f", "g:versions=3"]);
    create("original");
    let input = dev.write("rows.jsonl", rows);
    assert_eq!(imported(client, &["original", "--format", "jsonl", &input])["imported"], 2);
    let original = client.succeed(&["export", "original"]);
    assert_eq!(original.lines().count(), 2, "{original}");
    for (number, (format, layout)) in
        [("jsonl", "cells"), ("tsv", "cells"), ("csv", "cells"), ("parquet", "cells")].into_iter().enumerate()
    {
        let (out, copy) = (dev.path(&format!("cells.{format}")), format!("copy{number}"));
        let shown = client.succeed(&["export", "original", "--format", format, "--layout", layout, "--out", &out]);
        assert_eq!(shown, "", "a file keeps standard output free");
        create(&copy);
        imported(client, &[&copy, "--format", format, &out]);
        assert_eq!(client.succeed(&["export", &copy]), original, "{format}");
    }
    let streamed = client.succeed(&["export", "original", "--format", "csv", "--layout", "cells"]);
    assert_eq!(streamed, dev.read("cells.csv"));
    dev.stop();
}

#[test]
fn typed_rows_come_in_as_csv_and_go_out_as_parquet() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    let create = |table: &str| {
        let family = "d:type.count=i64,type.share=f64,type.page=text";
        client.succeed(&["table", "create", table, "--family", family, "--key", "user:u64, time:desc i64, name:text"]);
    };
    create("clicks");
    let csv = "user,time,name,d:count,d:page,d:share\n7,1000,\"Li, Wei\",-5,\"a\"\"b\",0.25\n7,2000,x,,\"\",\n8,1,,18,/,-inf\n";
    let input = dev.write("clicks.csv", csv);
    assert_eq!(imported(client, &["clicks", "--format", "csv", &input])["imported"], 3);
    // The later time sorts first; the empty value is there, values that are missing are not.
    let cells = client.cells("clicks");
    assert_eq!(cells.len(), 7);
    assert!(cells.values().any(|value| value == &(-5i64).to_be_bytes()));
    let sorted = "user,time,name,d:count,d:page,d:share\n7,2000,x,,\"\",\n7,1000,\"Li, Wei\",-5,\"a\"\"b\",0.25\n8,1,\"\",18,/,-inf\n";
    assert_eq!(client.succeed(&["export", "clicks", "--format", "csv"]), sorted);
    let only = client.succeed(&["export", "clicks", "--format", "csv", "--column", "d:share,d:count"]);
    assert_eq!(only.lines().nth(2), Some("7,1000,\"Li, Wei\",0.25,-5"));

    let parquet = dev.path("clicks.parquet");
    client.succeed(&["export", "clicks", "--format", "parquet", "--layout", "rows", "--out", &parquet]);
    create("back");
    assert_eq!(imported(client, &["back", "--format", "parquet", &parquet])["imported"], 3);
    assert_eq!(client.cells("back"), cells);

    // Another program's names: each field is said what it is.
    create("mapped");
    let input = dev.write("other.csv", "id;when;who;n;x\n7;1000;Li, Wei;-5;ignored\n");
    let columns = "id=user,when=KEY.time,who=name,n=d:count";
    imported(client, &["mapped", "--format", "csv", "--separator", ";", "--columns", columns, &input]);
    assert_eq!(
        client.succeed(&["export", "mapped", "--format", "csv", "--column", "d:count"]).lines().nth(1),
        Some("7,1000,\"Li, Wei\",-5")
    );

    // A value that is not of the declared type stops an export by type, and names the way out.
    imported(client, &["mapped", "--format", "csv", "--raw", &dev.write("raw.csv", "row,d:count\n\\x01,abc\n")]);
    let refused = client.fail(&["export", "mapped", "--format", "csv"], 1);
    assert!(refused.contains("is not a key") && refused.contains("--layout cells"), "{refused}");
    dev.stop();
}

#[test]
fn tsv_is_read_as_hbase_reads_it() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:type.n=i32"]);
    let input = dev.write("in.tsv", "k1\t5\t100\tx\tval\nk2\t\t101\tx\tother\nk3\t7\n");
    let columns = "HBASE_ROW_KEY,d:n,HBASE_TS_KEY,-,d:v";
    let counts = imported(client, &["t", "--format", "tsv", "--columns", columns, &input]);
    assert_eq!((&counts["imported"], &counts["malformed"]), (&2.into(), &1.into()));
    let exported = client.succeed(&["export", "t", "--format", "tsv"]);
    assert_eq!(exported, "k1\td:n\t100\t\\x00\\x00\\x00\\x05\nk1\td:v\t100\tval\nk2\td:v\t101\tother\n");
    let piped = client.run_with_input(
        &["import", "t", "--format", "tsv", "--columns", "d:v,ROW", "--separator", "|", "-", "--json"],
        "w|k9\n",
    );
    text_of(&piped, 0);
    assert_eq!(client.json(&["count", "t"])["count"], 3);
    dev.stop();
}

/// A small file of another program, from `TERRANE_TEST_DATA`.
fn foreign(name: &str) -> Option<String> {
    let Some(folder) = std::env::var_os("TERRANE_TEST_DATA") else {
        eprintln!("skipped: TERRANE_TEST_DATA is not set, so there are no files of other programs to import");
        return None;
    };
    let path = Path::new(&folder).join("import").join(name);
    if !path.is_file() {
        eprintln!("skipped: {} does not exist", path.display());
        return None;
    }
    Some(path.display().to_string())
}

#[test]
fn files_of_other_programs_mean_what_they_say_or_are_refused_by_column() {
    // The whole folder is there or nothing is.
    if foreign("bom.tsv").is_none() {
        return;
    }
    let path = |name: &str| foreign(name).expect("a file of the folder");
    let dev = Dev::start("lsm");
    let client = &dev.client;
    let mut number = 0;
    let mut table = |arguments: &[&str]| {
        number += 1;
        let name = format!("t{number}");
        client.succeed(&[&["table", "create", &name, "--family", "f"], arguments].concat());
        name
    };
    let import = |table: &str, format: &str, more: &[&str], file: &str| {
        client.run(&[&["import", table, "--format", format], more, &[&path(file)]].concat())
    };
    let rows = |table: &str| client.succeed(&["export", table, "--format", "tsv"]);

    for (format, more, file) in [("tsv", &["--columns", "ROW,f:v"][..], "bom.tsv"), ("jsonl", &[], "bom.jsonl")] {
        let t = table(&[]);
        let done = import(&t, format, more, file);
        assert!(done.status.success(), "{}", errors_of(&done));
        assert!(rows(&t).starts_with("a\tf:v\t"), "{}", rows(&t));
    }
    let t = table(&[]);
    assert!(import(&t, "csv", &["--no-escapes"], "bs.csv").status.success());
    let values: Vec<String> =
        rows(&t).lines().map(|line| line.rsplit('\t').next().unwrap_or_default().to_owned()).collect();
    assert!(values.contains(&r"C:\\temp\\new".to_owned()) && values.contains(&r"\\N".to_owned()), "{values:?}");

    let days = [("day.parquet", &["--columns", "row=ROW,f:v=f:v,day=TIMESTAMP"][..]), ("date32ts.parquet", &[])];
    for (file, more) in days {
        let t = table(&[]);
        let done = import(&t, "parquet", more, file);
        assert!(done.status.success(), "{}", errors_of(&done));
        for line in rows(&t).lines() {
            let timestamp: i64 = line.split('\t').nth(2).and_then(|field| field.parse().ok()).expect("a timestamp");
            assert_eq!(timestamp % 86_400_000, 0, "{file}: {line}");
        }
    }
    for file in ["c_lz4.parquet", "c_brotli.parquet"] {
        let t = table(&[]);
        let done = import(&t, "parquet", &[], file);
        assert!(done.status.success(), "{file}: {}", errors_of(&done));
        assert!(!rows(&t).is_empty(), "{file}");
    }
    let t = table(&[]);
    let done = import(&t, "parquet", &[], "timets.parquet");
    assert_eq!(done.status.code(), Some(2), "{}", errors_of(&done));
    assert!(errors_of(&done).contains("column \"timestamp\" is a TIME of day"), "{}", errors_of(&done));
    assert_eq!(rows(&t), "");
    for (file, expected) in [("f32.parquet", "0.1"), ("dec0.parquet", "")] {
        let t = table(&[]);
        let done = import(&t, "parquet", &[], file);
        assert!(done.status.success(), "{file}: {}", errors_of(&done));
        let exported = rows(&t);
        let mut values = exported.lines().filter_map(|line| line.rsplit('\t').next());
        assert!(values.clone().all(|value| value.parse::<f64>().is_ok() && value.len() < 12), "{file}: {exported}");
        assert!(expected.is_empty() || values.any(|value| value == expected), "{file}: {exported}");
    }
    let t = table(&["--key", "user:text, time:i64"]);
    let done = import(&t, "parquet", &[], "keyts.parquet");
    assert!(done.status.success() && errors_of(&done).contains("a TIMESTAMP in microseconds"), "{}", errors_of(&done));
    for line in client.succeed(&["export", &t, "--format", "csv", "--column", "f:v"]).lines().skip(1) {
        let time: i64 = line.split(',').nth(1).and_then(|field| field.parse().ok()).expect("a time");
        assert!((1_000_000_000_000..10_000_000_000_000).contains(&time), "{line}");
    }
    dev.stop();
}

#[test]
fn a_wrong_mapping_writes_nothing() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:type.count=i64"]);
    let good = dev.write("good.csv", "row,d:count\nk,1\n");
    let bad = dev.write("bad.csv", "row,count\nk,1\n");
    let said = client.fail(&["import", "t", "--format", "csv", &good, &bad], 2);
    assert!(said.contains("bad.csv: line 1") && said.contains("did you mean `d:count`?"), "{said}");
    let said = client.fail(&["import", "t", "--format", "csv", "--columns", "id=ROW", &good], 2);
    assert!(said.contains("the file has no field \"id\""), "{said}");
    let said = client.fail(&["import", "t", "--format", "tsv", "--columns", "ROW,e:x", &good], 2);
    assert!(said.contains("no family \"e\""), "{said}");
    let said = client.fail(&["import", "t", "--format", "csv", &dev.path("absent.csv")], 1);
    assert!(said.contains("absent.csv"), "{said}");
    let said = client.fail(&["import", "t", "--format", "parquet", &good], 1);
    assert!(said.contains("not a Parquet file"), "{said}");
    assert_eq!(client.json(&["count", "t"])["count"], 0);
    dev.stop();
}

#[test]
fn flags_that_do_not_fit_are_refused_before_anything_is_asked() {
    for (line, said) in [
        ("import t --format parquet -", "which standard input does not allow"),
        ("import t --format csv --state s -", "which standard input does not allow"),
        ("import t --format csv - -", "only once"),
        ("import t --format csv a --rejects a", "would overwrite the input a"),
        ("import t --format csv a --rejects s --state s", "different files"),
        ("import t --format parquet --rejects r f", "has no lines"),
        ("import t --format ncdc --columns ROW,f:q f", "not of ncdc"),
        ("import t --format tsv --separator ; f", "tsv with --columns"),
        ("import t --format jsonl --no-escapes f", "tsv with --columns"),
        ("export t --format parquet", "--out FILE"),
        ("export t --format tsv --layout rows", "--layout rows is for csv and parquet"),
        ("export t --format csv --layout cells --column f:q", "--layout rows"),
        ("export t --format csv --versions 2", "newest version"),
    ] {
        let arguments: Vec<&str> = line.split(' ').chain(["--masters", "127.0.0.1:1"]).collect();
        let output = terrane(&arguments);
        text_of(&output, 2);
        assert!(errors_of(&output).contains(said), "{line}: {}", errors_of(&output));
    }
}

#[test]
fn malformed_lines_are_kept_and_counted() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:type.n=i32"]);
    let input = dev.write("in.csv", "row,d:n\nk1,1\nk2,x\nk3,\"2\n\"\n,4\nk5,5\n");
    let rejects = dev.path("bad.csv");
    let import = ["import", "t", "--format", "csv", &input, "--rejects", &rejects];
    let output = client.run(&import);
    assert!(text_of(&output, 0).starts_with("imported 2 rows"), "{output:?}");
    let errors = errors_of(&output);
    for said in ["in.csv:3: column d:n: \"x\" is not an integer", "in.csv:4: ", "in.csv:6: the row key is empty"] {
        assert!(errors.contains(said), "{errors}");
    }
    assert_eq!(dev.read("bad.csv"), "row,d:n\nk2,x\nk3,\"2\n\"\n,4\n");
    let output = client.run(&[&import[..], &["--max-malformed", "2"]].concat());
    text_of(&output, 1);
    assert!(errors_of(&output).contains("3 malformed lines, more than --max-malformed 2"), "{output:?}");
    text_of(&client.run(&[&import[..], &["--max-malformed", "3"]].concat()), 0);
    let output = client.run(&[&import[..], &["--strict"]].concat());
    assert_eq!(text_of(&output, 1), "");
    assert!(errors_of(&output).contains("in.csv:3: "), "{output:?}");

    let nothing = dev.write("nothing.csv", "row,d:n\nk,x\n");
    let output = client.run(&["import", "t", "--format", "csv", &nothing]);
    assert!(text_of(&output, 1).starts_with("imported 0 rows"), "{output:?}");
    assert!(errors_of(&output).contains("nothing was imported"), "{output:?}");
    let open = dev.write("open.csv", "row,d:n\nk1,1\nk2,\"2\nk3,3\n");
    let output = client.run(&["import", "t", "--format", "csv", &open, "--rejects", &rejects]);
    assert!(text_of(&output, 0).starts_with("imported 2 rows"), "the line after the quote is read: {output:?}");
    assert!(errors_of(&output).contains("open.csv:3: a quote is not closed"), "{output:?}");
    assert_eq!(dev.read("bad.csv"), "row,d:n\nk2,\"2\n");
    dev.stop();
}

#[test]
fn a_quote_too_many_costs_its_own_line_only() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d"]);
    let rows: String = (0..200).map(|row| format!("r{row:03},plain,x\n")).collect();
    let text = format!("row,d:a,d:b\nbad,\"open,x\n{rows}s1,\"two\nlines\",\"q\"\"q\"\ns2,a\"b,x\n");
    let input = dev.write("in.csv", &text);
    let summary = imported(client, &["t", "--format", "csv", &input]);
    assert_eq!((&summary["imported"], &summary["malformed"]), (&202.into(), &1.into()), "{summary}");
    let cells = client.cells("t");
    assert!(cells.values().any(|value| value == b"two\nlines") && cells.values().any(|value| value == b"q\"q"));
    dev.stop();
}

#[test]
fn pipes_are_imported_like_files() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:type.n=i32"]);
    for (number, (format, text)) in [
        ("csv", "row,d:n\nk1,1\nk2,2\n"),
        ("tsv", "k3\td:n\t5\tabcd\n"),
        ("jsonl", "{\"row\":\"k4\",\"cells\":[{\"column\":\"d:n\",\"typed\":4}]}\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let pipe = dev.path(&format!("pipe{number}"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let running = client.start(&["import", "t", "--format", format, "--json", &pipe]);
        // Opening waits for the reader.
        std::fs::write(&pipe, text).expect("read by the import");
        let output = running.finish().expect("it ends");
        let rows = text.lines().count() - usize::from(format == "csv");
        let summary: Value = serde_json::from_str(&text_of(&output, 0)).expect("JSON");
        assert_eq!(summary["imported"], rows, "{format}");
        for flags in [&["--format", "parquet"][..], &["--format", format, "--state", "s"]] {
            let said = client.fail(&[&["import", "t"], flags, &[&pipe]].concat(), 2);
            assert!(said.contains("a pipe, does not allow"), "{said}");
        }
    }
    assert_eq!(client.json(&["count", "t"])["count"], 4);
    dev.stop();
}

#[test]
fn scripts_get_a_summary_of_failed_imports_and_of_exports() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:type.count=i64"]);
    let input = dev.write("in.csv", "row,d:count,d:cuont\nk1,1,2\nk2,x,2\nk3,3,2\n");
    let output = client.run(&["import", "t", "--format", "csv", "--strict", "--json", &input]);
    let summary: Value = serde_json::from_str(&text_of(&output, 1)).expect("one line of JSON");
    assert_eq!((&summary["imported"], &summary["malformed"]), (&1.into(), &1.into()), "{summary}");
    assert!(errors_of(&output).contains("did you mean d:count?"), "the note on a misspelt column: {output:?}");

    let out = dev.path("t.jsonl");
    let summary = client.json(&["export", "t", "--out", &out]);
    assert_eq!(summary["exported"], 1);
    assert_eq!(summary["bytes"], dev.read("t.jsonl").len());
    let streamed = client.succeed(&["export", "t", "--json"]);
    assert_eq!(streamed, dev.read("t.jsonl"), "standard output has the rows and nothing else");

    let semicolons = dev.write("semicolons.csv", "row;d:count\nk1;1\n");
    let said = client.fail(&["import", "t", "--format", "csv", &semicolons], 2);
    assert!(said.contains("--separator ';'"), "{said}");

    let state = dev.path("t.state");
    let import = ["import", "t", "--format", "csv", "--state", &state, &dev.write("one.csv", "row,d:count\nk9,9\n")];
    client.succeed(&import);
    let output = client.run(&import);
    assert!(text_of(&output, 0).starts_with("imported 0 rows after 1 of an earlier run"), "{output:?}");
    assert!(errors_of(&output).contains("every file is imported already"), "{output:?}");
    dev.stop();
}

#[test]
fn rows_by_key_parts_are_read_from_json() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:type.n=i32", "--key", "user:u64, name:text"]);
    let input = dev.write("in.jsonl", concat!(
        r#"{"key":{"user":7,"name":"ann"},"cells":[{"column":"d:n","timestamp":5,"value":"abcd","typed":1633837924}]}"#,
        "\n",
        r#"{"key":{"user":-7,"name":"ann"},"cells":[{"column":"d:n","value":"abcd"}]}"#,
        "\n"
    ));
    let output = client.run(&["import", "t", "--format", "jsonl", &input]);
    text_of(&output, 0);
    assert!(errors_of(&output).contains("in.jsonl:2: part user"), "{output:?}");
    let exported = client.succeed(&["export", "t", "--format", "csv"]);
    assert_eq!(exported, "user,name,d:n\n7,ann,1633837924\n");
    dev.stop();
}

/// Rows of the import that is stopped, and the distance of malformed lines among them.
const ROWS: usize = 300_000;
const MALFORMED_EVERY: usize = 10_000;

/// How many bytes of the input the state file says are written, unless that is all.
fn position(state: &Path) -> Option<u64> {
    let state: Value = serde_json::from_slice(&std::fs::read(state).ok()?).expect("replaced atomically");
    let file = &state["files"][0];
    assert_eq!(file["done"], false, "the import was to be stopped before its end");
    file["position"]["offset"].as_u64()
}

/// Starts an import and stops it by a signal when the state has got beyond `from`; returns where it was, and the output.
fn stopped(client: &Client, import: &[&str], state: &Path, from: u64, by: &str) -> (u64, std::process::Output) {
    let running = client.start(import);
    let at = eventually(COMMAND_MAX, "a state", || position(state).filter(|at| *at > from).ok_or("none".to_owned()));
    signal(running.pid(), by);
    (at, running.finish().expect("it ends"))
}

#[test]
fn a_stopped_import_continues_with_nothing_twice_and_nothing_missing() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:versions=5", "--split-at", "row150000"]);
    let mut csv = "row,d:v\n".to_owned();
    let mut malformed = csv.clone();
    for number in 0..ROWS {
        if number % MALFORMED_EVERY == 7 {
            malformed.push_str(&format!("row{number:06}\n"));
            csv.push_str(&format!("row{number:06}\n"));
        } else {
            csv.push_str(&format!("row{number:06},value {number}\n"));
        }
    }
    let input = dev.write("in.csv", &csv);
    let (state_name, rejects) = (dev.path("import.state"), dev.path("bad.csv"));
    let state = Path::new(&state_name);
    let import = ["import", "t", "--format", "csv", &input, "--state", &state_name, "--rejects", &rejects, "--json"];

    let header = "row,d:v\n".len() as u64;
    let (first, output) = stopped(client, &import, state, header, "INT");
    let counts: Value = serde_json::from_str(&text_of(&output, 130)).expect("the summary so far");
    let so_far = counts["imported"].as_u64().expect("a number");
    assert!(so_far > 0 && so_far < ROWS as u64, "{counts}");
    let first = position(state).expect("saved").max(first);

    let (second, output) = stopped(client, &import, state, first, "KILL");
    assert_eq!((output.status.code(), output.stdout.len()), (None, 0), "{output:?}");
    assert!(second > first);

    let counts = client.json(&import[..import.len() - 1]);
    let good = ROWS - ROWS / MALFORMED_EVERY;
    assert_eq!((&counts["imported"], &counts["malformed"]), (&good.into(), &(ROWS / MALFORMED_EVERY).into()));
    // `cells` fails if a column has two versions.
    let cells = client.cells("t");
    assert_eq!(cells.len(), good);
    for ((row, _), value) in &cells {
        let number: usize = std::str::from_utf8(&row[3..]).expect("text").parse().expect("a number");
        assert_eq!(value, format!("value {number}").as_bytes());
    }
    assert_eq!(dev.read("bad.csv"), malformed);

    // Once more: it is complete, and nothing is read.
    let again = client.json(&import[..import.len() - 1]);
    assert_eq!(again["imported"], counts["imported"]);
    let changed = dev.write("in.csv", &csv.replacen("value 0", "value X", 1));
    assert_eq!(changed, input);
    let said = client.fail(&import, 1);
    assert!(said.contains("has changed") && said.contains("remove"), "{said}");
    dev.stop();
}

#[test]
fn several_files_are_read_at_once() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d"]);
    let inputs: Vec<String> = (0..7)
        .map(|file| {
            let rows: String = (0..100).map(|row| format!("f{file}r{row:03},v\n")).collect();
            dev.write(&format!("{file}.csv"), &format!("row,d:v\n{rows}"))
        })
        .collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let state = dev.path("import.state");
    let counts =
        imported(client, &[&["t", "--format", "csv", "--parallel", "3", "--state", &state], &inputs[..]].concat());
    assert_eq!(counts["imported"], 700);
    assert_eq!(client.json(&["count", "t"])["count"], 700);
    let fewer = client.fail(&[&["import", "t", "--format", "csv", "--state", &state], &inputs[1..]].concat(), 1);
    assert!(fewer.contains("other files"), "{fewer}");
    dev.stop();
}

#[test]
fn a_killed_bulk_load_continues_with_nothing_twice_and_nothing_missing() {
    let dev = Dev::start("lsm");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d:versions=5", "--split-at", "row050000", "row100000"]);
    let rows = 150_000;
    let lines: String = (0..rows).map(|number| format!("row{number:06},value {number}\n")).collect();
    let input = dev.write("in.csv", &format!("row,d:v\n{lines}"));
    let state = dev.path("import.state");
    let import = ["import", "t", "--format", "csv", "--bulk", &input, "--state", &state];

    let running = client.start(&import);
    // Some region has taken in its rows: it has all of them.
    let found =
        eventually(COMMAND_MAX, "the rows of a region", || match client.json(&["count", "t"])["count"].as_u64() {
            Some(0) | None => Err("no rows".to_owned()),
            Some(rows) => Ok(rows),
        });
    signal(running.pid(), "KILL");
    running.finish().expect("it ends");
    assert_eq!(found % 50_000, 0, "a region has all rows of the load or none");

    let counts = imported(client, &import[1..]);
    assert_eq!(counts["imported"], rows);
    // `cells` fails if a column has two versions.
    let cells = client.cells("t");
    assert_eq!(cells.len(), rows);
    for ((row, _), value) in &cells {
        let number: usize = std::str::from_utf8(&row[3..]).expect("text").parse().expect("a number");
        assert_eq!(value, format!("value {number}").as_bytes());
    }
    // What is loaded is read, changed and deleted as what was put.
    client.succeed(&["put", "t", "row000001", "d:v", "later"]);
    client.succeed(&["delete", "t", "row000002"]);
    assert_eq!(client.json(&["get", "t", "row000001"])["cells"][0]["value"], "later");
    client.fail(&["get", "t", "row000002"], 3);
    dev.stop();
}

#[test]
fn a_bulk_load_that_cannot_be_is_refused() {
    let dev = Dev::start("memory");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "d"]);
    let input = dev.write("in.csv", "row,d:v\na,1\n");
    let said = client.fail(&["import", "t", "--format", "csv", "--bulk", &input], 1);
    assert!(said.contains("bulk") || said.contains("store files"), "{said}");
    assert_eq!(client.json(&["count", "t"])["count"], 0);
    dev.stop();
}
