//! The edge's half of a write: each row is checked once against the limits and the schema, and what passes is laid out as
//! the log operation right away. The other half is in the group's machine, where region and epoch are checked again.
//!
//! A row that fails is an error of its own in the reply; the others are applied. Only what concerns all rows (a stale
//! epoch, a read-only table, a batch over the limit) refuses the request.
//!
//! A whole-row delete has no form of its own behind here: it becomes one DeleteFamily per family. The families are those of
//! the schema at the edge, so the write takes effect under that version of the schema only: no family is missed.
//!
//! Rows with a condition, increments or appends, or that return something are checked here and evaluated by the leader of the group
//! (`evaluate`). Of an atomic batch, one row that fails refuses all: no part of it is proposed.

use std::time::Duration;

use bytes::Bytes;
use terrane_types::cell::{CellKind, CellRef, LATEST, pack};
use terrane_types::escape::escape;
use terrane_types::limits::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, READ_MODIFY_WRITES_MAX, ROW_MUTATION_BYTES_MAX};
use terrane_types::row::check_row;
use terrane_types::{Error, Invalid, PackedCells, ReadModifyWrite, ReadModifyWriteKind, TableSchema};

use crate::group::region_state::RegionState;
use crate::operation::{Request, WriteBuilder, WriteHeader};
use crate::reply::Reply;

/// How long a caller waits that knows a newer schema than this replica: the entry is on its way.
const SCHEMA_RETRY: Duration = Duration::from_millis(20);

/// One row's mutation as it came in; its cells failed already when they came as messages that cannot be packed, and its
/// request when it cannot be read.
pub struct RowMutation {
    pub row: Bytes,
    pub cells: Result<Bytes, Error>,
    pub request: Result<Request, Error>,
    /// Before the cells, everything that the row has is deleted.
    pub delete_row: bool,
    pub operation: u64,
    pub first_try_ms: u64,
}

/// A checked write.
pub struct Prepared {
    /// What to propose; `None` when no row passed.
    pub operation: Option<Vec<u8>>,
    /// The rows that failed, by their place in the request.
    pub errors: Vec<(u32, Error)>,
    /// The places in the request of the rows that are proposed; empty when none failed, and a row's place is its own.
    pub places: Vec<u32>,
    /// Some of the proposed rows are to be evaluated.
    pub evaluates: bool,
}

/// Checks a write of `rows` against the region as it is now.
pub fn prepare(header: &WriteHeader, mut rows: Vec<RowMutation>, region: &RegionState) -> Result<Prepared, Error> {
    region.check_write(header.epoch).map_err(refusal)?;
    if header.schema_version > region.schema.version {
        let message =
            format!("schema version {} of table {} is not here yet", header.schema_version, region.schema.name);
        return Err(Error::Unavailable { message, retry_after: SCHEMA_RETRY });
    }
    if header.exact_schema && header.schema_version != region.schema.version {
        return Err(Error::SchemaChanged { table: region.schema.table, version: region.schema.version });
    }
    if rows.len() > BATCH_ROWS_MAX {
        let what = format!("the batch has {} rows; the limit is {BATCH_ROWS_MAX}: send fewer rows at once", rows.len());
        return Err(Error::Invalid(Invalid { what }));
    }
    check_deletes_of_rows(&rows, &region.schema)?;
    // What is checked here is checked under this version, whichever the caller knows.
    let mut header = WriteHeader { schema_version: region.schema.version, families_checked: true, ..*header };
    for mutation in rows.iter_mut().filter(|mutation| mutation.delete_row) {
        header.exact_schema = true;
        if let Ok(cells) = &mut mutation.cells {
            *cells = behind_delete_of_row(cells, &region.schema);
        }
    }
    let header = &header;
    let bytes = batch_bytes(&rows)?;
    let mut operation = Vec::with_capacity(bytes);
    let mut builder = WriteBuilder::new(&mut operation, header);
    let (mut errors, mut places, mut evaluates) = (Vec::new(), Vec::new(), false);
    if header.atomic {
        check_together(&rows, &region.schema)?;
    }
    for (at, mutation) in (0u32..).zip(rows) {
        let RowMutation { row, cells, request, delete_row: _, operation, first_try_ms } = mutation;
        match check(&row, cells, request, region) {
            Ok((cells, None)) => builder.push(operation, first_try_ms, &row, cells.as_bytes()),
            Ok((cells, Some(request))) => {
                evaluates = true;
                builder.push_request(operation, first_try_ms, &row, cells.as_bytes(), &request);
            }
            Err(error) => {
                errors.push((at, error));
                continue;
            }
        }
        places.push(at);
    }
    let proposed = builder.finish();
    if header.atomic && !errors.is_empty() {
        fail_together(&mut errors, &places);
        return Ok(Prepared { operation: None, errors, places: Vec::new(), evaluates: false });
    }
    if errors.is_empty() {
        places.clear();
    }
    Ok(Prepared { operation: (proposed > 0).then_some(operation), errors, places, evaluates })
}

