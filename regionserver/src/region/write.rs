//! The edge's half of a write: each row is checked once, against the limits and the schema, and becomes part of what is
//! proposed. The other half is in the group's machine, which checks region and epoch again.
//!
//! A row that fails is an error of its own in the reply; the others are applied. Only what concerns all rows (a stale
//! epoch, a read-only table, a batch over the limit) refuses the request. If one row of an atomic batch fails, all do: no
//! part of it is proposed.
//!
//! A whole-row delete exists only up to here: it becomes one DeleteFamily per family of the schema at the edge. Such a write
//! takes effect under that version of the schema only, so that no family is missed.
//!
//! Rows with a condition, increments or appends, or that return something, are checked here and evaluated by the group's
//! leader (`evaluate`).

use std::time::Duration;

use bytes::Bytes;
use terrane_types::cell::{CellKind, CellRef, LATEST, pack};
use terrane_types::escape::escape;
use terrane_types::mutation::checks::{MutationParts, check_atomic, check_batch_bytes, check_batch_rows, check_cells};
use terrane_types::row::check_row;
use terrane_types::{Error, Invalid, PackedCells, TableSchema};

use crate::group::proposal::{CheckedRow, RowRequest, Write};
use crate::group::region_state::RegionState;
use crate::group::reply::Reply;
use crate::operation::WriteHeader;

/// How long a caller with a newer schema than this replica's waits: the entry is on its way.
const SCHEMA_RETRY: Duration = Duration::from_millis(20);

/// One row's mutation as it was received.
pub struct ReceivedRow {
    /// The client's number for it; 0: it has none.
    pub operation: u64,
    /// When the client first tried it.
    pub first_try_ms: u64,
    pub row: Bytes,
    /// Before the cells are applied, everything in the row is deleted.
    pub delete_row: bool,
    /// Packed cells, or why they could not be packed.
    pub cells: Result<Bytes, Error>,
    /// What is to be evaluated, or why it could not be read; `None` for a plain row.
    pub request: Result<Option<Box<RowRequest>>, Error>,
}

/// A checked write.
#[derive(Default)]
pub struct Checked {
    /// What to propose; `None` if no row passed.
    pub write: Option<Write>,
    /// The rows that failed, by their place in the request.
    pub errors: Vec<(u32, Error)>,
    /// The places in the request of the rows that are proposed; empty if none failed, and each row has its own place.
    pub places: Vec<u32>,
}

impl ReceivedRow {
    /// What counts for the limit of a batch.
    fn bytes(&self) -> usize {
        let cells = self.cells.as_ref().map_or(0, Bytes::len);
        let request = self.request.as_ref().ok().and_then(Option::as_deref);
        let added = request.map_or(0, |request| parts(&self.row, &[], request).value_bytes());
        self.row.len() + cells + added
    }

    /// About what it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.row.len() + self.cells.as_ref().map_or(0, Bytes::len)
    }
}

/// Checks a write of `rows` against the region as it is now.
pub fn check(header: &WriteHeader, rows: Vec<ReceivedRow>, region: &RegionState) -> Result<Checked, Error> {
    check_region(header, region)?;
    check_batch_rows(rows.len())?;
    let deletes = rows.iter().filter(|row| row.delete_row).count();
    let delete = if deletes > 0 { delete_of_row(&region.schema) } else { Bytes::new() };
    check_batch_bytes(deletes * delete.len() + rows.iter().map(ReceivedRow::bytes).sum::<usize>())?;
    if header.atomic {
        let keys: Vec<&[u8]> = rows.iter().map(|row| &row.row[..]).collect();
        check_atomic(&keys, &region.schema)?;
    }
    let (mut checked, mut passed) = (Checked::default(), Vec::with_capacity(rows.len()));
    for (at, row) in (0u32..).zip(rows) {
        match check_received(row, &delete, region) {
            Ok(row) => {
                if !checked.errors.is_empty() {
                    checked.places.push(at);
                }
                passed.push(row);
            }
            Err(error) => {
                if checked.errors.is_empty() {
                    checked.places.extend(0..at);
                }
                checked.errors.push((at, error));
            }
        }
    }
    if header.atomic && !checked.errors.is_empty() {
        fail_together(&mut checked);
    } else if !passed.is_empty() {
        // What is checked here is checked under this version, whichever the caller knows.
        let header = WriteHeader {
            schema_version: region.schema.version,
            exact_schema: header.exact_schema || deletes > 0,
            ..*header
        };
        checked.write = Some(Write::new(header, passed));
    }
    Ok(checked)
}

