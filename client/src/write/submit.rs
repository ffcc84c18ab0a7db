//! Mutations on their way: one request for rows that go together, or many requests for rows that each go by themselves;
//! sent until they are answered or the time is over.
//!
//! Every row keeps its operation number over all tries, whichever server and region it goes to, so it is applied once.
//! Beside it travels the cluster time of its first try, in the clock of the server it is sent to. As long as no try can have
//! been applied, each try is the first. From the moment one may have been, the number is fixed and the time never rises:
//! only with them can a server tell a retry from a new operation. Clocks of servers differ, and a server judges by its own
//! whether it can have forgotten an operation; so a retry names the earliest of what the first try's moment was by the
//! clocks of all servers it went to.
//!
//! A number that a region has forgotten is refused untried. If no earlier try may have been applied, the operation begins
//! anew under another number; else nobody knows, and its caller is told so.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::Error;
use crate::route::numbers::Ticket;
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::failure::broken_reply;
use crate::write::outcome::MutationOutcome;
use crate::write::scatter;

/// Rows that go to one region in one request and share their fate: one row, or an atomic batch.
pub(crate) struct Unit {
    rows: Vec<v1::RowMutation>,
    atomic: bool,
    ticket: Ticket,
    first_try: FirstTry,
}

/// When an operation was first tried.
#[derive(Clone, Copy, Debug)]
struct FirstTry {
    /// Cluster time, by the clocks of the servers it was sent to: the earliest of them.
    cluster_ms: u64,
    at: Instant,
}

impl FirstTry {
    /// Now, where it is this time by the server's clock.
    fn now(cluster_ms: u64) -> Self {
        Self { cluster_ms, at: Instant::now() }
    }

    /// It is sent again, to a server by whose clock it is this time.
    fn seen_by(&mut self, cluster_ms: u64) {
        let passed = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        // What is left of a millisecond counts as one: rather too early than too late.
        self.cluster_ms = self.cluster_ms.min(cluster_ms.saturating_sub(passed.saturating_add(1)));
    }
}

impl Unit {
    pub(crate) fn one(router: &Router, row: v1::RowMutation) -> Self {
        Self { rows: vec![row], atomic: false, ticket: router.operations.take(1), first_try: FirstTry::now(0) }
    }

    /// At least one row; all share the table's atomic key prefix.
    pub(crate) fn atomic(router: &Router, rows: Vec<v1::RowMutation>) -> Self {
        let ticket = router.operations.take(rows.len() as u64);
        Self { rows, atomic: true, ticket, first_try: FirstTry::now(0) }
    }

