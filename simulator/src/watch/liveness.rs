//! After everything is healed, the cluster works again within a stated time, without help.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use terrane_client::{
    Client, ClusterStatus, Delete, Error, Get, GroupInfo, Issue, IssueKind, Place, RegionInfo, ServerChange,
    ServerInfo, Table, TableInfo,
};
use terrane_types::GroupId;
use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::states::ServerState;

use super::{chronicle, ended, masters_change, now, returned};
use crate::context::Context;
use crate::nodes::address;
use crate::scenario::passes;
use crate::trace::{self, chain};
use crate::verdict::Failure;

/// Within this the master finds nothing wrong. A server may wait 3 s for a master and half a second for its restart, groups
/// elect leaders within 2 s, servers report every 250 ms, and slow disks delay each of these.
const WELL_WITHIN: Duration = Duration::from_secs(10);
/// Syncs that are waited for on top of that where disks are slow all the time. Once another server is lost, the group waits
/// for the replica on the slow disk to catch up.
const SYNCS_UNTIL_WELL: u32 = 150;
/// Syncs that replicas on slow disks may need to catch up: memory is small here, so that applying waits for flushes.
pub const SYNCS_UNTIL_EQUAL: u32 = 200;
/// The deadline of a call to a healthy cluster. A leader that has restarted first applies its log again, which takes seconds
/// where every entry is held up.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Within this all replicas have caught up after that: some have just been added, get two copies one after another, and their
/// group may change its leader meanwhile.
const EQUAL_WITHIN: Duration = Duration::from_secs(20);
/// A replica on a slow disk that is still catching up then has applied something within this.
const STANDSTILL_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Issues that are no fault of the cluster.
const LEGAL: [IssueKind; 4] = [
    IssueKind::Unsplittable,
    IssueKind::DiskSlow,
    // The limits of a run may be small, and its clients many.
    IssueKind::Rejections,
    IssueKind::ResourceNearLimit,
];
/// What is legal while a server is away for good: its replicas have to be replaced, for which there may be too few servers.
const LEGAL_WITHOUT_A_SERVER: [IssueKind; 3] = [IssueKind::Placement, IssueKind::LastCopy, IssueKind::FewCopies];

/// Waits until all is well, and checks that all works.
pub async fn until_well(context: Context) -> Result<(), Error> {
    let began = now();
    let client = context.connect(CALL_MAX).await?;
    let done = match well(&client, &context, began).await {
        Ok(()) => works(&client, &context).await,
        failed => failed,
    };
    if let Err(what) = done {
        context.state.fail(Failure::new(what));
    }
    Ok(())
}

