//! Scans against a fake cluster: over regions, in both directions, through splits, in pages.

use futures::TryStreamExt as _;
use terrane_client::{KeyRange, Page, RowData, Scan, Table};

use crate::fake::{Fake, name};

async fn rows(table: &Table, scan: Scan) -> Vec<String> {
    let rows: Vec<RowData> =
        table.scan(scan).await.expect("a good scan").into_stream().try_collect().await.expect("rows");
    rows.iter().map(|row| row.row().to_string()).collect()
}

fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| String::from_utf8_lossy(&name(number)).into_owned()).collect()
}

const SPLITS: [&str; 4] = ["r0010", "r0011", "r0030", "r0045"];

#[tokio::test]
async fn every_combination_of_direction_limit_and_offset_is_exact() {
    let (_cluster, table) = Fake::filled(&SPLITS, 60).await;
    for (low, high) in [(0, 60), (5, 47), (10, 11), (11, 30), (20, 20)] {
        let range = KeyRange::new(name(low), name(high)).unwrap();
        for offset in [0, 1, 17, 100] {
            for limit in [None, Some(1), Some(13), Some(5000)] {
                let scan = Scan::range(range.clone()).offset(offset as u64);
                let scan = limit.map_or(scan.clone(), |limit| scan.limit(limit as u64));
                let most = limit.unwrap_or(usize::MAX);
                let forward = names((low..high).skip(offset).take(most));
                assert_eq!(rows(&table, scan.clone()).await, forward, "{scan:?}");
                let back = names((low..high).rev().skip(offset).take(most));
                assert_eq!(rows(&table, scan.reverse()).await, back);
            }
        }
        assert_eq!(table.count(range).await.unwrap(), (high - low) as u64);
    }
}

#[tokio::test]
async fn a_split_in_the_middle_neither_skips_nor_repeats() {
    for blocks in 0..25 {
        for (at, reverse) in [("r0020", false), ("r0005", false), ("r0020", true), ("r0050", true)] {
            for limit in [None, Some(40)] {
                let (cluster, table) = Fake::filled(&SPLITS, 60).await;
                cluster.world.lock().split_after_blocks = Some((blocks, at.into()));
                let scan = limit.map_or(Scan::all(), |limit| Scan::all().limit(limit)).offset(4);
                let most = limit.unwrap_or(1000) as usize;
                let (scan, expected) = if reverse {
                    (scan.reverse(), names((0..60).rev().skip(4).take(most)))
                } else {
                    (scan, names((0..60).skip(4).take(most)))
                };
                assert_eq!(rows(&table, scan).await, expected, "after {blocks} blocks at {at}, limit {limit:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_split_in_the_middle_of_counting_counts_each_row_once() {
    for blocks in 0..22 {
        let (cluster, table) = Fake::filled(&SPLITS, 60).await;
        cluster.world.lock().split_after_blocks = Some((blocks, "r0020".into()));
        assert_eq!(table.count(KeyRange::all()).await.unwrap(), 60, "after {blocks} blocks");
    }
}

#[tokio::test]
async fn after_a_failover_a_scan_continues_from_its_token() {
    let (cluster, table) = Fake::filled(&SPLITS, 60).await;
    let mut stream = table.scan(Scan::all()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(row) = stream.next().await {
        seen.push(row.unwrap().row().to_string());
        if seen.len() == 20 {
            for group in 1..=3 {
                cluster.fail_over(group, group % 3 + 1);
            }
        }
    }
    assert_eq!(seen, names(0..60));
}

#[tokio::test]
async fn a_scan_over_fifty_regions_looks_up_a_handful_of_times() {
    let splits: Vec<String> = (1..50).map(|number| format!("r{:04}", number * 4)).collect();
    let cluster = Fake::start(&splits.iter().map(String::as_str).collect::<Vec<_>>()).await;
    cluster.fill(200);
    let client = cluster.client().await;
    let table = client.table("t").await.unwrap();
    assert_eq!(rows(&table, Scan::all()).await, names(0..200));
    assert_eq!(rows(&table, Scan::all().reverse()).await.len(), 200);
    assert_eq!(client.counters().master_lookups, 1);
}

#[tokio::test]
async fn pages_by_token_return_every_row_once_in_both_directions() {
    let (_cluster, table) = Fake::filled(&SPLITS, 25).await;
    for reverse in [false, true] {
        let (mut seen, mut token, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let mut scan = Scan::prefix("r").limit(7);
            if reverse {
                scan = scan.reverse();
            }
            if let Some(token) = &token {
                scan = scan.after(token.parse().unwrap());
            }
            let Page { rows, next } = table.page(scan).await.unwrap();
            seen.extend(rows.iter().map(|row| row.row().to_string()));
            pages += 1;
            let Some(next) = next else { break };
            token = Some(next.to_string());
        }
        let mut expected = names(0..25);
        if reverse {
            expected.reverse();
        }
        assert_eq!((seen, pages), (expected, 4));
    }
}

#[tokio::test]
async fn a_page_that_ends_with_the_last_row_has_no_token() {
    let (_cluster, table) = Fake::filled(&SPLITS, 14).await;
    let second = table.page(Scan::all().offset(7).limit(7)).await.unwrap();
    assert_eq!((second.rows.len(), second.next), (7, None));
    let first = table.page(Scan::all().limit(7)).await.unwrap();
    assert!(first.next.is_some());
    let empty = table.page(Scan::prefix("nothing").limit(7)).await.unwrap();
    assert_eq!((empty.rows.len(), empty.next), (0, None));
}

#[tokio::test]
async fn a_row_written_after_a_page_is_on_the_next() {
    let (cluster, table) = Fake::filled(&SPLITS, 14).await;
    let first = table.page(Scan::all().limit(7)).await.unwrap();
    let between = cluster.world.lock().rows[&name(0)].clone();
    cluster.world.lock().rows.insert("r0006-new".into(), between);
    let second = table.page(Scan::all().limit(7).after(first.next.expect("more rows"))).await.unwrap();
    assert_eq!(second.rows[0].row().to_string(), "r0006-new");
}

#[tokio::test]
async fn a_token_of_another_table_or_direction_is_refused() {
    let (_cluster, table) = Fake::filled(&SPLITS, 14).await;
    let token = table.page(Scan::all().limit(7)).await.unwrap().next.expect("more rows");
    let refused = table.page(Scan::all().reverse().after(token.clone())).await.expect_err("the other direction");
    assert!(refused.is_invalid() && refused.to_string().contains("direction"), "{refused}");
    assert!(table.scan(Scan::all().after(token.clone())).await.is_err_and(|error| error.is_invalid()));
    assert!(table.page(Scan::prefix("zzz").after(token)).await.is_err_and(|error| error.is_invalid()));
}
