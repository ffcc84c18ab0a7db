//! A single region server, with real sockets and files and a group of one replica.

#![allow(clippy::unwrap_used, reason = "a test that unwraps an error fails, as it should")]

mod answers;
mod consistency;
mod filters;
mod harness;
mod maintenance;
mod masters;
mod mutations;
mod scanning;
mod wide_rows;

use bytes::Bytes;
use harness::{Bench, Client, TABLE, cells_in, leads, put, regions, schema, shown, wide};
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::{error, hello, v1};
use terrane_regionserver::{RegionServer, ServerConfig};
use terrane_types::cell::{CellKind, CellRef, LATEST, pack};
use terrane_types::{ClusterId, Error, FamilyName, FamilySchema, RegionId, ServerId};

fn row(number: usize) -> Vec<u8> {
    format!("row{number:05}").into_bytes()
}

fn rows(range: std::ops::Range<usize>) -> Vec<v1::RowMutation> {
    range.map(|number| put(&row(number), number.to_string().as_bytes())).collect()
}

fn expected(range: impl Iterator<Item = usize>) -> Vec<String> {
    range.map(|number| format!("row{number:05}={number}")).collect()
}

#[tokio::test]
async fn rows_are_put_got_and_deleted() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let reply = client.put(&region, rows(0..100)).await.unwrap();
    assert!(reply.errors.is_empty() && reply.stamp > 0);
    assert_eq!(
        client.get(&region, &[b"row00007", b"absent", b"row00003"]).await.unwrap(),
        ["row00007=7", "row00003=3"]
    );

    let mut delete = Vec::new();
    pack(&mut delete, CellRef::delete(CellKind::DeleteFamily, b"f", b"", LATEST));
    let delete = v1::RowMutation { row: "row00007".into(), cells: delete.into(), ..Default::default() };
    client.put(&region, vec![delete]).await.unwrap();
    assert_eq!(client.get(&region, &[b"row00007", b"row00003"]).await.unwrap(), ["row00003=3"]);
    bench.stop_server().await;
}

#[tokio::test]
async fn requests_of_a_batch_are_all_answered() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let mutate =
        |number: usize| v1::request::Body::Mutate(v1::Mutate { rows: rows(number..number + 1), atomic: false });
    let batch: Vec<_> = (0..2000).map(|number| (region.clone(), mutate(number))).collect();
    let answers = client.batch(batch).await;
    assert_eq!(answers.len(), 2000);
    assert!(answers.iter().all(|answer| matches!(answer, v1::reply::Body::Mutate(reply) if reply.errors.is_empty())));
    let get = |number: usize| v1::request::Body::Get(v1::Get { rows: vec![row(number).into()], ..Default::default() });
    let answers = client.batch((0..2000).map(|number| (region.clone(), get(number))).collect()).await;
    for (number, answer) in answers.iter().enumerate() {
        let v1::reply::Body::Get(reply) = answer else { panic!("{answer:?}") };
        assert_eq!(shown(&reply.rows), expected(number..number + 1));
    }
    bench.stop_server().await;
}

#[tokio::test]
async fn scans_go_in_both_directions_with_limit_offset_and_small_blocks() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, rows(0..500)).await.unwrap();
    let small = v1::Scan { block_bytes: 300, ..Default::default() };
    assert_eq!(client.scan_all(&region, small.clone()).await.unwrap(), expected(0..500));
    let reverse = v1::Scan { reverse: true, ..small.clone() };
    assert_eq!(client.scan_all(&region, reverse).await.unwrap(), expected((0..500).rev()));
    let page = v1::Scan { offset: 20, limit: 30, ..small.clone() };
    assert_eq!(client.scan_all(&region, page.clone()).await.unwrap(), expected(20..50));
    let page = v1::Scan { reverse: true, start: row(100).into(), end: row(200).into(), ..page };
    assert_eq!(client.scan_all(&region, page).await.unwrap(), expected((150..180).rev()));
    let counted = client.scan(&region, v1::Scan { count_only: true, ..Default::default() }).await.unwrap();
    assert_eq!((counted.row_count, counted.done, counted.rows.len()), (500, true, 0));
    bench.stop_server().await;
}

