//! Two servers are lost for good, as far as the operator knows, and their groups with them: the operator recovers every group
//! that has lost its majority. Later the two servers are back after all.
//!
//! All replicas were equal before, and no client writes, so the one that is left of a group has everything: no acknowledged
//! write is lost. What the servers that are back believe of the recovered groups does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terrane_client::{Admin, Error, GroupInfo};
use terrane_types::states::ServerState;
use terrane_types::{GroupId, ServerId};

use super::{liveness, new_table, now};
use crate::context::Context;
use crate::nodes::address;
use crate::scenario::passes;
use crate::trace;
use crate::verdict::Failure;

/// Servers that are lost: a majority of some groups.
pub const LOST: usize = 2;
/// Within this every group leads again. A server that has failed is noticed after seconds.
const RECOVERED_WITHIN: Duration = Duration::from_secs(30);
/// Within this everything is as before the loss: each group has got new replicas, one after the other.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// How long nothing is written before the loss.
const QUIET: Duration = Duration::from_secs(2);
/// A table that is created after the recovery.
const TABLE: &str = "after-the-loss";
const CALL_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Returns when followers have what their leaders have: nothing is written, so a few heartbeats suffice.
pub async fn all_have_everything() -> Result<(), Error> {
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// Recovers every group that has lost its majority with these servers, and checks that all regions work.
pub async fn recover(context: Context, lost: [&'static str; LOST]) -> Result<(), Error> {
    let client = context.connect(CALL_MAX).await?;
    let (admin, began) = (client.admin().with_timeout(CALL_MAX), now());
    let lost = lost.map(address);
    let mut recovered = BTreeSet::new();
    loop {
        let leaderless = match leaderless(&admin, &lost).await {
            Ok(leaderless) => leaderless,
            Err(error) if passes(&error) => continue,
            Err(error) => return Err(error),
        };
        // A group may have lost a leader only: then it is not recovered, and elects another one.
        for group in leaderless.iter().flatten() {
            if recover_one(&admin, *group).await? {
                recovered.insert(*group);
            }
        }
        if leaderless.as_ref().is_some_and(Vec::is_empty) {
            break;
        }
        if now() > began + RECOVERED_WITHIN {
            let what = format!("groups {leaderless:?} have no leader; these were recovered: {recovered:?}");
            context.state.fail(Failure::new(what));
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    trace::note(format_args!("groups {recovered:?} were recovered"));
    recovered.iter().for_each(|_| context.watch.count("groups that were recovered"));
    if let Err(what) = liveness::all_regions_work(&client, &context).await {
        context.state.fail(Failure::new(format!("after the recovery: {what}")));
    }
    new_table::write(&client, TABLE).await
}

/// The groups without a leader that is up; `None`: the masters have not noticed yet that the servers are lost.
async fn leaderless(admin: &Admin, lost: &[String; LOST]) -> Result<Option<Vec<GroupId>>, Error> {
    let status = admin.status().await?;
    let live: BTreeMap<ServerId, String> = status
        .servers
        .into_iter()
        .filter(|one| one.state == ServerState::Live)
        .map(|one| (one.server, one.address))
        .collect();
    if live.values().any(|address| lost.contains(address)) {
        return Ok(None);
    }
    // A leader that has lost its majority believes to lead until it hears of another one.
    let has_majority = |group: &GroupInfo| {
        let up = group.members.iter().filter(|(server, _)| live.contains_key(server)).count();
        up > group.members.len() / 2
    };
    let has_leader = |group: &GroupInfo| group.leader.is_some_and(|leader| live.contains_key(&leader));
    let groups = admin.groups().await?.into_iter().filter(|group| !(has_leader(group) && has_majority(group)));
    Ok(Some(groups.map(|group| group.group).collect()))
}

/// Whether the recovery of a group has begun. What is refused is tried again where it is needed.
async fn recover_one(admin: &Admin, group: GroupId) -> Result<bool, Error> {
    let begun = match admin.describe_recovery(group).await {
        Ok(described) => admin.recover_group(&described).await.map(|recovery| recovery.begun),
        Err(error) => Err(error),
    };
    trace::note(format_args!("the operator recovers group {group}: {begun:?}"));
    match begun {
        Err(error) if !(passes(&error) || error.is_invalid() || error.is_not_found()) => Err(error),
        begun => Ok(begun.unwrap_or(false)),
    }
}

/// Waits until all groups have all their replicas again.
pub async fn until_whole(context: Context) -> Result<(), Error> {
    let client = context.connect(CALL_MAX).await?;
    let (admin, began) = (client.admin().with_timeout(CALL_MAX), now());
    loop {
        let complaint = match (admin.status().await, admin.check().await) {
            (Ok(status), Ok(check)) => liveness::complaint(&status, &context)
                .or_else(|| check.findings.into_iter().next().map(|finding| finding.what)),
            (Err(error), _) | (_, Err(error)) => Some(trace::chain(&error)),
        };
        let Some(complaint) = complaint else {
            return new_table::read(&client, TABLE, "the recovery of its group", &context).await;
        };
        if now() > began + WHOLE_WITHIN {
            let what = format!("{} s after the lost servers are back: {complaint}", WHOLE_WITHIN.as_secs());
            context.state.fail(Failure::new(what));
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
