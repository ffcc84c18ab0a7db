//! Hostile requests on the wire: messages of which a field or two are wrong, mostly to the server that leads the region that
//! they name. More wrong fields would show less: the first one ends the request.
//!
//! Each starts as a request that is right for a region of the table, and then some of its fields are replaced. The answer
//! may be success or any typed error but an internal one. A status without details comes from the transport.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use terrane_client::{Client, Error, RegionInfo};
use terrane_proto::v1::{self, data_client::DataClient};
use terrane_types::ClusterId;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::{FAMILY, HOSTILE_PAUSE_MS, Shared, hostile_row};
use crate::nodes::address;
use crate::scenario::play::{PATIENCE, TABLE, below, passes, pause};
use crate::trace;

const CLIENTS: usize = 2;
/// Requests to one region before the next is looked up.
const REQUESTS: usize = 8;
/// A call waits this long at most.
const CALL_MAX: Duration = Duration::from_secs(1);
/// One of so many fields is wrong; a request has about twenty.
const WRONG_ONE_IN: usize = 16;
const PROTOCOL_VERSION: u32 = 1;

/// Sends requests until the faults are over.
pub async fn request_all_the_time(host: &'static str, shared: Shared) -> Result<(), Error> {
    let client = shared.client(PATIENCE).await?;
    let senders = (0..CLIENTS).map(|sender| {
        let (who, client, shared) = (format!("{host}.{sender}"), client.clone(), shared.clone());
        async move {
            while !shared.is_over() {
                pause(HOSTILE_PAUSE_MS).await;
                match send_to_some_region(&who, &client, &shared).await {
                    Err(error) if passes(&error) => {}
                    done => done?,
                }
            }
            Ok(())
        }
    });
    join_all(senders).await.into_iter().collect()
}

async fn send_to_some_region(who: &str, client: &Client, shared: &Shared) -> Result<(), Error> {
    let cluster = client.admin().status().await?.cluster;
    let regions = client.admin().regions(Some(TABLE)).await?;
    let Some(region) = regions.get(below(regions.len().max(1))) else { return Ok(()) };
    let hosts = shared.context.plan.server_hosts();
    let address = perhaps(region.leader.clone(), || address(hosts[below(hosts.len())]));
    let Ok(channel) = terrane_env::net::channel(&address) else { return Ok(()) };
    let mut client = DataClient::new(channel);
    for _ in 0..REQUESTS {
        let (act, outcome) = send(&mut client, cluster, region).await;
        if let Err(error) = &outcome {
            trace::note(format_args!("{who} {act} at {address}: {error}"));
        }
        match &outcome {
            Err(error @ terrane_types::Error::Internal { .. }) => {
                shared.fail_act(who, format!("{act} at {address}: {error}"))
            }
            Err(error @ terrane_types::Error::Corruption { .. }) if !shared.has_damage() => {
                shared.fail_act(who, format!("{act} at {address}: {error}"));
            }
            _ => {}
        }
        shared.act(who, act, outcome.map_or_else(|error| kind_of(&error), |()| "ok".to_owned()));
    }
    Ok(())
}

