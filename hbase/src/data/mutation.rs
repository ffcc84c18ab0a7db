//! A mutation of one row as the data path takes it: cells from messages or from the cell block, increments, appends and
//! deletes.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_regionserver::edge::{Extras, ReceivedRow, RowRequest};
use terrane_types::cell::{CellKind, CellRef, LATEST, TTL_TAG, pack, ttl_tag};
use terrane_types::{FamilyName, ReadModifyWrite, ReadModifyWriteKind, Returns};

use super::nonces::Nonces;
use super::reading::{refuse, refuse_attributes};
use super::region::Region;
use super::write_order::pack_together;
use crate::cell_block::{BlockReader, KeyValue};
use crate::exception::Exception;
use crate::proto::mutation_proto::{DeleteType, MutationType};
use crate::proto::{self, MutationProto};
use crate::tables::deletes_by_timestamp;
use crate::time_range::{bounds, is_limited};

/// A mutation, ready to be sent.
pub(super) struct Prepared {
    pub row: ReceivedRow,
    /// It depends on the families that the table has now.
    pub exact: bool,
    /// Whether it may be tried again: applying it twice is the same as once, or its nonce is recorded.
    pub repeatable: bool,
    /// It reads more of its row than newest versions, so that no other change of the row goes into its request.
    pub alone: bool,
    /// The columns to read for the caller, if it turns out to have been applied before.
    pub read_back: Vec<(FamilyName, Bytes)>,
}

/// One cell of a mutation, wherever it came from.
#[derive(Clone, Copy)]
struct Change<'a> {
    family: &'a [u8],
    qualifier: &'a [u8],
    timestamp: i64,
    kind: CellKind,
    value: &'a [u8],
    /// The time to live in its tags.
    ttl_ms: Option<u64>,
}

/// The cells of a mutation. What it has in the cell block is taken even if the mutation is refused, so that the next one finds
/// its own.
pub(super) fn take_cells<'a>(
    mutation: &MutationProto,
    block: Option<&mut BlockReader<'a>>,
) -> Result<Vec<KeyValue<'a>>, Exception> {
    let count = mutation.associated_cell_count.unwrap_or(0);
    let count =
        usize::try_from(count).map_err(|_| Exception::bad_request(&format!("the mutation announces {count} cells")))?;
    match block {
        Some(block) => block.take(count).map_err(|malformed| Exception::bad_request(&malformed.what)),
        None if count == 0 => Ok(Vec::new()),
        None => Err(Exception::bad_request("the mutation announces cells on a connection without a codec")),
    }
}

