//! Views of regions that are being read here, and their keeping on the other members of the groups that this server leads.
//!
//! A scan at one sequence number goes on at another member when the group's leader changes, under the same number: it names the same
//! view there. But a follower knows nothing of the leader's snapshots, and drops what is replaced at once. So the leader names to the
//! other members the oldest number at which a region is being read, and they keep everything from there on (`Region::keep_from`).
//!
//! - Nothing waits for this: a number is named once its snapshot has been there for two looks, so that short reads cost nothing. What
//!   a follower drops before that, it does not have, and the scan fails there instead of showing another view.
//! - A message says all that its receiver is to keep of some groups that its sender leads; what it no longer names of them goes. It is
//!   repeated while there is something to keep. A server that no longer leads a group says nothing of it: what was kept for its
//!   readers stays for a minute, in which they come to the next leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_types::{GroupId, RegionId, ServerId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::group::proposal::GroupHost;
use crate::moves::peers::{Peers, answer};
use crate::replicas::Replicas;

/// Between two looks at what is being read.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// What has not changed is said again after this time.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Deadline of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Most regions named in one message.
const REGIONS_MAX: usize = 1_024;

/// The oldest sequence numbers at which regions are being read.
type Oldest = BTreeMap<(GroupId, RegionId), u64>;

/// What a server is to keep of these groups.
struct Named {
    server: ServerId,
    groups: BTreeSet<GroupId>,
    oldest: Oldest,
}

/// What this server tells others to keep, and what it keeps for them.
pub struct Views {
    host: Arc<GroupHost>,
    replicas: Arc<Replicas>,
    peers: Arc<Peers>,
    stop: CancellationToken,
    /// What was named to each server last, and when.
    named: Mutex<BTreeMap<ServerId, (Oldest, Instant)>>,
}

impl Views {
    pub const fn new(
        host: Arc<GroupHost>,
        replicas: Arc<Replicas>,
        peers: Arc<Peers>,
        stop: CancellationToken,
    ) -> Self {
        Self { host, replicas, peers, stop, named: Mutex::new(BTreeMap::new()) }
    }

