//! What readers of a memtable take in one load: the active buffer, the runs, and which merges of them are due.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use terrane_env::sync::{is_planted, limit, point};

use super::active::Active;
use super::merge;
use super::run::SortedRun;
use crate::row_heads::Prefix;

/// Runs that a reader tolerates.
const READ_RUNS_MAX: usize = limit(12, 3);
/// The most runs without readers.
const RUNS_MAX: usize = limit(64, 5);
/// The most cells that an incidental merge writes, done by the writer or by a reader that must not wait: a few
/// milliseconds.
const MERGE_CELLS_SHORT: usize = 16 << 10;
/// The most cells that a merge by a reader that may wait writes.
const MERGE_CELLS_LONG: usize = 64 << 10;
/// The most cells that a merge on an idle thread writes, where there are readers: a fraction of a second. It also
/// bounds the memory that runs and their merge take meanwhile.
const MERGE_CELLS_IDLE: usize = 2 << 20;
/// Runs that such a merge leaves: every seek looks into each of them, and no filter avoids it.
const IDLE_RUNS_MAX: usize = limit(4, 2);

/// What a reader takes in one load.
pub(super) struct View {
    pub(super) active: Arc<Active>,
    /// Oldest first; what readers of a copy see has the copy last.
    pub(super) runs: Vec<Arc<SortedRun>>,
    /// Bytes of the runs.
    pub(super) run_bytes: u64,
    /// The common beginning of the rows of all runs.
    pub(super) prefix: Prefix,
    pub(super) due: DueMerges,
    settled: Option<CachedView>,
}

/// The same view with a copy of the active buffer as one more run, for readers until the next insert. To search a run costs
/// a fraction of what the skip list costs, and its filter turns most rows away.
struct CachedView {
    /// [`Active::inserts`] before the buffer was copied.
    inserts: u64,
    copy: Arc<SortedRun>,
    view: Arc<View>,
}

/// The merges that are due, decided once per list of runs.
#[derive(Clone, Debug, Default)]
pub(super) struct DueMerges {
    pub(super) short: Option<Range<usize>>,
    pub(super) long: Option<Range<usize>>,
    /// Worth it where there are readers and a thread is idle.
    pub(super) idle: Option<Range<usize>>,
    /// There are too many runs, read or not.
    pub(super) at_once: Option<Range<usize>>,
}

/// The view as of now.
pub(super) struct CurrentView(ArcSwap<View>);

impl CurrentView {
    pub(super) fn new(view: View) -> Self {
        Self(ArcSwap::from_pointee(view))
    }

    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<View>> {
        point();
        self.0.load()
    }

    #[inline]
    pub(super) fn load_full(&self) -> Arc<View> {
        point();
        self.0.load_full()
    }

    pub(super) fn store(&self, view: View) {
        point();
        self.0.store(Arc::new(view));
    }
}

impl View {
    pub(super) fn new(active: Arc<Active>, runs: Vec<Arc<SortedRun>>) -> Self {
        let run_bytes = runs.iter().map(|run| run.memory_bytes() as u64).sum();
        let prefix = match runs.split_first() {
            Some((first, rest)) => rest.iter().fold(first.prefix().clone(), |all, run| all.common_with(run.prefix())),
            None => Prefix::default(),
        };
        let due = DueMerges::of(&runs);
        Self { active, runs, run_bytes, prefix, due, settled: None }
    }

    /// The view with other runs and the same active buffer.
    pub(super) fn with_runs(&self, runs: Vec<Arc<SortedRun>>) -> Self {
        let view = Self::new(Arc::clone(&self.active), runs);
        match &self.settled {
            Some(settled) => view.with_copy(settled.inserts, Arc::clone(&settled.copy)),
            None => view,
        }
    }

    /// Adds a copy of the active buffer, taken after `inserts` inserts.
    pub(super) fn with_copy(mut self, inserts: u64, copy: Arc<SortedRun>) -> Self {
        let mut runs = Vec::with_capacity(self.runs.len() + 1);
        runs.extend_from_slice(&self.runs);
        runs.push(Arc::clone(&copy));
        let view = Arc::new(Self::new(Arc::new(Active::new(Prefix::default())), runs));
        self.settled = Some(CachedView { inserts, copy, view });
        self
    }

    /// Whether readers use a copy of the active buffer.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| {
            settled.inserts == self.active.inserts() || is_planted("a copy of a buffer serves after the next insert")
        })
    }

    /// Whether there is a copy that misses later inserts.
    pub(super) fn has_stale_copy(&self) -> bool {
        self.settled.is_some() && !self.is_settled()
    }

    /// Bytes of the copy.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.settled.as_ref().map_or(0, |settled| settled.copy.memory_bytes() as u64)
    }

    /// What a reader searches. Its snapshot is taken already: what is inserted from now on is above that.
    #[inline]
    pub(super) fn for_reading(self: &Arc<Self>) -> &Arc<Self> {
        match &self.settled {
            Some(settled) if self.is_settled() => &settled.view,
            _ => self,
        }
    }
}

impl DueMerges {
    fn of(runs: &[Arc<SortedRun>]) -> Self {
        if runs.len() <= IDLE_RUNS_MAX {
            return Self::default();
        }
        let sizes = sizes(runs);
        let idle = merge::pick_idle(&sizes, MERGE_CELLS_IDLE);
        if runs.len() <= READ_RUNS_MAX {
            return Self { idle, ..Self::default() };
        }
        Self {
            idle,
            short: merge::pick(&sizes, MERGE_CELLS_SHORT),
            long: merge::pick(&sizes, MERGE_CELLS_LONG),
            at_once: if runs.len() > RUNS_MAX { merge::pick_any(&sizes) } else { None },
        }
    }
}

/// The cells and bytes of data of each run.
pub(super) fn sizes(runs: &[Arc<SortedRun>]) -> Vec<(usize, usize)> {
    runs.iter().map(|run| (run.cells().len(), run.cells().data_bytes())).collect()
}
