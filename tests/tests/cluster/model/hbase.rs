//! The data path as HBase's clients see it: random puts, deletes, increments, appends, conditional writes, gets and scans over
//! the protocol, while regions split, flush and compact, compared with the plain model.
//!
//! Of what is drawn for Terrane's own client, this keeps what HBase can express in one call. Times come from the client or, for
//! increments and appends, from the answer.

mod messages;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use prost::Message as _;
use terrane_client::{Admin, Client, TableSpec};
use terrane_hbase::data::DataFront;
use terrane_hbase::place::Place;
use terrane_hbase::proto::mutation_proto::MutationType;
use terrane_hbase::proto::{self, MutationProto};
use terrane_hbase::serve::serve;
use terrane_regionserver::BackendKind;
use terrane_simulator::hbase_client::{Failed, HbaseClient};
use terrane_tests::cluster::Cluster;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::messages::{NOW, condition_of, get_of, mutation, seen_in};
use super::draw::{Draw, FAMILIES, GROUPS, group_start};
use super::plain::{Answers, Change, Columns, Condition, Event, Filter, Kind, Model, ReadModifyWrite, Rows, Selection};
use super::{meddle, with_seeds};
use crate::with_engine;

const SEEDS: std::ops::Range<u64> = 0..2;
const STEPS: usize = 300;
const BESIDE_ONE_IN: usize = 12;
/// How often a scan or a batch is tried again because regions changed, and the pause before that.
const TRIES_MAX: usize = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_over_hbases_protocol_equals_the_plain_models_while_regions_split() -> Result<()> {
    with_seeds(SEEDS, async |seed| {
        let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
        let stop = CancellationToken::new();
        let servers = serve_hbase(&cluster, &stop).await?;
        let mut world = World::new(&cluster.client().await?, servers, seed).await?;
        for step in 0..STEPS {
            world.step().await.with_context(|| format!("step {step}"))?;
        }
        while world.beside.join_next().await.is_some() {}
        world.scan_all().await.context("at the end")?;
        stop.cancel();
        cluster.stop_all().await;
        Ok(())
    })
    .await
}

