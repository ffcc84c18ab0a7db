//! Merges while clients write and scan, by hand and on their own, and restarts after them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use terrane_client::{
    Admin, BalanceMode, Client, Delete, Error, Get, IssueKind, KeyRange, RegionDescriptor, RegionId, Scan, TableChange,
    TableSpec,
};
use terrane_regionserver::{BackendKind, ShapeLimits};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;
use tokio::task::JoinHandle;

use crate::splits::{Load, regions_cover_the_table, row_key};
use crate::{NEVER_SPLIT, SOON, all_rows, plain_table, text_of, with_engine};

const ROWS: usize = 300;

pub async fn regions(admin: &Admin, table: &str) -> Result<Vec<RegionDescriptor>> {
    Ok(admin.regions(Some(table)).await?.into_iter().map(|region| region.descriptor).collect())
}

/// Splits the table's regions at these rows.
pub async fn split_at(admin: &Admin, table: &str, rows: &[&str]) -> Result<()> {
    for row in rows {
        let regions = regions(admin, table).await?;
        let holder = regions.iter().find(|region| region.range.contains(row.as_bytes()));
        admin.split(holder.context("the regions cover the table")?.region, Some(row.as_bytes())).await?;
    }
    Ok(())
}

/// Merges the first two regions of the table until one is left.
async fn merge_all(admin: &Admin, table: &str) -> Result<()> {
    loop {
        let regions = regions(admin, table).await?;
        let [left, right, ..] = regions.as_slice() else { return Ok(()) };
        // In either order.
        let merged = admin.merge(right.region, left.region).await?;
        assert_eq!((&merged.range.start, &merged.range.end), (&left.range.start, &right.range.end));
        assert!(merged.epoch > left.epoch.max(right.epoch), "{merged:?} of {left:?} and {right:?}");
    }
}

/// Clients of the table `merge` that write, scan in both directions and count until the load is over.
pub struct Clients {
    writer: JoinHandle<Result<usize>>,
    scanners: [JoinHandle<Result<usize>>; 2],
    counter: JoinHandle<Result<u64>>,
}

impl Clients {
    pub async fn begin(client: &Client, load: &Load) -> Result<Self> {
        for row in 0..ROWS {
            load.write(&row_key(row)).await?;
        }
        let scanners = [false, true].map(|reverse| {
            let load = load.clone();
            tokio::spawn(async move { load.scan_on(reverse).await })
        });
        let writer = tokio::spawn(load.clone().rewrite_on(ROWS));
        let counter = tokio::spawn(count_up(client.clone(), load.clone()));
        Ok(Self { writer, scanners, counter })
    }

