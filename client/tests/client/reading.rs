//! The options of reads, against a fake cluster: what requests contain, where they go, and results over regions and splits.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use terrane_client::{Consistency, Get, KeyRange, LatestPer, Number, RowData, Scan, ServerId, ValueType};
use terrane_proto::v1;

use crate::fake::{Fake, TABLE, name};

const SPLITS: [&str; 4] = ["r0010", "r0011", "r0030", "r0045"];

fn shown(row: Option<RowData>) -> String {
    row.map_or_else(|| "-".to_owned(), |row| row.row().to_string())
}

fn number(at: usize) -> String {
    String::from_utf8_lossy(&name(at)).into_owned()
}

#[tokio::test]
async fn the_options_of_a_get_are_sent() {
    let (cluster, table) = Fake::filled(&SPLITS, 3).await;
    let get = table.get("r0001").column("f", "b").column("f", "a").column_prefix("f", "x").family("g");
    assert_eq!(table.id(), TABLE);
    let found = get.versions(3).time_range(5, 9).cells(2, 4).keys_only().first_cell_only().filter("prefix(row, 'r')");
    assert!(found.await.unwrap().is_some());
    let asked = cluster.world.lock().projection.clone();
    let ranges = vec![v1::QualifierRange { start: "x".into(), end: "y".into() }];
    let f = v1::FamilyColumns { family: "f".into(), qualifiers: vec!["a".into(), "b".into()], ranges };
    let g = v1::FamilyColumns { family: "g".into(), ..v1::FamilyColumns::default() };
    let expected = v1::Projection {
        families: vec![f, g],
        versions: 3,
        time_min: 5,
        time_max: 9,
        cell_offset: 2,
        cell_limit: 4,
        keys_only: true,
        first_cell_only: true,
        filter: "prefix(row, 'r')".into(),
    };
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn the_options_of_a_scan_are_sent() {
    let (cluster, table) = Fake::filled(&SPLITS, 3).await;
    let scan = Scan::rows("r0001"..="r0002").block_bytes(77).snapshot().fill_cache(false);
    let rows = table.scan(scan).timeout(Duration::from_secs(5)).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.len(), 2);
    let asked = cluster.world.lock().scan.clone();
    assert!(asked.snapshot && asked.fill_cache_never);
    assert_eq!((&asked.start[..], &asked.end[..], asked.block_bytes), (&b"r0001"[..], &b"r0002\0"[..], 77));
}

#[tokio::test]
async fn rows_exist_without_sending_their_cells() {
    let (_cluster, table) = Fake::filled(&SPLITS, 40).await;
    assert!(table.exists("r0001").await.unwrap());
    assert!(!table.exists(Get::new("r9999").family("f")).await.unwrap());
    let asked = ["r0035", "none", "r0002", "r0011"];
    assert_eq!(table.exists_many(asked).await.unwrap(), [true, false, true, true]);
}

#[tokio::test]
async fn many_gets_take_one_round_trip_to_each_server() {
    let (cluster, table) = Fake::filled(&SPLITS, 60).await;
    table.get("r0000").await.unwrap();
    let asked: Vec<Get> = (0..60).rev().map(|number| Get::new(name(number))).collect();
    let before = cluster.world.lock().requests;
    let found = table.get_many(asked).await.unwrap();
    let found: Vec<String> = found.into_iter().map(shown).collect();
    assert_eq!(found, (0..60).rev().map(number).collect::<Vec<_>>());
    assert_eq!(cluster.world.lock().requests - before, 5, "one request for each region, none waits for another");
}

#[tokio::test]
async fn many_gets_survive_a_split_and_a_failover() {
    let (cluster, table) = Fake::filled(&SPLITS, 60).await;
    table.get_many((0..60).map(name)).await.unwrap();
    cluster.world.lock().split(b"r0020");
    cluster.fail_over(1, 2);
    let found = table.get_many((0..70).map(name)).await.unwrap();
    assert_eq!(found.iter().filter(|row| row.is_some()).count(), 60);
}

