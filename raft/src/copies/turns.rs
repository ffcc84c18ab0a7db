//! How many copies a process receives at once, and which.
//!
//! The sender of a copy may vanish at any moment, and its group may never need the rest: a new leader that still has the
//! entries sends those. So a turn is not held until the copy ends, but only as long as parts of it arrive: one that was not
//! used for [`IDLE_MAX`] goes to the next copy that needs one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A turn that was not used for so long is given to another copy. A sender that is there sends a part in much less, and one that
/// comes back continues with what has arrived.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The turns of a process.
pub(crate) struct Turns {
    state: Mutex<State>,
    most: usize,
}

#[derive(Default)]
struct State {
    next: u64,
    /// When each turn was last used; `None`: its copy has arrived and is being installed.
    used: BTreeMap<u64, Option<Instant>>,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Arc<Turns> {
        Arc::new(Turns { state: Mutex::default(), most })
    }

    /// A turn, if one is free or idle.
    pub(super) fn take(self: &Arc<Turns>, now: Instant) -> Option<Turn> {
        let mut state = self.state.lock();
        if state.used.len() >= self.most {
            state.used.retain(|_, used| used.is_none_or(|used| now.duration_since(used) <= IDLE_MAX));
        }
        if state.used.len() >= self.most {
            return None;
        }
        let number = state.next;
        state.next += 1;
        state.used.insert(number, Some(now));
        Some(Turn { turns: self.clone(), number })
    }
}

/// One copy's turn.
pub(super) struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

impl Turn {
    /// Notes that something has arrived; false: another copy has the turn.
    pub(super) fn keep(&self, now: Instant) -> bool {
        self.set(Some(now))
    }

    /// Holds the turn until it is dropped; false: another copy has it.
    pub(super) fn hold(&self) -> bool {
        self.set(None)
    }

    fn set(&self, used: Option<Instant>) -> bool {
        match self.turns.state.lock().used.get_mut(&self.number) {
            Some(before) => {
                *before = used;
                true
            }
            None => false,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.state.lock().used.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    /// `take NAME at=MS`, `keep NAME at=MS`, `hold NAME at=MS`, `drop NAME at=MS`: what a copy does with its turn, of two.
    fn start() -> impl FnMut(&str, &mut String) {
        let (turns, begun) = (Turns::new(2), Instant::now());
        let mut held: BTreeMap<String, Turn> = BTreeMap::new();
        move |line, out| {
            let line = Line::new(line);
            let (name, now): (String, _) = (line.word(0), begun + line.ms("at").expect("at="));
            let outcome = match line.command() {
                "take" => match turns.take(now) {
                    Some(turn) => {
                        held.insert(name.clone(), turn);
                        "has a turn"
                    }
                    None => "waits",
                },
                "keep" if held[&name].keep(now) => "keeps its turn",
                "hold" if held[&name].hold() => "holds its turn",
                "keep" | "hold" => "has lost its turn",
                "drop" => {
                    held.remove(&name);
                    "is over"
                }
                other => panic!("unknown command {other}"),
            };
            writeln!(out, "{name} {outcome}").unwrap();
        }
    }

    #[test]
    fn scripts() {
        check("copies/turns", start);
    }
}
