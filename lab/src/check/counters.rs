//! Counters that only grow: each acknowledged addition counts once, each other one at most once.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Findings;
use super::event::Answer;

/// All counters.
#[derive(Debug, Default)]
pub struct Counters {
    counters: BTreeMap<String, Counter>,
    /// What each open operation adds, and the least that it can show.
    open: HashMap<u64, (i64, i64)>,
}

#[derive(Debug, Default)]
struct Counter {
    bounds: Bounds,
    /// What additions returned: each returns another number.
    returned: HashSet<i64>,
    acknowledged_at: u64,
    /// When the last successful read was called.
    read_at: u64,
}

/// What a counter may show.
#[derive(Debug, Default)]
pub struct Bounds {
    /// The sum of all additions that were called, without those that certainly failed.
    called: i64,
    acknowledged: i64,
    /// The highest number that was shown.
    shown: i64,
}

impl Bounds {
    /// Those of a counter that begins with this number.
    pub const fn from(number: i64) -> Self {
        Self { called: number, acknowledged: number, shown: number }
    }

    /// The least that a read can show that is called now.
    pub fn floor(&self) -> i64 {
        self.acknowledged.max(self.shown)
    }

    pub fn call(&mut self, by: i64) {
        self.called += by;
    }

    pub fn acknowledge(&mut self, by: i64) {
        self.acknowledged += by;
    }

    /// An addition certainly had no effect.
    pub fn fail(&mut self, by: i64) {
        self.called -= by;
    }

    /// Judges what a call shows that could show no less than `floor`.
    pub fn show(&mut self, number: i64, floor: i64) -> Result<(), String> {
        self.shown = self.shown.max(number);
        if number < floor {
            return Err(format!("shows {number}, but is at least {floor}: one is lost"));
        }
        if number > self.called {
            return Err(format!("shows {number}, but is at most {}: one counts twice", self.called));
        }
        Ok(())
    }
}

impl Counters {
    pub fn call_add(&mut self, op: u64, counter: &str, by: i64) {
        let state = self.counters.entry(counter.to_owned()).or_default();
        self.open.insert(op, (by, state.bounds.floor() + by));
        state.bounds.call(by);
    }

    pub fn call_count(&mut self, op: u64, counter: &str) {
        let floor = self.counters.entry(counter.to_owned()).or_default().bounds.floor();
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
            state.bounds.fail(by);
        }
        if let Answer::Number(number) = *answer {
            if let Err(what) = state.bounds.show(number, floor) {
                findings.add(|| format!("counter {counter} {what}"));
            }
            if is_addition && !state.returned.insert(number) {
                findings.add(|| format!("two additions to counter {counter} return {number}"));
            }
        }
        match answer {
            Answer::Number(_) | Answer::Written if is_addition => {
                state.bounds.acknowledge(by);
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
