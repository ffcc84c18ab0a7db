//! A small client of HBase's protocol: any call, and enough to increment, append, put, read and check-and-mutate over the port
//! that a region server has for HBase's clients, with the nonces and retries of HBase's own client.
//!
//! It shares no code with the server but the messages. Regions are looked up with Terrane's client, and servers are tried one
//! after another, so it depends on redirects only to be fast.
//!
//! For tests only: the simulator and the tests of whole clusters speak with it, and its [`player`] compares every answer with the
//! plain model.

pub mod java_scan;
pub mod player;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use prost::Message;
use terrane_client::{Client, Error};
use terrane_env::net::{Outbound, connect_to};
use terrane_hbase::proto::mutation_proto::column_value::QualifierValue;
use terrane_hbase::proto::mutation_proto::{ColumnValue, MutationType};
use terrane_hbase::proto::{self, MutationProto, RegionSpecifier};
use terrane_hbase::region_name::{region_name, specifier};
use terrane_types::TableName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// How long one try waits for its answer.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);
/// As long as it may take to replace the server that was called: without nonces a client does not know better than to wait.
const ONLY_TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a call is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection lasts whose answer is to be lost, at most.
const LOST_AFTER_MS: u64 = 60;
/// The largest answer that it reads.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A server counts answers from this size on.
const COUNTED_BYTES_MIN: usize = 1 << 10;

/// Why a try failed.
#[derive(Debug)]
pub enum Failed {
    /// It may be tried again; the text says why it failed. It may have been applied.
    Again(String),
    /// It may be tried again, and was not applied.
    Refused(String),
    /// It must not be tried again.
    Finally(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Again(error.to_string())
    }
}

/// Exceptions of calls and actions that had no effect, and may be made again.
const REFUSALS: [&str; 6] = [
    "NotServingRegionException",
    "RegionMovedException",
    "RegionOpeningException",
    "RegionTooBusyException",
    "CallQueueTooBigException",
    "RetryImmediatelyException",
];

/// Whether a call or action that failed with an exception of this class had no effect.
#[must_use]
pub fn is_refusal(class: &str) -> bool {
    class.rsplit('.').next().is_some_and(|name| REFUSALS.contains(&name))
}

/// The outcome of a call.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What the server answered.
    pub answer: T,
    /// An earlier try may have been the one that was applied: then the answer is what the row had later.
    pub was_retried: bool,
}

/// A client, with one connection to each server.
pub struct HbaseClient {
    client: Client,
    table: TableName,
    /// Addresses of the servers' ports.
    servers: Vec<String>,
    connections: BTreeMap<usize, Outbound>,
    /// Start keys and names of regions, and the place of the server that answered for it last.
    regions: Vec<(Bytes, Bytes)>,
    leaders: BTreeMap<Bytes, usize>,
    /// The place of the server that is asked first.
    first: usize,
    nonce_group: u64,
    calls: u32,
    loses_answer: bool,
    has_nonces: bool,
}

/// A column: family and qualifier.
pub type Column<'a> = (&'a [u8], &'a [u8]);

/// A change of one column.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// What is done.
    pub kind: MutationType,
    /// The column.
    pub column: Column<'a>,
    /// The value, the number to add in 8 bytes, or what is appended.
    pub value: Vec<u8>,
}

impl HbaseClient {
    /// A client of a table. `client` finds its regions.
    #[must_use]
    pub fn new(client: Client, table: TableName, servers: Vec<String>) -> Self {
        let nonce_group = terrane_env::rand::u64();
        let (connections, regions, leaders) = Default::default();
        let (first, calls, loses_answer, has_nonces) = (0, 0, false, true);
        Self {
            client,
            table,
            servers,
            connections,
            regions,
            leaders,
            first,
            nonce_group,
            calls,
            loses_answer,
            has_nonces,
        }
    }

    /// As clients that send no nonces: a change is only tried again after an exception which says that it had no effect.
    #[must_use]
    pub fn without_nonces(mut self) -> Self {
        self.has_nonces = false;
        self
    }

    fn nonce(&self) -> Option<u64> {
        self.has_nonces.then(nonce)
    }

