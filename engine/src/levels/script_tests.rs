//! What splits and merges of regions make of files: `testdata/*.txt`.
//!
//! - `file ID LEVEL FIRST-LAST BYTES`: a file of the region, newer than those before
//! - `split AT`: prints both halves and continues with the left one; `right` continues with the right one instead
//! - `merge`: joins the left and the right half of the last split again
//! - `level FILE N`: moves the right half's part of a file to another level
//! - `rewrite FILE ID`: another file takes the place of the right half's part of a file
//! - `set-aside`: keeps the right half; `bring` makes it the right neighbour of the region
//! - `show`: the files, level by level

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;

use super::{FileRef, FileSource, Levels};
use crate::Error;
use crate::cells::Cells;
use crate::manifest::FileRecord;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};

/// A file that is never read, and holds as many bytes of each row.
struct StubFile {
    first: u8,
    last: u8,
    bytes: u64,
}

impl Source for StubFile {
    fn row(&self, _: &RowLookup<'_>, _: &mut Cells) -> Result<bool, Error> {
        unreachable!("splits and merges read nothing")
    }

    fn cursor(self: Arc<Self>, _: &RowRange, _: bool, _: Reading) -> Result<Box<dyn Cursor>, Error> {
        unreachable!("splits and merges read nothing")
    }
}

impl FileSource for StubFile {
    fn bytes_within(&self, bounds: &RowRange) -> Option<u64> {
        let within = (self.first..=self.last).filter(|row| bounds.contains(&[*row])).count() as u64;
        Some(self.bytes * within / u64::from(self.last - self.first + 1))
    }

    fn samples(&self, _: &RowRange) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        unreachable!("splits and merges read nothing")
    }
}

#[derive(Default)]
struct Script {
    files: Vec<FileRef>,
    left: Levels,
    right: Levels,
    aside: Levels,
}

impl Script {
    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["file", id, level, rows, bytes] => self.files.push(file(id, level, rows, bytes)),
            ["split", at] => {
                let all = Levels::new(self.files.clone());
                let half = |start: &str, end: &str| {
                    all.within(&RowRange { start: start.as_bytes().to_vec(), end: end.as_bytes().to_vec() })
                };
                (self.left, self.right) = (half("", at), half(at, ""));
                show("left", &self.left, out);
                show("right", &self.right, out);
                self.files = self.left.iter().cloned().collect();
            }
            ["right"] => self.files = self.right.iter().cloned().collect(),
            ["level", id, level] => {
                let moved = self.right.iter().map(|file| match file.record.id == number(id) {
                    true => with_level(file, level),
                    false => file.clone(),
                });
                self.right = Levels::new(moved.collect::<Vec<_>>());
            }
            ["merge"] => {
                let merged = self.left.joined(&self.right);
                self.files = merged.iter().cloned().collect();
                show("merged", &merged, out);
                let doubles: Vec<u64> = merged.doubles().iter().map(|part| part.record.id).collect();
                if !doubles.is_empty() {
                    writeln!(out, "twice: {doubles:?}").expect("to a string");
                }
            }
            ["rewrite", id, by] => {
                let rewritten = self.right.iter().map(|file| match file.record.id == number(id) {
                    true => with_id(file, number(by)),
                    false => file.clone(),
                });
                self.right = Levels::new(rewritten.collect::<Vec<_>>());
            }
            ["set-aside"] => self.aside = self.right.clone(),
            ["bring"] => (self.left, self.right) = (Levels::new(self.files.clone()), self.aside.clone()),
            ["show"] => show("files", &Levels::new(self.files.clone()), out),
            _ => panic!("no such command: {line}"),
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn with_id(file: &FileRef, id: u64) -> FileRef {
    let record = FileRecord { id, ..(*file.record).clone() };
    FileRef { record: Arc::new(record), source: Arc::clone(&file.source) }
}

fn with_level(file: &FileRef, level: &str) -> FileRef {
    let record = FileRecord { level: level.parse().expect("a level"), ..(*file.record).clone() };
    FileRef { record: Arc::new(record), source: Arc::clone(&file.source) }
}

pub(super) fn file(id: &str, level: &str, rows: &str, bytes: &str) -> FileRef {
    let &[first, b'-', last] = rows.as_bytes() else { panic!("rows are FIRST-LAST, one letter each: {rows}") };
    let bytes = number(bytes);
    let record = FileRecord {
        level: level.parse().expect("a level"),
        size: bytes,
        bytes,
        first_row: Bytes::copy_from_slice(&[first]),
        last_row: Bytes::copy_from_slice(&[last]),
        ..crate::manifest::script_tests::file(number(id))
    };
    FileRef { record: Arc::new(record), source: Arc::new(StubFile { first, last, bytes }) }
}

fn show(name: &str, levels: &Levels, out: &mut String) {
    write!(out, "{name}").expect("to a string");
    for file in levels.iter() {
        let record = &file.record;
        let bound = |row: &[u8]| String::from_utf8_lossy(row).into_owned();
        let bounds = format!("{}..{}", bound(&record.bounds.start), bound(&record.bounds.end));
        write!(out, "  {}:L{}[{bounds}]={}", record.id, record.level, record.bytes).expect("to a string");
    }
    out.push('\n');
}

#[test]
fn every_script_prints_what_is_recorded() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/levels/testdata");
    terrane_testscript::check_scripts(directory, || {
        let mut script = Script::default();
        move |line: &str, out: &mut String| script.command(line, out)
    });
}
