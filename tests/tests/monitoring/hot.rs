//! Hot rows are named by the leaders of their regions, with a key at which a split halves the load.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use terrane_client::{Client, Get, HotRegion, Put, RowMutation, Scan, Table, TableSpec};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::SOON;

const USERS: u64 = 100;

fn user(number: u64) -> String {
    format!("user-{number:03}")
}

async fn table(client: &Client, name: &str) -> Result<Table> {
    client.admin().create_table(TableSpec::new(name)?.family("f", &[])?).await?;
    Ok(client.table(name).await?)
}

/// Writes every user as often.
async fn write_all(table: &Table, times: u64) -> Result<()> {
    for _ in 0..times {
        let puts =
            (0..USERS).map(|number| RowMutation::new(user(number)).put(Put::new(user(number)).set("f", "q", "v")));
        for outcome in table.mutate_many(puts.collect()).await? {
            outcome?;
        }
    }
    Ok(())
}

async fn only_region(client: &Client, table: &str) -> Result<HotRegion> {
    let found = client.admin().hot_rows(Some(table), 32).await?;
    ensure!(found.failures.is_empty(), "{found:?}");
    let [region] = &found.regions[..] else { anyhow::bail!("not one region: {found:?}") };
    Ok(region.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_row_is_named_and_a_split_at_the_proposed_key_halves_the_load() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let users = table(&client, "users").await?;
    write_all(&users, 60).await?;
    for _ in 0..2_000 {
        users.get(Get::new(user(7))).await?;
    }
    let region = only_region(&client, "users").await?;
    let read = region.reads.first().context("no row is read much")?;
    ensure!(read.row == user(7) && read.share > 0.9, "{region:?}");
    // Each of them is one in a hundred.
    ensure!(region.writes.iter().all(|hot| hot.share < 0.1), "{region:?}");

    // Writes alone are spread over all users.
    let writes = table(&client, "writes").await?;
    write_all(&writes, 200).await?;
    let region = only_region(&client, "writes").await?;
    let at = region.split_at.context("no key halves the load")?;
    let low = (0..USERS).filter(|number| user(*number).as_bytes() < &at[..]).count();
    ensure!((20..=80).contains(&low) && region.heavier_percent <= 70, "{low} of {USERS} users are left of {at:?}");
    let daughters = client.admin().split(region.region, Some(&at)).await?;
    ensure!(daughters[1].range.start == at, "{daughters:?}");
    eventually("both daughters have a part of the load", SOON, async || {
        write_all(&writes, 20).await?;
        let found = client.admin().hot_rows(Some("writes"), 1).await?.regions;
        let [one, other] = &found[..] else { anyhow::bail!("not two regions: {found:?}") };
        let (one, other) = (one.load.rows_written, other.load.rows_written);
        ensure!(one.min(other) * 6 >= one + other && other > 0, "{one} and {other} rows per second");
        Ok(())
    })
    .await?;
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_grows_is_said_to_and_no_boundary_is_proposed() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let log = table(&client, "log").await?;
    for batch in 0..100_u64 {
        let row = |number| format!("{:09}", batch * 50 + number);
        let puts = (0..50).map(|number| RowMutation::new(row(number)).put(Put::new(row(number)).set("f", "q", "v")));
        for outcome in log.mutate_many(puts.collect()).await? {
            outcome?;
        }
    }
    let region = only_region(&client, "log").await?;
    ensure!(region.grows && region.split_at.is_none(), "{region:?}");
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scanned_rows_are_sampled_and_counted_ones_are_not_named() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let users = table(&client, "users").await?;
    write_all(&users, 1).await?;
    for _ in 0..200 {
        // Its last row is not hotter than the others.
        ensure!(users.count("user-000".."user-050").await? == 50);
    }
    let region = only_region(&client, "users").await?;
    ensure!(region.reads.is_empty(), "{region:?}");

    let scans = table(&client, "scans").await?;
    write_all(&scans, 1).await?;
    for _ in 0..400 {
        let mut rows = scans.scan(Scan::rows("user-050".."user-054")).await?;
        while let Some(row) = rows.next().await {
            row?;
        }
    }
    let region = only_region(&client, "scans").await?;
    let named: Vec<&[u8]> = region.reads.iter().map(|hot| &hot.row[..]).collect();
    ensure!(named.len() >= 2 && named.iter().all(|row| (&b"user-050"[..]..=b"user-053").contains(row)), "{region:?}");

    let unknown = client.admin().hot_rows(Some("nowhere"), 1).await;
    ensure!(unknown.as_ref().is_err_and(terrane_client::Error::is_not_found), "{unknown:?}");
    cluster.stop_server(0).await;
    let found = client.admin().with_timeout(Duration::from_secs(5)).hot_rows(None, 1).await?;
    ensure!(found.failures.len() <= 1, "{found:?}");
    cluster.stop_all().await;
    Ok(())
}
