//! Applies committed entries to the engine and to what the edge looks up.
//!
//! Order is everything here. The raft crate calls with committed entries in log order, one call at a time. Within an entry,
//! operations take effect one after another under the lock of `inner`. A region's freeze for a flush takes the `boundary`
//! first, which an entry holds from its first operation to its last; whatever may take long is waited for before that: space in
//! the memtables, files that other members have ([`super::files`]), space on the disk. (A durable point inside an entry would apply its first
//! operations a second time after a restart, under other sequence numbers than on the other replicas.)
//!
//! An entry that cannot be read is not what the leader packed: the level of the cluster keeps builds apart that cannot read
//! each other's entries. Skipping it would make this replica differ from the others, so the replica stops before it, as
//! damaged, and is replaced. The process and its other groups go on.

use std::sync::Arc;

use bytes::Bytes;
use terrane_env::time::now_ns;
use terrane_env::trace::{Part, SpanKind, TraceContext, Tracer};
use terrane_raft::AppliedEntry;
use terrane_types::{GroupId, PackedCells, RegionId};

use super::compare::pin_for_comparison;
use super::moves::refuse_move;
use super::{GroupMachine, Inner};
use crate::group::reply::Reply;
use crate::operation::{LoggedWrite, Operation, Settle};
use crate::replicas::hosted::HostedRegion;

/// Of a row with this beginning, the simulation changes a cell on one replica.
const CHANGED_ROW: &[u8] = b"a row that one replica changes";

/// Rows of consecutive writes of one entry to one region, on their way to its memtables.
#[derive(Default)]
struct Gathered {
    /// The region, and its table's flush size.
    region: Option<(Arc<HostedRegion>, u64)>,
    rows: Vec<(Bytes, PackedCells)>,
    /// The stamp of the entry.
    stamp: u64,
}

/// The traced writes of one entry. A restart applies entries again, and then records them again.
struct Traced {
    /// 0: nothing is recorded here.
    began_ns: u64,
    writes: Vec<(TraceContext, RegionId)>,
}

impl Traced {
    fn begin(tracer: &Tracer) -> Self {
        Self { began_ns: if tracer.records() { now_ns() } else { 0 }, writes: Vec::new() }
    }

    fn note(&mut self, operation: &Operation) {
        if self.began_ns > 0
            && let Operation::Write(write) = operation
            && let Some(trace) = write.header.trace
        {
            self.writes.push((trace, write.header.region));
        }
    }

    fn record(self, tracer: &Tracer, group: GroupId, index: u64) {
        for (trace, region) in self.writes {
            let attributes = vec![
                ("terrane.region", region.0.into()),
                ("terrane.group", group.0.into()),
                ("terrane.log_index", index.into()),
            ];
            let (began_ns, took_ns) = (self.began_ns, now_ns().saturating_sub(self.began_ns));
            let (name, kind) = ("apply", SpanKind::Internal);
            tracer.record_inside(trace, Part { name, kind, began_ns, took_ns, attributes, error: None });
        }
    }
}

