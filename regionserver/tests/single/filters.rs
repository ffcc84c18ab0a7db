//! Filters and projections over the wire: block by block, in both directions, combined with the other options of a scan.

use std::fmt::Write as _;

use terrane_proto::v1;
use terrane_types::RegionDescriptor;

use crate::harness::{self, Bench, Client, cells_in, packed, put, shown, wide};

const ROWS: u32 = 600;

fn key(number: u32) -> Vec<u8> {
    format!("row{number:05}").into_bytes()
}

/// Rows of three columns: `f:n` a number, `f:q` the same as text, `f:even` in every other row.
async fn numbered(bench: &mut Bench) -> (RegionDescriptor, Client) {
    let region = bench.create_table(|_| {}).await;
    let mut client = bench.client().await;
    let row = |number: u32| {
        let mut cells = Vec::new();
        if number.is_multiple_of(2) {
            cells.extend_from_slice(&packed(b"even", b"yes"));
        }
        cells.extend_from_slice(&packed(b"n", &number.to_be_bytes()));
        cells.extend_from_slice(&packed(b"q", number.to_string().as_bytes()));
        v1::RowMutation { row: key(number).into(), cells: cells.into(), ..Default::default() }
    };
    let reply = client.put(&region, (0..ROWS).map(row).collect()).await.unwrap();
    assert!(reply.errors.is_empty());
    (region, client)
}

/// A scan of `f:q` alone with a filter, in blocks of a few rows.
fn filtered(filter: &str) -> v1::Scan {
    v1::Scan { projection: only_q(filter), block_bytes: 300, ..Default::default() }
}

fn only_q(filter: &str) -> Option<v1::Projection> {
    let families = vec![v1::FamilyColumns { family: "f".into(), qualifiers: vec!["q".into()], ranges: Vec::new() }];
    Some(v1::Projection { families, filter: filter.to_owned(), ..Default::default() })
}

fn rows_of(numbers: impl Iterator<Item = u32>) -> Vec<String> {
    numbers.map(|number| format!("row{number:05}={number}")).collect()
}

