//! Several mutations of one row as one.

use terrane_regionserver::edge::{Extras, RowRequest};
use terrane_types::cell::{CellKind, Cells, LATEST, pack};
use terrane_types::{ReadModifyWrite, ReadModifyWriteKind, Returns, TableSchema};

use super::mutation::{Prepared, delete_of_families, prepared, reads_whole, received};
use super::reading::refuse;
use super::region::Region;
use super::write_order::pack_together;
use crate::exception::Exception;

/// Several mutations of one row as one, in addition to what `request` asks of the row. Each increment, append and delete of a
/// newest version sees the row as it was before; of several changes to a column the last one counts, and a delete hides what it
/// covers of all.
pub(super) fn join(region: &Region, rows: Vec<Prepared>, request: RowRequest) -> Result<Prepared, Exception> {
    let first = rows.first().ok_or_else(|| Exception::bad_request("an atomic batch has no mutations"))?;
    let row = first.row.row.clone();
    let extras = Extras { returns_merged: true, makes_versions: true, ..request.extras };
    let mut all = RowRequest { extras, ..request };
    let is_conditional = all.condition.is_some() || all.extras.condition.is_some();
    let mut joined = prepared(received(row, Vec::new(), RowRequest::default(), false), !is_conditional);
    let mut parts = Parts::default();
    for one in rows {
        if one.row.row != joined.row.row {
            return Err(Exception::bad_request("an atomic batch changes more than one row"));
        }
        if one.row.delete_row {
            parts.take_cells(&delete_of_families(region, LATEST));
        }
        joined.exact |= one.exact || one.row.delete_row;
        let cells = one.row.cells.map_err(|refused| Exception::bad_request(&refused.to_string()))?;
        parts.take_cells(&cells);
        let asked = one.row.request.map_err(|refused| Exception::bad_request(&refused.to_string()))?;
        if let Some(mut asked) = asked {
            all.extras.by_timestamp.append(&mut asked.extras.by_timestamp);
            if !asked.read_modify_writes.is_empty() {
                all.returns = if asked.returns == Returns::Nothing { all.returns } else { asked.returns };
                parts.take_merges(*asked)?;
            }
        }
        joined.read_back.extend(one.read_back);
        joined.repeatable &= one.repeatable || one.row.operation != 0;
        joined.row.operation = if joined.row.operation == 0 { one.row.operation } else { joined.row.operation };
    }
    joined.read_back.sort();
    joined.read_back.dedup();
    all.extras.by_timestamp.sort();
    all.extras.by_timestamp.dedup();
    joined.row.cells = Ok(parts.into_request(&mut all, &region.schema).into());
    joined.repeatable |= joined.row.operation != 0;
    joined.alone = reads_whole(&all.extras);
    joined.row.request = Ok(all.boxed());
    Ok(joined)
}

/// The time range and the time to live of increments and appends.
type MergeRules = (Option<(i64, i64)>, Option<u64>);

/// What mutations that become one consist of.
#[derive(Default)]
struct Parts {
    /// Packed cells: puts and deletes.
    puts: Vec<u8>,
    deletes: Vec<u8>,
    /// Increments and appends, each with its place among the puts and the time that it gives a column without versions.
    merges: Vec<(ReadModifyWrite, usize, i64)>,
    /// The time range and the time to live of all of these.
    of_merges: Option<MergeRules>,
    /// Deletes of newest versions, each with how many it leaves to others.
    newest: Vec<(ReadModifyWrite, u32)>,
}

impl Parts {
    fn take_cells(&mut self, packed: &[u8]) {
        let as_given = terrane_env::planted!("deletes and puts that arrive together count in their order");
        for cell in Cells::new(packed) {
            let is_first = as_given || cell.kind == CellKind::Put;
            pack(if is_first { &mut self.puts } else { &mut self.deletes }, cell);
        }
    }

    fn take_merges(&mut self, request: RowRequest) -> Result<(), Exception> {
        let extras = request.extras;
        for (place, rmw) in request.read_modify_writes.into_iter().enumerate() {
            if rmw.what == ReadModifyWriteKind::DeleteNewest {
                self.newest.push((rmw, extras.turns.get(place).copied().unwrap_or(0)));
                continue;
            }
            let rules = (extras.merge_times, request.ttl_ms);
            let differ = *self.of_merges.get_or_insert(rules) != rules;
            refuse(differ, "increments and appends of different time ranges or times to live in a RowMutations")?;
            let first_time = extras.first_times.get(place).copied().unwrap_or(LATEST);
            self.merges.push((rmw, self.puts.len(), first_time));
        }
        Ok(())
    }

    /// Adds what is to be evaluated to a request; returns the cells.
    fn into_request(mut self, all: &mut RowRequest, schema: &TableSchema) -> Vec<u8> {
        let (extras, merges) = (&mut all.extras, self.merges.len());
        (extras.merge_times, all.ttl_ms) = self.of_merges.unwrap_or_default();
        let mut places = Vec::with_capacity(merges + self.newest.len());
        for (merge, place, first_time) in self.merges {
            all.read_modify_writes.push(merge);
            places.push(place);
            extras.first_times.push(first_time);
        }
        extras.turns = vec![0; merges];
        for (newest, turn) in self.newest {
            all.read_modify_writes.push(newest);
            places.push(usize::MAX);
            extras.turns.push(turn);
        }
        extras.places = Some(places);
        if merges == 0 && !self.deletes.is_empty() && !self.puts.is_empty() {
            return pack_together(Cells::new(&self.puts).chain(Cells::new(&self.deletes)), schema);
        }
        // What increments and appends make has its place among the puts, and deletes follow it.
        self.puts.append(&mut self.deletes);
        self.puts
    }
}
