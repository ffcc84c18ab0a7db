//! Requests as the fuzz driver sees them: from bytes through the edge's checks into the log, and back.

use std::sync::Arc;

use terrane_proto::{fuzzing, v1};
use terrane_types::fuzzing::{Damage, Dice, Format, draw, no_limits};
use terrane_types::{
    FamilyName, FamilySchema, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId, TableName,
    TableSchema,
};

use super::decode;
use crate::edge::Body;
use crate::group::proposal::Write;
use crate::group::region_state::RegionState;
use crate::operation::{LoggedRow, Operation, WriteEncoder, WriteHeader};
use crate::region::write;

/// A request of a session. The rows of a write that pass the checks are written as a log operation and read again.
pub const REQUEST: Format = Format {
    name: "request",
    damage: Damage::Undetected,
    read: |bytes| {
        let request: v1::Request = fuzzing::message(bytes)?;
        let written = fuzzing::bytes(&request);
        let (_, decoded) = decode::request(request);
        let decoded = decoded.map_err(|error| error.to_string()).ok()?;
        if let Body::Mutate(mutation) = decoded.body {
            let header = WriteHeader {
                region: RegionId(1),
                epoch: RegionEpoch(1),
                schema_version: 0,
                client: decoded.header.client,
                lowest_unsettled: decoded.header.lowest_unsettled,
                atomic: mutation.atomic,
                exact_schema: false,
                trace: None,
            };
            match write::check(&header, mutation.rows, &region()) {
                Ok(checked) => {
                    checked.errors.iter().for_each(|(_, error)| drop(error.to_string()));
                    checked.write.iter().for_each(is_read_from_the_log);
                }
                Err(error) => drop(error.to_string()),
            }
        }
        Some(written)
    },
    draw: |dice| {
        let request = draw_request(dice);
        let bytes = fuzzing::bytes(&request);
        let (_, decoded) = decode::request(request);
        if let Err(error) = decoded {
            panic!("a valid request is refused: {error}");
        }
        bytes
    },
    limits: no_limits,
};

/// Whatever passes the edge's checks is read again by every replica, also after a restart.
fn is_read_from_the_log(write: &Write) {
    const STAMP: i64 = 1_700_000_000_000;
    let mut out = Vec::new();
    let mut encoder = WriteEncoder::new(&mut out, &write.header, STAMP);
    for row in write.rows() {
        encoder.push(&LoggedRow {
            operation: row.operation,
            first_try_ms: row.first_try_ms,
            row: &row.row[..],
            cells: &row.cells.as_bytes()[..],
            result: None,
            untracked: false,
        });
    }
    encoder.finish();
    let Ok(Operation::Write(logged)) = Operation::decode(out.into()) else { panic!("an accepted write is not read") };
    assert_eq!((logged.header, logged.len()), (write.header, write.rows().len()));
    for (logged, row) in logged.zip(write.rows()) {
        let logged = logged.expect("a row of an accepted write is read");
        let cells = terrane_types::PackedCells::stored(logged.cells).expect("cells of an accepted write are read");
        assert!(logged.row == row.row && cells.as_bytes().len() == row.cells.as_bytes().len());
    }
}

fn region() -> RegionState {
    let mut schema = TableSchema::new(TableName::new("t").expect("a valid name"));
    for name in ["f", "g"] {
        let family = FamilySchema::new(FamilyName::new(name).expect("a valid name"));
        schema.add_family(family).expect("the names differ");
    }
    schema.key = Some("user:bytes2, item:tail".parse().expect("a valid declaration"));
    schema.atomic = 1;
    let descriptor = RegionDescriptor {
        region: RegionId(1),
        table: TableId(5),
        range: KeyRange::all(),
        epoch: RegionEpoch(1),
        group: GroupId(2),
        schema_version: 1,
    };
    RegionState { planned: descriptor.range.clone(), descriptor, schema: Arc::new(schema), moving: None }
}

