//! Flushes and compactions that an administrator requests, and how the server handles a full disk.

use terrane_proto::v1;
use terrane_regionserver::BackendKind;
use terrane_types::Error;
use tonic::Streaming;

use crate::harness::{Bench, GROUP, TABLE, our_hello, put};
use crate::{expected, row, rows};

fn request() -> v1::MaintainTableRequest {
    v1::MaintainTableRequest { hello: our_hello(), table: TABLE.0 }
}

/// The last message of a stream. Checks that progress never goes back.
async fn last_progress(mut stream: Streaming<v1::MaintainTableProgress>) -> v1::MaintainTableProgress {
    let mut last = v1::MaintainTableProgress::default();
    while let Some(next) = stream.message().await.unwrap() {
        assert!(!last.done && next.regions_done >= last.regions_done && next.regions_done <= next.regions, "{next:?}");
        last = next;
    }
    last
}

async fn bench(cache_bytes: u64) -> Bench {
    let mut bench = Bench::without_server().await;
    bench.settings.engine = BackendKind::Lsm;
    bench.settings.cache_bytes = cache_bytes;
    bench.start_server().await.unwrap();
    bench
}

#[tokio::test]
async fn a_table_is_flushed_and_compacted_on_request() {
    let mut bench = bench(1 << 20).await;
    let region = bench.create_table(|_| {}).await;
    let mut client = bench.client().await;
    for from in [0, 100, 200] {
        client.put(&region, rows(from..from + 100)).await.unwrap();
        let flushed = last_progress(bench.admin().flush_table(request()).await.unwrap().into_inner()).await;
        assert!(flushed.done && flushed.bytes > 0 && flushed.bytes_done == flushed.bytes, "{flushed:?}");
        assert_eq!((flushed.regions, flushed.regions_done, flushed.failures.len()), (1, 1, 0));
    }
    client.put(&region, vec![put(&row(0), b"new")]).await.unwrap();
    let compacted = last_progress(bench.admin().compact_table(request()).await.unwrap().into_inner()).await;
    assert!(compacted.done && compacted.bytes > 0 && compacted.bytes_done >= compacted.bytes, "{compacted:?}");
    assert_eq!((compacted.regions, compacted.regions_done, compacted.failures.len()), (1, 1, 0));
    let mut all = expected(0..300);
    all[0] = "row00000=new".to_owned();
    assert_eq!(client.scan_all(&region, v1::Scan::default()).await.unwrap(), all);
    let nothing = v1::MaintainTableRequest { table: 77, ..request() };
    let progress = last_progress(bench.admin().flush_table(nothing).await.unwrap().into_inner()).await;
    assert!(progress.done && progress.regions == 0, "{progress:?}");
    bench.stop_server().await;
}

#[tokio::test]
async fn rows_that_are_only_on_disk_are_read_in_order() {
    // Almost no cache: nearly every read needs the disk.
    let mut bench = bench(1).await;
    let region = bench.create_table(|_| {}).await;
    let mut client = bench.client().await;
    for from in (0..3000).step_by(500) {
        client.put(&region, rows(from..from + 500)).await.unwrap();
        last_progress(bench.admin().flush_table(request()).await.unwrap().into_inner()).await;
    }
    client.put(&region, rows(3000..3100)).await.unwrap();
    bench.restart(2).await;
    let mut client = bench.client().await;
    client.put(&region, vec![put(&row(5), b"memory")]).await.unwrap();
    let asked: Vec<Vec<u8>> = [2999, 5, 9999, 0, 700, 5].map(row).to_vec();
    let asked: Vec<&[u8]> = asked.iter().map(Vec::as_slice).collect();
    let got = client.get(&region, &asked).await.unwrap();
    assert_eq!(got, ["row02999=2999", "row00005=memory", "row00000=0", "row00700=700", "row00005=memory"]);
    let mut all = expected(0..3100);
    all[5] = "row00005=memory".to_owned();
    let scan = v1::Scan { block_bytes: 4096, ..Default::default() };
    assert_eq!(client.scan_all(&region, scan.clone()).await.unwrap(), all);
    all.reverse();
    assert_eq!(client.scan_all(&region, v1::Scan { reverse: true, ..scan }).await.unwrap(), all);
    bench.stop_server().await;
}

#[tokio::test]
async fn a_full_disk_rejects_writes_and_is_reported_while_reads_continue() {
    let mut bench = bench(1 << 20).await;
    let region = bench.create_table(|_| {}).await;
    bench.client().await.put(&region, rows(0..10)).await.unwrap();
    bench.settings.disk_reserve = Some(u64::MAX / 2);
    bench.restart(2).await;
    let full = bench.report(|report| !report.issues.is_empty()).await;
    assert_eq!(full.issues[0].kind, "disk_full", "{:?}", full.issues);
    let mut client = bench.client().await;
    let refused = client.put(&region, rows(10..11)).await.unwrap_err();
    assert!(matches!(&refused, Error::Unavailable { message, .. } if message.contains("is full")), "{refused}");
    assert_eq!(client.scan_all(&region, v1::Scan::default()).await.unwrap(), expected(0..10));
    bench.settings.disk_reserve = None;
    bench.restart(3).await;
    bench.client().await.put(&region, rows(10..11)).await.unwrap();
    bench.stop_server().await;
}

/// The group went on without this server, the master says when it is back.
#[tokio::test]
async fn a_replica_that_was_lost_leads_nothing_when_its_server_is_back() {
    let mut bench = bench(1 << 20).await;
    let region = bench.create_table(|_| {}).await;
    bench.client().await.put(&region, rows(0..1)).await.unwrap();
    let term = 1 << 20;
    *bench.master.recovered.lock().unwrap() = vec![v1::RecoveredGroup { group: GROUP.0, term }];
    bench.stop_server().await;
    bench.start_server().await.unwrap();
    let report = bench.report(|report| report.boot == 2 && !report.groups.is_empty()).await;
    assert_eq!(report.groups[0].replica, 1, "it is still there: {report:?}");
    let refused = bench.client().await.put(&region, rows(1..2)).await;
    assert!(matches!(refused, Err(Error::NotLeader { .. })), "{refused:?}");
    let refused = bench.client().await.scan_all(&region, v1::Scan::default()).await;
    assert!(matches!(refused, Err(Error::NotLeader { .. })), "{refused:?}");

    // Terms of a group that was not recovered without it say nothing.
    *bench.master.recovered.lock().unwrap() = vec![v1::RecoveredGroup { group: GROUP.0, term: 4 }];
    bench.restart(3).await;
    bench.client().await.put(&region, rows(1..2)).await.unwrap();
}
