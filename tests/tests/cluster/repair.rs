//! A fleet that changes under load: a server is lost for good, one joins, one is drained and removed, the number of copies
//! changes. Clients lose nothing, and in the end everything has as many replicas as asked, evenly spread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use terrane_client::{
    Admin, Client, Get, GroupInfo, Issue, IssueKind, Place, Put, Scan, ServerChange, ServerInfo, Table, TableSpec,
};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;
use terrane_types::states::{DrainState, GroupState, ServerState};

use crate::{SOON, all_rows, keys};

/// How long repair may take here; it takes seconds.
const REPAIRED_WITHIN: Duration = Duration::from_secs(90);

fn settings(replication: u32, servers: usize) -> Settings {
    Settings { replication, servers, replace_after: Duration::from_secs(2), ..Settings::default() }
}

/// A table with six regions.
pub async fn table(client: &Client) -> Result<Table> {
    let spec = TableSpec::new("t")?.family("f", &[])?;
    let spec = ["1", "2", "3", "4", "5"].iter().fold(spec, |spec, at| spec.split_at(at.as_bytes()));
    client.admin().create_table(spec).await?;
    Ok(client.table("t").await?)
}

/// Writes rows until it is stopped; every acknowledged row is to be found in the end.
pub struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<Result<()>>,
}

fn row(n: u64) -> String {
    format!("{}-{n:06}", n % 6)
}

impl Writer {
    pub fn start(table: Table) -> Self {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&written));
        let task = tokio::spawn(async move {
            for n in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                table.put(Put::new(row(n)).set("f", "q", "v")).await?;
                count.store(n + 1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { stop, written, task }
    }

    /// Stops, and checks that every acknowledged row is there.
    pub async fn finish(self, table: &Table) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?.context("a write failed")?;
        let mut expected: Vec<String> = (0..self.written.load(Ordering::Relaxed)).map(row).collect();
        expected.sort();
        ensure!(!expected.is_empty(), "nothing was written");
        ensure!(keys(&all_rows(table, Scan::all()).await?) == expected, "rows are missing or wrong");
        Ok(())
    }
}

/// Waits until the cluster's own check has no finding, nothing is unfinished, and `holds`.
pub async fn settled(admin: &Admin, what: &str, holds: impl Fn(&[ServerInfo]) -> Result<()>) -> Result<()> {
    eventually(what, REPAIRED_WITHIN, async || {
        holds(&admin.servers().await?)?;
        let procedures = admin.procedures().await?;
        ensure!(procedures.is_empty(), "unfinished: {procedures:?}");
        let findings = admin.check().await?.findings;
        ensure!(findings.is_empty(), "{findings:?}");
        Ok(())
    })
    .await
}

/// Whether the counts of all servers are within 10 % of their share, or one apart.
pub fn is_even(servers: &[ServerInfo], of: impl Fn(&ServerInfo) -> u32) -> Result<()> {
    let counts: Vec<u32> = servers.iter().map(of).collect();
    let (most, fewest) = (counts.iter().max().copied().unwrap_or(0), counts.iter().min().copied().unwrap_or(0));
    let share = counts.iter().sum::<u32>() / u32::try_from(counts.len())?;
    ensure!(most - fewest <= (share / 10).max(1), "uneven: {counts:?}");
    Ok(())
}

