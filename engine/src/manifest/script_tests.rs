//! What a manifest says after some records, some of them torn or damaged: `testdata/*.txt`.
//!
//! - `region ID INDEX [FILES]`: the record of a region as of a log index, with its files
//! - `split PARENT LEFT RIGHT INDEX [FILES]`, `merge LEFT RIGHT INTO INDEX [FILES]`, `drop ID INDEX`, `group INDEX`
//! - `install INDEX REGION@INDEX ...`: the group becomes a copy with these regions, each with a file of its own number
//! - `cut N`: the file ends N bytes early; `flip RECORD`: a bit of that record, counted from 0, flips
//! - `read`: what a start finds: regions with their index and files, the group, and how many bytes it cuts

use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::codec::frame;
use crate::point::DurablePoint;
use crate::row_range::RowRange;
use bytes::Bytes;
use terrane_types::{KeyRange, RegionId, TableId};

const GROUP: GroupId = GroupId(1);

#[derive(Default)]
struct Script {
    bytes: Vec<u8>,
    /// Where each record begins.
    starts: Vec<usize>,
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

pub(crate) fn file(id: u64) -> FileRecord {
    FileRecord {
        id,
        level: 0,
        size: 1,
        bytes: 1,
        bounds: RowRange::default(),
        first_row: Bytes::from_static(b"a"),
        last_row: Bytes::from_static(b"b"),
        timestamps: (0, 0),
        sequences: (1, 1),
        cells: 1,
        deletes: 0,
        collected: (0, 0),
        origin: id,
        ingested_at: 0,
    }
}

fn region(id: &str, index: &str, files: &[&str]) -> RegionRecord {
    let name = terrane_types::FamilyName::new("f").expect("a name");
    RegionRecord {
        region: RegionId(number(id)),
        table: TableId(1),
        range: KeyRange::all(),
        point: DurablePoint { group: GROUP, index: number(index), ..DurablePoint::default() },
        families: Families::new(),
        files: [(name, files.iter().map(|id| file(number(id))).collect())].into(),
    }
}

fn group(index: &str) -> GroupPoint {
    GroupPoint { index: number(index), state: Bytes::new() }
}

impl Script {
    fn new() -> Self {
        let mut script = Self::default();
        script.append(&Record::Engine { name: "lsm".into() });
        script
    }

    fn append(&mut self, record: &Record) {
        self.starts.push(self.bytes.len());
        frame(&mut self.bytes, &record.encode());
    }

    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["region", id, index, ref files @ ..] => self.append(&Record::Region(region(id, index, files))),
            ["split", parent, left, right, index, ref files @ ..] => self.append(&Record::Split {
                parent: RegionId(number(parent)),
                daughters: Box::new([region(left, index, files), region(right, index, files)]),
            }),
            ["merge", left, right, into, index, ref files @ ..] => self.append(&Record::Merge {
                parents: [RegionId(number(left)), RegionId(number(right))],
                region: Box::new(region(into, index, files)),
            }),
            ["drop", id, index] => {
                self.append(&Record::Drop { regions: vec![RegionId(number(id))], group: GROUP, point: group(index) });
            }
            ["group", index] => self.append(&Record::Group { group: GROUP, point: group(index) }),
            ["install", index, ref regions @ ..] => {
                let region_of = |word: &&str| {
                    let (id, index) = word.split_once('@').expect("REGION@INDEX");
                    region(id, index, &[id])
                };
                let regions = regions.iter().map(region_of).collect();
                self.append(&Record::Install(GroupRecord { group: GROUP, point: group(index), regions }));
            }
            ["remove-group"] => self.append(&Record::RemoveGroup(GROUP)),
            ["cut", bytes] => self.bytes.truncate(self.bytes.len() - usize::try_from(number(bytes)).expect("small")),
            ["flip", record] => {
                let start = self.starts[usize::try_from(number(record)).expect("small")];
                self.bytes[start + FRAME_HEADER_BYTES + 2] ^= 1;
            }
            ["read"] => self.read(out),
            _ => panic!("no such command: {line}"),
        }
    }

    fn read(&self, out: &mut String) {
        match read_records(Path::new("MANIFEST"), &self.bytes) {
            Ok((contents, end)) => {
                for ((_, id), region) in &contents.regions {
                    let files: Vec<_> = region.files.values().flatten().map(|file| file.id).collect();
                    write!(out, "{id}@{}{files:?} ", region.point.index).expect("to a string");
                }
                let group = contents.groups.get(&GROUP).map_or(0, |point| point.index);
                writeln!(out, "group@{group} cuts {}", self.bytes.len() as u64 - end).expect("to a string");
            }
            Err(error) => writeln!(out, "{error}").expect("to a string"),
        }
    }
}

#[test]
fn every_script_prints_what_is_recorded() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/manifest/testdata");
    terrane_testscript::check_scripts(directory, || {
        let mut script = Script::new();
        move |line: &str, out: &mut String| script.command(line, out)
    });
}

#[test]
#[should_panic(expected = "the durable point of region 1 went back, from index 9")]
fn a_durable_point_never_goes_back() {
    let mut contents = Contents::default();
    contents.take(Record::Region(region("1", "9", &[])));
    contents.check_order(&Record::Region(region("1", "8", &[])));
}
