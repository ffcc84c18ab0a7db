//! The data path as HBase's clients see it: a player that makes random puts, deletes, increments, appends, conditional writes,
//! batches, gets and scans over the protocol, and compares every answer with the plain model. It alone writes its rows.
//!
//! Of what is drawn for Terrane's own client, this keeps what HBase can express in one call. Times come from the client or, for
//! increments and appends, from the answer.
//!
//! Every call is made again until it is answered. What has a nonce that the server records is applied once, and then the answer
//! is that of its application, or what the row has since, which is the same. Other writes may be applied again by an earlier
//! try ([`terrane_oracle::model::possible`]): then another row takes the place of theirs.

mod messages;
mod scans;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bytes::Bytes;
use prost::Message as _;
use terrane_hbase::proto::mutation_proto::MutationType;
use terrane_hbase::proto::{self, MutationProto};
use terrane_oracle::model::draw::{Draw, group_start};
use terrane_oracle::model::plain::{
    Answers, Change, Columns, Condition, Decision, Event, Filter, Kind, ReadModifyWrite, Selection,
};
use terrane_oracle::model::possible::Possible;

use self::messages::{NOW, condition_of, delete_of_row, get_of, mutation, seen_in};
use crate::{HbaseClient, Outcome, is_refusal};

/// How often a scan or a batch is tried again because regions changed, and the pause before that.
const TRIES_MAX: usize = 1_000;
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// All nonces of a player are of one group.
const NONCE_GROUP: Option<u64> = Some(1);
/// The bytes of a row that say its group.
const GROUP_BYTES: usize = 4;

/// What is around a player.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Its name in notes.
    pub who: String,
    /// Whether an exception that clients take for final passes here, because of what was done to the servers.
    pub passes: fn(&str) -> bool,
    /// Takes what the player did.
    pub note: fn(fmt::Arguments<'_>),
}

/// Rows from the first one up to but excluding the second one; an empty one is no bound.
pub type Bounds = (Vec<u8>, Vec<u8>);

/// Makes one step after another, and fails at the first answer that differs from the model.
pub struct Player {
    client: HbaseClient,
    model: Possible,
    draw: Draw,
    /// The rows that it scans; no other player writes any of them.
    bounds: Bounds,
    /// How many rows have had the place of this one before.
    earlier: BTreeMap<Vec<u8>, usize>,
    around: Surroundings,
}

impl Player {
    /// A player at the table of a client, which has what the model has.
    #[must_use]
    pub const fn new(client: HbaseClient, model: Possible, draw: Draw, bounds: Bounds, around: Surroundings) -> Player {
        Player { client, model, draw, bounds, earlier: BTreeMap::new(), around }
    }

    /// What its table has.
    #[must_use]
    pub fn into_model(self) -> Possible {
        self.model
    }

    /// Makes a write or a read.
    ///
    /// # Errors
    /// An answer that differs from the model, or none.
    pub async fn step(&mut self) -> Result<()> {
        match self.draw.below(11) {
            0..=4 => self.write().await.context("a mutation"),
            5 => self.put_many().await.context("a batch of puts"),
            6 => self.get().await.context("a get"),
            7 => self.get_many().await.context("a batch of gets"),
            8 => self.delete_row().await.context("the delete of a row"),
            _ => self.scan().await.context("a scan"),
        }
    }

    /// The next call loses its connection once it is sent.
    pub fn lose_next_answer(&mut self) {
        self.client.lose_next_answer();
    }

    /// The row that has the place of a drawn one.
    fn present(&self, row: &[u8]) -> Vec<u8> {
        self.row_at(row, self.earlier.get(row).copied().unwrap_or(0))
    }

    fn row_at(&self, row: &[u8], earlier: usize) -> Vec<u8> {
        let suffix = if earlier == 0 { String::new() } else { format!("~{earlier}") };
        [row, suffix.as_bytes()].concat()
    }

    /// A row to read, mostly one that is written.
    fn row_to_read(&mut self) -> Vec<u8> {
        let row = self.draw.row();
        let earlier = self.earlier.get(&row).copied().unwrap_or(0);
        let earlier = if self.draw.one_in(3) { self.draw.below(earlier + 1) } else { earlier };
        self.row_at(&row, earlier)
    }

