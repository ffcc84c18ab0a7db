//! A mutation of one row as the data path takes it: cells from messages or from the cell block, increments, appends, deletes
//! and conditions.

use bytes::Bytes;
use terrane_regionserver::edge::{ReceivedRow, RowRequest};
use terrane_types::cell::{CellKind, CellRef, LATEST, pack};
use terrane_types::{ColumnTest, Condition, FamilyName, ReadModifyWrite, ReadModifyWriteKind, Returns, Test};

use super::reading::{refuse, refuse_attributes};
use super::requests::Region;
use crate::cell_block::{BlockReader, KeyValue};
use crate::exception::Exception;
use crate::proto::mutation_proto::{DeleteType, MutationType};
use crate::proto::{self, MutationProto};
use crate::time_range::is_limited;

/// A mutation, ready to be sent.
pub(super) struct Prepared {
    pub row: ReceivedRow,
    /// It depends on the families that the table has now.
    pub exact: bool,
    /// Whether applying it twice is the same as once.
    pub repeatable: bool,
}

/// One cell of a mutation, wherever it came from.
#[derive(Clone, Copy)]
struct Change<'a> {
    family: &'a [u8],
    qualifier: &'a [u8],
    timestamp: i64,
    kind: CellKind,
    value: &'a [u8],
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

/// A mutation, checked against its region.
pub(super) fn prepare(
    region: &Region,
    mutation: &MutationProto,
    cells: &[KeyValue<'_>],
    condition: Option<Condition>,
) -> Result<Prepared, Exception> {
    refuse_attributes(&mutation.attribute)?;
    refuse(is_limited(mutation.time_range.as_ref()), "time ranges of mutations")?;
    let kind = mutation.mutate_type();
    let row = match (&mutation.row, cells.first()) {
        (Some(row), _) => row.clone(),
        (None, Some(cell)) => Bytes::copy_from_slice(cell.row),
        (None, None) => return Err(Exception::bad_request("the mutation names no row")),
    };
    if let Some(other) = cells.iter().find(|cell| cell.row != row) {
        let other = terrane_types::escape(other.row);
        return Err(Exception::bad_request(&format!("a mutation of one row has a cell of row {other}")));
    }
    region.check_row(&row)?;
    let changes = changes(mutation, cells)?;
    for change in &changes {
        region.check_family(change.family)?;
    }
    let is_conditional = condition.is_some();
    let prepared = match kind {
        MutationType::Put => plain(row, &changes, condition, |kind| kind == CellKind::Put)?,
        MutationType::Delete if changes.is_empty() => delete_row(region, row, mutation, condition),
        MutationType::Delete => delete(row, &changes, condition)?,
        MutationType::Increment | MutationType::Append => {
            let returns = mutation
                .attribute
                .iter()
                .all(|attribute| attribute.name != "_rr_" || attribute.value.as_deref() != Some(&[0]));
            merge(row, changes, kind, (condition, returns))?
        }
    };
    Ok(Prepared { repeatable: prepared.repeatable && !is_conditional, ..prepared })
}

fn changes<'a>(mutation: &'a MutationProto, cells: &[KeyValue<'a>]) -> Result<Vec<Change<'a>>, Exception> {
    let of_block = cells.iter().map(|KeyValue { cell, .. }| {
        refuse(!cell.tags.is_empty(), "tags of cells")?;
        Ok(Change {
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
            refuse(value.tags.as_ref().is_some_and(|tags| !tags.is_empty()), "tags of cells")?;
            let timestamp = value.timestamp.or(default).map_or(LATEST, u64::cast_signed);
            let kind = match is_delete.then(|| value.delete_type()) {
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
            })
        })
    });
    of_block.chain(of_message).collect()
}

/// A row whose cells are packed as they are.
fn plain<'a>(
    row: Bytes,
    changes: &[Change<'a>],
    condition: Option<Condition>,
    allowed: impl Fn(CellKind) -> bool,
) -> Result<Prepared, Exception> {
    if changes.is_empty() {
        return Err(Exception::bad_request("the mutation has no cells"));
    }
    let cell_of = |change: &Change<'a>| CellRef {
        family: change.family,
        qualifier: change.qualifier,
        timestamp: change.timestamp,
        kind: change.kind,
        tags: &[],
        value: change.value,
    };
    let mut packed = Vec::with_capacity(changes.iter().map(|change| cell_of(change).packed_len()).sum());
    for change in changes {
        if !allowed(change.kind) {
            let text = format!("the mutation has a cell of another kind: {:?}", change.kind);
            return Err(Exception::bad_request(&text));
        }
        let cell = cell_of(change);
        // Packing needs lengths within the limits.
        cell.check().map_err(|refused| Exception::bad_request(&refused.what))?;
        pack(&mut packed, cell);
    }
    let request = RowRequest { condition, ..RowRequest::default() };
    // A stamp that the leader fills in makes a second application another version.
    Ok(Prepared { row: received(row, packed, request, false), exact: false, repeatable: true })
}

