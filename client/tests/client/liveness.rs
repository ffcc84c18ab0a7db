//! Stopped and slow servers, against a fake cluster: the client leaves a stopped server at once, and a slow one never.

use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::join_all;
use terrane_client::{Client, Get, Scan};
use terrane_types::ServerId;
use tokio::time::Instant;

use crate::fake::{Fake, Fault, put};

/// Far below the 5 s that an answer of a live server may take, and far above the delays of a loaded machine.
const SOON: Duration = Duration::from_secs(3);

const ONE: ServerId = ServerId(1);
const TWO: ServerId = ServerId(2);

#[tokio::test]
async fn a_stopped_server_is_left_after_a_ping() {
    let (cluster, client, table) = Fake::warm().await;
    cluster.hang(ONE);
    cluster.fail_over(1, 2);
    let began = Instant::now();
    let calls = join_all((0..200).map(|number| table.put(put(format!("{number}"))))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert!(table.get(Get::new("7")).await.unwrap().is_some());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(
        (cluster.world.lock().applied, client.counters().master_lookups),
        (201, 1),
        "once each, without a master"
    );
}

#[tokio::test]
async fn the_members_are_tried_until_one_of_them_leads() {
    let (cluster, client, table) = Fake::warm().await;
    cluster.hang(ONE);
    let calls = join_all((0..300).map(|number| table.put(put(format!("{number}")))));
    // Every call asks somebody once; then a few go on asking. The election ends while they do.
    let election = async {
        while client.counters().redirects < 400 {
            tokio::task::yield_now().await;
        }
        cluster.fail_over(1, 3);
    };
    let (calls, ()) = tokio::join!(calls, election);
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!(cluster.world.lock().applied, 301);
}

#[tokio::test]
async fn a_slow_server_that_answers_pings_is_not_suspected() {
    let (cluster, client, table) = Fake::warm().await;
    let before = client.counters();
    // Pings are sent every 200 ms of silence, and the least patience is 400 ms.
    cluster.fault(Fault::AfterPings(5));
    table.put(put("slow")).await.unwrap();
    let after = client.counters();
    assert_eq!((after.retries, after.sessions_opened), (before.retries, before.sessions_opened));
    assert_eq!(after.requests, before.requests + 1);
}

#[tokio::test]
async fn a_scan_leaves_a_stopped_server() {
    let (cluster, _client, table) = Fake::warm().await;
    cluster.fill(60);
    cluster.world.lock().hang_after_blocks = Some((4, TWO));
    let began = Instant::now();
    let rows: Vec<_> = table.scan(Scan::all()).await.unwrap().into_stream().try_collect().await.unwrap();
    assert_eq!(rows.len(), 61, "none is skipped or repeated");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_connection_that_is_not_answered_delays_no_call_for_long() {
    let cluster = Fake::start(&[]).await;
    // Connections to it are made by the kernel and never served.
    let deaf = terrane_env::net::listen("127.0.0.1:0").await.unwrap();
    let address = deaf.local_addr().unwrap().to_string();
    cluster.world.lock().addresses.insert(ONE, address);
    cluster.fail_over(1, 2);
    let table = cluster.table().await;
    let began = Instant::now();
    table.put(put("a")).await.unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let again = Instant::now();
    cluster.fail_over(1, 3);
    cluster.world.lock().hints = false;
    table.put(put("b")).await.unwrap();
    assert!(again.elapsed() < began.elapsed(), "who is away is not waited for a second time");
}

#[tokio::test]
async fn a_stopped_server_that_resumes_is_used_again() {
    let (cluster, _client, table) = Fake::warm().await;
    cluster.hang(ONE);
    cluster.fail_over(1, 2);
    table.put(put("a")).await.unwrap();
    cluster.fail_over(1, 1);
    // To the client, no server leads now: it keeps trying to reach server 1.
    let resumed = async { cluster.resume(ONE) };
    let (written, ()) = tokio::join!(table.put(put("b")), resumed);
    written.unwrap();
    table.put(put("c")).await.unwrap();
    assert_eq!(cluster.world.lock().rows.len(), 4);
}

#[tokio::test]
async fn a_stopped_master_is_skipped() {
    let cluster = Fake::start(&[]).await;
    let deaf = terrane_env::net::listen("127.0.0.1:0").await.unwrap();
    let masters = format!("{},{}", deaf.local_addr().unwrap(), cluster.masters);
    let began = Instant::now();
    let client = Client::connect(&masters).await.expect("the second answers");
    client.table("t").await.unwrap().put(put("a")).await.unwrap();
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}
