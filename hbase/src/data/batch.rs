//! The requests that carry out the actions of a `Multi`.
//!
//! The actions of a batch, of all its regions, are started together, so a batch takes as long as its
//! slowest part and not as long as all of them. As in HBase, reads and writes of one batch have no order among them; writes of
//! a region have theirs, but for puts and deletes of one row that no increment or append stands between: those are made together
//! ([`CombinedMutations`]).

use std::collections::HashMap;

use bytes::Bytes;
use terrane_env::net::Answering;
use terrane_regionserver::edge::{Answer as Answered, GetRequest, Mutation, ReceivedRow, Request, RowRequest};
use terrane_types::limits::{BATCH_BYTES_MAX, BATCH_ROWS_MAX};
use terrane_types::{Error, FamilyName, RegionEpoch, RowOutcome};

use super::condition::{check_same_row, condition};
use super::gets::{Gets, rows_found};
use super::joined::join;
use super::mutation::{Prepared, gives_times, prepare, row_of};
use super::nonces::Nonces;
use super::outcome::{ActionOutcome, RegionResult, row_outcome};
use super::region::Region;
use super::requests::Counted;
use super::{DataCalls, reading};
use crate::cell_block::KeyValue;
use crate::exception::Exception;
use crate::limits::{BATCH_ANSWER_BYTES_MAX, BATCH_REQUESTS_MAX};
use crate::proto;
use crate::proto::mutation_proto::MutationType;
use crate::results::full_answer;
use crate::tables::deletes_by_timestamp;

/// Rows and bytes of one write of a batch: a batch is cut between rows below the limits of the data path.
const WRITE_ROWS_MAX: usize = BATCH_ROWS_MAX / 4;
const WRITE_BYTES_MAX: usize = BATCH_BYTES_MAX / 4;

/// Bytes of writes that a batch has under way.
const ROUND_BYTES_MAX: usize = BATCH_BYTES_MAX;

/// Which actions the answer to a request is about.
enum RequestActions {
    /// A read of rows: the region's place among the results, and the place of each row's action in it.
    Read { region: usize, places: Vec<usize>, exists_only: bool, read: Read },
    /// A write of rows.
    Write { region: usize, rows: Vec<Written> },
    /// A write of one row by all actions. Its result is that of the first one.
    Atomic { region: usize, row: Written },
}

/// The rows of a read. Several are read one by one if they cannot be read together.
enum Read {
    One(Bytes),
    Several(Box<(Region, proto::Get)>, Vec<Bytes>),
}

/// A row of a write.
struct Written {
    /// Its action's place.
    at: usize,
    row: Bytes,
    /// The places of other actions that were made with it.
    also: Vec<usize>,
    /// It may be tried again.
    repeatable: bool,
    /// What to read, if it turns out to have been applied before.
    read_back: Option<Box<ReadBack>>,
}

/// The columns of an increment or append, and where to read them.
struct ReadBack {
    region: Region,
    columns: Vec<(FamilyName, Bytes)>,
}

impl ReadBack {
    /// The read that becomes the answer to the action at this place of this region.
    fn read(self, region: usize, at: usize, row: Bytes) -> (usize, usize, Region, GetRequest) {
        (region, at, self.region, reading::columns(row, self.columns))
    }
}

/// Checks that mutations that are made together are about one row, that of their condition. A row of another region would
/// have the client look for that region again, for as long as it tries.
fn check_one_row(
    condition: Option<&proto::Condition>,
    action: &proto::RegionAction,
    taken: &[Vec<KeyValue<'_>>],
) -> Result<(), Exception> {
    let mut first = None;
    for (one, cells) in action.action.iter().zip(taken) {
        let Some(mutation) = &one.mutation else { continue };
        let row = row_of(mutation, cells)?;
        check_same_row(condition, row)?;
        if *first.get_or_insert(row) != row {
            return Err(Exception::bad_request("an atomic batch changes more than one row"));
        }
    }
    Ok(())
}

impl Written {
    fn of(at: usize, region: &Region, prepared: &mut Prepared) -> Self {
        let columns = std::mem::take(&mut prepared.read_back);
        let read_back = (!columns.is_empty()).then(|| Box::new(ReadBack { region: region.clone(), columns }));
        Self { at, row: prepared.row.row.clone(), also: Vec::new(), repeatable: prepared.repeatable, read_back }
    }
}

/// Requests that are started together.
#[derive(Default)]
struct Round {
    requests: Vec<Request>,
    /// With the epoch that the request's region had.
    about: Vec<(RequestActions, RegionEpoch)>,
    /// Bytes of the writes.
    bytes: usize,
}

/// A batch under way.
pub(super) struct Batch<'a> {
    calls: &'a DataCalls,
    nonces: Nonces,
    round: Round,
    results: Vec<RegionResult>,
    /// Reads of one row for the action at the second place, of the region at the first one: columns of increments and appends
    /// that were applied by an earlier try, and rows that could not be read with others.
    later: Vec<(usize, usize, Region, GetRequest)>,
    /// Bytes of the answers so far.
    answer_bytes: usize,
    /// What they occupy.
    held: Vec<Answering>,
}

