//! A group whose majority is lost for good: what is left of it, what its recovery from one survivor would lose, and the intent
//! to recover it.
//!
//! Only an administrator can decide that servers do not return. Every member of the group is asked first, live or not by its
//! reports: a group whose majority answers is never recovered. The survivor with the longest log (by the term of its last
//! entry, then by its index) has every entry that any other survivor can have committed. `crate::procedures` does the rest,
//! and the ordinary repair brings the group back to its number of replicas.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use terrane_proto::v1;
use terrane_types::states::ServerState;
use terrane_types::{Error, GroupId, Invalid, Issue, IssueKind, Place, ReplicaId, ServerId};

use crate::catalog::changes::ChangeState;
use crate::catalog::groups::GroupEntry;
use crate::catalog::{Catalog, CatalogEdit};
use crate::context::MasterContext;
use crate::servers::liveness::Moment;
use crate::servers::observed::{Observations, now};

/// A member that answered.
#[derive(Clone, Debug, PartialEq)]
struct Survivor {
    replica: ReplicaId,
    server: ServerId,
    found: v1::InspectReplicaReply,
}

/// A member that did not answer, or has failed.
#[derive(Clone, Debug, PartialEq)]
struct Lost {
    replica: ReplicaId,
    server: ServerId,
    why: String,
}

/// Open groups with too few live members for a leader, and those members.
pub fn without_majority(catalog: &Catalog, observed: &Observations, now: Moment) -> Vec<(GroupId, BTreeSet<ServerId>)> {
    let lacks = |(group, entry)| lacks_majority(observed, group, entry, now).map(|live| (group, live));
    catalog.groups().iter().filter_map(lacks).collect()
}

/// The live members of a group, if they are too few for a leader. What has not been reported to a new leader yet counts as there.
pub fn lacks_majority(
    observed: &Observations,
    group: GroupId,
    entry: &GroupEntry,
    now: Moment,
) -> Option<BTreeSet<ServerId>> {
    let members = entry.members.values().copied();
    let live: BTreeSet<ServerId> = members.filter(|server| has(observed, *server, group, now)).collect();
    let lacks = entry.is_open() && live.len() <= entry.members.len() / 2 && !has_quorum(observed, group);
    lacks.then_some(live)
}

/// Whether the group has a leader that hears a majority: one that lost it believes to lead until it hears of another.
fn has_quorum(observed: &Observations, group: GroupId) -> bool {
    let Some(leader) = observed.leader(group) else { return false };
    let Some(view) = observed.inventory.group(group) else { return false };
    let voters = view.members.iter().filter(|member| member.voter);
    let hears = voters.clone().filter(|member| member.alive || member.server == leader).count();
    view.members.is_empty() || hears > voters.count() / 2
}

fn has(observed: &Observations, server: ServerId, group: GroupId, now: Moment) -> bool {
    match observed.liveness.state(server) {
        // It runs, and its peers may reach it: it is not given up because a master cannot.
        ServerState::Live | ServerState::Unreachable => {
            observed.inventory.replicas(server).is_none_or(|replicas| replicas.contains_key(&group))
        }
        ServerState::Silent => !observed.liveness.is_missed(server, now),
        ServerState::Stopped => false,
    }
}

/// The health issue of a group without a majority.
pub fn lost_majority(catalog: &Catalog, group: GroupId, entry: &GroupEntry, live: &BTreeSet<ServerId>) -> Issue {
    let away = entry.members.values().filter(|server| !live.contains(server));
    let away: Vec<String> = away.map(|server| format!("{server} ({})", catalog.servers().address(*server))).collect();
    let rescue = if live.is_empty() {
        String::new()
    } else {
        format!("; if they do not return, `terrane admin recover-group {group}` shows what is left")
    };
    let (live, members) = (live.len(), entry.members.len());
    let what = format!(
        "group {group} has lost its majority, and its regions are unavailable: {live} of {members} members live"
    );
    let next = format!("bring back server {}{rescue}", away.join(" or "));
    IssueKind::LostMajority.issue(what).at(Place::Group(group)).then(next)
}

