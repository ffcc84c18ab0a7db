//! Regions that leave: the leader of their group drives each move, from the master's order to the end.
//!
//! The order names the move, and is repeated until it is over: it starts the move, learns how far it is, and cancels it. A move
//! lives in this process until the region is frozen, and in the group's log from then on ([`Departures::watch`] finds it
//! there). Whatever happens before costs only what was copied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_engine::Engine;
use terrane_proto::v1;
use terrane_types::{Error, GroupId, Invalid, MoveId, RegionDescriptor, RegionEpoch, RegionId, ServerId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::peers::Peers;
use crate::edge::error_mapping::require_leader;
use crate::group::proposal::{Group, GroupHost};
use crate::operation::Destination;
use crate::replicas::Replicas;
use crate::replicas::hosted::{ChangeGuard, HostedRegion};
use crate::staging::Staging;

/// How often frozen regions without a driver are looked for...
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// ...and how often while a region is frozen in a group that another server leads: requests wait for the region, and this server
/// may be the next leader.
const SUCCESSION_INTERVAL: Duration = Duration::from_millis(50);
/// How long the end of a move is remembered for the next order.
const REMEMBER: Duration = Duration::from_secs(600);

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Copying,
    Frozen,
    Moved,
    Undone,
}

#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) stage: Stage,
    pub(super) detail: String,
    pub(super) copied: u64,
    pub(super) bytes: u64,
    pub(super) region: Option<RegionDescriptor>,
    pub(super) ended: Option<Instant>,
}

/// The servers of the other group: as the master named them, or as its members have since. A group may change its members
/// while a region waits frozen, long after the master's last order.
#[derive(Debug)]
pub(super) struct Receivers(Mutex<(u64, Vec<ServerId>)>);

impl Receivers {
    fn new(servers: Vec<ServerId>) -> Self {
        Self(Mutex::new((0, servers)))
    }

    pub(super) fn servers(&self) -> Vec<ServerId> {
        self.0.lock().1.clone()
    }

    fn named_by_the_master(&self, servers: Vec<ServerId>) {
        self.0.lock().1 = servers;
    }

    /// Takes the voters that a member of the group names, unless a member that had applied more has named others.
    pub(super) fn named_by_a_member(&self, applied: u64, voters: impl Iterator<Item = ServerId>) {
        let voters: Vec<ServerId> = voters.collect();
        let mut known = self.0.lock();
        if !voters.is_empty() && applied >= known.0 {
            *known = (applied, voters);
        }
    }
}

/// One move that this server drives.
pub(super) struct Departure {
    pub(super) id: MoveId,
    pub(super) hosted: Arc<HostedRegion>,
    pub(super) group: Group,
    pub(super) to: GroupId,
    pub(super) receivers: Receivers,
    pub(super) progress: Mutex<Progress>,
    pub(super) cancelled: CancellationToken,
    /// The master's orders so far, and the last of them that said that the map has the region here.
    orders: Mutex<(u64, u64)>,
}

/// The moves of regions that leave, and the edge of those that come in.
pub struct Departures {
    pub engine: Arc<Engine>,
    pub host: Arc<GroupHost>,
    pub replicas: Arc<Replicas>,
    pub addresses: Arc<crate::masters::addresses::Addresses>,
    pub peers: Arc<Peers>,
    pub staging: Arc<Staging>,
    pub stop: CancellationToken,
    pub moves: Moves,
}

/// The moves under way and those that ended of late.
#[derive(Default)]
pub struct Moves(pub(super) Mutex<BTreeMap<MoveId, Arc<Departure>>>);