#[tokio::test]
async fn stale_reads_spread_over_followers_and_say_as_of_when() {
    let (cluster, table) = Fake::filled(&SPLITS, 3).await;
    for _ in 0..64 {
        let found = table.get("r0001").consistency(Consistency::Stale).with_as_of().await.unwrap();
        assert_eq!((shown(found.value).as_str(), found.as_of_ms), ("r0001", Some(1_000)));
    }
    let asked: BTreeSet<ServerId> = cluster.world.lock().reads.iter().map(|(server, _)| *server).collect();
    assert_eq!(asked, [ServerId(2), ServerId(3)].into(), "the leader is not among them");
    let plain = table.get("r0001").with_as_of().await.unwrap();
    assert_eq!(plain.as_of_ms, None);
    table.get("r0001").consistency(Consistency::Strict).await.unwrap();
    assert_eq!(cluster.world.lock().reads.last(), Some(&(ServerId(1), v1::Consistency::Strict)));
}

#[tokio::test]
async fn stale_reads_continue_when_a_follower_is_gone() {
    let (mut cluster, table) = Fake::filled(&SPLITS, 60).await;
    table.get("r0001").await.unwrap();
    cluster.kill(ServerId(2)).await;
    for _ in 0..8 {
        let request = table.get("r0001").consistency(Consistency::Stale);
        assert_eq!(shown(request.await.unwrap()), "r0001");
    }
    let count = table.count(KeyRange::all()).consistency(Consistency::Stale).with_as_of().await.unwrap();
    assert_eq!((count.value, table.scan(Scan::all()).await.is_ok()), (60, true));
}

#[tokio::test]
async fn ends_and_neighbours_are_found_over_empty_regions() {
    let (cluster, table) = Fake::filled(&SPLITS, 60).await;
    cluster.world.lock().rows.retain(|row, _| row[..] < b"r0010"[..] || row[..] >= b"r0045"[..]);
    let all = KeyRange::all;
    assert_eq!(shown(table.first(all()).await.unwrap()), "r0000");
    assert_eq!(shown(table.last(all()).await.unwrap()), "r0059");
    assert_eq!(shown(table.first(KeyRange::prefix(b"r002")).await.unwrap()), "-");
    for (key, floor, ceiling, lower, higher) in [
        ("r0005", "r0005", "r0005", "r0004", "r0006"),
        ("r0009", "r0009", "r0009", "r0008", "r0045"),
        ("r0020", "r0009", "r0045", "r0009", "r0045"),
        ("r0045", "r0045", "r0045", "r0009", "r0046"),
        ("a", "-", "r0000", "-", "r0000"),
        ("z", "r0059", "-", "r0059", "-"),
        ("", "-", "r0000", "-", "r0000"),
    ] {
        assert_eq!(shown(table.floor(key).await.unwrap()), floor, "floor {key}");
        assert_eq!(shown(table.ceiling(key).await.unwrap()), ceiling, "ceiling {key}");
        assert_eq!(shown(table.lower(key).await.unwrap()), lower, "lower {key}");
        assert_eq!(shown(table.higher(key).await.unwrap()), higher, "higher {key}");
    }
    let within = KeyRange::prefix(b"r004");
    assert_eq!(shown(table.floor("r0020").within(within.clone()).await.unwrap()), "-");
    assert_eq!(shown(table.ceiling("r0020").within(within).await.unwrap()), "r0045");
}

#[tokio::test]
async fn an_end_costs_one_request() {
    let (cluster, table) = Fake::filled(&SPLITS, 60).await;
    table.get("r0000").await.unwrap();
    let before = cluster.world.lock().requests;
    table.first(KeyRange::prefix(b"r00")).await.unwrap();
    table.higher("r0012").await.unwrap();
    assert_eq!(cluster.world.lock().requests - before, 2);
}