/// Describes the recovery of a group, or begins it.
pub async fn recover(
    context: &MasterContext,
    request: &v1::RecoverGroupRequest,
) -> Result<v1::RecoverGroupReply, Error> {
    let group = GroupId(request.group);
    let entry = context.journal.read(|catalog| catalog.groups().get(group).cloned());
    let entry = entry.ok_or_else(|| unknown(group))?;
    check_unchanging(context, group, &entry)?;
    let (survivors, lost) = look(context, group, &entry).await;
    let Some(best) = longest(&survivors) else {
        let what = format!("no replica of group {group} answers; bring one of its servers back first");
        return Err(invalid(what));
    };
    if let Some(what) = alive(group, best, &survivors) {
        return Err(invalid(what));
    }
    let reply = describe(context, group, &entry, best, &survivors, &lost);
    if !request.confirmed {
        return Ok(reply);
    }
    if (request.survivor, request.version) != (best.replica.0, entry.version) {
        return Err(invalid(format!("what is left of group {group} has changed since it was shown; look at it again")));
    }
    let edit = CatalogEdit::RecoverMembers { group, version: entry.version, survivor: best.replica };
    context.journal.record(&edit).await?;
    let (survivor, server) = (best.replica, best.server);
    tracing::warn!(%group, %survivor, %server, ?lost, "an administrator recovers a group that lost its majority");
    Ok(v1::RecoverGroupReply { begun: true, ..reply })
}

/// A recovery that has begun is repeated only if its survivor is lost, too.
fn check_unchanging(context: &MasterContext, group: GroupId, entry: &GroupEntry) -> Result<(), Error> {
    if !entry.is_open() {
        return Err(invalid(format!("group {group} is {} and has no data", entry.state.name())));
    }
    let survivor = entry.change.filter(|change| change.state == ChangeState::Recovering).and_then(|change| change.add);
    let Some((replica, server)) = survivor else { return Ok(()) };
    if context.observed.with(|observed| observed.liveness.is_live(server)) {
        return Err(invalid(format!(
            "group {group} is being recovered from replica {replica} on server {server}; `terrane admin procedures` shows it"
        )));
    }
    Ok(())
}

/// Asks every member, whether it is live by its reports or not.
async fn look(context: &MasterContext, group: GroupId, entry: &GroupEntry) -> (Vec<Survivor>, Vec<Lost>) {
    let members: BTreeMap<ReplicaId, ServerId> = entry
        .members
        .iter()
        .map(|(replica, server)| (*replica, *server))
        .chain(entry.change.and_then(|change| change.add))
        .collect();
    let asked = members
        .into_iter()
        .map(|(replica, server)| async move { (replica, server, context.orders.inspect_replica(server, group).await) });
    let (mut survivors, mut lost) = (Vec::new(), Vec::new());
    for (replica, server, answer) in join_all(asked).await {
        match answer {
            Ok(found) if found.replica == replica.0 && found.failed.is_empty() => {
                survivors.push(Survivor { replica, server, found });
            }
            Ok(found) if found.replica == replica.0 => lost.push(Lost { replica, server, why: found.failed }),
            Ok(_) => lost.push(Lost { replica, server, why: "the server has another replica".to_owned() }),
            Err(error) => lost.push(Lost { replica, server, why: error.to_string() }),
        }
    }
    (survivors, lost)
}

/// The survivor with the longest log, of those that can apply what they have if there are any: one that lacks what an entry
/// needs serves nothing after it, and if it went on alone, nothing would bring that. One without any entry has nothing to
/// recover.
fn longest(survivors: &[Survivor]) -> Option<&Survivor> {
    let with_log = survivors.iter().filter(|survivor| survivor.found.last_index > 0);
    let by_log = |survivor: &&Survivor| {
        let found = &survivor.found;
        let gets_on = found.stuck.is_empty();
        (gets_on, found.last_term, found.last_index, found.applied, std::cmp::Reverse(survivor.replica))
    };
    with_log.max_by_key(by_log)
}