/// Deletes, of which those of one version without a timestamp mean the newest one, whatever its timestamp.
fn delete(row: Bytes, changes: &[Change<'_>], condition: Option<Condition>) -> Result<Prepared, Exception> {
    let is_newest = |change: &&Change<'_>| change.kind == CellKind::Delete && change.timestamp == LATEST;
    let newest: Vec<_> = changes.iter().filter(is_newest).collect();
    if newest.is_empty() {
        return plain(row, changes, condition, CellKind::is_delete);
    }
    let mut read_modify_writes = Vec::with_capacity(newest.len());
    for change in newest {
        let (family, qualifier) = (family_name(change.family)?, Bytes::copy_from_slice(change.qualifier));
        read_modify_writes.push(ReadModifyWrite { family, qualifier, what: ReadModifyWriteKind::DeleteNewest });
    }
    let others: Vec<_> = changes.iter().filter(|change| !is_newest(change)).copied().collect();
    let mut prepared = if others.is_empty() {
        Prepared { row: received(row, Vec::new(), RowRequest::default(), false), exact: false, repeatable: false }
    } else {
        plain(row, &others, None, CellKind::is_delete)?
    };
    prepared.row.request = Ok(RowRequest { condition, read_modify_writes, ..RowRequest::default() }.boxed());
    // Applied again, it would delete the version before.
    prepared.repeatable = false;
    Ok(prepared)
}

/// Everything in the row: up to now, or up to a time in every family that the table has.
fn delete_row(region: &Region, row: Bytes, mutation: &MutationProto, condition: Option<Condition>) -> Prepared {
    let time = mutation.timestamp.map_or(LATEST, u64::cast_signed);
    let mut packed = Vec::new();
    if time != LATEST {
        for family in &region.schema.families {
            pack(&mut packed, CellRef::delete(CellKind::DeleteFamily, family.name.as_bytes(), &[], time));
        }
    }
    let request = RowRequest { condition, ..RowRequest::default() };
    let exact = time != LATEST;
    Prepared { row: received(row, packed, request, !exact), exact, repeatable: true }
}

fn merge(
    row: Bytes,
    changes: Vec<Change<'_>>,
    kind: MutationType,
    (condition, returns): (Option<Condition>, bool),
) -> Result<Prepared, Exception> {
    let mut read_modify_writes = Vec::new();
    for Change { family, qualifier, timestamp, kind: cell, value } in changes {
        refuse(timestamp != LATEST, "timestamps of increments and appends")?;
        refuse(cell != CellKind::Put, "deletes in increments and appends")?;
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
    let returns = if returns { Returns::New } else { Returns::Nothing };
    let request = RowRequest { condition, read_modify_writes, returns, ..RowRequest::default() };
    Ok(Prepared { row: received(row, Vec::new(), request, false), exact: false, repeatable: false })
}

fn received(row: Bytes, packed: Vec<u8>, request: RowRequest, delete_row: bool) -> ReceivedRow {
    let cells = Ok(Bytes::from(packed));
    ReceivedRow { operation: 0, first_try_ms: 0, row, delete_row, cells, request: Ok(request.boxed()) }
}

/// Several mutations of one row as one, under one condition: puts and deletes.
pub(super) fn join(rows: Vec<Prepared>, condition: Option<Condition>) -> Result<Prepared, Exception> {
    let mut joined: Option<Prepared> = None;
    let mut read_modify_writes = Vec::new();
    for (at, mut mutation) in rows.into_iter().enumerate() {
        if let Ok(request) = &mut mutation.row.request
            && let Some(request) = request.take()
        {
            let mut merges = request.read_modify_writes;
            let deletes = |merge: &ReadModifyWrite| merge.what == ReadModifyWriteKind::DeleteNewest;
            refuse(!merges.iter().all(deletes), "increments and appends in a RowMutations")?;
            read_modify_writes.append(&mut merges);
        }
        // The delete of the row comes before the cells of its mutation.
        refuse(mutation.row.delete_row && at > 0, "row deletes after other mutations in a RowMutations")?;
        match &mut joined {
            None => joined = Some(mutation),
            Some(all) if all.row.row != mutation.row.row => {
                return Err(Exception::bad_request("an atomic batch changes more than one row"));
            }
            Some(all) => {
                if let (Ok(cells), Ok(more)) = (&mut all.row.cells, &mutation.row.cells) {
                    *cells = [&cells[..], more].concat().into();
                }
                all.exact |= mutation.exact;
                all.repeatable &= mutation.repeatable;
            }
        }
    }
    let mut joined = joined.ok_or_else(|| Exception::bad_request("an atomic batch has no mutations"))?;
    joined.repeatable &= condition.is_none();
    joined.row.request = Ok(RowRequest { condition, read_modify_writes, ..RowRequest::default() }.boxed());
    Ok(joined)
}

/// A condition on one column. HBase compares the given value with the stored one, and we the stored one with the given.
pub(super) fn condition(region: &Region, condition: &proto::Condition) -> Result<Condition, Exception> {
    region.check_row(&condition.row)?;
    refuse(condition.filter.is_some(), "conditions with filters")?;
    refuse(is_limited(condition.time_range.as_ref()), "time ranges of conditions")?;
    let (Some(family), Some(comparator)) = (&condition.family, &condition.comparator) else {
        return Err(Exception::bad_request("the condition names no family or no comparator"));
    };
    region.check_family(family)?;
    let operator = condition.compare_type();
    let given = comparator_value(comparator)?;
    let test = |test| {
        let test = ColumnTest::new(family_name(family)?, condition.qualifier.clone().unwrap_or_default(), test);
        Ok(Condition::Column(test))
    };
    use proto::CompareType as Compare;
    if given.is_empty() {
        return match operator {
            Compare::NoOp => Err(Exception::bad_request("the condition compares with NO_OP")),
            Compare::NotEqual => test(Test::NotEqual(given)),
            _ => Ok(Condition::Any(vec![test(Test::Absent)?, test(Test::Equal(given))?])),
        };
    }
    test(match operator {
        Compare::Equal => Test::Equal(given),
        Compare::NotEqual => Test::NotEqual(given),
        Compare::Less => Test::Greater(given),
        Compare::LessOrEqual => Test::GreaterOrEqual(given),
        Compare::Greater => Test::Less(given),
        Compare::GreaterOrEqual => Test::LessOrEqual(given),
        Compare::NoOp => return Err(Exception::bad_request("the condition compares with NO_OP")),
    })
}

/// The value that a comparator compares with; empty: nothing.
fn comparator_value(comparator: &proto::Comparator) -> Result<Bytes, Exception> {
    use prost::Message as _;
    match comparator.name.as_str() {
        "org.apache.hadoop.hbase.filter.NullComparator" => Ok(Bytes::new()),
        "org.apache.hadoop.hbase.filter.BinaryComparator" => {
            let bytes = comparator.serialized_comparator.clone().unwrap_or_default();
            let decoded = proto::BinaryComparator::decode(bytes);
            let decoded = decoded.map_err(|_| Exception::bad_request("the comparator cannot be read"))?;
            Ok(decoded.comparable.value.unwrap_or_default())
        }
        other => Err(Exception::bad_request(&format!("conditions with {other} are not supported yet"))),
    }
}

fn family_name(family: &[u8]) -> Result<FamilyName, Exception> {
    FamilyName::try_from(family).map_err(|refused| Exception::bad_request(&refused.what))
}
