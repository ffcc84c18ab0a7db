//! Aggregates, offsets, and the latest rows of each prefix, over cells in memory and in files.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_proto::v1;
use terrane_types::cell::{CellKind, CellRef, LATEST, pack};
use terrane_types::{Error, KeyDeclaration, RegionDescriptor};

use crate::harness::{Bench, Client, cells_in, filter, packed, put, regions, shown, wide};

const USERS: u32 = 40;

/// User N has N rows, so some users have fewer than are requested.
fn key(user: u32, time: u32) -> Vec<u8> {
    [user.to_be_bytes(), time.to_be_bytes()].concat()
}

fn times(user: u32) -> u32 {
    1 + user * 7 % 30
}

async fn bench() -> (Bench, RegionDescriptor, Client) {
    let key = KeyDeclaration::parse("user:u32, time:u32").unwrap();
    Bench::with_table(|schema| schema.key = Some(key)).await
}

async fn filled() -> (Bench, RegionDescriptor, Client) {
    let (bench, region, mut client) = bench().await;
    fill(&bench, &mut client, &region).await;
    (bench, region, client)
}

/// Rows of all users, a third in each of two files and in memory, with two columns each, and deleted ones among them.
async fn fill(bench: &Bench, client: &mut Client, region: &RegionDescriptor) {
    for part in 0..3 {
        let mut rows = Vec::new();
        for user in 0..USERS {
            for time in (0..times(user)).filter(|time| (time + user) % 3 == part) {
                let mut cells = packed(b"a", b"another column").to_vec();
                cells.extend_from_slice(&packed(b"n", &value(user, time).to_be_bytes()));
                rows.push(v1::RowMutation { row: key(user, time).into(), cells: cells.into(), ..Default::default() });
            }
            let gone = key(user, 1_000 + part);
            rows.push(put(&gone, b"gone"));
            let mut delete = Vec::new();
            pack(&mut delete, CellRef::delete(CellKind::DeleteFamily, b"f", b"", LATEST));
            rows.push(v1::RowMutation { row: gone.into(), cells: delete.into(), ..Default::default() });
        }
        client.put(region, rows).await.unwrap();
        if part < 2 {
            bench.flush().await;
        }
    }
}

fn value(user: u32, time: u32) -> i32 {
    i32::try_from(user * 100 + time).unwrap() - 2_000
}

/// All users' rows, in order.
fn all() -> Vec<(u32, u32)> {
    (0..USERS).flat_map(|user| (0..times(user)).map(move |time| (user, time))).collect()
}

/// The first rows of each user in the direction of the scan.
fn latest_of(rows: u32, reverse: bool) -> Vec<(u32, u32)> {
    let mut all = all();
    if reverse {
        all.reverse();
    }
    let mut given = BTreeMap::<u32, u32>::new();
    all.retain(|(user, _)| {
        let given = given.entry(*user).or_default();
        *given += 1;
        *given <= rows
    });
    all
}

fn keys(rows: &Bytes) -> Vec<(u32, u32)> {
    let of = |row: terrane_types::PackedRow| {
        let (user, time) = row.row.as_bytes().split_at(4);
        (u32::from_be_bytes(user.try_into().unwrap()), u32::from_be_bytes(time.try_into().unwrap()))
    };
    terrane_types::PackedRows::new(rows.clone()).map(|row| of(row.unwrap())).collect()
}

/// All rows, and the last block.
async fn blocks(client: &mut Client, region: &RegionDescriptor, scan: v1::Scan) -> (Vec<(u32, u32)>, v1::ScanBlock) {
    let mut blocks = client.blocks(region, scan).await.unwrap();
    let mut rows = Vec::new();
    let mut continues = false;
    for block in &blocks {
        let of_block = keys(&block.rows);
        if continues && rows.last() == of_block.first() {
            rows.pop();
        }
        continues = block.row_continues;
        rows.extend(of_block);
    }
    (rows, blocks.pop().unwrap())
}

