//! Manual and automatic splits while clients write and scan, and restarts after splits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use terrane_client::{Get, KeyRange, Put, Scan, Table};
use terrane_oracle::rows::{Asked, Change, Rows};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use terrane_tests::eventually::eventually;

use crate::{NEVER_SPLIT, SOON, all_rows, keys, plain_table, with_engine};

const REGION_SIZE: u64 = 16 << 10;
const LOAD_ROWS: usize = 3_000;
const WRITERS: usize = 6;
const SPLITS_LEAST: usize = 8;

#[derive(Clone)]
pub struct Load {
    pub table: Table,
    rows: Arc<Mutex<Rows>>,
    pub over: Arc<AtomicBool>,
}

impl Load {
    pub fn new(table: Table) -> Load {
        Load { table, rows: Arc::default(), over: Arc::default() }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub async fn write(&self, key: &str) -> Result<()> {
        let number = self.rows.lock().attempt(key.as_bytes(), Change::Put);
        let value = format!("{number}:{}", "x".repeat(100));
        self.table.put(Put::new(key).set_at("f", "n", i64::try_from(number)?, value)).await?;
        self.rows.lock().acknowledge(key.as_bytes(), number);
        Ok(())
    }

    /// Writes the first rows again and again until the load is over; returns how often.
    pub async fn rewrite_on(self, rows: usize) -> Result<usize> {
        let mut written = 0;
        while !self.is_over() {
            self.write(&row_key(written % rows)).await?;
            written += 1;
        }
        Ok(written)
    }

    /// Scans and checks until the load is over; returns the number of scans.
    pub async fn scan_on(&self, reverse: bool) -> Result<usize> {
        let mut scans = 0;
        while !self.is_over() {
            self.scan_once(reverse).await?;
            scans += 1;
        }
        Ok(scans)
    }

    async fn scan_once(&self, reverse: bool) -> Result<()> {
        let asked = Asked { reverse, ..Asked::all(KeyRange::all()) };
        let mut scanning = self.rows.lock().begin_scan(asked, |_| true);
        let scan = if reverse { Scan::all().reverse() } else { Scan::all() };
        let mut stream = self.table.scan(scan).await?;
        while let Some(row) = stream.next().await {
            let row = row?;
            self.rows.lock().show(&mut scanning, row.row(), number_in(row.value("f", "n")))?;
        }
        Ok(self.rows.lock().end_scan(&scanning, true)?)
    }

    async fn get_on(&self, rows: usize) -> Result<usize> {
        let mut gets = 0;
        while !self.is_over() {
            let key = row_key(gets * 7919 % rows);
            let read = self.rows.lock().begin_read(key.as_bytes());
            let row = self.table.get(Get::new(&key)).await?;
            let got = number_in(row.as_ref().and_then(|row| row.value("f", "n")));
            self.rows.lock().end_read(&read, got)?;
            gets += 1;
        }
        Ok(gets)
    }

    /// Checks that all rows have their last acknowledged number; no writes are in flight.
    pub async fn check_all(&self) -> Result<()> {
        let scanning = self.rows.lock().begin_scan(Asked::all(KeyRange::all()), |_| true);
        let counted = self.table.count(KeyRange::all()).await?;
        self.rows.lock().end_count(&scanning, counted, None)?;
        self.scan_once(false).await.context("forwards")?;
        self.scan_once(true).await.context("backwards")
    }
}

fn number_in(value: Option<&[u8]>) -> u64 {
    let text = value.map(String::from_utf8_lossy).unwrap_or_default();
    text.split_once(':').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

/// Keys that spread over the whole table.
pub fn row_key(row: usize) -> String {
    format!("{:03}-{row:05}", row * 631 % 1000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manual_split_is_invisible_to_clients() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Memory)).await?;
    let client = cluster.client().await?;
    let load = Load::new(plain_table(&client, "split", NEVER_SPLIT).await?);
    const ROWS: usize = 400;
    for row in 0..ROWS {
        load.write(&row_key(row)).await?;
    }
    let writer = tokio::spawn(load.clone().rewrite_on(ROWS));
    let (forward, backward) = (load.clone(), load.clone());
    let forward = tokio::spawn(async move { forward.scan_on(false).await });
    let backward = tokio::spawn(async move { backward.scan_on(true).await });

    let admin = client.admin();
    for (count, at) in ["500", "250", "750", "125"].into_iter().enumerate() {
        let regions = admin.regions(Some("split")).await?;
        let holder = regions.iter().find(|region| region.descriptor.range.contains(at.as_bytes()));
        let holder = &holder.context("the regions cover the table")?.descriptor;
        let daughters = admin.split(holder.region, Some(at.as_bytes())).await?;
        assert_eq!(daughters.len(), 2);
        assert_eq!(daughters[0].range.end, at.as_bytes());
        assert_eq!(daughters[1].range.start, at.as_bytes());
        assert!(daughters.iter().all(|daughter| daughter.epoch > holder.epoch), "{daughters:?} of {holder:?}");
        eventually("the master knows the daughters", SOON, async || {
            let regions = admin.regions(Some("split")).await?.len();
            ensure!(regions == count + 2, "{regions} regions");
            Ok(())
        })
        .await?;
    }
    // Without a split row the server picks one near the middle.
    let region = admin.regions(Some("split")).await?[0].descriptor.clone();
    let middle = admin.split(region.region, None).await?[0].range.end.clone();
    assert!(region.range.contains(&middle) && middle != region.range.start);

    load.over.store(true, Ordering::Relaxed);
    assert!(writer.await?? > 0);
    assert!(forward.await?? > 0 && backward.await?? > 0);
    load.check_all().await?;
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_split_by_themselves_under_load_on_lsm() -> Result<()> {
    regions_split_by_themselves_under_load(BackendKind::Lsm).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_split_by_themselves_under_load_on_memory() -> Result<()> {
    regions_split_by_themselves_under_load(BackendKind::Memory).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_split_by_themselves_under_load_on_sled() -> Result<()> {
    regions_split_by_themselves_under_load(BackendKind::Sled).await
}

async fn regions_split_by_themselves_under_load(engine: BackendKind) -> Result<()> {
    let mut cluster = Cluster::start(with_engine(engine)).await?;
    let client = cluster.client().await?;
    let load = Load::new(plain_table(&client, "load", REGION_SIZE).await?);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let load = load.clone();
            tokio::spawn(async move {
                for row in (0..LOAD_ROWS).filter(|row| row % WRITERS == writer) {
                    load.write(&row_key(row)).await?;
                    if row % 5 == 0 {
                        load.write(&row_key(row)).await?;
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let (scanner, getter) = (load.clone(), load.clone());
    let scanner = tokio::spawn(async move { scanner.scan_on(false).await });
    let getter = tokio::spawn(async move { getter.get_on(LOAD_ROWS).await });
    for writer in writers {
        writer.await??;
    }
    let admin = client.admin();
    eventually("eight splits", SOON, async || {
        let regions = admin.regions(Some("load")).await?.len();
        ensure!(regions > SPLITS_LEAST, "{regions} regions");
        Ok(())
    })
    .await?;
    load.over.store(true, Ordering::Relaxed);
    assert!(scanner.await?? > 0 && getter.await?? > 0);
    load.check_all().await.context("after the load")?;
    regions_cover_the_table(&client, "load").await?;

    cluster.without_each(async |_| load.check_all().await).await?;
    cluster.stop_all().await;
    cluster.start_all().await?;
    load.check_all().await.context("everything was restarted")?;
    regions_cover_the_table(&client, "load").await?;
    cluster.stop_all().await;
    Ok(())
}

/// Every row is in one region, and `meta` shows them all.
pub async fn regions_cover_the_table(client: &terrane_client::Client, table: &str) -> Result<()> {
    let regions = client.admin().regions(Some(table)).await?;
    let ranges: Vec<&KeyRange> = regions.iter().map(|region| &region.descriptor.range).collect();
    ensure!(ranges[0].start.is_empty() && ranges[ranges.len() - 1].end.is_empty(), "{ranges:?}");
    ensure!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
    let meta = client.table("meta").await?;
    let rows = all_rows(&meta, Scan::prefix(format!("{table},"))).await?;
    ensure!(rows.len() == regions.len(), "meta shows {:?}", keys(&rows));
    Ok(())
}
