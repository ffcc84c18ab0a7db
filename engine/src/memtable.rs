//! The memtable: the cells of one family of one region that no file holds yet.
//!
//! One writer, in log order; any number of readers, which never wait for it. Two parts:
//!
//! - the **active buffer**, a small skip list, takes single writes;
//! - **sorted runs** never change. A large batch becomes a run as it is, and so does a full active buffer. A batch
//!   therefore costs about one copy, and nothing is built for readers where there are none.
//!
//! Runs are merged lazily ([`merge`]): by readers that meet many, by the writer once there have been readers, and in
//! any case before there are too many. Once a buffer is read and no longer written, readers get a copy of it as a run.
//! All of it is published as one [`View`], so that one load gives a reader a consistent state.
//!
//! # How a write proceeds
//! 1. [`Memtable::insert`] or [`Memtable::insert_batch`]: the cells are present, but above every snapshot.
//! 2. The region publishes their sequence number, under the mutex of its snapshots, and learns the newest live snapshot
//!    at that moment. If step 1 said that something is replaced, it also closes the past to new snapshots in the same
//!    step.
//! 3. [`Memtable::remove_replaced`]: the older puts between that snapshot and the new put are removed.
//!
//! No reader misses them. A reader whose snapshot is taken after step 2 is at or above the new put and finds it,
//! because it was inserted before. A reader whose snapshot was taken before step 2 is counted: the newest of those
//! lives at or above it, and what it sees is at or below that one, so it stays. Between steps 2 and 3 no snapshot is
//! taken at a lower number. The order of reading is safe too: a reader takes its snapshot before it loads the view.
//! It then checks that the copy of the buffer is current: the check counts every insert made before the snapshot was taken.
//!
//! # Invariants
//! - Every cell of a live snapshot is in every view loaded after the snapshot was taken.
//! - Runs never change; a view is replaced as a whole, under `changing`: by the writer, by one merge at a time, and where
//!   a copy comes or goes.
//! - Only the active buffer of the current view takes writes, and only the writer replaces it.

mod active;
mod cursor;
mod filter;
mod idle_detector;
mod merge;
mod run;
mod view;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use terrane_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrane_env::sync::{Mutex, is_planted, limit};
use terrane_types::CellKind;

use self::active::Active;
use self::cursor::MemtableCursor;
use self::idle_detector::IdleDetector;
use self::merge::Dropping;
pub(crate) use self::merge::{Limits, Retention};
use self::run::SortedRun;
use self::view::{CurrentView, DueMerges, View, sizes};
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::Portion;
use crate::row_heads::Prefix;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};

/// A batch of this many cells becomes a run; a smaller one goes to the active buffer.
const RUN_CELLS_MIN: usize = limit(512, 3);
/// A batch of this many bytes becomes a run too.
const RUN_BYTES_MIN: usize = 512 << 10;
/// The most cells that a merge of runs full of replaced puts reads: it writes far fewer.
const MERGE_CELLS_REPLACED: usize = 256 << 10;
/// Cells of a new run that are looked up in the older ones, to see whether the same columns are written repeatedly.
const SAMPLES: usize = 8;
/// Older runs in which they are looked up.
const SAMPLED_RUNS: usize = 24;
/// One version is not kept.
const NEVER: u64 = u64::MAX;

/// Cells of one family.
pub(crate) struct Memtable {
    view: CurrentView,
    /// Held while the view is replaced by one made from it: for as long as it takes to copy a list of pointers.
    changing: Mutex<()>,
    /// Held by a running merge; never waited for.
    merging: Mutex<()>,
    /// Whether there was a read since the writer looked last.
    was_read: AtomicBool,
    /// Whether there was a read since the last idle merge.
    is_read: AtomicBool,
    /// What the calls of [`Memtable::look`] have found.
    idle_detector: Mutex<IdleDetector>,
    /// Whether the buffer was still at the last of them, and a copy is due.
    is_still: AtomicBool,
    /// The sequence number since which the family keeps one version and no deleted cells; [`NEVER`] when it does not.
    one_version_since: AtomicU64,
    retention: Option<Arc<dyn Retention>>,
}

/// Puts of a batch that replace older ones, for [`Memtable::remove_all_replaced`] once they are published.
#[derive(Debug, Default)]
pub(crate) struct ReplacedPuts {
    cells: Cells,
    which: Vec<usize>,
}

