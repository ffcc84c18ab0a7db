//! A scan that is opened again where its region went sees the view that it began with, as with HBase's Java client: with the read
//! point of the first scanner, and from the row on that it had received last.

use std::collections::BTreeMap;

use anyhow::bail;
use terrane_client::{Admin, Get, Put, RegionDescriptor, Scan, Table};
use terrane_hbase_client::java_scan::JavaScan;
use terrane_tests::eventually::eventually;

use super::*;
use crate::merges::{regions, split_at};
use crate::moves::move_to;
use crate::{NEVER_SPLIT, SOON};

const CELLS: usize = 60;
/// So large that a row takes several answers.
const CELL_BYTES: usize = 20 << 10;
/// So large that a stream of a few rows is not read ahead to its end.
const LARGE: usize = 300 << 10;
const ANSWER_BYTES: u64 = 100 << 10;
const DAY_MS: i64 = 86_400_000;

/// Goes on to the end.
async fn finish(scan: &mut JavaScan, client: &mut HbaseClient) -> Result<()> {
    while next(scan, client).await? {}
    Ok(())
}

async fn next(scan: &mut JavaScan, client: &mut HbaseClient) -> Result<bool> {
    scan.next(client, || false).await.map_err(|why| anyhow!(why))
}

/// Goes on as a client that asks the region's leader, which does not know its scanner.
async fn finish_elsewhere(scan: &mut JavaScan, client: &mut HbaseClient) -> Result<()> {
    let before = scan.reopened;
    scan.lose_scanner();
    finish(scan, client).await?;
    ensure!(scan.reopened > before, "the scan was not opened again");
    Ok(())
}

/// Row, column, and the first byte of the value of each cell that was received.
fn seen(scan: &JavaScan) -> Vec<(Bytes, Bytes, u8)> {
    let first = |cell: &proto::Cell| cell.value.as_ref().and_then(|value| value.first().copied()).unwrap_or_default();
    let of = |bytes: &Option<Bytes>| bytes.clone().unwrap_or_default();
    scan.seen.iter().map(|cell| (of(&cell.row), of(&cell.qualifier), first(cell))).collect()
}

/// A cluster with a table of one family, and a client of either kind.
struct Scene {
    cluster: Cluster,
    stop: CancellationToken,
    client: HbaseClient,
    table: Table,
    admin: Admin,
    name: &'static str,
}

impl Scene {
    async fn begin(name: &'static str) -> Result<Self> {
        let cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
        let stop = CancellationToken::new();
        let own = cluster.client().await?;
        let table = crate::plain_table(&own, name, NEVER_SPLIT).await?;
        let client = HbaseClient::new(own.clone(), name.parse()?, serve_hbase(&cluster, &stop).await?);
        Ok(Self { cluster, stop, client, table, admin: own.admin(), name })
    }

    async fn end(mut self) -> Result<()> {
        self.stop.cancel();
        self.cluster.stop_all().await;
        Ok(())
    }

    /// Writes all cells of a row, each with a value of this byte.
    async fn write_wide(&self, row: &'static str, byte: u8) -> Result<()> {
        let cell = |put: Put, at| put.set("f", format!("q{at:02}"), vec![byte; CELL_BYTES]);
        self.table.put((0..CELLS).fold(Put::new(row), cell)).await?;
        Ok(())
    }

    async fn write(&self, row: &'static str, byte: u8) -> Result<()> {
        self.table.put(Put::new(row).set("f", "q", vec![byte])).await?;
        Ok(())
    }

    async fn region_of(&self, row: &str) -> Result<RegionDescriptor> {
        let regions = regions(&self.admin, self.name).await?;
        regions.into_iter().find(|region| region.range.contains(row.as_bytes())).context("a region")
    }

    /// The place of the server that leads the region of a row.
    async fn leader_of(&self, row: &str) -> Result<usize> {
        let region = self.region_of(row).await?.region;
        let addresses = [0, 1, 2].map(|index| self.cluster.server_address(index).to_string());
        eventually("the region has a leader", SOON, async || {
            let all = self.admin.regions(Some(self.name)).await?;
            let found = all.into_iter().find(|info| info.descriptor.region == region);
            found.and_then(|info| addresses.iter().position(|address| *address == info.leader)).context("none is known")
        })
        .await
    }

    async fn move_away(&self, row: &str) -> Result<()> {
        let to = (self.leader_of(row).await? + 1) % 3;
        move_to(&self.admin, &self.region_of(row).await?, &self.cluster.server_address(to).to_string()).await?;
        Ok(())
    }

    /// The leader of a row's region gives its leads up, and stays.
    async fn lead_elsewhere(&self, row: &str) -> Result<usize> {
        let leader = self.leader_of(row).await?;
        self.cluster.clock(leader).set_skew_ms(DAY_MS);
        self.follows(row, leader).await?;
        Ok(leader)
    }

    async fn follows(&self, row: &str, former: usize) -> Result<()> {
        eventually("another server leads", SOON, async || {
            ensure!(self.leader_of(row).await? != former, "it leads");
            Ok(())
        })
        .await
    }

