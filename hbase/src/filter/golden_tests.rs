//! Filters against HBase: random scans that a real region answered. `hbase/java/FilterGolden.java` printed the files and
//! describes their form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use prost::Message as _;
use terrane_regionserver::edge::RowJudge as _;
use terrane_types::cell::{CellRef, Cells, pack};
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{KeyRange, Onward};

use super::evaluator::{Evaluator, StoreLimits, parts_of};
use crate::proto;

/// Row, family, qualifier, and the time so that the newest comes first.
type Key = (Vec<u8>, Vec<u8>, Vec<u8>, std::cmp::Reverse<i64>);

#[derive(Default)]
struct Table {
    versions: BTreeMap<Vec<u8>, usize>,
    cells: BTreeMap<Key, Vec<u8>>,
}

struct Scan<'a> {
    versions: u32,
    reverse: bool,
    limits: StoreLimits,
    /// Family and qualifier; empty: all.
    columns: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    filter: proto::Filter,
    text: &'a str,
}

impl Scan<'_> {
    fn selects(&self, family: &[u8]) -> bool {
        self.columns.is_empty() || self.columns.iter().any(|(asked, _)| asked == family)
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    if hex == "-" {
        return Vec::new();
    }
    assert!(hex.len().is_multiple_of(2), "{hex}");
    let digits: Vec<u8> = hex.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

impl Table {
    /// The rows as a reader gets them: what the families keep and the scan selects.
    fn rows(&self, scan: &Scan<'_>, judge: &Evaluator, narrows: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let columns = judge.columns();
        let narrows = |family: &Vec<u8>| {
            narrows && !scan.columns.iter().any(|(asked, column)| asked == family && column.is_some())
        };
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut kept: BTreeMap<[&[u8]; 3], usize> = BTreeMap::new();
        for ((row, family, qualifier, time), value) in &self.cells {
            let version = kept.entry([row, family, qualifier]).or_default();
            *version += 1;
            let is_asked = scan.columns.is_empty()
                || scan
                    .columns
                    .iter()
                    .any(|(asked, column)| asked == family && column.as_ref().is_none_or(|column| column == qualifier));
            let most = if judge.needs_all_versions() { usize::MAX } else { scan.versions as usize };
            let is_needed = !narrows(family) || columns.selects(qualifier);
            if *version > self.versions[family].min(most) || !is_asked || !is_needed {
                continue;
            }
            let packed = rows.entry(row.clone()).or_default();
            if packed.is_empty() || !judge.needs_first_cell_only() {
                let value = if judge.needs_keys_only() { &[][..] } else { value };
                pack(packed, CellRef::put(family, qualifier, time.0, value));
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        if scan.reverse {
            rows.reverse();
        }
        rows
    }

    /// What the scan returns. With seeks, rows and cells are left out as the data path leaves them out, and rows are judged as they
    /// are read where that is possible.
    fn answer(&self, scan: &Scan<'_>, seeks: bool) -> (Vec<String>, bool) {
        let evaluator = Evaluator::new(Some(&scan.filter), scan.versions, scan.limits);
        let evaluator = evaluator.unwrap_or_else(|refused| panic!("{}: {refused}", scan.text));
        let families = self.versions.keys().filter(|family| scan.selects(family)).map(|family| {
            let is_explicit = scan.columns.iter().any(|(asked, column)| asked == family && column.is_some());
            (family.clone(), is_explicit)
        });
        let mut judge = evaluator.deferring(true).reversed(scan.reverse).reading(families);
        let all = KeyRange { start: Bytes::new(), end: Bytes::new() };
        let range = judge.clip(all);
        let (mut answer, mut target) = (Vec::new(), None::<Vec<u8>>);
        for (row, cells) in self.rows(scan, &judge, seeks) {
            if seeks {
                let before =
                    target.as_ref().is_some_and(|target| if scan.reverse { row > *target } else { row < *target });
                if before || !range.as_ref().is_some_and(|range| range.contains(&row)) {
                    continue;
                }
            }
            if judge.is_done() {
                break;
            }
            let shown = if seeks && judge.judges_cells() {
                stream(&mut judge, &row, &cells)
            } else {
                let mut block = b"before".to_vec();
                let start = begin_row(&mut block, &row);
                block.extend_from_slice(&cells);
                end_row(&mut block, start);
                let shown = judge.judge(&mut block, start.start());
                let shown = shown.unwrap_or_else(|refused| panic!("{}: {refused}", scan.text));
                shown.then(|| parts_of(&block[start.start()..]).1.to_vec())
            };
            if let Some(cells) = shown {
                let mut line = format!("row {}", hex(&row));
                for cell in Cells::new(&cells) {
                    let (family, qualifier) = (hex(cell.family), hex(cell.qualifier));
                    write!(line, " {family}:{qualifier}@{}={}", cell.timestamp, hex(cell.value)).unwrap();
                }
                answer.push(line);
            }
            target = judge.target();
        }
        (answer, judge.is_over())
    }
}

/// Gives a row to a judge cell by cell, as a reader that passes over what is not wanted. Returns what is shown, packed.
fn stream(judge: &mut Evaluator, row: &[u8], cells: &[u8]) -> Option<Vec<u8>> {
    let mut last = None::<(CellRef<'_>, Onward)>;
    let mut out = Vec::new();
    for cell in Cells::new(cells) {
        let is_passed = last.as_ref().is_some_and(|(last, onward)| match onward {
            Onward::Cell => false,
            Onward::Column => (last.family, last.qualifier) == (cell.family, cell.qualifier),
            Onward::From(qualifier) => last.family == cell.family && *cell.qualifier < qualifier[..],
            Onward::Family => last.family == cell.family,
            Onward::Row => true,
        });
        if !is_passed {
            last = Some((cell, judge.cell(row, cell, &mut out).unwrap()));
        }
    }
    judge.end_row(row).then_some(out)
}

fn scan(line: &str) -> Scan<'_> {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, versions, direction, limit, offset, columns, filter] = words[..] else { panic!("{line}") };
    let column = |column: &str| match column.split_once(':') {
        Some((family, qualifier)) => (bytes(family), Some(bytes(qualifier))),
        None => (bytes(column), None),
    };
    Scan {
        versions: versions.parse().unwrap(),
        reverse: direction == "down",
        limits: StoreLimits { limit: limit.parse().ok(), offset: offset.parse().unwrap() },
        columns: if columns == "*" { Vec::new() } else { columns.split(',').map(column).collect() },
        filter: proto::Filter::decode(&bytes(filter)[..]).unwrap(),
        text: "",
    }
}

/// Compares the answers of one file, and whether the filters are over behind them. Returns how many scans it has, and how many
/// differ.
fn compare(name: &str, file: &str, compares_ends: bool) -> (usize, usize) {
    let mut table = Table::default();
    let (mut scans, mut wrong) = (0, 0);
    let mut lines = file.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["family", family, versions] => {
                table.versions.insert(bytes(family), versions.parse().unwrap());
            }
            ["cell", row, family, qualifier, time, value] => {
                let time = std::cmp::Reverse(time.parse().unwrap());
                table.cells.insert((bytes(row), bytes(family), bytes(qualifier), time), bytes(value));
            }
            ["scan", ..] => {
                let mut scan = scan(line);
                let (mut rows, mut over) = (Vec::new(), None);
                while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                    match more.trim_start().split_once(' ').unwrap() {
                        ("#", text) => scan.text = text,
                        ("row", _) => rows.push(more.trim_start().to_owned()),
                        ("over", is_over) => over = Some(is_over == "true"),
                        other => panic!("{other:?}"),
                    }
                }
                scans += 1;
                let (found, is_over) = table.answer(&scan, false);
                let (sought, _) = table.answer(&scan, true);
                // A region of HBase asks its filter also about rows without a cell of the named columns, and may learn from one
                // that the filter is over.
                let over_differs = scan.columns.is_empty() && Some(is_over) != over;
                if found != rows || sought != rows || (compares_ends && over_differs) {
                    wrong += 1;
                    println!("{name}: {} {:?} {}\n", line.rsplit_once(' ').unwrap().0, scan.limits, scan.text);
                    println!("  HBase {rows:#?} {over:?}\n  here {found:#?} {is_over}\n  seeking {sought:#?}");
                }
            }
            _ => panic!("{name}: {line}"),
        }
    }
    (scans, wrong)
}

#[test]
fn filters_answer_like_a_region_of_hbase() {
    let files = [include_str!("testdata/golden-1.txt"), include_str!("testdata/golden-2.txt")];
    for (number, file) in files.into_iter().enumerate() {
        let (scans, wrong) = compare(&format!("golden-{}", number + 1), file, true);
        assert_eq!(wrong, 0, "{wrong} of {scans} scans differ");
        assert!(scans >= 100, "{scans} scans were compared");
    }
}

/// More files than those that are kept: `TERRANE_FILTER_GOLDEN` names a directory with some.
#[test]
#[allow(clippy::disallowed_methods, reason = "the files are outside of the simulated disk")]
fn filters_answer_like_a_region_of_hbase_in_further_files() {
    let Ok(directory) = std::env::var("TERRANE_FILTER_GOLDEN") else { return };
    let mut counts = (0, 0);
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let file = std::fs::read_to_string(&path).unwrap();
        let (scans, wrong) = compare(&path.display().to_string(), &file, false);
        counts = (counts.0 + scans, counts.1 + wrong);
    }
    assert_eq!(counts.1, 0, "{} of {} scans differ", counts.1, counts.0);
}
