//! Traces: the spans that describe the parts of a traced request, and how they leave the process.
//!
//! A span is a value that is made when its part has ended. A [`Tracer`] decides what is traced and hands spans to the
//! [`SpanSink`] of the program that runs the server or the client; without one it only passes the context on, so that a
//! trace is not interrupted by a process that exports nothing.
//!
//! A request that is not traced costs a branch, and at a server that samples a random number.

mod context;

use std::fmt;
use std::sync::Arc;

pub use self::context::{BadTrace, SpanId, TRACE_CONTEXT_BYTES, TraceContext, TraceId};
use crate::{rand, time};

/// On which side of a call a span was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The side that makes the call.
    Client,
    /// The side that answers it.
    Server,
    /// A part of either.
    Internal,
}

/// The value of a span's attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
}

/// A part of a traced request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its trace and its own identity.
    pub context: TraceContext,
    /// The span that it is a part of; `None` for the first one of a trace.
    pub parent: Option<SpanId>,
    /// What it describes.
    pub name: &'static str,
    /// On which side of a call.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end_ns: u64,
    /// Facts about it. Never keys or values of rows.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Takes spans. It is called on the path of requests: it must not wait, and drops what it cannot take.
pub trait SpanSink: Send + Sync {
    /// Takes a span.
    fn take(&self, span: Span);
}

/// What a part of a traced request passes on to the parts inside it. A process without a sink passes on what it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// What the parts inside carry.
    pub context: TraceContext,
    parent: Option<SpanId>,
}

/// What a span says about its part.
#[derive(Debug)]
pub struct Part {
    /// What it describes.
    pub name: &'static str,
    /// On which side of a call.
    pub kind: SpanKind,
    /// When it began, in nanoseconds of the monotonic clock ([`time::now_ns`]).
    pub began_ns: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Facts about it. Never keys or values of rows.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Decides what is traced, and hands spans on. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer {
    recorder: Option<Arc<Recorder>>,
    /// An attribute of all its spans: which of the servers of a process recorded them.
    place: Option<(&'static str, u64)>,
    /// What requests without a trace of their own belong to.
    around: Option<TraceContext>,
}

struct Recorder {
    sink: Box<dyn SpanSink>,
    /// A request without a trace begins one if a random number is below this.
    below: u64,
}

impl Tracer {
    /// A tracer that records into `sink`, and begins a trace for this share of the requests that have none, from 0 to 1.
    pub fn new(sink: impl SpanSink + 'static, share: f64) -> Self {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of all numbers; the cast saturates"
        )]
        let below = (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        Self { recorder: Some(Arc::new(Recorder { sink: Box::new(sink), below })), ..Self::default() }
    }

    /// The same tracer, for requests that all belong to this trace unless they have one of their own.
    #[must_use]
    pub fn inside(&self, around: TraceContext) -> Self {
        Self { around: Some(around), ..self.clone() }
    }

    /// The same tracer, whose spans all have this attribute.
    #[must_use]
    pub fn at(&self, name: &'static str, number: u64) -> Self {
        Self { place: Some((name, number)), ..self.clone() }
    }

    /// Begins a part of a request that came with this context, or a trace of its own if it is sampled.
    pub fn follow(&self, parent: Option<TraceContext>) -> Option<Traced> {
        let parent = parent.or(self.around);
        let Some(recorder) = &self.recorder else {
            return parent.map(|context| Traced { context, parent: None });
        };
        match parent {
            Some(parent) => Some(Traced { context: inside(parent), parent: Some(parent.span) }),
            None if recorder.below == 0 || rand::u64() >= recorder.below => None,
            None => {
                let trace = TraceId::new(u128::from_be_bytes(rand::bytes()))?;
                Some(Traced { context: TraceContext { trace, span: SpanId::new(rand::u64())? }, parent: None })
            }
        }
    }

    /// Records the part that [`Tracer::follow`] began.
    pub fn record(&self, traced: Traced, mut part: Part) {
        let Some(recorder) = &self.recorder else { return };
        part.attributes.extend(self.place.map(|(name, number)| (name, number.into())));
        let start_ns = time::wall_ns().saturating_sub(time::now_ns().saturating_sub(part.began_ns));
        recorder.sink.take(Span {
            context: traced.context,
            parent: traced.parent,
            name: part.name,
            kind: part.kind,
            start_ns,
            end_ns: start_ns.saturating_add(part.took_ns),
            attributes: part.attributes,
            error: part.error,
        });
    }

    /// Records a part inside another one, with a span of its own.
    pub fn record_inside(&self, of: TraceContext, part: Part) {
        if self.recorder.is_some() {
            self.record(Traced { context: inside(of), parent: Some(of.span) }, part);
        }
    }

    /// Whether spans are recorded at all.
    pub fn records(&self) -> bool {
        self.recorder.is_some()
    }
}

/// A new span of the same trace.
fn inside(of: TraceContext) -> TraceContext {
    // One draw in 2^64 is 0, which is no span; its neighbour is as good.
    let span = SpanId::new(rand::u64()).or(SpanId::new(1)).unwrap_or(of.span);
    TraceContext { trace: of.trace, span }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("records", &self.records()).finish()
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Span>>>);

    impl SpanSink for Kept {
        fn take(&self, span: Span) {
            self.0.lock().push(span);
        }
    }

    fn part(name: &'static str, began_ns: u64, took_ns: u64) -> Part {
        Part { name, kind: SpanKind::Internal, began_ns, took_ns, attributes: Vec::new(), error: None }
    }

    fn context() -> TraceContext {
        TraceContext { trace: TraceId::new(7).unwrap(), span: SpanId::new(8).unwrap() }
    }

    #[test]
    fn parts_of_a_request_form_a_tree() {
        let kept = Kept::default();
        let tracer = Tracer::new(kept.clone(), 0.0);
        let outer = tracer.follow(Some(context())).unwrap();
        tracer.record_inside(outer.context, part("inner", 0, 1));
        tracer.record(outer, part("outer", 0, 1));
        let kept = kept.0.lock();
        let [inner, outer] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!((outer.parent, inner.parent), (Some(context().span), Some(outer.context.span)));
        assert!(kept.iter().all(|span| span.context.trace == context().trace));
    }

    #[test]
    fn times_are_those_of_the_wall_clock() {
        let kept = Kept::default();
        let tracer = Tracer::new(kept.clone(), 1.0);
        let (wall_ns, began_ns) = (time::wall_ns(), time::now_ns().saturating_sub(5_000_000_000));
        tracer.record(tracer.follow(None).unwrap(), part("early", began_ns, 1_000));
        let span = kept.0.lock().remove(0);
        assert_eq!(span.end_ns - span.start_ns, 1_000);
        let off_ns = span.start_ns.abs_diff(wall_ns.saturating_sub(5_000_000_000));
        assert!(off_ns < 4_000_000_000, "off by {off_ns} ns");
    }

    #[test]
    fn a_process_without_a_sink_passes_the_context_on() {
        let tracer = Tracer::default();
        assert_eq!(tracer.follow(Some(context())).map(|traced| traced.context), Some(context()));
        assert_eq!(tracer.follow(None), None);
    }

    #[test]
    fn a_share_of_the_requests_without_a_trace_begins_one() {
        let begun = |share: f64| {
            let tracer = Tracer::new(Kept::default(), share);
            (0..1_000).filter(|_| tracer.follow(None).is_some()).count()
        };
        assert_eq!((begun(0.0), begun(1.0)), (0, 1_000));
        let half = begun(0.5);
        assert!((300..700).contains(&half), "{half}");
    }
}