    /// Followers keep what a scanner at their leader sees.
    async fn followers_keep(&self) -> Result<()> {
        eventually("both followers keep the view", SOON, async || {
            ensure!(self.cluster.total("terrane_server_kept_views") >= 2.0, "they do not");
            Ok(())
        })
        .await
    }
}

/// A scan of one wide row.
fn wide(reversed: bool, batch: Option<u32>) -> JavaScan {
    JavaScan::new(proto::Scan {
        max_result_size: Some(ANSWER_BYTES),
        batch_size: batch,
        reversed: Some(reversed),
        ..proto::Scan::default()
    })
}

/// Checks that a row came whole, with one value in all cells.
fn check_whole(scan: &JavaScan, byte: u8) -> Result<()> {
    let mut values: BTreeMap<u8, usize> = BTreeMap::new();
    let seen = seen(scan);
    seen.iter().for_each(|(_, _, value)| *values.entry(*value).or_default() += 1);
    ensure!(values == BTreeMap::from([(byte, CELLS)]), "a row that never was: {values:?}");
    let columns: Vec<_> = seen.iter().map(|(_, qualifier, _)| qualifier.clone()).collect();
    ensure!(columns.is_sorted() && columns.windows(2).all(|pair| pair[0] != pair[1]), "columns {columns:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_read_while_its_region_moves_is_not_torn() -> Result<()> {
    let mut scene = Scene::begin("moved").await?;
    for (reversed, batch) in [(false, Some(10)), (false, None), (true, Some(10))] {
        scene.write_wide("r", b'o').await?;
        let (mut scan, mut other) = (wide(reversed, batch), wide(reversed, batch));
        ensure!(
            next(&mut scan, &mut scene.client).await? && next(&mut other, &mut scene.client).await?,
            "there is more"
        );
        scene.move_away("r").await?;
        scene.write_wide("r", b'n').await?;
        scene.admin.flush_table(scene.name, |_| {}).await?;
        // One goes on where it began, since that server has a replica in the other group as well.
        finish(&mut scan, &mut scene.client).await?;
        finish_elsewhere(&mut other, &mut scene.client).await?;
        for scan in [scan, other] {
            check_whole(&scan, b'o').with_context(|| format!("reversed {reversed}, batch {batch:?}"))?;
        }
    }
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_many_rows_sees_its_region_as_it_was_before_it_moved() -> Result<()> {
    let mut scene = Scene::begin("rows").await?;
    for row in ["row1", "row2", "row3"] {
        scene.write(row, b'o').await?;
    }
    let mut scan = JavaScan::new(proto::Scan::default());
    next(&mut scan, &mut scene.client).await?;
    for row in ["row2", "row4"] {
        scene.write(row, b'n').await?;
    }
    scene.table.delete(terrane_client::Delete::new("row3")).await?;
    scene.move_away("row1").await?;
    scene.write("row2", b'l').await?;
    finish_elsewhere(&mut scan, &mut scene.client).await?;
    let seen: Vec<_> = seen(&scan).into_iter().map(|(row, _, value)| (row, value)).collect();
    let expected = ["row1", "row2", "row3"].map(|row| (Bytes::from_static(row.as_bytes()), b'o'));
    ensure!(seen == expected, "it saw {seen:?}");
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_read_while_its_leader_changes_is_not_torn() -> Result<()> {
    let mut scene = Scene::begin("led").await?;
    scene.write_wide("r", b'o').await?;
    let mut scan = wide(false, Some(10));
    let mut other = wide(false, Some(10));
    ensure!(next(&mut scan, &mut scene.client).await? && next(&mut other, &mut scene.client).await?, "there is more");
    scene.followers_keep().await?;
    let former = scene.lead_elsewhere("r").await?;
    scene.write_wide("r", b'n').await?;
    // The client that has not heard of it goes on where it began.
    finish(&mut scan, &mut scene.client).await?;
    check_whole(&scan, b'o')?;
    ensure!(scan.reopened == 0, "it had to open the scan again");
    // Another one goes to the leader.
    scene.admin.flush_table(scene.name, |_| {}).await?;
    finish_elsewhere(&mut other, &mut scene.client).await?;
    check_whole(&other, b'o')?;
    scene.cluster.clock(former).set_skew_ms(0);
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_read_while_its_server_stops_is_not_torn() -> Result<()> {
    let mut scene = Scene::begin("stopped").await?;
    scene.write_wide("r", b'o').await?;
    let mut scan = wide(false, Some(10));
    ensure!(next(&mut scan, &mut scene.client).await?, "there is more");
    scene.followers_keep().await?;
    // What is replaced while the scan is open stays on the followers, too.
    scene.write_wide("r", b'm').await?;
    let leader = scene.leader_of("r").await?;
    scene.cluster.stop_server(leader).await;
    scene.follows("r", leader).await?;
    scene.write_wide("r", b'n').await?;
    finish(&mut scan, &mut scene.client).await?;
    check_whole(&scan, b'o')?;
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_read_while_its_region_splits_is_not_torn() -> Result<()> {
    let mut scene = Scene::begin("split").await?;
    scene.write_wide("r", b'o').await?;
    let mut scan = wide(false, Some(10));
    ensure!(next(&mut scan, &mut scene.client).await?, "there is more");
    split_at(&scene.admin, scene.name, &["m"]).await?;
    scene.write_wide("r", b'n').await?;
    scene.admin.flush_table(scene.name, |_| {}).await?;
    finish(&mut scan, &mut scene.client).await?;
    check_whole(&scan, b'o')?;
    ensure!(scan.reopened > 0, "it was not opened again");
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_whose_view_is_gone_ends_with_an_exception() -> Result<()> {
    let mut scene = Scene::begin("gone").await?;
    scene.write_wide("r", b'o').await?;
    let mut scan = wide(false, Some(10));
    ensure!(next(&mut scan, &mut scene.client).await?, "there is more");
    // A server that was restarted has nothing of what was replaced.
    let point = scan.scan.mvcc_read_point.filter(|point| *point > 0).context("no read point was given")?;
    scene.cluster.stop_all().await;
    scene.stop.cancel();
    let mut cluster = scene.cluster;
    cluster.start_all().await?;
    let stop = CancellationToken::new();
    let own = cluster.client().await?;
    let client = HbaseClient::new(own.clone(), "gone".parse()?, serve_hbase(&cluster, &stop).await?);
    let table = own.table("gone").await?;
    scene = Scene { admin: own.admin(), cluster, stop, client, table, name: "gone" };
    scene.write_wide("r", b'n').await?;
    scene.admin.flush_table(scene.name, |_| {}).await?;
    scan.open_again();
    let refused = finish(&mut scan, &mut scene.client).await.err().context("it was answered")?.to_string();
    ensure!(refused.contains("DoNotRetryIOException") && refused.contains("scan again"), "refused with {refused}");
    check_torn_never(&scan)?;

    // The read point of another region, too.
    let mut other = wide(false, Some(10));
    other.scan.mvcc_read_point = Some(point + (1 << 48));
    let refused = next(&mut other, &mut scene.client).await.err().context("it was answered")?.to_string();
    ensure!(refused.contains("DoNotRetryIOException") && refused.contains("scan again"), "refused with {refused}");
    scene.end().await
}

fn check_torn_never(scan: &JavaScan) -> Result<()> {
    ensure!(seen(scan).iter().all(|(_, _, value)| *value == b'o'), "it is torn");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_a_region_that_is_merged_ends_with_an_exception() -> Result<()> {
    let mut scene = Scene::begin("merged").await?;
    split_at(&scene.admin, scene.name, &["m"]).await?;
    scene.write_wide("r", b'o').await?;
    scene.write("a", b'o').await?;
    let mut scan =
        JavaScan::new(proto::Scan { start_row: Some(Bytes::from_static(b"m")), ..wide(false, Some(10)).scan });
    ensure!(next(&mut scan, &mut scene.client).await?, "there is more");
    let [left, right] = &regions(&scene.admin, scene.name).await?[..] else { bail!("two regions") };
    eventually("the regions are merged", SOON, async || {
        Ok(scene.admin.merge(left.region, right.region).await.map(drop)?)
    })
    .await?;
    scene.write_wide("r", b'n').await?;
    let refused = finish(&mut scan, &mut scene.client).await.err().context("it was answered")?.to_string();
    ensure!(refused.contains("DoNotRetryIOException") && refused.contains("scan again"), "refused with {refused}");
    check_torn_never(&scan)?;
    scene.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_scan_of_our_own_client_goes_on_where_its_region_went() -> Result<()> {
    let scene = Scene::begin("own").await?;
    let rows: Vec<String> = (0..40).map(|row| format!("row{row:02}")).collect();
    for change in ["a move", "another leader"] {
        for row in &rows {
            scene.table.put(Put::new(row.clone()).set("f", "q", vec![b'o'; LARGE])).await?;
        }
        let mut stream = scene.table.scan(Scan::all().block_bytes(64 << 10).snapshot()).await?;
        let first = stream.next().await.context("a row")??;
        ensure!(first.row()[..] == b"row00"[..], "{first:?}");
        scene.followers_keep().await?;
        if change == "a move" {
            scene.move_away("row00").await?;
        } else {
            scene.lead_elsewhere("row00").await?;
        }
        for row in &rows {
            scene.table.put(Put::new(row.clone()).set("f", "q", vec![b'n'; LARGE])).await?;
        }
        let mut seen = 1;
        while let Some(row) = stream.next().await {
            let row = row.with_context(|| format!("after {change}"))?;
            let value = row.value("f", "q").context("a cell")?;
            ensure!(value.first() == Some(&b'o'), "after {change} {row:?} is of another moment");
            seen += 1;
        }
        ensure!(seen == rows.len(), "after {change} the scan saw {seen} rows");
        ensure!(scene.table.get(Get::new("row00")).await?.is_some(), "it is there");
    }
    scene.end().await
}