impl ReplacedPuts {
    pub(crate) fn is_empty(&self) -> bool {
        self.which.is_empty()
    }
}

impl Default for Memtable {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Memtable {
    /// An empty memtable that drops nothing until [`Memtable::set_one_version`] is called. Without `retention` its runs
    /// keep everything.
    pub(crate) fn new(retention: Option<Arc<dyn Retention>>) -> Self {
        Self {
            view: CurrentView::new(View::new(Arc::new(Active::new(Prefix::default())), Vec::new())),
            changing: Mutex::new(()),
            merging: Mutex::new(()),
            was_read: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            idle_detector: Mutex::new(IdleDetector::default()),
            is_still: AtomicBool::new(false),
            one_version_since: AtomicU64::new(NEVER),
            retention,
        }
    }

    /// From the write with this sequence number on, the family keeps one version and no deleted cells, so that a put
    /// replaces older ones; `None` when it does not, or no longer.
    pub(crate) fn set_one_version(&self, since: Option<u64>) {
        self.one_version_since.store(since.unwrap_or(NEVER), Ordering::Release);
    }

    /// Inserts a cell of the current write. Returns whether it replaces a put, which [`Memtable::remove_replaced`] will
    /// remove once the write is published.
    pub(crate) fn insert(&self, cell: Cell<'_>) -> bool {
        let mut view = self.view.load();
        if view.active.is_full() || terrane_env::buggify!("a buffer of a memtable counts as full", 8) {
            drop(view);
            self.rotate();
            view = self.view.load();
        }
        let replaces = cell.kind == CellKind::Put && cell.sequence >= self.one_version_since.load(Ordering::Relaxed);
        view.active.insert(cell, replaces)
    }

    /// Inserts the cells of many row mutations, in any order; all of them are above what is published. A large batch
    /// becomes a run. Returns the puts that replace others.
    pub(crate) fn insert_batch(&self, mut cells: Cells) -> ReplacedPuts {
        let run_cells = terrane_env::limit!("cells worth a run of their own", RUN_CELLS_MIN, 1..=8);
        if cells.len() < run_cells && cells.data_bytes() < RUN_BYTES_MIN {
            let which = cells.iter().enumerate().filter(|(_, cell)| self.insert(*cell)).map(|(at, _)| at).collect();
            return ReplacedPuts { cells, which };
        }
        cells.sort_from(0);
        if let Some(run) = SortedRun::new(cells) {
            self.push_run(run, None);
        }
        ReplacedPuts::default()
    }

    /// After the write of `cell`, a put, was published: removes the puts directly below it in the active buffer that
    /// are newer than `newest_snapshot`, the newest snapshot that was live when it was published. Returns whether
    /// anything was removed. What is in a run stays until a merge.
    pub(crate) fn remove_replaced(&self, cell: Cell<'_>, newest_snapshot: Option<u64>) -> bool {
        self.view.load().active.remove_replaced(&cell, newest_snapshot)
    }

    /// The same for a batch.
    pub(crate) fn remove_all_replaced(&self, replacing: &ReplacedPuts, newest_snapshot: Option<u64>) -> bool {
        let mut removed = false;
        for at in &replacing.which {
            removed |= self.remove_replaced(replacing.cells.get(*at), newest_snapshot);
        }
        removed
    }

    /// Bytes of memory held, without a copy of the buffer: what a flush frees for good.
    pub(crate) fn bytes(&self) -> u64 {
        let view = self.view.load();
        view.run_bytes + view.active.bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let view = self.view.load();
        view.runs.is_empty() && view.active.is_empty()
    }

    /// Ends the writes: the active buffer becomes a run. Nothing is dropped from here on, because snapshots of other
    /// regions (the daughters of a split) may read what is sealed.
    pub(crate) fn seal(&self) {
        self.set_one_version(None);
        if !self.view.load().active.is_empty() {
            self.rotate();
        }
    }

    /// Whether a longer merge would make reads cheaper, on a thread that has time; see [`Memtable::merge_once`].
    pub(crate) fn wants_merge(&self) -> bool {
        let view = self.view.load();
        let of_readers = view.due.idle.is_some() || self.is_still.load(Ordering::Relaxed);
        view.due.long.is_some() || (of_readers && self.is_read.load(Ordering::Relaxed))
    }