/// The cells with a delete of every family in front of them.
fn behind_delete_of_row(cells: &[u8], schema: &TableSchema) -> Bytes {
    let mut out = Vec::with_capacity(cells.len() + 64 * schema.families.len());
    for family in &schema.families {
        pack(&mut out, CellRef::delete(CellKind::DeleteFamily, family.name.as_bytes(), &[], LATEST));
    }
    out.extend_from_slice(cells);
    out.into()
}

/// That the batch is within its limit when each delete of a whole row names every family: told before any does.
fn check_deletes_of_rows(rows: &[RowMutation], schema: &TableSchema) -> Result<(), Error> {
    let deletes = rows.iter().filter(|mutation| mutation.delete_row).count();
    if deletes == 0 {
        return Ok(());
    }
    let bytes = deletes * behind_delete_of_row(&[], schema).len();
    if bytes > BATCH_BYTES_MAX {
        let what = format!(
            "the batch deletes {deletes} rows of {} families each, which takes {bytes} bytes; the limit is {BATCH_BYTES_MAX}: \
             send fewer rows at once",
            schema.families.len()
        );
        return Err(Error::Invalid(Invalid { what }));
    }
    Ok(())
}

/// Rows of an atomic batch are different ones that share the table's atomic key prefix.
fn check_together(rows: &[RowMutation], schema: &TableSchema) -> Result<(), Error> {
    let mut keys: Vec<&[u8]> = rows.iter().map(|mutation| &mutation.row[..]).collect();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
        let what = format!("row {} comes twice in an atomic batch: put both into one mutation", escape(twice[0]));
        return Err(Error::Invalid(Invalid { what }));
    }
    let [first, others @ ..] = &keys[..] else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let prefix = schema.key.as_ref().filter(|_| schema.atomic > 0);
    let prefix = prefix.and_then(|key| first.get(..key.prefix_len(first, schema.atomic)?));
    let Some(prefix) = prefix else {
        let what = match schema.atomic {
            0 => format!("table {} declares no atomic key prefix (attribute atomic)", schema.name),
            parts => format!("row {} does not have the {parts} key parts of the atomic prefix", escape(first)),
        };
        return Err(Error::Invalid(Invalid { what: format!("{what}: a batch of several rows cannot be atomic") }));
    };
    let key = schema.key.as_ref();
    let shares = |row: &&&[u8]| {
        row.starts_with(prefix) && key.and_then(|key| key.prefix_len(row, schema.atomic)) == Some(prefix.len())
    };
    match others.iter().find(|row| !shares(row)) {
        None => Ok(()),
        Some(other) => {
            let (parts, first, other) = (schema.atomic, escape(first), escape(other));
            let what = format!("rows {first} and {other} do not share the {parts} key parts of the atomic prefix");
            Err(Error::Invalid(Invalid { what }))
        }
    }
}

/// One row failed, so all do.
fn fail_together(errors: &mut Vec<(u32, Error)>, others: &[u32]) {
    let Some((first, why)) = errors.first() else { return };
    let what = format!("nothing of the atomic batch was applied, for its row number {first}: {why}");
    errors.extend(others.iter().map(|other| (*other, Error::Invalid(Invalid { what: what.clone() }))));
    errors.sort_by_key(|(at, _)| *at);
}

/// What the rows will take in the log, refused over the limit of a batch.
fn batch_bytes(rows: &[RowMutation]) -> Result<usize, Error> {
    let of_row = |row: &RowMutation| {
        let appended = row
            .request
            .as_ref()
            .map_or(0, |request| request.read_modify_writes.iter().map(read_modify_write_bytes).sum::<usize>());
        row.row.len() + row.cells.as_ref().map_or(0, Bytes::len) + appended
    };
    let bytes: usize = rows.iter().map(of_row).sum();
    if bytes > BATCH_BYTES_MAX {
        let what = format!("the batch has {bytes} bytes; the limit is {BATCH_BYTES_MAX}: send fewer rows at once");
        return Err(Error::Invalid(Invalid { what }));
    }
    let (header, of_each) = WriteBuilder::overhead();
    Ok(header + bytes + rows.len() * of_each)
}

