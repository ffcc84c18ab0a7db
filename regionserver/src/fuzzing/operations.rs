//! Operations of a group's log, and the results in them.

use bytes::Bytes;
use terrane_env::trace::{TRACE_CONTEXT_BYTES, TraceContext};
use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, round_trip};
use terrane_types::limits::{BATCH_ROWS_MAX, QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, VALUE_BYTES_MAX};
use terrane_types::{CellRef, FamilyName, GroupId, MoveId, PackedCells, RegionEpoch, RegionId, ServerId, TableId};

use crate::operation::{
    Adopt, ChangeTables, Compare, ComparisonId, Depart, Destination, Freeze, Load, LoadedFile, LoggedRow, LoggedWrite,
    Merge, Operation, Refuse, ResultKind, RowResult, Settle, Source, Split, StagingId, Unfreeze, WriteEncoder,
    WriteHeader, encode_tick,
};
use crate::window::UnderWay;

/// One operation. The rows of a write are read in full, and their cells as a replica reads them when it applies.
pub const OPERATION: Format = Format {
    name: "operation",
    damage: Damage::Undetected,
    read: |bytes| {
        let operation = Operation::decode(Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string()).ok()?;
        written(operation)
    },
    draw: |dice| {
        let bytes = draw_operation(dice);
        let back = Operation::decode(bytes.clone().into()).expect("an operation that was written is read");
        assert_eq!(written(back).as_ref(), Some(&bytes), "an operation is read as another one");
        bytes
    },
    limits,
};

/// The result of a row.
pub const RESULT: Format = Format {
    name: "row-result",
    damage: Damage::Undetected,
    read: |bytes| {
        again(RowResult::decode(Bytes::copy_from_slice(bytes)), |result| {
            let encoded = result.encode();
            result.outcome().ok();
            encoded
        })
    },
    draw: |dice| {
        let result = draw_result(dice);
        round_trip(&result, result.encode(), |bytes| RowResult::decode(Bytes::copy_from_slice(bytes)))
    },
    limits: || {
        let returned = Bytes::from(vec![7; terrane_types::limits::RETURNED_BYTES_MAX]);
        let result = RowResult { stamp: u64::MAX, kind: ResultKind::Applied { returned } };
        vec![round_trip(&result, result.encode(), |bytes| RowResult::decode(Bytes::copy_from_slice(bytes)))]
    },
};

/// The operation as this build writes it; `None` for a write with a row that no replica applies.
fn written(operation: Operation) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match operation {
        Operation::Write(write) => return write_again(write),
        Operation::ChangeTables(change) => change.encode(&mut out),
        Operation::Split(split) => split.encode(&mut out).ok()?,
        Operation::Merge(merge) => merge.encode(&mut out),
        Operation::Tick => encode_tick(&mut out),
        Operation::Settle(settle) => settle.encode(&mut out),
        Operation::Freeze(freeze) => freeze.encode(&mut out),
        Operation::Unfreeze(unfreeze) => unfreeze.encode(&mut out),
        Operation::Depart(depart) => depart.encode(&mut out),
        Operation::Adopt(adopt) => adopt.encode(&mut out),
        Operation::Refuse(refuse) => refuse.encode(&mut out),
        Operation::Load(load) => load.encode(&mut out),
        Operation::Compare(compare) => compare.encode(&mut out),
    }
    Some(out)
}

fn write_again(write: LoggedWrite) -> Option<Vec<u8>> {
    let (mut out, header) = (Vec::new(), write.header);
    let rows = write.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string()).ok()?;
    let mut encoder = WriteEncoder::new(&mut out, &header, STAMP);
    for row in &rows {
        PackedCells::stored(row.cells.clone()).ok()?;
        let LoggedRow { operation, first_try_ms, row, cells, result, untracked } = row;
        let (operation, first_try_ms, untracked) = (*operation, *first_try_ms, *untracked);
        encoder.push(&LoggedRow { operation, first_try_ms, row, cells, result: result.as_deref(), untracked });
    }
    encoder.finish();
    Some(out)
}

/// What cells without a timestamp get.
const STAMP: i64 = 1_700_000_000_000;

fn draw_header(dice: &mut Dice) -> WriteHeader {
    WriteHeader {
        region: RegionId(dice.number()),
        epoch: RegionEpoch(dice.number()),
        schema_version: dice.number(),
        client: dice.array(),
        lowest_unsettled: dice.number(),
        atomic: dice.flag(),
        exact_schema: dice.flag(),
        // Zero is no trace.
        trace: TraceContext::from_bytes(&dice.array::<{ TRACE_CONTEXT_BYTES }>())
            .ok()
            .flatten()
            .filter(|_| dice.flag()),
    }
}

fn draw_operation(dice: &mut Dice) -> Vec<u8> {
    let mut out = Vec::new();
    match dice.below(10) {
        9 => Compare { region: RegionId(dice.number()), id: ComparisonId(dice.array()) }.encode(&mut out),
        8 => draw_load(dice).encode(&mut out),
        7 => draw_move(dice, &mut out),
        6 => {
            let (left, right) = (RegionId(dice.number()), RegionId(dice.number()));
            let (left_epoch, right_epoch) = (RegionEpoch(dice.number()), RegionEpoch(dice.number()));
            Merge { left, left_epoch, right, right_epoch, into: RegionId(dice.number()) }.encode(&mut out);
        }
        0 => {
            let drop = dice.flag().then(|| TableId(1 + dice.number() / 2));
            let schema = dice.flag().then(|| draw::schema(dice));
            ChangeTables { schema, create: dice.list(3, draw::descriptor), drop }.encode(&mut out);
        }
        1 => {
            let (region, epoch) = (RegionId(dice.number()), RegionEpoch(dice.number()));
            let (left, right) = (RegionId(dice.number()), RegionId(dice.number()));
            let split = Split { region, epoch, left, right, at: draw::row(dice).into() };
            split.encode(&mut out).expect("a drawn boundary is short");
        }
        2 => encode_tick(&mut out),
        3 => {
            let (mut next, mut ranges) = (dice.number() / 4, Vec::new());
            for _ in 0..dice.below(5) {
                let last = next + dice.below(9) as u64;
                ranges.push((next, last));
                next = last + 2 + dice.below(9) as u64;
            }
            let under_way = UnderWay::new(next, ranges).expect("the ranges ascend");
            Settle { region: RegionId(dice.number()), client: dice.array(), under_way }.encode(&mut out);
        }
        _ => draw_write(dice, &mut out),
    }
    out
}