impl Departures {
    /// Looks for frozen regions that nothing drives, until `stop`.
    pub async fn watch(self: Arc<Self>) {
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = if self.resume() { SUCCESSION_INTERVAL } else { WATCH_INTERVAL };
            self.moves.0.lock().retain(|_, departure| !departure.is_forgotten());
        }
    }

    /// Drives the frozen regions that this server leads. Returns whether it may come to lead others.
    fn resume(self: &Arc<Self>) -> bool {
        let mut may_succeed = false;
        for hosted in self.replicas.regions.all() {
            let state = hosted.state();
            let Some(moving) = &state.moving else { continue };
            let Some(group) = self.host.group(hosted.group) else { continue };
            if !group.status().is_leader {
                may_succeed = true;
                continue;
            }
            if self.moves.0.lock().get(&moving.id).is_none_or(|known| known.progress.lock().ended.is_some()) {
                tracing::info!(region = %hosted.region, to = %moving.group, "asking what became of a move");
                self.start(&hosted, group, moving.clone(), None);
            }
        }
        may_succeed
    }

    /// The master's order: starts a move, and says how far it is.
    pub fn order(self: &Arc<Self>, request: &v1::MoveRegionRequest) -> Result<v1::MoveRegionReply, Error> {
        let (id, region, to) = (MoveId(request.r#move), RegionId(request.region), GroupId(request.to_group));
        self.addresses.set(request.members.iter().map(|member| (ServerId(member.server), member.address.clone())));
        let servers: Vec<ServerId> = request.members.iter().map(|member| ServerId(member.server)).collect();
        if let Some(known) = self.moves.0.lock().get(&id).filter(|known| !known.left_for_another()) {
            known.receivers.named_by_the_master(servers);
            known.ordered(request.as_before);
            if request.cancel {
                known.cancelled.cancel();
            }
            return Ok(known.reply());
        }
        let Some(hosted) = self.replicas.regions.get(region).filter(|hosted| hosted.group != to) else {
            return self.departed(id, region);
        };
        let group = self.led(hosted.group)?;
        let state = hosted.state();
        let now = state.descriptor.clone();
        if now.epoch != RegionEpoch(request.epoch) {
            return Err(Error::StaleEpoch { region, current: vec![now] });
        }
        if let Some(moving) = &state.moving {
            if moving.id != id {
                return Err(Invalid::new(format!("region {region} moves to group {} already", moving.group)).into());
            }
            return Ok(self.start(&hosted, group, Destination { servers, ..moving.clone() }, None).reply());
        }
        if request.cancel {
            let detail = "it was cancelled before it began".to_owned();
            return Ok(v1::MoveRegionReply { state: v1::MoveState::Undone.into(), detail, ..Default::default() });
        }
        if !self.engine.can_copy_groups() {
            let what = format!("the engine of server {} cannot copy single regions", self.peers.server());
            return Err(Invalid::new(what).into());
        }
        let guard = hosted.begin_change("move")?;
        Ok(self.start(&hosted, group, Destination { id, group: to, servers }, Some(guard)).reply())
    }

    /// The answer for a region that is not here: by the note that it left, if it did.
    fn departed(&self, id: MoveId, region: RegionId) -> Result<v1::MoveRegionReply, Error> {
        let left = self.replicas.machines().iter().find_map(|machine| machine.departed(region));
        match left.filter(|(by, _)| *by == id) {
            Some((_, adopted)) => Ok(v1::MoveRegionReply {
                state: v1::MoveState::Moved.into(),
                region: Some((&adopted).into()),
                ..Default::default()
            }),
            None => Err(Error::StaleEpoch { region, current: self.replicas.successors(region) }),
        }
    }

    /// A group that this server leads. A follower names the leader.
    pub(super) fn led(&self, id: GroupId) -> Result<Group, Error> {
        let group = self.host.group(id).ok_or_else(|| Error::NotFound { what: format!("group {id}") })?;
        require_leader(&group, &self.addresses)?;
        Ok(group)
    }

    /// Starts driving a move: from the beginning with a guard, from the freeze without.
    fn start(
        self: &Arc<Self>,
        hosted: &Arc<HostedRegion>,
        group: Group,
        to: Destination,
        guard: Option<ChangeGuard>,
    ) -> Arc<Departure> {
        let (stage, detail) = match guard {
            Some(_) => (Stage::Copying, "its files are being copied".to_owned()),
            None => (Stage::Frozen, format!("group {} is asked what became of it", to.group)),
        };
        let progress = Progress { stage, detail, copied: 0, bytes: 0, region: None, ended: None };
        let departure = Arc::new(Departure {
            id: to.id,
            hosted: hosted.clone(),
            group,
            to: to.group,
            receivers: Receivers::new(to.servers),
            progress: Mutex::new(progress),
            cancelled: CancellationToken::new(),
            orders: Mutex::default(),
        });
        self.moves.0.lock().insert(to.id, departure.clone());
        let (departures, driven) = (self.clone(), departure.clone());
        terrane_env::task::spawn_named("move", async move {
            let stop = departures.stop.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = departures.drive(&driven, guard) => {}
            }
        });
        departure
    }
}

