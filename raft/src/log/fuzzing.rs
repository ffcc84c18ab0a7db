//! The log's files as the fuzz driver sees them.
//!
//! [`REPLAY`] and [`HELD_RECORDS`] compute the checksums themselves, so that changed bytes reach what is behind them.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use terrane_env::fs::Disk;
use terrane_types::GroupId;
use terrane_types::fuzzing::{Damage, Dice, Format, again, no_limits, round_trip};
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::versions::FEATURE_LEVEL;

use super::batch::{BatchHeader, HEADER_BYTES, HeaderProbe, Position, aligned};
use super::files::Files;
use super::held;
use super::place::HELD;
use super::record::{self, FRAME_BYTES, Mark, Record};
use super::recover::Recovery;
use crate::codec::Malformed;
use crate::fuzzing::draw;
use crate::proposals::entry::{self, Packer, Sequence, format_at};
use crate::types::{Entry, Packed, Payload, StoredMembership, Vote, log_id};

/// A record with its checksum.
pub(crate) const RECORD: Format = Format {
    name: "log-record",
    damage: Damage::Refused,
    read: |bytes| {
        let (group, record, length) = read_record(bytes).ok()?;
        (length == bytes.len()).then(|| written(group, &record))
    },
    draw: |dice| draw_record(dice),
    limits: record_limits,
};

/// A record without its checksum and length.
pub(crate) const RECORD_BODY: Format = Format {
    name: "log-record-body",
    damage: Damage::Undetected,
    read: |body| {
        let (group, record, _) = read_record(&framed(body)).ok()?;
        Some(written(group, &record).split_off(FRAME_BYTES))
    },
    draw: |dice| draw_record(dice).split_off(FRAME_BYTES),
    limits: no_limits,
};

/// The header of a batch.
pub(crate) const BATCH_HEADER: Format = Format {
    name: "log-batch-header",
    damage: Damage::Refused,
    read: |bytes| match BatchHeader::find(&Bytes::copy_from_slice(bytes), 0) {
        HeaderProbe::Header(header, _) if bytes.len() == HEADER_BYTES => Some(header_bytes(&header)),
        _ => None,
    },
    draw: |dice| {
        let header = BatchHeader {
            log: dice.number(),
            segment: dice.number(),
            batch: dice.number(),
            synced: Position { segment: dice.number(), offset: dice.number() },
            previous: dice.number32(),
            length: dice.number32(),
            records: dice.number32(),
        };
        let bytes = header_bytes(&header);
        assert!(matches!(BatchHeader::find(&bytes.clone().into(), 0), HeaderProbe::Header(back, _) if back == header));
        bytes
    },
    limits: no_limits,
};

/// The last segment of a log: everything up to a torn tail is recovered.
pub(crate) const SEGMENT: Format = Format {
    name: "log-segment",
    damage: Damage::Cut,
    read: |bytes| recovered(&Bytes::copy_from_slice(bytes)).map(|end| bytes[..end].to_vec()),
    draw: |dice| {
        let records = draw_history(dice);
        let bytes = segment(dice, &records);
        assert_eq!(recovered(&bytes.clone().into()), Some(bytes.len()), "a segment is not recovered in full");
        bytes
    },
    limits: no_limits,
};

/// Bodies of records, each after its 16-bit length, as the records of one segment.
pub(crate) const REPLAY: Format = Format {
    name: "log-replay",
    damage: Damage::Undetected,
    read: |bytes| {
        let records: Vec<Vec<u8>> = bodies(bytes).map(framed).collect();
        let image = segment(&mut Dice::new(1), &records);
        (recovered(&image.clone().into()) == Some(image.len())).then(|| joined(&records))
    },
    draw: |dice| joined(&draw_history(dice)),
    limits: no_limits,
};

/// Entries of one group, copied out of segments.
pub(crate) const HELD_FILE: Format = Format {
    name: "log-held-file",
    damage: Damage::Refused,
    read: |bytes| {
        let loaded = held::read(HELD | HELD_NUMBER, &Bytes::copy_from_slice(bytes)).ok()?;
        assert_eq!(loaded.bytes, bytes.len() as u64, "a held file is longer than what was read of it");
        Some(bytes.to_vec())
    },
    draw: |dice| held_file(&draw_held(dice)),
    limits: || vec![held_file(&record_limits())],
};