fn draw_request(dice: &mut Dice) -> v1::Request {
    let header = v1::RequestHeader {
        format: 1,
        table: dice.number(),
        region: dice.number(),
        epoch: dice.number(),
        schema_version: dice.number(),
        deadline_ms: dice.number32(),
        consistency: dice.pick(&[0, 1, 2]),
        client_id: if dice.flag() { dice.array::<16>().to_vec().into() } else { Vec::new().into() },
        lowest_unsettled: dice.number(),
        exact_schema: dice.flag(),
        under_way: dice.one_in(4).then(|| v1::UnderWay { below: 100, ranges: vec![3, 7, 20, 20] }),
        ..Default::default()
    };
    let body = match dice.below(6) {
        0 | 1 => {
            let rows = dice.list(4, row_mutation);
            v1::request::Body::Mutate(v1::Mutate { rows, atomic: dice.flag() })
        }
        2 => {
            let rows = dice.list(6, |dice| draw::row(dice).into());
            let (projection, exists_only) = (projection(dice), dice.flag());
            v1::request::Body::Get(v1::Get { rows, projection, cells_as: dice.pick(&[0, 1]), exists_only })
        }
        3 => v1::request::Body::Scan(Box::new(scan(dice))),
        4 => {
            let position = |dice: &mut Dice| v1::PagePosition {
                bucket: dice.number32(),
                last: dice.bytes(40).into(),
                finished: dice.flag(),
            };
            let positions = dice.list(3, position);
            v1::request::Body::SealPage(Box::new(v1::SealPage { binding: Some(binding(dice)), positions }))
        }
        _ => {
            let token = dice.bytes(100).into();
            v1::request::Body::OpenPage(Box::new(v1::OpenPage { binding: Some(binding(dice)), token }))
        }
    };
    v1::Request { id: dice.number(), header: Some(header), body: Some(body) }
}

fn row_mutation(dice: &mut Dice) -> v1::RowMutation {
    let families = ["f", "g"].map(|name| FamilyName::new(name).expect("a valid name"));
    let packed = dice.flag();
    let message = |dice: &mut Dice| v1::Cell {
        family: dice.pick(&["f", "g", "unknown"]).to_owned(),
        qualifier: dice.bytes(30).into(),
        timestamp: draw::timestamp(dice),
        kind: 0,
        value: dice.bytes(60).into(),
    };
    v1::RowMutation {
        row: draw::row(dice).into(),
        cells: if packed { draw::cells(dice, &families, 3).into() } else { Vec::new().into() },
        operation: dice.number(),
        first_try_ms: dice.number(),
        messages: if packed { Vec::new() } else { dice.list(3, message) },
        condition: dice.one_in(3).then(|| fuzzing::condition(dice)),
        read_modify_writes: dice.list(1, fuzzing::read_modify_write),
        returns: dice.pick(&[0, 1, 2]),
        return_found: dice.flag(),
        delete_row: dice.one_in(4),
    }
}

fn projection(dice: &mut Dice) -> Option<v1::Projection> {
    let filter = dice.pick(&["", "row < 'k'", "i32(f:q) > 7 and page(3)", "keys_only(lengths)"]).to_owned();
    dice.flag().then(|| v1::Projection { filter, ..fuzzing::projection(dice) })
}

fn scan(dice: &mut Dice) -> v1::Scan {
    let range = draw::range(dice);
    let snapshot = dice.flag();
    v1::Scan {
        start: range.start,
        end: range.end,
        reverse: dice.flag(),
        limit: dice.number(),
        offset: dice.number(),
        projection: projection(dice),
        block_bytes: dice.number32(),
        cells_as: dice.pick(&[0, 1]),
        count_only: dice.flag(),
        snapshot,
        at_sequence: (snapshot && dice.flag()).then(|| dice.number()),
        fill_cache_never: dice.flag(),
        ..Default::default()
    }
}

fn binding(dice: &mut Dice) -> v1::PageBinding {
    v1::PageBinding {
        table: dice.number(),
        start: dice.bytes(20).into(),
        end: dice.bytes(20).into(),
        reverse: dice.flag(),
        filter: dice.text(20),
    }
}