#[tokio::test]
async fn a_row_larger_than_a_block_is_sent_in_parts() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, vec![put(b"row00000", b"0"), wide("row00001"), put(b"row00002", b"2")]).await.unwrap();
    let scan = v1::Scan { block_bytes: 1000, ..Default::default() };
    let blocks = client.blocks(&region, scan).await.unwrap();
    let cells: usize = blocks.iter().map(|block| cells_in(&shown(&block.rows))).sum();
    let parts = blocks.iter().filter(|block| block.row_continues).count();
    assert_eq!((cells, blocks.iter().map(|block| block.row_count).sum::<u64>()), (52, 3));
    assert!(parts >= 4, "{parts} parts");
    bench.stop_server().await;
}

#[tokio::test]
async fn a_row_in_parts_does_not_restart_because_of_writes_in_between() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, vec![wide("row00001"), put(b"row00002", b"0")]).await.unwrap();
    let mut scan = v1::Scan { block_bytes: 1000, ..Default::default() };
    let mut restarts = 0;
    for writes in 0.. {
        let block = client.scan(&region, scan.clone()).await.unwrap();
        restarts += usize::from(block.row_restarted);
        if block.done {
            assert!(writes >= 4, "only {writes} writes came in between");
            break;
        }
        scan.resume = block.resume;
        // Overwrites a cell: without a held snapshot a flush would collect past the sequence number of the row.
        client.put(&region, vec![put(b"row00002", writes.to_string().as_bytes())]).await.unwrap();
    }
    assert_eq!(restarts, 0);
    bench.stop_server().await;
}

#[tokio::test]
async fn a_region_without_a_boundary_is_reported_only_while_it_is_over_its_size() {
    let (mut bench, region, mut client) = Bench::with_table(|schema| schema.region_size = 16 << 10).await;
    client.put(&region, rows(0..1)).await.unwrap();
    assert!(bench.split("").await.is_err(), "one row");
    let small = bench.report(|report| !report.regions.is_empty()).await;
    assert_eq!(small.regions[0].state, "open");
    client.put(&region, vec![put(&row(0), &[7; 32 << 10])]).await.unwrap();
    bench.report(|report| report.regions.iter().any(|region| region.state == "unsplittable")).await;
    bench.stop_server().await;
}

#[tokio::test]
async fn a_split_serves_both_daughters_at_once_and_redirects_the_parent() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, rows(0..200)).await.unwrap();
    let first = client.scan(&region, v1::Scan { limit: 50, ..Default::default() }).await.unwrap();
    let daughters = bench.split(row(80)).await.unwrap();

    let Err(Error::StaleEpoch { region: RegionId(100), current }) = client.put(&region, rows(0..1)).await else {
        panic!("the parent took a write")
    };
    assert_eq!(current.iter().map(v1::RegionDescriptor::from).collect::<Vec<_>>(), daughters);
    let [left, right] = &current[..] else { panic!("{current:?}") };
    assert_eq!((left.epoch.0, &left.range.end[..], &right.range.start[..]), (2, &row(80)[..], &row(80)[..]));
    client.put(right, rows(200..201)).await.unwrap();
    assert_eq!(client.scan_all(left, v1::Scan::default()).await.unwrap(), expected(0..80));
    assert_eq!(client.scan_all(right, v1::Scan::default()).await.unwrap(), expected(80..201));
    // A token of the parent continues in the daughter that holds its position.
    let rest = v1::Scan { resume: first.resume, ..Default::default() };
    assert_eq!(client.scan(left, rest).await.unwrap().row_count, 0, "the limit was reached");
    bench.stop_server().await;
}

