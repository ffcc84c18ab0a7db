//! Registers: keys that several clients read and write, judged by the search for a linear order.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use terrane_oracle::linearizability::{Condition, History, Judgement, Op, OpId, Outcome};

use super::Findings;
use super::event::{Action, Answer};

/// All registers.
#[derive(Debug, Default)]
pub struct Registers {
    history: History,
    open: HashMap<u64, OpId>,
    /// For each register, when its last write was acknowledged, and when its last successful read was called.
    last: BTreeMap<String, (u64, u64)>,
}

impl Registers {
    pub fn call(&mut self, op: u64, action: &Action, ms: u64) {
        let (register, asked) = match action {
            Action::Read { register } => (register, Op::Read),
            Action::Write { register, value } => (register, Op::put(value.as_bytes())),
            Action::Swap { register, from, value } => {
                (register, Op::put_if(Condition::Equals(from.as_bytes().to_vec()), value.as_bytes()))
            }
            _ => return,
        };
        let client = format!("op {op}");
        let id = self.history.begin(&client, register.as_bytes(), asked, Duration::from_millis(ms));
        self.open.insert(op, id);
    }

    pub fn end(&mut self, op: u64, register: &str, answer: &Answer, (called, moment): (u64, u64), ms: u64) {
        let Some(id) = self.open.remove(&op) else { return };
        let outcome = match answer {
            Answer::Found(value) => Outcome::read(value.as_deref().map(str::as_bytes)),
            Answer::Written => Outcome::applied(),
            Answer::NotHeld => Outcome::NotHeld { found: None },
            Answer::Failed(_) => Outcome::Refused,
            Answer::Unknown(_) | Answer::Rows(_) | Answer::Number(_) => Outcome::Unknown,
        };
        let last = self.last.entry(register.to_owned()).or_default();
        match answer {
            Answer::Found(_) => last.1 = last.1.max(called),
            Answer::Written => last.0 = moment,
            _ => {}
        }
        self.history.end(id, outcome, Duration::from_millis(ms));
    }

    /// Judges all registers; returns those that stay undecided.
    pub fn conclude(&self, findings: &mut Findings) -> Vec<String> {
        for (register, (written, read)) in &self.last {
            if read < written {
                findings.add(|| format!("register {register} is not read after its last write"));
            }
        }
        match self.history.check() {
            Judgement::Linearizable => Vec::new(),
            Judgement::Unknown(register) => vec![String::from_utf8_lossy(&register).into_owned()],
            Judgement::Violated(violation) => {
                findings.add(|| format!("register {violation}"));
                Vec::new()
            }
        }
    }
}
