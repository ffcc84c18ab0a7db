//! Checks of the cluster as a whole, in every run, whatever its scenario.
//!
//! - While faults occur, a client asks the master again and again ([`status`]): the map of regions is right in every answer
//!   ([`terrane_oracle::meta`]), and a server that has been down or cut off from the master for long is
//!   named.
//! - The events that the master lists follow from each other, and it counts no more load than there was ([`chronicle`]).
//! - After everything is healed, and after the power cut of all nodes, the cluster works again within a stated time
//!   ([`liveness`]): the master finds nothing wrong, and every region takes a read and a write.
//! - Then the replicas of every group reach the same applied index and hold the same ([`digests`]), and the servers have
//!   returned what requests took from their budgets ([`returned`]).
//! - In some runs two servers are lost with everything else in order, and the operator recovers the groups that have lost their
//!   majority ([`lost_majority`]).
//! - In some runs the only master loses its disk then, and the catalog is rebuilt ([`rebuilt_catalog`]).
//! - In some runs an operator changes the masters meanwhile ([`masters_change`]).
//! - A server whose disk was damaged holds what the others hold, or finds the damage ([`damaged`]).
//! - No node takes more memory than any legal run needs ([`crate::memory`]), and no limited resource exceeds its limit.
//! - Leaders per term and log entries are compared where they occur (`terrane_env::witness!`).

pub mod changed_cell;
pub mod chronicle;
pub mod damaged;
mod digests;
mod ended;
pub mod liveness;
pub mod lost_majority;
pub mod masters_change;
mod new_table;
pub mod rebuilt_catalog;
mod returned;
pub mod status;
pub mod strangers;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use terrane_oracle::events::Events;
use terrane_oracle::held::Held;
use terrane_oracle::load_history::LoadHistory;
use terrane_oracle::meta::RegionMap;
use terrane_oracle::resources;
use terrane_regionserver::GroupDigest;

use crate::memory;
use crate::run_state::RunState;
use crate::trace;
use crate::verdict::Failure;
use digests::Digests;

type Host = &'static str;

/// Memory that a node may take: several times what the largest of many runs took (9 MiB).
const NODE_BYTES_MAX: i64 = 96 << 20;
/// The same of the whole process.
const ALL_BYTES_MAX: usize = 1_536 << 20;
/// Steps between two looks at hosts and memory.
const STEPS_PER_LOOK: u64 = 32;

/// What is known of the cluster as a whole.
#[derive(Clone, Default)]
pub struct Watch {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    steps: Cell<u64>,
    map: RefCell<RegionMap>,
    /// Since when each running host runs, and each other host does not.
    up: RefCell<BTreeMap<Host, Duration>>,
    down: RefCell<BTreeMap<Host, Duration>>,
    /// Since when the master hears nothing from each host that it cannot hear.
    cut_off: RefCell<BTreeMap<Host, Duration>>,
    events: RefCell<Events>,
    counted: RefCell<LoadHistory>,
    /// A known load was put on a table of its own.
    load_was_known: Cell<bool>,
    digests: RefCell<Digests>,
    digests_wanted: Cell<bool>,
    held: RefCell<Held>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
    peak_bytes: Cell<i64>,
}

/// Compares what HBase's clients received with what servers counted.
fn uncounted() -> Option<String> {
    let received = terrane_env::sim::tally_of("bytes of large answers that HBase's clients received");
    resources::uncounted(received, terrane_env::sim::tally_of("bytes of answers that were counted"))
}

impl Watch {
    /// A host's process starts.
    pub fn started(&self, host: Host) {
        self.inner.up.borrow_mut().insert(host, now());
        self.inner.down.borrow_mut().remove(host);
        memory::forget(host);
    }

    /// Since when nothing that the host sends reaches the master; `None`: it does.
    pub fn cut_off(&self, host: Host, since: Option<Duration>) {
        let mut cut_off = self.inner.cut_off.borrow_mut();
        match since {
            Some(since) => _ = cut_off.insert(host, since),
            None => _ = cut_off.remove(host),
        }
    }

    /// Looks at the hosts after a step of the simulation.
    pub fn step(&self, sim: &mut turmoil::Sim<'static>, hosts: impl Iterator<Item = Host>, state: &RunState) {
        let steps = self.inner.steps.get() + 1;
        self.inner.steps.set(steps);
        if !steps.is_multiple_of(STEPS_PER_LOOK) {
            return;
        }
        for host in hosts {
            if sim.is_host_running(host) {
                self.inner.down.borrow_mut().remove(host);
            } else {
                self.inner.down.borrow_mut().entry(host).or_insert(sim.elapsed());
            }
            let bytes = memory::of(host);
            self.inner.peak_bytes.set(self.inner.peak_bytes.get().max(bytes));
            if bytes > NODE_BYTES_MAX {
                state.fail(Failure::new(format!("{host} holds {} MiB of memory", bytes >> 20)));
            }
        }
        let all = memory::of_process();
        if all > ALL_BYTES_MAX {
            state.fail(Failure::new(format!("all nodes and clients hold {} MiB of memory", all >> 20)));
        }
    }

    /// The metrics of a node: none of its limited resources exceeds its limit.
    pub fn check_resources(&self, host: Host, numbers: &BTreeMap<String, f64>, state: &RunState) {
        if let Some(excess) = resources::excess(numbers).or_else(uncounted) {
            state.fail(Failure { what: format!("{host}: {excess}"), about: vec![host.to_owned()] });
        }
        self.inner.held.borrow_mut().look(host, numbers);
        self.count("resources within limits");
    }

    /// Whether nodes should report their digests.
    pub fn wants_digests(&self) -> bool {
        self.inner.digests_wanted.get()
    }

    /// What a node's replicas hold: it must be what others held at the same index.
    pub fn compare(&self, host: Host, seen: &[Result<GroupDigest, terrane_engine::Error>], state: &RunState) {
        for digest in seen {
            match digest {
                Ok(digest) => self.compare_group(host, digest, state),
                Err(error) if state.degraded() == Some(host) => {
                    self.count("damage found by a digest");
                    trace::note(format_args!("{host} finds damage: {error}"));
                }
                Err(error) => {
                    let what = format!("{host} cannot read its rows: {error}");
                    state.fail(Failure { what, about: vec![host.to_owned()] });
                }
            }
        }
    }

    fn compare_group(&self, host: Host, digest: &GroupDigest, state: &RunState) {
        self.count(if state.degraded() == Some(host) { "digests of damaged servers" } else { "digests" });
        if let Err(difference) = self.inner.digests.borrow_mut().add(host, digest) {
            let about = vec![format!("group {}", digest.group), format!("group={}", digest.group)];
            state.fail(Failure { what: difference, about });
        }
    }

    /// How often each check was made.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.inner.counts.borrow().clone();
        counts.insert("peak KiB of a node", u64::try_from(self.inner.peak_bytes.get() >> 10).unwrap_or(0));
        counts
    }

    fn count(&self, what: &'static str) {
        *self.inner.counts.borrow_mut().entry(what).or_default() += 1;
    }
}

/// The simulated time.
fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}
