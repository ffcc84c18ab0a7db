//! The edge's half of a write: each row is checked once against the limits and the schema, and what passes is laid out as
//! the log operation right away. The other half is in the group's machine, where region and epoch are checked again.
//!
//! A row that fails is an error of its own in the reply; the others are applied. Only what concerns all rows (a stale
//! epoch, a read-only table, a batch over the limit) refuses the request.
//!
//! A whole-row delete has no form of its own: the client sends one DeleteFamily per family.

use std::time::Duration;

use bytes::Bytes;
use terrane_types::cell::CellRef;
use terrane_types::escape::escape;
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::row::check_row;
use terrane_types::{Error, Invalid, PackedCells, TableSchema};

use crate::group::state::RegionState;
use crate::operation::{WriteBuilder, WriteHeader};
use crate::reply::Reply;

/// How long a caller waits that knows a newer schema than this replica: the entry is on its way.
const SCHEMA_RETRY: Duration = Duration::from_millis(20);

/// One row's mutation as it came in; `cells` failed already when they came as messages that cannot be packed.
pub struct RowMutation {
    pub row: Bytes,
    pub cells: Result<Bytes, Error>,
    pub operation: u64,
    pub first_try_ms: u64,
}

/// A checked write.
pub struct Prepared {
    /// What to propose; `None` when no row passed.
    pub operation: Option<Vec<u8>>,
    /// The rows that failed, by their place in the request.
    pub errors: Vec<(u32, Error)>,
}

/// Checks a write of `rows` against the region as it is now.
pub fn prepare(header: &WriteHeader, rows: Vec<RowMutation>, region: &RegionState) -> Result<Prepared, Error> {
    region.check_write(header.epoch).map_err(refusal)?;
    if header.schema_version > region.schema.version {
        let message =
            format!("schema version {} of table {} is not here yet", header.schema_version, region.schema.name);
        return Err(Error::Unavailable { message, retry_after: SCHEMA_RETRY });
    }
    let bytes = batch_bytes(&rows)?;
    let mut builder = WriteBuilder::new(header, bytes);
    let mut errors = Vec::new();
    for (at, mutation) in (0u32..).zip(rows) {
        match check(&mutation.row, mutation.cells, region) {
            Ok(cells) => {
                builder.push(mutation.operation, mutation.first_try_ms, &mutation.row, cells.as_bytes());
            }
            Err(error) => errors.push((at, error)),
        }
    }
    let operation = (!builder.is_empty()).then(|| builder.finish());
    Ok(Prepared { operation, errors })
}

/// What the rows will take in the log, refused over the limit of a batch.
fn batch_bytes(rows: &[RowMutation]) -> Result<usize, Error> {
    let of_row = |row: &RowMutation| row.row.len() + row.cells.as_ref().map_or(0, Bytes::len);
    let bytes: usize = rows.iter().map(of_row).sum();
    if bytes > BATCH_BYTES_MAX {
        let what = format!("the batch has {bytes} bytes; the limit is {BATCH_BYTES_MAX}: send fewer rows at once");
        return Err(Error::Invalid(Invalid { what }));
    }
    Ok(bytes + rows.len() * WriteBuilder::row_overhead())
}

fn check(row: &[u8], cells: Result<Bytes, Error>, region: &RegionState) -> Result<PackedCells, Error> {
    check_row(row)?;
    if !region.descriptor.range.contains(row) {
        let what = format!("row {} is not in region {}", escape(row), region.descriptor.region);
        return Err(Error::Invalid(Invalid { what }));
    }
    let cells = PackedCells::validate_mutation(cells?)?;
    for cell in &cells {
        check_family(&cell, &region.schema)?;
    }
    Ok(cells)
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
        }
    }

    fn put(row: impl Into<Bytes>, family: &str, value: &[u8]) -> RowMutation {
        let mut cells = Vec::new();
        pack(&mut cells, CellRef::put(family.as_bytes(), b"q", LATEST, value));
        RowMutation { row: row.into(), cells: Ok(cells.into()), operation: 1, first_try_ms: 2 }
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
        let empty = RowMutation { row: "c".into(), cells: Ok(Bytes::new()), operation: 1, first_try_ms: 2 };
        assert!(failed(empty).contains("no cell"));
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
    fn a_batch_over_the_limit_is_refused_as_a_whole() {
        let value = vec![0; 9 << 20];
        let rows = (0..4).map(|_| put("c", "f", &value)).collect();
        let refused = prepare(&header(), rows, &region()).err().unwrap();
        assert!(refused.to_string().contains("33554432"), "{refused}");
    }
}
