//! What HBase's clients may expect of a region server, where the model test draws nothing like it: found by HBase's own tests.

mod outcomes;
mod views;

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use prost::Message as _;
use terrane_client::TableSpec;
use terrane_hbase::data::{DataFront, SCANNER_LEASE_DEFAULT};
use terrane_hbase::place::Place;
use terrane_hbase::proto::mutation_proto::column_value::QualifierValue;
use terrane_hbase::proto::mutation_proto::{ColumnValue, DeleteType, MutationType};
use terrane_hbase::proto::{self, MutationProto};
use terrane_hbase::serve::serve;
use terrane_hbase_client::{HbaseClient, nonce};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use tokio_util::sync::CancellationToken;

use crate::with_engine;

const FAMILY: Bytes = Bytes::from_static(b"f");
const QUALIFIER: Bytes = Bytes::from_static(b"q");

/// Serves HBase's clients at all servers; returns the addresses.
pub async fn serve_hbase(cluster: &Cluster, stop: &CancellationToken) -> Result<Vec<String>> {
    let mut addresses = Vec::new();
    for index in 0..cluster.settings.servers {
        let server = cluster.server(index).context("the server runs")?;
        let listener = terrane_env::net::listen("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let place = Place::at(&address, server.boot()).context("an address")?;
        tokio::spawn(serve(listener, Arc::new(DataFront::new(server, place, SCANNER_LEASE_DEFAULT)), stop.clone()));
        addresses.push(address);
    }
    Ok(addresses)
}

/// A cluster that serves HBase's clients, and one of these with a new table.
struct Served {
    cluster: Cluster,
    client: HbaseClient,
    stop: CancellationToken,
}

impl Served {
    /// The table keeps five versions.
    async fn begin(table: &str) -> Result<Self> {
        Self::begin_with(TableSpec::new(table)?.family("f", &[("versions", "5")])?).await
    }

    async fn begin_with(spec: TableSpec) -> Result<Self> {
        let cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
        let (own, stop, name) = (cluster.client().await?, CancellationToken::new(), spec.schema.name.clone());
        own.admin().create_table(spec).await?;
        let client = HbaseClient::new(own, name, serve_hbase(&cluster, &stop).await?);
        Ok(Self { cluster, client, stop })
    }

    async fn end(mut self) -> Result<()> {
        self.stop.cancel();
        self.cluster.stop_all().await;
        Ok(())
    }
}

fn value(timestamp: Option<u64>, delete: Option<DeleteType>, value: impl Into<Bytes>) -> QualifierValue {
    QualifierValue {
        qualifier: Some(QUALIFIER),
        value: Some(value.into()),
        timestamp,
        delete_type: delete.map(Into::into),
        tags: None,
    }
}

fn mutation(kind: MutationType, row: &[u8], values: Vec<QualifierValue>) -> MutationProto {
    MutationProto {
        row: Some(Bytes::copy_from_slice(row)),
        mutate_type: Some(kind.into()),
        column_value: vec![ColumnValue { family: FAMILY, qualifier_value: values }],
        nonce: Some(nonce()),
        ..MutationProto::default()
    }
}

fn comparator(value: Bytes) -> proto::Comparator {
    let comparable = proto::ByteArrayComparable { value: Some(value) };
    proto::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned(),
        serialized_comparator: Some(proto::BinaryComparator { comparable }.encode_to_vec().into()),
    }
}

/// The condition that a row's column compares so with an empty value.
fn compared(row: &str, how: proto::CompareType) -> proto::Condition {
    proto::Condition {
        row: Bytes::copy_from_slice(row.as_bytes()),
        family: Some(FAMILY),
        qualifier: Some(QUALIFIER),
        compare_type: Some(how.into()),
        comparator: Some(comparator(Bytes::new())),
        ..proto::Condition::default()
    }
}

async fn mutate(
    client: &mut HbaseClient,
    mutation: MutationProto,
    condition: Option<proto::Condition>,
) -> Result<proto::MutateResponse> {
    let row = mutation.row.clone().context("a row")?;
    let encode = |region| {
        let (mutation, condition) = (mutation.clone(), condition.clone());
        proto::MutateRequest { region, mutation, condition, nonce_group: Some(1) }.encode_to_vec()
    };
    Ok(client.call(&row, "Mutate", encode, || false).await.map_err(|why| anyhow!(why))?.answer)
}

