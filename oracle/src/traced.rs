//! Traces: a span belongs to a trace that a client began, and a traced write that was acknowledged was applied as a part of
//! its trace, because the server that answers has applied it before.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::verdict::Verdict;

/// The traces of a run, with the ids that its spans carry.
#[derive(Debug)]
pub struct Traces<Id> {
    begun: BTreeSet<Id>,
    applied: BTreeSet<Id>,
    /// The first thing that was wrong.
    wrong: Option<String>,
}

impl<Id> Default for Traces<Id> {
    fn default() -> Self {
        Self { begun: BTreeSet::new(), applied: BTreeSet::new(), wrong: None }
    }
}

impl<Id: Copy + Display + Ord> Traces<Id> {
    /// A client begins a trace.
    pub fn begin(&mut self, trace: Id) {
        self.begun.insert(trace);
    }

    /// A server recorded a span of this name, which is a part of another one or not.
    pub fn recorded(&mut self, trace: Id, name: &str, is_part: bool) {
        if !self.begun.contains(&trace) {
            let wrong = || format!("a span `{name}` belongs to trace {trace}, which no client began");
            self.wrong.get_or_insert_with(wrong);
        }
        if !is_part {
            self.wrong.get_or_insert_with(|| format!("a span `{name}` of trace {trace} is a part of nothing"));
        }
        if name == "apply" {
            self.applied.insert(trace);
        }
    }

    /// A write of this trace is acknowledged.
    ///
    /// # Errors
    /// If no server has applied it as a part of the trace.
    pub fn acknowledged(&self, trace: Id) -> Verdict {
        if self.applied.contains(&trace) {
            return Ok(());
        }
        Err(format!("a write of trace {trace} is acknowledged, and no server has recorded that it applied it"))
    }

    /// What was wrong with the spans so far.
    ///
    /// # Errors
    /// The first violation.
    pub fn verdict(&self) -> Verdict {
        self.wrong.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_write_was_applied_in_its_trace() {
        let mut traces = Traces::default();
        traces.begin(7);
        traces.recorded(7, "write", true);
        assert!(traces.acknowledged(7).unwrap_err().contains("no server has recorded"));
        traces.recorded(7, "apply", true);
        assert_eq!((traces.acknowledged(7), traces.verdict()), (Ok(()), Ok(())));
    }

    #[test]
    fn spans_belong_to_what_clients_began() {
        let mut traces = Traces::default();
        traces.recorded(8, "apply", true);
        assert!(traces.verdict().unwrap_err().contains("which no client began"));
        let mut traces = Traces::default();
        traces.begin(8);
        traces.recorded(8, "apply", false);
        assert!(traces.verdict().unwrap_err().contains("a part of nothing"));
    }
}
