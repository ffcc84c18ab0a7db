//! The comparison of the replicas of a region, by the leader of its group: slow, in the background, round after round.
//!
//! Every replica applies the same entries, so all hold the same cells. If one does not, something is wrong that no checksum
//! has shown: memory that flipped a bit before a block was written, or a bug. The leader logs a `Compare`, at which every
//! replica pins a snapshot; asks each voter for a digest of it; and tells all how that ended. Where a replica differs from a
//! majority of the voters, twice in a row, it is damaged and is replaced by a copy ([`crate::replicas::mending`]). Where no majority
//! agrees, no server knows which one is right: the server says so, and nothing is changed.
//!
//! Bounds: a server leads one comparison at a time and reads one region at a time ([`digesting`]); a round over the regions that it
//! leads takes [`Comparer::every`], or as long as reading takes.

pub mod digesting;
mod judge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use terrane_proto::v1;
use terrane_raft::MemberProgress;
use terrane_types::{GroupId, Issue, IssueKind, Place, RegionId};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::digesting::Digesting;
use self::judge::{Answers, Verdict, confirmed, judge};
use crate::group::proposal::{Group, GroupHost, Proposal};
use crate::group::reply::Reply;
use crate::health::HealthIssues;
use crate::metrics::Metrics;
use crate::moves::peers::{CALL_TIMEOUT, Peers, answer};
use crate::operation::{Compare, ComparisonId};
use crate::region::cell_digest::RegionDigest;
use crate::region::comparison::{Digested, READ_WITHIN};
use crate::replicas::Replicas;
use crate::replicas::hosted::HostedRegion;

/// How often to look whether a comparison is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the entry may take.
const PROPOSE_MAX: Duration = Duration::from_secs(10);
/// The time between two questions to a member.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long a member may not have the entry, or not answer.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// What members are asked about.
#[derive(Clone, Copy)]
struct Asked {
    group: GroupId,
    region: RegionId,
    id: ComparisonId,
}

/// Compares the regions that this server leads.
pub struct Comparer {
    pub host: Arc<GroupHost>,
    pub replicas: Arc<Replicas>,
    pub peers: Arc<Peers>,
    pub health: Arc<HealthIssues>,
    pub metrics: Arc<Metrics>,
    pub digesting: Arc<Digesting>,
    /// The time of a round; zero: nothing is compared.
    pub every: Duration,
    pub stop: CancellationToken,
}

