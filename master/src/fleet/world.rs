//! The planner's input: servers, groups and where their replicas are, as values.
//!
//! Changes of members that have begun count as made, so that a plan never corrects what is being corrected. The planner
//! applies its own steps to a world and plans on, which gives the whole plan and what it leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terrane_types::states::ServerState;
use terrane_types::{GroupId, ReplicaId, ServerId};

use crate::catalog::Catalog;
use crate::catalog::groups::{GroupEntry, GroupState};
use crate::servers::liveness::{Liveness, Moment};
use crate::servers::observed::Observations;

/// A server that became live this short a time ago gets no leaderships yet: it may be about to fail again.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// A server that lost a leadership gets none back so soon: it may have given it up, and would do so again.
const DEPOSED_FOR: Duration = Duration::from_secs(20);

/// Whether a server can serve, and if not, until when it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It reports.
    Live,
    /// It does not report; its replicas are replaced after this time.
    Away(Duration),
    /// It does not report, and its replicas are replaced.
    Lost,
}

/// The condition of a server. One whose address another server has taken over is lost at once: nothing more will come
/// from it.
pub fn condition(
    catalog: &Catalog,
    liveness: &Liveness,
    server: ServerId,
    now: Moment,
    replace_after: Duration,
) -> Condition {
    if liveness.state(server) == ServerState::Live {
        return Condition::Live;
    }
    let address = catalog.servers().address(server);
    let is_displaced = |(other, known): (ServerId, &crate::catalog::servers::Registration)| {
        other > server && known.address == address && liveness.is_live(other)
    };
    let left = replace_after.saturating_sub(liveness.away_for(server, now));
    // One that reports runs, wherever its address leads.
    let reports = liveness.state(server) == ServerState::Unreachable;
    let is_gone = left.is_zero() || (!reports && catalog.servers().iter().any(is_displaced));
    if is_gone { Condition::Lost } else { Condition::Away(left) }
}

/// Whether a server can be given leaderships for an even spread.
fn is_settled(liveness: &Liveness, server: ServerId, now: Moment) -> bool {
    liveness.live_for(server, now).is_some_and(|live_for| live_for >= SETTLED_AFTER)
        && liveness.undeposed_for(server, now).is_none_or(|time| time >= DEPOSED_FOR)
        && liveness.clock_issue(server).is_none()
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// Its zone label; empty: none.
    pub zone: String,
    /// Whether it can serve.
    pub condition: Condition,
    /// Whether it is to have no replicas.
    pub draining: bool,
    /// Whether it has been live for a while, kept its leaderships, and has the right time: a server with a wrong clock leads
    /// nothing.
    pub settled: bool,
}

impl ServerView {
    /// Whether it can get replicas and leaderships.
    pub fn is_eligible(&self) -> bool {
        self.condition == Condition::Live && !self.draining
    }
}

/// What can be done about a member that is damaged or gone, though its server is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its server can take another replica in its place.
    Discardable,
    /// Only another server should: it has damaged too many.
    Elsewhere,
}

/// An open group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The servers of its members, with their replicas; one that a plan adds has no replica yet.
    pub members: BTreeMap<ServerId, Option<ReplicaId>>,
    /// The members that vote, answer the leader and are caught up.
    pub ready: BTreeSet<ServerId>,
    /// The members whose files are damaged or gone, though their servers are live.
    pub unfit: BTreeMap<ServerId, Unfit>,
    /// The servers of a change of members that has begun: the new replica's and the leader's.
    pub busy: BTreeSet<ServerId>,
    /// Its leader.
    pub leader: Option<ServerId>,
    /// The server that leads it if nothing speaks against it.
    pub planned_leader: ServerId,
    /// The version of its members.
    pub version: u64,
    /// The size of its regions.
    pub bytes: u64,
}

impl GroupView {
    /// Whether a majority of the members is ready.
    pub fn has_majority(&self) -> bool {
        self.ready.len() > self.members.len() / 2
    }

    /// The ready members whose files are whole, as far as is known.
    pub fn whole(&self) -> impl Iterator<Item = ServerId> {
        self.ready.iter().copied().filter(|server| !self.unfit.contains_key(server))
    }
}

/// What the planner looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// All servers.
    pub servers: BTreeMap<ServerId, ServerView>,
    /// All open groups.
    pub groups: BTreeMap<GroupId, GroupView>,
    /// Replicas that each group is to have.
    pub replication: usize,
}

