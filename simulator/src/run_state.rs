//! The state of a run, shared by clients, nodes and faults on the simulation's thread.
//!
//! It is not part of the system under test: nodes record their metrics, clients record acknowledgements and failures, and
//! the main loop examines both between two steps. What a scenario checks is its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use crate::trace;
use crate::verdict::Failure;

/// How often clients look whether the tables exist.
const READY_EVERY: Duration = Duration::from_millis(10);

/// A handle to the state of the run.
#[derive(Clone, Default)]
pub struct RunState {
    inner: Rc<Inner>,
}

/// A host and its boot number.
type Incarnation = (&'static str, u32);
type Numbers = BTreeMap<String, f64>;

/// What has become of the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatalogState {
    #[default]
    Whole,
    /// The only master has lost its disk: the operator has to rebuild it.
    Lost,
    Rebuilt,
}

#[derive(Default)]
struct Inner {
    ready: Cell<bool>,
    over: Cell<bool>,
    acknowledged: Cell<u64>,
    /// Number of checks.
    checked: Cell<u64>,
    failure: RefCell<Option<Failure>>,
    /// Processes that exited, each with its host and the reason.
    exits: RefCell<Vec<(&'static str, String)>>,
    /// Servers that an operator has started by mistake, with the former build.
    mistaken: RefCell<BTreeSet<&'static str>>,
    /// The server whose disk is damaged: it may refuse to start, and stays down after the first phase.
    degraded: Cell<Option<&'static str>>,
    /// What its log has lost, so that it must not start.
    unreadable: RefCell<Option<String>>,
    /// How often each kind of fault struck.
    fault_counts: RefCell<BTreeMap<&'static str, u64>>,
    /// The last metrics by host and boot.
    numbers: RefCell<BTreeMap<Incarnation, Numbers>>,
    /// The master that said last that it leads, and since when it has said so.
    leading: Cell<Option<(&'static str, Duration)>>,
    catalog: Cell<CatalogState>,
    /// The hosts of processes that are masters, by their own account.
    masters: RefCell<BTreeSet<&'static str>>,
    /// Those of processes that were masters until they were removed.
    removed: RefCell<BTreeSet<&'static str>>,
    /// The log segments by host and boot.
    segments: RefCell<BTreeMap<Incarnation, Segments>>,
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
    pub fn fail(&self, failure: Failure) {
        trace::note(format_args!("FAILURE {}", failure.what));
        self.inner.failure.borrow_mut().get_or_insert(failure);
    }

    pub fn failure(&self) -> Option<Failure> {
        self.inner.failure.borrow().clone()
    }

    /// The tables exist: clients may start, and faults.
    pub fn ready(&self) {
        self.inner.ready.set(true);
    }

    pub fn is_ready(&self) -> bool {
        self.inner.ready.get()
    }

    /// Waits until the tables exist.
    pub async fn until_ready(&self) {
        while !self.is_ready() {
            tokio::time::sleep(READY_EVERY).await;
        }
    }

    /// Whether clients should stop: all faults are healed, and the first phase has lasted as long as planned.
    pub fn is_over(&self) -> bool {
        self.inner.over.get()
    }

    pub fn end(&self) {
        self.inner.over.set(true);
    }

    /// The process of this host exited.
    pub fn exit(&self, host: &'static str, why: String) {
        self.inner.exits.borrow_mut().push((host, why));
    }

    /// The process of this host may exit now: it was started by mistake.
    pub fn may_exit(&self, host: &'static str) {
        self.inner.mistaken.borrow_mut().insert(host);
    }

    /// Whether the process of this host was started by mistake; asked once.
    pub fn was_mistaken(&self, host: &'static str) -> bool {
        self.inner.mistaken.borrow_mut().remove(host)
    }

    /// The processes that exited since the last call.
    pub fn take_exits(&self) -> Vec<(&'static str, String)> {
        self.inner.exits.take()
    }

    /// The disk of this server is damaged for good.
    pub fn degrade(&self, host: &'static str) {
        self.inner.degraded.set(Some(host));
    }

    /// The server whose disk is damaged for good, if there is one.
    pub fn degraded(&self) -> Option<&'static str> {
        self.inner.degraded.get()
    }

    /// The degraded server must not start any more, because of this damage to its log; `None`: it may.
    pub fn expect_refusal(&self, damage: Option<String>) {
        self.inner.unreadable.replace(damage);
    }

    /// A server has started. With a damaged log it must not.
    pub fn serves(&self, host: &'static str) {
        let unreadable = self.inner.unreadable.borrow();
        if let (true, Some(damage)) = (self.degraded() == Some(host), &*unreadable) {
            let what = format!("{host} starts although its log is damaged, in {damage}, which was synced");
            self.fail(Failure { what, about: vec![host.to_owned()] });
        }
    }

    /// What has become of the catalog.
    pub fn catalog(&self) -> CatalogState {
        self.inner.catalog.get()
    }

    pub fn set_catalog(&self, is: CatalogState) {
        self.inner.catalog.set(is);
    }

    /// The process of this host is a master.
    pub fn becomes_master(&self, host: &'static str) {
        self.inner.masters.borrow_mut().insert(host);
    }

    /// The process of this host was a master, and has been removed.
    pub fn leaves_masters(&self, host: &'static str) {
        self.inner.masters.borrow_mut().remove(host);
        self.inner.removed.borrow_mut().insert(host);
    }

    /// The hosts of the masters, by their own account.
    pub fn masters(&self) -> BTreeSet<&'static str> {
        self.inner.masters.borrow().clone()
    }