    /// Checks for inserts since the last call: after some intervals without any, mostly one, a copy of the buffer is due
    /// unless it takes more than `room` bytes. Drops a stale copy. Returns the bytes that the present or the due copy takes.
    /// Call it periodically, from one thread.
    pub(crate) fn look(&self, room: u64) -> u64 {
        let view = self.view.load_full();
        let (copied, is_stale) = (view.copied_bytes(), view.has_stale_copy());
        let is_still = self.idle_detector.lock().look(view.active.inserts(), is_stale);
        let bytes = view.active.bytes();
        let is_due = is_still && copied == 0 && bytes > 0 && bytes <= room;
        self.is_still.store(is_due, Ordering::Relaxed);
        if is_stale {
            let _changing = self.changing.lock();
            let view = self.view.load_full();
            if view.has_stale_copy() {
                self.view.store(View::new(Arc::clone(&view.active), view.runs.clone()));
            }
            return 0;
        }
        if is_due { bytes } else { copied }
    }

    /// Does the merge that is due, unless one is running. Returns whether it did.
    pub(crate) fn merge_once(&self) -> bool {
        if self.merge_due(|due| due.long.clone()) {
            return true;
        }
        // Cells are copied once more for the sake of readers: without reads since the last copy, there is no further
        // one.
        if !self.is_read.swap(false, Ordering::Relaxed) {
            return false;
        }
        let settled = self.is_still.swap(false, Ordering::Relaxed) && self.settle();
        self.merge_due(|due| due.idle.clone()) || settled
    }

    /// Gives readers a copy of the active buffer, unless cells are inserted meanwhile.
    fn settle(&self) -> bool {
        let view = self.view.load_full();
        if view.is_settled() {
            return false;
        }
        // Counted before anything is copied: an insert that the copy misses makes it stale.
        let mut inserts = view.active.inserts();
        let Some(copy) = SortedRun::new(view.active.cells()) else { return false };
        if is_planted("inserts are counted after the copy") {
            inserts = view.active.inserts();
        }
        // Before it is published, so that no reader has to build it.
        copy.filter();
        let _changing = self.changing.lock();
        let current = self.view.load_full();
        if !Arc::ptr_eq(&current.active, &view.active) || current.active.inserts() != inserts {
            return false;
        }
        let next = View::new(Arc::clone(&current.active), current.runs.clone());
        self.view.store(next.with_copy(inserts, Arc::new(copy)));
        true
    }

    /// Turns the active buffer into a run, and starts a new buffer.
    fn rotate(&self) {
        let view = self.view.load_full();
        let Some(run) = SortedRun::new(view.active.cells()) else { return };
        let next = Active::new(run.prefix().clone());
        self.push_run(run, Some(Arc::new(next)));
    }

    /// Publishes a new run, together with a new active buffer where the run is the old one.
    fn push_run(&self, run: SortedRun, active: Option<Arc<Active>>) {
        let run = Arc::new(run);
        let overwrites = self.retention.is_some() && self.overwrites(&run);
        {
            let _changing = self.changing.lock();
            let view = self.view.load_full();
            let mut runs = Vec::with_capacity(view.runs.len() + 1);
            runs.extend_from_slice(&view.runs);
            runs.push(run);
            self.view.store(match active {
                Some(active) => View::new(active, runs),
                None => view.with_runs(runs),
            });
        }
        if overwrites {
            self.merge_replaced();
        }
        // As long as this makes merges of the next tier due.
        while self.merge_due(|due| due.at_once.clone()) {}
        if self.was_read.load(Ordering::Relaxed) {
            self.was_read.store(false, Ordering::Relaxed);
            self.merge_due(|due| due.short.clone());
        }
    }

    /// Whether most columns of a run are also in older runs, judged by a sample.
    fn overwrites(&self, run: &SortedRun) -> bool {
        if self.one_version_since.load(Ordering::Relaxed) == NEVER {
            return false;
        }
        let view = self.view.load();
        let step = run.cells().len().div_ceil(SAMPLES);
        let mut known = 0;
        let mut samples = 0;
        for index in (0..run.cells().len()).step_by(step) {
            let cell = run.cells().get(index);
            samples += 1;
            let older = view.runs.iter().rev().take(SAMPLED_RUNS);
            known += usize::from(older.into_iter().any(|older| older.has_column(cell.row, cell.qualifier)));
        }
        known * 2 >= samples
    }