/// Serves HBase's clients at all servers; returns the addresses.
async fn serve_hbase(cluster: &Cluster, stop: &CancellationToken) -> Result<Vec<String>> {
    let mut addresses = Vec::new();
    for index in 0..cluster.settings.servers {
        let server = cluster.server(index).context("the server runs")?;
        let listener = terrane_env::net::listen("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let place = Place::at(&address, server.boot()).context("an address")?;
        tokio::spawn(serve(listener, Arc::new(DataFront::new(server, place)), stop.clone()));
        addresses.push(address);
    }
    Ok(addresses)
}

/// A table, its model, and the maintenance of its regions meanwhile.
struct World {
    client: Mutex<HbaseClient>,
    admin: Admin,
    model: Model,
    draw: Draw,
    beside: JoinSet<()>,
}

impl World {
    async fn new(client: &Client, servers: Vec<String>, seed: u64) -> Result<World> {
        let mut spec = TableSpec::new("model")?;
        for (family, versions) in FAMILIES {
            spec = spec.family(family, &[("versions", &versions.to_string())])?;
        }
        client.admin().create_table(spec.split_at(&group_start(GROUPS / 2))).await?;
        let hbase = HbaseClient::new(client.clone(), "model".parse()?, servers);
        let (model, draw) = (Model::new(&FAMILIES), Draw::new(seed));
        Ok(World { client: Mutex::new(hbase), admin: client.admin(), model, draw, beside: JoinSet::new() })
    }

    async fn step(&mut self) -> Result<()> {
        if self.draw.one_in(BESIDE_ONE_IN) {
            let (admin, choice, at) = (self.admin.clone(), self.draw.below(3), group_start(self.draw.group()));
            self.beside.spawn(async move { meddle(&admin, choice, &at).await });
        }
        match self.draw.below(10) {
            0..=4 => self.write().await.context("a mutation"),
            5 => self.put_many().await.context("a batch of puts"),
            6 => self.get().await.context("a get"),
            7 => self.get_many().await.context("a batch of gets"),
            _ => self.scan().await.context("a scan"),
        }
    }

    async fn call<A: prost::Message + Default>(
        &self,
        row: &[u8],
        method: &str,
        encode: impl Fn(proto::RegionSpecifier) -> Vec<u8>,
    ) -> Result<A> {
        let mut client = self.client.lock().await;
        let outcome = client.call(row, method, encode, || false).await;
        Ok(outcome.map_err(|why| anyhow!("{method}: {why}"))?.answer)
    }

    async fn regions_changed(&self) {
        self.client.lock().await.forget_regions();
        tokio::time::sleep(RETRY_PAUSE).await;
    }

    async fn write(&mut self) -> Result<()> {
        let mut change = self.draw.change();
        change.condition = change.condition.filter(|condition| self.is_expressible(&change.row, condition));
        change.return_found = false;
        match change.read_modify_writes.pop() {
            Some(merge) => {
                change.read_modify_writes = vec![merge];
                change.events.clear();
                change.condition = None;
                change.answers = Answers::New;
                self.merge(&change).await
            }
            None => {
                change.answers = Answers::Nothing;
                self.mutate_row(change).await
            }
        }
    }

    /// Whether HBase has this condition. It takes a value without bytes for none.
    fn is_expressible(&self, row: &[u8], condition: &Condition) -> bool {
        let has_bytes = |family: &str, qualifier: &str| {
            self.model.newest(row, family, qualifier).is_none_or(|seen| !seen.3.is_empty())
        };
        match condition {
            Condition::Absent(family, qualifier) | Condition::Exists(family, qualifier) => has_bytes(family, qualifier),
            Condition::Equals(_, _, value) | Condition::Differs(_, _, value) => !value.is_empty(),
            _ => false,
        }
    }

    /// One increment or append. Its answer is the column with its time.
    async fn merge(&mut self, change: &Change) -> Result<()> {
        let row = change.row.clone();
        let (family, qualifier, merge) = &change.read_modify_writes[0];
        let (kind, value) = match merge {
            ReadModifyWrite::Increment(by) => (MutationType::Increment, by.to_be_bytes().to_vec()),
            ReadModifyWrite::Append(value) => (MutationType::Append, value.clone()),
        };
        let event = Event { family, qualifier, timestamp: None, kind: Kind::Put, value };
        let mutation = MutationProto { mutate_type: Some(kind.into()), ..mutation(&row, &event) };
        let encode = |region| {
            proto::MutateRequest { region, mutation: mutation.clone(), condition: None, nonce_group: Some(1) }
                .encode_to_vec()
        };
        let is_counter = self.model.newest(&row, family, qualifier).is_none_or(|seen| seen.3.len() == 8);
        let answered = self.call::<proto::MutateResponse>(&row, "Mutate", encode).await;
        if kind == MutationType::Increment && !is_counter {
            let error = answered.err().context("an increment of what is no counter was answered")?.to_string();
            ensure!(error.contains("DoNotRetryIOException"), "{change:?} was refused with {error}");
            return Ok(());
        }
        let found = seen_in(answered?.result);
        let stamp = found.first().context("no cell was returned")?.2;
        let expected = self.model.apply(change, stamp);
        ensure!(found == expected, "{change:?} answered {found:?}, not {expected:?}");
        Ok(())
    }

    /// Puts and deletes of one row at once, under a condition or not.
    async fn mutate_row(&mut self, mut change: Change) -> Result<()> {
        for event in &mut change.events {
            // The times of puts would be unknown.
            let own = if event.kind == Kind::Put { 7 } else { NOW };
            event.timestamp.get_or_insert(own);
        }
        let row = change.row.clone();
        let mutations: Vec<MutationProto> = change.events.iter().map(|event| mutation(&row, event)).collect();
        let condition = change.condition.as_ref().map(|condition| condition_of(&row, condition));
        let processed = if let [mutation] = &mutations[..] {
            let encode = |region| {
                let (mutation, condition) = (mutation.clone(), condition.clone());
                proto::MutateRequest { region, mutation, condition, nonce_group: Some(1) }.encode_to_vec()
            };
            self.call::<proto::MutateResponse>(&row, "Mutate", encode).await?.processed
        } else {
            let action =
                |mutation: &MutationProto| proto::Action { mutation: Some(mutation.clone()), ..Default::default() };
            let actions: Vec<_> = mutations.iter().map(action).collect();
            let encode = |region| {
                let (action, condition) = (actions.clone(), condition.clone());
                let action = proto::RegionAction { region, atomic: Some(true), action, condition };
                let region_action = vec![action];
                proto::MultiRequest { region_action, nonce_group: Some(1), condition: None }.encode_to_vec()
            };
            let mut tries = 0;
            loop {
                let answer: proto::MultiResponse = self.call(&row, "Multi", encode).await?;
                let result = answer.region_action_result.first().context("no result")?;
                let Some(exception) = &result.exception else { break answer.processed };
                let name = exception.name.clone();
                tries += 1;
                ensure!(!name.contains("DoNotRetry") && tries < TRIES_MAX, "{change:?} was refused: {exception:?}");
                self.regions_changed().await;
            }
        };
        let holds = self.model.decide(&change) == super::plain::Decision::Applied;
        ensure!(processed.unwrap_or(true) == holds, "{change:?}: processed {processed:?}, not {holds}");
        if holds {
            self.model.apply(&change, NOW);
        }
        Ok(())
    }

    /// Puts of several rows of one region, each for itself. Those of rows that have moved to another region come back.
    async fn put_many(&mut self) -> Result<()> {
        let group = group_start(self.draw.group());
        for _ in 0..=self.draw.below(3) {
            let mut changes: Vec<Change> = (0..=self.draw.below(5)).map(|_| self.draw.change()).collect();
            for change in &mut changes {
                change.row = [&group[..], &change.row[4..]].concat();
                change.events.retain(|event| event.kind == Kind::Put);
                for event in &mut change.events {
                    event.timestamp.get_or_insert(5);
                }
                (change.read_modify_writes, change.condition) = (Vec::new(), None);
                change.answers = Answers::Nothing;
            }
            changes.retain(|change| !change.events.is_empty());
            let events: Vec<(&[u8], &Event)> =
                changes.iter().flat_map(|change| change.events.iter().map(|event| (&change.row[..], event))).collect();
            if events.is_empty() {
                continue;
            }
            let actions = (0u32..).zip(&events).map(|(index, (row, event))| proto::Action {
                index: Some(index),
                mutation: Some(mutation(row, event)),
                ..Default::default()
            });
            let outcomes = self.batch(&group, actions.collect()).await?;
            ensure!(outcomes.iter().all(Option::is_some), "a put of {changes:?} was refused");
            for change in &changes {
                self.model.apply(change, NOW);
            }
        }
        Ok(())
    }

    /// The results of a batch of actions on rows of one group, in their order; `None` for those that failed.
    async fn batch(&self, group: &[u8], actions: Vec<proto::Action>) -> Result<Vec<Option<proto::Result>>> {
        let mut results: Vec<Option<proto::Result>> = vec![None; actions.len()];
        for _ in 0..TRIES_MAX {
            let left: Vec<proto::Action> = actions
                .iter()
                .filter(|action| results[action.index.unwrap_or(0) as usize].is_none())
                .cloned()
                .collect();
            if left.is_empty() {
                break;
            }
            let encode = |region| {
                let action = proto::RegionAction { region, action: left.clone(), ..Default::default() };
                let region_action = vec![action];
                proto::MultiRequest { region_action, nonce_group: Some(1), condition: None }.encode_to_vec()
            };
            let answer: proto::MultiResponse = self.call(group, "Multi", encode).await?;
            let result = answer.region_action_result.into_iter().next().context("no result")?;
            let mut is_whole = result.exception.is_none();
            for one in result.result_or_exception {
                let place = one.index.context("a result has an index")? as usize;
                is_whole &= one.exception.is_none();
                if one.exception.is_none() {
                    results[place] = Some(one.result.unwrap_or_default());
                }
            }
            if !is_whole {
                self.regions_changed().await;
            }
        }
        Ok(results)
    }

    async fn get(&mut self) -> Result<()> {
        let (row, selection) = (self.draw.row(), self.selection());
        let get = get_of(&row, &selection);
        let encode = |region| proto::GetRequest { region, get: get.clone() }.encode_to_vec();
        let found = seen_in(self.call::<proto::GetResponse>(&row, "Get", encode).await?.result);
        let expected = self.model.read(&row, &selection);
        ensure!(found == expected, "{} reads {found:?}, not {expected:?} ({selection:?})", row.escape_ascii());
        let exists = proto::Get { existence_only: Some(true), ..get.clone() };
        let encode = |region| proto::GetRequest { region, get: exists.clone() }.encode_to_vec();
        let there = self.call::<proto::GetResponse>(&row, "Get", encode).await?.result.and_then(|result| result.exists);
        ensure!(there == Some(!expected.is_empty()), "{} exists: {there:?} ({selection:?})", row.escape_ascii());
        Ok(())
    }

    async fn get_many(&mut self) -> Result<()> {
        let (group, selection) = (group_start(self.draw.group()), self.selection());
        let rows: Vec<Vec<u8>> =
            (0..=self.draw.below(6)).map(|_| [&group[..], &self.draw.row()[4..]].concat()).collect();
        let actions = (0u32..).zip(&rows).map(|(index, row)| proto::Action {
            index: Some(index),
            get: Some(get_of(row, &selection)),
            ..Default::default()
        });
        for (row, found) in rows.iter().zip(self.batch(&group, actions.collect()).await?) {
            let (found, expected) = (seen_in(Some(found.context("a get failed")?)), self.model.read(row, &selection));
            ensure!(found == expected, "{} reads {found:?}, not {expected:?} ({selection:?})", row.escape_ascii());
        }
        Ok(())
    }

    /// What to read, as far as HBase reads it in the same way.
    fn selection(&mut self) -> Selection {
        let mut selection = self.draw.selection();
        selection.cells = None;
        for columns in &mut selection.columns {
            if let Columns::Prefix(family, _) = *columns {
                *columns = Columns::Family(family);
            }
        }
        let by_name = |filter: &Filter| match filter {
            Filter::Qualifier(_) => true,
            Filter::Not(filter) => matches!(**filter, Filter::Qualifier(_)),
            _ => false,
        };
        selection.filter = selection.filter.filter(by_name);
        selection
    }

    async fn scan(&mut self) -> Result<()> {
        let ((from, to), selection, reverse) = (self.draw.range(), self.selection(), self.draw.one_in(2));
        let calls = Calls {
            rows: [1, 2, 100][self.draw.below(3)],
            bytes: [Some(1), Some(200), None][self.draw.below(3)],
            partials: self.draw.one_in(2),
            limit: self.draw.below(8),
        };
        let mut expected = self.model.scan(&from, &to, &selection);
        if reverse {
            expected.reverse();
        }
        if calls.limit > 0 {
            expected.truncate(calls.limit);
        }
        let found = self.scanned((&from, &to), &selection, reverse, calls).await?;
        let differ = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        ensure!(differ.is_none(), "{differ:?} (found, expected) {selection:?} {calls:?} reverse {reverse}");
        ensure!(found.len() == expected.len(), "{} rows, not {} {calls:?}", found.len(), expected.len());
        Ok(())
    }

    async fn scan_all(&self) -> Result<()> {
        let selection = Selection { versions: 10, ..Selection::default() };
        let calls = Calls { rows: 3, bytes: None, partials: true, limit: 0 };
        let found = self.scanned((b"", b""), &selection, false, calls).await?;
        ensure!(found == self.model.scan(b"", b"", &selection), "all rows are {found:?}");
        Ok(())
    }

    /// A scan of all regions, begun again as long as regions change meanwhile: nothing is written.
    async fn scanned(&self, range: (&[u8], &[u8]), selection: &Selection, reverse: bool, calls: Calls) -> Result<Rows> {
        for _ in 0..TRIES_MAX {
            match self.scan_regions(range, selection, reverse, calls).await? {
                Ok(rows) => return Ok(rows),
                Err(why) => println!("a scan begins again: {why}"),
            }
            self.regions_changed().await;
        }
        bail!("regions change all the time");
    }

    async fn scan_regions(
        &self,
        (from, to): (&[u8], &[u8]),
        selection: &Selection,
        reverse: bool,
        calls: Calls,
    ) -> Result<Result<Rows, String>> {
        let mut regions = match self.client.lock().await.regions().await {
            Ok(regions) => regions.to_vec(),
            Err(Failed::Again(why) | Failed::Finally(why)) => return Ok(Err(why)),
        };
        let ends: Vec<Bytes> = regions.iter().skip(1).map(|(start, _)| start.clone()).chain([Bytes::new()]).collect();
        let mut within: Vec<(Bytes, Bytes)> = Vec::new();
        for ((start, name), end) in regions.drain(..).zip(ends) {
            if (to.is_empty() || start[..] < *to) && (end.is_empty() || end[..] > *from) {
                within.push((start, name));
            }
        }
        if reverse {
            within.reverse();
        }
        let bytes = |key: &[u8]| Some(Bytes::copy_from_slice(key));
        let (start_row, stop_row) = if reverse { (bytes(to), bytes(from)) } else { (bytes(from), bytes(to)) };
        let read = get_of(b"", selection);
        let scan = proto::Scan {
            column: read.column,
            start_row,
            stop_row,
            include_start_row: Some(!reverse),
            include_stop_row: Some(reverse),
            filter: read.filter,
            time_range: read.time_range,
            max_versions: read.max_versions,
            max_result_size: calls.bytes,
            reversed: Some(reverse),
            ..proto::Scan::default()
        };
        let (mut rows, mut continues) = (Rows::new(), false);
        for (start, name) in within {
            let mut scanner = None;
            loop {
                // A row of which a part is missing does not count yet.
                let left = calls.limit.saturating_sub(rows.len() - usize::from(continues));
                let meant = RefCell::new(true);
                let encode = |region: proto::RegionSpecifier| {
                    *meant.borrow_mut() &= region.value == name;
                    let request = proto::ScanRequest {
                        number_of_rows: Some(calls.rows),
                        client_handles_partials: Some(calls.partials),
                        limit_of_rows: u32::try_from(left).ok(),
                        next_call_seq: scanner.map(|(_, seq)| seq).or(Some(0)),
                        ..proto::ScanRequest::default()
                    };
                    match scanner {
                        None => proto::ScanRequest { region: Some(region), scan: Some(scan.clone()), ..request },
                        Some((id, _)) => proto::ScanRequest { scanner_id: Some(id), ..request },
                    }
                    .encode_to_vec()
                };
                let answer = match self.call::<proto::ScanResponse>(&start, "Scan", encode).await {
                    Ok(answer) => answer,
                    // The scanner was on a connection that was lost, or its region is gone.
                    Err(error) if scanner.is_some() => return Ok(Err(error.to_string())),
                    Err(error) => return Err(error),
                };
                if !meant.into_inner() {
                    return Ok(Err("the region is another".to_owned()));
                }
                for result in answer.results {
                    ensure!(calls.partials || !result.partial(), "a partial result for a client that takes none");
                    continues = result.partial();
                    let row =
                        result.cell.first().and_then(|cell| cell.row.clone()).context("a result without cells")?;
                    let cells = seen_in(Some(result));
                    match rows.last_mut() {
                        Some((last, more)) if last[..] == row[..] => more.extend(cells),
                        _ => rows.push((row.to_vec(), cells)),
                    }
                }
                let seq = scanner.map_or(1, |(_, seq)| seq + 1);
                scanner = Some((answer.scanner_id.context("an open scanner has a number")?, seq));
                if answer.more_results == Some(false) {
                    return Ok(Ok(rows));
                }
                if answer.more_results_in_region == Some(false) {
                    break;
                }
            }
        }
        Ok(Ok(rows))
    }
}

/// How a scan is cut into calls.
#[derive(Clone, Copy, Debug)]
struct Calls {
    rows: u32,
    bytes: Option<u64>,
    partials: bool,
    /// Rows of the whole scan; 0: all.
    limit: usize,
}
