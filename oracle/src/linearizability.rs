//! Per-key linearizability: whether the results of concurrent operations can be explained by executing them one at a time,
//! each at one moment between its call and its return.
//!
//! Linearizability is local, so every key is checked alone. `search` is the search of Wing and Gong with the
//! memoisation of Lowe. `register` says what an operation does to a key: a column with at most one visible version, as
//! Terrane serves it if every timestamp comes from the server.
//!
//! The order of calls and returns is the order in which the history learns of them: exact on the one thread of a
//! simulation, and exact between processes if a call is recorded before it is sent and a return after it was received.
//! Times are only shown.
//!
//! - An update with an unknown outcome may take effect at any moment after its call, or never.
//! - An operation that is known to be refused has no effect and is left out.
//! - The search is bounded. Beyond its bound the verdict is unknown, which is neither a violation nor a proof.

mod register;
mod search;

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::time::Duration;

pub use register::{Cell, Change, Condition, Op, Outcome, Seen};

use search::Search;

use crate::verdict::Violation;

/// Steps after which the search of one key gives up.
pub const STEPS_MAX: u64 = 3_000_000;
/// Operations shown with a violation.
const SHOWN_MAX: usize = 24;

/// The operations of all keys so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    records: Vec<Record>,
    /// Calls and returns so far.
    moments: u64,
}

/// The number of an operation in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an operation that began has to end, or its outcome is unknown"]
pub struct OpId(usize);

/// One operation.
#[derive(Clone, Debug)]
struct Record {
    client: String,
    key: Vec<u8>,
    op: Op,
    outcome: Outcome,
    called: u64,
    /// `u64::MAX` while it is open.
    returned: u64,
    began: Duration,
    ended: Duration,
}

impl History {
    /// A client calls an operation on a key.
    pub fn begin(&mut self, client: &str, key: &[u8], op: Op, now: Duration) -> OpId {
        let called = self.moment();
        let (client, key) = (client.to_owned(), key.to_vec());
        let outcome = Outcome::Unknown;
        self.records.push(Record { client, key, op, outcome, called, returned: u64::MAX, began: now, ended: now });
        OpId(self.records.len() - 1)
    }

    /// The operation returned. With [`Outcome::Unknown`] an update stays open: it may take effect later.
    pub fn end(&mut self, id: OpId, outcome: Outcome, now: Duration) {
        let returned = self.moment();
        let record = &mut self.records[id.0];
        (record.outcome, record.ended) = (outcome, now);
        if record.outcome != Outcome::Unknown {
            record.returned = returned;
        }
    }

    /// The number of operations whose result is known.
    #[must_use]
    pub fn known(&self) -> usize {
        self.records.iter().filter(|record| record.is_known()).count()
    }

    fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Checks every key. Returns one whose search gave up, which is neither a violation nor a proof.
    ///
    /// # Errors
    /// If a key is not linearizable.
    pub fn check(&self) -> Result<Option<Vec<u8>>, Violation> {
        self.check_within(STEPS_MAX)
    }

    /// Checks every key with at most so many steps each.
    fn check_within(&self, steps: u64) -> Result<Option<Vec<u8>>, Violation> {
        let mut by_key: BTreeMap<&[u8], Vec<&Record>> = BTreeMap::new();
        for record in self.records.iter().filter(|record| record.counts()) {
            by_key.entry(&record.key).or_default().push(record);
        }
        let mut unknown = None;
        for (key, records) in by_key {
            match Search::new(&records, steps).run() {
                Some(true) => {}
                Some(false) => return Err(violation(key, &records, steps)),
                None => _ = unknown.get_or_insert_with(|| key.to_vec()),
            }
        }
        Ok(unknown)
    }
}

impl Record {
    fn is_known(&self) -> bool {
        !matches!(self.outcome, Outcome::Unknown | Outcome::Refused)
    }

    /// Whether it says anything: a read without a result does not.
    fn counts(&self) -> bool {
        match self.outcome {
            Outcome::Refused => false,
            Outcome::Unknown => self.op != Op::Read,
            _ => true,
        }
    }

    /// Whether it is known to have changed nothing.
    fn only_looks(&self) -> bool {
        matches!(self.outcome, Outcome::Read(_) | Outcome::NotHeld { .. })
    }

    /// What was known of it at that moment.
    fn until(&self, moment: u64) -> Option<Record> {
        let mut record = self.clone();
        if record.returned > moment {
            (record.outcome, record.returned) = (Outcome::Unknown, u64::MAX);
        }
        (record.called <= moment && record.counts()).then_some(record)
    }
}

/// The violation of a key that has one: its shortest prefix that violates, without the reads that do not matter.
fn violation(key: &[u8], records: &[&Record], steps: u64) -> Violation {
    let mut returns: Vec<u64> = records.iter().map(|record| record.returned).filter(|at| *at < u64::MAX).collect();
    returns.sort_unstable();
    // What violates stays violated, however much follows.
    let first = returns.partition_point(|moment| !is_violated(&prefix(records, *moment), steps));
    let moment = returns.get(first).copied().unwrap_or(u64::MAX);
    let mut kept = prefix(records, moment);
    let mut place = 0;
    while place < kept.len() {
        let mut fewer = kept.clone();
        let taken = fewer.remove(place);
        if taken.only_looks() && is_violated(&fewer, steps) {
            kept = fewer;
        } else {
            place += 1;
        }
    }
    // The operation whose result cannot be explained by what happened until it returned.
    let culprit = kept.iter().find(|record| record.returned == moment).map(ToString::to_string).unwrap_or_default();
    // In the order of their calls, the latest ones.
    let excerpt = kept.iter().skip(kept.len().saturating_sub(SHOWN_MAX)).map(|record| format!("; {record}"));
    let excerpt: String = excerpt.collect();
    Violation::new(key, format!("is not linearizable: no order explains [{culprit}]{excerpt}"))
}

fn prefix(records: &[&Record], moment: u64) -> Vec<Record> {
    records.iter().filter_map(|record| record.until(moment)).collect()
}

fn is_violated(records: &[Record], steps: u64) -> bool {
    let records: Vec<&Record> = records.iter().collect();
    Search::new(&records, steps).run() == Some(false)
}

impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (began, ended) = (self.began.as_secs_f64(), self.ended.as_secs_f64());
        write!(f, "{:.6} {} {} -> {}", began, self.client, self.op, self.outcome)?;
        if self.is_known() { write!(f, " at {ended:.6}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
