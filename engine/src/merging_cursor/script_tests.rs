//! Merging the rows of several sources: `testdata/*.txt`.
//!
//! - `source ROW/COLUMN@SEQUENCE ..`: a source with these cells of three bytes each; the newest source first
//! - `forward`, `reverse`: opens a cursor over all of them
//! - `next`: takes whole rows; `next N`: takes parts of N cells; `all` does so to the end
//! - `skip`, `seek ROW`, `column COLUMN`: moves
//! - `look`: prints the row at which the merge is

use std::fmt::Write as _;
use std::sync::Arc;

use super::MergingCursor;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::row_range::RowRange;
use crate::sorted_cells::SortedCells;
use crate::source::{Reading, Source};

/// The weight of one of these cells, with a row of its own.
const CELL_BYTES: usize = crate::cells::SLOT_BYTES + 3;

#[derive(Default)]
struct Script {
    sources: Vec<Arc<SortedCells>>,
    cursor: Option<MergingCursor>,
}

fn source(words: &[&str]) -> Arc<SortedCells> {
    let mut cells = Cells::default();
    for word in words {
        let (place, sequence) = word.split_once('@').expect("ROW/COLUMN@SEQUENCE");
        let (row, qualifier) = place.split_once('/').expect("ROW/COLUMN@SEQUENCE");
        let sequence = sequence.parse().expect("a number");
        cells.push(Cell { sequence, ..Cell::put(row.as_bytes(), qualifier.as_bytes(), 1, b"v") });
    }
    cells.sort_from(0);
    Arc::new(SortedCells::new(cells))
}

fn text(cell: &Cell<'_>) -> String {
    format!("{}@{}", String::from_utf8_lossy(cell.qualifier), cell.sequence)
}

impl Script {
    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["source", ref cells @ ..] => self.sources.push(source(cells)),
            ["forward"] => self.open(false),
            ["reverse"] => self.open(true),
            ["next"] => drop(self.take(usize::MAX, out)),
            ["next", cells] => drop(self.take(cells.parse::<usize>().expect("a number") * CELL_BYTES, out)),
            ["all"] => while self.take(usize::MAX, out) {},
            ["skip"] => self.cursor().skip().expect("nothing fails in memory"),
            ["seek", row] => self.cursor().seek(row.as_bytes()).expect("nothing fails in memory"),
            ["column", qualifier] => self.cursor().seek_column(qualifier.as_bytes()).expect("nothing fails in memory"),
            ["look"] => {
                let row = self.cursor().row().map_or("end".into(), String::from_utf8_lossy).into_owned();
                writeln!(out, "at {row}").expect("to a string");
            }
            _ => panic!("no such command: {line}"),
        }
    }

    fn open(&mut self, reverse: bool) {
        let bounds = RowRange::default();
        let cursors = self.sources.iter().map(|source| Arc::clone(source).cursor(&bounds, reverse, Reading::BULK));
        let cursors = cursors.collect::<Result<_, _>>().expect("nothing fails in memory");
        self.cursor = Some(MergingCursor::new(cursors, reverse));
    }

    fn cursor(&mut self) -> &mut MergingCursor {
        self.cursor.as_mut().expect("a cursor was opened")
    }

    /// Prints the next row or part; returns whether there was one.
    fn take(&mut self, bytes_max: usize, out: &mut String) -> bool {
        let Some(row) = self.cursor().row().map(|row| String::from_utf8_lossy(row).into_owned()) else {
            writeln!(out, "end").expect("to a string");
            return false;
        };
        let mut cells = Cells::default();
        let is_over = self.cursor().take(ColumnSelection::ALL, bytes_max, &mut cells).expect("nothing fails in memory");
        let mut cells: Vec<_> = cells.iter().map(|cell| text(&cell)).collect();
        if cells.is_empty() {
            cells.push("-".to_owned());
        }
        let more = if is_over { "" } else { " .." };
        writeln!(out, "{row}: {}{more}", cells.join(" ")).expect("to a string");
        true
    }
}

#[test]
fn every_script_prints_what_is_recorded() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/merging_cursor/testdata");
    terrane_testscript::check_scripts(directory, || {
        let mut script = Script::default();
        move |line: &str, out: &mut String| script.command(line, out)
    });
}
