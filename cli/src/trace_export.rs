//! Exports the spans of traced requests over OTLP, to an OpenTelemetry collector.
//!
//! Spans come from servers and clients as values ([`terrane_env::trace`]). The SDK queues them, at most 2,048, sends them in batches on
//! a thread of its own, and drops what comes while its queue is full. A collector that does not answer costs nothing else; the
//! log says when exports begin to fail and when they work again.
//!
//! A process has one exporter: its servers, or its one command, share it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanExporter as Exporting, SpanProcessor};
use terrane_env::time::now_ns;
use terrane_env::trace::{self, Part, Span, SpanSink, SpanValue, TraceContext, Traced, Tracer};

use crate::args::client::Tracing;
use crate::failure::Failure;

/// How long one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a process that ends waits for its last spans to leave.
const FINISH_TIMEOUT: Duration = Duration::from_secs(3);

/// Names the trace that a command belongs to, if no flag does.
const TRACEPARENT: &str = "TRACEPARENT";

/// The exporter of this process.
static EXPORTER: OnceLock<BatchSpanProcessor> = OnceLock::new();
/// The span around everything that this command does, and when it began.
static COMMAND: OnceLock<(Tracer, Traced, u64)> = OnceLock::new();

/// Starts to export to a collector, as the service `name`. The tracer begins a trace for this share of the requests that have none.
/// Called within the runtime, on which the connection lives.
///
/// # Errors
/// An endpoint that is no address of a collector.
pub fn start(endpoint: &str, name: &'static str, share: f64) -> Result<Tracer, Failure> {
    if EXPORTER.get().is_none() {
        let exporter =
            SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(EXPORT_TIMEOUT).build();
        let exporter = exporter.map_err(|error| {
            Failure::usage(format!("cannot export traces to {endpoint}: {error}"))
                .advise("--otlp-endpoint takes the gRPC address of a collector, such as http://127.0.0.1:4317")
        })?;
        let failing = AtomicBool::new(false);
        let exporter = Watched { exporter, endpoint: endpoint.to_owned(), failing };
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        processor.set_resource(
            &Resource::builder()
                .with_service_name(name)
                .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
                .build(),
        );
        EXPORTER.get_or_init(|| processor);
    }
    Ok(Tracer::new(Sink(InstrumentationScope::builder("terrane").build()), share))
}

/// The tracer of a command: its calls belong to the trace that its flags or its environment name, or to one of its own.
///
/// # Errors
/// As for [`start`].
pub fn of_command(flags: &Tracing) -> Result<Tracer, Failure> {
    // The standard has malformed contexts from outside ignored: the variable may be for another program.
    let inherited = || std::env::var(TRACEPARENT).ok().and_then(|text| TraceContext::from_traceparent(&text).ok())?;
    let around = flags.traceparent.map_or_else(inherited, |given| given.0);
    let share = flags.trace_share.unwrap_or(1.0);
    let tracer = match &flags.otlp_endpoint {
        Some(endpoint) => start(endpoint, "terrane", share)?,
        None => Tracer::default(),
    };
    Ok(match around {
        Some(context) => tracer.inside(context),
        None if tracer.records() && share >= 1.0 => within_one_trace(&tracer),
        None => tracer,
    })
}

/// Makes everything that this command does one trace; returns the tracer of its calls.
fn within_one_trace(tracer: &Tracer) -> Tracer {
    let (_, traced, _) = COMMAND.get_or_init(|| {
        let began = (tracer.clone(), tracer.follow(None), now_ns());
        let traced = began.1.expect("a tracer that begins a trace for every request begins this one");
        eprintln!("trace {}", traced.context.trace);
        (began.0, traced, began.2)
    });
    tracer.inside(traced.context)
}

/// Sends what is queued. Blocks for a few seconds at most.
pub fn finish() {
    if let Some((tracer, traced, began_ns)) = COMMAND.get() {
        let part = Part {
            name: "command",
            kind: trace::SpanKind::Internal,
            began_ns: *began_ns,
            took_ns: now_ns().saturating_sub(*began_ns),
            attributes: Vec::new(),
            error: None,
        };
        tracer.record(*traced, part);
    }
    if let Some(exporter) = EXPORTER.get()
        && let Err(error) = exporter.shutdown_with_timeout(FINISH_TIMEOUT)
    {
        tracing::warn!(%error, "the last spans were not exported");
    }
}

/// Hands spans to the exporter.
struct Sink(InstrumentationScope);

impl SpanSink for Sink {
    fn take(&self, span: Span) {
        if let Some(exporter) = EXPORTER.get() {
            exporter.on_end(converted(span, self.0.clone()));
        }
    }
}

fn converted(span: Span, scope: InstrumentationScope) -> SpanData {
    let time = |ns: u64| -> SystemTime { UNIX_EPOCH + Duration::from_nanos(ns) };
    let value = |value: SpanValue| match value {
        SpanValue::Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
        SpanValue::Text(text) => opentelemetry::Value::from(text),
    };
    let attribute = |(name, given): (&'static str, SpanValue)| KeyValue::new(name, value(given));
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(span.context.trace.get()),
            SpanId::from(span.context.span.get()),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: span.parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.get())),
        parent_span_is_remote: span.kind == trace::SpanKind::Server,
        span_kind: match span.kind {
            trace::SpanKind::Client => SpanKind::Client,
            trace::SpanKind::Server => SpanKind::Server,
            trace::SpanKind::Internal => SpanKind::Internal,
        },
        name: span.name.into(),
        start_time: time(span.start_ns),
        end_time: time(span.end_ns),
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: span.error.map_or(Status::Unset, |error| Status::Error { description: error.into() }),
        instrumentation_scope: scope,
    }
}

/// The exporter, with failures in the log: once when they begin, and once when they end.
#[derive(Debug)]
struct Watched {
    exporter: SpanExporter,
    endpoint: String,
    failing: AtomicBool,
}

impl Exporting for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let done = self.exporter.export(batch).await;
        let failed_before = self.failing.swap(done.is_err(), Ordering::Relaxed);
        match (&done, failed_before) {
            (Err(error), false) => tracing::warn!(
                endpoint = self.endpoint,
                spans,
                %error,
                "spans cannot be exported and are lost; check that the collector runs"
            ),
            (Ok(()), true) => tracing::info!(endpoint = self.endpoint, "spans are exported again"),
            (Ok(()), false) | (Err(_), true) => {}
        }
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use terrane_env::trace::SpanKind as Kind;

    use super::*;

    #[test]
    fn a_span_keeps_everything_it_says() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::from_traceparent(text).expect("a traceparent").expect("sampled");
        let span = Span {
            context,
            parent: Some(context.span),
            name: "write",
            kind: Kind::Server,
            start_ns: 1_000_000_007,
            end_ns: 1_000_000_009,
            attributes: vec![("n", 7.into()), ("t", "text".to_owned().into())],
            error: Some("it failed".to_owned()),
        };
        let data = converted(span, InstrumentationScope::builder("s").build());
        assert_eq!(data.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(data.span_context.span_id().to_string(), "00f067aa0ba902b7");
        assert!(data.span_context.is_sampled() && data.parent_span_is_remote);
        assert_eq!(data.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(data.end_time.duration_since(data.start_time).expect("in order"), Duration::from_nanos(2));
        assert_eq!(data.attributes, [KeyValue::new("n", 7), KeyValue::new("t", "text")]);
        assert_eq!(data.status, Status::error("it failed"));
    }
}
