//! Golden scripts of the scan cursor.
//!
//! - `scan [a,z) FLAGS` starts a scan. Flags: `reverse`, `limit=N`, `offset=N`, `count`, `snapshot`, `latest=N` (the first N rows
//!   of each prefix), `block_bytes=N`.
//! - `ask r1@1 [,m)` prints the request for the rest of the scan in a region: id, epoch, range.
//! - `block FLAGS` is the answer of that region; prints the rows that the reader gets, and where the scan stands. Flags:
//!   `rows=a,b` (rows of one cell), `part=row:q1,q2` (cells of one row), `continues` (the last row is not complete),
//!   `restarted`, `done`, `ended`, `counted=N`, `limit_left=N`, `offset_left=N`, `at=N` (sequence), `prefix=P:N`, `as_of=N`.
//! - `refused` is a server that answers `StaleEpoch`.

use std::fmt::Write as _;

use terrane_testscript::check_scripts;
use terrane_types::cell::{CellRef, pack};
use terrane_types::{GroupId, Projection, TableId, pack_row};

use super::*;
use crate::wire::scan::LatestPrefix;

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/read/scan_cursor/testdata");
    check_scripts(directory, || {
        let mut play = Play {
            cursor: Cursor::new(KeyRange::all(), false, None, 0),
            wanted: wanted(),
            region: region("r1@1 [,)"),
            resume: 0,
        };
        move |line, out| play.command(line, out)
    });
}

struct Play {
    cursor: Cursor,
    wanted: Wanted,
    /// The region that was asked last.
    region: RegionDescriptor,
    /// Blocks so far: the number is the resume token.
    resume: u64,
}

fn wanted() -> Wanted {
    Wanted {
        spec: Arc::new(ReadSpec { projection: Projection::all(), filter: String::new() }),
        block_bytes: 0,
        output: Output::Rows,
        latest: None,
        snapshot: false,
        fill_cache_never: false,
    }
}

impl Play {
    fn command(&mut self, line: &str, out: &mut String) {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "scan" => self.scan(rest),
            "ask" => {
                self.region = region(rest);
                let request = self.cursor.request(&self.region, &self.wanted);
                writeln!(out, "{}", show_request(&request)).unwrap();
            }
            "block" => {
                self.resume += 1;
                let block = block(rest, self.resume);
                let mut rows = Vec::new();
                let accepted = self.cursor.accept(&self.region, block, &self.wanted, &mut rows);
                writeln!(out, "{}", accepted.map_or_else(|error| error, |()| self.show(&rows))).unwrap();
            }
            "refused" => {
                self.cursor.restart();
                writeln!(out, "{}", self.show(&[])).unwrap();
            }
            _ => panic!("no such command: {line}"),
        }
    }

    fn scan(&mut self, text: &str) {
        let (range, flags) = text.split_once(')').expect("a range");
        let (start, end) = range.trim_start_matches('[').split_once(',').expect("two bounds");
        let range = KeyRange { start: start.to_owned().into(), end: end.to_owned().into() };
        let number = |name| flag(flags, name).map(|value| value.parse().expect("a number"));
        let (limit, offset) = (number("limit"), number("offset").unwrap_or(0));
        self.cursor = Cursor::new(range, has(flags, "reverse"), limit, offset);
        self.wanted = wanted();
        self.wanted.snapshot = has(flags, "snapshot");
        self.wanted.block_bytes = number("block_bytes").map_or(0, |bytes: u64| bytes as u32);
        if has(flags, "count") {
            self.wanted.output = Output::Count;
        }
        self.wanted.latest = number("latest").map(|rows: u64| Latest {
            prefix: LatestPrefix::Parts(1),
            rows: rows as u32,
            last_prefix: Bytes::new(),
            given: 0,
        });
    }

    fn show(&self, rows: &[RowData]) -> String {
        let rows: Vec<String> = rows.iter().map(|row| format!("{}({})", row.row(), row.cells().count())).collect();
        let cursor = &self.cursor;
        let mut shown = format!("rows {}", if rows.is_empty() { "-".to_owned() } else { rows.join(" ") });
        if let Some((row, _)) = &cursor.part {
            write!(shown, "; part of {row}").unwrap();
        }
        if matches!(self.wanted.output, Output::Count) {
            write!(shown, "; counted {}", cursor.counted()).unwrap();
        }
        if let Some(as_of_ms) = cursor.as_of_ms() {
            write!(shown, "; as of {as_of_ms}").unwrap();
        }
        match (cursor.is_finished(), cursor.position()) {
            (true, _) => shown.push_str("; finished"),
            (_, Position::Row(row)) => write!(shown, "; next is row '{}'", escape(row)).unwrap(),
            (_, Position::Before(end)) => write!(shown, "; next is before '{}'", escape(end)).unwrap(),
        }
        shown
    }
}