impl Comparer {
    /// Compares one region after another until the server stops.
    pub async fn watch(self) {
        if self.every.is_zero() {
            return;
        }
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.rounds()).await;
    }

    async fn rounds(self) {
        let mut began = Instant::now();
        // When each region had its turn, whatever came of it.
        let mut turns: BTreeMap<RegionId, Instant> = BTreeMap::new();
        loop {
            sleep(LOOK_EVERY.min(self.every / 2)).await;
            let led = self.led();
            turns.retain(|region, _| led.contains_key(region));
            // Another leader says what it finds.
            self.health.retain_comparisons(|region| led.contains_key(&region));
            let regions = u32::try_from(led.len()).unwrap_or(u32::MAX);
            if regions == 0 || began.elapsed() < self.every / regions {
                continue;
            }
            began = Instant::now();
            let longest = led.values().min_by_key(|(hosted, _)| {
                (turns.get(&hosted.region).copied(), hosted.comparison.compared_ms(), hosted.region)
            });
            if let Some((hosted, group)) = longest {
                turns.insert(hosted.region, began);
                self.compare(hosted, group).await;
            }
        }
    }

    /// The regions that this server leads.
    fn led(&self) -> BTreeMap<RegionId, (Arc<HostedRegion>, Group)> {
        let mut led = BTreeMap::new();
        for group in self.host.groups().into_iter().filter(Group::leads) {
            let Some(machine) = self.replicas.machine(group.id()) else { continue };
            led.extend(machine.hosted().into_iter().map(|hosted| (hosted.region, (hosted, group.clone()))));
        }
        led
    }

    /// Compares the replicas of a region, once more if they differ.
    async fn compare(&self, hosted: &HostedRegion, group: &Group) {
        let Some((mut asked, mut members, mut answers)) = self.answers(hosted.region, group).await else { return };
        let mut verdict = judge(&answers);
        if matches!(verdict, Verdict::Odd { .. } | Verdict::Divided) {
            tracing::warn!(region = %hosted.region, group = %group.id(), ?answers, "replicas differ; they are compared again");
            let Some(again) = self.answers(hosted.region, group).await else { return };
            (asked, members, answers) = again;
            verdict = confirmed(&verdict, judge(&answers));
        }
        match verdict {
            Verdict::Equal(digest) => {
                self.metrics.comparisons.inc();
                self.health.clear(IssueKind::ReplicasDiffer, Some(Place::Region(hosted.region)));
                self.end(asked, &members, (digest, false)).await;
            }
            Verdict::Odd { expected, odd } => {
                self.metrics.comparisons.inc();
                self.metrics.comparisons_differing.inc();
                tracing::error!(region = %hosted.region, group = %group.id(), ?odd, %expected, "replicas differ from the others");
                self.end(asked, &members, (expected, true)).await;
            }
            Verdict::Divided => {
                self.metrics.comparisons.inc();
                self.metrics.comparisons_differing.inc();
                let issue = divided(hosted, &members, &answers);
                let sentence = issue.text();
                if self.health.set(issue) {
                    tracing::error!("{sentence}");
                }
            }
            Verdict::Incomplete => {
                tracing::debug!(region = %hosted.region, "the replicas could not be compared");
            }
        }
    }

    /// What every voter holds of a region as of a new entry; `None` if there is none to compare with, one is away, or the entry
    /// is not applied.
    async fn answers(&self, region: RegionId, group: &Group) -> Option<(Asked, Vec<MemberProgress>, Answers)> {
        let members: Vec<_> = group.members().into_iter().filter(|member| member.voter).collect();
        if members.len() < 2 || !members.iter().all(|member| self.is_here(member) || member.alive) {
            return None;
        }
        let id = ComparisonId(terrane_env::rand::bytes());
        let proposed = timeout(PROPOSE_MAX, group.propose(Proposal::Compare(Compare { region, id }))).await;
        if !matches!(proposed, Ok(Ok(Reply::Applied { .. }))) {
            return None;
        }
        let asked = Asked { group: group.id(), region, id };
        let answer = async |member: &MemberProgress| (member.replica, self.answer_of(member, group, asked).await);
        let answers = join_all(members.iter().map(answer)).await.into_iter().collect();
        Some((asked, members, answers))
    }

    fn is_here(&self, member: &MemberProgress) -> bool {
        member.server == self.peers.server()
    }

    /// Whether there is still something to compare: a region that has split or moved, a member that was replaced and a leadership
    /// that was handed over must not hold up the comparison of the others.
    fn is_comparable(&self, member: &MemberProgress, group: &Group, region: RegionId) -> bool {
        let hosts = self.replicas.regions.get(region).is_some_and(|hosted| hosted.group == group.id());
        hosts && group.leads() && group.members().iter().any(|now| now.replica == member.replica && now.voter)
    }

    /// Asks a member until it has an answer.
    async fn answer_of(&self, member: &MemberProgress, group: &Group, asked: Asked) -> Option<RegionDigest> {
        let began = Instant::now();
        let mut heard = began;
        loop {
            match self.ask(member, asked).await {
                Digested::Ready(digest) => return Some(digest),
                Digested::Impossible(why) => {
                    tracing::debug!(region = %asked.region, replica = %member.replica, why, "a replica cannot be compared");
                    return None;
                }
                Digested::UnderWay => heard = Instant::now(),
                Digested::Unknown => {}
            }
            let is_over = heard.elapsed() >= SILENT_MAX || began.elapsed() >= READ_WITHIN;
            if is_over || !self.is_comparable(member, group, asked.region) {
                return None;
            }
            sleep(ASK_EVERY).await;
        }
    }

    async fn ask(&self, member: &MemberProgress, asked: Asked) -> Digested {
        if self.is_here(member) {
            return self.digesting.ask(asked.group, asked.region, asked.id);
        }
        let Ok(mut client) = self.peers.client(member.server) else { return Digested::Unknown };
        let request = v1::DigestRegionRequest {
            hello: self.peers.hello(member.server),
            group: asked.group.0,
            region: asked.region.0,
            comparison: asked.id.0.to_vec().into(),
        };
        let reply = answer(client.digest_region(request), CALL_TIMEOUT).await;
        reply.map_or(Digested::Unknown, digested)
    }

    /// Tells all members what most of them hold, and whether one that differs is damaged. One that does not hear it hears of the
    /// next comparison.
    async fn end(&self, asked: Asked, members: &[MemberProgress], (expected, is_sure): (RegionDigest, bool)) {
        let now_ms = self.host.wall_ms();
        let tell = async |member: &MemberProgress| {
            if self.is_here(member) {
                if let Some(machine) = self.replicas.machine(asked.group) {
                    machine.end_comparison(asked.region, asked.id, (expected, is_sure), now_ms);
                }
                return;
            }
            let Ok(mut client) = self.peers.client(member.server) else { return };
            let request = v1::EndComparisonRequest {
                hello: self.peers.hello(member.server),
                group: asked.group.0,
                region: asked.region.0,
                comparison: asked.id.0.to_vec().into(),
                expected: Some(message(expected)),
                sure: is_sure,
                compared_ms: now_ms,
            };
            answer(client.end_comparison(request), CALL_TIMEOUT).await.ok();
        };
        join_all(members.iter().map(tell)).await;
    }
}

