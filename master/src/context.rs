//! What the components of a master share: the catalog's journal, what is observed, the way to the servers, and what the
//! running procedures wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_env::budget::Budgets;
use terrane_types::{Endpoint, Error, ServerEndpoint, ServerId, TableId};
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::catalog::moves::MoveId;
use crate::catalog::tables::{TableEntry, TableState};
use crate::fleet::loads::LoadAverages;
use crate::fleet::repair::Repair;
use crate::fleet::surplus::Surplus;
use crate::health::Health;
use crate::history::events::Events;
use crate::history::load_history::LoadHistory;
use crate::history::procedure_history::ProcedureHistory;
use crate::journal::Journal;
use crate::leadership::Leadership;
use crate::orders::Orders;
use crate::procedures::region_move::MoveProgress;
pub use crate::procedures::subject::Subject;
use crate::servers::inventory::ServerLoad;
use crate::servers::liveness::Moment;
use crate::servers::observed::{Observed, now};
use crate::versions::Versions;

/// Unfinished changes of tables that are accepted; also the most procedures of one kind.
pub const UNFINISHED_MAX: usize = 1_024;
/// Failures of creates that are kept for the callers that wait for them.
const FAILURES_MAX: usize = 256;
/// When a caller whose change was refused should try again.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What an administrator sets for repair and balance.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// The address of this master, which owns the procedures that it drives.
    pub owner: String,
    /// How long a server may be away before its replicas are replaced, unless the catalog says otherwise.
    pub replace_after_default: Duration,
    /// The least that can be said there: before, no server counts as silent.
    pub replace_after_min: Duration,
    /// How long no server may have come or gone before surplus groups are removed.
    pub surplus_after: Duration,
    /// Changes of members with copies from or to one server at a time.
    pub changes_per_server: usize,
}

impl FleetSettings {
    /// How long a server may be away before its replicas are replaced.
    pub fn replace_after(&self, catalog: &Catalog) -> Duration {
        catalog.replace_after().unwrap_or(self.replace_after_default)
    }
}

/// What a procedure waits for, and since when.
#[derive(Clone, Debug)]
struct Wait {
    what: String,
    since: Moment,
}

/// An unfinished procedure.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When this master first saw it.
    since: Moment,
    /// Its steps that are done, of how many.
    steps: (u32, u32),
}

/// A procedure that waits for the same thing for this long is a health issue.
const STALLED_AFTER: Duration = Duration::from_secs(60);

/// What the leading master has seen happen.
#[derive(Debug, Default)]
pub struct Past {
    /// The load of the last 24 hours.
    pub loads: LoadHistory,
    /// Splits, moves, elections and the like.
    pub events: Events,
    /// The procedures that have ended.
    pub procedures: ProcedureHistory,
}

/// The shared parts of one master.
pub struct MasterContext {
    /// The catalog and its log.
    pub journal: Journal,
    /// Whether this master leads.
    pub leadership: Leadership,
    /// Held while the members of the masters' group are changed: a master that returns without its directory and a change of
    /// the set both look at the members first.
    pub changing_members: tokio::sync::Mutex<()>,
    /// What is seen of the servers and not written down.
    pub observed: Arc<Observed>,
    /// Calls to the region servers.
    pub orders: Orders,
    /// Groups that each server is to lead.
    pub groups_per_server: usize,
    /// Settings of repair and balance.
    pub fleet: FleetSettings,
    /// The versions of this master and of the servers.
    pub versions: Versions,
    /// Where this master serves clients of other protocols.
    pub endpoints: Vec<Endpoint>,
    /// Why a create was undone, by table.
    failures: Mutex<BTreeMap<TableId, Error>>,
    /// What regions were asked for lately.
    pub loads: Mutex<LoadAverages>,
    /// What happened since this master leads. Locked after the catalog and the observations.
    pub past: Mutex<Past>,
    /// What each running procedure waits for, for `status`.
    waits: Mutex<BTreeMap<Subject, Wait>>,
    /// The unfinished procedures that this master has seen.
    seen: Mutex<BTreeMap<Subject, Seen>>,
    /// How far the unfinished moves are.
    moves: Mutex<BTreeMap<MoveId, MoveProgress>>,
    /// Notified when a procedure begins to wait, so that another may start.
    waiting: Notify,
    /// The limited resources of this process.
    pub budgets: Arc<Budgets>,
    /// The surplus group that is being emptied, if there is one.
    pub surplus: Mutex<Surplus>,
    /// Since when groups lack copies.
    pub repair: Mutex<Repair>,
    /// What is wrong with this master, and what it keeps watch on.
    pub health: Health,
}

impl MasterContext {
    /// A context without procedures.
    pub fn new(
        journal: Journal,
        observed: Arc<Observed>,
        orders: Orders,
        groups_per_server: usize,
        fleet: FleetSettings,
        versions: Versions,
        endpoints: Vec<Endpoint>,
    ) -> Self {
        let leadership = Leadership::new(journal.clone());
        let (failures, waits, seen, moves) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let (waiting, loads, past) = (Notify::new(), Mutex::default(), Mutex::default());
        Self {
            journal,
            leadership,
            changing_members: tokio::sync::Mutex::default(),
            observed,
            orders,
            groups_per_server,
            fleet,
            versions,
            endpoints,
            failures,
            loads,
            past,
            waits,
            seen,
            moves,
            waiting,
            budgets: Arc::default(),
            surplus: Mutex::default(),
            repair: Mutex::default(),
            health: Health::default(),
        }
    }

