//! Driving a move, from the first round of copying to the removal of the region here. See the steps in [`moves`](super).

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use terrane_engine::RegionContents;
use terrane_proto::v1;
use terrane_types::{Error, GroupId, RegionDescriptor, ServerId};
use tokio::time::{Instant, timeout_at};

use super::departures::{Departure, Departures, ELSEWHERE, Stage};
use super::peers::{CALL_TIMEOUT, Client, PAUSES, answer};
use super::receiving::FORGOTTEN;
use crate::edge::error_mapping::propose_error;
use crate::group::proposal::Proposal;
use crate::group::reply::Reply;
use crate::operation::{Depart, Destination, Freeze, Unfreeze};
use crate::replicas::hosted::ChangeGuard;

/// Rounds of copying before the region is frozen, whatever is left.
const ROUNDS_MAX: usize = 10;
/// The region is frozen once no more than this is to be flushed and copied.
const REST_BYTES: u64 = 1 << 20;
/// How long the files may take after the freeze. Then the move is undone: requests have waited long enough.
const REST_TIME_MAX: Duration = Duration::from_secs(3);
/// Deadline of a call while the region is frozen. Each can be repeated, and requests wait for it.
const FROZEN_CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long other members may take to answer once a majority has said yes.
const OTHERS_MAX: Duration = Duration::from_millis(50);
/// A region whose time is further ahead of this server's clock does not move. Clocks of leaders differ by as much.
const AHEAD_MAX_MS: u64 = 500;
/// How long the other group may take to adopt the region before it is asked to refuse it.
const ADOPT_TIME_MAX: Duration = Duration::from_secs(5);
/// Why a move ends here.
enum End {
    /// Another server leads the group now, or this one stops. What is frozen is the next leader's.
    Elsewhere,
    /// Nothing has changed.
    Undone(String),
    /// The region is to be unfrozen, unless it was adopted.
    GiveUp(String),
}

/// The other group cannot adopt a region before its own time has reached the region's, `stamp`. Requests would wait for that.
fn check_time(stamp: u64, now_ms: u64) -> Result<(), String> {
    match stamp.saturating_sub(now_ms) {
        0..=AHEAD_MAX_MS => Ok(()),
        ahead => {
            Err(format!("clocks were off, and the time of its group is {ahead} ms ahead; it can move in {ahead} ms"))
        }
    }
}

impl Departures {
    pub(super) async fn drive(&self, departure: &Departure, guard: Option<ChangeGuard>) {
        let begun = match &guard {
            Some(_) => self.hand_over(departure).await,
            None => Err(End::GiveUp("the leader of its group changed".to_owned())),
        };
        let ended = match begun {
            Err(End::GiveUp(why)) => self.give_up(departure, why).await,
            other => other,
        };
        let ended = match ended {
            Ok(()) => self.leave(departure, departure.adopted()).await,
            Err(end) => Err(end),
        };
        self.staging.offer(departure.id, None);
        let mut progress = departure.progress.lock();
        progress.ended = Some(Instant::now());
        match ended {
            Ok(()) => {
                progress.stage = Stage::Moved;
                progress.detail.clear();
            }
            Err(End::Undone(why) | End::GiveUp(why)) => {
                tracing::info!(region = %departure.hosted.region, to = %departure.to, why, "a move was undone");
                (progress.stage, progress.detail) = (Stage::Undone, why);
            }
            Err(End::Elsewhere) => progress.detail = ELSEWHERE.to_owned(),
        }
    }

    /// Copies the region, freezes it, and has the other group adopt it.
    async fn hand_over(&self, departure: &Departure) -> Result<(), End> {
        let _compactions = departure.hosted.engine.hold_compactions();
        for _ in 0..ROUNDS_MAX {
            let contents = self.copy(departure).await.map_err(End::Undone)?;
            let stamp = RegionContents::decode(&contents).map_or(0, |contents| contents.point().stamp);
            check_time(stamp, self.host.wall_ms()).map_err(End::Undone)?;
            self.stage_everywhere(departure, &contents, None).await.map_err(End::Undone)?;
            if departure.hosted.engine.memtable_bytes() <= REST_BYTES {
                break;
            }
        }
        let state = departure.hosted.state();
        let to = Destination { id: departure.id, group: departure.to, servers: departure.receivers.servers() };
        let freeze = Freeze { region: departure.hosted.region, epoch: state.descriptor.epoch, to };
        match self.propose(departure, || Proposal::Freeze(freeze.clone())).await? {
            Reply::Applied { .. } => {}
            refused => return Err(End::Undone(refused.refusal())),
        }
        departure.set_stage(Stage::Frozen, "the rest is being copied");
        terrane_env::buggify_pause!("a frozen region waits").await;
        let contents = if terrane_env::planted!("a move leaves the rest behind") {
            let copied = self.staging.offered(departure.id).map(|copy| Bytes::from(copy.contents().encode()));
            copied.ok_or_else(|| End::GiveUp("nothing was copied".to_owned()))?
        } else {
            self.copy(departure).await.map_err(End::GiveUp)?
        };
        let rest = self.stage_everywhere(departure, &contents, Some(REST_TIME_MAX));
        rest.await.map_err(End::GiveUp)?;
        departure.set_stage(Stage::Frozen, "the other group takes it in");
        self.adopted(departure, contents).await
    }