impl GroupMachine {
    /// Applies one entry; returns a reply per operation. The boundary is held throughout.
    ///
    /// `None` if it cannot be read. Then nothing may be applied any more.
    pub(super) async fn apply_entry(&self, entry: &AppliedEntry) -> Option<Vec<Reply>> {
        // All of them before any takes effect.
        let decoded = entry.operations.iter().map(|operation| Operation::decode(operation.clone()));
        let operations = self.readable(entry.index, decoded.collect::<Result<Vec<_>, _>>())?;
        terrane_env::buggify_pause!("an entry is applied late").await;
        let planted = terrane_env::planted!("a flush waits for an entry");
        let waits = if planted { Some(self.boundary.lock().await) } else { None };
        // Before the boundary, which the flushes that free memory need.
        self.signals.wait_for_memtables(entry.operations.iter().map(|operation| operation.len() as u64).sum()).await;
        drop(waits);
        if let Some(reply) = self.wait_for_disk(entry, operations.first()).await {
            return Some(vec![reply]);
        }
        let _boundary = self.boundary.lock().await;
        if !self.begins(entry) {
            return Some(vec![Reply::Unknown; entry.operations.len()]);
        }
        let mut replies = Vec::with_capacity(operations.len());
        let mut gathered = Gathered { stamp: entry.stamp, ..Gathered::default() };
        let mut traced = Traced::begin(&self.tracer);
        for operation in operations {
            traced.note(&operation);
            if !matches!(operation, Operation::Write(_) | Operation::Settle(_)) {
                // What changes regions finds them as the writes before it left them.
                self.apply_rows(entry.index, &mut gathered);
            }
            let mut inner = self.inner.lock();
            let reply = match operation {
                Operation::Write(write) => self.gather(&mut inner, entry, write, &mut gathered)?,
                Operation::ChangeTables(change) => {
                    self.change_tables(&mut inner, entry, &change);
                    Ok(None)
                }
                Operation::Split(split) => self.split(&mut inner, entry, &split).map(Some),
                Operation::Merge(merge) => self.merge(&mut inner, entry, &merge).map(Some),
                Operation::Settle(settle) => settle_numbers(&mut inner, entry, &settle),
                Operation::Freeze(freeze) => self.freeze_for_move(&mut inner, entry, &freeze),
                Operation::Unfreeze(unfreeze) => self.unfreeze(&mut inner, entry, &unfreeze),
                Operation::Depart(depart) => self.depart(&mut inner, entry, &depart),
                Operation::Refuse(refuse) => Ok(Some(refuse_move(&mut inner, entry, refuse.id))),
                Operation::Compare(compare) => pin_for_comparison(&inner, entry, &compare),
                Operation::Tick => Ok(None),
                // They are alone in their entries.
                Operation::Adopt(_) | Operation::Load(_) => {
                    self.readable(entry.index, Err("it names files among other operations"))?
                }
            };
            replies.push(match reply {
                Ok(None) => Reply::Applied { stamp: entry.stamp },
                Ok(Some(reply)) | Err(reply) => reply,
            });
        }
        self.apply_rows(entry.index, &mut gathered);
        self.inner.lock().end_entry(entry);
        traced.record(&self.tracer, self.group, entry.index);
        Some(replies)
    }

    /// Waits for what an entry that changes regions needs on this disk. One that names files is applied with that.
    async fn wait_for_disk(&self, entry: &AppliedEntry, operation: Option<&Operation>) -> Option<Reply> {
        match operation? {
            Operation::Split(split) => self.finish_origins(&[split.region], entry.index).await,
            Operation::Merge(merge) => self.finish_origins(&[merge.left, merge.right], entry.index).await,
            operation @ Operation::Load(load) => {
                self.finish_origins(&[load.region], entry.index).await;
                return Some(self.apply_with_files(entry, operation).await);
            }
            operation @ Operation::Adopt(_) => return Some(self.apply_with_files(entry, operation).await),
            _ => {}
        }
        None
    }

    /// Begins an entry, unless it was on its way when the replica was removed, when the server stopped while files were fetched,
    /// or when a copy was installed that has it. It is committed, so the other members apply or refuse what it says; which of
    /// both is not known here.
    fn begins(&self, entry: &AppliedEntry) -> bool {
        let mut inner = self.inner.lock();
        let begins = !inner.is_removed && entry.index > inner.copied;
        if begins {
            inner.begin_entry(self.group, entry.index);
        }
        begins
    }

    /// A part of entry `index`. One that cannot be read damages the replica.
    fn readable<T>(&self, index: u64, part: Result<T, impl std::fmt::Display>) -> Option<T> {
        part.inspect_err(|error| self.set_damage(format!("entry {index} of its log cannot be read: {error}"))).ok()
    }