/// The detail of a move that another server goes on with.
pub(super) const ELSEWHERE: &str = "another server leads the group now";

impl Departure {
    /// The region as the other group took it in. Whatever became of it since is the other group's to say.
    pub(super) fn adopted(&self) -> RegionDescriptor {
        let was = self.hosted.state().descriptor.clone();
        RegionDescriptor { group: self.to, epoch: RegionEpoch(was.epoch.0 + 1), ..was }
    }

    pub(super) fn set_stage(&self, stage: Stage, detail: &str) {
        tracing::debug!(region = %self.hosted.region, to = %self.to, ?stage, detail, "a move of a region");
        let mut progress = self.progress.lock();
        (progress.stage, progress.detail) = (stage, detail.to_owned());
    }

    fn ordered(&self, as_before: bool) {
        let mut orders = self.orders.lock();
        orders.0 += 1;
        if as_before {
            orders.1 = orders.0;
        }
    }

    /// The number of the master's orders until now.
    pub(super) fn orders(&self) -> u64 {
        self.orders.lock().0
    }

    /// Whether the master has said, by a look at its map after the order of this number, that the region is still here. It
    /// looks before each order, and gives one at a time: the second order from then on follows from a later look.
    pub(super) fn is_as_before_since(&self, orders: u64) -> bool {
        self.orders.lock().1 >= orders + 2
    }

    fn left_for_another(&self) -> bool {
        let progress = self.progress.lock();
        progress.ended.is_some() && !matches!(progress.stage, Stage::Moved | Stage::Undone)
    }

    fn is_forgotten(&self) -> bool {
        self.left_for_another() || self.progress.lock().ended.is_some_and(|ended| ended.elapsed() >= REMEMBER)
    }

    fn reply(&self) -> v1::MoveRegionReply {
        let progress = self.progress.lock().clone();
        let state = match progress.stage {
            Stage::Copying => v1::MoveState::Copying,
            Stage::Frozen => v1::MoveState::Frozen,
            Stage::Moved => v1::MoveState::Moved,
            Stage::Undone => v1::MoveState::Undone,
        };
        v1::MoveRegionReply {
            state: state.into(),
            detail: progress.detail,
            copied_bytes: progress.copied,
            bytes: progress.bytes,
            region: progress.region.as_ref().map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(of: &[u64]) -> Vec<ServerId> {
        of.iter().copied().map(ServerId).collect()
    }

    #[test]
    fn the_other_groups_servers_are_those_that_its_latest_member_names() {
        let receivers = Receivers::new(servers(&[1, 2, 3]));
        receivers.named_by_a_member(10, servers(&[2, 3, 4]).into_iter());
        assert_eq!(receivers.servers(), servers(&[2, 3, 4]), "members changed");
        receivers.named_by_a_member(9, servers(&[1, 2, 3]).into_iter());
        assert_eq!(receivers.servers(), servers(&[2, 3, 4]), "one that lags behind names the former ones");
        receivers.named_by_a_member(11, servers(&[]).into_iter());
        assert_eq!(receivers.servers(), servers(&[2, 3, 4]), "one that names none says nothing");
        receivers.named_by_the_master(servers(&[4, 5, 6]));
        assert_eq!(receivers.servers(), servers(&[4, 5, 6]), "the master knows all changes that were made");
        receivers.named_by_a_member(12, servers(&[5, 6, 7]).into_iter());
        assert_eq!(receivers.servers(), servers(&[5, 6, 7]), "and members those that were made since");
    }
}