#[tokio::test]
async fn regions_split_automatically_and_lose_nothing_over_a_restart() {
    let (mut bench, region, mut client) = Bench::with_table(|schema| schema.region_size = 16 << 10).await;
    let mut known = vec![region];
    let mut number = 0;
    while number < 6000 {
        let wanted = row(number);
        let region = known.iter().find(|region| region.range.contains(&wanted)).unwrap().clone();
        // As many rows as the region holds.
        let end = (number..number + 50).find(|n| !region.range.contains(&row(*n))).unwrap_or(number + 50);
        match client.put(&region, rows(number..end)).await {
            Ok(reply) => {
                assert!(reply.errors.is_empty(), "{reply:?}");
                number = end;
            }
            Err(Error::StaleEpoch { region, current }) => {
                known.retain(|known| known.region != region);
                known.extend(current);
            }
            Err(Error::Busy { retry_after }) => tokio::time::sleep(retry_after).await,
            Err(other) => panic!("{other}"),
        }
    }
    let report = bench.report(|report| report.regions.len() >= 8).await;
    assert_eq!(all_rows(&mut bench, &report).await, expected(0..6000));

    bench.stop_server().await;
    bench.start_server().await.unwrap();
    let report = bench.report(|now| leads(now) && now.boot == 2 && now.regions.len() >= report.regions.len()).await;
    assert_eq!(all_rows(&mut bench, &report).await, expected(0..6000));
    bench.stop_server().await;
}

/// Every row of the table, region by region. Starts over if a region is split meanwhile.
async fn all_rows(bench: &mut Bench, report: &v1::ReportRequest) -> Vec<String> {
    let mut client = bench.client().await;
    let mut pending = regions(report);
    pending.reverse();
    let mut rows = Vec::new();
    while let Some(region) = pending.pop() {
        match client.scan_all(&region, v1::Scan::default()).await {
            Ok(found) => rows.extend(found),
            Err(Error::StaleEpoch { mut current, .. }) => {
                current.sort_by(|a, b| b.range.start.cmp(&a.range.start));
                pending.extend(current);
            }
            Err(other) => panic!("{other}"),
        }
    }
    rows
}

#[tokio::test]
async fn an_alter_adds_a_family_and_a_drop_removes_the_table() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let mut cells = Vec::new();
    pack(&mut cells, CellRef::put(b"g", b"q", LATEST, b"new"));
    let mutation = v1::RowMutation { row: "r".into(), cells: cells.into(), ..Default::default() };
    let refused = client.put(&region, vec![mutation.clone()]).await.unwrap();
    let refused = error::from_detail(refused.errors[0].error.clone().unwrap());
    assert!(refused.to_string().contains("no family g; it has f"), "{refused}");

    let altered = schema(|schema| {
        schema.version = 2;
        schema.add_family(FamilySchema::new(FamilyName::new("g").unwrap())).unwrap();
    });
    bench.change_tables(Some(&altered), vec![], 0).await;
    assert!(client.put(&region, vec![mutation.clone()]).await.unwrap().errors.is_empty());
    assert_eq!(client.get(&region, &[b"r"]).await.unwrap(), ["r=new"]);

    let read_only = schema(|schema| {
        *schema = altered.clone();
        (schema.version, schema.read_only) = (3, true);
    });
    bench.change_tables(Some(&read_only), vec![], 0).await;
    assert!(matches!(client.put(&region, vec![mutation]).await, Err(Error::ReadOnly { .. })));

    bench.change_tables(None, vec![], TABLE.0).await;
    let gone = client.get(&region, &[b"r"]).await;
    assert!(matches!(&gone, Err(Error::StaleEpoch { current, .. }) if current.is_empty()), "{gone:?}");
    bench.report(|report| report.regions.is_empty()).await;
    bench.stop_server().await;
}

#[tokio::test]
async fn unary_calls_accept_and_return_messages() {
    let mut bench = Bench::start().await;
    let region = bench.create_table(|_| {}).await;
    let mut data = DataClient::new(bench.channel());
    let cell =
        v1::Cell { family: "f".into(), qualifier: "q".into(), timestamp: 77, kind: 0, value: Bytes::from_static(b"v") };
    let mutation = v1::RowMutation { row: "r".into(), messages: vec![cell.clone()], ..Default::default() };
    let hello = harness::our_hello();
    let header = harness::header(&region);
    let body = Some(v1::Mutate { rows: vec![mutation], atomic: false });
    let call = v1::MutateCall { hello: hello.clone(), header: header.clone(), body: body.clone() };
    assert!(data.mutate(call).await.unwrap().into_inner().errors.is_empty());

    let cells_as = v1::CellsAs::Messages as i32;
    let get = v1::Get { rows: vec!["r".into()], cells_as, ..Default::default() };
    let call = v1::GetCall { hello: hello.clone(), header: header.clone(), body: Some(get) };
    let reply = data.get(call).await.unwrap().into_inner();
    assert_eq!(reply.messages, [v1::Row { row: "r".into(), cells: vec![cell] }]);

    let scan = Some(v1::Scan { cells_as, ..Default::default() });
    let call = v1::ScanCall { hello: hello.clone(), header: header.clone(), body: scan };
    let mut blocks = data.scan(call.clone()).await.unwrap().into_inner();
    let block = blocks.message().await.unwrap().unwrap();
    assert_eq!((block.messages.len(), block.done), (1, true));
    assert_eq!(blocks.message().await.unwrap(), None);
    assert_eq!(data.scan_once(call).await.unwrap().into_inner().messages, block.messages);

    let stranger = Some(hello::ours(Some(ClusterId([8; 16])), ServerId(0), ServerId(0), 1));
    let refused = data.mutate(v1::MutateCall { hello: stranger, header, body }).await.unwrap_err();
    assert!(matches!(error::from_status(&refused), Error::WrongCluster { .. }), "{refused}");
    bench.stop_server().await;
}