#[tokio::test]
async fn filtered_scans_return_what_passes_in_both_directions_and_block_by_block() {
    let mut bench = Bench::start().await;
    let (region, mut client) = numbered(&mut bench).await;
    type Passes = fn(u32) -> bool;
    let filters: [(&str, Passes); 14] = [
        ("i32(f:n) >= 590", |n| n >= 590),
        ("u32(f:n) in (3, 99, 1000)", |n| n == 3 || n == 99),
        ("i32(f:n) > 100 and prefix(row, 'row0012')", |n| (120..130).contains(&n)),
        ("not i32(f:n) > 5", |n| n <= 5),
        ("exists(f:even) and matches(row, '7.$')", |n| n % 2 == 0 && n / 10 % 10 == 7),
        ("absent(f:even) and value = '31'", |n| n == 31),
        ("bytes(f:even, pass_missing) = 'no'", |n| n % 2 == 1),
        ("row in ('row00003', 'row00400', 'row00401', 'row9')", |n| [3, 400, 401].contains(&n)),
        ("rows(..'row00002', 'row00100'..='row00102', 'row00599'..)", |n| n < 2 || (100..103).contains(&n) || n == 599),
        ("fuzzy('row?01?7')", |n| n / 100 == 1 && n % 10 == 7 && n / 1000 == 0),
        ("fuzzy('row????7')", |n| n % 10 == 7),
        ("row != 'row00000' and row < 'row00003'", |n| n == 1 || n == 2),
        ("skip(value != '44') and row <= 'row00045' and row > 'row00043'", |n| n == 45),
        ("i64(f:n) > 0", |_| false),
    ];
    for (filter, passes) in filters {
        let scan = filtered(filter);
        let passing: Vec<u32> = (0..ROWS).filter(|number| passes(*number)).collect();
        assert_eq!(client.scan_all(&region, scan.clone()).await.unwrap(), rows_of(passing.iter().copied()), "{filter}");
        let reverse = v1::Scan { reverse: true, ..scan.clone() };
        let backwards = rows_of(passing.iter().rev().copied());
        assert_eq!(client.scan_all(&region, reverse).await.unwrap(), backwards, "{filter} in reverse");
        let page = v1::Scan { offset: 2, limit: 3, ..scan.clone() };
        let of_page = rows_of(passing.iter().copied().skip(2).take(3));
        assert_eq!(client.scan_all(&region, page).await.unwrap(), of_page, "{filter} with offset and limit");
        let count = v1::Scan { count_only: true, ..scan.clone() };
        let counted = client.scan(&region, count).await.unwrap();
        assert_eq!((counted.row_count, counted.done, counted.rows.len()), (passing.len() as u64, true, 0), "{filter}");
        let aggregate = Some(v1::Aggregate { family: "f".into(), qualifier: "n".into(), read_as: "u32".into() });
        let projection = harness::filter(filter);
        let summed = client.scan(&region, v1::Scan { aggregate, projection, ..Default::default() }).await.unwrap();
        // Without the projection some of these filters see more cells, so only the totals of rows are compared.
        if !filter.contains("skip(") && !filter.contains("value") {
            let part = summed.aggregate.unwrap();
            let sum = if passing.is_empty() {
                Vec::new()
            } else {
                i128::from(passing.iter().sum::<u32>()).to_be_bytes().to_vec()
            };
            assert_eq!((part.rows, part.sum.to_vec()), (passing.len() as u64, sum), "{filter} summed up");
        }
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn filters_see_files_as_they_see_memory() {
    let mut bench = Bench::start().await;
    let (region, mut client) = numbered(&mut bench).await;
    bench.flush().await;
    for filter in [
        "row in ('row00003', 'row00400')",
        "u32(f:n) in (3, 400)",
        "fuzzy('row0??03', 'row0?40?') and value in ('3', '400')",
    ] {
        assert_eq!(
            client.scan_all(&region, filtered(filter)).await.unwrap(),
            ["row00003=3", "row00400=400"],
            "{filter}"
        );
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn page_and_while_filters_end_the_scan_and_report_it() {
    let mut bench = Bench::start().await;
    let (region, mut client) = numbered(&mut bench).await;
    let page = filtered("page(25) and exists(f:even)");
    let blocks = client.blocks(&region, page.clone()).await.unwrap();
    let rows: Vec<String> = blocks.iter().flat_map(|block| shown(&block.rows)).collect();
    let last = blocks.last().unwrap();
    assert_eq!(rows, rows_of((0..50).step_by(2)));
    assert!(last.ended && last.limit_left == 0);
    assert_eq!(client.scan_all(&region, v1::Scan { limit: 3, ..page }).await.unwrap(), rows_of([0, 2, 4].into_iter()));

    let until = client.scan(&region, filtered("while(row <= 'row00002')")).await.unwrap();
    assert_eq!((shown(&until.rows), until.done, until.ended), (rows_of(0..3), true, true));
    let reverse = v1::Scan { reverse: true, ..filtered("exists(f:even) and while(u32(f:n) > 593)") };
    let until = client.scan(&region, reverse).await.unwrap();
    assert_eq!((shown(&until.rows), until.done, until.ended), (rows_of([598, 596, 594].into_iter()), true, true));
    let all = v1::Scan { start: key(590).into(), ..filtered("while(value != 'x')") };
    let all = client.scan(&region, v1::Scan { block_bytes: 0, ..all }).await.unwrap();
    assert_eq!((shown(&all.rows), all.done, all.ended), (rows_of(590..600), true, false), "nothing ended it");
    bench.stop_server().await;
}

#[tokio::test]
async fn a_row_is_evaluated_whole_or_in_parts_by_its_key() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, vec![put(b"a", b"0"), wide("wide"), put(b"z", b"2")]).await.unwrap();
    let blocks = async |client: &mut Client, filter: &str| {
        let scan = v1::Scan { block_bytes: 1000, projection: harness::filter(filter), ..Default::default() };
        let blocks = client.blocks(&region, scan).await.unwrap();
        let mut text = String::new();
        for row in blocks.iter().flat_map(|block| shown(&block.rows)) {
            let (key, values) = row.split_once('=').unwrap();
            write!(text, "{key}:{} ", values.split(',').count()).unwrap();
        }
        (blocks.iter().filter(|block| block.row_continues).count(), text)
    };
    assert_eq!(blocks(&mut client, "any(qualifier = '\\x31')").await, (0, "wide:50 ".to_owned()));
    assert_eq!(blocks(&mut client, "qualifier < '\\x05'").await, (0, "wide:5 ".to_owned()));
    let (parts, _) = blocks(&mut client, "matches(row, 'd')").await;
    assert!(parts >= 4, "{parts} parts");
    assert_eq!(blocks(&mut client, "matches(row, '^.$')").await, (0, "a:1 z:1 ".to_owned()));
    bench.stop_server().await;
}

#[tokio::test]
async fn a_row_is_limited_by_what_a_filter_returns_of_it() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    for number in 0..5u8 {
        let cells = packed(&[number], &vec![b'x'; 8 << 20]);
        let row = v1::RowMutation { row: "huge".into(), cells, ..Default::default() };
        assert!(client.put(&region, vec![row]).await.unwrap().errors.is_empty());
    }
    let scan = |filter: &str| v1::Scan { projection: harness::filter(filter), ..Default::default() };
    // Forty megabytes are read, and what passes counts; or what is kept until the row is judged.
    for filter in ["value != 'y'", "skip(value != 'y')"] {
        let refused = client.scan_all(&region, scan(filter)).await.unwrap_err().to_string();
        assert!(refused.contains("row huge") && refused.contains("33554432"), "{filter}: {refused}");
    }
    for (filter, rows) in [
        ("value = 'y'", 0),
        ("matches(row, 'y')", 0),
        ("qualifier > '\\x03' and keys_only()", 1),
        ("columns(2) and keys_only()", 1),
    ] {
        assert_eq!(client.scan_all(&region, scan(filter)).await.unwrap().len(), rows, "{filter}");
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn columns_that_cannot_pass_are_not_read() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    for chunk in 0..20u32 {
        let cells = (0..1_000).flat_map(|number| packed(&(chunk * 1_000 + number).to_be_bytes(), b"x").to_vec());
        let cells: Vec<u8> = cells.collect();
        let row = v1::RowMutation { row: "wide".into(), cells: cells.into(), ..Default::default() };
        assert!(client.put(&region, vec![row]).await.unwrap().errors.is_empty());
    }
    for (filter, skipped_max) in [
        ("qualifiers('\\x00\\x00\\x20\\x00'..'\\x00\\x00\\x20\\x0a')", 200),
        ("prefix(qualifier, '\\x00\\x00\\x20') and value = 'x' and columns(10)", 20_000),
        ("columns(10)", 2_000),
    ] {
        let projection = harness::filter(filter);
        let block = client.scan(&region, v1::Scan { projection, ..Default::default() }).await.unwrap();
        let cells = cells_in(&shown(&block.rows));
        assert!(block.cells_skipped <= skipped_max, "{filter}: {} cells skipped", block.cells_skipped);
        assert!(cells == 10 || filter.starts_with("prefix"), "{filter}: {cells} cells");
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn gets_accept_filters_and_report_whether_rows_exist() {
    let mut bench = Bench::start().await;
    let (region, mut client) = numbered(&mut bench).await;
    let rows: Vec<_> = [1u32, 2, 3, 900, 4].into_iter().map(|number| key(number).into()).collect();
    let get = async |client: &mut Client, filter: &str, exists_only: bool| {
        let get = v1::Get { rows: rows.clone(), projection: only_q(filter), exists_only, ..Default::default() };
        match client.batch(vec![(region.clone(), v1::request::Body::Get(get))]).await.remove(0) {
            v1::reply::Body::Get(reply) => shown(&reply.rows),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(get(&mut client, "exists(f:even)", false).await, rows_of([2, 4].into_iter()));
    assert_eq!(get(&mut client, "exists(f:even)", true).await, ["row00002=", "row00004="]);
    assert_eq!(get(&mut client, "", true).await, ["row00001=", "row00002=", "row00003=", "row00004="]);
    assert_eq!(get(&mut client, "row > 'row00003' and page(1)", false).await, rows_of([4].into_iter()));
    bench.stop_server().await;
}

#[tokio::test]
async fn projections_cut_cells_and_values() {
    let mut bench = Bench::start().await;
    let (region, mut client) = numbered(&mut bench).await;
    let of = |projection: v1::Projection| v1::Scan {
        start: key(0).into(),
        end: key(2).into(),
        projection: Some(projection),
        ..Default::default()
    };
    let range = v1::QualifierRange { start: "o".into(), end: "r".into() };
    let families = vec![v1::FamilyColumns { family: "f".into(), qualifiers: vec!["even".into()], ranges: vec![range] }];
    let ranged = v1::Projection { families, ..Default::default() };
    assert_eq!(client.scan_all(&region, of(ranged.clone())).await.unwrap(), ["row00000=yes,0", "row00001=1"]);
    let window = v1::Projection { cell_offset: 1, cell_limit: 1, ..ranged.clone() };
    assert_eq!(client.scan_all(&region, of(window)).await.unwrap(), ["row00000=0"]);
    let first = v1::Projection { first_cell_only: true, ..ranged.clone() };
    assert_eq!(client.scan_all(&region, of(first)).await.unwrap(), ["row00000=yes", "row00001=1"]);
    let keys = v1::Projection { keys_only: true, ..ranged.clone() };
    assert_eq!(client.scan_all(&region, of(keys)).await.unwrap(), ["row00000=,", "row00001="]);
    // The window applies to the cells that passed.
    let filter = "qualifier != 'even'".to_owned();
    let passed = v1::Projection { cell_limit: 1, filter, ..ranged };
    assert_eq!(client.scan_all(&region, of(passed)).await.unwrap(), ["row00000=0", "row00001=1"]);
    bench.stop_server().await;
}

#[tokio::test]
async fn invalid_filters_are_refused_with_the_position_of_the_error() {
    let mut bench = Bench::start().await;
    let (region, mut client) = numbered(&mut bench).await;
    let deep = format!("{}first_key_only()", "not ".repeat(17));
    let cases = [
        ("i32(f:n > 100", "expected `)`"),
        ("prefx(row, 'a')", "did you mean `prefix`"),
        ("i32(nosuch:n) > 100", "has no family nosuch"),
        ("matches(value, 'a{1000}{1000}')", "once compiled"),
        (deep.as_str(), "nested 17 deep; the limit is 16"),
    ];
    for (filter, said) in cases {
        let refused = client.scan_all(&region, filtered(filter)).await.unwrap_err().to_string();
        assert!(refused.contains(said), "{filter}: {refused}");
    }
    assert_eq!(client.get(&region, &[&key(7)]).await.unwrap().len(), 1, "the session goes on");
    bench.stop_server().await;
}
