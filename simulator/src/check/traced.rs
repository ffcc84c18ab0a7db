//! Traces: a span belongs to a trace that a client began, and a traced write that was acknowledged was applied as a part of
//! its trace, because the server that answers has applied it before.

use std::collections::BTreeSet;

use terrane_env::trace::{Span, TraceId};

/// The traces of a run.
#[derive(Debug, Default)]
pub struct Traces {
    begun: BTreeSet<TraceId>,
    applied: BTreeSet<TraceId>,
    /// The first thing that was wrong.
    wrong: Option<String>,
}

/// `Ok`, or a sentence that describes the violation.
pub type Verdict = Result<(), String>;

impl Traces {
    /// A client begins a trace.
    pub fn begin(&mut self, trace: TraceId) {
        self.begun.insert(trace);
    }

    /// A server recorded a span.
    pub fn recorded(&mut self, span: &Span) {
        let trace = span.context.trace;
        if !self.begun.contains(&trace) {
            self.wrong.get_or_insert_with(|| {
                format!("a span `{}` belongs to trace {trace}, which no client began", span.name)
            });
        }
        if span.parent.is_none() {
            self.wrong.get_or_insert_with(|| format!("a span `{}` of trace {trace} is a part of nothing", span.name));
        }
        if span.name == "apply" {
            self.applied.insert(trace);
        }
    }

    /// A write of this trace is acknowledged.
    ///
    /// # Errors
    /// If no server has applied it as a part of the trace.
    pub fn acknowledged(&self, trace: TraceId) -> Verdict {
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
    use terrane_env::trace::{SpanId, SpanKind, TraceContext};

    use super::*;

    fn span(trace: u128, name: &'static str, parent: Option<u64>) -> Span {
        let id = |id: u64| SpanId::new(id).unwrap();
        Span {
            context: TraceContext { trace: TraceId::new(trace).unwrap(), span: id(9) },
            parent: parent.map(id),
            name,
            kind: SpanKind::Internal,
            start_ns: 1,
            end_ns: 2,
            attributes: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn an_acknowledged_write_was_applied_in_its_trace() {
        let mut traces = Traces::default();
        let trace = TraceId::new(7).unwrap();
        traces.begin(trace);
        traces.recorded(&span(7, "write", Some(1)));
        assert!(traces.acknowledged(trace).unwrap_err().contains("no server has recorded"));
        traces.recorded(&span(7, "apply", Some(1)));
        assert_eq!((traces.acknowledged(trace), traces.verdict()), (Ok(()), Ok(())));
    }

    #[test]
    fn spans_belong_to_what_clients_began() {
        let mut traces = Traces::default();
        traces.recorded(&span(8, "apply", Some(1)));
        assert!(traces.verdict().unwrap_err().contains("which no client began"));
        let mut traces = Traces::default();
        traces.begin(TraceId::new(8).unwrap());
        traces.recorded(&span(8, "apply", None));
        assert!(traces.verdict().unwrap_err().contains("a part of nothing"));
    }
}