    /// Gathers the rows of one write and records their numbers. Only what may have changed since the edge is checked again:
    /// region, epoch, schema, and families if the table was altered. The range is fixed by region id and epoch, and cells
    /// cannot have changed: their bytes have a checksum.
    fn gather(
        &self,
        inner: &mut Inner,
        entry: &AppliedEntry,
        write: LoggedWrite,
        gathered: &mut Gathered,
    ) -> Option<Result<Option<Reply>, Reply>> {
        let index = entry.index;
        let Inner { state, hosted, windows, .. } = inner;
        let region = match state.check_write(&write.header) {
            Ok(region) => region,
            Err(refusal) => return Some(Err(refusal)),
        };
        let rows: Vec<_> = match write.header.schema_version != region.schema.version {
            true => write.clone().map_while(Result::ok).collect(),
            false => Vec::new(),
        };
        if let Err(refusal) = region.check_families(&write.header, rows.iter().map(|row| &row.cells[..])) {
            return Some(Err(refusal));
        }
        let Some(hosted) = hosted.get(&write.header.region) else {
            return Some(Err(state.stale(write.header.region)));
        };
        if index <= hosted.opened_at {
            return Some(Ok(None));
        }
        if gathered.region.as_ref().is_some_and(|(other, _)| other.region != hosted.region) {
            self.apply_rows(index, gathered);
        }
        if gathered.region.is_none() {
            gathered.region = Some((hosted.clone(), region.schema.flush_size));
        }
        gathered.rows.reserve(write.len());
        let (client, lowest_unsettled) = (write.header.client, write.header.lowest_unsettled);
        let mut window = windows.entry(hosted.region).or_default().update(client, lowest_unsettled, entry.stamp);
        let mut results = Vec::new();
        for (place, row) in (0u32..).zip(write) {
            let row = self.readable(index, row)?;
            let noted = row.untracked || window.applied(row.operation, row.result.as_ref());
            if let Some(result) = row.result {
                results.push((place, result));
            }
            if row.untracked {
                // The window has a new time for its client, which has to be on disk before the log may drop the entry.
                hosted.engine.touch(index);
                continue;
            }
            if !noted {
                // The leader looks up every number before it packs it, so this cannot happen. Applying it twice would be worse than skipping it.
                tracing::error!(region = %hosted.region, number = row.operation, "an operation was committed twice; its second occurrence is skipped");
                continue;
            }
            if row.cells.is_empty() {
                // Only its number is new, which has to be on disk before the log may drop the entry.
                hosted.engine.touch(index);
                continue;
            }
            let cells = self.readable(index, PackedCells::stored(row.cells))?;
            gathered.rows.push((row.row, cells));
        }
        Some(Ok((!results.is_empty()).then_some(Reply::Rows { stamp: entry.stamp, results })))
    }

    /// Applies what was gathered, all of one region: rows of one entry become visible together, and the engine takes many at
    /// once faster than one by one.
    fn apply_rows(&self, index: u64, gathered: &mut Gathered) {
        let Some((hosted, flush_size)) = gathered.region.take() else { return };
        hosted.engine.advance(gathered.stamp);
        if gathered.rows.is_empty() {
            return;
        }
        if terrane_env::struck!("a cell of a replica changes", || gathered.rows[0].0.starts_with(CHANGED_ROW)) {
            change_a_cell(&mut gathered.rows[0].1);
        }
        let first = hosted.engine.sequence() + 1;
        hosted.engine.apply_all(index, first, gathered.rows.iter().map(|(row, cells)| (&row[..], cells)));
        let (rows, last) = (gathered.rows.len() as u64, hosted.engine.sequence());
        assert_eq!(
            last,
            first + rows - 1,
            "{rows} rows from sequence number {first} on left region {} at another number",
            hosted.region
        );
        gathered.rows.clear();
        let full = hosted.engine.active_bytes() >= flush_size;
        if terrane_env::buggify!("a region is flushed for no reason", 8) {
            self.signals.request_flush(hosted.region);
        }
        self.signals.applied(hosted.note_full(full));
    }
}

/// Changes the first cell, as memory that flips a bit would.
fn change_a_cell(cells: &mut PackedCells) {
    let mut changed = Vec::new();
    for (place, cell) in cells.iter().enumerate() {
        let cell = if place == 0 { terrane_types::CellRef { value: b"changed", ..cell } } else { cell };
        terrane_types::cell::pack(&mut changed, cell);
    }
    if let Ok(changed) = PackedCells::stored(changed.into()) {
        *cells = changed;
    }
}

/// Records what a client no longer waits for.
fn settle_numbers(inner: &mut Inner, entry: &AppliedEntry, settle: &Settle) -> Result<Option<Reply>, Reply> {
    let hosted = inner.hosted.get(&settle.region).ok_or_else(|| inner.state.stale(settle.region))?;
    if entry.index <= hosted.opened_at {
        return Ok(None);
    }
    if let Some(window) = inner.windows.get_mut(&settle.region)
        && window.client(&settle.client).is_some()
    {
        window.update(settle.client, 0, entry.stamp).settle(&settle.under_way);
        hosted.engine.touch(entry.index);
    }
    Ok(None)
}
