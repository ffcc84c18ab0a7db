//! One request with rows of one region that go together: a single row, or an atomic batch.
//!
//! Every row keeps its operation number over all tries, whatever server and region it goes to, so it is applied once. With
//! the number travels the cluster time of the first try ([`FirstTry`]). While no try can have been applied, each try is the
//! first. From the moment one may have been, the number is fixed and the time never rises: a server needs both to tell a
//! retry from a new operation.
//!
//! A server that has dropped its record of a number refuses the request untried. If no earlier try may have been applied, the
//! operation gets a new number; otherwise its outcome is unknown, and the caller gets an uncertain error.

use std::time::Duration;

use tracing::Instrument;

use crate::error::Error;
use crate::route::observe::CallKind;
use crate::route::operation_numbers::Ticket;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Attempt, Missed, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::message::Reply;
use crate::wire::mutate::{self, Mutated, RowWrite};
use crate::write::first_try::FirstTry;
use crate::write::outcome::MutationOutcome;

/// Rows that go to one region in one request and share their fate: one row, or an atomic batch.
pub(crate) struct Unit {
    rows: Vec<RowWrite>,
    atomic: bool,
    ticket: Ticket,
    first_try: FirstTry,
}

impl Unit {
    pub(crate) fn one(router: &Router, row: RowWrite) -> Self {
        Self::new(vec![row], false, router.operations.take(1))
    }

    /// At least one row; all share the table's atomic key prefix.
    pub(crate) fn atomic(router: &Router, rows: Vec<RowWrite>) -> Self {
        let ticket = router.operations.take(rows.len() as u64);
        Self::new(rows, true, ticket)
    }

    fn new(rows: Vec<RowWrite>, atomic: bool, ticket: Ticket) -> Self {
        let mut unit = Self { rows, atomic, ticket, first_try: FirstTry::now(0) };
        unit.number();
        unit
    }

    /// Sends it until it is answered. The outcomes come in the order of the rows.
    pub(crate) async fn send(
        mut self,
        router: &Router,
        target: &Target,
        timeout: Duration,
    ) -> Result<Vec<MutationOutcome>, Error> {
        let kind = if self.atomic { CallKind::WriteAtomic } else { CallKind::Write };
        let call = router.observer.begin(kind, target, self.rows.len())?;
        let mut progress = Progress::new(Risk::WRITE, timeout);
        progress.trace = call.trace();
        let span = tracing::debug_span!("call", kind = kind.name(), table = %target.table);
        let result = router.call(target, &mut self, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result
    }

    fn number(&mut self) {
        let rows = self.rows.len() as u64;
        assert_eq!(self.ticket.count(), rows, "rows would share numbers with other operations, and not be applied");
        for (row, number) in self.rows.iter_mut().zip(self.ticket.first()..) {
            row.operation = number;
        }
    }

    /// The outcomes of all rows. One failed row fails all: there is one row, or they are atomic.
    fn finish(&self, reply: Reply, first: bool) -> Result<Vec<MutationOutcome>, Failure> {
        let mut answer = Mutated::read(reply, self.rows.len(), |at| &self.rows[at])?;
        if let Some((_, failure)) = answer.take_failures().into_iter().next() {
            return Err(failure);
        }
        // An earlier try may be the one that was applied; then this is not its time.
        let stamp = if first { answer.stamp } else { 0 };
        let mut outcomes = vec![MutationOutcome::applied(stamp); self.rows.len()];
        for (at, outcome) in answer.into_outcomes() {
            outcomes[at] = MutationOutcome::of(&self.rows[at].row, outcome?, stamp)?;
        }
        Ok(outcomes)
    }
}

impl Attempt for Unit {
    type Answer = Vec<MutationOutcome>;

    async fn try_once(
        &mut self,
        router: &Router,
        target: &Target,
        progress: &mut Progress,
    ) -> Result<Vec<MutationOutcome>, Box<Missed>> {
        let place = router.place(target, self.position(), &progress.tried).map_err(Missed::nowhere)?;
        let first = !progress.applied_maybe();
        let Self { rows, atomic, ticket, first_try } = self;
        let request = |now_ms| {
            match first {
                true => *first_try = FirstTry::now(now_ms),
                false => first_try.seen_by(now_ms),
            }
            rows.iter_mut().for_each(|row| row.first_try_ms = first_try.cluster_ms);
            mutate::request(rows.iter(), *atomic)
        };
        let answer = router.attempt_write(target, &place, ticket, progress, request).await;
        match answer.and_then(|reply| self.finish(reply, first)) {
            Ok(outcomes) => {
                router.answered(&place);
                Ok(outcomes)
            }
            // Holds for every try, whatever became of earlier ones.
            Err(Failure::Decided(error)) => Err(Missed::finally(error)),
            Err(failure) => {
                if (failure.is_forgotten() && first) || terrane_env::planted!("a retry takes a new number") {
                    self.ticket = self.ticket.another(self.rows.len() as u64);
                    self.number();
                }
                Err(Missed::at(place, failure))
            }
        }
    }

    fn position(&self) -> Position<'_> {
        Position::Row(&self.rows[0].row)
    }

    fn given_up(&self, error: Error, progress: &Progress) -> Error {
        let is_sure = terrane_env::planted!("an unknown outcome is reported as a failure");
        error.of_write(progress.applied_maybe() && !is_sure)
    }
}
