//! Entry points of the fuzz driver: messages, and what they are converted to.
//!
//! Only built with the feature `fuzzing`.

use bytes::Bytes;
use prost::Message;
use terrane_types::fuzzing::{Damage, Dice, Format, draw, no_limits, round_trip};
use terrane_types::{Condition, Error, FamilyName, PackedRows, RegionDescriptor, TableSchema};

use crate::{convert, error, mutation, v1};

/// The formats of this crate.
pub const FORMATS: &[Format] = &[SCHEMA, REGION, CONDITION, PROJECTION, REPLY, ERROR, SESSION];

/// A message of these bytes.
pub fn message<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(Bytes::copy_from_slice(bytes)).map_err(|error| error.to_string()).ok()
}

/// The bytes of a message.
pub fn bytes(message: &impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

/// A table's schema. What passes the check at the edge is read from logs and checkpoints, and can be created again from
/// its attributes, but for those of another protocol, which tools do not show.
const SCHEMA: Format = Format {
    name: "wire-schema",
    damage: Damage::Undetected,
    read: |from| {
        let wire: v1::TableSchema = message(from)?;
        let schema = TableSchema::try_from(wire).map_err(|error| error.to_string()).ok()?;
        if schema.check().map_err(|error| error.to_string()).is_ok() {
            let mut schema = schema.clone();
            schema.families.sort_by(|one, other| one.name.cmp(&other.name));
            round_trip(&schema, schema.encode(), TableSchema::decode);
            assert_eq!(created_again(&schema), schema, "a schema created from its attributes is another one");
        }
        Some(schema_bytes(&with_one_entry(schema)))
    },
    draw: |dice| {
        let schema = with_one_entry(draw::schema(dice));
        round_trip(&schema, schema_bytes(&schema), |from| {
            TableSchema::try_from(message::<v1::TableSchema>(from).ok_or("no message".to_owned())?)
                .map_err(|error| error.to_string())
        })
    },
    limits: no_limits,
};

/// The schema with at most one entry of metadata in each map: maps have no order on the wire, so that the same schema
/// could be written as different bytes.
fn with_one_entry(mut schema: TableSchema) -> TableSchema {
    let maps = schema.families.iter_mut().map(|family| &mut family.metadata).chain([&mut schema.metadata]);
    for map in maps {
        while map.len() > 1 {
            map.pop_last();
        }
    }
    schema
}

fn schema_bytes(schema: &TableSchema) -> Vec<u8> {
    bytes(&v1::TableSchema::from(schema))
}

/// The schema from its attributes, as `table create` would build it from what `describe` shows.
fn created_again(schema: &TableSchema) -> TableSchema {
    let mut again = TableSchema::new(schema.name.clone());
    (again.table, again.version) = (schema.table, schema.version);
    again.foreign = schema.foreign.clone();
    for (name, value) in schema.attributes() {
        again.set_attribute(&name, &value).unwrap_or_else(|error| panic!("a described attribute is refused: {error}"));
    }
    for family in &schema.families {
        let mut new = terrane_types::FamilySchema::new(family.name.clone());
        new.foreign = family.foreign.clone();
        for (name, value) in family.attributes() {
            new.set_attribute(&name, &value)
                .unwrap_or_else(|error| panic!("a described attribute is refused: {error}"));
        }
        again.add_family(new).expect("the names differ");
    }
    again
}

/// A region's descriptor.
const REGION: Format = Format {
    name: "wire-region",
    damage: Damage::Undetected,
    read: |from| {
        let region = RegionDescriptor::try_from(message::<v1::RegionDescriptor>(from)?);
        let region = region.map_err(|error| error.to_string()).ok()?;
        round_trip(&region, region.encode(), RegionDescriptor::decode);
        Some(bytes(&v1::RegionDescriptor::from(&region)))
    },
    draw: |dice| {
        let region = draw::descriptor(dice);
        round_trip(&region, bytes(&v1::RegionDescriptor::from(&region)), |from| {
            RegionDescriptor::try_from(message::<v1::RegionDescriptor>(from).expect("a message that was written"))
        })
    },
    limits: no_limits,
};

/// A condition.
const CONDITION: Format = Format {
    name: "wire-condition",
    damage: Damage::Undetected,
    read: |from| {
        let condition = Condition::try_from(message::<v1::Condition>(from)?).map_err(|error| error.to_string()).ok()?;
        Some(bytes(&v1::Condition::from(&condition)))
    },
    draw: |dice| {
        let condition = Condition::try_from(condition(dice)).expect("drawn conditions are valid");
        round_trip(&condition, bytes(&v1::Condition::from(&condition)), |from| {
            Condition::try_from(message::<v1::Condition>(from).expect("a message that was written"))
        })
    },
    limits: no_limits,
};

/// A projection with the text of its filter.
const PROJECTION: Format = Format {
    name: "wire-projection",
    damage: Damage::Undetected,
    read: |from| {
        let wire: v1::Projection = message(from)?;
        let (projection, filter) = crate::projection::projection(wire).map_err(|error| error.to_string()).ok()?;
        Some(bytes(&v1::Projection { filter, ..v1::Projection::from(&projection) }))
    },
    draw: |dice| {
        let wire = v1::Projection { filter: dice.text(30), ..projection(dice) };
        let read = crate::projection::projection(wire).expect("drawn projections are valid");
        let again = v1::Projection { filter: read.1.clone(), ..v1::Projection::from(&read.0) };
        round_trip(&read, bytes(&again), |from| {
            crate::projection::projection(message(from).expect("a message that was written"))
        })
    },
    limits: no_limits,
};

/// Replies as a client reads them: rows, outcomes, errors.
const REPLY: Format = Format {
    name: "wire-reply",
    damage: Damage::Undetected,
    read: |from| {
        let reply: v1::Reply = message(from)?;
        let written = bytes(&reply);
        read_reply(reply)?;
        Some(written)
    },
    draw: |dice| {
        let reply = draw_reply(dice);
        let written = bytes(&reply);
        read_reply(reply).expect("a reply that was written is read");
        written
    },
    limits: no_limits,
};

/// An error.
const ERROR: Format = Format {
    name: "wire-error",
    damage: Damage::Undetected,
    read: |from| {
        let read = error::from_detail(message(from)?);
        drop(read.to_string());
        Some(bytes(&error::detail(&read)))
    },
    draw: |dice| {
        let drawn = draw_error(dice);
        let written = bytes(&error::detail(&drawn));
        let back = error::from_detail(message(&written).expect("a message that was written"));
        assert_eq!(back, drawn, "an error crosses the wire as another one");
        written
    },
    limits: no_limits,
};

/// The messages of a session.
const SESSION: Format = Format {
    name: "wire-session",
    damage: Damage::Undetected,
    read: |from| message::<v1::SessionRequest>(from).map(|request| bytes(&request)),
    draw: |dice| {
        let request = |dice: &mut Dice| {
            let rows = dice.list(3, |dice| draw::row(dice).into());
            let body =
                v1::request::Body::Get(v1::Get { rows, projection: Some(projection(dice)), ..Default::default() });
            v1::Request { id: dice.number(), header: Some(v1::RequestHeader::default()), body: Some(body) }
        };
        let requests = dice.list(4, request);
        let batch = v1::session_request::Body::Batch(v1::RequestBatch { requests });
        bytes(&v1::SessionRequest { body: Some(batch) })
    },
    limits: no_limits,
};

fn read_reply(reply: v1::Reply) -> Option<()> {
    match reply.body? {
        v1::reply::Body::Mutate(reply) => {
            for error in reply.errors.into_iter().filter_map(|row| row.error) {
                drop(error::from_detail(error).to_string());
            }
            reply.results.into_iter().try_for_each(|result| mutation::row_outcome(result).map(drop)).ok()
        }
        v1::reply::Body::Get(reply) => PackedRows::new(reply.rows).try_for_each(|row| row.map(drop)).ok(),
        v1::reply::Body::Scan(block) => {
            convert::row_messages(block.rows.clone()).ok()?;
            if let Some(region) = block.region {
                RegionDescriptor::try_from(region).ok()?;
            }
            Some(())
        }
        v1::reply::Body::Error(detail) => {
            drop(error::from_detail(*detail).to_string());
            Some(())
        }
        v1::reply::Body::SealPage(_)
        | v1::reply::Body::OpenPage(_)
        | v1::reply::Body::BulkPart(_)
        | v1::reply::Body::BulkCommit(_) => Some(()),
    }
}

fn draw_reply(dice: &mut Dice) -> v1::Reply {
    let family = FamilyName::new("f").expect("a valid name");
    let mut rows = Vec::new();
    for _ in 0..dice.below(4) {
        let (row, cells) = (draw::row(dice), draw::cells(dice, std::slice::from_ref(&family), 3));
        terrane_types::pack_row(&mut rows, &row, &cells);
    }
    let cells = Bytes::from(draw::cells(dice, &[family], 3));
    let body = match dice.below(4) {
        0 => {
            let result = v1::RowResult { row: dice.number32(), cells, stamp: dice.number(), ..Default::default() };
            let error = Some(error::detail(&draw_error(dice)));
            let errors = vec![v1::RowError { row: dice.number32(), error, decided: dice.flag() }];
            v1::reply::Body::Mutate(v1::MutateReply { errors, stamp: dice.number(), results: vec![result] })
        }
        1 => v1::reply::Body::Get(v1::GetReply { rows: rows.into(), as_of_ms: dice.number(), ..Default::default() }),
        2 => {
            let region = Some(v1::RegionDescriptor::from(&draw::descriptor(dice)));
            let block = v1::ScanBlock { rows: rows.into(), region, done: dice.flag(), ..Default::default() };
            v1::reply::Body::Scan(Box::new(block))
        }
        _ => v1::reply::Body::Error(Box::new(error::detail(&draw_error(dice)))),
    };
    v1::Reply { id: dice.number(), body: Some(body), schema_version: dice.number() }
}

fn draw_error(dice: &mut Dice) -> Error {
    let retry_after = std::time::Duration::from_millis(1 + dice.number() % 100_000);
    match dice.below(12) {
        0 => {
            let region = terrane_types::RegionId(dice.number());
            Error::StaleEpoch { region, current: dice.list(3, draw::descriptor) }
        }
        1 => Error::Busy { retry_after },
        2 => Error::LogFull { held_by: dice.text(30), retry_after },
        3 => Error::Uncertain { not_tried: dice.flag() },
        4 => Error::Corruption { file: dice.text(30), offset: dice.number() },
        5 => Error::Invalid(terrane_types::Invalid::new(dice.text(30))),
        6 => Error::SchemaChanged { table: terrane_types::TableId(dice.number()), version: dice.number() },
        7 => Error::DeadlineExceeded,
        8 => Error::Internal { message: dice.text(30) },
        9 => Error::Unavailable { message: dice.text(30), retry_after },
        10 => Error::InProgress { message: dice.text(30), retry_after },
        _ => Error::NotFound { what: dice.text(30) },
    }
}

/// A condition that passes its check.
pub fn condition(dice: &mut Dice) -> v1::Condition {
    nested_condition(dice, 3)
}

fn nested_condition(dice: &mut Dice, depth: usize) -> v1::Condition {
    let kind = match dice.below(if depth == 0 { 1 } else { 3 }) {
        0 => v1::condition::Kind::Column(column_test(dice)),
        1 => v1::condition::Kind::All(v1::Conditions { of: dice.list(3, |dice| nested_condition(dice, depth - 1)) }),
        _ => v1::condition::Kind::Any(v1::Conditions { of: dice.list(3, |dice| nested_condition(dice, depth - 1)) }),
    };
    v1::Condition { kind: Some(kind) }
}

fn column_test(dice: &mut Dice) -> v1::ColumnTest {
    let comparison = dice.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let (read_as, width) = dice.pick(&[("", None), ("bytes", None), ("i64", Some(8)), ("u32", Some(4))]);
    let value = |dice: &mut Dice| -> Bytes {
        match width {
            Some(width) => dice.array::<8>()[..width].to_vec().into(),
            None => dice.bytes(30).into(),
        }
    };
    let values = match comparison {
        0..=5 => vec![value(dice)],
        8 => dice.list(3, value),
        _ => Vec::new(),
    };
    v1::ColumnTest {
        family: dice.pick(&["f", "g"]).to_owned(),
        qualifier: dice.bytes(20).into(),
        comparison,
        values,
        read_as: read_as.to_owned(),
        timestamp: (dice.number() >> 1).cast_signed(),
    }
}

/// An increment or an append that passes its check.
pub fn read_modify_write(dice: &mut Dice) -> v1::ReadModifyWrite {
    let what = match dice.flag() {
        true => v1::read_modify_write::What::Increment(dice.signed()),
        false => v1::read_modify_write::What::Append(dice.bytes(30).into()),
    };
    v1::ReadModifyWrite { family: "f".to_owned(), qualifier: dice.bytes(20).into(), what: Some(what) }
}

/// A projection that passes its check, without a filter.
pub fn projection(dice: &mut Dice) -> v1::Projection {
    let range = |dice: &mut Dice| {
        let range = draw::range(dice);
        v1::QualifierRange { start: range.start, end: range.end }
    };
    let mut names = dice.list(3, |dice| draw::family(dice).as_str().to_owned());
    names.sort_unstable();
    names.dedup();
    let family = |family: String| {
        let (qualifiers, ranges) = (dice.list(3, |dice| dice.bytes(20).into()), dice.list(2, range));
        v1::FamilyColumns { family, qualifiers, ranges }
    };
    let families = names.into_iter().map(family).collect();
    v1::Projection {
        families,
        versions: dice.pick(&[0, 1, 3]),
        time_min: dice.pick(&[0, 1, 1000]),
        time_max: dice.pick(&[0, 2000, i64::MAX]),
        cell_offset: dice.number32(),
        cell_limit: dice.number32(),
        keys_only: dice.flag(),
        first_cell_only: dice.flag(),
        filter: String::new(),
    }
}