fn check_region(header: &WriteHeader, region: &RegionState) -> Result<(), Error> {
    region.check_write(header.epoch).map_err(refusal)?;
    let (known, version) = (header.schema_version, region.schema.version);
    if known > version {
        let message = format!("schema version {known} of table {} is not here yet", region.schema.name);
        return Err(Error::Unavailable { message, retry_after: SCHEMA_RETRY });
    }
    if header.exact_schema && known != version {
        return Err(Error::SchemaChanged { table: region.schema.table, version });
    }
    Ok(())
}

/// A delete of every family, packed.
fn delete_of_row(schema: &TableSchema) -> Bytes {
    let mut out = Vec::with_capacity(64 * schema.families.len());
    for family in &schema.families {
        pack(&mut out, CellRef::delete(CellKind::DeleteFamily, family.name.as_bytes(), &[], LATEST));
    }
    out.into()
}

/// One row failed, so all do.
fn fail_together(checked: &mut Checked) {
    let Some((first, why)) = checked.errors.first() else { return };
    let what = format!("nothing of the atomic batch was applied, for its row number {first}: {why}");
    let others = std::mem::take(&mut checked.places).into_iter();
    checked.errors.extend(others.map(|other| (other, Error::Invalid(Invalid { what: what.clone() }))));
    checked.errors.sort_by_key(|(at, _)| *at);
}

/// A row as it is proposed.
fn check_received(received: ReceivedRow, delete: &Bytes, region: &RegionState) -> Result<CheckedRow, Error> {
    let ReceivedRow { operation, first_try_ms, row, delete_row, cells, request } = received;
    check_row(&row)?;
    if !region.descriptor.range.contains(&row) {
        let what = format!("row {} is not in region {}", escape(&row), region.descriptor.region);
        return Err(Error::Invalid(Invalid { what }));
    }
    let (cells, request) = (cells?, request?);
    let cells = match delete_row {
        false => cells,
        true if cells.is_empty() => delete.clone(),
        true => [&delete[..], &cells].concat().into(),
    };
    let cells = match &request {
        None => check_cells(cells, &region.schema)?,
        Some(request) => {
            let cells = if cells.is_empty() { PackedCells::default() } else { check_cells(cells, &region.schema)? };
            let parts = parts(&row, cells.as_bytes(), request);
            match request.extras.places {
                None => parts.check()?,
                Some(_) => parts.check_repeating()?,
            }
            parts.check_request_families(&region.schema)?;
            cells
        }
    };
    Ok(CheckedRow { operation, first_try_ms, row, cells, request })
}

/// The cells of a row of a bulk load. It only puts: a delete acts on what was written before it, and rows that are loaded
/// together have no order.
pub fn check_loaded(row: &Bytes, cells: Bytes, region: &RegionState) -> Result<PackedCells, Error> {
    let received = ReceivedRow {
        operation: 0,
        first_try_ms: 0,
        row: row.clone(),
        delete_row: false,
        cells: Ok(cells),
        request: Ok(None),
    };
    let cells = check_received(received, &Bytes::new(), region)?.cells;
    if let Some(other) = cells.iter().find(|cell| cell.kind != CellKind::Put) {
        let what = format!("{other} of row {} is a delete; a bulk load only puts", escape(row));
        return Err(Error::Invalid(Invalid { what }));
    }
    Ok(cells)
}

/// A mutation with a request, for the checks that client and server share. Whole-row deletes are cells here.
fn parts<'a>(row: &'a [u8], cells: &'a [u8], request: &'a RowRequest) -> MutationParts<'a> {
    let RowRequest { condition, read_modify_writes, .. } = request;
    MutationParts { row, delete_row: false, cells, condition: condition.as_ref(), read_modify_writes }
}

