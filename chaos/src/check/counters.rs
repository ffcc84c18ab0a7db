//! Counters that only grow: each acknowledged addition counts once, each other one at most once.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Findings;
use crate::event::Answer;

/// All counters.
#[derive(Debug, Default)]
pub struct Counters {
    counters: BTreeMap<String, Counter>,
    /// What each open operation adds, and the least that it can show.
    open: HashMap<u64, (i64, i64)>,
}

#[derive(Debug, Default)]
struct Counter {
    /// The sum of all additions that were called, without those that certainly failed.
    called: i64,
    acknowledged: i64,
    /// The highest number that was shown.
    shown: i64,
    /// What additions returned: each returns another number.
    returned: HashSet<i64>,
    acknowledged_at: u64,
    /// When the last successful read was called.
    read_at: u64,
}

impl Counter {
    /// The least that a read can show that is called now.
    fn floor(&self) -> i64 {
        self.acknowledged.max(self.shown)
    }
}

impl Counters {
    pub fn call_add(&mut self, op: u64, counter: &str, by: i64) {
        let state = self.counters.entry(counter.to_owned()).or_default();
        self.open.insert(op, (by, state.floor() + by));
        state.called += by;
    }

    pub fn call_count(&mut self, op: u64, counter: &str) {
        let floor = self.counters.entry(counter.to_owned()).or_default().floor();
        self.open.insert(op, (0, floor));
    }

    pub fn end(
        &mut self,
        op: u64,
        counter: &str,
        answer: &Answer,
        (called, moment): (u64, u64),
        findings: &mut Findings,
    ) {
        let (Some(state), Some((by, floor))) = (self.counters.get_mut(counter), self.open.remove(&op)) else { return };
        let is_addition = by != 0;
        if matches!(answer, Answer::Failed(_)) {
            state.called -= by;
        }
        if let Answer::Number(number) = *answer {
            if number < floor {
                findings.add(|| format!("counter {counter} shows {number}, but is at least {floor}: one is lost"));
            }
            if number > state.called {
                let most = state.called;
                findings.add(|| format!("counter {counter} shows {number}, but is at most {most}: one counts twice"));
            }
            if is_addition && !state.returned.insert(number) {
                findings.add(|| format!("two additions to counter {counter} return {number}"));
            }
            state.shown = state.shown.max(number);
        }
        match answer {
            Answer::Number(_) | Answer::Written if is_addition => {
                state.acknowledged += by;
                state.acknowledged_at = moment;
            }
            Answer::Number(_) => state.read_at = state.read_at.max(called),
            _ => {}
        }
    }

    /// Every counter was read at the end.
    pub fn conclude(&self, findings: &mut Findings) {
        for (counter, state) in &self.counters {
            if state.read_at < state.acknowledged_at {
                findings.add(|| format!("counter {counter} is not read after its last addition"));
            }
        }
    }
}