    /// Whether the process of this host was a master once, and has been removed.
    pub fn was_removed(&self, host: &str) -> bool {
        self.inner.removed.borrow().contains(host)
    }

    /// A client received an acknowledgement.
    pub fn acknowledge(&self) {
        self.inner.acknowledged.set(self.acknowledged() + 1);
    }

    pub fn acknowledged(&self) -> u64 {
        self.inner.acknowledged.get()
    }

    /// A result was checked.
    pub fn checked(&self) {
        self.inner.checked.set(self.checks() + 1);
    }

    pub fn checks(&self) -> u64 {
        self.inner.checked.get()
    }

    /// A fault of this kind struck.
    pub fn count_fault(&self, kind: &'static str) {
        *self.inner.fault_counts.borrow_mut().entry(kind).or_default() += 1;
    }

    /// How often each kind of fault struck.
    pub fn fault_counts(&self) -> BTreeMap<&'static str, u64> {
        self.inner.fault_counts.borrow().clone()
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

    /// Records whether a master leads.
    pub fn leads(&self, host: &'static str, leads: bool) {
        if leads && self.leading_master().is_none_or(|(leading, _)| leading != host) {
            trace::note(format_args!("{host} leads the masters"));
            self.inner.leading.set(Some((host, trace::now())));
        }
        // If it leads again, it counts from then on, as another one would.
        if !leads && self.leading_master().is_some_and(|(leading, _)| leading == host) {
            self.inner.leading.set(Some((host, trace::now())));
        }
    }

    /// The master that said last that it leads, and since when it has said so.
    pub fn leading_master(&self) -> Option<(&'static str, Duration)> {
        self.inner.leading.get()
    }

    /// The last value of a metric of a host.
    pub fn number(&self, host: &'static str, name: &str) -> f64 {
        let numbers = self.inner.numbers.borrow();
        let newest = numbers.range((host, 0)..=(host, u32::MAX)).next_back();
        newest.and_then(|(_, numbers)| numbers.get(name)).copied().unwrap_or_default()
    }

    /// The highest of the last values that a metric of a host had at each of its starts.
    pub fn most(&self, host: &'static str, name: &str) -> f64 {
        let numbers = self.inner.numbers.borrow();
        let of_host = numbers.range((host, 0)..=(host, u32::MAX));
        of_host.filter_map(|(_, numbers)| numbers.get(name)).copied().fold(0.0, f64::max)
    }

    /// The sum of a counter over all boots of all nodes. Increments after the last record of a boot are missing, so it is a
    /// lower bound.
    pub fn total(&self, name: &str) -> u64 {
        let numbers = self.inner.numbers.borrow();
        numbers.values().filter_map(|numbers| numbers.get(name)).sum::<f64>() as u64
    }

    /// Log segments that were purged.
    pub fn purged(&self) -> u64 {
        self.inner.segments.borrow().values().map(|segments| segments.gone).sum()
    }
}