#[tokio::test]
async fn the_latest_of_each_prefix_are_returned_once_over_regions_and_splits() {
    for blocks in 0..12 {
        for (reverse, rows) in [(false, 1), (false, 2), (true, 1), (true, 3)] {
            let (cluster, table) = Fake::filled(&SPLITS, 60).await;
            cluster.world.lock().split_after_blocks = Some((blocks, "r0021".into()));
            let request = table.latest(LatestPer::bytes(4)).rows(rows);
            let request = if reverse { request.reverse() } else { request };
            let found: Vec<_> = request.await.unwrap().map(|row| row.unwrap().row().to_string()).collect().await;
            let mut expected: Vec<String> =
                (0..6).flat_map(|ten| (0..10).map(move |one| number(ten * 10 + one))).collect();
            if reverse {
                expected.reverse();
            }
            let expected: Vec<String> = expected.chunks(10).flat_map(|ten| ten[..rows as usize].to_vec()).collect();
            assert_eq!(found, expected, "after {blocks} blocks, {rows} rows, reverse {reverse}");
        }
    }
}

#[tokio::test]
async fn a_column_is_summed_up_over_regions_and_splits() {
    for blocks in 0..20 {
        let (cluster, table) = Fake::filled(&SPLITS, 0).await;
        for row in 0..60 {
            let value = (row as i64 - 20).to_be_bytes().to_vec();
            cluster.put(row, "n", value);
        }
        cluster.put(7, "other", vec![1]);
        cluster.world.lock().split_after_blocks = Some((blocks, "r0020".into()));
        let sums = table.aggregate("f", "n", ValueType::I64).await.unwrap();
        assert_eq!((sums.count(), sums.sum()), (59, Some(Number::Integer((0..60).map(|n| n - 20).sum::<i128>() + 13))));
        assert_eq!((sums.min(), sums.max()), (Some(Number::Integer(-20)), Some(Number::Integer(39))));
    }
}

#[tokio::test]
async fn an_aggregate_of_a_type_without_numbers_is_refused() {
    let (cluster, table) = Fake::filled(&SPLITS, 5).await;
    assert!(table.aggregate("f", "q", ValueType::Text).await.is_err_and(|error| error.is_invalid()));
    assert!(table.aggregate("f", "q", ValueType::I64).await.is_err_and(|error| error.is_invalid()));
    assert!(table.aggregate("none", "q", ValueType::I64).await.is_err_and(|error| error.is_invalid()));
    cluster.put(1, "n", 5i64.to_be_bytes().to_vec());
    let one = table.aggregate("f", "n", ValueType::I64).prefix("r0001").await.unwrap();
    assert_eq!(one.average(), Some(5.0));
}

#[tokio::test]
async fn counting_reads_every_region_once() {
    let (cluster, table) = Fake::filled(&SPLITS, 60).await;
    table.get("r0000").await.unwrap();
    cluster.world.lock().block_rows = 1000;
    cluster.world.lock().reads.clear();
    assert_eq!(table.count(KeyRange::all()).await.unwrap(), 60);
    assert_eq!(cluster.world.lock().reads.len(), 5);
    assert_eq!(table.count(Scan::all().limit(17).offset(3)).await.unwrap(), 17);
    assert_eq!(table.count(Scan::rows("r0005".."r0012")).await.unwrap(), 7);
}

#[tokio::test]
async fn dropping_a_call_for_the_next_row_loses_nothing() {
    let (_cluster, table) = Fake::filled(&SPLITS, 60).await;
    let mut rows = table.scan(Scan::all()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        // Polled once and dropped, repeatedly.
        tokio::select! {
            biased;
            row = rows.next() => match row {
                Some(row) => seen.push(row.unwrap().row().to_string()),
                None => break,
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(seen, (0..60).map(number).collect::<Vec<_>>());
}
