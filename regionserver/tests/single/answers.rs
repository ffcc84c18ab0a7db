//! Limits on how much one request may return, and what happens to answers that are not read.

use std::time::Duration;

use bytes::Bytes;
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::{error, v1};
use terrane_types::limits::GET_ROWS_MAX;
use terrane_types::{Error, RegionDescriptor};
use tonic::transport::{Channel, Endpoint};

use crate::harness::{Bench, Client, header, our_hello, put, shown};

/// 1 MiB in rows of 1 KiB.
const ROWS: u32 = 1024;

fn row(number: u32) -> Vec<u8> {
    format!("row-{number:05}").into_bytes()
}

async fn fill(client: &mut Client, region: &RegionDescriptor) {
    let rows = (0..ROWS).map(|number| put(&row(number), &[b'v'; 1024])).collect();
    client.put(region, rows).await.unwrap();
}

/// A client that takes 64 KiB of an answer before it reads it.
#[expect(clippy::disallowed_methods, reason = "a client with windows that no client of ours has")]
async fn small_window(bench: &Bench) -> DataClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", bench.address())).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    DataClient::new(endpoint.connect().await.unwrap())
}

fn scan(region: &RegionDescriptor, resume: Bytes) -> v1::ScanCall {
    let body = v1::Scan { block_bytes: 16 << 10, snapshot: true, resume, ..Default::default() };
    v1::ScanCall { hello: our_hello(), header: header(region), body: Some(body) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_of_many_rows_is_answered_in_order_and_one_of_too_many_is_refused() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let rows = (0..ROWS).map(|number| put(&row(number), &number.to_be_bytes())).collect();
    client.put(&region, rows).await.unwrap();
    let asked = |count: usize| -> Vec<Vec<u8>> {
        // One in three does not exist.
        (0..count).map(|at| row(u32::try_from(at * 7919 % (ROWS as usize * 3 / 2)).unwrap())).collect()
    };
    let get = async |client: &mut Client, rows: &[Vec<u8>]| {
        client.get(&region, &rows.iter().map(Vec::as_slice).collect::<Vec<_>>()).await
    };
    let most = asked(GET_ROWS_MAX);
    let found = get(&mut client, &most).await.unwrap();
    let there = |row: &&Vec<u8>| row.as_slice() < super::answers::row(ROWS).as_slice();
    let expected: Vec<String> = most.iter().filter(there).map(|row| String::from_utf8(row.clone()).unwrap()).collect();
    let names: Vec<&str> = found.iter().map(|shown| shown.split('=').next().unwrap()).collect();
    assert!(names == expected, "{} rows instead of {}", names.len(), expected.len());

    let refused = get(&mut client, &asked(GET_ROWS_MAX + 1)).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(invalid) if invalid.what.contains("16384")), "{refused:?}");
    bench.stop_server().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_that_is_not_read_ends_and_continues_with_its_token() {
    let mut bench = Bench::without_server().await;
    bench.settings.scan_idle = Duration::from_millis(100);
    bench.start_server().await.unwrap();
    let region = bench.create_table(|_| {}).await;
    fill(&mut bench.client().await, &region).await;
    let mut data = small_window(&bench).await;
    let mut blocks = data.scan(scan(&region, Bytes::new())).await.unwrap().into_inner();
    // A client cannot see that its stream ended before it reads on, so this waits for a fixed time.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut rows, mut resume, mut ends) = (Vec::new(), Bytes::new(), 0);
    loop {
        let block = blocks.message().await.unwrap().expect("a stream ends with its last block or with an error");
        if let Some(detail) = block.error {
            let refused = error::from_detail(detail);
            assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
            assert_eq!(block.resume, resume, "the token of the last block");
            ends += 1;
            blocks = data.scan(scan(&region, block.resume)).await.unwrap().into_inner();
            continue;
        }
        rows.extend(shown(&block.rows));
        resume = block.resume;
        if block.done {
            break;
        }
    }
    assert!(ends >= 1, "it ended before it was read");
    assert_eq!(rows.len(), ROWS as usize);
    assert!(rows.is_sorted());
    bench.stop_server().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_have_one_budget_and_reads_beyond_it_are_refused() {
    let mut bench = Bench::without_server().await;
    bench.settings.intake.answer_bytes = 20 << 10;
    bench.start_server().await.unwrap();
    let region = bench.create_table(|_| {}).await;
    let mut session = bench.client().await;
    fill(&mut session, &region).await;
    let get = v1::GetCall {
        hello: our_hello(),
        header: header(&region),
        body: Some(v1::Get { rows: vec![row(1).into()], ..Default::default() }),
    };
    let mut other = DataClient::new(bench.channel());
    other.get(get.clone()).await.unwrap();

    let mut slow = small_window(&bench).await;
    let unread = slow.scan(scan(&region, Bytes::new())).await.unwrap();
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let Err(status) = other.get(get.clone()).await {
                return error::from_status(&status);
            }
            tokio::task::yield_now().await;
        }
    });
    let refused = refused.await.expect("unread answers use up the budget");
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
    let refused = session.get(&region, &[&row(1)]).await.unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }), "sessions share it: {refused:?}");

    drop((unread, slow));
    let eased = tokio::time::timeout(Duration::from_secs(20), async {
        while other.get(get.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    eased.await.expect("an answer that its reader abandons frees its budget");
    bench.stop_server().await;
}
