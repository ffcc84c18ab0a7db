//! Scans of a region in memory, step by step: `testdata/*.txt`.
//!
//! - `put ROW COLUMN [BYTES]`, `delete ROW [COLUMN]`: one write each; the value is one letter, or BYTES of it
//! - `freeze`: the memtable takes no more writes, so the next scan merges two sources
//! - `scan [reverse] [first] [START..END]`: begins a scan at the present sequence number; `first`: the first cell of each row
//! - `next [BYTES]`: one step into a block of BYTES, prints what was appended and where the scan is; `all BYTES`: to the end
//! - `resume`: begins the scan again where the last part ended; `seek ROW`; `skip N`: passes N visible rows

use std::fmt::Write as _;
use std::sync::Arc;

use terrane_types::schema::FamilyStorage;
use terrane_types::visibility::RulesHistory;
use terrane_types::{
    CellKind, CellRef, FamilyName, FamilyRules, GroupId, KeyRange, PackedCells, PackedRows, Projection, RegionId,
    TableId, cell,
};

use super::{CellPosition, RowScanner, ScanSpec, Step};
use crate::family_reader::Patience;
use crate::levels::RegionFiles;
use crate::manifest::{Families, FamilyRecord};
use crate::point::DurablePoint;
use crate::region::Region;

const GROUP: GroupId = GroupId(1);

struct Script {
    region: Arc<Region>,
    index: u64,
    spec: ScanSpec,
    scanner: Option<RowScanner>,
    /// Where the last part ended: row and cell.
    ended: Option<(Vec<u8>, CellPosition)>,
}

impl Script {
    fn new() -> Self {
        let family = FamilyRecord::new(0, RulesHistory::new(FamilyRules::default()), FamilyStorage::default());
        let families = Families::from([(FamilyName::new("f").expect("a name"), family)]);
        let point = DurablePoint { group: GROUP, ..DurablePoint::default() };
        let region = Region::new(RegionId(1), TableId(1), KeyRange::all(), families, point, RegionFiles::new());
        Self { region: Arc::new(region), index: 0, spec: spec(KeyRange::all()), scanner: None, ended: None }
    }

    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["put", row, column] => self.write(row, column, CellKind::Put, 1),
            ["put", row, column, bytes] => self.write(row, column, CellKind::Put, number(bytes)),
            ["delete", row, column] => self.write(row, column, CellKind::DeleteColumn, 0),
            ["delete", row] => self.write(row, "", CellKind::DeleteFamily, 0),
            ["freeze"] => {
                let sequence = self.region.sequence();
                self.region.freeze(DurablePoint {
                    group: GROUP,
                    index: self.index,
                    sequence,
                    ..DurablePoint::default()
                });
            }
            ["scan", ref how @ ..] => self.scan(how),
            ["next"] => drop(self.next(usize::MAX, out)),
            ["next", bytes] => drop(self.next(number(bytes), out)),
            ["all", bytes] => while self.next(number(bytes), out) {},
            ["resume"] => self.resume(),
            ["seek", row] => self.scanner().seek(row.as_bytes(), Patience::MemoryOnly).expect("it is in memory"),
            ["skip", count] => {
                let mut left = number(count) as u64;
                let step = self.scanner().pass(&mut left, Patience::MemoryOnly).expect("it is in memory");
                let row = String::from_utf8_lossy(self.scanner().row()).into_owned();
                writeln!(out, "{step:?} at {row}, {left} left").expect("to a string");
            }
            _ => panic!("no such command: {line}"),
        }
    }

    fn write(&mut self, row: &str, column: &str, kind: CellKind, bytes: usize) {
        self.index += 1;
        let sequence = self.region.sequence() + 1;
        let timestamp = i64::try_from(self.index).expect("few writes");
        let value = vec![b'v'; bytes];
        let mut packed = Vec::new();
        let written = CellRef { kind, value: &value, ..CellRef::put(b"f", column.as_bytes(), timestamp, b"") };
        cell::pack(&mut packed, written);
        let cells = PackedCells::validate(packed.into()).expect("a cell within the limits");
        self.region.apply(self.index, sequence, row.as_bytes(), &cells);
    }

    fn scan(&mut self, how: &[&str]) {
        self.spec = spec(KeyRange::all());
        for word in how {
            match word.split_once("..") {
                _ if *word == "reverse" => self.spec.reverse = true,
                _ if *word == "first" => self.spec.projection.first_cell_only = true,
                Some((start, end)) => {
                    self.spec.range = KeyRange::new(start.to_owned(), end.to_owned()).expect("a range");
                }
                None => panic!("no such way to scan: {word}"),
            }
        }
        self.scanner = Some(self.region.scan(self.region.snapshot(), self.spec.clone()));
    }

    fn resume(&mut self) {
        let (row, position) = self.ended.take().expect("the last step was a part");
        let mut spec = self.spec.clone();
        spec.range = KeyRange::new(row, Vec::new()).expect("a range");
        spec.from_cell = Some(position);
        self.scanner = Some(self.region.scan(self.region.snapshot(), spec));
    }

    fn scanner(&mut self) -> &mut RowScanner {
        self.scanner.as_mut().expect("a scan was begun")
    }

    /// Prints one step; returns whether the scan goes on.
    fn next(&mut self, bytes_max: usize, out: &mut String) -> bool {
        let mut block = Vec::new();
        let step = self.scanner().next(&mut block, bytes_max, Patience::MemoryOnly).expect("it is in memory");
        for row in PackedRows::new(block.into()) {
            let row = row.expect("a block of rows");
            let cells: Vec<_> =
                row.cells.iter().map(|cell| String::from_utf8_lossy(cell.qualifier).into_owned()).collect();
            write!(out, "{} [{}] ", String::from_utf8_lossy(&row.row), cells.join(" ")).expect("to a string");
        }
        let row = self.scanner().row().to_vec();
        match step {
            Step::Row => writeln!(out, "row"),
            Step::Part { position } => {
                let column = String::from_utf8_lossy(&position.qualifier).into_owned();
                self.ended = Some((row, position));
                writeln!(out, "part up to {column}")
            }
            Step::Hidden => writeln!(out, "hidden up to {}", String::from_utf8_lossy(&row)),
            Step::HiddenPart => writeln!(out, "hidden within {}", String::from_utf8_lossy(&row)),
            Step::End => {
                writeln!(out, "end").expect("to a string");
                return false;
            }
        }
        .expect("to a string");
        true
    }
}

fn number(word: &str) -> usize {
    word.parse().expect("a number")
}

fn spec(range: KeyRange) -> ScanSpec {
    ScanSpec { fills_cache: false, ..ScanSpec::new(range, Projection::all(), 1_000) }
}

#[test]
fn every_script_prints_what_is_recorded() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scan/testdata");
    terrane_testscript::check_scripts(directory, || {
        let mut script = Script::new();
        move |line: &str, out: &mut String| script.command(line, out)
    });
}
