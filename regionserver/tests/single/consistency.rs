//! Consistency levels, scans at one sequence number, and page tokens, over the wire.

use bytes::Bytes;
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::{error, v1};
use terrane_types::{Error, RegionDescriptor};
use tonic::Status;

use crate::harness::{self, Bench, Client, put, shown};
use crate::{expected, row, rows};

fn get_call(region: &RegionDescriptor, consistency: v1::Consistency) -> v1::GetCall {
    let mut header = harness::header(region).unwrap();
    header.consistency = consistency.into();
    let body = v1::Get { rows: vec![row(1).into()], ..Default::default() };
    v1::GetCall { hello: harness::our_hello(), header: Some(header), body: Some(body) }
}

#[tokio::test]
async fn stale_reads_name_their_time_and_other_reads_need_not() {
    let mut bench = Bench::start().await;
    let region = bench.create_table(|_| {}).await;
    let written = bench.client().await.put(&region, rows(0..3)).await.unwrap();
    let mut data = DataClient::new(bench.channel());
    for (consistency, says) in
        [(v1::Consistency::Linearizable, false), (v1::Consistency::Strict, false), (v1::Consistency::Stale, true)]
    {
        let reply = data.get(get_call(&region, consistency)).await.unwrap().into_inner();
        assert_eq!(shown(&reply.rows), expected(1..2), "{consistency:?}");
        assert_eq!(reply.as_of_ms >= written.stamp, says, "{consistency:?}");
        let call = get_call(&region, consistency);
        let call = v1::ScanCall { hello: call.hello, header: call.header, body: Some(v1::Scan::default()) };
        let block = data.scan_once(call.clone()).await.unwrap().into_inner();
        assert_eq!((shown(&block.rows), block.as_of_ms >= written.stamp), (expected(0..3), says));
        let block = data.scan(call).await.unwrap().into_inner().message().await.unwrap().unwrap();
        assert_eq!(block.as_of_ms >= written.stamp, says, "{consistency:?}");
    }
    bench.stop_server().await;
}

fn snapshot_scan() -> v1::Scan {
    v1::Scan { snapshot: true, block_bytes: 300, ..Default::default() }
}

/// Changes every row and adds one at the end.
async fn rewrite(client: &mut Client, region: &RegionDescriptor, count: usize) {
    let mut changed: Vec<_> = (0..count).map(|number| put(&row(number), b"changed")).collect();
    changed.push(put(&row(count), b"new"));
    client.put(region, changed).await.unwrap();
}

#[tokio::test]
async fn a_snapshot_scan_shows_one_moment_while_its_stream_is_open() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, rows(0..2_000)).await.unwrap();
    let call =
        v1::ScanCall { hello: harness::our_hello(), header: harness::header(&region), body: Some(snapshot_scan()) };
    let mut blocks = DataClient::new(bench.channel()).scan(call).await.unwrap().into_inner();
    let first = blocks.message().await.unwrap().unwrap();
    assert_eq!(first.sequence, Some(2_000));
    rewrite(&mut client, &region, 2_000).await;
    let mut seen = shown(&first.rows);
    while let Some(block) = blocks.message().await.unwrap() {
        assert_eq!((block.sequence, block.error), (first.sequence, None));
        seen.extend(shown(&block.rows));
    }
    assert_eq!(seen, expected(0..2_000));
    bench.stop_server().await;
}

#[tokio::test]
async fn between_calls_a_snapshot_is_valid_while_history_keeps_it() {
    let (mut bench, region, mut client) = Bench::with_table(|schema| schema.history_ms = 3_600_000).await;
    client.put(&region, rows(0..200)).await.unwrap();
    let first = client.scan(&region, snapshot_scan()).await.unwrap();
    rewrite(&mut client, &region, 200).await;
    let rest = v1::Scan { resume: first.resume.clone(), ..snapshot_scan() };
    let mut seen = shown(&first.rows);
    seen.extend(client.scan_all(&region, rest).await.unwrap());
    assert_eq!(seen, expected(0..200));
    // After a split the number is valid in the daughters too.
    let daughters = bench.split(row(80)).await.unwrap();
    let mut seen = Vec::new();
    for daughter in daughters {
        let scan = v1::Scan { at_sequence: first.sequence, ..snapshot_scan() };
        seen.extend(client.scan_all(&daughter.try_into().unwrap(), scan).await.unwrap());
    }
    assert_eq!(seen, expected(0..200));
    bench.stop_server().await;
}

#[tokio::test]
async fn without_history_a_snapshot_that_was_overwritten_is_too_old() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.put(&region, rows(0..200)).await.unwrap();
    let first = client.scan(&region, snapshot_scan()).await.unwrap();
    rewrite(&mut client, &region, 200).await;
    let rest = v1::Scan { resume: first.resume, ..snapshot_scan() };
    let refused = client.scan(&region, rest).await.unwrap_err();
    assert!(matches!(refused, Error::SnapshotTooOld { oldest } if oldest > 200), "{refused}");
    let early = v1::Scan { at_sequence: Some(1_000_000), ..snapshot_scan() };
    let refused = client.scan(&region, early).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    let careless = v1::Scan { at_sequence: Some(1), ..Default::default() };
    assert!(matches!(client.scan(&region, careless).await, Err(Error::Invalid(_))));
    bench.stop_server().await;
}

fn page_binding() -> v1::PageBinding {
    v1::PageBinding { table: 5, start: Bytes::from_static(b"a"), reverse: true, ..Default::default() }
}

fn refusal(status: &Status) -> String {
    match error::from_status(status) {
        Error::Invalid(invalid) => invalid.what,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn page_tokens_open_for_the_same_request_after_restarts_too() {
    let mut bench = Bench::start().await;
    let region = bench.create_table(|_| {}).await;
    let position = v1::PagePosition { bucket: 3, last: row(7).into(), finished: false };
    let page = v1::SealPage { binding: Some(page_binding()), positions: vec![position.clone()] };
    let token = bench.client().await.seal(&region, page).await.unwrap();
    bench.stop_server().await;
    bench.start_server().await.unwrap();

    let open = v1::OpenPage { binding: Some(page_binding()), token: token.clone() };
    assert_eq!(bench.client().await.open(&region, open.clone()).await.unwrap(), [position]);
    let mut data = DataClient::new(bench.channel());
    let call = |body: v1::OpenPage| v1::OpenPageCall {
        hello: harness::our_hello(),
        header: harness::header(&region),
        body: Some(body),
    };
    assert_eq!(data.open_page(call(open.clone())).await.unwrap().into_inner().positions.len(), 1);
    let mut damaged = token.to_vec();
    damaged[20] ^= 1;
    let other = |adjust: fn(&mut v1::PageBinding)| {
        let mut binding = page_binding();
        adjust(&mut binding);
        v1::OpenPage { binding: Some(binding), ..open.clone() }
    };
    for (body, words) in [
        (v1::OpenPage { token: damaged.into(), ..open.clone() }, "damaged"),
        (other(|binding| binding.table = 6), "another table"),
        (other(|binding| binding.reverse = false), "this range, direction or filter"),
        (v1::OpenPage { binding: None, ..open.clone() }, "names none"),
    ] {
        let refused = refusal(&data.open_page(call(body)).await.unwrap_err());
        assert!(refused.contains(words), "{refused}");
    }
    bench.stop_server().await;
}