fn draw_load(dice: &mut Dice) -> Load {
    let file = |dice: &mut Dice| LoadedFile {
        family: draw::family(dice),
        number: dice.number(),
        bytes: dice.number(),
        crc: u32::from_le_bytes(dice.array()),
    };
    Load {
        region: RegionId(dice.number()),
        epoch: RegionEpoch(dice.number()),
        schema_version: dice.number(),
        client: dice.array(),
        lowest_unsettled: dice.number(),
        operations: dice.list(4, Dice::number),
        first_try_ms: dice.number(),
        staging: StagingId(dice.array()),
        source: ServerId(dice.number()),
        files: dice.list(4, file),
    }
}

/// Where a region moves.
pub fn draw_destination(dice: &mut Dice) -> Destination {
    let servers = dice.list(5, |dice| ServerId(dice.number()));
    Destination { id: MoveId(dice.number()), group: GroupId(dice.number()), servers }
}

fn draw_move(dice: &mut Dice, out: &mut Vec<u8>) {
    let (id, region) = (MoveId(dice.number()), RegionId(dice.number()));
    match dice.below(5) {
        0 => Freeze { region, epoch: RegionEpoch(dice.number()), to: draw_destination(dice) }.encode(out),
        1 => Unfreeze { region, id }.encode(out),
        2 => Depart { id, adopted: draw::descriptor(dice) }.encode(out),
        3 => {
            let contents = Bytes::from(dice.bytes(200));
            let source = Source { server: ServerId(dice.number()), boot: dice.number() };
            Adopt { id, source, contents }.encode(out);
        }
        _ => Refuse { id }.encode(out),
    }
}

fn draw_write(dice: &mut Dice, out: &mut Vec<u8>) {
    let header = draw_header(dice);
    let families = [draw::family(dice), draw::family(dice)];
    let mut encoder = WriteEncoder::new(out, &header, STAMP);
    for _ in 0..dice.below(5) {
        let (row, cells) = (draw::row(dice), draw::cells(dice, &families, 4));
        let result = dice.one_in(3).then(|| draw_result(dice).encode());
        encoder.push(&LoggedRow {
            operation: dice.number(),
            first_try_ms: dice.number(),
            row: &row[..],
            cells: if dice.one_in(6) { &[] } else { &cells },
            result: result.as_deref(),
            untracked: dice.flag(),
        });
    }
    encoder.finish();
}

fn draw_result(dice: &mut Dice) -> RowResult {
    let family = FamilyName::new("f").expect("a valid name");
    let cells = Bytes::from(draw::cells(dice, &[family], 3));
    let kind = match dice.below(6) {
        0 => ResultKind::Applied { returned: cells },
        1 => ResultKind::ConditionFailed { found: cells },
        2 => ResultKind::Invalid { what: dice.text(40) },
        3 => ResultKind::NotTried,
        4 => ResultKind::AlreadyApplied,
        _ => ResultKind::Postponed,
    };
    RowResult { stamp: dice.number(), kind }
}

/// The longest row, qualifier, family and value; the most rows; the longest boundary.
fn limits() -> Vec<Vec<u8>> {
    let header = draw_header(&mut Dice::new(1));
    let family = "f".repeat(terrane_types::limits::NAME_CHARS_MAX);
    let (qualifier, value) = (vec![0xFF; QUALIFIER_BYTES_MAX], vec![7; VALUE_BYTES_MAX]);
    let mut cells = Vec::new();
    terrane_types::cell::pack(&mut cells, CellRef::put(family.as_bytes(), &qualifier, STAMP, &value));
    let (longest, row) = (
        vec![0xFF; ROW_BYTES_MAX],
        LoggedRow {
            operation: u64::MAX,
            first_try_ms: u64::MAX,
            row: &b"r"[..],
            cells: &[][..],
            result: None,
            untracked: false,
        },
    );
    let (mut large, mut many, mut split) = (Vec::new(), Vec::new(), Vec::new());
    let mut encoder = WriteEncoder::new(&mut large, &header, STAMP);
    encoder.push(&LoggedRow { row: &longest, cells: &cells, ..row });
    encoder.finish();
    let mut encoder = WriteEncoder::new(&mut many, &header, STAMP);
    for _ in 0..BATCH_ROWS_MAX {
        encoder.push(&row);
    }
    encoder.finish();
    let (region, epoch) = (RegionId(1), RegionEpoch(2));
    let at = Bytes::from(longest.clone());
    Split { region, epoch, left: RegionId(3), right: RegionId(4), at }.encode(&mut split).expect("a row fits a split");
    for bytes in [&large, &many, &split] {
        let back = Operation::decode(bytes.clone().into()).expect("an operation at its limits is read");
        assert!(written(back).as_ref() == Some(bytes), "an operation at its limits is read as another one");
    }
    vec![large, many, split]
}
