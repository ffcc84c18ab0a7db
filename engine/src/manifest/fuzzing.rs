//! Manifests as the fuzz driver sees them.
//!
//! [`REPLAY`] computes the checksums itself, so that changed bytes reach the records.

use std::path::Path;

use bytes::Bytes;
use terrane_types::fuzzing::{Damage, Dice, Format, draw, no_limits, round_trip};
use terrane_types::limits::{ROW_BYTES_MAX, SCHEMA_BYTES_MAX};
use terrane_types::visibility::{RulesChange, RulesHistory};
use terrane_types::{GroupId, KeyRange, RegionId, TableId};

use super::family::FamilyRecord;
use super::record::{FileRecord, Record, RegionRecord};
use super::{Contents, examine, read_records};
use crate::codec::frame;
use crate::point::{DurablePoint, GroupPoint};
use crate::row_range::RowRange;

/// One record, without its frame.
pub(crate) const RECORD: Format = Format {
    name: "manifest-record",
    damage: Damage::Undetected,
    read: |bytes| Record::decode(bytes).map(|record| record.encode()),
    draw: |dice| checked(&draw_record(dice)),
    limits: || vec![checked(&Record::Region(longest())), checked(&Record::Group { group: GroupId(1), point: point() })],
};

/// A whole manifest: everything up to a torn last record is read.
pub(crate) const FILE: Format = Format {
    name: "manifest",
    damage: Damage::Cut,
    read: |bytes| {
        examine(bytes);
        let (_, end) = read(bytes)?;
        Some(bytes[..end].to_vec())
    },
    draw: |dice| {
        let bytes = framed(&draw_all(dice));
        assert_eq!(read(&bytes).map(|(_, end)| end), Some(bytes.len()), "a manifest is not read in full");
        assert!(examine(&bytes).is_whole(), "the offline check reports damage in a good manifest");
        bytes
    },
    limits: no_limits,
};

/// Records, each after its 32-bit length, as one manifest; written again as it would be rewritten.
pub(crate) const REPLAY: Format = Format {
    name: "manifest-replay",
    damage: Damage::Undetected,
    read: |bytes| {
        let (contents, _) = read(&framed(&payloads(bytes)))?;
        let records: Vec<Vec<u8>> = contents.records().map(|record| record.encode()).collect();
        let (again, _) = read(&framed(&records)).expect("a manifest that was rewritten is read");
        assert_eq!(again, contents, "a rewritten manifest says something else");
        Some(joined(&records))
    },
    draw: |dice| {
        let drawn = draw_all(dice);
        let (contents, _) = read(&framed(&drawn)).expect("a manifest that was written is read");
        // Reading and writing keeps what counts, in the order of a rewritten manifest.
        joined(&contents.records().map(|record| record.encode()).collect::<Vec<_>>())
    },
    limits: no_limits,
};

fn read(bytes: &[u8]) -> Option<(Contents, usize)> {
    let (contents, end) = read_records(Path::new("MANIFEST"), bytes).map_err(|error| error.to_string()).ok()?;
    Some((contents, usize::try_from(end).ok()?))
}

fn framed(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    payloads.iter().for_each(|payload| frame(&mut out, payload));
    out
}

fn joined(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for payload in payloads {
        out.extend_from_slice(&u32::try_from(payload.len()).expect("records are far below 4 GiB").to_le_bytes());
        out.extend_from_slice(payload);
    }
    out
}

/// The parts of the input; the last one may be short. An empty one is no frame.
fn payloads(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        bytes = rest;
        found.push(payload.to_vec());
    }
    found
}

fn checked(record: &Record) -> Vec<u8> {
    round_trip(record, record.encode(), |bytes| Record::decode(bytes).ok_or("a record that this build cannot read"))
}

fn draw_all(dice: &mut Dice) -> Vec<Vec<u8>> {
    let engine = Record::Engine { name: dice.pick(&["lsm", "memory", "sled"]).to_owned() };
    std::iter::once(checked(&engine)).chain(dice.list(8, |dice| checked(&draw_record(dice)))).collect()
}