    /// The endpoints of the live servers, as far as this master knows.
    pub fn server_endpoints(&self) -> Vec<ServerEndpoint> {
        self.journal.read(|catalog| {
            let known = catalog.servers().iter().map(|(server, _)| server);
            self.observed.with(|observed| {
                let live = known.filter(|server| observed.liveness.is_live(*server));
                let known = live.filter_map(|server| Some((server, observed.inventory.load(server)?)));
                let of = |(server, load): (ServerId, &'_ ServerLoad)| {
                    let endpoints = load.endpoints.clone().into_iter();
                    endpoints.map(move |endpoint| ServerEndpoint { server, endpoint })
                };
                known.flat_map(of).collect()
            })
        })
    }

    /// Why a table's create was undone; returned once.
    pub fn take_failure(&self, table: TableId) -> Option<Error> {
        self.failures.lock().remove(&table)
    }

    /// Keeps the reason why a create was undone, for the caller that waits for it.
    pub fn keep_failure(&self, table: TableId, error: Error) {
        let mut failures = self.failures.lock();
        failures.insert(table, error);
        if failures.len() > FAILURES_MAX {
            failures.pop_first();
        }
    }

    /// Refuses a change of a table while too many are unfinished.
    pub fn admit_change(&self) -> Result<(), Error> {
        let is_unfinished = |table: &&TableEntry| table.state != TableState::Enabled;
        let unfinished = self.journal.read(|catalog| catalog.tables().iter().filter(is_unfinished).count());
        if unfinished >= UNFINISHED_MAX { Err(Error::Busy { retry_after: BUSY_RETRY_AFTER }) } else { Ok(()) }
    }

    /// Records what a procedure waits for.
    pub fn begin_wait(&self, subject: Subject, what: String) {
        let mut waits = self.waits.lock();
        let same = waits.get(&subject).filter(|wait| wait.what == what).map(|wait| wait.since);
        let since = same.unwrap_or_else(now);
        if waits.insert(subject, Wait { what, since }).is_none() {
            self.waiting.notify_one();
        }
    }

    /// The procedure on this subject has ended or made a step.
    pub fn end_wait(&self, subject: Subject) {
        self.waits.lock().remove(&subject);
    }

    /// Returns when another procedure has begun to wait.
    pub async fn another_waits(&self) {
        self.waiting.notified().await;
    }

    /// The subjects whose procedures wait.
    pub fn waiting(&self) -> BTreeSet<Subject> {
        self.waits.lock().keys().copied().collect()
    }

    /// What the running procedures wait for. A change of members and a move wait for their copies as a matter of course, so
    /// they count once the copy makes no progress.
    pub fn waits(&self) -> Vec<String> {
        let now = now();
        let is_issue = |(subject, wait): &(&Subject, &Wait)| {
            !matches!(subject, Subject::Members(_) | Subject::Move(_)) || now.since(wait.since) >= STALLED_AFTER
        };
        self.waits.lock().iter().filter(is_issue).map(|(_, wait)| wait.what.clone()).collect()
    }

    /// What the procedure on a subject waits for.
    pub fn wait(&self, subject: Subject) -> Option<String> {
        self.waits.lock().get(&subject).map(|wait| wait.what.clone())
    }

    /// Notes which procedures are unfinished.
    pub fn note_procedures(&self, unfinished: &[Subject]) {
        let mut seen = self.seen.lock();
        seen.retain(|subject, _| unfinished.contains(subject));
        self.moves.lock().retain(|id, _| unfinished.contains(&Subject::Move(*id)));
        for subject in unfinished {
            seen.entry(*subject).or_insert_with(|| Seen { since: now(), steps: (0, 0) });
        }
    }

    /// Notes how many steps of a procedure are done.
    pub fn note_steps(&self, subject: Subject, left: usize, all: usize) {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        if let Some(seen) = self.seen.lock().get_mut(&subject) {
            seen.steps = (count(all.saturating_sub(left)), count(all));
        }
    }

    /// Notes how far a move is.
    pub fn note_move(&self, id: MoveId, progress: MoveProgress) {
        self.moves.lock().insert(id, progress);
    }

    /// How far a move is, as far as this master knows.
    pub fn move_progress(&self, id: MoveId) -> MoveProgress {
        self.moves.lock().get(&id).cloned().unwrap_or_default()
    }

    /// How long this master has known an unfinished procedure, and its steps that are done, of how many.
    pub fn progress(&self, subject: Subject) -> (Duration, (u32, u32)) {
        let seen = self.seen.lock().get(&subject).copied();
        seen.map_or((Duration::ZERO, (0, 0)), |seen| (now().since(seen.since), seen.steps))
    }

    /// The procedures were aborted: another master resumes them.
    pub fn forget_procedures(&self) {
        self.waits.lock().clear();
        self.seen.lock().clear();
        self.moves.lock().clear();
        self.failures.lock().clear();
        *self.surplus.lock() = Surplus::default();
        *self.repair.lock() = Repair::default();
    }

    /// What the procedure on a table waits for.
    pub fn wait_of(&self, table: TableId) -> Option<String> {
        self.wait(Subject::Table(table))
    }
}