/// What a batch came to.
pub(super) struct Done {
    pub results: Vec<RegionResult>,
    /// Bytes of the answers, and what they occupy.
    pub answer_bytes: usize,
    pub held: Vec<Answering>,
}

impl<'a> Batch<'a> {
    pub fn new(calls: &'a DataCalls, nonces: Nonces) -> Self {
        let (round, results) = (Round::default(), Vec::new());
        Self { calls, nonces, round, results, later: Vec::new(), answer_bytes: 0, held: Vec::new() }
    }

    /// Answers all actions of a region with why it is refused.
    pub fn refuse(&mut self, refused: Exception) {
        self.results.push(RegionResult::refused(refused));
    }

    /// Carries out what is left.
    pub async fn finish(mut self) -> Done {
        self.send().await;
        self.read_later().await;
        Done { results: self.results, answer_bytes: self.answer_bytes, held: self.held }
    }
}

impl Batch<'_> {
    /// The answer to a get for which there is no room.
    fn full(&self) -> Exception {
        full_answer(&self.calls.opened)
    }

    /// Adds a request; starts the round and waits for it once it is full.
    async fn add(&mut self, request: Request, about: RequestActions, bytes: usize) {
        self.round.about.push((about, request.header.epoch));
        self.round.requests.push(request);
        self.round.bytes += bytes;
        if self.round.requests.len() >= BATCH_REQUESTS_MAX || self.round.bytes >= ROUND_BYTES_MAX {
            self.send().await;
        }
    }

    /// Carries the round out.
    async fn send(&mut self) {
        let Round { requests, about, .. } = std::mem::take(&mut self.round);
        assert_eq!(requests.len(), about.len(), "answers of a batch would go to the actions of other requests");
        let mut about: Vec<_> = about.into_iter().map(Some).collect();
        let calls = self.calls;
        let take = |at: usize, answer| {
            if let Some((about, epoch)) = about.get_mut(at).and_then(Option::take) {
                self.take(about, epoch, answer);
            }
        };
        calls.requests.carry_out(requests, take).await;
        assert!(about.iter().all(Option::is_none), "a request of a batch ended without an answer to its actions");
    }

    fn take(&mut self, about: RequestActions, epoch: RegionEpoch, (answer, held): Counted) {
        let requests = &self.calls.requests;
        match about {
            RequestActions::Read { region, places, .. }
                if self.answer_bytes > BATCH_ANSWER_BYTES_MAX && held.is_some() =>
            {
                for at in places {
                    let full = self.full();
                    self.results[region].came[at] = Some(Err(full));
                }
            }
            RequestActions::Read { region, places, exists_only, read } => {
                self.held.extend(held);
                let answered = match (answer, read) {
                    (Err(Error::Invalid(_)), Read::Several(of, rows)) => {
                        return self.read_alone(region, &of.0, &of.1, places.into_iter().zip(rows));
                    }
                    (answer, Read::One(row)) => requests.rows(epoch, answer).map(|found| (vec![row], found)),
                    (answer, Read::Several(_, rows)) => requests.rows(epoch, answer).map(|found| (rows, found)),
                };
                let found = answered.and_then(|(rows, answer)| {
                    self.answer_bytes += answer.len();
                    let found = rows_found(&rows, &answer).map_err(|bad| Exception::bad_request(&bad.what))?;
                    assert_eq!(found.len(), places.len(), "a get of a batch would be answered with another one's row");
                    Ok(rows.into_iter().zip(found))
                });
                let came = &mut self.results[region].came;
                match found {
                    Err(refused) => places.iter().for_each(|&at| came[at] = Some(Err(refused.clone()))),
                    Ok(found) => {
                        for (at, (row, cells)) in places.into_iter().zip(found) {
                            came[at] = Some(Ok(match cells {
                                found if exists_only => ActionOutcome::Exists(found.is_some()),
                                Some(packed) => ActionOutcome::Cells { row, packed },
                                None => ActionOutcome::Done,
                            }));
                        }
                    }
                }
            }
            RequestActions::Write { region, rows } => {
                self.held.extend(held);
                self.take_written(region, rows, epoch, answer);
            }
            RequestActions::Atomic { region, row } => {
                self.held.extend(held);
                let outcome = requests.mutated(epoch, answer, row.repeatable);
                let result = &mut self.results[region];
                match outcome.and_then(|mut mutated| row_outcome(&mut mutated, 0, row.repeatable)) {
                    Err(refused) => result.refused = Some(refused),
                    Ok(outcome) => {
                        result.processed = Some(outcome.as_ref().is_none_or(|outcome| !outcome.condition_failed));
                        result.came.iter_mut().for_each(|came| *came = Some(Ok(ActionOutcome::Done)));
                        match (outcome, row.read_back) {
                            (Some(RowOutcome { cells, .. }), _) if !cells.is_empty() => {
                                result.came[0] =
                                    Some(Ok(ActionOutcome::Cells { row: row.row, packed: cells.into_bytes() }));
                            }
                            (None, Some(read_back)) => self.later.push(read_back.read(region, 0, row.row)),
                            _ => {}
                        }
                    }
                }
            }
        }
    }

    /// Takes the answer to a write of rows.
    fn take_written(&mut self, region: usize, rows: Vec<Written>, epoch: RegionEpoch, answer: Result<Answered, Error>) {
        let all_repeatable = rows.iter().all(|row| row.repeatable);
        let came = &mut self.results[region].came;
        let mut mutated = match self.calls.requests.mutated(epoch, answer, all_repeatable) {
            Ok(mutated) => mutated,
            Err(refused) => {
                for at in rows.iter().flat_map(|row| std::iter::once(&row.at).chain(&row.also)) {
                    came[*at] = Some(Err(refused.clone()));
                }
                return;
            }
        };
        for (row, place) in rows.into_iter().zip(0u32..) {
            assert!(came[row.at].is_none(), "an action of a batch is answered twice, so another one's answer is lost");
            let outcome = row_outcome(&mut mutated, place, row.repeatable);
            for at in &row.also {
                came[*at] = Some(outcome.as_ref().map_or_else(|e| Err(e.clone()), |_| Ok(ActionOutcome::Done)));
            }
            match outcome {
                Ok(None) => match row.read_back {
                    Some(read_back) => self.later.push(read_back.read(region, row.at, row.row)),
                    None => came[row.at] = Some(Ok(ActionOutcome::Done)),
                },
                Ok(Some(RowOutcome { cells, .. })) => {
                    came[row.at] = Some(Ok(ActionOutcome::Cells { row: row.row, packed: cells.into_bytes() }));
                }
                Err(refused) => came[row.at] = Some(Err(refused)),
            }
        }
    }

    /// Leaves rows to be read one by one: the others do not share what is wrong with one of them.
    fn read_alone(
        &mut self,
        place: usize,
        region: &Region,
        get: &proto::Get,
        rows: impl Iterator<Item = (usize, Bytes)>,
    ) {
        for (at, row) in rows {
            match reading::get(region, proto::Get { row, ..get.clone() }) {
                Ok(read) => self.later.push((place, at, region.clone(), read)),
                Err(refused) => self.results[place].came[at] = Some(Err(refused)),
            }
        }
    }

    /// Carries out what was left for later.
    async fn read_later(&mut self) {
        for (place, at, region, read) in std::mem::take(&mut self.later) {
            if self.answer_bytes > BATCH_ANSWER_BYTES_MAX {
                self.results[place].came[at] = Some(Err(self.full()));
                continue;
            }
            let one = read.rows.first().cloned().unwrap_or_default();
            let (exists_only, read_one) = (read.exists_only, Read::One(one));
            let about = RequestActions::Read { region: place, places: vec![at], exists_only, read: read_one };
            self.add(region.read(read), about, 0).await;
        }
        self.send().await;
    }

    /// Several mutations of one row, all or none.
    pub async fn atomic(&mut self, region: &Region, action: &proto::RegionAction, taken: &[Vec<KeyValue<'_>>]) {
        let prepared = || {
            let asked = action.condition.as_ref();
            if action.action.is_empty() {
                return Err(Exception::bad_request("an atomic batch has no mutations"));
            }
            check_one_row(asked, action, taken)?;
            let condition = asked.map(|tests| condition(region, tests)).transpose()?;
            let mut rows = Vec::with_capacity(taken.len());
            for (one, cells) in action.action.iter().zip(taken) {
                let mutation = one.mutation.as_ref();
                let mutation = mutation.ok_or_else(|| Exception::bad_request("an atomic batch has only mutations"))?;
                rows.push(prepare(region, mutation, cells, RowRequest::default(), self.nonces)?);
            }
            let mut joined = join(region, rows, condition.unwrap_or_default())?;
            if !joined.repeatable {
                joined.row.operation = self.nonces.of_batch(&action.action);
                joined.repeatable = joined.row.operation != 0;
            }
            Ok(joined)
        };
        let mut prepared = match prepared() {
            Ok(prepared) => prepared,
            Err(refused) => return self.results.push(RegionResult::refused(refused)),
        };
        let at = self.results.len();
        // The Java client leaves the numbers out here, and expects places.
        let indices = action.action.iter().zip(0..).map(|(one, place)| Some(one.index.unwrap_or(place))).collect();
        let came = action.action.iter().map(|_| None).collect();
        self.results.push(RegionResult { indices, came, ..RegionResult::default() });
        let bytes = prepared.row.memory_bytes();
        let row = Written::of(0, region, &mut prepared);
        let mutation = Mutation { rows: vec![prepared.row], ..Mutation::default() };
        self.add(region.write(mutation, prepared.exact), RequestActions::Atomic { region: at, row }, bytes).await;
    }

    /// Actions that succeed or fail each for itself. Mutations keep their order.
    pub async fn independent(&mut self, region: &Region, action: proto::RegionAction, taken: &[Vec<KeyValue<'_>>]) {
        let place = self.results.len();
        let indices = action.action.iter().map(|one| one.index).collect();
        let came = action.action.iter().map(|_| None).collect();
        self.results.push(RegionResult { indices, came, ..RegionResult::default() });
        let mut part = Part::default();
        let mut gets: Option<Gets> = None;
        let mut together = CombinedMutations::of(region, &action.action, taken);
        for ((one, cells), at) in action.action.into_iter().zip(taken).zip(0..) {
            let refused = match (one.mutation, one.get) {
                (Some(mutation), None) => match prepare(region, &mutation, cells, RowRequest::default(), self.nonces) {
                    Ok(prepared) => {
                        let changes = matches!(mutation.mutate_type(), MutationType::Put | MutationType::Delete);
                        match &mut together {
                            Some(together) if changes && together.bytes < WRITE_BYTES_MAX => together.add(at, prepared),
                            Some(together) if !together.rows.is_empty() => {
                                let before = std::mem::take(together);
                                self.add_combined(region, place, &mut part, before).await;
                                // What a delete leaves open is known once it has been made.
                                self.add_part(region, place, std::mem::take(&mut part)).await;
                                match changes {
                                    true => together.add(at, prepared),
                                    false => self.add_row(region, place, &mut part, at, Vec::new(), prepared).await,
                                }
                            }
                            _ => self.add_row(region, place, &mut part, at, Vec::new(), prepared).await,
                        }
                        continue;
                    }
                    Err(refused) => refused,
                },
                (None, Some(mut get)) if self.answer_bytes <= BATCH_ANSWER_BYTES_MAX => {
                    let row = std::mem::take(&mut get.row);
                    if let Some(gets) = gets.as_mut().filter(|gets| gets.takes(region, &row, &get)) {
                        gets.add(at, row);
                        continue;
                    }
                    match Gets::new(region, at, row, get) {
                        Ok(first) => {
                            let before = gets.replace(first);
                            self.add_gets(region, place, before).await;
                            continue;
                        }
                        Err(refused) => refused,
                    }
                }
                (None, Some(_)) => self.full(),
                _ => Exception::bad_request("an action is a mutation or a get here"),
            };
            self.results[place].came[at] = Some(Err(refused));
        }
        if let Some(together) = together {
            self.add_combined(region, place, &mut part, together).await;
        }
        self.add_part(region, place, part).await;
        self.add_gets(region, place, gets).await;
    }

    /// Adds a row to a write, which is started once it is full.
    async fn add_row(
        &mut self,
        region: &Region,
        place: usize,
        part: &mut Part,
        at: usize,
        also: Vec<usize>,
        row: Prepared,
    ) {
        let alone = row.alone;
        if alone {
            self.add_part(region, place, std::mem::take(part)).await;
        }
        part.add(at, also, region, row);
        if alone || part.rows.len() >= WRITE_ROWS_MAX || part.bytes >= WRITE_BYTES_MAX {
            self.add_part(region, place, std::mem::take(part)).await;
        }
    }

    /// Adds rows whose mutations become one each.
    async fn add_combined(&mut self, region: &Region, place: usize, part: &mut Part, together: CombinedMutations) {
        // A row that is judged by what is stored of it is the only one with its key.
        self.add_part(region, place, std::mem::take(part)).await;
        for (ats, mut prepared) in together.rows {
            let one = if prepared.len() == 1 { prepared.pop() } else { None };
            match one.map_or_else(|| join(region, prepared, RowRequest::default()), Ok) {
                Ok(row) => {
                    let at = ats.first().copied().unwrap_or_default();
                    self.add_row(region, place, part, at, ats[1..].to_vec(), row).await;
                }
                Err(refused) => ats.iter().for_each(|&at| self.results[place].came[at] = Some(Err(refused.clone()))),
            }
        }
    }

    async fn add_gets(&mut self, region: &Region, place: usize, gets: Option<Gets>) {
        let Some(Gets { get, read, places }) = gets else { return };
        let rows = read.rows.clone();
        let exists_only = read.exists_only;
        let about = match <[Bytes; 1]>::try_from(rows) {
            Ok([row]) => Read::One(row),
            Err(rows) => Read::Several(Box::new((region.clone(), *get)), rows),
        };
        let about = RequestActions::Read { region: place, places, exists_only, read: about };
        self.add(region.read(read), about, 0).await;
    }

    async fn add_part(&mut self, region: &Region, place: usize, part: Part) {
        if part.rows.is_empty() {
            return;
        }
        let Part { rows, about, exact, bytes } = part;
        let mutation = Mutation { rows, ..Mutation::default() };
        self.add(region.write(mutation, exact), RequestActions::Write { region: place, rows: about }, bytes).await;
    }
}

/// Puts and deletes of a batch that has both, or in which some of them are judged by what is stored: those of one row are made together, as in HBase, where
/// all see the row as it was before, and are judged by their timestamps.
#[derive(Default)]
struct CombinedMutations {
    /// The places of a row's actions, and what they are.
    rows: Vec<(Vec<usize>, Vec<Prepared>)>,
    by_key: HashMap<Bytes, usize>,
    bytes: usize,
}

impl CombinedMutations {
    /// Of a batch with deletes, or with puts that are judged by their timestamps. Of other puts those that come later count, as
    /// they are.
    fn of(region: &Region, actions: &[proto::Action], taken: &[Vec<KeyValue<'_>>]) -> Option<Self> {
        let deletes = |action: &proto::Action| {
            action.mutation.as_ref().is_some_and(|mutation| mutation.mutate_type() == MutationType::Delete)
        };
        let gives_times = |(action, cells): (&proto::Action, &Vec<KeyValue<'_>>)| {
            action.mutation.as_ref().is_some_and(|mutation| gives_times(mutation, cells))
        };
        let judges = || region.schema.families.iter().any(deletes_by_timestamp);
        let counts = actions.iter().any(deletes) || (actions.iter().zip(taken).any(gives_times) && judges());
        (actions.len() > 1 && counts).then(Self::default)
    }

    fn add(&mut self, at: usize, prepared: Prepared) {
        self.bytes += prepared.row.memory_bytes();
        let next = self.rows.len();
        let place = *self.by_key.entry(prepared.row.row.clone()).or_insert(next);
        if place == next {
            self.rows.push((Vec::new(), Vec::new()));
        }
        let (ats, all) = &mut self.rows[place];
        ats.push(at);
        all.push(prepared);
    }
}

/// Rows of one write.
#[derive(Default)]
struct Part {
    rows: Vec<ReceivedRow>,
    about: Vec<Written>,
    exact: bool,
    bytes: usize,
}

impl Part {
    fn add(&mut self, at: usize, also: Vec<usize>, region: &Region, mut prepared: Prepared) {
        self.bytes += prepared.row.memory_bytes();
        self.exact |= prepared.exact;
        self.about.push(Written { also, ..Written::of(at, region, &mut prepared) });
        self.rows.push(prepared.row);
    }
}