fn of_each(rows: u32) -> Option<v1::Latest> {
    Some(v1::Latest { prefix: Some(v1::latest::Prefix::Parts(1)), rows, ..Default::default() })
}

#[tokio::test]
async fn the_latest_rows_of_each_prefix_are_found_in_both_directions_with_blocks_of_any_size() {
    let (mut bench, region, mut client) = filled().await;
    for rows in [1, 3, 100] {
        for reverse in [false, true] {
            let expected = latest_of(rows, reverse);
            for block_bytes in [1, 200, 0] {
                let latest = of_each(if rows == 1 { 0 } else { rows });
                let scan = v1::Scan { latest, reverse, block_bytes, ..Default::default() };
                assert_eq!(
                    blocks(&mut client, &region, scan.clone()).await.0,
                    expected,
                    "{rows} {reverse} {block_bytes}"
                );
                let bytes = v1::Latest { prefix: Some(v1::latest::Prefix::Bytes(4)), ..scan.latest.unwrap() };
                let page = v1::Scan { latest: Some(bytes), offset: 7, limit: 20, ..scan };
                assert_eq!(blocks(&mut client, &region, page).await.0, expected[7..27], "a page of {rows} {reverse}");
            }
            let count = v1::Scan { latest: of_each(rows), reverse, count_only: true, ..Default::default() };
            let counted = client.scan(&region, count).await.unwrap();
            assert_eq!((counted.row_count, counted.done), (expected.len() as u64, true));
        }
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn a_prefix_in_two_regions_is_handed_from_one_to_the_other() {
    let (mut bench, _, mut client) = filled().await;
    let (user, at) = (21, 14);
    assert!(times(user) > at + 2);
    bench.split(key(user, at)).await.unwrap();
    let report = bench.report(|report| regions(report).len() == 2).await;
    let mut halves = regions(&report);
    halves.sort_by_key(|half| half.range.start.clone());
    for (rows, reverse) in [(1, false), (at, false), (at + 2, false), (1, true), (3, true), (times(user), true)] {
        let mut latest = of_each(rows);
        let mut seen = Vec::new();
        for half in 0..2 {
            let half = if reverse { &halves[1 - half] } else { &halves[half] };
            let (start, end) = (half.range.start.clone(), half.range.end.clone());
            let scan = v1::Scan { latest: latest.clone(), reverse, start, end, block_bytes: 100, ..Default::default() };
            let (of_half, last) = blocks(&mut client, half, scan).await;
            seen.extend(of_half);
            let latest = latest.as_mut().unwrap();
            (latest.last_prefix, latest.given) = (last.last_prefix, last.prefix_given);
        }
        assert_eq!(seen, latest_of(rows, reverse), "{rows} {reverse}");
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn a_large_row_among_the_latest_is_sent_in_parts() {
    let (mut bench, region, mut client) = bench().await;
    let small = |user, time| put(&key(user, time), b"small");
    let rows = vec![wide(key(1, 1)), small(1, 2), small(2, 1), wide(key(2, 2)), wide(key(3, 1))];
    client.put(&region, rows).await.unwrap();
    for (reverse, expected) in [(false, [(1, 1), (2, 1), (3, 1)]), (true, [(3, 1), (2, 2), (1, 2)])] {
        let scan = v1::Scan { latest: of_each(1), reverse, block_bytes: 1000, ..Default::default() };
        let blocks = client.blocks(&region, scan).await.unwrap();
        let mut rows: Vec<_> = blocks.iter().flat_map(|block| keys(&block.rows)).collect();
        let cells: usize = blocks.iter().map(|block| cells_in(&shown(&block.rows))).sum();
        let counted: u64 = blocks.iter().map(|block| block.row_count).sum();
        rows.dedup();
        assert_eq!((rows, counted, cells), (expected.to_vec(), 3, 101));
    }
    bench.stop_server().await;
}

fn sum_of(qualifier: &'static str, read_as: &str) -> Option<v1::Aggregate> {
    Some(v1::Aggregate { family: "f".into(), qualifier: qualifier.into(), read_as: read_as.into() })
}

fn only(qualifier: &'static str) -> Option<v1::Projection> {
    let families =
        vec![v1::FamilyColumns { family: "f".into(), qualifiers: vec![qualifier.into()], ..Default::default() }];
    Some(v1::Projection { families, ..Default::default() })
}

fn integer(bytes: &Bytes) -> i128 {
    i128::from_be_bytes(bytes[..].try_into().unwrap())
}

#[tokio::test]
async fn a_column_is_aggregated_in_both_directions_and_continues_from_a_token() {
    let (mut bench, region, mut client) = filled().await;
    // A row without the column, and a version that a newer one hides.
    client.put(&region, vec![put(&key(USERS, 0), b"xyz")]).await.unwrap();
    let values: Vec<i128> = all().iter().map(|(user, time)| value(*user, *time).into()).collect();
    for reverse in [false, true] {
        let scan = v1::Scan { aggregate: sum_of("n", "i32"), reverse, ..Default::default() };
        for (projection, rows) in [(None, values.len() + 1), (only("n"), values.len())] {
            let block = client.scan(&region, v1::Scan { projection, ..scan.clone() }).await.unwrap();
            let part = block.aggregate.unwrap();
            assert!(block.done && block.rows.is_empty());
            assert_eq!((block.row_count, part.rows, part.values), (rows as u64, rows as u64, values.len() as u64));
            assert_eq!(integer(&part.sum), values.iter().sum::<i128>());
            assert_eq!(integer(&part.min), *values.iter().min().unwrap());
            assert_eq!(integer(&part.max), *values.iter().max().unwrap());
        }
        // With a limit, and with the latest rows of each user.
        let page = v1::Scan { offset: 10, limit: 50, projection: only("n"), ..scan.clone() };
        let mut ordered = values.clone();
        if reverse {
            ordered.reverse();
        }
        let block = client.scan(&region, page.clone()).await.unwrap();
        let part = block.aggregate.unwrap();
        assert_eq!(integer(&part.sum), ordered[10..60].iter().sum::<i128>());
        let again = client.scan(&region, v1::Scan { resume: block.resume, ..page }).await.unwrap();
        assert_eq!((again.aggregate.unwrap(), again.row_count), (part, 0), "the token keeps what was summed up");
        let latest = v1::Scan { latest: of_each(1), projection: only("n"), ..scan };
        let part = client.scan(&region, latest).await.unwrap().aggregate.unwrap();
        let expected: i128 = latest_of(1, reverse).iter().map(|(user, time)| i128::from(value(*user, *time))).sum();
        assert_eq!((integer(&part.sum), part.values), (expected, u64::from(USERS)));
    }
    let nothing = v1::Scan { aggregate: sum_of("none", "f64"), ..Default::default() };
    let part = client.scan(&region, nothing).await.unwrap().aggregate.unwrap();
    assert_eq!((part.values, part.sum.len(), part.min.len(), part.max.len()), (0, 0, 0, 0));
    bench.stop_server().await;
}

#[tokio::test]
async fn invalid_aggregates_and_prefixes_are_refused_with_a_reason() {
    let (mut bench, region, mut client) = bench().await;
    client.put(&region, vec![put(&key(1, 1), &7i64.to_be_bytes()), put(&key(1, 2), b"seven")]).await.unwrap();
    let latest = |prefix, rows| Some(v1::Latest { prefix, rows, ..Default::default() });
    let token = client.scan(&region, v1::Scan { limit: 1, ..Default::default() }).await.unwrap().resume;
    let sum = v1::Scan { aggregate: sum_of("q", "i64"), ..Default::default() };
    for (scan, rule) in [
        (sum.clone(), r"row \x00\x00\x00\x01\x00\x00\x00\x02, column f:q: i64 values have 8 bytes, this one has 5"),
        (
            v1::Scan { projection: only("other"), ..sum.clone() },
            "column f:q is to be aggregated but is not among the columns read",
        ),
        (v1::Scan { aggregate: sum_of("q", "text"), ..Default::default() }, "cannot be aggregated"),
        (v1::Scan { resume: token.clone(), ..sum }, "belongs to a scan that aggregates otherwise"),
        (
            v1::Scan { resume: token, latest: of_each(1), ..Default::default() },
            "belongs to a scan that aggregates otherwise",
        ),
        (v1::Scan { latest: latest(None, 1), ..Default::default() }, "leading parts of the key, or leading bytes"),
        (
            v1::Scan { latest: latest(Some(v1::latest::Prefix::Parts(3)), 1), ..Default::default() },
            "has 2 parts, not 3",
        ),
    ] {
        let refused = client.scan(&region, scan).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(what) if what.what.contains(rule)), "{refused}");
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn offsets_and_counts_pass_over_rows_in_files_and_memory() {
    let (mut bench, region, mut client) = filled().await;
    let mut rows = all();
    for reverse in [false, true] {
        if reverse {
            rows.reverse();
        }
        for offset in [0, 1, 63, 64, 65, 200, rows.len() - 1, rows.len(), rows.len() + 5] {
            let page =
                v1::Scan { offset: offset as u64, limit: 10, reverse, fill_cache_never: true, ..Default::default() };
            let (seen, last) = blocks(&mut client, &region, page).await;
            let until = (offset + 10).min(rows.len());
            assert_eq!(seen, rows[offset.min(until)..until], "offset {offset} reverse {reverse}");
            assert_eq!(last.offset_left, offset.saturating_sub(rows.len()) as u64);
        }
        for limit in [0, 1, 100, rows.len(), rows.len() + 1] {
            let count = v1::Scan { count_only: true, limit: limit as u64, reverse, ..Default::default() };
            let counted = client.scan(&region, count).await.unwrap();
            let expected = if limit == 0 { rows.len() } else { limit.min(rows.len()) };
            assert_eq!((counted.row_count, counted.done), (expected as u64, true), "limit {limit} reverse {reverse}");
        }
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn a_filter_applies_before_offset_aggregate_and_latest() {
    let (mut bench, region, mut client) = filled().await;
    let text = "i32(f:n) > 0";
    let positive: Vec<_> = all().into_iter().filter(|(user, time)| value(*user, *time) > 0).collect();
    let scan = v1::Scan { projection: filter(text), offset: 5, limit: 20, ..Default::default() };
    assert_eq!(blocks(&mut client, &region, scan.clone()).await.0, positive[5..25]);
    let sum = v1::Scan { aggregate: sum_of("n", "i32"), ..scan };
    let part = client.scan(&region, sum).await.unwrap().aggregate.unwrap();
    let expected: i128 = positive[5..25].iter().map(|(user, time)| i128::from(value(*user, *time))).sum();
    assert_eq!((integer(&part.sum), part.values), (expected, 20), "what an offset skips is not summed up");
    let mut first_of_each = positive;
    first_of_each.dedup_by_key(|(user, _)| *user);
    let latest = v1::Scan { latest: of_each(1), projection: filter(text), block_bytes: 100, ..Default::default() };
    assert_eq!(blocks(&mut client, &region, latest).await.0, first_of_each);
    let keys = v1::Projection { keys_only: true, ..Default::default() };
    let sum = v1::Scan { aggregate: sum_of("n", "i32"), projection: Some(keys), ..Default::default() };
    let part = client.scan(&region, sum).await.unwrap().aggregate.unwrap();
    assert_eq!(part.values, all().len() as u64, "what is summed up is read though values are not shown");
    bench.stop_server().await;
}
