//! The fake's writes: conditions, increments, appends and returns over the one version it keeps, and records of operations that it
//! never drops.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use terrane_proto::{error, mutation, v1};
use terrane_types::{
    CellKind, CellRef, Condition, Error, FamilyName, PackedCells, ReadModifyWrite, RegionDescriptor, Returns,
    RowOutcome, cell,
};

use super::{Row, World};

/// The records of operations.
#[derive(Default)]
pub struct Window {
    /// The outcome by client id and number.
    done: BTreeMap<(Bytes, u64), RowOutcome>,
    /// The lowest unsettled number that each client has reported.
    pub settled: BTreeMap<Bytes, u64>,
    /// The client ids that have written.
    pub clients: BTreeSet<Bytes>,
    /// Operations in the order of arrival: number, time of the first try, row.
    pub seen: Vec<(u64, u64, Bytes)>,
    /// Operations of unknown clients that were first tried at this time or before are refused.
    pub floor_ms: u64,
    /// Retries get the answer that their results are gone.
    pub forget_results: bool,
}

pub fn apply(
    world: &mut World,
    region: &RegionDescriptor,
    header: &v1::RequestHeader,
    mutate: v1::Mutate,
) -> v1::MutateReply {
    let mut reply = v1::MutateReply { stamp: 1, ..v1::MutateReply::default() };
    let client = header.client_id.clone();
    let settled = world.window.settled.entry(client.clone()).or_default();
    *settled = header.lowest_unsettled.max(*settled);
    if mutate.atomic {
        return apply_atomic(world, &client, mutate.rows, reply);
    }
    for (index, row) in mutate.rows.into_iter().enumerate() {
        let index = index as u32;
        let done = if region.range.contains(&row.row) {
            once(world, &client, &row)
        } else {
            Err(Error::StaleEpoch { region: region.region, current: world.regions.clone() })
        };
        match done {
            Ok(outcome) if tells(&row) => reply.results.push(mutation::row_result(index, outcome, false)),
            Ok(_) => {}
            Err(refused) => {
                reply.errors.push(v1::RowError { row: index, error: Some(error::detail(&refused)), decided: true })
            }
        }
    }
    reply
}

fn tells(row: &v1::RowMutation) -> bool {
    row.condition.is_some() || row.returns != 0
}

/// Tries all rows on a copy first.
fn apply_atomic(
    world: &mut World,
    client: &Bytes,
    rows: Vec<v1::RowMutation>,
    mut reply: v1::MutateReply,
) -> v1::MutateReply {
    let held = |world: &World, row: &v1::RowMutation| match &row.condition {
        Some(condition) => holds(world, row, condition),
        None => Ok(true),
    };
    let again = rows.iter().all(|row| world.window.done.contains_key(&(client.clone(), row.operation)));
    let fails = !again && rows.iter().any(|row| !matches!(held(world, row), Ok(true)));
    for (index, row) in rows.iter().enumerate() {
        let index = index as u32;
        let outcome = if fails {
            Ok(RowOutcome { condition_failed: true, ..RowOutcome::default() })
        } else {
            once(world, client, row)
        };
        match outcome {
            Ok(outcome) => reply.results.push(mutation::row_result(index, outcome, false)),
            Err(refused) => {
                reply.errors.push(v1::RowError { row: index, error: Some(error::detail(&refused)), decided: true })
            }
        }
    }
    reply
}

/// Applies a row's mutation, unless it was applied before.
fn once(world: &mut World, client: &Bytes, row: &v1::RowMutation) -> Result<RowOutcome, Error> {
    assert_ne!(row.operation, 0, "every operation has a number");
    let key = (client.clone(), row.operation);
    world.window.seen.push((row.operation, row.first_try_ms, row.row.clone()));
    if let Some(outcome) = world.window.done.get(&key) {
        return if world.window.forget_results { Err(Error::AlreadyApplied) } else { Ok(outcome.clone()) };
    }
    let forgotten = !world.window.clients.contains(client) && row.first_try_ms <= world.window.floor_ms;
    if forgotten || row.operation < world.window.settled[client] {
        return Err(Error::Uncertain { not_tried: true });
    }
    let outcome = evaluate(world, row)?;
    world.window.clients.insert(client.clone());
    world.window.done.insert(key, outcome.clone());
    Ok(outcome)
}