fn read_modify_write_bytes(rmw: &ReadModifyWrite) -> usize {
    let value = match &rmw.what {
        ReadModifyWriteKind::Increment(_) => 8,
        ReadModifyWriteKind::Append(value) => value.len(),
    };
    rmw.family.as_bytes().len() + rmw.qualifier.len() + value
}

/// A row as it is proposed; the bytes of its request only where there is something to evaluate.
fn check(
    row: &[u8],
    cells: Result<Bytes, Error>,
    request: Result<Request, Error>,
    region: &RegionState,
) -> Result<(PackedCells, Option<Vec<u8>>), Error> {
    check_row(row)?;
    if !region.descriptor.range.contains(row) {
        let what = format!("row {} is not in region {}", escape(row), region.descriptor.region);
        return Err(Error::Invalid(Invalid { what }));
    }
    let (cells, request) = (cells?, request?);
    if request.is_plain() {
        return Ok((check_cells(cells, &region.schema)?, None));
    }
    if cells.is_empty() && request.read_modify_writes.is_empty() {
        let what = format!(
            "the mutation of row {} changes nothing: it holds no cell, no increment and no append",
            escape(row)
        );
        return Err(Error::Invalid(Invalid { what }));
    }
    let cells = if cells.is_empty() { PackedCells::default() } else { check_cells(cells, &region.schema)? };
    check_request(&request, &cells, &region.schema)?;
    let request = request.encode().map_err(|error| Invalid::new(error.to_string()))?;
    Ok((cells, Some(request)))
}

fn check_cells(cells: Bytes, schema: &TableSchema) -> Result<PackedCells, Error> {
    let cells = PackedCells::validate_mutation(cells)?;
    for cell in &cells {
        check_family(&cell, schema)?;
    }
    Ok(cells)
}

/// Limits and families of what is to be evaluated; and that no column is named twice.
fn check_request(request: &Request, cells: &PackedCells, schema: &TableSchema) -> Result<(), Error> {
    if let Some(condition) = &request.condition {
        condition.check()?;
        condition.each_test(&mut |test| {
            check_family(&CellRef::put(test.family.as_bytes(), &test.qualifier, 0, &[]), schema)
        })?;
    }
    let count = request.read_modify_writes.len();
    if count > READ_MODIFY_WRITES_MAX {
        return Err(Invalid::new(format!(
            "the mutation has {count} increments and appends; the limit is {READ_MODIFY_WRITES_MAX}"
        ))
        .into());
    }
    let bytes: usize = request.read_modify_writes.iter().map(read_modify_write_bytes).sum();
    if bytes + cells.as_bytes().len() > ROW_MUTATION_BYTES_MAX {
        let what = format!(
            "the mutation has {} bytes of cells, increments and appends; the limit is {ROW_MUTATION_BYTES_MAX}",
            bytes + cells.as_bytes().len()
        );
        return Err(Error::Invalid(Invalid { what }));
    }
    let beside = cells.iter().filter(|cell| !cell.kind.is_family_marker()).map(|cell| (cell.family, cell.qualifier));
    let mut named: std::collections::BTreeSet<(&[u8], &[u8])> = beside.collect();
    for rmw in &request.read_modify_writes {
        rmw.check()?;
        let column = CellRef::put(rmw.family.as_bytes(), &rmw.qualifier, 0, &[]);
        check_family(&column, schema)?;
        if !named.insert((rmw.family.as_bytes(), &rmw.qualifier)) {
            let what = format!(
                "column {column} is named by an increment or append and once more, by a cell or another of them"
            );
            return Err(Error::Invalid(Invalid { what }));
        }
    }
    Ok(())
}

fn check_family(cell: &CellRef<'_>, schema: &TableSchema) -> Result<(), Invalid> {
    if schema.family(cell.family).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = schema.families.iter().map(|family| family.name.as_str()).collect();
    let known = known.join(", ");
    Err(Invalid::new(format!("table {} has no family {}; it has {known}", schema.name, escape(cell.family))))
}