impl World {
    /// The world as of now.
    pub fn of(catalog: &Catalog, observed: &Observations, now: Moment, replace_after: Duration) -> Self {
        let server = |(server, known): (ServerId, &crate::catalog::servers::Registration)| {
            let view = ServerView {
                zone: known.zone.clone(),
                condition: condition(catalog, &observed.liveness, server, now, replace_after),
                draining: catalog.servers().drain(server).is_some(),
                settled: is_settled(&observed.liveness, server, now),
            };
            (server, view)
        };
        let open = catalog.groups().iter().filter(|(_, entry)| entry.is_open());
        Self {
            servers: catalog.servers().iter().map(server).collect(),
            groups: open.map(|(group, entry)| (group, group_view(observed, group, entry))).collect(),
            replication: usize::try_from(catalog.replication()).unwrap_or(0),
        }
    }

    /// How many replicas each server has.
    pub fn replicas(&self) -> BTreeMap<ServerId, usize> {
        self.count(|group| group.members.keys().copied().collect())
    }

    /// How many groups each server leads.
    pub fn leaders(&self) -> BTreeMap<ServerId, usize> {
        self.count(|group| group.leader.into_iter().collect())
    }

    fn count(&self, of: impl Fn(&GroupView) -> Vec<ServerId>) -> BTreeMap<ServerId, usize> {
        let mut counts: BTreeMap<ServerId, usize> = self.servers.keys().map(|server| (*server, 0)).collect();
        self.groups.values().flat_map(of).for_each(|server| *counts.entry(server).or_default() += 1);
        counts
    }

    /// The servers that can get replicas and leaderships.
    pub fn eligible(&self) -> Vec<ServerId> {
        self.servers.iter().filter(|(_, server)| server.is_eligible()).map(|(server, _)| *server).collect()
    }

    /// Whether a server is in this condition.
    pub fn is(&self, server: ServerId, what: impl Fn(&ServerView) -> bool) -> bool {
        self.servers.get(&server).is_some_and(what)
    }

    /// The zone of a server; empty: none.
    pub fn zone(&self, server: ServerId) -> &str {
        self.servers.get(&server).map_or("", |view| view.zone.as_str())
    }
}

fn group_view(observed: &Observations, group: GroupId, entry: &GroupEntry) -> GroupView {
    let leader = observed.leader(group);
    let mut members: BTreeMap<ServerId, Option<ReplicaId>> =
        entry.members.iter().map(|(replica, server)| (*server, Some(*replica))).collect();
    let mut busy = BTreeSet::new();
    if let Some(change) = &entry.change {
        if let Some(server) = change.remove.and_then(|replica| entry.members.get(&replica)) {
            members.remove(server);
        }
        members.extend(change.add.map(|(replica, server)| (server, Some(replica))));
        busy.extend(change.add.map(|(_, server)| server));
        busy.extend(leader);
        // A change is unfinished even if neither is known.
        busy.insert(entry.planned_leader);
    }
    let view = observed.inventory.group(group);
    let ready = view.into_iter().flat_map(|view| {
        view.members.iter().filter(|member| member.voter && view.is_caught_up(member)).map(|member| member.server)
    });
    GroupView {
        unfit: unfit(observed, group, entry),
        ready: ready.filter(|server| observed.liveness.is_live(*server)).collect(),
        members,
        busy,
        leader,
        planned_leader: entry.planned_leader,
        version: entry.version,
        bytes: view.map_or(0, |view| view.regions().map(|(_, region)| region.bytes).sum()),
    }
}

/// The members that are damaged, and those that neither their live server nor the leader has. A group that is not open
/// everywhere may have members that are not created yet.
fn unfit(observed: &Observations, group: GroupId, entry: &GroupEntry) -> BTreeMap<ServerId, Unfit> {
    let view = observed.leader(group).and_then(|_| observed.inventory.group(group));
    let is_silent = |replica| view.and_then(|view| view.member(replica)).is_some_and(|member| !member.alive);
    let judge = |(replica, server): (&ReplicaId, &ServerId)| {
        let replicas = observed.inventory.replicas(*server).filter(|_| observed.liveness.is_live(*server))?;
        let unfit = match replicas.get(&group) {
            Some(seen) if seen.replica == *replica && seen.damaged => {
                if seen.discardable {
                    Unfit::Discardable
                } else {
                    Unfit::Elsewhere
                }
            }
            None if entry.state == GroupState::Open && is_silent(*replica) => Unfit::Discardable,
            _ => return None,
        };
        Some((*server, unfit))
    };
    entry.members.iter().filter_map(judge).collect()
}
