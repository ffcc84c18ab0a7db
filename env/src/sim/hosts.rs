//! Hosts, and the processes on them that end themselves.
//!
//! A host is known by the id of its tokio runtime, which it registers at each start, because a crash gives it another
//! runtime. A runtime that registers nothing is a host without a name. Its disk and its clock cannot be steered, and a crash
//! takes its disk away.
//!
//! A process ends itself through [`crate::task::abort_process`]. Its task unwinds, and until the harness has crashed and
//! restarted the host, the rest of the process is mute: its disk operations never return and it sends nothing.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt;
use tokio::runtime::{Handle, Id};

use super::clocks::Clock;
use super::disks::DiskState;
use super::{HostId, STATE, State, with_state};

thread_local! {
    /// How many hosts are exiting: almost always none, which spares every packet and file operation a look at the rest.
    static EXITING: Cell<usize> = const { Cell::new(0) };
}

#[derive(Default)]
pub(super) struct Hosts {
    list: Vec<Host>,
    /// Also of earlier lives, whose destructors may still look.
    by_runtime: HashMap<Id, HostId>,
    exits_allowed: bool,
    exits: Vec<(&'static str, String)>,
    /// Changes that were ordered for a host and not made yet.
    ordered: BTreeSet<(&'static str, &'static str)>,
    /// How long all machines have been suspended.
    pub(super) suspended: Duration,
}

pub(super) struct Host {
    /// Empty for a runtime that registered nothing.
    name: &'static str,
    pub(super) disk: DiskState,
    pub(super) clock: Clock,
    exiting: bool,
}

/// The payload with which a task unwinds whose process ended itself.
#[derive(Clone, Debug)]
pub struct ProcessExit {
    /// The host of the process.
    pub host: &'static str,
    /// The reason it gave.
    pub message: String,
}

impl State {
    fn add_host(&mut self, name: &'static str) -> HostId {
        let disk = DiskState::new(self.seed, name);
        self.hosts.list.push(Host { name, disk, clock: Clock::default(), exiting: false });
        HostId(self.hosts.list.len() - 1)
    }

    /// The host of this name, which exists from now on.
    pub(super) fn host_id(&mut self, name: &'static str) -> HostId {
        match self.hosts.list.iter().position(|host| host.name == name) {
            Some(at) => HostId(at),
            None => self.add_host(name),
        }
    }

    pub(super) fn named(&mut self, name: &'static str) -> &mut Host {
        let id = self.host_id(name);
        self.host(id)
    }

    pub(super) fn host(&mut self, id: HostId) -> &mut Host {
        if self.hosts.list.len() <= id.0 {
            // A file of an earlier seed.
            return self.named("");
        }
        &mut self.hosts.list[id.0]
    }

    /// The calling host, if it has been heard of.
    pub(super) fn current(&self) -> Option<HostId> {
        let runtime = Handle::try_current().ok()?.id();
        self.hosts.by_runtime.get(&runtime).copied()
    }

    /// The calling host; one without a name if its runtime registered nothing.
    pub(super) fn current_or_added(&mut self) -> HostId {
        let Ok(runtime) = Handle::try_current() else { return self.host_id("") };
        match self.hosts.by_runtime.get(&runtime.id()) {
            Some(id) => *id,
            None => {
                let id = self.add_host("");
                self.hosts.by_runtime.insert(runtime.id(), id);
                id
            }
        }
    }

    /// Whether the process of this host has ended itself.
    pub(super) fn has_exited(&mut self, id: HostId) -> bool {
        EXITING.get() > 0 && self.host(id).exiting
    }

    fn set_exiting(&mut self, id: HostId, exiting: bool) {
        let host = self.host(id);
        if std::mem::replace(&mut host.exiting, exiting) != exiting {
            EXITING.with(|count| count.set(if exiting { count.get() + 1 } else { count.get() - 1 }));
        }
    }
}

/// Registers the runtime of the caller as the host `name`. Call it first at each start of the host, before any other call of
/// this crate.
///
/// The disk is the one of the host's last life. After a power cut the harness calls [`super::power_cut`] before the next
/// start; without it the process alone was restarted, and the page cache survives.
pub fn boot_host(name: &'static str) {
    with_state(|state| {
        let id = state.host_id(name);
        state.hosts.by_runtime.insert(Handle::current().id(), id);
        state.set_exiting(id, false);
    });
}

/// The name of the calling host, if its runtime registered one. Also callable from a panic hook.
pub fn host() -> Option<&'static str> {
    STATE.with(|state| {
        let state = state.try_borrow().ok()?;
        let id = state.current()?;
        state.hosts.list.get(id.0).map(|host| host.name).filter(|name| !name.is_empty())
    })
}

/// Runs the software of the host `name`: registers the host, and keeps it idle after its process has ended itself.
pub async fn process<T>(name: &'static str, software: impl Future<Output = T>) -> T {
    boot_host(name);
    match AssertUnwindSafe(software).catch_unwind().await {
        Ok(output) => output,
        Err(_) if is_exiting(name) => std::future::pending().await,
        Err(panic) => resume_unwind(panic),
    }
}

/// Orders a change for a host (see [`crate::struck!`]).
pub fn order(host: &'static str, what: &'static str) {
    with_state(|state| state.hosts.ordered.insert((host, what)));
}

/// Whether the change is ordered for the calling host.
pub(crate) fn is_ordered(what: &'static str) -> bool {
    let Some(host) = host() else { return false };
    with_state(|state| state.hosts.ordered.contains(&(host, what)))
}

/// Makes the change; whether it was still ordered.
pub(crate) fn take_order(what: &'static str) -> bool {
    let Some(host) = host() else { return false };
    with_state(|state| state.hosts.ordered.remove(&(host, what)))
}

/// Whether processes may end themselves. They may not at the start: a process that aborts itself without a planned failure
/// of its disk is a finding, and panics.
pub fn allow_exits(allowed: bool) {
    with_state(|state| state.hosts.exits_allowed = allowed);
}

/// The processes that ended themselves since the last call, in order: each its host and the reason it gave. The harness
/// crashes and restarts these hosts.
pub fn take_exits() -> Vec<(&'static str, String)> {
    with_state(|state| std::mem::take(&mut state.hosts.exits))
}

/// Whether the process of this host has ended itself and the host has not been restarted yet. Panics of such a host mean
/// nothing: other tasks miss the one that ended. Also callable from a panic hook.
pub fn is_exiting(host: &str) -> bool {
    EXITING.get() > 0
        && STATE.with(|state| {
            let Ok(state) = state.try_borrow() else { return false };
            state.hosts.list.iter().any(|other| other.exiting && other.name == host)
        })
}

/// Whether the process of the calling host has ended itself.
pub(crate) fn has_exited() -> bool {
    EXITING.get() > 0 && with_state(|state| state.current().is_some_and(|id| state.has_exited(id)))
}

/// Ends the process of the calling host.
pub(crate) fn exit_process(message: &str) -> ! {
    let exit = with_state(|state| {
        let id = state.current().filter(|_| state.hosts.exits_allowed)?;
        let host = Some(state.host(id).name).filter(|name| !name.is_empty())?;
        if !state.host(id).exiting {
            state.hosts.exits.push((host, message.to_owned()));
            state.set_exiting(id, true);
            state.count("a process ends itself");
        }
        Some(ProcessExit { host, message: message.to_owned() })
    });
    match exit {
        // Without the panic hook, which would fail the run.
        Some(exit) => resume_unwind(Box::new(exit)),
        None => panic!("a process aborted itself: {message}"),
    }
}

pub(super) fn forget_exits() {
    EXITING.set(0);
}