/// Whether any cell of a mutation has a timestamp.
pub(super) fn gives_times(mutation: &MutationProto, cells: &[KeyValue<'_>]) -> bool {
    let is_given = |time: u64| time.cast_signed() != LATEST;
    let mut values = mutation.column_value.iter().flat_map(|column| &column.qualifier_value);
    cells.iter().any(|KeyValue { cell, .. }| cell.timestamp != LATEST)
        || mutation.timestamp.is_some_and(is_given)
        || values.any(|value| value.timestamp.is_some_and(is_given))
}

/// The row that a mutation is about.
pub(super) fn row_of<'a>(mutation: &'a MutationProto, cells: &[KeyValue<'a>]) -> Result<&'a [u8], Exception> {
    let of_cell = || cells.first().map(|cell| cell.row);
    let row = mutation.row.as_deref().or_else(of_cell);
    row.ok_or_else(|| Exception::bad_request("the mutation names no row"))
}

/// A mutation, checked against its region, in addition to what `request` asks of its row.
pub(super) fn prepare(
    region: &Region,
    mutation: &MutationProto,
    cells: &[KeyValue<'_>],
    request: RowRequest,
    nonces: Nonces,
) -> Result<Prepared, Exception> {
    refuse_attributes(&mutation.attribute)?;
    let kind = mutation.mutate_type();
    let row = match &mutation.row {
        Some(row) => row.clone(),
        None => Bytes::copy_from_slice(row_of(mutation, cells)?),
    };
    if let Some(other) = cells.iter().find(|cell| cell.row != row) {
        let other = terrane_types::escape(other.row);
        return Err(Exception::bad_request(&format!("a mutation of one row has a cell of row {other}")));
    }
    region.check_row(&row)?;
    let mut changes = changes(mutation, cells)?;
    if let Some(ttl_ms) = ttl_of(&mutation.attribute)? {
        refuse(kind == MutationType::Delete, "times to live of deletes")?;
        // As in HBase, it counts and not that in the tags of a cell.
        changes.iter_mut().for_each(|change| change.ttl_ms = Some(ttl_ms));
    }
    for change in &changes {
        region.check_family(change.family)?;
    }
    let is_conditional = request.condition.is_some() || request.extras.condition.is_some();
    let mut prepared = match kind {
        MutationType::Put => put(region, row, &changes, request)?,
        MutationType::Delete if changes.is_empty() => delete_row(region, row, mutation, request),
        MutationType::Delete => delete(region, row, &changes, request)?,
        MutationType::Increment | MutationType::Append => merge(row, changes, mutation, request)?,
    };
    if !prepared.repeatable || is_conditional {
        prepared.row.operation = nonces.number(mutation.nonce);
        prepared.repeatable = prepared.row.operation != 0;
    }
    Ok(prepared)
}

fn changes<'a>(mutation: &'a MutationProto, cells: &[KeyValue<'a>]) -> Result<Vec<Change<'a>>, Exception> {
    let of_block = cells.iter().map(|KeyValue { cell, .. }| {
        Ok(Change {
            ttl_ms: ttl_of_tags(cell.tags)?.filter(|_| cell.kind == CellKind::Put),
            family: cell.family,
            qualifier: cell.qualifier,
            timestamp: cell.timestamp,
            kind: cell.kind,
            value: cell.value,
        })
    });
    let default = mutation.timestamp;
    let is_delete = mutation.mutate_type() == MutationType::Delete;
    let of_message = mutation.column_value.iter().flat_map(|column| {
        column.qualifier_value.iter().map(move |value| {
            let ttl_ms = ttl_of_tags(value.tags.as_deref().unwrap_or_default())?;
            let timestamp = value.timestamp.or(default).map_or(LATEST, u64::cast_signed);
            // Puts may have deletes among them.
            let deletes = is_delete || value.delete_type.is_some();
            let kind = match deletes.then(|| value.delete_type()) {
                None => CellKind::Put,
                Some(DeleteType::DeleteOneVersion) => CellKind::Delete,
                Some(DeleteType::DeleteMultipleVersions) => CellKind::DeleteColumn,
                Some(DeleteType::DeleteFamily) => CellKind::DeleteFamily,
                Some(DeleteType::DeleteFamilyVersion) => CellKind::DeleteFamilyVersion,
            };
            Ok(Change {
                family: &column.family,
                qualifier: value.qualifier.as_deref().unwrap_or_default(),
                timestamp,
                kind,
                value: value.value.as_deref().unwrap_or_default(),
                ttl_ms: ttl_ms.filter(|_| kind == CellKind::Put),
            })
        })
    });
    of_block.chain(of_message).collect()
}

/// The time to live of a mutation, an attribute of 8 bytes. One in the past is none at all.
fn ttl_of(attributes: &[proto::NameBytesPair]) -> Result<Option<u64>, Exception> {
    let Some(attribute) = attributes.iter().find(|attribute| attribute.name == "_ttl") else { return Ok(None) };
    let malformed = || Exception::bad_request("a time to live has 8 bytes, a big-endian number of milliseconds");
    let ttl = attribute.value.as_deref().unwrap_or_default().try_into().map_err(|_| malformed())?;
    match i64::from_be_bytes(ttl) {
        // What the client's method means by "none".
        i64::MAX => Ok(None),
        ttl => Ok(Some(u64::try_from(ttl).unwrap_or(0))),
    }
}

/// The time to live among a cell's tags, each `length u16 | type u8 | bytes`, big-endian. Tags about who may see a cell are
/// refused; HBase keeps others for itself and never returns them, so they are left out.
fn ttl_of_tags(mut tags: &[u8]) -> Result<Option<u64>, Exception> {
    const ACL: u8 = 1;
    const VISIBILITY: [u8; 3] = [2, 4, 6];
    let malformed = || Exception::bad_request("the tags of a cell are malformed");
    let mut ttl_ms = None;
    while let Some((length, rest)) = tags.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (tag, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
        let (kind, value) = tag.split_first().ok_or_else(malformed)?;
        refuse(*kind == ACL || VISIBILITY.contains(kind), "cells with visibility labels or ACLs")?;
        if *kind == TTL_TAG && ttl_ms.is_none() {
            let ttl = i64::from_be_bytes(value.try_into().map_err(|_| malformed())?);
            ttl_ms = Some(u64::try_from(ttl).unwrap_or(0));
        }
        tags = rest;
    }
    if tags.is_empty() { Ok(ttl_ms) } else { Err(malformed()) }
}

/// Puts, and deletes that came as cells among them. A single version is deleted by its timestamp only: which one is the newest,
/// HBase finds out for deletes and not for puts.
fn put(region: &Region, row: Bytes, changes: &[Change<'_>], mut request: RowRequest) -> Result<Prepared, Exception> {
    let names_none = |change: &Change<'_>| change.kind == CellKind::Delete && change.timestamp == LATEST;
    refuse(changes.iter().any(names_none), "deletes of newest versions among puts")?;
    request.extras.by_timestamp = judged_by_timestamp(region, changes)?;
    plain(region, row, changes, request, |_| true)
}

/// The families in which puts whose timestamps the client gave are judged by these. Other puts have none to be judged by, and
/// cost no read.
fn judged_by_timestamp(region: &Region, changes: &[Change<'_>]) -> Result<Vec<FamilyName>, Exception> {
    let is_given = |change: &&Change<'_>| change.kind == CellKind::Put && change.timestamp != LATEST;
    let mut families: Vec<&[u8]> = changes.iter().filter(is_given).map(|change| change.family).collect();
    families.sort_unstable();
    families.dedup();
    families.retain(|name| region.schema.family(name).is_some_and(deletes_by_timestamp));
    families.into_iter().map(family_name).collect()
}

/// A row whose cells are packed as they are.
fn plain<'a>(
    region: &Region,
    row: Bytes,
    changes: &[Change<'a>],
    request: RowRequest,
    allowed: impl Fn(CellKind) -> bool,
) -> Result<Prepared, Exception> {
    if changes.is_empty() {
        return Err(Exception::bad_request("the mutation has no cells"));
    }
    let tags: Vec<_> = changes.iter().map(|change| change.ttl_ms.map(ttl_tag)).collect();
    let cells = changes.iter().zip(&tags).map(|(change, tag)| CellRef {
        family: change.family,
        qualifier: change.qualifier,
        timestamp: change.timestamp,
        kind: change.kind,
        tags: tag.as_ref().map_or(&[], |tag| tag),
        value: change.value,
    });
    for cell in cells.clone() {
        if !allowed(cell.kind) {
            return Err(Exception::bad_request(&format!("the mutation has a cell of another kind: {:?}", cell.kind)));
        }
        // Packing needs lengths within the limits.
        cell.check().map_err(|refused| Exception::bad_request(&refused.what))?;
    }
    let packed = pack_together(cells, &region.schema);
    // A stamp that the leader fills in makes a second application another version.
    Ok(prepared(received(row, packed, request, false), true))
}

/// Deletes, of which those of one version without a timestamp mean the newest one, whatever its timestamp.
fn delete(region: &Region, row: Bytes, changes: &[Change<'_>], request: RowRequest) -> Result<Prepared, Exception> {
    let is_newest = |change: &&Change<'_>| change.kind == CellKind::Delete && change.timestamp == LATEST;
    let newest: Vec<_> = changes.iter().filter(is_newest).collect();
    if newest.is_empty() {
        return plain(region, row, changes, request, CellKind::is_delete);
    }
    if terrane_env::planted!("a delete of the newest version takes all versions") {
        let kind = |change: &Change<'_>| if is_newest(&change) { CellKind::DeleteColumn } else { change.kind };
        let changes: Vec<_> = changes.iter().map(|change| Change { kind: kind(change), ..*change }).collect();
        return plain(region, row, &changes, request, CellKind::is_delete);
    }
    let (mut read_modify_writes, mut turns) = (Vec::with_capacity(newest.len()), Vec::with_capacity(newest.len()));
    let mut named: BTreeMap<(&[u8], &[u8]), u32> = BTreeMap::new();
    for change in newest {
        let next = named.entry((change.family, change.qualifier)).or_default();
        turns.push(*next);
        *next += 1;
        let (family, qualifier) = (family_name(change.family)?, Bytes::copy_from_slice(change.qualifier));
        read_modify_writes.push(ReadModifyWrite { family, qualifier, what: ReadModifyWriteKind::DeleteNewest });
    }
    let others: Vec<_> = changes.iter().filter(|change| !is_newest(change)).copied().collect();
    let mut prepared = if others.is_empty() {
        prepared(received(row, Vec::new(), RowRequest::default(), false), false)
    } else {
        plain(region, row, &others, RowRequest::default(), CellKind::is_delete)?
    };
    let mut extras = request.extras;
    // Each of them sees the row as it was before, so other deletes may name the same columns.
    extras.places = Some(vec![usize::MAX; read_modify_writes.len()]);
    extras.turns = turns;
    prepared.alone = reads_whole(&extras);
    prepared.row.request = Ok(RowRequest { read_modify_writes, extras, ..request }.boxed());
    // Applied again, it would delete the version before.
    prepared.repeatable = false;
    Ok(prepared)
}

/// Everything in the row: up to now, or up to a time, in every family that the table has.
fn delete_row(region: &Region, row: Bytes, mutation: &MutationProto, request: RowRequest) -> Prepared {
    let time = mutation.timestamp.map_or(LATEST, u64::cast_signed);
    let packed = if time == LATEST { Vec::new() } else { delete_of_families(region, time) };
    let exact = time != LATEST;
    Prepared { exact, ..prepared(received(row, packed, request, !exact), true) }
}

pub(super) fn delete_of_families(region: &Region, time: i64) -> Vec<u8> {
    let mut packed = Vec::new();
    for family in &region.schema.families {
        pack(&mut packed, CellRef::delete(CellKind::DeleteFamily, family.name.as_bytes(), &[], time));
    }
    packed
}

fn merge(
    row: Bytes,
    changes: Vec<Change<'_>>,
    mutation: &MutationProto,
    request: RowRequest,
) -> Result<Prepared, Exception> {
    let kind = mutation.mutate_type();
    let hides = |attribute: &proto::NameBytesPair| attribute.name == "_rr_" && attribute.value.as_deref() == Some(&[0]);
    let returns = !mutation.attribute.iter().any(hides);
    let (mut read_modify_writes, mut first_times) = (Vec::new(), Vec::new());
    let ttl_ms = changes.iter().find_map(|change| change.ttl_ms);
    for change in changes {
        let Change { family, qualifier, timestamp, kind: cell, value, .. } = change;
        refuse(cell != CellKind::Put, "deletes in increments and appends")?;
        let checked = CellRef::put(family, qualifier, timestamp, &[]).check();
        checked.map_err(|refused| Exception::bad_request(&refused.what))?;
        first_times.push(timestamp);
        let what = if kind == MutationType::Append {
            ReadModifyWriteKind::Append(Bytes::copy_from_slice(value))
        } else {
            let by = <[u8; 8]>::try_from(value).map_err(|_| {
                Exception::bad_request(&format!(
                    "an increment has 8 bytes, a big-endian number; this has {}",
                    value.len()
                ))
            })?;
            ReadModifyWriteKind::Increment(i64::from_be_bytes(by))
        };
        let qualifier = Bytes::copy_from_slice(qualifier);
        let merge = ReadModifyWrite { family: family_name(family)?, qualifier, what };
        merge.check().map_err(|refused| Exception::bad_request(&refused.what))?;
        read_modify_writes.push(merge);
    }
    if read_modify_writes.is_empty() {
        return Err(Exception::bad_request("the mutation has no cells"));
    }
    let column = |merge: &ReadModifyWrite| (merge.family.clone(), merge.qualifier.clone());
    let mut read_back: Vec<_> = if returns { read_modify_writes.iter().map(column).collect() } else { Vec::new() };
    read_back.sort();
    read_back.dedup();
    let merge_times = is_limited(mutation.time_range.as_ref()).then(|| bounds(mutation.time_range.as_ref()));
    if first_times.iter().all(|&time| time == LATEST) {
        first_times.clear();
    }
    // A column may be named more than once: each change sees it as it was before, and the last one counts.
    let places = (read_modify_writes.len() > 1).then(|| vec![usize::MAX; read_modify_writes.len()]);
    let extras =
        Extras { merge_times, first_times, places, returns_merged: true, makes_versions: true, ..request.extras };
    let returns = if returns { Returns::New } else { Returns::Nothing };
    let request = RowRequest { read_modify_writes, returns, ttl_ms, extras, ..request };
    Ok(Prepared { read_back, ..prepared(received(row, Vec::new(), request, false), false) })
}

pub(super) fn prepared(row: ReceivedRow, repeatable: bool) -> Prepared {
    let reads = |request: &RowRequest| reads_whole(&request.extras);
    let alone = row.request.as_ref().is_ok_and(|request| request.as_deref().is_some_and(reads));
    Prepared { row, exact: false, repeatable, alone, read_back: Vec::new() }
}

/// Whether more of a row is read than newest versions.
pub(super) fn reads_whole(extras: &Extras) -> bool {
    extras.condition.is_some() || extras.merge_times.is_some() || extras.takes_turns()
}

pub(super) fn received(row: Bytes, packed: Vec<u8>, request: RowRequest, delete_row: bool) -> ReceivedRow {
    let cells = Ok(Bytes::from(packed));
    ReceivedRow { operation: 0, first_try_ms: 0, row, delete_row, cells, request: Ok(request.boxed()) }
}

fn family_name(family: &[u8]) -> Result<FamilyName, Exception> {
    FamilyName::try_from(family).map_err(|refused| Exception::bad_request(&refused.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(kind: u8, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 1).unwrap();
        [&length.to_be_bytes()[..], &[kind], value].concat()
    }

    #[test]
    fn the_first_time_to_live_among_the_tags_counts_and_others_are_left_out() {
        let ttl = |ms: i64| tag(TTL_TAG, &ms.to_be_bytes());
        assert_eq!(ttl_of_tags(&[]).unwrap(), None);
        assert_eq!(ttl_of_tags(&[tag(65, b"own"), ttl(7), ttl(9)].concat()).unwrap(), Some(7));
        assert_eq!(ttl_of_tags(&ttl(-1)).unwrap(), Some(0));
        for refused in [tag(1, b"acl"), tag(2, b"label"), tag(TTL_TAG, b"7"), vec![0], vec![0, 0], vec![0, 9, 8]] {
            assert!(ttl_of_tags(&refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn deletes_among_puts_are_known_by_their_type() {
        let value = |delete_type: Option<DeleteType>| proto::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"q")),
            delete_type: delete_type.map(Into::into),
            ..Default::default()
        };
        let of = |kind: MutationType, delete_type| {
            let qualifier_value = vec![value(delete_type)];
            let column = proto::mutation_proto::ColumnValue { family: Bytes::from_static(b"f"), qualifier_value };
            let mutation = MutationProto {
                row: Some(Bytes::from_static(b"r")),
                mutate_type: Some(kind.into()),
                column_value: vec![column],
                ..Default::default()
            };
            changes(&mutation, &[]).unwrap()[0].kind
        };
        assert_eq!(of(MutationType::Put, None), CellKind::Put);
        assert_eq!(of(MutationType::Put, Some(DeleteType::DeleteMultipleVersions)), CellKind::DeleteColumn);
        assert_eq!(of(MutationType::Delete, None), CellKind::Delete);
        assert_eq!(of(MutationType::Delete, Some(DeleteType::DeleteFamily)), CellKind::DeleteFamily);
    }

    #[test]
    fn the_time_to_live_of_a_mutation_is_a_number_of_milliseconds() {
        let attribute = |value: &'static [u8]| {
            vec![proto::NameBytesPair { name: "_ttl".to_owned(), value: Some(Bytes::from_static(value)) }]
        };
        assert_eq!(ttl_of(&[]).unwrap(), None);
        assert_eq!(ttl_of(&attribute(&[0, 0, 0, 0, 0, 0, 0x13, 0x88])).unwrap(), Some(5_000));
        assert_eq!(ttl_of(&attribute(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])).unwrap(), None);
        assert_eq!(ttl_of(&attribute(&[0xff; 8])).unwrap(), Some(0));
        assert!(ttl_of(&attribute(b"5000")).is_err());
    }
}