    /// Sends it until it is answered; the outcomes come in the order of the rows.
    pub(crate) async fn send(
        mut self,
        router: &Router,
        target: &Target,
        timeout: Duration,
    ) -> Result<Vec<MutationOutcome>, Error> {
        let kind = if self.atomic { CallKind::WriteAtomic } else { CallKind::Write };
        let call = router.observer.begin(kind, target, self.rows.len())?;
        let mut progress = Progress::new(Risk::WRITE, timeout);
        let span = tracing::debug_span!("call", kind = kind.name(), table = %target.table);
        let result = self.run(router, target, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result
    }

    async fn run(
        &mut self,
        router: &Router,
        target: &Target,
        progress: &mut Progress,
    ) -> Result<Vec<MutationOutcome>, Error> {
        self.number();
        loop {
            let row = &self.rows[0].row.clone();
            let place = router.place(target, Position::Row(row), &progress.tried);
            let failure = match &place {
                Ok(place) => {
                    let first = !progress.applied_maybe();
                    let (rows, atomic, first_try) = (&mut self.rows, self.atomic, &mut self.first_try);
                    let body = |now_ms| {
                        match first {
                            true => *first_try = FirstTry::now(now_ms),
                            false => first_try.seen_by(now_ms),
                        }
                        body(rows, atomic, first_try.cluster_ms)
                    };
                    let answer = router.attempt_write(target, place, &self.ticket, progress, body).await;
                    match answer.and_then(|answer| self.finish(answer, first)) {
                        Ok(outcomes) => {
                            router.answered(place);
                            return Ok(outcomes);
                        }
                        // True of every try, so whatever became of earlier ones.
                        Err(Failure::Decided(error)) => return Err(error.into()),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure.clone(),
            };
            if failure.is_forgotten() && !progress.applied_maybe() {
                self.ticket = self.ticket.another(self.rows.len() as u64);
                self.number();
            }
            // Rare, and large: kept apart, so that the future of a call that goes well stays small.
            let recovered =
                Box::pin(router.recover(target, Position::Row(row), place.as_ref().ok(), failure, progress)).await;
            recovered.map_err(|error| error.of_write(progress.applied_maybe()))?;
        }
    }

    fn number(&mut self) {
        for (row, number) in self.rows.iter_mut().zip(self.ticket.first()..) {
            row.operation = number;
        }
    }

    /// An error of any row is an error of all: there is one row, or they are atomic.
    fn finish(&self, answer: reply::Body, first: bool) -> Result<Vec<MutationOutcome>, Failure> {
        let mut answers = Answers::decode(answer, self.rows.len())?;
        if !first {
            // It may be an earlier try that was applied, and then this is not its stamp.
            answers.stamp = 0;
        }
        let failed = answers.take_failures(|index| self.rows.get(index));
        if let Some((_, failure)) = failed.into_iter().next() {
            return Err(failure);
        }
        let mut outcomes = vec![MutationOutcome::applied(answers.stamp); self.rows.len()];
        for (index, result) in answers.take_results() {
            outcomes[index] = MutationOutcome::decode(&self.rows[index].row, result, answers.stamp)?;
        }
        Ok(outcomes)
    }
}

/// The request of a unit that was first tried then.
fn body(rows: &mut [v1::RowMutation], atomic: bool, first_try_ms: u64) -> request::Body {
    rows.iter_mut().for_each(|row| row.first_try_ms = first_try_ms);
    request::Body::Mutate(v1::Mutate { rows: rows.to_vec(), atomic })
}

/// A reply to a mutation, its parts named by rows of the request.
struct Answers {
    rows: usize,
    errors: Vec<v1::RowError>,
    results: Vec<v1::RowResult>,
    stamp: u64,
}

impl Answers {
    fn decode(answer: reply::Body, rows: usize) -> Result<Self, Failure> {
        let reply::Body::Mutate(reply) = answer else {
            return Err(broken_reply("the server answered a mutation with something else"));
        };
        if reply.errors.iter().any(|error| error.row as usize >= rows) {
            return Err(broken_reply("the server answered for a row that it was not sent"));
        }
        Ok(Self { rows, errors: reply.errors, results: reply.results, stamp: reply.stamp })
    }

    /// The rows that failed. One that was applied before and has nothing to tell did not fail.
    fn take_failures<'a>(&mut self, row: impl Fn(usize) -> Option<&'a v1::RowMutation>) -> Vec<(usize, Failure)> {
        let failures = std::mem::take(&mut self.errors).into_iter().filter_map(|error| {
            let index = error.row as usize;
            let failure = terrane_proto::error::from_detail(error.error.unwrap_or_default());
            let done = matches!(failure, terrane_types::Error::AlreadyApplied) && !wants_result(row(index)?);
            let decided = error.decided && matches!(failure, terrane_types::Error::Invalid(_));
            let failure = if decided { Failure::Decided(failure) } else { Failure::Refused(failure) };
            (!done).then_some((index, failure))
        });
        failures.collect()
    }

    /// The rows with something to tell.
    fn take_results(&mut self) -> impl Iterator<Item = (usize, v1::RowResult)> + use<> {
        let rows = self.rows;
        let results = std::mem::take(&mut self.results).into_iter();
        results.map(|result| (result.row as usize, result)).filter(move |(row, _)| *row < rows)
    }
}

/// Whether a row is answered with more than that it was applied.
fn wants_result(row: &v1::RowMutation) -> bool {
    row.condition.is_some() || row.returns != v1::Returns::Nothing as i32
}

/// Many rows, each by itself.
pub(crate) async fn send_many(router: &Router, target: &Target, rows: Vec<v1::RowMutation>, timeout: Duration) -> Sent {
    let count = rows.len();
    let many = Many::new(router, rows);
    let failed = match scatter::run(router, target, &many, timeout).await {
        Ok(failed) => failed,
        Err(refused) => (0..count).map(|index| (index, refused.clone())).collect(),
    };
    let State { stamps, told, applied_maybe, .. } = many.state.into_inner();
    // Not every row was on its way when the call ended, and those that were may have been applied.
    let failed = failed.into_iter().map(|(index, error)| (index, error.of_write(applied_maybe[index])));
    Sent { failed: failed.collect(), stamps, told }
}

/// What became of many rows. Most have nothing to tell, so only what is different is kept by row.
pub(crate) struct Sent {
    failed: BTreeMap<usize, Error>,
    stamps: Vec<u64>,
    told: BTreeMap<usize, MutationOutcome>,
}

impl Sent {
    /// Whether the outcome of a row is that it was not written, or that nobody knows.
    pub(crate) fn has_failed(&self, index: usize) -> bool {
        self.failed.contains_key(&index)
    }

    /// The outcome of a row; to be asked once.
    pub(crate) fn take(&mut self, index: usize) -> Result<MutationOutcome, Error> {
        if let Some(error) = self.failed.remove(&index) {
            return Err(error);
        }
        let applied = || MutationOutcome::applied(self.stamps[index]);
        Ok(self.told.remove(&index).unwrap_or_else(applied))
    }
}

/// The rows of a call that writes many, and how far each has come.
pub(crate) struct Many {
    /// Of all rows. Those that began anew have others, under the same identity.
    ticket: Ticket,
    rows: Vec<v1::RowMutation>,
    state: Mutex<State>,
}

struct State {
    /// When each row was first tried.
    first_try: Vec<FirstTry>,
    /// Whether a try of the row may have been applied.
    applied_maybe: Vec<bool>,
    /// When each row was applied, in cluster time.
    stamps: Vec<u64>,
    /// Outcomes with more to tell.
    told: BTreeMap<usize, MutationOutcome>,
    /// The numbers of rows that began anew.
    anew: BTreeMap<usize, Ticket>,
}

impl Many {
    fn new(router: &Router, mut rows: Vec<v1::RowMutation>) -> Self {
        let ticket = router.operations.take(rows.len() as u64);
        number_in_row_order(&mut rows, ticket.first());
        let state = State {
            first_try: vec![FirstTry::now(0); rows.len()],
            applied_maybe: vec![false; rows.len()],
            stamps: vec![0; rows.len()],
            told: BTreeMap::new(),
            anew: BTreeMap::new(),
        };
        Self { ticket, rows, state: Mutex::new(state) }
    }
}

/// Numbers follow the order of the rows, so that the numbers any region sees are neighbours, which it remembers as one range.
/// Mutations of one row keep their order.
fn number_in_row_order(rows: &mut [v1::RowMutation], first: u64) {
    if rows.is_sorted_by(|one, next| one.row <= next.row) {
        for (row, number) in rows.iter_mut().zip(first..) {
            row.operation = number;
        }
        return;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|one, other| rows[*one].row.cmp(&rows[*other].row));
    for (index, number) in order.into_iter().zip(first..) {
        rows[index].operation = number;
    }
}

/// About how many bytes a mutation has besides its row and its cells.
pub(crate) fn extra_bytes(row: &v1::RowMutation) -> usize {
    let rmw = |rmw: &v1::ReadModifyWrite| {
        let appended = match &rmw.what {
            Some(v1::read_modify_write::What::Append(value)) => value.len(),
            _ => 8,
        };
        rmw.family.len() + rmw.qualifier.len() + appended
    };
    row.read_modify_writes.iter().map(rmw).sum::<usize>()
        + row.condition.as_ref().map_or(0, terrane_proto::mutation::condition_bytes)
}

impl Many {
    /// The numbers of its rows; those of rows that began anew are under the same identity.
    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn row(&self, index: usize) -> &[u8] {
        &self.rows[index].row
    }

    /// About how many bytes a row takes in a request.
    pub(crate) fn bytes(&self, index: usize) -> usize {
        let row = &self.rows[index];
        row.row.len() + row.cells.len() + extra_bytes(row)
    }

    /// The request for some rows, sent at this cluster time.
    pub(crate) fn body(&self, indices: &[usize], now_ms: u64) -> request::Body {
        let mut state = self.state.lock();
        let State { first_try, applied_maybe, anew, .. } = &mut *state;
        let now = FirstTry::now(now_ms);
        let sent = indices.iter().map(|&index| {
            match applied_maybe[index] {
                true => first_try[index].seen_by(now_ms),
                false => first_try[index] = now,
            }
            let mut row = self.rows[index].clone();
            row.first_try_ms = first_try[index].cluster_ms;
            if let Some(ticket) = anew.get(&index) {
                row.operation = ticket.first();
            }
            row
        });
        request::Body::Mutate(v1::Mutate { rows: sent.collect(), atomic: false })
    }

    /// Takes the reply to that request; answers the rows that failed. `Err`: the reply itself is unusable.
    pub(crate) fn finish(&self, indices: &[usize], answer: reply::Body) -> Result<Vec<(usize, Failure)>, Failure> {
        let mut answers = Answers::decode(answer, indices.len())?;
        let refused = answers.take_failures(|at| indices.get(at).map(|index| &self.rows[*index]));
        let mut failed: Vec<_> = refused.into_iter().map(|(at, failure)| (indices[at], failure)).collect();
        let mut state = self.state.lock();
        for &index in indices {
            // It may be an earlier try that was applied, and then this is not its stamp.
            state.stamps[index] = if state.applied_maybe[index] { 0 } else { answers.stamp };
        }
        for (at, result) in answers.take_results() {
            match MutationOutcome::decode(&self.rows[indices[at]].row, result, state.stamps[indices[at]]) {
                Ok(outcome) => drop(state.told.insert(indices[at], outcome)),
                Err(failure) => failed.push((indices[at], failure)),
            }
        }
        Ok(failed)
    }

    /// Whether an earlier try of a row may have been applied.
    pub(crate) fn applied_maybe(&self, index: usize) -> bool {
        self.state.lock().applied_maybe[index]
    }

    /// A try of one row failed.
    pub(crate) fn failed(&self, index: usize, failure: &Failure) {
        let mut state = self.state.lock();
        if failure.is_forgotten() && !state.applied_maybe[index] {
            state.anew.insert(index, self.ticket.another(1));
        }
        match failure {
            // True of every try, so whatever became of earlier ones.
            Failure::Decided(_) => state.applied_maybe[index] = false,
            _ => state.applied_maybe[index] |= failure.is_uncertain(),
        }
    }
}
