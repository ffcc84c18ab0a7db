//! The rows of a call that writes many, and how far each has come. `scatter` sends them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::Error;
use crate::route::operation_numbers::{Operations, Ticket};
use crate::wire::failure::Failure;
use crate::wire::message::{Reply, Request};
use crate::wire::mutate::{self, Mutated, RowWrite};
use crate::write::first_try::FirstTry;
use crate::write::outcome::MutationOutcome;

/// The rows of a call that writes many, and how far each has come.
pub(crate) struct Many {
    /// The numbers of all rows. Rows that needed another number have it under the same identity.
    ticket: Ticket,
    rows: Vec<RowWrite>,
    state: Mutex<State>,
}

struct State {
    /// When each row was first tried.
    first_try: Vec<FirstTry>,
    /// Whether a try of the row may have been applied.
    applied_maybe: Vec<bool>,
    /// When each row was applied, in cluster time.
    stamps: Vec<u64>,
    /// The outcomes that say more than that the row was applied.
    outcomes: BTreeMap<usize, MutationOutcome>,
    /// The numbers of rows that needed another one.
    renumbered: BTreeMap<usize, Ticket>,
}

impl Many {
    pub(crate) fn new(operations: &Operations, mut rows: Vec<RowWrite>) -> Self {
        let ticket = operations.take(rows.len() as u64);
        number_in_row_order(&mut rows, ticket.first());
        debug_assert!(rows.iter().all(|row| row.operation != 0), "a row without a number may be applied twice");
        let state = State {
            first_try: vec![FirstTry::now(0); rows.len()],
            applied_maybe: vec![false; rows.len()],
            stamps: vec![0; rows.len()],
            outcomes: BTreeMap::new(),
            renumbered: BTreeMap::new(),
        };
        Self { ticket, rows, state: Mutex::new(state) }
    }

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
        self.rows[index].size_bytes()
    }

    /// The request for some rows, sent at this cluster time.
    pub(crate) fn request(&self, indices: &[usize], now_ms: u64) -> Request {
        let mut state = self.state.lock();
        let State { first_try, applied_maybe, renumbered, .. } = &mut *state;
        let now = FirstTry::now(now_ms);
        let rows: Vec<RowWrite> = indices
            .iter()
            .map(|&index| {
                match applied_maybe[index] {
                    true => first_try[index].seen_by(now_ms),
                    false => first_try[index] = now,
                }
                let mut row = self.rows[index].clone();
                row.first_try_ms = first_try[index].cluster_ms;
                if let Some(ticket) = renumbered.get(&index) {
                    row.operation = ticket.first();
                }
                row
            })
            .collect();
        mutate::request(rows.iter(), false)
    }

    /// Takes the reply to that request; returns the rows that failed. `Err`: the reply itself is unusable.
    pub(crate) fn finish(&self, indices: &[usize], reply: Reply) -> Result<Vec<(usize, Failure)>, Failure> {
        let mut answer = Mutated::read(reply, indices.len(), |at| &self.rows[indices[at]])?;
        let refused = answer.take_failures();
        let mut failed: Vec<_> = refused.into_iter().map(|(at, failure)| (indices[at], failure)).collect();
        let mut state = self.state.lock();
        for &index in indices {
            // An earlier try may be the one that was applied; then this is not its time.
            state.stamps[index] = if state.applied_maybe[index] { 0 } else { answer.stamp };
        }
        for (at, outcome) in answer.into_outcomes() {
            let index = indices[at];
            let stamp = state.stamps[index];
            match outcome.and_then(|outcome| MutationOutcome::of(&self.rows[index].row, outcome, stamp)) {
                Ok(outcome) => drop(state.outcomes.insert(index, outcome)),
                Err(failure) => failed.push((index, failure)),
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
            state.renumbered.insert(index, self.ticket.another(1));
        }
        match failure {
            // Holds for every try, whatever became of earlier ones.
            Failure::Decided(_) => state.applied_maybe[index] = false,
            _ => state.applied_maybe[index] |= failure.is_uncertain(),
        }
    }

    /// The outcomes, when these rows were given up.
    pub(crate) fn into_outcomes(self, given_up: Vec<(usize, Error)>) -> Outcomes {
        let State { stamps, outcomes, applied_maybe, .. } = self.state.into_inner();
        // Some rows may have been on their way when the call ended, and those may have been applied.
        let failed = given_up.into_iter().map(|(index, error)| (index, error.of_write(applied_maybe[index])));
        Outcomes { failed: failed.collect(), stamps, outcomes }
    }
}

/// The outcomes of many rows. Most rows have nothing to say but their time, so only the others are kept by row.
pub(crate) struct Outcomes {
    failed: BTreeMap<usize, Error>,
    stamps: Vec<u64>,
    outcomes: BTreeMap<usize, MutationOutcome>,
}

impl Outcomes {
    /// Whether a row was not written, or its outcome is unknown.
    pub(crate) fn has_failed(&self, index: usize) -> bool {
        self.failed.contains_key(&index)
    }

    /// The outcome of a row. Call it once per row.
    pub(crate) fn take(&mut self, index: usize) -> Result<MutationOutcome, Error> {
        if let Some(error) = self.failed.remove(&index) {
            return Err(error);
        }
        let applied = || MutationOutcome::applied(self.stamps[index]);
        Ok(self.outcomes.remove(&index).unwrap_or_else(applied))
    }
}

/// Numbers follow the order of the rows, so that each region receives consecutive numbers, which it records as one range.
/// Mutations of one row keep their order.
fn number_in_row_order(rows: &mut [RowWrite], first: u64) {
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