/// Times and values of the versions of a row.
async fn versions(client: &mut HbaseClient, row: &[u8]) -> Result<Vec<(u64, Bytes)>> {
    let get = proto::Get { row: Bytes::copy_from_slice(row), max_versions: Some(9), ..proto::Get::default() };
    let encode = |region| proto::GetRequest { region, get: get.clone() }.encode_to_vec();
    let answer = client.call::<proto::GetResponse>(row, "Get", encode, || false).await.map_err(|why| anyhow!(why))?;
    Ok(shown(answer.answer.result))
}

fn shown(result: Option<proto::Result>) -> Vec<(u64, Bytes)> {
    let cells = result.into_iter().flat_map(|result| result.cell);
    cells.map(|cell| (cell.timestamp.unwrap_or_default(), cell.value.unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutations_mean_what_hbases_own_tests_expect() -> Result<()> {
    let mut served = Served::begin("writes").await?;
    let client = &mut served.client;
    let put = |row: &[u8], times: std::ops::Range<u64>| {
        let values = times.map(|time| value(Some(time), None, time.to_string())).collect();
        mutation(MutationType::Put, row, values)
    };

    // Every time that a delete names a column without a time, it deletes another of its newest versions.
    mutate(client, put(b"deletes", 1..5), None).await?;
    let newest = || value(None, Some(DeleteType::DeleteOneVersion), "");
    mutate(client, mutation(MutationType::Delete, b"deletes", vec![newest(), newest(), newest()]), None).await?;
    let left = versions(client, b"deletes").await?;
    ensure!(left == [(1, Bytes::from_static(b"1"))], "three of four versions were deleted, and {left:?} are left");

    // A put takes deletes along.
    mutate(client, put(b"puts", 1..3), None).await?;
    let delete = value(None, Some(DeleteType::DeleteMultipleVersions), "");
    mutate(client, mutation(MutationType::Put, b"puts", vec![delete]), None).await?;
    let left = versions(client, b"puts").await?;
    ensure!(left.is_empty(), "a delete among puts left {left:?}");

    // The time of an append counts where there is nothing to append to. Of several appends to a column the last one counts.
    let append = |text: &'static str| value(Some(999), None, text);
    let appends = || mutation(MutationType::Append, b"appends", vec![append("lost"), append("x")]);
    let first = shown(mutate(client, appends(), None).await?.result);
    ensure!(first == [(999, Bytes::from_static(b"lost")), (999, Bytes::from_static(b"x"))], "it made {first:?}");
    let second = shown(mutate(client, appends(), None).await?.result);
    ensure!(second.len() == 2 && second[1].0 > 999 && second[1].1 == "xx", "the second append made {second:?}");

    // One that returns nothing is answered with an empty result, and not with none.
    let mut silent = appends();
    silent.attribute = vec![proto::NameBytesPair { name: "_rr_".to_owned(), value: Some(Bytes::from_static(&[0])) }];
    let answer = mutate(client, silent, None).await?;
    ensure!(answer.result.as_ref().is_some_and(|result| result.cell.is_empty()), "answered {answer:?}");

    // A condition is about the row that is changed.
    let other = compared("other", proto::CompareType::Equal);
    let refused = mutate(client, put(b"conditions", 1..2), Some(other)).await.err().context("it was taken")?;
    ensure!(refused.to_string().contains("they must be the same"), "refused with {refused}");

    served.end().await
}

/// One call of a scan. Returns the scanner and the rows with their newest values.
async fn next_rows(
    client: &mut HbaseClient,
    scanner: Option<(u64, u64)>,
    rows: u32,
) -> Result<((u64, u64), Vec<(Bytes, Bytes)>)> {
    let encode = |region| {
        let (opens, calls) = (scanner.is_none(), scanner.map_or(0, |(_, calls)| calls));
        proto::ScanRequest {
            region: opens.then_some(region),
            scan: opens.then(proto::Scan::default),
            scanner_id: scanner.map(|(id, _)| id),
            number_of_rows: Some(rows),
            next_call_seq: Some(calls),
            ..proto::ScanRequest::default()
        }
        .encode_to_vec()
    };
    let answer = client.call::<proto::ScanResponse>(b"", "Scan", encode, || false).await.map_err(|why| anyhow!(why))?;
    let answer = answer.answer;
    let scanner = (answer.scanner_id.context("a scanner")?, scanner.map_or(0, |(_, calls)| calls) + 1);
    let cells = answer.results.into_iter().filter_map(|result| result.cell.into_iter().next());
    let rows = cells.map(|cell| (cell.row.unwrap_or_default(), cell.value.unwrap_or_default()));
    Ok((scanner, rows.collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scanner_sees_its_region_as_of_when_it_was_opened() -> Result<()> {
    let mut served = Served::begin("views").await?;
    let client = &mut served.client;
    let put = |row: &'static str, text: &'static str| {
        mutation(MutationType::Put, row.as_bytes(), vec![value(None, None, text)])
    };
    let rows = |rows: &[(&'static str, &'static str)]| {
        rows.iter()
            .map(|(row, text)| (Bytes::from_static(row.as_bytes()), Bytes::from_static(text.as_bytes())))
            .collect()
    };
    for row in ["a", "c", "e"] {
        mutate(client, put(row, "old"), None).await?;
    }
    let (scanner, first): (_, Vec<_>) = next_rows(client, None, 1).await?;
    for row in ["b", "c", "d", "f"] {
        mutate(client, put(row, "new"), None).await?;
    }
    let (_, rest) = next_rows(client, Some(scanner), 100).await?;
    let seen: Vec<_> = first.into_iter().chain(rest).collect();
    let expected: Vec<_> = rows(&[("a", "old"), ("c", "old"), ("e", "old")]);
    ensure!(seen == expected, "the scanner sees {seen:?}");
    let (_, seen) = next_rows(client, None, 100).await?;
    let expected: Vec<_> = rows(&[("a", "old"), ("b", "new"), ("c", "new"), ("d", "new"), ("e", "old"), ("f", "new")]);
    ensure!(seen == expected, "a later scanner sees {seen:?}");
    served.end().await
}

const LARGE_ROWS: usize = 3;
const LARGE_CELLS: usize = 4;
/// So large that a row takes several blocks of a scan.
const LARGE_CELL_BYTES: usize = 1_200_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_one_part_of_a_large_row_and_it_is_the_last() -> Result<()> {
    let mut served = Served::begin("scans").await?;
    let client = &mut served.client;
    for row in 0..LARGE_ROWS {
        for qualifier in 0..LARGE_CELLS {
            let qualifier = Some(Bytes::from(format!("q{qualifier}")));
            let cell = QualifierValue { qualifier, ..value(None, None, vec![b'x'; LARGE_CELL_BYTES]) };
            mutate(client, mutation(MutationType::Put, format!("r{row}").as_bytes(), vec![cell]), None).await?;
        }
    }
    let scan = proto::Scan { max_result_size: Some(64 << 20), ..proto::Scan::default() };
    let (mut scanner, mut calls, mut cells) = (None, 0, 0);
    let mut rows = Vec::new();
    loop {
        let encode = |region| {
            let opens = scanner.is_none();
            proto::ScanRequest {
                region: opens.then_some(region),
                scan: opens.then(|| scan.clone()),
                scanner_id: scanner,
                number_of_rows: Some(100),
                next_call_seq: Some(calls),
                client_handles_partials: Some(true),
                client_handles_heartbeats: Some(true),
                ..proto::ScanRequest::default()
            }
            .encode_to_vec()
        };
        let answer = client.call::<proto::ScanResponse>(b"r0", "Scan", encode, || false).await;
        let answer = answer.map_err(|why| anyhow!(why))?.answer;
        (scanner, calls) = (answer.scanner_id, calls + 1);
        let last = answer.results.len().saturating_sub(1);
        for (at, result) in answer.results.iter().enumerate() {
            ensure!(at == last || !result.partial(), "part {at} of {last} in one answer is not the last");
            cells += result.cell.len();
            if !result.partial() {
                rows.push(std::mem::take(&mut cells));
            }
        }
        if !answer.more_results_in_region() {
            break;
        }
    }
    ensure!(rows == [LARGE_CELLS; LARGE_ROWS], "rows have {rows:?} cells");
    served.end().await
}
