//! Servers that must not lead: one with a wrong clock, one that is stopping. Clients notice nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use terrane_client::{Client, Consistency, Get, IssueKind, Put, Scan, Table, TableSpec};
use terrane_proto::v1;
use terrane_tests::cluster::Cluster;
use terrane_tests::eventually::eventually;
use terrane_types::Error;

use crate::consistency::Lines;
use crate::{NEVER_SPLIT, SOON, all_rows, keys, plain_table};
use terrane_regionserver::BackendKind;

const DAY_MS: i64 = 86_400_000;

async fn check_rows(table: &Table, expected: &[String], when: &str) -> Result<()> {
    assert_eq!(keys(&all_rows(table, Scan::all()).await?), expected, "{when}");
    // Members are called in turn, so that each of the three is.
    for row in expected.iter().take(9) {
        let found = table.get(Get::new(row.clone())).consistency(Consistency::Stale).await?;
        ensure!(found.is_some(), "{when}: a member hides {row}");
    }
    Ok(())
}

async fn rewrite(client: &Client, table: &str) -> Result<()> {
    client.admin().flush_table(table, |_| {}).await?;
    client.admin().compact_table(table, |_| {}).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_clock_a_day_ahead_expires_no_row() -> Result<()> {
    let mut cluster = Cluster::start(crate::with_engine(BackendKind::default())).await?;
    let client = cluster.client().await?;
    let spec = TableSpec::new("t")?.family("f", &[("ttl", "1h")])?;
    let spec = ["1", "2", "3", "4", "5"].iter().fold(spec, |spec, at| spec.split_at(at.as_bytes()));
    client.admin().create_table(spec).await?;
    let table = client.table("t").await?;
    let mut rows = Vec::new();
    for n in 0..60 {
        rows.push(format!("{}-{n:02}", n % 6));
        table.put(Put::new(rows[n].clone()).set("f", "q", "kept")).await?;
    }
    rows.sort();

    let wrong = (0..3).find(|index| cluster.number(*index, "terrane_groups_led") > 0.0).unwrap_or(0);
    cluster.clock(wrong).set_skew_ms(DAY_MS);
    for n in 0..12 {
        rows.push(format!("{}-during-{n:02}", n % 6));
        table.put(Put::new(rows[60 + n].clone()).set("f", "q", "kept")).await?;
    }
    rows.sort();
    check_rows(&table, &rows, "as the clock goes wrong").await?;
    rewrite(&client, "t").await?;
    check_rows(&table, &rows, "rewritten while the clock is wrong").await?;
    eventually("the server with the wrong clock leads nothing and says why", SOON, async || {
        let issues = client.admin().status().await?.issues;
        ensure!(issues.iter().any(|issue| issue.kind == IssueKind::ClockWrong), "{issues:?}");
        ensure!(cluster.number(wrong, "terrane_groups_led") == 0.0, "it leads");
        Ok(())
    })
    .await?;

    cluster.clock(wrong).set_skew_ms(0);
    eventually("the trouble is over", SOON, async || {
        let issues = client.admin().status().await?.issues;
        ensure!(issues.iter().all(|issue| issue.kind != IssueKind::ClockWrong), "{issues:?}");
        Ok(())
    })
    .await?;
    rewrite(&client, "t").await?;
    check_rows(&table, &rows, "with the clock right again").await?;
    table.put(Put::new("0-late").set("f", "q", "v")).await?;
    let late = table.get(Get::new("0-late")).await?.context("the row is there")?;
    let now = i64::try_from(terrane_env::time::wall_ms())?;
    let stamps: Vec<_> = late.cells().map(|cell| cell.timestamp).collect();
    assert!(stamps.iter().all(|stamp| (now - stamp).abs() < DAY_MS / 24), "{stamps:?} at {now}");
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_stops_sends_its_clients_to_the_new_leaders() -> Result<()> {
    let mut cluster = Cluster::start(crate::with_engine(BackendKind::Memory)).await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    table.put(Put::new("row").set("f", "q", "v")).await?;
    let mut lines = Lines::open(&cluster).await?;
    let stopping = lines.leader;
    let index = (0..3).find(|index| cluster.server_address(*index) == stopping).context("the leader is one of them")?;

    let (ended, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (over, count, writing) = (ended.clone(), written.clone(), table.clone());
    let writer = tokio::spawn(async move {
        while !over.load(Ordering::Relaxed) {
            writing.put(Put::new("row").set("f", "q", "v")).await?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    });
    let over = ended.clone();
    // Like a client with an outdated map, keep calling the stopping server.
    let asker = tokio::spawn(async move {
        let mut redirects = 0;
        while !over.load(Ordering::Relaxed) {
            match lines.get(stopping, "row", v1::Consistency::Linearizable).await {
                Ok(_) => {}
                Err(Error::NotLeader { leader, .. }) => {
                    assert!(leader.is_some(), "a redirect to nowhere");
                    redirects += 1;
                }
                Err(error) => assert!(!error.to_string().contains("is stopping"), "refused: {error}"),
            }
        }
        redirects
    });
    cluster.stop_server(index).await;
    let before = written.load(Ordering::Relaxed);
    eventually("writes continue", SOON, async || {
        ensure!(written.load(Ordering::Relaxed) > before, "no write since the server stopped");
        Ok(())
    })
    .await?;
    ended.store(true, Ordering::Relaxed);
    writer.await??;
    assert!(asker.await? > 0, "the server was still asked when it led no more");
    cluster.stop_all().await;
    Ok(())
}