fn kind_of(error: &terrane_types::Error) -> String {
    format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// Sends one request; returns what it was and its outcome.
async fn send(
    client: &mut DataClient<Channel>,
    cluster: ClusterId,
    region: &RegionInfo,
) -> (&'static str, Result<(), terrane_types::Error>) {
    let (hello, header) = (Some(hello(cluster)), Some(header(region)));
    match below(6) {
        0 | 1 => {
            let answer = client.mutate(timed(v1::MutateCall { hello, header, body: Some(mutate()) })).await;
            ("a wrong mutation", answered(answer).and_then(|reply| no_internal_error(reply.errors)))
        }
        2 => {
            let answer = client.get(timed(v1::GetCall { hello, header, body: Some(get()) })).await;
            ("a wrong get", answered(answer).map(drop))
        }
        3 => {
            let answer = client.scan_once(timed(v1::ScanCall { hello, header, body: Some(scan()) })).await;
            ("a wrong scan", answered(answer).and_then(|block| no_internal_error(block.error)))
        }
        4 => ("a wrong stream", stream(client, v1::ScanCall { hello, header, body: Some(scan()) }).await),
        _ => {
            let call = v1::OpenPageCall {
                hello,
                header,
                body: Some(v1::OpenPage { binding: binding(), token: some_bytes() }),
            };
            ("a wrong token", answered(client.open_page(timed(call)).await).map(drop))
        }
    }
}

/// Takes a few blocks of a stream.
async fn stream(client: &mut DataClient<Channel>, call: v1::ScanCall) -> Result<(), terrane_types::Error> {
    let mut blocks = answered(client.scan(timed(call)).await)?;
    for _ in 0..3 {
        match blocks.message().await {
            Ok(Some(block)) => no_internal_error(block.error)?,
            Ok(None) => break,
            Err(status) => return answered(Err::<tonic::Response<()>, _>(status)),
        }
    }
    Ok(())
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(if below(4) == 0 { Duration::from_millis(terrane_env::rand::range(0..3)) } else { CALL_MAX });
    request
}

/// What a call returned. A status without details comes from the transport, and is what faults do.
fn answered<T>(answer: Result<tonic::Response<T>, Status>) -> Result<T, terrane_types::Error> {
    match answer {
        Ok(response) => Ok(response.into_inner()),
        Err(status) if status.details().is_empty() => {
            Err(terrane_types::Error::Unavailable { message: status.message().to_owned(), retry_after: Duration::ZERO })
        }
        Err(status) => Err(terrane_proto::error::from_status(&status)),
    }
}

/// Errors inside of a reply are as little internal as its own.
fn no_internal_error<E: IntoDetail>(errors: impl IntoIterator<Item = E>) -> Result<(), terrane_types::Error> {
    errors
        .into_iter()
        .filter_map(IntoDetail::into_detail)
        .try_for_each(|detail| Err(terrane_proto::error::from_detail(detail)))
}

/// What contains an error message.
trait IntoDetail {
    fn into_detail(self) -> Option<v1::ErrorDetail>;
}

impl IntoDetail for v1::ErrorDetail {
    fn into_detail(self) -> Option<v1::ErrorDetail> {
        Some(self)
    }
}

impl IntoDetail for v1::RowError {
    fn into_detail(self) -> Option<v1::ErrorDetail> {
        self.error
    }
}

/// One of several numbers around limits.
fn some_number() -> u64 {
    let near = terrane_env::rand::range(0..4);
    [near, u64::from(u32::MAX) + near, u64::MAX - near, terrane_env::rand::u64()][below(4)]
}

fn some_u32() -> u32 {
    u32::try_from(some_number()).unwrap_or(u32::MAX)
}

/// Bytes that mean nothing: none, some, or many.
fn some_bytes() -> Bytes {
    let length = [0, 1, 15, 16, 17, 40, 200, 70_000][below(8)];
    let drawn = terrane_env::rand::u64().to_le_bytes();
    drawn.into_iter().cycle().zip(0u64..).map(|(byte, at)| byte.wrapping_add((at % 7) as u8)).take(length).collect()
}

/// Replaces a field now and then.
fn perhaps<T>(right: T, wrong: impl FnOnce() -> T) -> T {
    if below(WRONG_ONE_IN) == 0 { wrong() } else { right }
}

fn hello(cluster: ClusterId) -> v1::Hello {
    v1::Hello {
        cluster_id: perhaps(Bytes::copy_from_slice(&cluster.0), some_bytes),
        expected_server: perhaps(0, some_number),
        own_server: perhaps(0, some_number),
        boot: some_number(),
        version_min: perhaps(PROTOCOL_VERSION, some_u32),
        version_max: perhaps(PROTOCOL_VERSION, some_u32),
        feature_level: perhaps(0, some_u32),
    }
}

fn header(region: &RegionInfo) -> v1::RequestHeader {
    let descriptor = &region.descriptor;
    v1::RequestHeader {
        format: perhaps(1, some_u32),
        table: perhaps(descriptor.table.0, some_number),
        region: perhaps(descriptor.region.0, some_number),
        epoch: perhaps(descriptor.epoch.0, some_number),
        schema_version: perhaps(0, some_number),
        deadline_ms: perhaps(1_000, some_u32),
        priority: perhaps(0, some_u32),
        principal: perhaps(String::new(), || "p".repeat(10_000)),
        consistency: perhaps(0, || i32::try_from(some_number() % 100).unwrap_or_default()),
        client_id: perhaps(Bytes::from_static(&[7; 16]), some_bytes),
        lowest_unsettled: perhaps(0, some_number),
        required_features: perhaps(Vec::new(), || vec![some_u32(); below(100)]),
        exact_schema: below(6) == 0,
        under_way: perhaps(None, || {
            let ranges = (0..below(40)).map(|_| some_number()).collect();
            Some(v1::UnderWay { below: some_number(), ranges })
        }),
        trace: if below(2) == 0 { Bytes::new() } else { perhaps(some_trace(), some_bytes) },
    }
}

/// The context of a trace that somebody else began.
fn some_trace() -> Bytes {
    (0..3).flat_map(|_| some_number().to_be_bytes()).collect()
}

/// Writes rows of hostile clients only.
fn mutate() -> v1::Mutate {
    let rows = (0..perhaps(1, || below(200))).map(|_| row_mutation()).collect();
    v1::Mutate { rows, atomic: below(4) == 0 }
}

fn row_mutation() -> v1::RowMutation {
    let cell = || v1::Cell {
        family: perhaps(FAMILY.to_owned(), || "no such".to_owned()),
        qualifier: perhaps(Bytes::from_static(b"q"), some_bytes),
        timestamp: perhaps(i64::MAX, || i64::try_from(some_number()).unwrap_or(-1)),
        kind: perhaps(0, some_u32),
        value: perhaps(Bytes::from_static(b"v"), some_bytes),
    };
    let increment = || v1::ReadModifyWrite {
        family: FAMILY.to_owned(),
        qualifier: perhaps(Bytes::from_static(b"counter"), some_bytes),
        what: perhaps(Some(v1::read_modify_write::What::Increment(i64::MAX)), || None),
    };
    v1::RowMutation {
        row: hostile_row(perhaps(20, || if below(8) == 0 { [32_767, 32_768][below(2)] } else { 3 })).into(),
        cells: perhaps(Bytes::new(), some_bytes),
        // Operations that others may have settled, or that return with another content.
        operation: perhaps(0, || some_number() % 50),
        first_try_ms: perhaps(0, some_number),
        messages: (0..=below(2)).map(|_| cell()).collect(),
        condition: perhaps(None, || Some(condition(below(60)))),
        read_modify_writes: (0..perhaps(0, || below(5))).map(|_| increment()).collect(),
        returns: perhaps(0, || i32::try_from(some_number() % 5).unwrap_or_default()),
        return_found: below(4) == 0,
        delete_row: below(6) == 0,
    }
}

fn condition(depth: usize) -> v1::Condition {
    use v1::condition::Kind;
    let test = v1::ColumnTest {
        family: FAMILY.to_owned(),
        qualifier: Bytes::from_static(b"q"),
        comparison: i32::try_from(some_number() % 12).unwrap_or_default(),
        values: vec![some_bytes(); below(4)],
        read_as: perhaps(String::new(), || ["i64", "f64", "text", "no such"][below(4)].to_owned()),
        timestamp: i64::try_from(some_number()).unwrap_or(-1),
    };
    let innermost = v1::Condition { kind: perhaps(Some(Kind::Column(test)), || None) };
    (0..depth).fold(innermost, |inner, _| v1::Condition { kind: Some(Kind::All(v1::Conditions { of: vec![inner] })) })
}

fn projection() -> v1::Projection {
    let range = v1::QualifierRange { start: some_bytes(), end: some_bytes() };
    let columns = || v1::FamilyColumns {
        family: perhaps(FAMILY.to_owned(), || "no such".to_owned()),
        qualifiers: vec![some_bytes(); below(3)],
        ranges: vec![range.clone(); below(3)],
    };
    v1::Projection {
        families: (0..perhaps(0, || below(70))).map(|_| columns()).collect(),
        versions: perhaps(1, some_u32),
        time_min: perhaps(0, || i64::try_from(some_number()).unwrap_or(-1)),
        time_max: perhaps(0, || i64::try_from(some_number()).unwrap_or(-1)),
        cell_offset: perhaps(0, some_u32),
        cell_limit: perhaps(0, some_u32),
        keys_only: below(6) == 0,
        first_cell_only: below(6) == 0,
        filter: perhaps(String::new(), some_filter),
    }
}

fn some_filter() -> String {
    match below(4) {
        0 => format!("{}exists(f:n)", "not ".repeat(below(40))),
        1 => "(".repeat(5_000),
        2 => "x".repeat(70_000),
        _ => "while(f:n = '\\x00') and page(3)".to_owned(),
    }
}

fn get() -> v1::Get {
    v1::Get {
        rows: (0..perhaps(1, || below(300))).map(|_| perhaps(Bytes::from_static(b"row-001"), some_bytes)).collect(),
        projection: perhaps(None, || Some(projection())),
        cells_as: perhaps(0, || i32::try_from(some_number() % 4).unwrap_or_default()),
        exists_only: below(4) == 0,
    }
}

fn scan() -> v1::Scan {
    let aggregate = || v1::Aggregate {
        family: FAMILY.to_owned(),
        qualifier: Bytes::from_static(b"n"),
        read_as: perhaps("u64".to_owned(), || "no such".to_owned()),
    };
    let latest = || v1::Latest {
        prefix: perhaps(Some(v1::latest::Prefix::Bytes(4)), || Some(v1::latest::Prefix::Parts(some_u32()))),
        rows: perhaps(1, some_u32),
        last_prefix: perhaps(Bytes::new(), some_bytes),
        given: perhaps(0, some_u32),
    };
    v1::Scan {
        start: perhaps(Bytes::new(), some_bytes),
        end: perhaps(Bytes::new(), some_bytes),
        reverse: below(2) == 0,
        limit: perhaps(5, some_number),
        offset: perhaps(0, some_number),
        projection: perhaps(None, || Some(projection())),
        block_bytes: perhaps(0, some_u32),
        resume: perhaps(Bytes::new(), some_bytes),
        cells_as: perhaps(0, || i32::try_from(some_number() % 4).unwrap_or_default()),
        count_only: below(6) == 0,
        aggregate: perhaps(None, || Some(aggregate())),
        latest: perhaps(None, || Some(latest())),
        snapshot: below(3) == 0,
        fill_cache_never: below(3) == 0,
        at_sequence: perhaps(None, || Some(some_number())),
    }
}

fn binding() -> Option<v1::PageBinding> {
    let binding = || v1::PageBinding {
        table: some_number(),
        start: some_bytes(),
        end: some_bytes(),
        reverse: below(2) == 0,
        filter: perhaps(String::new(), some_filter),
    };
    perhaps(Some(binding()), || None)
}