    /// Ends them, and checks what they have written and counted.
    pub async fn end(self, client: &Client, load: &Load) -> Result<()> {
        load.over.store(true, Ordering::Relaxed);
        assert!(self.writer.await?? > 0);
        for scanner in self.scanners {
            assert!(scanner.await?? > 0);
        }
        let increments = self.counter.await??;
        let table = client.table("merge").await?;
        let rows = all_rows(&table, Scan::prefix("count-")).await?;
        let sum: u64 = rows.iter().filter_map(|row| row.value("f", "c")).map(number).sum();
        assert_eq!(sum, increments, "each increment counts once");
        for row in rows {
            table.delete(Delete::new(row.row())).await?;
        }
        load.check_all().await.context("after the load")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_invisible_to_clients_on_lsm() -> Result<()> {
    a_merge_is_invisible_to_clients(BackendKind::Lsm).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_invisible_to_clients_on_memory() -> Result<()> {
    a_merge_is_invisible_to_clients(BackendKind::Memory).await
}

async fn a_merge_is_invisible_to_clients(engine: BackendKind) -> Result<()> {
    let mut cluster = Cluster::start(with_engine(engine)).await?;
    let client = cluster.client().await?;
    let load = Load::new(plain_table(&client, "merge", NEVER_SPLIT).await?);
    let clients = Clients::begin(&client, &load).await?;
    let admin = client.admin();
    for versions in ["2", "3", "1"] {
        split_at(&admin, "merge", &["500", "250", "750"]).await?;
        // Each region has the change at a number of its own.
        admin.alter_table("merge", TableChange::new().family("f", &[("versions", versions)])).await?;
        merge_all(&admin, "merge").await?;
        regions_cover_the_table(&client, "merge").await?;
    }
    clients.end(&client, &load).await?;
    cluster.without_each(async |_| load.check_all().await).await?;
    cluster.stop_all().await;
    Ok(())
}

/// Increments counters in all regions until the load is over; returns how often.
async fn count_up(client: Client, load: Load) -> Result<u64> {
    let table = client.table("merge").await?;
    let mut done = 0;
    while !load.is_over() {
        let key = format!("count-{}", done % 7);
        table.increment(&key, "f", "c", 1).await?;
        done += 1;
    }
    Ok(done)
}

fn number(value: &[u8]) -> u64 {
    value.try_into().map(u64::from_be_bytes).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_that_cannot_be_merged_are_refused_with_the_reason() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Memory)).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    let mut spec = TableSpec::new("apart")?.family("f", &[])?;
    for row in ["b", "c", "d", "e", "f", "g", "h"] {
        spec = spec.split_at(row.as_bytes());
    }
    admin.create_table(spec).await?;
    plain_table(&client, "other", NEVER_SPLIT).await?;
    let apart = regions(&admin, "apart").await?;
    let other = regions(&admin, "other").await?[0].region;
    let refused = async |one: RegionId, two: RegionId| match admin.merge(one, two).await {
        Err(error @ (Error::Invalid { .. } | Error::NotFound { .. })) => Ok(text_of(&error)),
        met => anyhow::bail!("{one} and {two}: {met:?}"),
    };
    let says = async |one: RegionId, two: RegionId, what: &str| {
        let text = refused(one, two).await?;
        ensure!(text.contains(what), "{text:?} does not say {what:?}");
        anyhow::Ok(())
    };
    says(apart[0].region, apart[2].region, "are not neighbours").await?;
    says(apart[0].region, apart[0].region, "is named twice").await?;
    says(apart[0].region, other, "different tables").await?;
    says(apart[0].region, RegionId(9_999), "9999").await?;
    eventually("nothing has changed", SOON, async || {
        ensure!(regions(&admin, "apart").await? == apart);
        Ok(())
    })
    .await?;
    cluster.stop_all().await;
    Ok(())
}

/// A table that grew and was emptied: its regions merge on their own, except across the boundary it was created with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_that_became_small_merge_by_themselves() -> Result<()> {
    let shape = ShapeLimits { merge_rest: Duration::from_secs(1), ..ShapeLimits::default() };
    let mut cluster = Cluster::start(Settings { shape, ..with_engine(BackendKind::Lsm) }).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    // A region that moved to another group has to rest for ten minutes before it comes back to be merged.
    admin.balance(BalanceMode::Off).await?;
    let spec = TableSpec::new("shrinks")?.family("f", &[])?.region_size(16 << 10).split_at(b"500");
    admin.create_table(spec).await?;
    let load = Load::new(client.table("shrinks").await?);
    for row in 0..2 * ROWS {
        load.write(&row_key(row)).await?;
    }
    eventually("the regions have split", SOON, async || {
        let regions = regions(&admin, "shrinks").await?.len();
        ensure!(regions > 3, "{regions} regions");
        Ok(())
    })
    .await?;
    for row in 0..2 * ROWS {
        load.table.delete(Delete::new(row_key(row))).await?;
    }
    admin.compact_table("shrinks", |_| {}).await?;
    eventually("the regions have merged", SOON, async || {
        let regions = admin.regions(Some("shrinks")).await?;
        ensure!(regions.len() == 2, "{regions:?}");
        Ok(())
    })
    .await?;
    let left = regions(&admin, "shrinks").await?;
    assert_eq!((&left[0].range.end[..], &left[1].range.start[..]), (&b"500"[..], &b"500"[..]));
    assert_eq!(load.table.count(KeyRange::all()).await?, 0);
    cluster.stop_all().await;
    Ok(())
}

fn busy(split_load: u64) -> Settings {
    let shape = ShapeLimits { split_load, split_seconds: 2, split_rest: Duration::ZERO, ..ShapeLimits::default() };
    Settings { shape, ..with_engine(BackendKind::Memory) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_region_splits_where_its_load_is() -> Result<()> {
    let mut cluster = Cluster::start(busy(300)).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    let load = Load::new(plain_table(&client, "busy", NEVER_SPLIT).await?);
    // Most of the rows, and none of the load, lie before what is read.
    for row in 0..ROWS {
        load.write(&row_key(row)).await?;
    }
    let reader = tokio::spawn({
        let load = load.clone();
        async move {
            let mut row = 0;
            while !load.is_over() {
                let gets = (0..20).map(|at| Get::new(format!("9{:02}-", (row + at) % 100)));
                load.table.get_many(gets).await?;
                row += 20;
            }
            anyhow::Ok(())
        }
    });
    eventually("the region has split", SOON, async || {
        let regions = admin.regions(Some("busy")).await?;
        let inside = regions.iter().any(|region| region.descriptor.range.start.starts_with(b"9"));
        ensure!(inside, "{} regions", regions.len());
        Ok(())
    })
    .await?;
    eventually("the load is shown", SOON, async || {
        let read: u64 = admin.regions(Some("busy")).await?.iter().map(|region| region.load.rows_read).sum();
        ensure!(read > 0);
        Ok(())
    })
    .await?;
    load.over.store(true, Ordering::Relaxed);
    reader.await??;
    load.check_all().await?;
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_hot_row_is_named_and_not_split() -> Result<()> {
    let mut cluster = Cluster::start(busy(300)).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    let load = Load::new(plain_table(&client, "hot", NEVER_SPLIT).await?);
    for row in 0..ROWS {
        load.write(&row_key(row)).await?;
    }
    let reader = tokio::spawn({
        let load = load.clone();
        async move {
            while !load.is_over() {
                load.table.get_many((0..20).map(|_| Get::new(row_key(7)))).await?;
            }
            anyhow::Ok(())
        }
    });
    eventually("status names the row", SOON, async || {
        let issues = admin.status().await?.issues;
        let named = issues.iter().any(|issue| issue.kind == IssueKind::HotRow && issue.what.contains(&row_key(7)));
        ensure!(named, "{issues:?}");
        Ok(())
    })
    .await?;
    assert_eq!(regions(&admin, "hot").await?.len(), 1);
    load.over.store(true, Ordering::Relaxed);
    reader.await??;
    cluster.stop_all().await;
    Ok(())
}
