//! The state of a run, shared by clients, nodes and faults on the simulation's thread.
//!
//! It is not part of the system under test: nodes record their metrics, clients record their writes and reads, and the
//! main loop examines both between two steps.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Arguments;
use std::rc::Rc;
use std::time::Duration;

use terrane_types::KeyRange;

use super::{Summary, trace};
use crate::ledger::{Ledger, Verdict};
use crate::oracle::{History, Read};

/// A handle to the state of the run.
#[derive(Clone, Default)]
pub struct RunState {
    inner: Rc<Inner>,
}

/// A host and its boot number.
type Life = (&'static str, u32);
type Numbers = BTreeMap<String, f64>;

#[derive(Default)]
struct Inner {
    history: RefCell<History>,
    ledger: RefCell<Ledger>,
    /// Number of checks by the ledger.
    judged: Cell<u64>,
    /// Keys with a write whose outcome was unknown for a while, so that it may have been applied twice.
    doubtful: RefCell<BTreeSet<Vec<u8>>>,
    table_created: Cell<bool>,
    rows_written: Cell<usize>,
    faults_over: Cell<bool>,
    failure: RefCell<Option<String>>,
    /// The last metrics by host and boot.
    numbers: RefCell<BTreeMap<Life, Numbers>>,
    /// The log segments by host and boot.
    segments: RefCell<BTreeMap<Life, Segments>>,
    regions: Cell<u64>,
}

#[derive(Default)]
struct Segments {
    there: BTreeSet<String>,
    gone: u64,
}

impl RunState {
    pub fn new() -> RunState {
        RunState::default()
    }

    /// Fails the run; the first failure counts.
    pub fn fail(&self, what: Arguments<'_>) {
        trace::note(format_args!("FAILURE {what}"));
        self.inner.failure.borrow_mut().get_or_insert_with(|| what.to_string());
    }

    pub fn failure(&self) -> Option<String> {
        self.inner.failure.borrow().clone()
    }

    pub fn table_is_created(&self) {
        self.inner.table_created.set(true);
    }

    /// Waits until the table is created.
    pub async fn table_created(&self) {
        while !self.inner.table_created.get() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether clients should stop: all rows are written and all faults are over.
    pub fn is_over(&self) -> bool {
        self.inner.faults_over.get() && self.rows_written() >= crate::plan::ROWS
    }

    pub fn faults_are_over(&self) {
        self.inner.faults_over.set(true);
    }

    /// Rows with at least one acknowledged write.
    pub fn rows_written(&self) -> usize {
        self.inner.rows_written.get()
    }

    /// Starts a write; returns its number.
    pub fn attempt(&self, key: &[u8]) -> u64 {
        self.inner.history.borrow_mut().attempt(key)
    }

    pub fn acknowledge(&self, who: &str, key: &[u8], number: u64) {
        trace::note(format_args!("{who} wrote {}={number}", key.escape_ascii()));
        self.inner.history.borrow_mut().acknowledge(key, number);
        if number == 1 && key.starts_with(crate::plan::ROW_PREFIX) {
            self.inner.rows_written.set(self.rows_written() + 1);
        }
    }

    /// The ledger of operations that must count exactly once.
    pub fn ledger(&self) -> RefMut<'_, Ledger> {
        self.inner.ledger.borrow_mut()
    }

    /// Records a verdict of the ledger; a violation fails the run.
    pub fn judge(&self, who: &str, what: &[u8], verdict: Verdict) {
        self.inner.judged.set(self.inner.judged.get() + 1);
        if let Err(violation) = verdict {
            self.fail(format_args!("{who}: {} {violation}", what.escape_ascii()));
        }
    }

    /// An operation was acknowledged; counts as a written row.
    pub fn advance(&self) {
        self.inner.rows_written.set(self.rows_written() + 1);
    }

    /// Records that a write of `key` has an unknown outcome.
    pub fn doubt(&self, key: &[u8]) {
        self.inner.doubtful.borrow_mut().insert(key.to_vec());
    }

    pub fn is_doubtful(&self, key: &[u8]) -> bool {
        self.inner.doubtful.borrow().contains(key)
    }

    pub fn begin_read(&self, key: &[u8]) -> Read {
        self.inner.history.borrow().begin_read(key)
    }

    pub fn begin_scan(&self, range: &KeyRange) -> BTreeMap<Vec<u8>, Read> {
        self.inner.history.borrow().begin_scan(range)
    }

    /// Checks a read; a violation fails the run.
    pub fn end_read(&self, who: &str, read: Read, got: u64) {
        if let Err(violation) = self.inner.history.borrow_mut().end_read(read, got) {
            self.fail(format_args!("{who}: {violation}"));
        }
    }

    pub fn acknowledged(&self) -> u64 {
        self.inner.history.borrow().acknowledged() + self.inner.ledger.borrow().counts().0
    }

    pub fn certain_keys(&self) -> u64 {
        self.inner.history.borrow().certain_keys()
    }

    /// Records the present metrics of a node.
    pub fn show(&self, host: &'static str, boot: u32, numbers: Numbers) {
        self.inner.numbers.borrow_mut().insert((host, boot), numbers);
    }

    /// Records the present log segments of a node; those that disappeared were purged.
    pub fn show_segments(&self, host: &'static str, boot: u32, names: impl IntoIterator<Item = String>) {
        let mut segments = self.inner.segments.borrow_mut();
        let segments = segments.entry((host, boot)).or_default();
        // The preallocated segment does not count.
        let there: BTreeSet<String> = names.into_iter().filter(|name| name.ends_with(".log")).collect();
        segments.gone += segments.there.difference(&there).count() as u64;
        segments.there = there;
    }

    pub fn show_regions(&self, regions: usize) {
        self.inner.regions.set(regions as u64);
    }

    /// The last value of a metric of a host.
    pub fn number(&self, host: &'static str, name: &str) -> f64 {
        let numbers = self.inner.numbers.borrow();
        let newest = numbers.range((host, 0)..=(host, u32::MAX)).next_back();
        newest.and_then(|(_, numbers)| numbers.get(name)).copied().unwrap_or_default()
    }

    /// The progress of the run, for a run that is stuck.
    pub fn progress(&self) -> String {
        format!(
            "{} of {} rows written, {} writes acknowledged, faults {}",
            self.rows_written(),
            crate::plan::ROWS,
            self.acknowledged(),
            if self.inner.faults_over.get() { "over" } else { "not over" }
        )
    }

    pub fn summary(&self, simulated: Duration) -> Summary {
        let numbers = self.inner.numbers.borrow();
        // Counters restart at every boot. Increments after the last record of a boot are missing, so totals are lower
        // bounds.
        let total = |name: &str| numbers.values().filter_map(|numbers| numbers.get(name)).sum::<f64>() as u64;
        let (_, refused, unknown) = self.inner.ledger.borrow().counts();
        Summary {
            simulated,
            acknowledged: self.acknowledged(),
            refused,
            unknown,
            reads: self.inner.history.borrow().reads() + self.inner.judged.get(),
            flushes: total("terrane_server_flushes_total"),
            splits: total("terrane_server_splits_total"),
            purges: self.inner.segments.borrow().values().map(|segments| segments.gone).sum(),
            regions: self.inner.regions.get(),
        }
    }
}