fn show_request(scan: &RegionScan) -> String {
    let mut shown = format!("[{},{})", escape(&scan.range.start), escape(&scan.range.end));
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(shown, " {name} {value}").unwrap();
        }
    };
    add("limit", scan.limit.map(|limit| limit.to_string()));
    add("offset", (scan.offset > 0).then(|| scan.offset.to_string()));
    add("resume", (!scan.resume.is_empty()).then(|| escape(&scan.resume)));
    add("block_bytes", (scan.block_bytes > 0).then(|| scan.block_bytes.to_string()));
    add("at", scan.at_sequence.map(|sequence| sequence.to_string()));
    let prefix = scan.latest.as_ref().filter(|latest| latest.given > 0);
    add("after", prefix.map(|latest| format!("{} of prefix {}", latest.given, escape(&latest.last_prefix))));
    shown
}

fn has(flags: &str, name: &str) -> bool {
    flags.split(' ').any(|flag| flag == name)
}

fn flag<'a>(flags: &'a str, name: &str) -> Option<&'a str> {
    flags.split(' ').find_map(|flag| flag.strip_prefix(name)?.strip_prefix('='))
}

/// `r1@2 [a,m)`
fn region(text: &str) -> RegionDescriptor {
    let (id, rest) = text.split_once('@').expect("region@epoch");
    let (epoch, range) = rest.split_once(" [").expect("a range");
    let (start, end) = range.trim_end_matches(')').split_once(',').expect("two bounds");
    RegionDescriptor {
        region: RegionId(id.trim_start_matches('r').parse().expect("a number")),
        table: TableId(1),
        range: KeyRange::new(start.to_owned(), end.to_owned()).expect("ordered"),
        epoch: RegionEpoch(epoch.parse().expect("a number")),
        group: GroupId(1),
        schema_version: 1,
    }
}

fn block(flags: &str, number: u64) -> ScanBlock {
    let mut bytes = Vec::new();
    let mut row = |row: &str, qualifiers: &[&str]| {
        let mut cells = Vec::new();
        for qualifier in qualifiers {
            pack(&mut cells, CellRef::put(b"f", qualifier.as_bytes(), 1, b"v"));
        }
        pack_row(&mut bytes, row.as_bytes(), &cells);
    };
    for name in flag(flags, "rows").into_iter().flat_map(|rows| rows.split(',')) {
        row(name, &["q"]);
    }
    if let Some((name, qualifiers)) = flag(flags, "part").and_then(|part| part.split_once(':')) {
        row(name, &qualifiers.split(',').collect::<Vec<_>>());
    }
    let number_of = |name| flag(flags, name).map(|value| value.parse::<u64>().expect("a number"));
    let prefix = flag(flags, "prefix").and_then(|prefix| prefix.split_once(':'));
    ScanBlock {
        rows: bytes.into(),
        row_count: number_of("counted").unwrap_or(0),
        resume: format!("token{number}").into(),
        done: has(flags, "done"),
        ended: has(flags, "ended"),
        limit_left: number_of("limit_left").unwrap_or(0),
        offset_left: number_of("offset_left").unwrap_or(0),
        row_continues: has(flags, "continues"),
        row_restarted: has(flags, "restarted"),
        as_of_ms: number_of("as_of"),
        last_prefix: prefix.map_or_else(Bytes::new, |(prefix, _)| prefix.to_owned().into()),
        prefix_given: prefix.map_or(0, |(_, given)| given.parse().expect("a number")),
        sequence: number_of("at"),
        ..ScanBlock::default()
    }
}