/// A refusal as reported to the client.
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
        FamilyName, FamilySchema, GroupId, KeyRange, ReadModifyWrite, ReadModifyWriteKind, RegionDescriptor,
        RegionEpoch, RegionId, TableId, TableName,
    };

    use super::*;

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
        RegionState { planned: descriptor.range.clone(), descriptor, schema: Arc::new(schema), moving: None }
    }

    const HEADER: WriteHeader = WriteHeader::plain(1, 3, 1, [0; 16]);

    fn put(row: impl Into<Bytes>, family: &str, value: &[u8]) -> ReceivedRow {
        let mut cells = Vec::new();
        pack(&mut cells, CellRef::put(family.as_bytes(), b"q", LATEST, value));
        ReceivedRow {
            row: row.into(),
            cells: Ok(cells.into()),
            request: Ok(None),
            delete_row: false,
            operation: 1,
            first_try_ms: 2,
        }
    }

    fn failed(row: ReceivedRow) -> String {
        let checked = check(&HEADER, vec![row], &region()).unwrap();
        assert!(checked.write.is_none());
        checked.errors[0].1.to_string()
    }

    #[test]
    fn rows_that_fail_are_named_and_the_others_go_on() {
        let rows = vec![put("c", "f", b"1"), put("d", "nope", b"2"), put("e", "f", b"3")];
        let checked = check(&HEADER, rows, &region()).unwrap();
        assert_eq!(checked.errors.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
        assert_eq!(checked.places, [0, 2]);
        let write = checked.write.unwrap();
        let rows: Vec<_> = write.rows().iter().map(|row| &row.row[..]).collect();
        assert_eq!(rows, [b"c", b"e"]);
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said_with_its_limit() {
        assert!(failed(put("", "f", b"")).contains("32767"));
        assert!(failed(put(vec![b'c'; 32_768], "f", b"")).contains("32767"));
        assert!(failed(put("c", "g", b"")).contains("no family g; it has f"));
        assert!(failed(put("z", "f", b"")).contains("is not in region 1"));
        assert!(failed(put("c", "f", &vec![0; (10 << 20) + 1])).contains("10485760"));
        let empty = ReceivedRow { cells: Ok(Bytes::new()), ..put("c", "f", b"") };
        assert!(failed(empty).contains("no cell"));
    }

    /// A mutation that increments or appends to one column.
    fn updating(row: &'static str, family: &str, what: ReadModifyWriteKind) -> ReceivedRow {
        let rmw = ReadModifyWrite { family: FamilyName::new(family).unwrap(), qualifier: "n".into(), what };
        let request = RowRequest { read_modify_writes: vec![rmw], ..RowRequest::default() };
        ReceivedRow { cells: Ok(Bytes::new()), request: Ok(request.boxed()), ..put(row, "f", b"") }
    }

    #[test]
    fn what_is_asked_of_a_row_is_checked_too() {
        assert!(failed(updating("c", "g", ReadModifyWriteKind::Increment(1))).contains("no family g; it has f"));
        let mut twice = updating("c", "f", ReadModifyWriteKind::Increment(1));
        let request = twice.request.as_mut().unwrap().as_mut().unwrap();
        request.read_modify_writes.push(request.read_modify_writes[0].clone());
        assert!(failed(twice).contains("names column f:n more than once"));
        let mut nothing = updating("c", "f", ReadModifyWriteKind::Increment(1));
        nothing.request = Ok(RowRequest { returns: terrane_types::Returns::Old, ..RowRequest::default() }.boxed());
        assert!(failed(nothing).contains("changes nothing"));
    }

    fn refused_together(key: Option<&str>, atomic: u32, rows: &[&'static str]) -> Option<String> {
        let mut region = region();
        let schema = Arc::make_mut(&mut region.schema);
        schema.key = key.map(|key| key.parse().unwrap());
        schema.atomic = atomic;
        let rows = rows.iter().map(|row| put(*row, "f", b"")).collect();
        let header = WriteHeader { atomic: true, ..HEADER };
        check(&header, rows, &region).err().map(|error| error.to_string())
    }

    #[test]
    fn rows_of_an_atomic_batch_share_the_declared_prefix() {
        let key = Some("user:bytes2, item:tail");
        assert_eq!(refused_together(key, 1, &["c1a", "c1b"]), None);
        assert_eq!(refused_together(None, 0, &["c1a"]), None, "one row is always atomic");
        assert!(refused_together(key, 1, &["c1a", "c2a"]).unwrap().contains("differ there from c1a: c2a"));
        assert!(refused_together(key, 0, &["c1a", "c1b"]).unwrap().contains("declares no atomic key prefix"));
        assert!(refused_together(key, 1, &["c", "c1"]).unwrap().contains("not keys of table t"));
        assert!(refused_together(key, 1, &["c1a", "c1a"]).unwrap().contains("is there twice"));
    }

    #[test]
    fn one_row_of_an_atomic_batch_that_fails_refuses_all() {
        let header = WriteHeader { atomic: true, ..HEADER };
        let mut region = region();
        let schema = Arc::make_mut(&mut region.schema);
        schema.key = Some("user:bytes2, item:tail".parse().unwrap());
        schema.atomic = 1;
        let checked = check(&header, vec![put("c1a", "f", b""), put("c1b", "g", b"")], &region).unwrap();
        assert!(checked.write.is_none());
        let errors: Vec<String> = checked.errors.iter().map(|(at, error)| format!("{at}: {error}")).collect();
        assert!(errors[0].starts_with("0: nothing of the atomic batch was applied"), "{errors:?}");
        assert!(errors[1].starts_with("1: table t has no family g"), "{errors:?}");
    }

    #[test]
    fn another_epoch_is_refused_with_the_region_as_it_is() {
        let old = WriteHeader { epoch: RegionEpoch(2), ..HEADER };
        let refused = check(&old, vec![put("c", "f", b"")], &region()).err();
        let current = vec![region().descriptor];
        assert_eq!(refused, Some(Error::StaleEpoch { region: RegionId(1), current }));
    }

    #[test]
    fn a_newer_schema_than_ours_is_waited_for_and_an_older_one_taken() {
        let newer = WriteHeader { schema_version: 2, ..HEADER };
        let refused = check(&newer, vec![put("c", "f", b"")], &region()).err();
        assert!(matches!(refused, Some(Error::Unavailable { .. })), "{refused:?}");
        let unknown = WriteHeader { schema_version: 0, ..HEADER };
        assert!(check(&unknown, vec![put("c", "f", b"")], &region()).is_ok());
    }

    #[test]
    fn a_delete_of_a_row_is_of_each_family_that_the_schema_has_and_holds_under_that_schema_only() {
        let mut region = region();
        let mut schema = (*region.schema).clone();
        schema.add_family(FamilySchema::new(FamilyName::new("g").unwrap())).unwrap();
        schema.version = 9;
        region.schema = Arc::new(schema);
        let rows = vec![
            ReceivedRow { delete_row: true, ..put("c", "f", b"new") },
            ReceivedRow { delete_row: true, cells: Ok(Bytes::new()), ..put("d", "f", b"") },
        ];
        let checked = check(&HEADER, rows, &region).unwrap();
        let write = checked.write.unwrap();
        assert_eq!((write.header.schema_version, write.header.exact_schema), (9, true));
        let shown =
            |cells: &PackedCells| cells.iter().map(|cell| format!("{:?} {cell}", cell.kind)).collect::<Vec<_>>();
        let rows: Vec<_> = write.rows().iter().map(|row| shown(&row.cells)).collect();
        assert_eq!(rows[0], ["DeleteFamily f:", "DeleteFamily g:", "Put f:q"]);
        assert_eq!(rows[1], ["DeleteFamily f:", "DeleteFamily g:"]);
    }

    #[test]
    fn a_batch_over_the_limit_is_refused_as_a_whole() {
        let value = vec![0; 9 << 20];
        let rows = (0..4).map(|_| put("c", "f", &value)).collect();
        let refused = check(&HEADER, rows, &region()).err().unwrap();
        assert!(refused.to_string().contains("33554432"), "{refused}");
    }
}