/// Why the group needs no recovery: a leader is heard, or a majority by the survivor's configuration answers.
fn alive(group: GroupId, best: &Survivor, survivors: &[Survivor]) -> Option<String> {
    if let Some(hears) = survivors.iter().find(|survivor| survivor.found.has_leader) {
        let server = hears.server;
        return Some(format!(
            "group {group} is not lost: server {server} has heard a leader within the last seconds; if the others have just \
             failed, try again in a few seconds"
        ));
    }
    let answers = |voter: &&u64| survivors.iter().any(|survivor| survivor.replica.0 == **voter);
    let majority = |voters: &v1::ReplicaSet| voters.replicas.iter().filter(answers).count() > voters.replicas.len() / 2;
    best.found.voters.iter().all(majority).then(|| {
        let servers: Vec<String> = survivors.iter().map(|survivor| survivor.server.to_string()).collect();
        format!("group {group} has a majority: servers {} answer, and elect a leader by themselves", servers.join(", "))
    })
}

fn describe(
    context: &MasterContext,
    group: GroupId,
    entry: &GroupEntry,
    best: &Survivor,
    survivors: &[Survivor],
    lost: &[Lost],
) -> v1::RecoverGroupReply {
    context.journal.read(|catalog| {
        context.observed.with(|observed| v1::RecoverGroupReply {
            group: group.0,
            version: entry.version,
            survivor: best.replica.0,
            survivors: survivors.iter().map(|survivor| survivor_info(catalog, survivor)).collect(),
            lost: lost.iter().map(|member| lost_info(catalog, observed, member)).collect(),
            losses: losses(catalog, observed, group, best, survivors),
            begun: false,
        })
    })
}

fn survivor_info(catalog: &Catalog, survivor: &Survivor) -> v1::GroupSurvivor {
    v1::GroupSurvivor {
        replica: survivor.replica.0,
        server: survivor.server.0,
        address: catalog.servers().address(survivor.server),
        last_term: survivor.found.last_term,
        last_index: survivor.found.last_index,
        committed: survivor.found.committed,
        applied: survivor.found.applied,
    }
}

fn lost_info(catalog: &Catalog, observed: &Observations, member: &Lost) -> v1::LostMember {
    v1::LostMember {
        replica: member.replica.0,
        server: member.server.0,
        address: catalog.servers().address(member.server),
        quiet_ms: u64::try_from(observed.liveness.quiet_for(member.server, now()).as_millis()).unwrap_or(u64::MAX),
        why: member.why.clone(),
    }
}

/// What the recovery may lose, and what it may keep that was never confirmed, a sentence each.
fn losses(
    catalog: &Catalog,
    observed: &Observations,
    group: GroupId,
    best: &Survivor,
    survivors: &[Survivor],
) -> Vec<String> {
    let found = &best.found;
    let mut losses = Vec::new();
    let applied = observed.inventory.group(group).map_or(0, |view| view.applied);
    losses.push(match found.last_index.checked_sub(applied) {
        None => format!(
            "at least {} entries: the last leader had applied entry {applied} at its last report, and the survivor's log ends \
             with entry {}",
            applied - found.last_index,
            found.last_index
        ),
        Some(_) if applied > 0 => format!(
            "writes that only lost members have: the survivor has everything up to entry {applied}, which the last leader had \
             applied at its last report; what was confirmed after that may be lost"
        ),
        Some(_) => format!(
            "writes that only lost members have: no leader of the group has reported to this master, so it is not known how \
             many follow the survivor's last entry {}",
            found.last_index
        ),
    });
    if found.last_index > found.committed {
        losses.push(format!(
            "the survivor's last {} entries are not known to be confirmed; they take effect, so a write that was answered with \
             an error may be found",
            found.last_index - found.committed
        ));
    }
    losses.extend(survivors.iter().filter_map(unservable));
    if survivors.len() > 1 {
        losses.push("the other survivors' replicas are removed, and copied again from the survivor".to_owned());
    }
    let mut tables: BTreeMap<String, usize> = BTreeMap::new();
    for region in catalog.regions().iter().filter(|region| region.descriptor.group == group) {
        let table = catalog.tables().get(region.descriptor.table);
        let name = table.map_or_else(|| "a dropped table".to_owned(), |table| table.schema.name.to_string());
        *tables.entry(name).or_default() += 1;
    }
    let tables: Vec<String> = tables.into_iter().map(|(table, regions)| format!("{table} ({regions})")).collect();
    if !tables.is_empty() {
        losses.push(format!("it concerns these tables (and their regions in the group): {}", tables.join(", ")));
    }
    losses
}