    /// Names what is being read here to the other members, until the server stops.
    pub async fn watch(self: Arc<Self>) {
        let mut turn = tokio::time::interval(LOOK_INTERVAL);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut before = BTreeMap::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                _ = turn.tick() => {}
            }
            let now = self.being_read();
            let wanted = self.to_keep(&oldest_of_both(&before, &now));
            before = now;
            let due = self.due(wanted);
            // A server that does not answer holds the next look up by no more than the deadline.
            futures::future::join_all(due.into_iter().map(|named| self.name(named))).await;
        }
    }

    /// The regions that are being read here, with all numbers.
    fn being_read(&self) -> BTreeMap<(GroupId, RegionId), Vec<u64>> {
        let regions = self.replicas.regions.all();
        let read = regions.iter().filter(|hosted| hosted.engine.is_being_read());
        read.map(|hosted| ((hosted.group, hosted.region), hosted.engine.read_at())).take(REGIONS_MAX).collect()
    }

    /// What each server is to keep: of the groups that this one leads, those which it is a member of.
    fn to_keep(&self, oldest: &Oldest) -> BTreeMap<ServerId, Oldest> {
        let groups: BTreeSet<GroupId> = oldest.keys().map(|(group, _)| *group).collect();
        let led = groups.into_iter().filter_map(|id| Some((id, self.host.group(id)?.status())));
        let mut wanted: BTreeMap<ServerId, Oldest> = BTreeMap::new();
        for (group, status) in led.filter(|(_, status)| status.is_leader) {
            let others = status.members.into_values().filter(|server| *server != self.peers.server());
            let of_group = (group, RegionId(0))..=(group, RegionId(u64::MAX));
            for server in others {
                wanted.entry(server).or_default().extend(oldest.range(of_group.clone()).map(|(at, from)| (*at, *from)));
            }
        }
        wanted
    }

    /// What is to be said now.
    fn due(&self, mut wanted: BTreeMap<ServerId, Oldest>) -> Vec<Named> {
        let leads = |group: &GroupId| self.host.group(*group).is_some_and(|group| group.status().is_leader);
        let mut named = self.named.lock();
        // Of a group that another server leads now, nothing more is said.
        named.retain(|_, (said, _)| {
            said.retain(|(group, _), _| leads(group));
            !said.is_empty()
        });
        // Those which were told to keep something, and need not any more.
        for server in named.keys() {
            wanted.entry(*server).or_default();
        }
        let due = |(server, oldest): (ServerId, Oldest)| {
            let said = named.get(&server);
            if said.is_some_and(|(said, at)| *said == oldest && at.elapsed() < REPEAT_INTERVAL) {
                return None;
            }
            let said = said.into_iter().flat_map(|(said, _)| said.keys());
            let groups = said.chain(oldest.keys()).map(|(group, _)| *group).collect();
            Some(Named { server, groups, oldest })
        };
        wanted.into_iter().filter_map(due).collect()
    }

    async fn name(&self, Named { server, groups, oldest }: Named) {
        let Ok(mut client) = self.peers.client(server) else { return };
        let view = |((group, region), oldest): (&(GroupId, RegionId), &u64)| v1::KeptView {
            group: group.0,
            region: region.0,
            oldest: *oldest,
        };
        let request = v1::KeepViewsRequest {
            hello: self.peers.hello(server),
            views: oldest.iter().map(view).collect(),
            groups: groups.into_iter().map(|group| group.0).collect(),
        };
        let answered = answer(client.keep_views(request), CALL_TIMEOUT).await;
        let mut named = self.named.lock();
        if oldest.is_empty() {
            // Said or not, what it keeps goes in a minute.
            named.remove(&server);
        } else if let Err(error) = answered {
            // It is said again at the next look.
            tracing::debug!(%server, %error, "views were not named to a member");
        } else {
            named.insert(server, (oldest, Instant::now()));
        }
    }

    /// Keeps what a leader names, and lets go what it named before and names no more.
    pub fn keep(&self, request: &v1::KeepViewsRequest) {
        let Some(leader) = request.hello.as_ref().map(|hello| ServerId(hello.own_server)) else { return };
        let now_ns = terrane_env::time::now_ns();
        let views = request.views.iter().take(REGIONS_MAX);
        let mut named: Oldest = views.map(|view| ((GroupId(view.group), RegionId(view.region)), view.oldest)).collect();
        let groups: BTreeSet<GroupId> = request.groups.iter().map(|group| GroupId(*group)).collect();
        let regions = self.replicas.regions.all();
        for hosted in regions.iter().filter(|hosted| groups.contains(&hosted.group)) {
            match named.remove(&(hosted.group, hosted.region)) {
                Some(oldest) => hosted.keep_views(leader, oldest, now_ns),
                None => hosted.let_views_go(Some(leader), now_ns),
            }
        }
    }
}

/// Of numbers at which regions were read at both looks, the oldest of each region.
fn oldest_of_both(
    before: &BTreeMap<(GroupId, RegionId), Vec<u64>>,
    now: &BTreeMap<(GroupId, RegionId), Vec<u64>>,
) -> Oldest {
    let oldest = |(at, numbers): (&(GroupId, RegionId), &Vec<u64>)| {
        let earlier = before.get(at)?;
        let oldest = numbers.iter().find(|number| earlier.contains(number))?;
        Some((*at, *oldest))
    };
    now.iter().filter_map(oldest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_read_for_two_looks_is_named() {
        let at = |region| (GroupId(1), RegionId(region));
        let before = BTreeMap::from([(at(1), vec![3, 5]), (at(2), vec![4])]);
        let now = BTreeMap::from([(at(1), vec![5, 9]), (at(2), vec![6]), (at(3), vec![7])]);
        assert_eq!(oldest_of_both(&before, &now), Oldest::from([(at(1), 5)]));
    }
}