    fn note(&self, what: fmt::Arguments<'_>) {
        (self.around.note)(format_args!("{} {what}", self.around.who));
    }

    /// Another row takes the place of this one, in which these changes may be applied again.
    fn leave(&mut self, place: &[u8], repeated: &[Change]) {
        let row = self.present(place);
        self.note(format_args!("leaves {}, where may be repeated {repeated:?}", row.escape_ascii()));
        self.model.may_repeat(&row, repeated, NOW);
        *self.earlier.entry(place.to_vec()).or_default() += 1;
    }

    async fn call<A: prost::Message + Default>(
        &mut self,
        row: &[u8],
        method: &str,
        encode: impl Fn(proto::RegionSpecifier) -> Vec<u8>,
    ) -> Result<Outcome<A>> {
        let mut was_retried = false;
        loop {
            match self.client.call(row, method, &encode, || false).await {
                Ok(outcome) => return Ok(Outcome { was_retried: was_retried || outcome.was_retried, ..outcome }),
                Err(why) if !(self.around.passes)(&why) => return Err(anyhow!("{method}: {why}")),
                Err(_) => {}
            }
            was_retried = true;
            self.regions_changed().await;
        }
    }

    async fn regions_changed(&mut self) {
        self.client.forget_regions();
        tokio::time::sleep(RETRY_PAUSE).await;
    }

