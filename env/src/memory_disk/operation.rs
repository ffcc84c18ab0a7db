//! The operations of a disk in memory: their count, their trace, and the crashes and faults planned for them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use super::{Crashed, Fault};

/// How many operations the trace keeps; in a long run, the cause of a failure is near the end.
const TRACE_MAX: usize = 1 << 16;

/// What one operation does to which file, kept for the trace and formatted only there.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) verb: &'static str,
    pub(super) path: Arc<str>,
    pub(super) detail: Detail,
}

#[derive(Clone, Debug)]
pub(super) enum Detail {
    None,
    Bytes { offset: u64, length: usize },
    Length(u64),
    Target(Arc<str>),
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.verb, self.path)?;
        match &self.detail {
            Detail::None => Ok(()),
            Detail::Bytes { offset, length } => write!(out, " {offset}+{length}"),
            Detail::Length(length) => write!(out, " {length}"),
            Detail::Target(path) => write!(out, " -> {path}"),
        }
    }
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is carried out.
    Happens,
    /// The crash strikes while it is in flight: it may or may not be carried out.
    InFlight,
    /// It fails.
    Fails(Fault),
}

/// Counts operations and decides what happens to each.
#[derive(Debug, Default)]
pub(super) struct Operations {
    count: u64,
    crash_at: Option<u64>,
    crashed: bool,
    faults: BTreeMap<u64, Fault>,
    untraced: bool,
    trace: VecDeque<Line>,
}

#[derive(Debug)]
struct Line {
    number: u64,
    operation: Operation,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Done,
    Crashed,
    Planned(Fault),
    Refused(io::ErrorKind),
}

impl Operations {
    /// Without a trace.
    pub(super) fn untraced() -> Operations {
        Operations { untraced: true, ..Operations::default() }
    }

    /// Operations of the same kind, from the start.
    pub(super) fn restarted(&self) -> Operations {
        Operations { untraced: self.untraced, ..Operations::default() }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn crash_at(&mut self, number: u64) {
        self.crash_at = Some(number);
    }

    pub(super) fn fail_at(&mut self, number: u64, fault: Fault) {
        self.faults.insert(number, fault);
    }

    /// What happens to the next operation; an error after the crash.
    pub(super) fn begin(&mut self) -> io::Result<Turn> {
        if self.crashed {
            return Err(Crashed.into());
        }
        let number = self.count;
        self.count += 1;
        if self.crash_at.is_some_and(|at| number >= at) {
            self.crashed = true;
            return Ok(Turn::InFlight);
        }
        Ok(self.faults.remove(&number).map_or(Turn::Happens, Turn::Fails))
    }

    /// Records the operation that began last.
    pub(super) fn end<T>(&mut self, operation: Operation, turn: Turn, result: &io::Result<T>) {
        if self.untraced {
            return;
        }
        let outcome = match (turn, result) {
            (Turn::InFlight, _) => Outcome::Crashed,
            (Turn::Fails(fault), _) => Outcome::Planned(fault),
            (Turn::Happens, Ok(_)) => Outcome::Done,
            (Turn::Happens, Err(error)) => Outcome::Refused(error.kind()),
        };
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(Line { number: self.count - 1, operation, outcome });
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.trace.iter().map(Line::to_string).collect()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.number, self.operation)?;
        match &self.outcome {
            Outcome::Done => Ok(()),
            Outcome::Crashed => write!(out, ": crashed"),
            Outcome::Planned(fault) => write!(out, ": planned {fault:?}"),
            Outcome::Refused(kind) => write!(out, ": {kind}"),
        }
    }
}