    /// Changes a row by one mutation, under a condition if there is one: a column has this value, or is absent if it is
    /// empty. Tries again with the same nonce until it is answered or `gives_up` says so.
    ///
    /// # Errors
    /// Why it must not be tried again, or why the last try failed.
    pub async fn mutate(
        &mut self,
        row: &[u8],
        changes: &[Change<'_>],
        condition: Option<(Column<'_>, Vec<u8>)>,
        gives_up: impl Fn() -> bool,
    ) -> Result<Outcome<proto::MutateResponse>, String> {
        let request = proto::MutateRequest {
            region: RegionSpecifier::default(),
            mutation: MutationProto { nonce: self.nonce(), ..mutation(row, changes) },
            condition: condition.map(|(column, value)| equals(row, column, value)),
            nonce_group: Some(self.nonce_group),
        };
        let encode = |region| proto::MutateRequest { region, ..request.clone() }.encode_to_vec();
        self.call(row, "Mutate", encode, gives_up).await
    }

    /// Several mutations of one row at once, in their order.
    ///
    /// # Errors
    /// As for [`HbaseClient::mutate`].
    pub async fn mutate_row(
        &mut self,
        row: &[u8],
        mutations: &[Vec<Change<'_>>],
        gives_up: impl Fn() -> bool,
    ) -> Result<Outcome<proto::MultiResponse>, String> {
        let nonce = self.nonce();
        let action = |(index, changes): (u32, &Vec<Change<'_>>)| proto::Action {
            index: Some(index),
            mutation: Some(MutationProto { nonce, ..mutation(row, changes) }),
            ..proto::Action::default()
        };
        let actions: Vec<_> = (0u32..).zip(mutations).map(action).collect();
        let nonce_group = Some(self.nonce_group);
        let encode = |region| {
            let atomic = Some(true);
            let action = proto::RegionAction { region, atomic, action: actions.clone(), condition: None };
            proto::MultiRequest { region_action: vec![action], nonce_group, condition: None }.encode_to_vec()
        };
        self.call(row, "Multi", encode, gives_up).await
    }

    /// Reads one column of a row.
    ///
    /// # Errors
    /// As for [`HbaseClient::mutate`].
    pub async fn get(
        &mut self,
        row: &[u8],
        (family, qualifier): Column<'_>,
        gives_up: impl Fn() -> bool,
    ) -> Result<Option<Bytes>, String> {
        let column = proto::Column {
            family: Bytes::copy_from_slice(family),
            qualifier: vec![Bytes::copy_from_slice(qualifier)],
        };
        let get = proto::Get { row: Bytes::copy_from_slice(row), column: vec![column], ..proto::Get::default() };
        let encode = |region| proto::GetRequest { region, get: get.clone() }.encode_to_vec();
        let outcome: Outcome<proto::GetResponse> = self.call(row, "Get", encode, gives_up).await?;
        Ok(outcome.answer.result.and_then(|result| result.cell.into_iter().next()?.value))
    }

    /// The next call loses its connection once it is sent.
    pub fn lose_next_answer(&mut self) {
        self.loses_answer = true;
    }

    /// The regions as they are known: start keys, in their order, and names.
    ///
    /// # Errors
    /// If they cannot be looked up now.
    pub async fn regions(&mut self) -> Result<&[(Bytes, Bytes)], Failed> {
        if self.regions.is_empty() {
            let regions = self.client.admin().regions(Some(&self.table.to_string())).await;
            let regions = regions.map_err(|error: Error| Failed::Refused(error.to_string()))?;
            let named = regions.into_iter().map(|region| {
                let start = region.descriptor.range.start.clone();
                (start.clone(), region_name(&self.table, &start, region.descriptor.region))
            });
            self.regions = named.collect();
            self.regions.sort();
        }
        Ok(&self.regions)
    }

    /// The rows of the region that has a row: its first one, and the first after it, if there is one.
    ///
    /// # Errors
    /// As for [`HbaseClient::regions`].
    pub async fn rows_around(&mut self, row: &[u8]) -> Result<(Bytes, Option<Bytes>), Failed> {
        let regions = self.regions().await?;
        let after = regions.partition_point(|(start, _)| start[..] <= *row);
        let first = after.checked_sub(1).and_then(|at| regions.get(at)).map(|(start, _)| start.clone());
        Ok((first.unwrap_or_default(), regions.get(after).map(|(start, _)| start.clone())))
    }

    /// Looks regions up again before the next call, and asks another server first. For answers that say within a batch that a
    /// region is elsewhere.
    pub fn forget_regions(&mut self) {
        self.regions.clear();
        self.leaders.clear();
        self.first += 1;
    }

    /// Carries a call out at the server of the row's region; `encode` makes its message for that region. Tries again until it
    /// is answered or `gives_up` says so.
    ///
    /// # Errors
    /// As for [`HbaseClient::mutate`].
    pub async fn call<A: Message + Default>(
        &mut self,
        row: &[u8],
        method: &str,
        encode: impl Fn(RegionSpecifier) -> Vec<u8>,
        gives_up: impl Fn() -> bool,
    ) -> Result<Outcome<A>, String> {
        let (mut tries, mut was_retried) = (0, false);
        loop {
            let why = match self.try_once(row, method, &encode, tries).await {
                Ok(answer) => return Ok(Outcome { answer, was_retried }),
                Err(Failed::Finally(why)) => return Err(why),
                Err(Failed::Refused(why)) => why,
                Err(Failed::Again(why)) if !self.has_nonces => return Err(why),
                Err(Failed::Again(why)) => {
                    was_retried = true;
                    why
                }
            };
            if gives_up() {
                return Err(why);
            }
            tries += 1;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn try_once<A: Message + Default>(
        &mut self,
        row: &[u8],
        method: &str,
        encode: &impl Fn(RegionSpecifier) -> Vec<u8>,
        tries: usize,
    ) -> Result<A, Failed> {
        let name = self.region_of(row).await?;
        let server = self.leaders.get(&name).copied().unwrap_or((self.first + tries) % self.servers.len());
        let within = if self.has_nonces { TRY_TIMEOUT } else { ONLY_TRY_TIMEOUT };
        let answered = timeout(within, self.exchange(server, method, &encode(specifier(name.clone())))).await;
        let answered = answered.unwrap_or_else(|_| Err(Failed::Again("no answer in time".to_owned())));
        if matches!(answered, Ok(_) | Err(Failed::Finally(_))) {
            self.leaders.insert(name, server);
        } else {
            // Its region may have been split or moved, and the connection may be dead.
            self.leaders.remove(&name);
            self.connections.remove(&server);
            self.regions.clear();
        }
        let answer = answered?;
        A::decode_length_delimited(answer).map_err(|error| Failed::Finally(format!("a malformed answer: {error}")))
    }

    /// The name of the region that has a row.
    async fn region_of(&mut self, row: &[u8]) -> Result<Bytes, Failed> {
        let regions = self.regions().await?;
        let at = regions.partition_point(|(start, _)| start[..] <= *row);
        let found = at.checked_sub(1).and_then(|at| regions.get(at));
        found.map(|(_, name)| name.clone()).ok_or_else(|| Failed::Refused("the row has no region".to_owned()))
    }

    /// Sends one call and reads its answer.
    async fn exchange(&mut self, server: usize, method: &str, parameter: &[u8]) -> Result<Bytes, Failed> {
        self.calls += 1;
        let id = self.calls;
        if !self.connections.contains_key(&server) {
            let connected = connect_to(&self.servers[server]).await;
            let mut connection = connected.map_err(|error| Failed::Refused(error.to_string()))?;
            connection.write_all(&preamble()).await?;
            self.connections.insert(server, connection);
        }
        let Some(connection) = self.connections.get_mut(&server) else { return Err(io::Error::other("gone").into()) };
        connection.write_all(&request(id, method, parameter)).await?;
        connection.flush().await?;
        if std::mem::take(&mut self.loses_answer) {
            // Long enough for some calls to be carried out, and too short for others.
            tokio::time::sleep(Duration::from_millis(terrane_env::rand::range(0..LOST_AFTER_MS))).await;
            return Err(Failed::Again("the connection was given up".to_owned()));
        }
        loop {
            let length = usize::try_from(connection.read_u32().await?).unwrap_or(usize::MAX);
            if length > ANSWER_BYTES_MAX {
                return Err(Failed::Finally(format!("an answer of {length} bytes")));
            }
            let mut answer = vec![0; length];
            connection.read_exact(&mut answer).await?;
            let mut answer = Bytes::from(answer);
            let malformed = |error: prost::DecodeError| Failed::Finally(format!("a malformed header: {error}"));
            let header = proto::ResponseHeader::decode_length_delimited(&mut answer).map_err(malformed)?;
            if header.call_id != Some(id) {
                // The answer to a call that was given up.
                continue;
            }
            let Some(exception) = header.exception else {
                let bytes = size_of::<u32>() + length;
                // Servers do not count smaller ones.
                terrane_env::tally!("bytes of large answers that HBase's clients received", {
                    if bytes >= COUNTED_BYTES_MIN { bytes as u64 } else { 0 }
                });
                return Ok(answer.copy_to_bytes(answer.remaining()));
            };
            let why = format!("{}: {}", exception.exception_class_name(), exception.stack_trace());
            return Err(match exception.exception_class_name() {
                _ if exception.do_not_retry() => Failed::Finally(why),
                class if is_refusal(class) => Failed::Refused(why),
                _ => Failed::Again(why),
            });
        }
    }
}

/// A nonce: any number but 0, which is none.
#[must_use]
pub fn nonce() -> u64 {
    terrane_env::rand::u64().max(1)
}

fn mutation(row: &[u8], changes: &[Change<'_>]) -> MutationProto {
    let kind = changes.first().map_or(MutationType::Put, |change| change.kind);
    let column_value = changes.iter().map(|change| {
        let (family, qualifier) = change.column;
        let value = QualifierValue {
            qualifier: Some(Bytes::copy_from_slice(qualifier)),
            value: Some(change.value.clone().into()),
            ..QualifierValue::default()
        };
        ColumnValue { family: Bytes::copy_from_slice(family), qualifier_value: vec![value] }
    });
    MutationProto {
        row: Some(Bytes::copy_from_slice(row)),
        mutate_type: Some(kind.into()),
        column_value: column_value.collect(),
        ..MutationProto::default()
    }
}

/// The condition that a column has a value; an empty one: that it has none.
fn equals(row: &[u8], (family, qualifier): Column<'_>, value: Vec<u8>) -> proto::Condition {
    let comparable = proto::ByteArrayComparable { value: Some(value.into()) };
    let comparator = proto::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned(),
        serialized_comparator: Some(proto::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    proto::Condition {
        row: Bytes::copy_from_slice(row),
        family: Some(Bytes::copy_from_slice(family)),
        qualifier: Some(Bytes::copy_from_slice(qualifier)),
        compare_type: Some(proto::CompareType::Equal.into()),
        comparator: Some(comparator),
        ..proto::Condition::default()
    }
}

/// What opens a connection: simple authentication, cells in messages.
fn preamble() -> Vec<u8> {
    let header = proto::ConnectionHeader {
        user_info: Some(proto::UserInformation { effective_user: "client".to_owned(), real_user: None }),
        service_name: Some("ClientService".to_owned()),
        ..proto::ConnectionHeader::default()
    };
    let header = header.encode_to_vec();
    let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
    [&b"HBas\x00\x50"[..], &length.to_be_bytes(), &header].concat()
}

fn request(id: u32, method: &str, parameter: &[u8]) -> Vec<u8> {
    let header = proto::RequestHeader {
        call_id: Some(id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        ..proto::RequestHeader::default()
    };
    let mut frame = header.encode_length_delimited_to_vec();
    prost::encode_length_delimiter(parameter.len(), &mut frame).expect("a vector grows as needed");
    frame.extend_from_slice(parameter);
    let length = u32::try_from(frame.len()).expect("requests of the simulator are small");
    [&length.to_be_bytes()[..], &frame].concat()
}