    async fn write(&mut self) -> Result<()> {
        let mut change = self.draw.change();
        let place = std::mem::take(&mut change.row);
        change.row = self.present(&place);
        change.condition = change.condition.filter(|condition| self.is_expressible(&change.row, condition));
        change.return_found = false;
        match change.read_modify_writes.pop() {
            Some(merge) => {
                change.read_modify_writes = vec![merge];
                change.events.clear();
                change.condition = None;
                change.answers = Answers::New;
                self.merge(&place, &change).await
            }
            None => {
                change.answers = Answers::Nothing;
                self.mutate_row(&place, change).await
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
    async fn merge(&mut self, place: &[u8], change: &Change) -> Result<()> {
        self.note(format_args!("makes {change:?}"));
        let row = &change.row;
        let (family, qualifier, merge) = &change.read_modify_writes[0];
        let (kind, value) = match merge {
            ReadModifyWrite::Increment(by) => (MutationType::Increment, by.to_be_bytes().to_vec()),
            ReadModifyWrite::Append(value) => (MutationType::Append, value.clone()),
        };
        let event = Event { family, qualifier, timestamp: None, kind: Kind::Put, value };
        let mutation = MutationProto { mutate_type: Some(kind.into()), ..mutation(row, &event) };
        let encode = |region| {
            proto::MutateRequest { region, mutation: mutation.clone(), condition: None, nonce_group: NONCE_GROUP }
                .encode_to_vec()
        };
        let answered = self.call::<proto::MutateResponse>(row, "Mutate", encode).await;
        if self.model.decide(change) == Decision::Refused {
            let error = answered.err().context("an increment of what is no counter was answered")?.to_string();
            ensure!(error.contains("DoNotRetryIOException"), "{change:?} was refused with {error}");
            // An earlier try could find a counter later.
            self.leave(place, &[]);
            return Ok(());
        }
        let found = seen_in(answered?.answer.result);
        let stamp = found.first().context("no cell was returned")?.2;
        if let Some(before) = self.model.newest(row, family, qualifier) {
            ensure!(stamp > before.2, "{change:?} took the place of the version of {}", before.2);
        }
        let expected = self.model.apply(change, stamp);
        ensure!(found == expected, "{change:?} answered {found:?}, not {expected:?}");
        Ok(())
    }

    /// Puts and deletes of one row at once, under a condition or not.
    async fn mutate_row(&mut self, place: &[u8], mut change: Change) -> Result<()> {
        for event in &mut change.events {
            if event.kind == Kind::Version && self.draw.one_in(3) {
                (event.kind, event.timestamp) = (Kind::Newest, None);
                continue;
            }
            // The times of puts would be unknown.
            let own = if event.kind == Kind::Put { 7 } else { NOW };
            event.timestamp.get_or_insert(own);
        }
        let mutations: Vec<MutationProto> = change.events.iter().map(|event| mutation(&change.row, event)).collect();
        change.events = in_effect(change.events);
        self.make(place, &change, &mutations).await
    }

    /// Everything in a row up to now, or up to a time.
    async fn delete_row(&mut self) -> Result<()> {
        let mut change = self.draw.delete_of_a_row();
        let place = std::mem::take(&mut change.row);
        change.row = self.present(&place);
        let own = if self.draw.one_in(2) { Some(self.draw.timestamp()) } else { None };
        change.events.iter_mut().for_each(|event| event.timestamp = Some(own.unwrap_or(NOW)));
        let mutation = delete_of_row(&change.row, own);
        self.make(&place, &change, &[mutation]).await
    }

    /// Makes a change by mutations of its row.
    async fn make(&mut self, place: &[u8], change: &Change, mutations: &[MutationProto]) -> Result<()> {
        self.note(format_args!("makes {change:?}"));
        let condition = change.condition.as_ref().map(|condition| condition_of(&change.row, condition));
        let Outcome { answer: processed, was_retried } = if let [mutation] = mutations {
            let encode = |region| {
                let (mutation, condition) = (mutation.clone(), condition.clone());
                proto::MutateRequest { region, mutation, condition, nonce_group: NONCE_GROUP }.encode_to_vec()
            };
            let Outcome { answer, was_retried } =
                self.call::<proto::MutateResponse>(&change.row, "Mutate", encode).await?;
            Outcome { answer: answer.processed, was_retried }
        } else {
            self.mutate_together(change, mutations, condition).await?
        };
        let holds = self.model.decide(change) == Decision::Applied;
        ensure!(processed.unwrap_or(true) == holds, "{change:?}: processed {processed:?}, not {holds}");
        if holds {
            self.model.apply(change, NOW);
        }
        let has_nonce = change.condition.is_some() || change.events.iter().any(|event| event.kind == Kind::Newest);
        match (was_retried, holds) {
            (true, true) if !has_nonce => self.leave(place, std::slice::from_ref(change)),
            // The condition could hold later, and an earlier try come then.
            (true, false) => self.leave(place, &[]),
            _ => {}
        }
        Ok(())
    }

    /// Several mutations of a row, all or none.
    async fn mutate_together(
        &mut self,
        change: &Change,
        mutations: &[MutationProto],
        condition: Option<proto::Condition>,
    ) -> Result<Outcome<Option<bool>>> {
        let action =
            |mutation: &MutationProto| proto::Action { mutation: Some(mutation.clone()), ..Default::default() };
        let actions: Vec<_> = mutations.iter().map(action).collect();
        let encode = |region| {
            let (action, condition) = (actions.clone(), condition.clone());
            let action = proto::RegionAction { region, atomic: Some(true), action, condition };
            let region_action = vec![action];
            proto::MultiRequest { region_action, nonce_group: NONCE_GROUP, condition: None }.encode_to_vec()
        };
        let mut was_retried = false;
        for _ in 0..TRIES_MAX {
            let outcome = self.call::<proto::MultiResponse>(&change.row, "Multi", encode).await?;
            was_retried |= outcome.was_retried;
            let result = outcome.answer.region_action_result.first().context("no result")?;
            let Some(exception) = &result.exception else {
                return Ok(Outcome { answer: outcome.answer.processed, was_retried });
            };
            let is_final = exception.name.contains("DoNotRetry") && !(self.around.passes)(&exception.name);
            ensure!(!is_final, "{change:?} was refused: {exception:?}");
            was_retried |= !is_refusal(&exception.name);
            self.regions_changed().await;
        }
        Err(anyhow!("{change:?} is refused all the time"))
    }

    /// Puts of several rows of one region, each for itself. Those of rows that have moved to another region come back.
    async fn put_many(&mut self) -> Result<()> {
        let group = group_start(self.draw.group());
        for _ in 0..=self.draw.below(3) {
            // Each put of a cell is a change of its own, with the place of its row.
            let mut puts: Vec<(Vec<u8>, Change)> = Vec::new();
            for _ in 0..=self.draw.below(5) {
                let drawn = self.draw.change();
                let place = [&group[..], &drawn.row[GROUP_BYTES..]].concat();
                let put = Change {
                    row: self.present(&place),
                    events: Vec::new(),
                    read_modify_writes: Vec::new(),
                    condition: None,
                    answers: Answers::Nothing,
                    return_found: false,
                };
                for mut event in drawn.events.into_iter().filter(|event| event.kind == Kind::Put) {
                    event.timestamp.get_or_insert(5);
                    puts.push((place.clone(), Change { events: vec![event], ..put.clone() }));
                }
            }
            if puts.is_empty() {
                continue;
            }
            self.note(format_args!("makes a batch of {puts:?}"));
            let actions = (0u32..).zip(&puts).map(|(index, (_, put))| proto::Action {
                index: Some(index),
                mutation: put.events.first().map(|event| mutation(&put.row, event)),
                ..Default::default()
            });
            let outcomes = self.batch(actions.collect()).await?;
            let mut repeated: BTreeMap<Vec<u8>, Vec<Change>> = BTreeMap::new();
            for ((place, put), outcome) in puts.into_iter().zip(outcomes) {
                self.model.apply(&put, NOW);
                if outcome.was_retried {
                    repeated.entry(place).or_default().push(put);
                }
            }
            for (place, puts) in repeated {
                self.leave(&place, &puts);
            }
        }
        Ok(())
    }

    /// The results of a batch of actions, in their order. Each call is about the rows of one region: a group may be split.
    async fn batch(&mut self, actions: Vec<proto::Action>) -> Result<Vec<Outcome<proto::Result>>> {
        let mut results: Vec<Option<proto::Result>> = vec![None; actions.len()];
        let mut were_retried = vec![false; actions.len()];
        let place = |index: Option<u32>| index.and_then(|index| usize::try_from(index).ok()).context("no index");
        for _ in 0..TRIES_MAX {
            let mut left: Vec<(usize, proto::Action)> = Vec::new();
            for action in &actions {
                let at = place(action.index)?;
                if results[at].is_none() {
                    left.push((at, action.clone()));
                }
            }
            let Some(row) = left.first().map(|(_, action)| row_of(action)) else { break };
            // While regions cannot be looked up, the call below waits for them.
            let around = self.client.rows_around(&row).await.ok();
            left.retain(|(_, action)| {
                let of_action = row_of(action);
                let is_near = |(first, after): &(Bytes, Option<Bytes>)| {
                    of_action >= *first && after.as_ref().is_none_or(|after| of_action < *after)
                };
                of_action == row || around.as_ref().is_some_and(is_near)
            });
            let encode = |region| {
                let action = left.iter().map(|(_, action)| action.clone()).collect();
                let action = proto::RegionAction { region, action, ..Default::default() };
                let region_action = vec![action];
                proto::MultiRequest { region_action, nonce_group: NONCE_GROUP, condition: None }.encode_to_vec()
            };
            let outcome = self.call::<proto::MultiResponse>(&row, "Multi", encode).await?;
            let result = outcome.answer.region_action_result.into_iter().next().context("no result")?;
            let all_uncertain = result.exception.as_ref().is_some_and(|exception| !is_refusal(&exception.name));
            left.iter().for_each(|(at, _)| were_retried[*at] |= outcome.was_retried || all_uncertain);
            let mut is_whole = result.exception.is_none();
            for one in result.result_or_exception {
                let at = place(one.index)?;
                match one.exception {
                    None => results[at] = Some(one.result.unwrap_or_default()),
                    Some(exception) => {
                        is_whole = false;
                        were_retried[at] |= !is_refusal(&exception.name);
                    }
                }
            }
            if !is_whole {
                self.regions_changed().await;
            }
        }
        let outcome = |(result, was_retried): (Option<proto::Result>, bool)| {
            Ok(Outcome { answer: result.context("an action of a batch failed")?, was_retried })
        };
        results.into_iter().zip(were_retried).map(outcome).collect()
    }

    /// Judges what a read of a row returned.
    fn judge(&self, row: &[u8], selection: &Selection, found: &[terrane_oracle::model::plain::Seen]) -> Result<()> {
        let possible = self.model.read(row, selection);
        let is_possible = possible.iter().any(|possible| possible == found);
        ensure!(is_possible, "{} reads {found:?}, not {possible:?} ({selection:?})", row.escape_ascii());
        Ok(())
    }

    async fn get(&mut self) -> Result<()> {
        let (row, selection) = (self.row_to_read(), self.selection());
        let get = get_of(&row, &selection);
        let encode = |region| proto::GetRequest { region, get: get.clone() }.encode_to_vec();
        let answer = self.call::<proto::GetResponse>(&row, "Get", encode).await?.answer;
        self.judge(&row, &selection, &seen_in(answer.result))?;
        let exists = proto::Get { existence_only: Some(true), ..get.clone() };
        let encode = |region| proto::GetRequest { region, get: exists.clone() }.encode_to_vec();
        let answer = self.call::<proto::GetResponse>(&row, "Get", encode).await?.answer;
        let there = answer.result.and_then(|result| result.exists);
        let is_possible = self.model.read(&row, &selection).iter().any(|cells| there == Some(!cells.is_empty()));
        ensure!(is_possible, "{} exists: {there:?} ({selection:?})", row.escape_ascii());
        Ok(())
    }

    async fn get_many(&mut self) -> Result<()> {
        let (group, selection) = (group_start(self.draw.group()), self.selection());
        let mut rows: Vec<Vec<u8>> = Vec::new();
        for _ in 0..=self.draw.below(6) {
            rows.push([&group[..], &self.row_to_read()[GROUP_BYTES..]].concat());
        }
        let actions = (0u32..).zip(&rows).map(|(index, row)| proto::Action {
            index: Some(index),
            get: Some(get_of(row, &selection)),
            ..Default::default()
        });
        let found = self.batch(actions.collect()).await?;
        for (row, found) in rows.iter().zip(found) {
            self.judge(row, &selection, &seen_in(Some(found.answer)))?;
        }
        Ok(())
    }

    /// What to read, as far as HBase reads it in the same way.
    fn selection(&mut self) -> Selection {
        let mut selection = self.draw.selection();
        // HBase limits cells by family.
        selection.family_cells = selection.cells.take();
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
}

/// The row that an action is about.
fn row_of(action: &proto::Action) -> Bytes {
    let of_mutation = action.mutation.as_ref().and_then(|mutation| mutation.row.clone());
    action.get.as_ref().map(|get| get.row.clone()).or(of_mutation).unwrap_or_default()
}

/// Events that arrive together, in the order in which they have HBase's outcome: a delete hides what it covers, wherever it stands,
/// and what it takes away pushes nothing out.
fn in_effect(events: Vec<Event>) -> Vec<Event> {
    let (puts, deletes): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event.kind == Kind::Put);
    let (newest, deletes): (Vec<_>, Vec<_>) = deletes.into_iter().partition(|event| event.kind == Kind::Newest);
    let is_of = |put: &Event, delete: &Event| match delete.kind {
        Kind::Family | Kind::FamilyVersion => put.family == delete.family,
        _ => (put.family, put.qualifier) == (delete.family, delete.qualifier),
    };
    let is_single = |delete: &Event| matches!(delete.kind, Kind::Version | Kind::FamilyVersion);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for put in puts {
        let mut own = deletes.iter().filter(|delete| is_of(&put, delete));
        if own.clone().any(|delete| is_single(delete) && delete.timestamp == put.timestamp) {
            continue;
        }
        let covers = |delete: &Event| match is_single(delete) {
            true => delete.timestamp == Some(NOW),
            false => delete.timestamp >= put.timestamp,
        };
        if own.any(covers) { first.push(put) } else { last.push(put) }
    }
    first.into_iter().chain(deletes).chain(last).chain(newest).collect()
}
