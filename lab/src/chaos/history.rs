//! The history of a run: an append-only file of events, and its check while it is written.
//!
//! One lock covers the line and the check, so both see events in one order. The file suffices to repeat the check.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use parking_lot::Mutex;
use terrane_oracle::check::{Action, Answer, Check, Conclusion, Event, What};
use tokio::time::Instant;

/// A history that grows.
pub struct History {
    began: Instant,
    state: Mutex<State>,
}

struct State {
    file: BufWriter<File>,
    check: Check,
    operations: u64,
    /// The first error of the file.
    error: Option<std::io::Error>,
}

impl History {
    /// A new file; it must not exist.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create_new(path).with_context(|| format!("creating {}", path.display()))?;
        let file = BufWriter::new(file);
        let state = State { file, check: Check::default(), operations: 0, error: None };
        Ok(Self { began: Instant::now(), state: Mutex::new(state) })
    }

    /// Records a call, before its request is sent.
    pub fn call(&self, action: Action) -> u64 {
        let mut state = self.state.lock();
        state.operations += 1;
        let op = state.operations;
        state.record(Event { ms: self.ms(), op, what: What::Call(action) });
        op
    }

    /// Records how a call ended, after its answer was received.
    pub fn end(&self, op: u64, answer: Answer) {
        self.state.lock().record(Event { ms: self.ms(), op, what: What::Return(answer) });
    }

    /// Calls so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// What was counted so far, as text.
    pub fn progress(&self) -> String {
        self.state.lock().check.progress()
    }

    /// Writes what is buffered and concludes the check.
    pub fn conclude(self) -> anyhow::Result<Conclusion> {
        let mut state = self.state.into_inner();
        state.error.map_or(Ok(()), Err).context("writing the history")?;
        state.file.flush().context("writing the history")?;
        Ok(state.check.conclude())
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl State {
    fn record(&mut self, event: Event) {
        let written = serde_json::to_writer(&mut self.file, &event).map_err(std::io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
        self.check.event(event);
    }
}

/// Checks the history in a file once more.
pub fn check_file(path: &Path) -> anyhow::Result<Conclusion> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut check = Check::default();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.context("reading the history")?;
        let event = serde_json::from_str(&line).with_context(|| format!("line {}", number + 1))?;
        check.event(event);
    }
    Ok(check.conclude())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_line() {
        let actions = [
            Action::Put { row: "a".to_owned(), value: "b*1".to_owned() },
            Action::Scan { start: String::new(), stop: "f".to_owned() },
            Action::Add { counter: "c".to_owned(), by: 3 },
        ];
        let answers = [
            Answer::Written,
            Answer::Found(None),
            Answer::Rows(vec![("a".to_owned(), "b*1".to_owned())]),
            Answer::Number(-1),
            Answer::Unknown("lost".to_owned()),
        ];
        for what in actions.map(What::Call).into_iter().chain(answers.map(What::Return)) {
            let event = Event { ms: 5, op: 7, what };
            let line = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
        }
    }
}