fn holds(world: &World, row: &v1::RowMutation, condition: &v1::Condition) -> Result<bool, Error> {
    let condition = Condition::try_from(condition.clone())?;
    let held = world.rows.get(&row.row);
    let newest = |family: &FamilyName, qualifier: &[u8]| {
        let (timestamp, value) =
            held?.get(&(Bytes::copy_from_slice(family.as_bytes()), Bytes::copy_from_slice(qualifier)))?;
        Some((*timestamp, &value[..]))
    };
    Ok(condition.holds(&newest)?)
}

fn evaluate(world: &mut World, row: &v1::RowMutation) -> Result<RowOutcome, Error> {
    if row.row.starts_with(b"poison") {
        return Err(Error::ReadOnly { what: "the poisoned row".to_owned() });
    }
    let before = world.rows.get(&row.row).cloned().unwrap_or_default();
    if let Some(condition) = &row.condition
        && !holds(world, row, condition)?
    {
        let cells = if row.return_found { super::data::packed(&before) } else { Vec::new() };
        let cells = PackedCells::validate(cells.into())?;
        return Ok(RowOutcome { condition_failed: true, cells, stamp: 1 });
    }
    let stamp = 1_000 + world.applied as i64 + 1;
    let mut cells = row.cells.to_vec();
    for rmw in row.read_modify_writes.clone() {
        let rmw = ReadModifyWrite::try_from(rmw)?;
        let family = Bytes::copy_from_slice(rmw.family.as_bytes());
        let value = rmw.apply(before.get(&(family.clone(), rmw.qualifier.clone())).map(|(_, value)| &value[..]))?;
        let value = value.ok_or_else(|| {
            Error::Invalid(terrane_types::Invalid { what: "the fake server deletes no newest versions".to_owned() })
        })?;
        cell::pack(&mut cells, CellRef::put(&family, &rmw.qualifier, stamp, &value));
    }
    world.applied += 1;
    let cells = PackedCells::validate(cells.into()).expect("the client packs well-formed cells");
    let mut after = if row.delete_row { Row::new() } else { before.clone() };
    write(&mut after, &cells, stamp);
    let named = |from: &Row| {
        let mut shown = Row::new();
        for cell in &cells {
            let column = (Bytes::copy_from_slice(cell.family), Bytes::copy_from_slice(cell.qualifier));
            if let Some(found) = from.get(&column) {
                shown.insert(column, found.clone());
            }
        }
        if row.delete_row {
            shown.clone_from(from);
        }
        PackedCells::validate(super::data::packed(&shown).into()).expect("packed here")
    };
    let returned = match mutation::returns(row.returns)? {
        Returns::Nothing => PackedCells::default(),
        Returns::Old => named(&before),
        Returns::New => named(&after),
    };
    if after.is_empty() {
        world.rows.remove(&row.row);
    } else {
        world.rows.insert(row.row.clone(), after);
    }
    world.log.push(row.row.clone());
    Ok(RowOutcome { condition_failed: false, cells: returned, stamp: stamp as u64 })
}

fn write(row: &mut Row, cells: &PackedCells, stamp: i64) {
    for cell in cells {
        let (family, qualifier) = (Bytes::copy_from_slice(cell.family), Bytes::copy_from_slice(cell.qualifier));
        let timestamp = if cell.timestamp == terrane_types::LATEST { stamp } else { cell.timestamp };
        match cell.kind {
            CellKind::Put => {
                row.insert((family, qualifier), (timestamp, Bytes::copy_from_slice(cell.value)));
            }
            CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => row.retain(|(name, _), _| *name != family),
            CellKind::Delete | CellKind::DeleteColumn => {
                row.remove(&(family, qualifier));
            }
        }
    }
}
