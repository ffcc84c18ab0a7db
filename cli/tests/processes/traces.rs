//! Traces, in real processes: the spans of one write reach a collector from the command, the leader and every replica.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::harness::{Dev, errors_of, eventually, free_ports, local, text_of};

/// How long spans may take to arrive: exporters send every five seconds.
const ARRIVE_MAX: Duration = Duration::from_secs(30);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// An OpenTelemetry collector that keeps what it gets.
struct Collector {
    endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
    _runtime: tokio::runtime::Runtime,
}

struct Service(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let resources = request.into_inner().resource_spans;
        let spans = resources.into_iter().flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().expect("no test panics with it").extend(spans);
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> Collector {
        let [port] = free_ports();
        let address: SocketAddr = local(port).parse().expect("an address");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let service = TraceServiceServer::new(Service(Arc::clone(&spans)));
        runtime.spawn(tonic::transport::Server::builder().add_service(service).serve(address));
        Collector { endpoint: format!("http://{address}"), spans, _runtime: runtime }
    }

    /// Waits until the spans of a trace are as wanted.
    fn wait_for<T>(&self, trace: &str, wanted: impl Fn(&[Span]) -> Option<T>) -> T {
        eventually(ARRIVE_MAX, "spans", || {
            let spans = self.spans.lock().expect("no test panics with it");
            let of_trace: Vec<Span> = spans.iter().filter(|span| hex(&span.trace_id) == trace).cloned().collect();
            let names = || of_trace.iter().map(|span| span.name.as_str()).collect::<Vec<_>>().join(", ");
            wanted(&of_trace).ok_or_else(|| format!("{} spans of the trace: {}", of_trace.len(), names()))
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<i64> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::IntValue(number) => Some(*number),
        _ => None,
    }
}

/// The spans with this name and parent.
fn parts<'a>(spans: &'a [Span], name: &str, parent: &[u8]) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name && span.parent_span_id == parent).collect()
}

/// The call of the command and its request at the server, which are called differently.
fn call<'a>(spans: &'a [Span], parent: &[u8], client: &str, server: &str) -> Option<(&'a Span, &'a Span)> {
    let call = *parts(spans, client, parent).first()?;
    let request = *parts(spans, server, &call.span_id).first()?;
    assert_eq!((call.kind, request.kind), (SpanKind::Client as i32, SpanKind::Server as i32));
    assert!(call.start_time_unix_nano <= call.end_time_unix_nano);
    Some((call, request))
}

#[test]
fn a_write_is_traced_from_the_command_through_the_log_to_every_replica() {
    let collector = Collector::start();
    let dev = Dev::start_with("memory", &["--otlp-endpoint", &collector.endpoint]);
    dev.client.succeed(&["table", "create", "t", "--family", "f"]);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let traced = |arguments: &[&str]| {
        let flags = ["--traceparent", &parent, "--otlp-endpoint", &collector.endpoint];
        dev.client.succeed(&[arguments, &flags].concat())
    };
    traced(&["put", "t", "row", "f:q", "value"]);
    let parent_id: Vec<u8> =
        (0..8).map(|at| u8::from_str_radix(&PARENT[2 * at..2 * at + 2], 16).expect("hex")).collect();
    collector.wait_for(TRACE, |spans| {
        let (_, request) = call(spans, &parent_id, "write", "write")?;
        let stages = ["queue", "commit"].map(|stage| parts(spans, stage, &request.span_id).len());
        let applied = parts(spans, "apply", &request.span_id);
        let mut servers: Vec<i64> = applied.iter().filter_map(|span| attribute(span, "terrane.server")).collect();
        servers.sort_unstable();
        servers.dedup();
        let indexes: Vec<_> = applied.iter().map(|span| attribute(span, "terrane.log_index")).collect();
        let one_entry = indexes.iter().all(|index| index.is_some() && *index == indexes[0]);
        (stages == [1, 1] && servers.len() == 3 && applied.len() == 3 && one_entry).then_some(())
    });

    assert!(traced(&["get", "t", "row"]).contains("value"));
    collector.wait_for(TRACE, |spans| {
        let (_, request) = call(spans, &parent_id, "read", "get")?;
        (parts(spans, "read", &request.span_id).len() == 1).then_some(())
    });
    traced(&["scan", "t"]);
    collector.wait_for(TRACE, |spans| call(spans, &parent_id, "scan", "scan").map(|_| ()));
}

#[test]
fn a_command_without_a_trace_begins_one_and_says_so() {
    let collector = Collector::start();
    let dev = Dev::start_with("memory", &["--servers", "1", "--otlp-endpoint", &collector.endpoint]);
    dev.client.succeed(&["table", "create", "t", "--family", "f"]);
    let output = dev.client.run(&["put", "t", "row", "f:q", "value", "--otlp-endpoint", &collector.endpoint]);
    let errors = errors_of(&output);
    assert_eq!(text_of(&output, 0), "");
    let trace = errors.lines().find_map(|line| line.strip_prefix("trace ")).unwrap_or_else(|| panic!("{errors}"));
    collector.wait_for(trace, |spans| {
        let command = spans.iter().find(|span| span.name == "command" && span.parent_span_id.is_empty())?;
        call(spans, &command.span_id, "write", "write").map(|_| ())
    });
    // Only what is asked for is traced.
    dev.client.succeed(&["put", "t", "row", "f:q", "value"]);
    let traces = collector.spans.lock().expect("no test panics with it");
    assert!(traces.iter().all(|span| hex(&span.trace_id) == trace));
}

#[test]
fn a_share_of_the_requests_begins_traces_at_the_servers_and_slow_ones_name_theirs() {
    let collector = Collector::start();
    let flags =
        ["--servers", "1", "--otlp-endpoint", &collector.endpoint, "--trace-share", "1", "--slow-request", "0.001ms"];
    let dev = Dev::start_with("memory", &flags);
    dev.client.succeed(&["table", "create", "t", "--family", "f"]);
    dev.client.succeed(&["put", "t", "row", "f:q", "value"]);
    let slow = dev.client.json_lines(&["admin", "slow"]);
    let trace = slow.iter().find(|line| line["operation"] == "write").map(|line| line["trace"].clone());
    let trace = trace.unwrap_or_else(|| panic!("{slow:?}"));
    let trace = trace.as_str().unwrap_or_else(|| panic!("{slow:?}"));
    collector.wait_for(trace, |spans| {
        let request = spans.iter().find(|span| span.name == "write" && span.parent_span_id.is_empty())?;
        (parts(spans, "apply", &request.span_id).len() == 1).then_some(())
    });
}

#[test]
fn without_its_collector_everything_works_and_the_log_says_so() {
    let [port] = free_ports();
    let nowhere = format!("http://{}", local(port));
    let flags = ["--servers", "1", "--otlp-endpoint", &nowhere, "--trace-share", "1"];
    let dev = Dev::start_with("memory", &flags);
    dev.client.succeed(&["table", "create", "t", "--family", "f"]);
    dev.client.succeed(&["put", "t", "row", "f:q", "value"]);
    eventually(ARRIVE_MAX, "a warning", || {
        let log = dev.process.messages();
        if log.contains("spans cannot be exported and are lost") { Ok(()) } else { Err(log) }
    });
    let said = dev.client.fail(&["get", "t", "row", "--otlp-endpoint", "127.0.0.1:4317"], 2);
    assert!(said.contains("http://HOST:PORT"), "{said}");
    let said = dev.client.fail(&["get", "t", "row", "--traceparent", "00-1-2-3"], 2);
    assert!(said.contains("its trace is not 32 lower-case hexadecimal digits"), "{said}");
}
