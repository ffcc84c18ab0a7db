//! What is drawn, as requests of Terrane's own client.

use terrane_client::{
    Column, Condition as ClientCondition, Delete, Get, KeyRange, Put, Returns, RowMutation, Scan, column,
};
use terrane_oracle::model::plain::{Answers, Change, Columns, Condition, Event, Kind, ReadModifyWrite, Selection};

/// The change as a client mutation, with its cells in the same order.
pub fn mutation_of(change: &Change) -> RowMutation {
    let row = &change.row;
    let mut mutation = RowMutation::new(row);
    for Event { family, qualifier, timestamp, kind, value } in &change.events {
        mutation = match (kind, timestamp) {
            (Kind::Put, None) => mutation.put(Put::new(row).set(family, qualifier, value)),
            (Kind::Put, Some(at)) => mutation.put(Put::new(row).set_at(family, qualifier, *at, value)),
            (Kind::Version, at) => {
                mutation.delete(Delete::new(row).version(family, qualifier, at.expect("always its own")))
            }
            (Kind::Column, None) => mutation.delete(Delete::new(row).column(family, qualifier)),
            (Kind::Column, Some(at)) => mutation.delete(Delete::new(row).column_until(family, qualifier, *at)),
            (Kind::Family, None) => mutation.delete(Delete::new(row).family(family)),
            (Kind::Family, Some(at)) => mutation.delete(Delete::new(row).family_until(family, *at)),
            (Kind::Newest, _) => unreachable!("it is drawn for HBase's clients only"),
            (Kind::FamilyVersion, at) => {
                mutation.delete(Delete::new(row).family_version(family, at.expect("always its own")))
            }
        };
    }
    for (family, qualifier, rmw) in &change.read_modify_writes {
        mutation = match rmw {
            ReadModifyWrite::Increment(by) => mutation.increment(family, qualifier, *by),
            ReadModifyWrite::Append(value) => mutation.append(family, qualifier, value),
        };
    }
    if let Some(condition) = &change.condition {
        mutation = mutation.when(condition_of(condition));
    }
    if change.return_found {
        mutation = mutation.return_found();
    }
    mutation.returning(match change.answers {
        Answers::Nothing => Returns::Nothing,
        Answers::Old => Returns::Old,
        Answers::New => Returns::New,
    })
}

fn condition_of(condition: &Condition) -> ClientCondition {
    let of = |family: &str, qualifier: &str| -> Column { column(family, qualifier) };
    match condition {
        Condition::Absent(family, qualifier) => of(family, qualifier).is_absent(),
        Condition::Exists(family, qualifier) => of(family, qualifier).exists(),
        Condition::Equals(family, qualifier, value) => of(family, qualifier).equals(value),
        Condition::Differs(family, qualifier, value) => of(family, qualifier).not_equals(value),
        Condition::Above(family, qualifier, least) => of(family, qualifier).as_i64().greater_than(*least),
        Condition::Version(family, qualifier, at) => of(family, qualifier).version_is(*at),
        Condition::And(one, other) => condition_of(one).and(condition_of(other)),
        Condition::Or(one, other) => condition_of(one).or(condition_of(other)),
    }
}

/// Gets and scans have the same selections.
macro_rules! selected {
    ($read:expr, $selection:expr) => {{
        let (mut read, selection) = ($read.versions(u32::try_from($selection.versions).expect("few")), $selection);
        for columns in &selection.columns {
            read = match *columns {
                Columns::Family(family) => read.family(family),
                Columns::One(family, qualifier) => read.column(family, qualifier),
                Columns::Prefix(family, prefix) => read.column_prefix(family, prefix),
            };
        }
        if let Some((least, below)) = selection.times {
            read = read.time_range(least, below);
        }
        if let Some((offset, limit)) = selection.cells {
            read = read.cells(u32::try_from(offset).expect("few"), u32::try_from(limit).expect("few"));
        }
        if selection.keys_only {
            read = read.keys_only();
        }
        if let Some(filter) = &selection.filter {
            read = read.filter(filter.to_string());
        }
        read
    }};
}

pub fn get_of(row: &[u8], selection: &Selection) -> Get {
    selected!(Get::new(row), selection)
}

pub fn scan_of(selection: &Selection, from: &[u8], to: &[u8]) -> Scan {
    let range = KeyRange::new(from.to_vec(), to.to_vec()).expect("drawn in order");
    selected!(Scan::range(range), selection)
}