    /// Merges runs that write the same columns, to drop what is replaced.
    fn merge_replaced(&self) {
        let Some(_merging) = self.merging.try_lock() else { return };
        let view = self.view.load_full();
        if let Some(window) = merge::pick_replaced(&sizes(&view.runs), MERGE_CELLS_REPLACED) {
            self.merge(&view.runs[window]);
        }
    }

    /// Does a merge that is due; returns whether it did.
    fn merge_due(&self, which: impl Fn(&DueMerges) -> Option<Range<usize>>) -> bool {
        if which(&self.view.load().due).is_none() {
            return false;
        }
        let Some(_merging) = self.merging.try_lock() else { return false };
        let view = self.view.load_full();
        // It may just have been done.
        let Some(window) = which(&view.due) else { return false };
        self.merge(&view.runs[window])
    }

    /// Merges neighbouring runs, outside of any lock that others wait for, and replaces them by the result.
    fn merge(&self, inputs: &[Arc<SortedRun>]) -> bool {
        let since = self.one_version_since.load(Ordering::Acquire);
        let dropping =
            self.retention.as_deref().filter(|_| since != NEVER).map(|retention| Dropping::new(retention, since));
        let Some(merged) = merge::merge(inputs, dropping) else { return false };
        if inputs.iter().any(|run| run.has_filter()) {
            // Before it is published, so that no reader has to build it.
            merged.filter();
        }
        let outdated = is_planted("a merge replaces the view that it began with").then(|| self.view.load_full());
        let _changing = self.changing.lock();
        let view = outdated.unwrap_or_else(|| self.view.load_full());
        let same = |window: &[Arc<SortedRun>]| window.iter().zip(inputs).all(|(a, b)| Arc::ptr_eq(a, b));
        let Some(first) = view.runs.windows(inputs.len()).position(same) else { return false };
        let mut runs = view.runs.clone();
        runs.splice(first..first + inputs.len(), [Arc::new(merged)]);
        self.view.store(view.with_runs(runs));
        true
    }

    /// Notes a read, and does a merge that is due for the sake of later readers.
    fn note_read(&self, due: &DueMerges, reading: Reading) {
        if !reading.fills_cache {
            // A flush reads everything once: it merges as it goes.
            return;
        }
        if !self.was_read.load(Ordering::Relaxed) {
            self.was_read.store(true, Ordering::Relaxed);
        }
        if !self.is_read.load(Ordering::Relaxed) {
            self.is_read.store(true, Ordering::Relaxed);
        }
        if reading.blocking && due.long.is_some() {
            self.merge_due(|due| due.long.clone());
        } else if due.short.is_some() {
            self.merge_due(|due| due.short.clone());
        }
    }
}

impl Source for Memtable {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        let RowLookup { key, sought, reading, bytes_max } = *lookup;
        let current = self.view.load();
        let view = current.for_reading();
        let (first, mut portion) = (out.len(), Portion::begin(out, bytes_max, sought));
        let mut is_all = view.active.push_row(key.row, sought, &mut portion, out);
        let mut parts = usize::from(out.len() > first);
        for run in view.runs.iter().rev() {
            if !is_all {
                return Ok(false);
            }
            if let Some(index) = run.look_up(&key) {
                is_all = run.push_row(index, sought, &mut portion, out);
                parts += 1;
            }
        }
        if parts > 1 {
            out.sort_from(first);
        }
        self.note_read(&current.due, reading);
        Ok(is_all)
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        // Before the cursor takes its view: a scan is worth a merge.
        self.note_read(&self.view.load().due, reading);
        let view = Arc::clone(self.view.load().for_reading());
        Ok(Box::new(MemtableCursor::new(view, bounds, reverse)))
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view.load();
        let runs: Vec<_> = view.runs.iter().map(|run| run.cells().len()).collect();
        out.debug_struct("Memtable").field("active", &view.active).field("runs", &runs).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod model_tests;

#[cfg(test)]
mod racing_tests;