/// What a survivor has and cannot serve.
fn unservable(survivor: &Survivor) -> Option<String> {
    let Survivor { replica, server, found } = survivor;
    (!found.stuck.is_empty()).then(|| {
        format!(
            "replica {replica} on server {server} has a log up to entry {} and has applied entry {}: {}; no group can serve \
             what follows from it",
            found.last_index, found.applied, found.stuck
        )
    })
}

fn unknown(group: GroupId) -> Error {
    Error::NotFound { what: format!("group {group} (`terrane admin groups` lists them)") }
}

fn invalid(what: String) -> Error {
    Error::Invalid(Invalid::new(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(replica: u64, last: (u64, u64), voters: &[&[u64]], has_leader: bool) -> Survivor {
        let voters = voters.iter().map(|voters| v1::ReplicaSet { replicas: voters.to_vec() }).collect();
        let (last_term, last_index) = last;
        let found =
            v1::InspectReplicaReply { replica, last_term, last_index, voters, has_leader, ..Default::default() };
        Survivor { replica: ReplicaId(replica), server: ServerId(replica), found }
    }

    #[test]
    fn the_longest_log_is_that_of_the_last_term_then_of_the_last_index() {
        let of = |logs: &[(u64, u64)]| {
            let survivors: Vec<_> =
                (1..).zip(logs).map(|(replica, last)| survivor(replica, *last, &[&[1, 2, 3]], false)).collect();
            longest(&survivors).map(|survivor| survivor.replica.0)
        };
        assert_eq!(of(&[(1, 9), (2, 3)]), Some(2));
        assert_eq!(of(&[(2, 9), (2, 3)]), Some(1));
        assert_eq!(of(&[(2, 9), (2, 9)]), Some(1));
        assert_eq!(of(&[(0, 0)]), None, "it has nothing");
    }

    #[test]
    fn a_survivor_that_cannot_apply_its_log_comes_after_those_that_can() {
        let stuck = |replica, last| {
            let mut survivor = survivor(replica, last, &[&[1, 2, 3]], false);
            survivor.found.stuck = "it lacks the files of a load".to_owned();
            survivor
        };
        let survivors = [stuck(1, (2, 9)), survivor(2, (1, 4), &[&[1, 2, 3]], false)];
        assert_eq!(longest(&survivors).map(|best| best.replica.0), Some(2));
        assert!(unservable(&survivors[0]).is_some_and(|what| what.contains("up to entry 9") && what.contains("files")));
        assert_eq!(unservable(&survivors[1]), None);
        let both = [stuck(1, (2, 9)), stuck(2, (1, 4))];
        assert_eq!(longest(&both).map(|best| best.replica.0), Some(1), "none is better than the other but by its log");
    }

    #[test]
    fn a_group_with_a_leader_or_a_majority_is_alive() {
        let is_alive = |survivors: &[Survivor]| alive(GroupId(7), longest(survivors).unwrap(), survivors).is_some();
        let of_three = |replica| survivor(replica, (1, 5), &[&[1, 2, 3]], false);
        assert!(!is_alive(&[of_three(1)]));
        assert!(is_alive(&[of_three(1), of_three(3)]));
        assert!(is_alive(&[survivor(1, (1, 5), &[&[1, 2, 3]], true)]), "it has heard a leader");
        // A joint change needs both majorities.
        let joint = |replica| survivor(replica, (1, 5), &[&[1, 2, 3], &[1, 2, 4]], false);
        assert!(!is_alive(&[joint(3), joint(4)]));
        assert!(is_alive(&[joint(1), joint(2)]));
        // A learner does not count, but may have the longest log.
        let learner = survivor(4, (1, 9), &[&[1, 2, 3]], false);
        assert!(!is_alive(&[of_three(1), learner]));
    }
}