fn find<'a>(servers: &'a [ServerInfo], address: &str) -> Result<&'a ServerInfo> {
    servers.iter().find(|server| server.address == address).context("the server is listed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicas_of_a_lost_server_are_replaced_and_it_is_welcomed_back() -> Result<()> {
    let mut cluster = Cluster::start(settings(3, 4)).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    let writer = Writer::start(table.clone());
    settled(&admin, "the cluster is whole", |_| Ok(())).await?;

    let lost = cluster.server_address(3).to_string();
    cluster.stop_server(3).await;
    let check = admin.restart_check(None).await?;
    ensure!(check.iter().any(|verdict| !verdict.obstacles.is_empty()), "no other server may stop: {check:?}");
    eventually("the countdown is shown", SOON, async || {
        let status = admin.status().await?;
        let away = status.servers.iter().find(|server| server.address == lost).context("the lost server")?;
        let silent = |issue: &Issue| {
            matches!(issue.kind, IssueKind::ServerSilent | IssueKind::ServerStopped)
                && issue.place == Some(Place::Server(away.server))
        };
        ensure!(away.replaced_in.is_some() && status.issues.iter().any(silent), "{:?}", status.issues);
        Ok(())
    })
    .await?;
    settled(&admin, "three copies of everything on the others", |servers| {
        ensure!(find(servers, &lost)?.replicas == 0, "the lost server has replicas");
        let others: Vec<ServerInfo> = servers.iter().filter(|server| server.address != lost).cloned().collect();
        is_even(&others, |server| server.leaders)
    })
    .await?;

    // Its old replicas are removed, and it takes its share again.
    cluster.start_server(3).await?;
    settled(&admin, "the server is back and takes its share", |servers| {
        is_even(servers, |server| server.replicas)?;
        is_even(servers, |server| server.leaders)
    })
    .await?;
    writer.finish(&table).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_joins_another_is_drained_and_removed() -> Result<()> {
    let mut cluster = Cluster::start(settings(3, 3)).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    let writer = Writer::start(table.clone());
    let first = cluster.server_address(0).to_string();
    let refused = admin.change_server(&first, ServerChange::Drain).await.expect_err("three copies need three servers");
    ensure!(refused.is_invalid() && refused.to_string().contains("start 1 more"), "{refused}");
    let refused = admin.change_server(&first, ServerChange::Decommission).await.expect_err("it has replicas");
    ensure!(refused.to_string().contains("drain it first"), "{refused}");

    cluster.add_server().await?;
    settled(&admin, "the new server takes its share", |servers| {
        ensure!(servers.len() == 4, "four servers");
        is_even(servers, |server| server.replicas)?;
        is_even(servers, |server| server.leaders)
    })
    .await?;

    admin.change_server(&first, ServerChange::Drain).await?;
    settled(&admin, "the server is drained", |servers| {
        let drained = find(servers, &first)?;
        ensure!((drained.replicas, drained.drain) == (0, Some(DrainState::Drained)), "{drained:?}");
        Ok(())
    })
    .await?;
    admin.change_server(&first, ServerChange::Decommission).await?;
    let removed = cluster.server(0).expect("it runs");
    let mut refused = removed.refused();
    let told = tokio::time::timeout(Duration::from_secs(20), refused.wait_for(Option::is_some)).await;
    let told = told.expect("it is told within two reports")?.clone().unwrap_or_default();
    ensure!(told.contains("was removed from its cluster") && told.contains("empty --data directory"), "{told}");
    ensure!(removed.ready().is_err_and(|why| why == told), "a removed server is not ready: {:?}", removed.ready());
    cluster.stop_server(0).await;
    settled(&admin, "the server is gone", |servers| {
        ensure!(servers.iter().all(|server| server.address != first), "it is still listed");
        is_even(servers, |server| server.leaders)
    })
    .await?;
    writer.finish(&table).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_at_a_wrong_address_holds_up_nobody_and_is_told() -> Result<()> {
    const NOWHERE: &str = "127.0.0.1:9";
    let mut cluster = Cluster::start(settings(3, 3)).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    let wrong = cluster.add_server_advertising(NOWHERE).await?;
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let servers = admin.servers().await?;
        let state = servers.iter().find(|server| server.address == NOWHERE).map(|server| server.state);
        let ready = cluster.server(wrong).expect("it runs").ready();
        let is_told = ready.as_ref().is_err_and(|why| why.contains("cannot reach this server"));
        if state == Some(ServerState::Unreachable) && is_told {
            break;
        }
        ensure!(tokio::time::Instant::now() < deadline, "it is {state:?}, and says {ready:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let table = table(&client).await?;
    let writer = Writer::start(table.clone());
    let groups = admin.groups().await?;
    ensure!(groups.iter().all(|group| group.state == GroupState::Open), "a group waits for it: {groups:?}");
    let issues = admin.status().await?.issues;
    let unreachable = issues.iter().find(|issue| issue.kind == IssueKind::ServerUnreachable);
    let says = unreachable.context("it is an issue")?.text();
    ensure!([NOWHERE, "nothing answers there", "--advertise"].iter().all(|part| says.contains(part)), "{says}");
    writer.finish(&table).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_copy_grows_to_three_and_back() -> Result<()> {
    let mut cluster = Cluster::start(settings(1, 1)).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    let writer = Writer::start(table.clone());
    let refused = admin.set_replication(3).await.expect_err("there is one server");
    ensure!(refused.to_string().contains("start 2 more"), "{refused}");
    ensure!(admin.set_replication(2).await.is_err_and(|error| error.is_invalid()), "an even number");

    cluster.add_server().await?;
    cluster.add_server().await?;
    admin.set_replication(3).await?;
    settled(&admin, "three copies of everything", |servers| {
        ensure!(servers.len() == 3, "three servers");
        is_even(servers, |server| server.replicas)?;
        is_even(servers, |server| server.leaders)
    })
    .await?;
    let safe = admin.restart_check(None).await?;
    ensure!(safe.iter().all(|verdict| verdict.obstacles.is_empty()), "each of them may stop: {safe:?}");

    admin.set_replication(1).await?;
    settled(&admin, "one copy of everything", |servers| is_even(servers, |server| server.replicas)).await?;
    ensure!(table.get(Get::new(row(0))).await?.is_some(), "the first row is there");
    writer.finish(&table).await
}

/// The groups without a majority, as every list says.
async fn without_majority(admin: &Admin) -> Result<Vec<GroupInfo>> {
    let groups = admin.groups().await?;
    let lost: Vec<GroupInfo> = groups.into_iter().filter(|group| group.state == GroupState::NoMajority).collect();
    ensure!(!lost.is_empty(), "no group has lost its majority");
    for id in lost.iter().map(|group| group.group) {
        let (issues, findings) = (admin.status().await?.issues, admin.check().await?.findings);
        let of_group = |issue: &&Issue| issue.kind == IssueKind::LostMajority && issue.place == Some(Place::Group(id));
        let says = issues.iter().find(of_group).with_context(|| format!("{issues:?}"))?.text();
        ensure!(findings.iter().any(|found| found.kind == "majority" && found.what == says), "{findings:?}");
    }
    Ok(lost)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_lost_their_majority_are_recovered_from_a_survivor() -> Result<()> {
    let mut cluster = Cluster::start(settings(3, 4)).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    settled(&admin, "the cluster is whole", |_| Ok(())).await?;
    let whole = admin.groups().await?[0].group;
    let refused = admin.describe_recovery(whole).await.expect_err("its majority lives");
    ensure!(refused.is_invalid() && refused.to_string().contains("leader"), "{refused}");
    let rows: Vec<String> = (0..60).map(row).collect();
    for row in &rows {
        table.put(Put::new(row.clone()).set("f", "q", "v")).await?;
    }

    let gone = [0, 1].map(|index| cluster.server_address(index).to_string());
    cluster.stop_server(0).await;
    cluster.stop_server(1).await;
    let mut lost = Vec::new();
    eventually("the lost groups are listed", SOON, async || {
        lost = without_majority(&admin).await?;
        let groups = admin.groups().await?;
        let has_two = |group: &&GroupInfo| group.members.iter().filter(|(_, at)| gone.contains(at)).count() == 2;
        let all_lost = lost.iter().all(|group| has_two(&group)) && groups.iter().filter(has_two).count() == lost.len();
        ensure!(all_lost, "without a majority: {lost:?}, of {groups:?}; stopped: {gone:?}");
        for group in &lost {
            admin.describe_recovery(group.group).await?;
        }
        Ok(())
    })
    .await?;
    for group in &lost {
        let described = admin.describe_recovery(group.group).await?;
        // A replacement may have begun before the second was lost.
        ensure!(!described.survivors.is_empty() && described.lost.len() == 2, "{described:?}");
        ensure!(!described.losses.is_empty() && !described.begun, "{described:?}");
        admin.recover_group(&described).await?;
    }
    eventually("every group serves from what is left", SOON, async || {
        ensure!(admin.status().await?.groups_without_leader == 0, "a group has no leader");
        Ok(())
    })
    .await?;
    let mut expected = rows.clone();
    expected.sort();
    ensure!(keys(&all_rows(&table, Scan::all()).await?) == expected, "rows that the survivors had are lost");
    table.put(Put::new("9-new").set("f", "q", "v")).await?;

    // Two servers with empty disks join, and everything has three copies again.
    cluster.add_server().await?;
    cluster.add_server().await?;
    settled(&admin, "three copies of everything", |servers| {
        ensure!(servers.iter().filter(|server| gone.contains(&server.address)).all(|server| server.replicas == 0));
        Ok(())
    })
    .await?;
    // The lost ones were not lost after all: nothing of what they have counts, and they remove it.
    cluster.start_server(0).await?;
    cluster.start_server(1).await?;
    settled(&admin, "the servers that return take their share", |servers| is_even(servers, |server| server.replicas))
        .await?;
    expected.push("9-new".to_owned());
    ensure!(keys(&all_rows(&table, Scan::all()).await?) == expected, "rows are missing or wrong");
    Ok(())
}
