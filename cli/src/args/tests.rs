//! Every line of the grammar is read, with the meaning it promises; what it does not have is exit status 2.

use clap::error::ErrorKind;

use super::transfer::ExportFormat;
use super::*;

fn parse(line: &[&str]) -> Command {
    match Cli::try_parse_from(std::iter::once("terrane").chain(line.iter().copied())) {
        Ok(cli) => cli.command,
        Err(error) => panic!("{line:?}: {error}"),
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn refused(line: &str) -> ErrorKind {
    let words = std::iter::once("terrane").chain(line.split_whitespace());
    let error = Cli::try_parse_from(words).expect_err(line);
    assert_eq!(error.exit_code(), 2, "{line}");
    error.kind()
}

#[test]
fn the_definition_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn every_line_of_the_grammar_is_read() {
    let lines = [
        "demo",
        "demo --records 1000",
        "dev",
        "dev --data d --servers 1 --engine memory",
        "master --data d --listen 127.0.0.1:1 --advertise h:1 --console 127.0.0.1:2 --peers a:1,b:2 --config f.toml",
        "server --data d --listen 127.0.0.1:1 --advertise h:1 --console 127.0.0.1:2 --masters a:1,b:2 --engine sled --config f",
        "tool check d",
        "tool check d --json",
        "tool dump 0000000000000001.tbl --cells 3 --blocks 2 --json",
        "bench scan --reverse --batch 100",
        "bench fullscan --rows 10 --in-flight 2",
        "bench fullscan --reverse --seconds 5s",
        "status",
        "admin servers",
        "admin regions",
        "admin regions t",
        "admin groups",
        "admin split 7",
        "admin procedures",
        "admin procedures --ended --json",
        "admin cancel drain-3",
        "admin drain 3",
        "admin drain 127.0.0.1:7702 --no-wait",
        "admin undrain 3",
        "admin decommission 3",
        "admin restart-check",
        "config check f.toml",
        "config check f.toml --role server --json",
        "config list --role dev",
        "admin restart-check 3",
        "admin restart-check self --wait 5m",
        "admin balance",
        "admin balance --dry-run",
        "admin balance now",
        "admin balance on",
        "admin balance off",
        "admin replication 3",
        "admin set",
        "admin set replace-after 10m",
        "admin set slow-request 200ms --server 127.0.0.1:7700",
        "admin set log-filter info,audit=info",
        "admin repair --wait 10m",
        "admin masters",
        "admin set-masters a:1,b:2,c:3 --yes",
        "master --data d --join a:1,b:2",
        "admin check",
        "admin hot t",
        "admin hot n:t --limit 5 --json",
        "admin split 7 --at k",
        "admin merge 7 8",
        "admin move 7 --to 3",
        "admin move 7 --to 127.0.0.1:7702 --json",
        "table create t --family f",
        "table create n:t --family f:versions=3,ttl=1d --family g --split-at a --split-at b --region-size 16KiB --set x=y",
        "table create t --family f g --split-at a b c --set x=y z=w",
        "table alter t --set a=b --family f:versions=2 --add-family g --add-family h:versions=2 --drop-family i",
        "table list",
        "table list --namespace n",
        "namespace create n",
        "namespace list --json",
        "namespace drop n",
        "table describe t",
        "table drop t",
        "table drop t --yes",
        "table disable t",
        "table enable t",
        "table truncate t",
        "table create t --family d --column d:count=i64",
        "table alter t --column d:count=none",
        "status --check",
        "put t r f:q v",
        "put t r f:q v --timestamp 5",
        "get t r",
        "get t r f:q f:p --versions 3",
        "delete t r",
        "delete t r f:q",
        "scan t",
        "scan t --prefix k --reverse --offset 5 --limit 10 --column f:q --column f:p --versions 2 --token",
        "scan t --start a --stop b --after TOKEN",
        "scan t --time-range 5..7",
        "get t r --time-range ..7 --raw",
        "count t",
        "count t --prefix k",
        "count t --start a --stop b",
        "put t r f:q v --if f:q='a'",
        "delete t r f:q --if exists(f:q)",
        "get t r f:q --consistency stale --filter f:q='v'",
        "get t r --consistency linearizable",
        "get t r --consistency leased",
        "get t r --consistency follower",
        "incr t r f:q",
        "append t r f:q v --json",
        "incr t r f:q 5",
        "incr t r f:q -5 --json",
        "scan t --filter i32(f:q)>5 --snapshot --consistency strict",
        "count t --filter prefix(row,'a') --prefix a",
        "aggregate t sum i32(f:q)",
        "aggregate t sum f:q",
        "aggregate t avg f64(f:q) --start a --stop b --filter exists(f:p) --json",
        "aggregate t count u64(f:q) --prefix k",
        "latest t --parts 1",
        "latest t --prefix-bytes 12 --rows 3 --reverse --start a --stop b --limit 5 --column f:q",
        "first t",
        "first t --prefix k",
        "last t --prefix k",
        "import t --format ncdc a b.gz",
        "import t --format stations -",
        "import t --format tsv a --strict",
        "import t --format jsonl a",
        "import t --format tsv --columns HBASE_ROW_KEY,f:q,HBASE_TS_KEY,- a --separator |",
        "import t --format csv a b --rejects r --state s --max-malformed 5 --parallel 2 --raw",
        "import t --format csv --no-header --columns ROW,f:q a",
        "import t --format parquet --columns id=ROW,n=f:q a",
        "export t",
        "export t --format csv --column f:q,f:p --column f:r --out o",
        "export t --format parquet --layout rows --out o",
        "export t --format tsv --start a --stop b",
        "bench put",
        "bench get --table t --rows 10 --value-bytes 5 --in-flight 7 --batch 3 --seconds 2 --regions 4",
        "bench scan --batch 100",
        "bench load --json",
        "bench incr --rows 1 --in-flight 256",
        "bench cas --rows 1000",
        "bench page --offset 1000 --batch 10",
        "bench count",
        "bench sum --rows 1000",
        "bench ends",
        "bench latest --rows 1000000",
        "bench run a",
        "bench run ycsb-d --distribution uniform --mix read=90,insert=10 --rate 5000/s --warm-up 0 --report r.html",
        "bench run timeseries --fields 2 --field-bytes 8 --batch 50 --recreate --yes --seed 7 --threads 2",
        "bench run counters --load-only",
        "bench compare a.json b.html --report c.html --json",
    ];
    for line in lines {
        parse(&words(line));
    }
}

#[test]
fn client_commands_take_masters_json_and_timeout_anywhere() {
    for line in ["status", "admin regions", "table list", "get t r", "scan t", "import t --format tsv f", "bench put"] {
        let line = format!("{line} --json --masters a:1,b:2 --timeout 5s");
        parse(&words(&line));
    }
    let Command::Get(get) = parse(&words("get --json --timeout 1500ms t r")) else { panic!("not a get") };
    assert!(get.connection.json);
    assert_eq!(get.connection.timeout, std::time::Duration::from_millis(1500));
}

#[test]
fn keys_and_values_are_taken_as_typed() {
    let Command::Put(put) = parse(&["put", "t", r"a\x00\\", r"f:q\xFF", "-5"]) else { panic!("not a put") };
    assert_eq!(put.row.0, r"a\x00\\");
    assert_eq!(put.column.qualifier.as_deref(), Some(&b"q\xff"[..]));
    assert_eq!(put.value.0, "-5");
    let Command::Scan(scan) = parse(&["scan", "t", "--prefix", r"u\xFF", "--raw"]) else { panic!("not a scan") };
    assert!(scan.read.raw.raw);
    parse(&["put", "t", "r", "f:q", ""]);
    parse(&["put", "t", "r", "f:q", "a value with blanks"]);
    parse(&["put", "t", "user='Li, Wei',time=5", "f:q", "v"]);
}

#[test]
fn columns_are_separated_by_commas_or_blanks() {
    for line in ["scan t --column f:q,f:p", "scan t --column f:q f:p", "scan t --column f:q --column f:p"] {
        let Command::Scan(scan) = parse(&words(line)) else { panic!("not a scan") };
        let columns: Vec<_> = scan.cells.columns.iter().map(|column| column.qualifier.as_deref()).collect();
        assert_eq!(columns, [Some(&b"q"[..]), Some(b"p")], "{line}");
    }
    let Command::Get(get) = parse(&words(r"get t r f:a\x2Cb,f:c")) else { panic!("not a get") };
    assert_eq!(get.columns[0].qualifier.as_deref(), Some(&b"a,b"[..]));
}

#[test]
fn lists_never_swallow_the_name_of_the_table() {
    let line =
        |text: &str| super::parse(std::iter::once("terrane").chain(text.split_whitespace()).map(Into::into).collect());
    for text in [
        "scan --column f:q t",
        "scan --column f:q f:p t --limit 3",
        "table create --family f t",
        "table create --family f --set a=b t",
        "table create --set a=b --family f g t",
        "table alter --set a=b t",
        "latest --parts 1 --column f:q t",
    ] {
        let read = line(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let table = match read.command {
            Command::Scan(scan) => scan.table,
            Command::Latest(latest) => latest.table,
            Command::Table(TableCommand::Create(create)) => create.name,
            Command::Table(TableCommand::Alter(alter)) => alter.name,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(table.to_string(), "t", "{text}");
    }
    // The original error is the one that is shown.
    let refused = line("scan --column f:q f:p --limit many").expect_err("no number");
    assert!(refused.to_string().contains("many"), "{refused}");
}

#[test]
fn a_key_declaration_is_one_word_for_the_shell() {
    let line = ["table", "create", "t", "--family", "f", "--key", "user:u64, time:desc i64, action:u32"];
    let Command::Table(TableCommand::Create(create)) = parse(&line) else { panic!("not a create") };
    assert_eq!(create.key.as_deref(), Some("user:u64, time:desc i64, action:u32"));
}

#[test]
fn defaults_are_those_of_the_grammar() {
    let Command::Demo(demo) = parse(&["demo"]) else { panic!("not a demo") };
    assert_eq!((demo.records, demo.stations), (200_000, 60));
    let Command::Export(export) = parse(&["export", "t"]) else { panic!("not an export") };
    assert_eq!(export.format, ExportFormat::Jsonl);
    let Command::Bench(Bench::Put(bench)) = parse(&["bench", "put"]) else { panic!("not a bench") };
    assert_eq!((bench.table.to_string().as_str(), bench.value_bytes), ("bench", 100));
}

#[test]
fn what_is_wrong_is_status_two() {
    let lines = [
        "",
        "unknown",
        "put t r f:q",
        "put t r f v",
        r"put t r\q f:q v",
        r"get t \x0",
        "get t r f:q --versions 0",
        "scan t --prefix a --start b",
        "scan t --limit many",
        "scan t --filter f:q>five",
        "scan t --consistency sometimes",
        "incr t r f",
        "incr t r f:q many",
        "put t r f:q v --if row='a'",
        "aggregate t",
        "aggregate t median i32(f:q)",
        "aggregate t sum text(f:q)",
        "latest t",
        "latest t --parts 0",
        "latest t --parts 1 --prefix-bytes 2",
        "table create t",
        "table create a/b --family f",
        "namespace create a:b",
        "table create t --family f:versions",
        "table create t --family f --region-size 5",
        "table alter t --set x",
        "table alter t --column d:count=i63",
        "table alter t --column d=i64",
        "scan t --time-range 7..5",
        "admin split one",
        "import t --format xlsx f",
        "import t --format csv --no-header f",
        "import t --format csv --separator ab f",
        "import t --format csv --parallel 0 f",
        "export t --layout columns",
        "export t --column f",
        "import t --format tsv",
        "import t f",
        "bench",
        "bench put --rows 0",
        "status --timeout never",
        "status --masters nowhere",
        "dev --listen-base 70000",
    ];
    for line in lines {
        refused(line);
    }
}

#[test]
fn a_filter_that_is_wrong_is_shown_with_its_place() {
    let line = ["terrane", "scan", "t", "--filter", "i32(data:airtemp > 100"];
    let text = Cli::try_parse_from(line).expect_err("a bracket is missing").to_string();
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.iter().position(|line| *line == "  i32(data:airtemp > 100");
    let shown = shown.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(lines[shown + 1].find('^'), lines[shown].find(" >").map(|at| at + 1), "{text}");
}

#[test]
fn help_and_version_are_no_errors() {
    for line in ["--help", "--version", "help", "help scan", "scan --help", "bench put --help"] {
        let words = std::iter::once("terrane").chain(line.split_whitespace());
        let shown = Cli::try_parse_from(words).expect_err(line);
        assert_eq!(shown.exit_code(), 0, "{line}");
    }
}