#[tokio::test]
async fn a_session_of_another_cluster_is_refused_and_not_read() {
    let mut bench = Bench::start().await;
    let stranger = hello::ours(Some(ClusterId([8; 16])), ServerId(0), ServerId(0), 1);
    let (_client, first) = Client::greet(DataClient::new(bench.channel()), stranger).await;
    let Some(v1::session_reply::Body::Refused(detail)) = first else { panic!("{first:?}") };
    assert!(matches!(error::from_detail(detail), Error::WrongCluster { .. }));
    bench.stop_server().await;
}

#[tokio::test]
async fn unknown_enum_values_and_names_are_refused_by_number_or_name() {
    let mut bench = Bench::start().await;
    let region = bench.create_table(|_| {}).await;
    let mut data = DataClient::new(bench.channel());
    let with = |adjust: fn(&mut v1::RequestHeader)| {
        let mut header = harness::header(&region).unwrap();
        adjust(&mut header);
        v1::GetCall { hello: harness::our_hello(), header: Some(header), body: Some(v1::Get::default()) }
    };
    for (call, words) in [
        (with(|header| header.required_features = vec![9]), "required feature 9"),
        (with(|header| header.format = 2), "format 2"),
        (with(|header| header.consistency = 9), "consistency 9"),
    ] {
        let refused = error::from_status(&data.get(call).await.unwrap_err());
        assert!(matches!(&refused, Error::Unsupported { feature } if feature.contains(words)), "{refused}");
    }
    let conditional = v1::RowMutation { condition: Some(v1::Condition::default()), ..put(b"r", b"v") };
    let reply = bench.client().await.put(&region, vec![conditional]).await.unwrap();
    let refused = error::from_detail(reply.errors[0].error.clone().unwrap());
    assert!(matches!(&refused, Error::Invalid(invalid) if invalid.what.contains("does not know")), "{refused}");
    bench.stop_server().await;
}

#[tokio::test]
async fn a_failed_start_says_what_to_do() {
    let mut bench = Bench::start().await;
    let second = RegionServer::start(bench.config()).await.err().unwrap().to_string();
    assert!(second.contains("in use by another process"), "{second}");

    let elsewhere = tempfile::tempdir().unwrap();
    let taken = ServerConfig { data_dir: elsewhere.path().to_owned(), listen: bench.address(), ..bench.config() };
    let taken = RegionServer::start(taken).await.err().unwrap().to_string();
    assert!(taken.contains("the port is in use"), "{taken}");

    let unreachable = ServerConfig {
        data_dir: elsewhere.path().to_owned(),
        masters: vec!["127.0.0.1:1".to_owned()],
        register_timeout: std::time::Duration::from_millis(100),
        ..bench.config()
    };
    let unreachable = RegionServer::start(unreachable).await.err().unwrap().to_string();
    assert!(unreachable.contains("127.0.0.1:1") && unreachable.contains("--masters"), "{unreachable}");

    bench.stop_server().await;
    let stamp = terrane_env::fs::read(&bench.directory.path().join("server")).await.unwrap();
    let stamp = String::from_utf8(stamp).unwrap();
    assert!(stamp.contains("engine memory") && stamp.contains("boot 1"), "{stamp}");
}