async fn well(client: &Client, context: &Context, began: Duration) -> Result<(), String> {
    loop {
        let complaint = match client.admin().status().await {
            Ok(status) => match undrain(client, &status).await {
                Some(server) => Some(format!("server {server} is still drained")),
                None => complaint(&status, context).or_else(|| masters_change::complaint(&status, context)),
            },
            Err(error) => Some(chain(&error)),
        };
        let Some(complaint) = complaint else { break };
        let within = with_syncs(WELL_WITHIN, SYNCS_UNTIL_WELL, context);
        if now() > began + within {
            return Err(format!("{} s after everything was healed: {complaint}", within.as_secs()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    trace::note(format_args!("all is well after {} ms", (now() - began).as_millis()));
    context.watch.count("all was well");
    Ok(())
}

/// A time within which something must have happened, and the syncs that it may have to wait for where a disk is slow: an
/// election waits for some of them, one after another, and so do the installation of a copy and whatever follows.
fn with_syncs(within: Duration, syncs: u32, context: &Context) -> Duration {
    within + syncs * context.plan.slow_disks.1
}

/// Ends the drains whose end the operator could not order.
async fn undrain(client: &Client, status: &ClusterStatus) -> Option<String> {
    let drained = status.servers.iter().find(|server| server.drain.is_some())?;
    // If that fails, the next look tries again.
    client.admin().change_server(&drained.address, ServerChange::Undrain).await.ok();
    Some(drained.address.clone())
}

/// What is wrong with the cluster, if anything.
pub fn complaint(status: &ClusterStatus, context: &Context) -> Option<String> {
    let servers = context.plan.servers;
    // A server whose disk is damaged for good stays away.
    let lost = context.state.degraded().map(address);
    let is_away = |server: &&ServerInfo| server.state != ServerState::Live && lost.as_deref() != Some(&server.address);
    let away: Vec<&str> = status.servers.iter().filter(is_away).map(|server| server.address.as_str()).collect();
    let issues: Vec<&Issue> = status.issues.iter().filter(|issue| !is_legal(issue, lost.as_deref(), status)).collect();
    if status.servers.len() < servers || !away.is_empty() {
        return Some(format!("{} of {servers} servers are known, not live: {away:?}", status.servers.len()));
    }
    if status.groups_without_leader > 0 {
        let seen = |server: &ServerInfo| format!("{} {} for {:?}", server.address, server.state, server.since_report);
        let servers: Vec<String> = status.servers.iter().map(seen).collect();
        let groups = status.groups_without_leader;
        return Some(format!("{groups} groups have no leader, of servers {servers:?}; {:?}", status.issues));
    }
    // Without that server the master waits for it.
    if !status.waiting_for.is_empty() && lost.is_none() {
        return Some(format!("the master waits for {}", status.waiting_for));
    }
    (!issues.is_empty()).then(|| format!("the status says {issues:?}"))
}

/// Whether an issue is no fault of the cluster, of which the server at the address `lost` is away for good. A server that lost
/// its disk before has two numbers at its address.
fn is_legal(issue: &Issue, lost: Option<&str>, status: &ClusterStatus) -> bool {
    let mut at_it = status.servers.iter().filter(|server| Some(server.address.as_str()) == lost);
    let has_said = |server: &ServerInfo| {
        server.issues.iter().any(|own| own.kind == issue.kind && own.place.is_some() && own.place == issue.place)
    };
    let is_of = |lost: &ServerInfo| {
        // What it has reported of a group or region does not name it; no other server says the same.
        let only_it_said = status.servers.iter().all(|server| has_said(server) == (server.server == lost.server));
        only_it_said || issue.place == Some(Place::Server(lost.server)) || LEGAL_WITHOUT_A_SERVER.contains(&issue.kind)
    };
    LEGAL.contains(&issue.kind) || at_it.any(is_of)
}

/// Reads and writes in every region, then compares the replicas.
async fn works(client: &Client, context: &Context) -> Result<(), String> {
    all_regions_work(client, context).await?;
    let failed = |what: &str, error: &Error| format!("in a healthy cluster, {what} fails: {}", chain(error));
    let regions = client.admin().regions(None).await.map_err(|error| failed("listing regions", &error))?;
    context.watch.check_map(&regions, context);
    replicas_are_equal(client, context).await?;
    leaderships_landed_where_they_are_served()?;
    check_is_clean(client, context).await?;
    ended::procedures(client, context).await?;
    returned::everything(context).await?;
    chronicle::of_a_known_load(client, context).await
}

/// No leadership was handed to a member that could not serve, as far as the leader knew.
fn leaderships_landed_where_they_are_served() -> Result<(), String> {
    match terrane_env::sim::tally_of("leaderships handed to members that lack what an entry needs") {
        0 => Ok(()),
        times => Err(format!("{times} leaderships were handed to members that could not apply what they had")),
    }
}

/// Reads and writes in every region.
pub async fn all_regions_work(client: &Client, context: &Context) -> Result<(), String> {
    let failed = |what: &str, error: &Error| format!("in a healthy cluster, {what} fails: {}", chain(error));
    let tables = client.admin().list_tables().await.map_err(|error| failed("listing tables", &error))?;
    for info in tables {
        let name = info.schema.name.to_string();
        match probe_table(client, context, &info).await {
            // It was dropped or disabled meanwhile.
            Err(Error::NotFound { .. } | Error::Disabled { .. }) | Ok(()) => {}
            Err(error) => return Err(failed(&format!("a probe of every region of table {name}"), &error)),
        }
    }
    Ok(())
}

/// Catalog, groups and servers agree. Members may still be changing for a while.
async fn check_is_clean(client: &Client, context: &Context) -> Result<(), String> {
    if context.state.degraded().is_some() {
        return Ok(());
    }
    let began = now();
    loop {
        let findings = match client.admin().check().await {
            Ok(check) => check.findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>(),
            Err(error) => vec![chain(&error)],
        };
        if findings.is_empty() {
            context.watch.count("clean checks of the cluster");
            return Ok(());
        }
        if now() > began + with_syncs(EQUAL_WITHIN, SYNCS_UNTIL_EQUAL, context) {
            return Err(format!("`admin check` finds {findings:?}"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn probe_table(client: &Client, context: &Context, info: &TableInfo) -> Result<(), Error> {
    let name = info.schema.name.to_string();
    let Some(family) = info.schema.families.first().map(|family| family.name.to_string()) else { return Ok(()) };
    let table = client.table(&name).await?.with_timeout(CALL_MAX);
    let regions = client.admin().regions(Some(&name)).await?;
    let probes = regions.iter().map(|region| probe(&table, &family, region, context));
    join_all(probes).await.into_iter().collect()
}

/// Reads a row and deletes a column that no scenario has: that takes the way of every read and write, and changes nothing
/// that a scenario could see. The row does not exist, unless the region starts with the longest key there can be.
async fn probe(table: &Table, family: &str, region: &RegionInfo, context: &Context) -> Result<(), Error> {
    let start = &region.descriptor.range.start[..];
    let row = if start.len() < ROW_BYTES_MAX { [start, b"\0"].concat() } else { start.to_vec() };
    if !region.descriptor.range.contains(&row) {
        return Ok(());
    }
    let probed = async {
        table
            .get(Get::new(&row))
            .await
            .inspect_err(|_| trace::note(format_args!("no read of region {}", region.descriptor.region)))?;
        table.delete(Delete::new(&row).column(family, "a probe")).await
    };
    probed
        .await
        .inspect_err(|error| trace::note(format_args!("region {}: {}", region.descriptor.region, chain(error))))?;
    context.watch.count("probes of regions");
    Ok(())
}

/// The groups, and how many members of each report.
async fn reporting(client: &Client, context: &Context) -> Result<Vec<(GroupId, usize)>, String> {
    let groups = loop {
        match client.admin().groups().await {
            Ok(groups) => break groups,
            Err(error) if passes(&error) => {}
            Err(error) => return Err(chain(&error)),
        }
    };
    let lost = context.state.degraded().map(address);
    let of_group = |group: &GroupInfo| {
        let reporting = group.members.iter().filter(|(_, address)| lost.as_deref() != Some(address.as_str()));
        (group.group, reporting.count())
    };
    Ok(groups.iter().map(of_group).collect())
}

/// All replicas reach the same index, and hold the same there.
async fn replicas_are_equal(client: &Client, context: &Context) -> Result<(), String> {
    let watch = &context.watch.inner;
    watch.digests.borrow_mut().begin_round();
    watch.digests_wanted.set(true);
    let began = now();
    let (mut got_on, mut reached) = (began, BTreeMap::new());
    let equal = loop {
        // Members may still be changing.
        let groups = reporting(client, context).await?;
        let missing = watch.digests.borrow().missing(&groups);
        if missing.is_empty() {
            break Ok(());
        }
        // A replica on a slow disk may have a long log to apply, entry by entry.
        let reaches = watch.digests.borrow().reached(&missing);
        if reaches != reached {
            (got_on, reached) = (now(), reaches);
        }
        let within = with_syncs(EQUAL_WITHIN, SYNCS_UNTIL_EQUAL, context);
        let longest = if context.plan.slow_disks.1.is_zero() { within } else { 3 * within };
        if now() > (began + within).max(got_on + STANDSTILL_MAX) || now() > began + longest {
            let seconds = within.as_secs();
            let seen = watch.digests.borrow().seen(&missing);
            break Err(format!(
                "the replicas of groups {missing:?} did not reach one index within {seconds} s; of {groups:?} these were seen: {seen}"
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    watch.digests_wanted.set(false);
    trace::note(format_args!("replicas compared after {} ms", (now() - began).as_millis()));
    equal
}