/// The health issue of a region whose replicas differ without a majority.
fn divided(hosted: &HostedRegion, members: &[MemberProgress], answers: &Answers) -> Issue {
    let holds = |member: &MemberProgress| {
        let digest = answers.get(&member.replica).copied().flatten()?;
        Some(format!("server {} holds {digest}", member.server))
    };
    let each: Vec<String> = members.iter().filter_map(holds).collect();
    let what = format!(
        "the replicas of region {} of table {} differ, and no majority agrees: {}",
        hosted.region,
        hosted.state().schema.name,
        each.join(", ")
    );
    let next = format!(
        "nothing is replaced, because none is known to be right: reads show what the leader of group {} holds, so compare the table with \
         its source or a backup, and drain the other servers in turn once the leader is right",
        hosted.group
    );
    IssueKind::ReplicasDiffer.issue(what).at(Place::Region(hosted.region)).then(next)
}

/// A digest in the wire's form.
pub fn message(digest: RegionDigest) -> v1::RegionDigest {
    v1::RegionDigest { crc: digest.crc, rows: digest.rows, bytes: digest.bytes }
}

/// A digest from the wire.
pub fn received(digest: v1::RegionDigest) -> RegionDigest {
    RegionDigest { crc: digest.crc, rows: digest.rows, bytes: digest.bytes }
}

/// What a replica says, in the wire's form.
pub fn reply(digested: Digested) -> v1::DigestRegionReply {
    let (digest, impossible, under_way) = match digested {
        Digested::Unknown => (None, String::new(), false),
        Digested::UnderWay => (None, String::new(), true),
        Digested::Ready(digest) => (Some(message(digest)), String::new(), false),
        Digested::Impossible(why) => (None, why, false),
    };
    v1::DigestRegionReply { digest, impossible, under_way }
}

fn digested(reply: v1::DigestRegionReply) -> Digested {
    match reply.digest {
        Some(digest) => Digested::Ready(received(digest)),
        None if !reply.impossible.is_empty() => Digested::Impossible(reply.impossible),
        None if reply.under_way => Digested::UnderWay,
        None => Digested::Unknown,
    }
}
