//! What clients may see: acknowledged writes stay, counters count each addition once, registers are linearizable.
//!
//! Plain values without I/O, locks and clocks: they are told of calls and outcomes in their order, and judge results, never
//! durations, so a slow machine changes no verdict.
//!
//! - [`Check`] judges the events of a whole history, which `chaos` records. [`Ledger`] judges millions of calls to rows with one
//!   writer each as they come, for `history`, and keeps no events. Both take what a counter may show from `counters`.
//! - An acknowledged write is visible to each read that is called after the acknowledgement; what one read showed, later
//!   reads show too. A write that certainly failed is never visible; one with an unknown outcome may be.
//! - At the end everything acknowledged must have been read after its acknowledgement, or the history proves nothing.

mod counters;
mod event;
mod ledger;
mod registers;
mod rows;

use std::collections::HashMap;

use serde::Serialize;

use self::counters::Counters;
pub use self::event::{Action, Answer, Event, What};
pub use self::ledger::{Content, Ledger};
use self::registers::Registers;
use self::rows::Rows;

/// Findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 50;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub violations: u64,
    /// The first of them, as text.
    pub findings: Vec<String>,
    /// Registers whose search gave up: neither a violation nor a proof.
    pub undecided: Vec<String>,
    pub totals: Totals,
}

/// Operations by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub rows: u64,
    pub additions: u64,
    pub register_writes: u64,
    pub reads: u64,
    pub scans: u64,
    pub failed: u64,
    pub unknown: u64,
}

/// The violations so far.
#[derive(Debug, Default)]
pub struct Findings {
    pub violations: u64,
    /// The first of them, as text.
    pub first: Vec<String>,
}

impl Findings {
    pub fn add(&mut self, finding: impl FnOnce() -> String) {
        self.violations += 1;
        if self.first.len() < FINDINGS_MAX {
            self.first.push(finding());
        }
    }
}

/// A check of events as they come.
#[derive(Default)]
pub struct Check {
    /// Events so far; the time that order is judged by.
    moment: u64,
    open: HashMap<u64, Open>,
    rows: Rows,
    counters: Counters,
    registers: Registers,
    findings: Findings,
    totals: Totals,
}

/// An operation without a return so far.
struct Open {
    called: u64,
    action: Action,
}

impl Check {
    /// The next event.
    pub fn event(&mut self, event: Event) {
        self.moment += 1;
        match event.what {
            What::Call(action) => self.call(event.op, action, event.ms),
            What::Return(answer) => self.end(event.op, answer, event.ms),
        }
    }

    fn call(&mut self, op: u64, action: Action, ms: u64) {
        match &action {
            Action::Put { row, value } => self.rows.call(row, value, &mut self.findings),
            Action::Add { counter, by } => self.counters.call_add(op, counter, *by),
            Action::Count { counter } => self.counters.call_count(op, counter),
            Action::Read { .. } | Action::Write { .. } | Action::Swap { .. } => self.registers.call(op, &action, ms),
            Action::Get { .. } | Action::Scan { .. } => {}
        }
        self.open.insert(op, Open { called: self.moment, action });
    }

    fn end(&mut self, op: u64, answer: Answer, ms: u64) {
        let Some(Open { called, action }) = self.open.remove(&op) else {
            self.findings.add(|| format!("operation {op} returns without a call"));
            return;
        };
        self.count(&action, &answer);
        let (moment, findings) = (self.moment, &mut self.findings);
        match &action {
            Action::Put { row, .. } => self.rows.end(row, &answer, moment, findings),
            Action::Get { row } => self.rows.end_get(row, &answer, (called, moment), findings),
            Action::Scan { start, stop } => self.rows.end_scan((start, stop), &answer, (called, moment), findings),
            Action::Add { counter, .. } | Action::Count { counter } => {
                self.counters.end(op, counter, &answer, (called, moment), findings);
            }
            Action::Read { register } | Action::Write { register, .. } | Action::Swap { register, .. } => {
                self.registers.end(op, register, &answer, (called, moment), ms);
            }
        }
    }

    fn count(&mut self, action: &Action, answer: &Answer) {
        let totals = &mut self.totals;
        let counted = match (answer, action) {
            (Answer::Failed(_), _) => &mut totals.failed,
            (Answer::Unknown(_), _) => &mut totals.unknown,
            (_, Action::Put { .. }) => &mut totals.rows,
            (_, Action::Add { .. }) => &mut totals.additions,
            (_, Action::Write { .. } | Action::Swap { .. }) => &mut totals.register_writes,
            (_, Action::Scan { .. }) => &mut totals.scans,
            (_, Action::Get { .. } | Action::Count { .. } | Action::Read { .. }) => &mut totals.reads,
        };
        *counted += 1;
    }

    /// The totals so far, as text.
    pub fn progress(&self) -> String {
        let Totals { rows, additions, register_writes, reads, scans, failed, unknown } = self.totals;
        let violations = self.findings.violations;
        format!(
            "{rows} rows, {additions} additions, {register_writes} register writes, {reads} reads, {scans} scans; \
             {failed} failed, {unknown} unknown, {} open, {violations} violations",
            self.open.len()
        )
    }

    /// The history ends here.
    #[must_use]
    pub fn conclude(mut self) -> Verdict {
        self.rows.conclude(&mut self.findings);
        self.counters.conclude(&mut self.findings);
        let undecided = self.registers.conclude(&mut self.findings);
        for (count, what) in [
            (self.totals.rows, "row"),
            (self.totals.additions, "addition"),
            (self.totals.register_writes, "write of a register"),
        ] {
            if count == 0 {
                self.findings.add(|| format!("no {what} was acknowledged"));
            }
        }
        Verdict { violations: self.findings.violations, findings: self.findings.first, undecided, totals: self.totals }
    }
}

#[cfg(test)]
mod tests;
