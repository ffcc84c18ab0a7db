//! The check of a whole history, which is recorded event by event: rows that are written once, counters, and registers that
//! several clients write.
//!
//! - An acknowledged write is visible to each read that is called after the acknowledgement; what one read showed, later
//!   reads show too. A write that certainly failed is never visible; one with an unknown outcome may be.
//! - At the end everything acknowledged must have been read after its acknowledgement, or the history proves nothing.
//!
//! It judges the order of calls and returns, never durations, so a slow machine changes no verdict.

mod event;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::Serialize;
use terrane_types::KeyRange;

use crate::counter::Counter;
use crate::linearizability::{Condition, History, Op, OpId, Outcome};
use crate::rows::{Asked, Change, Reading, Rows, Scanning};
use crate::verdict::{Fate, Findings};

pub use self::event::{Action, Answer, Event, What};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Conclusion {
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

/// A check of events as they come.
#[derive(Default)]
pub struct Check {
    /// Events so far; the time that order is judged by.
    moment: u64,
    open: HashMap<u64, Open>,
    rows: Rows,
    /// What each row is written with, as its only change.
    values: BTreeMap<String, String>,
    counters: BTreeMap<String, Counter>,
    registers: History,
    /// For each row, counter and register, when its last write was acknowledged and when its last successful read was called.
    last: BTreeMap<String, (u64, u64)>,
    findings: Findings,
    totals: Totals,
}

/// An operation without a return so far.
struct Open {
    called: u64,
    begun: Begun,
}

/// What an operation asked for, and what its checker needs once it returns.
enum Begun {
    Put(String, u64),
    Get(String, Reading),
    Scan(Scanning),
    /// What is added to a counter, and the least that it can return.
    Add(String, u64, u64),
    /// The least that a counter can show.
    Count(String, u64),
    Read(String, OpId),
    Write(String, OpId),
}

impl Check {
    /// The next event.
    pub fn event(&mut self, event: Event) {
        self.moment += 1;
        let Event { ms, op, what } = event;
        match what {
            What::Call(action) => {
                let begun = self.begin(op, action, Duration::from_millis(ms));
                self.open.insert(op, Open { called: self.moment, begun });
            }
            What::Return(answer) => match self.open.remove(&op) {
                Some(open) => {
                    self.count(&open.begun, &answer);
                    self.end(open, answer, Duration::from_millis(ms));
                }
                None => self.findings.add(|| format!("operation {op} returns without a call")),
            },
        }
    }

    fn begin(&mut self, op: u64, action: Action, time: Duration) -> Begun {
        let mut begin =
            |register: &str, asked| self.registers.begin(&format!("op {op}"), register.as_bytes(), asked, time);
        match action {
            Action::Put { row, value } => {
                if self.values.insert(row.clone(), value).is_some() {
                    self.findings.add(|| format!("row {row} is written twice: the test is wrong"));
                }
                let number = self.rows.attempt(row.as_bytes(), Change::Put);
                Begun::Put(row, number)
            }
            Action::Get { row } => {
                let reading = self.rows.begin_read(row.as_bytes());
                Begun::Get(row, reading)
            }
            Action::Scan { start, stop } => {
                let range = KeyRange { start: start.into(), end: stop.into() };
                Begun::Scan(self.rows.begin_scan(Asked::all(range), |_| true))
            }
            Action::Add { counter, by } => {
                let state = self.counters.entry(counter.clone()).or_default();
                state.call(by);
                Begun::Add(counter, by, state.floor() + by)
            }
            Action::Count { counter } => {
                let floor = self.counters.entry(counter.clone()).or_default().floor();
                Begun::Count(counter, floor)
            }
            Action::Read { register } => {
                let id = begin(&register, Op::Read);
                Begun::Read(register, id)
            }
            Action::Write { register, value } => {
                let id = begin(&register, Op::put(value));
                Begun::Write(register, id)
            }
            Action::Swap { register, from, value } => {
                let id = begin(&register, Op::put_if(Condition::Equals(from.into()), value));
                Begun::Write(register, id)
            }
        }
    }

    fn end(&mut self, Open { called, begun }: Open, answer: Answer, time: Duration) {
        let fate = answer.fate();
        match (begun, answer) {
            (Begun::Put(row, number), _) => {
                self.findings.judge("row", self.rows.end(row.as_bytes(), number, fate));
                self.wrote(format!("row {row}"), fate);
            }
            (Begun::Get(row, reading), Answer::Found(found)) => {
                let number = found.map_or(0, |value| self.number(&row, &value));
                self.findings.judge("row", self.rows.end_read(&reading, number));
                self.read(format!("row {row}"), called);
            }
            (Begun::Scan(scanning), Answer::Rows(found)) => self.end_scan(scanning, &found, called),
            (Begun::Add(counter, by, least), answer) => {
                let state = self.counters.entry(counter.clone()).or_default();
                let verdict = state.end(by, fate).and_then(|()| match answer {
                    Answer::Number(number) => state.returned(least, shown(number)),
                    _ => Ok(()),
                });
                self.findings.judge(format_args!("counter {counter}"), verdict);
                self.wrote(format!("counter {counter}"), fate);
            }
            (Begun::Count(counter, least), Answer::Number(number)) => {
                let verdict = self.counters.entry(counter.clone()).or_default().show(least, shown(number));
                self.findings.judge(format_args!("counter {counter}"), verdict);
                self.read(format!("counter {counter}"), called);
            }
            (Begun::Read(register, id), answer) => {
                let is_answered = matches!(answer, Answer::Found(_));
                self.registers.end(id, outcome(answer), time);
                if is_answered {
                    self.read(format!("register {register}"), called);
                }
            }
            (Begun::Write(register, id), answer) => {
                self.registers.end(id, outcome(answer), time);
                self.wrote(format!("register {register}"), fate);
            }
            // A read without an answer says nothing.
            (Begun::Get(..) | Begun::Scan(_) | Begun::Count(..), _) => {}
        }
    }

    fn end_scan(&mut self, mut scanning: Scanning, found: &[(String, String)], called: u64) {
        for (row, value) in found {
            let number = self.number(row, value);
            self.findings.judge("row", self.rows.show(&mut scanning, row.as_bytes(), number));
        }
        self.findings.judge("row", self.rows.end_scan(&scanning, true));
        for row in scanning.rows() {
            self.read(format!("row {}", String::from_utf8_lossy(row)), called);
        }
    }

    /// The number of the change that a row shows, which is its only one.
    fn number(&mut self, row: &str, value: &str) -> u64 {
        match self.values.get(row) {
            Some(written) if written != value => {
                self.findings.add(|| format!("row {row} reads {value}, but {written} was written"));
            }
            _ => {}
        }
        1
    }

    fn wrote(&mut self, thing: String, fate: Fate) {
        if fate == Fate::Applied {
            self.last.entry(thing).or_default().0 = self.moment;
        }
    }

    fn read(&mut self, thing: String, called: u64) {
        let last = &mut self.last.entry(thing).or_default().1;
        *last = called.max(*last);
    }

    fn count(&mut self, begun: &Begun, answer: &Answer) {
        let totals = &mut self.totals;
        let counted = match (answer, begun) {
            (Answer::Failed(_), _) => &mut totals.failed,
            (Answer::Unknown(_), _) => &mut totals.unknown,
            (_, Begun::Put(..)) => &mut totals.rows,
            (_, Begun::Add(..)) => &mut totals.additions,
            (_, Begun::Write(..)) => &mut totals.register_writes,
            (_, Begun::Scan(_)) => &mut totals.scans,
            (_, Begun::Get(..) | Begun::Count(..) | Begun::Read(..)) => &mut totals.reads,
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
    pub fn conclude(self) -> Conclusion {
        let Self { mut findings, totals, .. } = self;
        for (thing, (written, read)) in &self.last {
            if read < written {
                findings.add(|| format!("{thing} is not read after its last write"));
            }
        }
        let searched = self.registers.check();
        let undecided =
            searched.iter().flatten().map(|register| String::from_utf8_lossy(register).into_owned()).collect();
        findings.judge("register", searched.map(drop));
        let kinds =
            [(totals.rows, "row"), (totals.additions, "addition"), (totals.register_writes, "write of a register")];
        for (_, what) in kinds.iter().filter(|(count, _)| *count == 0) {
            findings.add(|| format!("no {what} was acknowledged"));
        }
        Conclusion { violations: findings.violations, findings: findings.first, undecided, totals }
    }
}

/// A negative number becomes one that no counter can show.
fn shown(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Found(value) => Outcome::read(value.as_deref().map(str::as_bytes)),
        Answer::NotHeld => Outcome::NotHeld { found: None },
        answer => answer.fate().into(),
    }
}

#[cfg(test)]
mod tests;