/// Bodies of records, each after its 16-bit length, as the records of a held file.
pub(crate) const HELD_RECORDS: Format = Format {
    name: "log-held-records",
    damage: Damage::Undetected,
    read: |bytes| {
        let records: Vec<Vec<u8>> = bodies(bytes).map(framed).collect();
        held::read(HELD | HELD_NUMBER, &held_file(&records).into()).ok().map(|_| joined(&records))
    },
    draw: |dice| joined(&draw_held(dice)),
    limits: no_limits,
};

/// The inside of a normal entry without its checksum.
pub(crate) const ENTRY: Format = Format {
    name: "log-entry",
    damage: Damage::Undetected,
    read: |bytes| again(unpack(bytes), |(header, operations)| packed(header, &operations)),
    draw: |dice| {
        let header = draw::header(dice);
        let operations = dice.list(6, |dice| Bytes::from(dice.bytes(300)));
        let bytes = packed(header, &operations);
        round_trip(&(header, operations), bytes, unpack)
    },
    limits: || {
        let operations = [Bytes::from(vec![7; BATCH_BYTES_MAX])];
        let bytes = packed(draw::header(&mut Dice::new(1)), &operations);
        assert_eq!(unpack(&bytes).map(|(_, back)| back), Ok(operations.to_vec()));
        vec![bytes]
    },
};

const HELD_NUMBER: u64 = 7;
const GROUP: GroupId = GroupId(7);

fn read_record(bytes: &[u8]) -> Result<(GroupId, Record, usize), Malformed> {
    record::read(&Bytes::copy_from_slice(bytes))
}

fn written(group: GroupId, record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    match record {
        Record::Created(spec) => record::put_created(&mut out, spec),
        Record::Vote(vote) => record::put_vote_record(&mut out, group, vote),
        Record::Entry(entry) => record::put_entry_record(&mut out, group, &entry.log_id, &entry.payload),
        Record::Truncated(last) => record::put_truncated(&mut out, group, *last),
        Record::Purged(mark) => record::put_purged(&mut out, group, mark),
        Record::Removed(replica) => record::put_removed(&mut out, group, *replica),
    }
    out
}

fn checked(group: GroupId, record: &Record) -> Vec<u8> {
    let read = |bytes: &[u8]| read_record(bytes).map(|(group, record, _)| (group, record));
    round_trip(&(group, record.clone()), written(group, record), read)
}

/// A body with the checksum and length that belong to it.
fn framed(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("inputs are small").to_le_bytes();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&length), body);
    [&crc.to_le_bytes()[..], &length, body].concat()
}

/// The parts of the input, each after its 16-bit length; the last one may be short.
fn bodies(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (body, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        Some(body)
    })
}

fn joined(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for body in records.iter().map(|record| &record[FRAME_BYTES..]) {
        out.extend_from_slice(&u16::try_from(body.len()).expect("drawn records are small").to_le_bytes());
        out.extend_from_slice(body);
    }
    out
}

fn header_bytes(header: &BatchHeader) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    header.write(&mut bytes);
    bytes
}

/// Segment 1 of a log with these records, in batches of a few.
fn segment(dice: &mut Dice, records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut batch, mut previous, mut rest) = (0, 0, records);
    while !rest.is_empty() {
        let (part, after) = rest.split_at((1 + dice.below(4)).min(rest.len()));
        rest = after;
        batch += 1;
        let body = part.concat();
        let header = BatchHeader {
            log: 5,
            segment: 1,
            batch,
            synced: Position { segment: 1, offset: out.len() as u64 },
            previous,
            length: u32::try_from(body.len()).expect("inputs are small"),
            records: u32::try_from(part.len()).expect("inputs are small"),
        };
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        previous = header.write(&mut out[start..]);
        out.extend_from_slice(&body);
        out.resize(aligned(out.len()), 0);
    }
    out
}

/// Where the last good batch ends, as a start decides: damage is `None`.
fn recovered(bytes: &Bytes) -> Option<usize> {
    let mut recovery = Recovery::new(Arc::new(Files::new(Disk::os(), PathBuf::from("no directory"))), 1 << 16);
    let scanned = recovery.scan(1, bytes).map_err(|error| error.to_string()).ok()?;
    if scanned.bad.is_some_and(|what| recovery.lost(1, bytes, scanned.end, what).is_some()) {
        return None;
    }
    recovery.found.groups.values().try_for_each(|group| group.replayed()).ok()?;
    usize::try_from(scanned.end).ok()
}