    /// Flushes the region and takes a copy of it, from which the others fetch.
    async fn copy(&self, departure: &Departure) -> Result<Bytes, String> {
        let (group, region) = (departure.hosted.group, departure.hosted.region);
        let machine = self.replicas.machine(group).ok_or("the group left this server")?;
        machine.flush(region).await.map_err(|error| error.to_string())?;
        let copy = self.engine.copy_region(group, region).await.map_err(|error| error.to_string())?;
        let copy = copy.ok_or("the region left this server")?;
        let contents = Bytes::from(copy.contents().encode());
        departure.progress.lock().bytes = copy.contents().files().iter().map(|file| file.size).sum();
        self.staging.offer(departure.id, Some(copy));
        Ok(contents)
    }

    /// Has the members of the other group fetch everything, until a majority has: within `patience`, or for as long as some
    /// of them makes progress.
    async fn stage_everywhere(
        &self,
        departure: &Departure,
        contents: &Bytes,
        patience: Option<Duration>,
    ) -> Result<(), String> {
        let began = Instant::now();
        let (mut copied, mut moved_at, mut pause) = (0, Instant::now(), PAUSES.0);
        loop {
            let servers = departure.receivers.servers();
            let within = if patience.is_some() { FROZEN_CALL_TIMEOUT } else { CALL_TIMEOUT };
            let staged = |reply: &v1::StageRegionReply| reply.staged;
            let all = self.ask_majority(departure, &servers, contents, within, staged).await;
            if all.iter().any(|answer| matches!(answer, Ok(reply) if reply.refused || reply.forgotten)) {
                return Err(format!("group {} refused it", departure.to));
            }
            let staged = all.iter().filter(|answer| matches!(answer, Ok(reply) if reply.staged)).count();
            let most = all.iter().flatten().map(|reply| reply.bytes).max().unwrap_or(0);
            departure.progress.lock().copied = most;
            if staged > servers.len() / 2 {
                return Ok(());
            }
            if departure.cancelled.is_cancelled() {
                return Err("it was cancelled".to_owned());
            }
            if most > copied {
                (copied, moved_at, pause) = (most, Instant::now(), PAUSES.0);
            }
            let waited =
                patience.map_or_else(|| moved_at.elapsed() >= 6 * CALL_TIMEOUT, |most| began.elapsed() >= most);
            if waited {
                let failed = all.into_iter().find_map(|answer| answer.err().map(|error| error.to_string()));
                let why = failed.unwrap_or_else(|| "they were too slow".to_owned());
                return Err(format!("a majority of group {} did not get its files: {why}", departure.to));
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// Asks the members of the other group; returns their answers. Once the region is frozen, requests wait for it: when a
    /// majority has said yes, the others have a moment left, so that one that is slow or away holds nothing up.
    async fn ask_majority(
        &self,
        departure: &Departure,
        servers: &[ServerId],
        contents: &Bytes,
        within: Duration,
        says_yes: impl Fn(&v1::StageRegionReply) -> bool,
    ) -> Vec<Result<v1::StageRegionReply, Error>> {
        let asked = servers.iter().map(|server| self.stage_at(departure, *server, contents, within));
        let mut asked: FuturesUnordered<_> = asked.collect();
        let (mut answers, mut yes) = (Vec::with_capacity(servers.len()), 0);
        // Each call ends by itself before.
        let mut until = Instant::now() + 2 * within;
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            yes += usize::from(answer.as_ref().is_ok_and(&says_yes));
            answers.push(answer);
            if yes > servers.len() / 2 && within == FROZEN_CALL_TIMEOUT {
                until = until.min(Instant::now() + OTHERS_MAX);
            }
        }
        answers
    }

    async fn stage_at(
        &self,
        departure: &Departure,
        server: ServerId,
        contents: &Bytes,
        within: Duration,
    ) -> Result<v1::StageRegionReply, Error> {
        let source = self.peers.server();
        let request = v1::StageRegionRequest {
            hello: self.peers.hello(server),
            r#move: departure.id.0,
            to_group: departure.to.0,
            contents: contents.clone(),
            source: source.0,
            source_address: self.addresses.get(source).unwrap_or_default(),
            source_boot: self.peers.source().boot,
            region: Some((&departure.hosted.state().descriptor).into()),
            // What readers hold was kept by every flush that the contents come from.
            views: departure.hosted.engine.read_at(),
        };
        let reply = match server == source {
            true => self.stage(request).await?,
            false => answer(self.peers.client(server)?.stage_region(request), within).await?,
        };
        let addresses = reply.voters.iter().filter(|voter| !voter.address.is_empty());
        self.addresses.set(addresses.map(|voter| (ServerId(voter.server), voter.address.clone())));
        let voters = reply.voters.iter().map(|voter| ServerId(voter.server));
        departure.receivers.named_by_a_member(reply.applied, voters);
        Ok(reply)
    }

    /// Has the other group adopt the region.
    async fn adopted(&self, departure: &Departure, contents: Bytes) -> Result<(), End> {
        let began = Instant::now();
        let request =
            v1::AdoptRegionRequest { hello: None, r#move: departure.id.0, to_group: departure.to.0, contents };
        let servers = departure.receivers.servers();
        loop {
            let adopted = self.at_leader(departure.to, &servers, |client, hello| {
                let request = v1::AdoptRegionRequest { hello, ..request.clone() };
                async move {
                    match client {
                        Some(mut client) => answer(client.adopt_region(request), FROZEN_CALL_TIMEOUT).await,
                        None => self.adopt(request).await,
                    }
                }
            });
            match adopted.await {
                Ok(v1::AdoptRegionReply { adopted: true, .. })
                    if terrane_env::buggify!("an adoption's answer is lost") =>
                {
                    return Err(End::GiveUp("no answer came".to_owned()));
                }
                Ok(v1::AdoptRegionReply { adopted: true, .. }) => return Ok(()),
                Ok(reply) => return Err(End::GiveUp(reply.refused)),
                Err(error)
                    if began.elapsed() >= ADOPT_TIME_MAX || terrane_env::buggify!("an adoption is given up early") =>
                {
                    return Err(End::GiveUp(error.to_string()));
                }
                Err(Error::Invalid(invalid)) => return Err(End::GiveUp(invalid.what)),
                Err(_) => {
                    // The leader may be a member that has not fetched everything yet, or one that leads only now. So no
                    // majority without it is enough: a call that ends early is begun again by the next one, and a member
                    // with a slow disk would get nowhere.
                    let staged = |_: &v1::StageRegionReply| false;
                    self.ask_majority(departure, &servers, &request.contents, FROZEN_CALL_TIMEOUT, staged).await;
                    tokio::time::sleep(PAUSES.0).await;
                }
            }
        }
    }

    /// Has the other group refuse the move. If it has adopted the region before, that stands; otherwise the region is unfrozen.
    async fn give_up(&self, departure: &Departure, why: String) -> Result<(), End> {
        departure.set_stage(Stage::Frozen, &format!("it is being undone: {why}"));
        if terrane_env::buggify!("a refusal is asked for late") {
            // Long enough for the other group to forget the move.
            tokio::time::sleep(REST_TIME_MAX).await;
        }
        let request = v1::RefuseMoveRequest { hello: None, r#move: departure.id.0, to_group: departure.to.0 };
        let (mut pause, mut forgotten) = (PAUSES.0, None);
        while !terrane_env::planted!("a move is undone without asking") {
            let servers = departure.receivers.servers();
            let refused = self.at_leader(departure.to, &servers, |client, hello| {
                let request = v1::RefuseMoveRequest { hello, ..request };
                async move {
                    match client {
                        Some(mut client) => answer(client.refuse_move(request), FROZEN_CALL_TIMEOUT).await,
                        None => self.refuse(request).await,
                    }
                }
            });
            match refused.await {
                Ok(v1::RefuseMoveReply { adopted: true }) => return Ok(()),
                Ok(_) => break,
                Err(FORGOTTEN) => match self.after_all(departure, &mut forgotten).await {
                    Some(true) => return Ok(()),
                    Some(false) => break,
                    None => departure.set_stage(
                        Stage::Frozen,
                        &format!(
                            "group {} does not remember whether it took the region in; a master has to say",
                            departure.to
                        ),
                    ),
                },
                Err(error) => {
                    let detail = format!("group {} has to say whether it took the region in: {error}", departure.to);
                    departure.set_stage(Stage::Frozen, &detail);
                }
            }
            if !departure.group.status().is_leader {
                return Err(End::Elsewhere);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
        let unfreeze = Unfreeze { region: departure.hosted.region, id: departure.id };
        self.propose(departure, || Proposal::Unfreeze(unfreeze)).await?;
        Err(End::Undone(why))
    }

    /// Whether the other group has taken the region in, although it does not remember the move; `None`: that is not known yet.
    /// It has if rows of the region are there. If they are not, they may have moved on: then the master's map had them there
    /// before that. So only a look at the map that is later than the group's answer, and has the region here, says that it never
    /// left. `forgotten` is the number of the master's orders at that answer.
    async fn after_all(&self, departure: &Departure, forgotten: &mut Option<u64>) -> Option<bool> {
        if forgotten.is_some_and(|orders| departure.is_as_before_since(orders)) {
            return Some(false);
        }
        let (servers, nothing) = (departure.receivers.servers(), Bytes::new());
        let adopted = |reply: &v1::StageRegionReply| reply.adopted;
        let all = self.ask_majority(departure, &servers, &nothing, FROZEN_CALL_TIMEOUT, adopted).await;
        if all.iter().flatten().any(|reply| reply.adopted) {
            return Some(true);
        }
        // Such a member takes the region in no more, whatever it has still to apply, and one speaks for all: they apply one log.
        if all.iter().flatten().any(|reply| reply.forgotten) {
            forgotten.get_or_insert_with(|| departure.orders());
        }
        None
    }

    /// The other group has the region: redirects requests to it, and drops the region once a majority has taken it in.
    async fn leave(&self, departure: &Departure, adopted: RegionDescriptor) -> Result<(), End> {
        departure.hosted.set_adopted(adopted.clone());
        {
            let mut progress = departure.progress.lock();
            progress.region = Some(adopted.clone());
        }
        let mut pause = PAUSES.0;
        while !self.is_held(departure).await {
            departure.set_stage(Stage::Frozen, "a majority of the other group has to take it in");
            if !departure.group.status().is_leader {
                return Err(End::Elsewhere);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
        terrane_env::buggify_pause!("an adopted region is dropped late").await;
        let depart = Depart { id: departure.id, adopted };
        self.propose(departure, || Proposal::Depart(depart.clone())).await.map(drop)
    }

    /// Whether a majority of the other group has taken the region in.
    async fn is_held(&self, departure: &Departure) -> bool {
        let servers = departure.receivers.servers();
        let nothing = Bytes::new();
        let adopted = |reply: &v1::StageRegionReply| reply.adopted;
        let all = self.ask_majority(departure, &servers, &nothing, FROZEN_CALL_TIMEOUT, adopted).await;
        let held = all.iter().filter(|answer| matches!(answer, Ok(reply) if reply.adopted)).count();
        held > servers.len() / 2
    }

    /// Proposes to the group that the region leaves, until the outcome is known.
    async fn propose(&self, departure: &Departure, proposal: impl Fn() -> Proposal) -> Result<Reply, End> {
        let mut pause = PAUSES.0;
        loop {
            match departure.group.propose(proposal()).await {
                Ok(reply) => return Ok(reply),
                Err(error) => {
                    let error = propose_error(error, &departure.group, &self.addresses);
                    if matches!(error, Error::NotLeader { .. }) || self.stop.is_cancelled() {
                        return Err(End::Elsewhere);
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// As [`Peers::at_leader`]; `None` stands for this server.
    async fn at_leader<T, F>(
        &self,
        group: GroupId,
        servers: &[ServerId],
        call: impl Fn(Option<Client>, Option<v1::Hello>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        if self.host.group(group).is_some_and(|group| group.status().is_leader) {
            return call(None, self.peers.hello(self.peers.server())).await;
        }
        let others: Vec<ServerId> = servers.iter().copied().filter(|server| *server != self.peers.server()).collect();
        self.peers.at_leader(group, &others, |client, hello| call(Some(client), hello)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_whose_time_is_far_ahead_does_not_move() {
        assert!(check_time(7_000, 9_000).is_ok() && check_time(9_500, 9_000).is_ok());
        assert!(check_time(12_000, 9_000).unwrap_err().contains("in 3000 ms"));
    }
}