fn draw_record(dice: &mut Dice) -> Record {
    let small = |dice: &mut Dice| RegionId(1 + dice.below(5) as u64);
    match dice.below(7) {
        6 => {
            let group = GroupId(dice.number());
            let of_group = |dice: &mut Dice| {
                let mut region = draw_region(dice);
                region.point.group = group;
                region
            };
            let point = GroupPoint { index: dice.number(), state: dice.bytes(60).into() };
            Record::Install(super::record::GroupRecord { group, point, regions: dice.list(3, of_group) })
        }
        5 => Record::RemoveGroup(GroupId(dice.number())),
        0 => Record::Split { parent: small(dice), daughters: Box::new([draw_region(dice), draw_region(dice)]) },
        1 => Record::Merge { parents: [small(dice), small(dice)], region: Box::new(draw_region(dice)) },
        2 => Record::Drop {
            regions: dice.list(4, small),
            group: GroupId(dice.number()),
            point: GroupPoint { index: dice.number(), state: dice.bytes(60).into() },
        },
        3 => Record::Group {
            group: GroupId(dice.number()),
            point: GroupPoint { index: dice.number(), state: dice.bytes(60).into() },
        },
        _ => Record::Region(draw_region(dice)),
    }
}

fn draw_region(dice: &mut Dice) -> RegionRecord {
    let family = |dice: &mut Dice| {
        let mut rules = RulesHistory::new(draw::rules(dice));
        for number in 1..1 + dice.below(3) as u64 {
            rules.push(RulesChange { sequence: number * 7, stamp_ms: dice.signed(), rules: draw::rules(dice) });
        }
        let mut family = FamilyRecord::new(dice.number(), rules, draw::storage(dice));
        if dice.below(3) == 0 {
            let row = bytes::Bytes::from(dice.bytes(9));
            let other = RulesHistory::new(draw::rules(dice));
            family = family.joined(&row, &FamilyRecord::new(dice.number(), other, family.storage));
        }
        (draw::family(dice), family)
    };
    RegionRecord {
        region: RegionId(1 + dice.below(5) as u64),
        table: TableId(dice.number()),
        range: draw::range(dice),
        point: DurablePoint {
            group: GroupId(dice.number()),
            index: dice.number(),
            sequence: dice.number(),
            stamp: dice.number(),
            descriptor: dice.bytes(60).into(),
            window: dice.bytes(60).into(),
        },
        families: dice.list(3, family).into_iter().collect(),
        files: dice.list(2, |dice| (draw::family(dice), dice.list(3, draw_file))).into_iter().collect(),
    }
}

fn draw_file(dice: &mut Dice) -> FileRecord {
    FileRecord {
        id: dice.number(),
        level: dice.array::<1>()[0],
        size: dice.number(),
        bytes: dice.number(),
        bounds: RowRange { start: dice.bytes(20), end: dice.bytes(20) },
        first_row: dice.bytes(20).into(),
        last_row: dice.bytes(20).into(),
        timestamps: (dice.signed(), dice.signed()),
        sequences: (dice.number(), dice.number()),
        cells: dice.number(),
        deletes: dice.number(),
        collected: (dice.number(), dice.signed()),
        origin: dice.number(),
        ingested_at: dice.number(),
    }
}

/// The longest descriptor, window and range.
fn longest() -> RegionRecord {
    let mut region = draw_region(&mut Dice::new(1));
    let row = |byte| Bytes::from(vec![byte; ROW_BYTES_MAX]);
    region.range = KeyRange::new(row(b'a'), row(b'z')).expect("the range is not reversed");
    region.point.descriptor = vec![7; SCHEMA_BYTES_MAX + 4 * ROW_BYTES_MAX].into();
    region.point.window = vec![7; 2 << 20].into();
    region
}

/// The state of a group with a hundred of the largest schemas.
fn point() -> GroupPoint {
    GroupPoint { index: u64::MAX, state: vec![7; 100 * SCHEMA_BYTES_MAX].into() }
}