/// Records that a log may hold one after the other.
fn draw_history(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for number in 1..2 + dice.below(3) as u64 {
        let group = GroupId(number);
        let spec = draw::spec(dice, group);
        records.push(checked(group, &Record::Created(spec.clone())));
        let (mut term, mut next, mut purged) = (dice.below(4) as u64, 0, 0);
        for _ in 0..dice.below(12) {
            term += dice.below(2) as u64;
            let record = match dice.below(8) {
                0 => {
                    term += 1;
                    Record::Vote(Vote::new(term, terrane_types::ReplicaId(dice.number())))
                }
                1 if next > purged => {
                    next = purged + dice.below((next - purged) as usize) as u64;
                    Record::Truncated(next.checked_sub(1))
                }
                2 if next > purged => {
                    purged = purged + 1 + dice.below((next - purged) as usize) as u64;
                    Record::Purged(draw_mark(dice, term, purged - 1))
                }
                _ => {
                    next += 1;
                    Record::Entry(Entry { log_id: log_id(term, next - 1), payload: draw::payload(dice) })
                }
            };
            records.push(checked(group, &record));
        }
        if dice.flag() {
            records.push(checked(group, &Record::Removed(spec.replica)));
        }
    }
    records
}

fn draw_mark(dice: &mut Dice, term: u64, index: u64) -> Mark {
    Mark {
        log_id: log_id(term, index),
        membership: StoredMembership::new(Some(log_id(term, index)), draw::membership(dice)),
        sequence: Sequence {
            term: dice.number(),
            ordinal: dice.number(),
            stamp: dice.number(),
            released: dice.number(),
        },
    }
}

fn draw_record(dice: &mut Dice) -> Vec<u8> {
    let group = GroupId(dice.number());
    let (term, index) = (dice.number(), draw::index(dice));
    let record = match dice.below(6) {
        0 => Record::Created(draw::spec(dice, group)),
        1 => Record::Vote(draw::vote(dice, term)),
        2 => Record::Truncated(dice.flag().then_some(index)),
        3 => Record::Purged(draw_mark(dice, term, index)),
        4 => Record::Removed(terrane_types::ReplicaId(dice.number())),
        _ => Record::Entry(Entry { log_id: log_id(term, index), payload: draw::payload(dice) }),
    };
    checked(group, &record)
}

/// Consecutive entries of one group.
fn draw_held(dice: &mut Dice) -> Vec<Vec<u8>> {
    let (first, term) = (dice.number() >> 1, dice.number() >> 1);
    let entry =
        |dice: &mut Dice, at: u64| Entry { log_id: log_id(term + at / 3, first + at), payload: draw::payload(dice) };
    (0..1 + dice.below(8) as u64).map(|at| checked(GROUP, &Record::Entry(entry(dice, at)))).collect()
}

fn held_file(records: &[Vec<u8>]) -> Vec<u8> {
    [held::header(5, GROUP, HELD | HELD_NUMBER, terrane_types::ReplicaId(3)), records.concat()].concat()
}

/// The largest entry: an operation of its own, with the header of its entry and of its rows.
fn record_limits() -> Vec<Vec<u8>> {
    let payload = Payload::Normal(Packed(vec![7; BATCH_BYTES_MAX + (1 << 20)].into()));
    vec![checked(GROUP, &Record::Entry(Entry { log_id: log_id(u64::MAX, u64::MAX - 1), payload }))]
}

fn unpack(unsealed: &[u8]) -> Result<(entry::Header, Vec<Bytes>), Malformed> {
    entry::unpack(&entry::sealed(unsealed), format_at(FEATURE_LEVEL))
}

fn packed(header: entry::Header, operations: &[Bytes]) -> Vec<u8> {
    let mut packer = Packer::new(header, 0, format_at(FEATURE_LEVEL));
    for operation in operations {
        packer.push(|out| {
            out.extend_from_slice(operation);
            (true, ())
        });
    }
    entry::unsealed(&packer.finish())
}