/// A refusal as the client hears it.
pub fn refusal(reply: Reply) -> Error {
    match reply.applied() {
        Err(error) => error,
        Ok(_) => Error::Internal { message: "a refusal that refuses nothing".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrane_types::cell::{LATEST, pack};
    use terrane_types::{
        FamilyName, FamilySchema, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId, TableName,
    };

    use super::*;
    use crate::operation::Operation;

    fn region() -> RegionState {
        let mut schema = TableSchema::new(TableName::new("t").unwrap());
        schema.add_family(FamilySchema::new(FamilyName::new("f").unwrap())).unwrap();
        let descriptor = RegionDescriptor {
            region: RegionId(1),
            table: TableId(5),
            range: KeyRange::new("b", "m").unwrap(),
            epoch: RegionEpoch(3),
            group: GroupId(2),
            schema_version: 1,
        };
        RegionState { descriptor, schema: Arc::new(schema) }
    }

    fn header() -> WriteHeader {
        WriteHeader {
            region: RegionId(1),
            epoch: RegionEpoch(3),
            schema_version: 1,
            client: [0; 16],
            lowest_unsettled: 0,
            atomic: false,
            exact_schema: false,
            families_checked: false,
        }
    }

    fn put(row: impl Into<Bytes>, family: &str, value: &[u8]) -> RowMutation {
        let mut cells = Vec::new();
        pack(&mut cells, CellRef::put(family.as_bytes(), b"q", LATEST, value));
        RowMutation {
            row: row.into(),
            cells: Ok(cells.into()),
            request: Ok(Request::default()),
            delete_row: false,
            operation: 1,
            first_try_ms: 2,
        }
    }

    fn failed(row: RowMutation) -> String {
        let prepared = prepare(&header(), vec![row], &region()).unwrap();
        assert!(prepared.operation.is_none());
        prepared.errors[0].1.to_string()
    }

    #[test]
    fn rows_that_fail_are_named_and_the_others_go_on() {
        let rows = vec![put("c", "f", b"1"), put("d", "nope", b"2"), put("e", "f", b"3")];
        let prepared = prepare(&header(), rows, &region()).unwrap();
        assert_eq!(prepared.errors.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
        let Ok(Operation::Write(write)) = Operation::decode(prepared.operation.unwrap().into()) else { panic!() };
        let rows: Vec<_> = write.map(|row| row.unwrap().row).collect();
        assert_eq!(rows, ["c", "e"]);
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said_with_its_limit() {
        assert!(failed(put("", "f", b"")).contains("32767"));
        assert!(failed(put(vec![b'c'; 32_768], "f", b"")).contains("32767"));
        assert!(failed(put("c", "g", b"")).contains("no family g; it has f"));
        assert!(failed(put("z", "f", b"")).contains("is not in region 1"));
        assert!(failed(put("c", "f", &vec![0; (10 << 20) + 1])).contains("10485760"));
        let empty = RowMutation { cells: Ok(Bytes::new()), ..put("c", "f", b"") };
        assert!(failed(empty).contains("no cell"));
    }

    /// A mutation that increments or appends to one column.
    fn updating(row: &'static str, family: &str, what: ReadModifyWriteKind) -> RowMutation {
        let rmw = ReadModifyWrite { family: FamilyName::new(family).unwrap(), qualifier: "n".into(), what };
        let request = Request { read_modify_writes: vec![rmw], ..Request::default() };
        RowMutation { cells: Ok(Bytes::new()), request: Ok(request), ..put(row, "f", b"") }
    }

    #[test]
    fn what_is_asked_of_a_row_is_checked_too() {
        assert!(failed(updating("c", "g", ReadModifyWriteKind::Increment(1))).contains("no family g; it has f"));
        let mut twice = updating("c", "f", ReadModifyWriteKind::Increment(1));
        let again = twice.request.as_ref().unwrap().read_modify_writes[0].clone();
        twice.request.as_mut().unwrap().read_modify_writes.push(again);
        assert!(failed(twice).contains("f:n is named by an increment or append and once more"));
        let mut nothing = updating("c", "f", ReadModifyWriteKind::Increment(1));
        nothing.request = Ok(Request { returns: terrane_types::Returns::Old, ..Request::default() });
        assert!(failed(nothing).contains("changes nothing"));
    }

    fn refused_together(key: Option<&str>, atomic: u32, rows: &[&'static str]) -> Option<String> {
        let mut region = region();
        let schema = Arc::make_mut(&mut region.schema);
        schema.key = key.map(|key| key.parse().unwrap());
        schema.atomic = atomic;
        let rows = rows.iter().map(|row| put(*row, "f", b"")).collect();
        let header = WriteHeader { atomic: true, ..header() };
        prepare(&header, rows, &region).err().map(|error| error.to_string())
    }

    #[test]
    fn rows_of_an_atomic_batch_share_the_declared_prefix() {
        let key = Some("user:bytes2, item:tail");
        assert_eq!(refused_together(key, 1, &["c1a", "c1b"]), None);
        assert_eq!(refused_together(None, 0, &["c1a"]), None, "one row is always atomic");
        assert!(refused_together(key, 1, &["c1a", "c2a"]).unwrap().contains("do not share the 1 key parts"));
        assert!(refused_together(key, 0, &["c1a", "c1b"]).unwrap().contains("declares no atomic key prefix"));
        assert!(refused_together(key, 1, &["c", "c1"]).unwrap().contains("does not have the 1 key parts"));
        assert!(refused_together(key, 1, &["c1a", "c1a"]).unwrap().contains("comes twice"));
    }

    #[test]
    fn one_row_of_an_atomic_batch_that_fails_refuses_all() {
        let header = WriteHeader { atomic: true, ..header() };
        let mut region = region();
        let schema = Arc::make_mut(&mut region.schema);
        schema.key = Some("user:bytes2, item:tail".parse().unwrap());
        schema.atomic = 1;
        let prepared = prepare(&header, vec![put("c1a", "f", b""), put("c1b", "g", b"")], &region).unwrap();
        assert!(prepared.operation.is_none());
        let errors: Vec<String> = prepared.errors.iter().map(|(at, error)| format!("{at}: {error}")).collect();
        assert!(errors[0].starts_with("0: nothing of the atomic batch was applied"), "{errors:?}");
        assert!(errors[1].starts_with("1: table t has no family g"), "{errors:?}");
    }

    #[test]
    fn another_epoch_is_refused_with_the_region_as_it_is() {
        let old = WriteHeader { epoch: RegionEpoch(2), ..header() };
        let refused = prepare(&old, vec![put("c", "f", b"")], &region()).err();
        let current = vec![region().descriptor];
        assert_eq!(refused, Some(Error::StaleEpoch { region: RegionId(1), current }));
    }

    #[test]
    fn a_newer_schema_than_ours_is_waited_for_and_an_older_one_taken() {
        let newer = WriteHeader { schema_version: 2, ..header() };
        let refused = prepare(&newer, vec![put("c", "f", b"")], &region()).err();
        assert!(matches!(refused, Some(Error::Unavailable { .. })), "{refused:?}");
        let unknown = WriteHeader { schema_version: 0, ..header() };
        assert!(prepare(&unknown, vec![put("c", "f", b"")], &region()).is_ok());
    }

    #[test]
    fn a_delete_of_a_row_is_of_each_family_that_the_schema_has_and_holds_under_that_schema_only() {
        let mut region = region();
        let mut schema = (*region.schema).clone();
        schema.add_family(FamilySchema::new(FamilyName::new("g").unwrap())).unwrap();
        schema.version = 9;
        region.schema = Arc::new(schema);
        let rows = vec![
            RowMutation { delete_row: true, ..put("c", "f", b"new") },
            RowMutation { delete_row: true, cells: Ok(Bytes::new()), ..put("d", "f", b"") },
        ];
        let prepared = prepare(&header(), rows, &region).unwrap();
        let Ok(Operation::Write(write)) = Operation::decode(prepared.operation.unwrap().into()) else { panic!() };
        assert_eq!((write.header.schema_version, write.header.exact_schema), (9, true));
        let shown = |cells: Bytes| {
            let cells = PackedCells::validate(cells).unwrap();
            cells.iter().map(|cell| format!("{:?} {cell}", cell.kind)).collect::<Vec<_>>()
        };
        let rows: Vec<_> = write.map(|row| shown(row.unwrap().cells)).collect();
        assert_eq!(rows[0], ["DeleteFamily f:", "DeleteFamily g:", "Put f:q"]);
        assert_eq!(rows[1], ["DeleteFamily f:", "DeleteFamily g:"]);
    }

    #[test]
    fn a_batch_over_the_limit_is_refused_as_a_whole() {
        let value = vec![0; 9 << 20];
        let rows = (0..4).map(|_| put("c", "f", &value)).collect();
        let refused = prepare(&header(), rows, &region()).err().unwrap();
        assert!(refused.to_string().contains("33554432"), "{refused}");
    }
}
