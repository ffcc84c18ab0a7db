//! What a program can observe of its client's calls: a hook for metrics and spans for traces. Also the number of open calls,
//! which a graceful close waits for.
//!
//! Without a hook a call costs two atomic additions; a span without a subscriber costs the check of a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use terrane_env::time::now_ns;
use terrane_env::trace::{Part, SpanKind, TraceContext, Traced, Tracer};
use terrane_types::{TableId, TableName};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::Error;
use crate::route::target::Target;
use crate::route::trace_scope;

/// A hook that is called for every call of a client; pass it to [`crate::ClientBuilder::metrics`].
///
/// Its methods run on the callers' tasks and delay them: count, and return. Each runs once per call, `started` first. A call
/// over many rows is one call, however many requests it takes.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use terrane_client::{CallFinished, CallOutcome, Metrics};
///
/// #[derive(Default)]
/// struct Failures(AtomicU64);
///
/// impl Metrics for Failures {
///     fn finished(&self, call: &CallFinished<'_>) {
///         if matches!(call.outcome, CallOutcome::Failed(_)) {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Metrics: Send + Sync + 'static {
    /// A call starts.
    fn started(&self, _call: &CallStarted<'_>) {}

    /// A call has ended, or its future was dropped.
    fn finished(&self, call: &CallFinished<'_>);
}

/// What a call does.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// Mutates one row.
    Write,
    /// Mutates many rows independently.
    WriteMany,
    /// Mutates several rows atomically.
    WriteAtomic,
    /// Loads a run of sorted rows as store files.
    BulkLoad,
    /// Reads one row.
    Read,
    /// Reads many rows.
    ReadMany,
    /// Reads one block of a scan: a scan makes as many calls as it reads blocks.
    Scan,
    /// Seals or opens a page token.
    Page,
}

impl CallKind {
    /// The name for metric labels: `write`, `write_many`, `write_atomic`, `bulk_load`, `read`, `read_many`, `scan`, `page`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteMany => "write_many",
            Self::WriteAtomic => "write_atomic",
            Self::BulkLoad => "bulk_load",
            Self::Read => "read",
            Self::ReadMany => "read_many",
            Self::Scan => "scan",
            Self::Page => "page",
        }
    }
}

/// A call that starts.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct CallStarted<'a> {
    /// What it does.
    pub kind: CallKind,
    /// Its table.
    pub table: &'a TableName,
    /// The number of rows it writes or reads.
    pub rows: usize,
}

/// A call that has ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct CallFinished<'a> {
    /// What it did.
    pub kind: CallKind,
    /// Its table.
    pub table: &'a TableName,
    /// The number of rows it wrote or read.
    pub rows: usize,
    /// From start to end, waits and retries included.
    pub latency: Duration,
    /// The number of failed tries.
    pub retries: u32,
    /// How it ended.
    pub outcome: CallOutcome<'a>,
}

/// How a call ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum CallOutcome<'a> {
    /// It succeeded. A call over many rows has ended; each row has its own outcome.
    Done,
    /// It failed.
    Failed(&'a Error),
    /// Its future was dropped before it ended.
    Dropped,
}

/// Counts the open calls of one client, calls its hook, and records the spans of traced calls.
pub(crate) struct Observer {
    hook: Option<Arc<dyn Metrics>>,
    tracer: Tracer,
    open: AtomicU64,
    closing: AtomicBool,
    /// Notified when the last open call ends.
    idle: Notify,
}

impl Observer {
    pub(crate) fn new(hook: Option<Arc<dyn Metrics>>, tracer: Tracer) -> Self {
        Self { hook, tracer, open: AtomicU64::new(0), closing: AtomicBool::new(false), idle: Notify::new() }
    }

    /// Starts a call, unless the client was closed.
    pub(crate) fn begin(&self, kind: CallKind, target: &Target, rows: usize) -> Result<OpenCall<'_>, Error> {
        // Counted before the flag is checked: a close that misses the count has set the flag by then.
        self.open.fetch_add(1, Ordering::SeqCst);
        let reported =
            self.hook.as_ref().map(|_| Reported { kind, table: target.schema().name.clone(), rows, retries: 0 });
        let mut call = OpenCall { observer: self, reported: None, started: None, span: None };
        if self.closing.load(Ordering::SeqCst) {
            return Err(Error::Closed { what: "the client".to_owned() });
        }
        if let (Some(hook), Some(reported)) = (&self.hook, reported) {
            hook.started(&CallStarted { kind, table: &reported.table, rows });
            call.started = Some(Instant::now());
            call.reported = Some(reported);
        }
        if let Some(traced) = self.tracer.follow(trace_scope::current()) {
            call.span = Some(OpenSpan { traced, kind, table: target.table, rows, began_ns: now_ns() });
        }
        Ok(call)
    }

    /// Refuses new calls and waits for the open ones.
    pub(crate) async fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            // Enabled before the check: a call that ends in between is noticed.
            idle.as_mut().enable();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// An open call. Dropped without [`OpenCall::end`], it counts as dropped by its caller.
pub(crate) struct OpenCall<'a> {
    observer: &'a Observer,
    reported: Option<Reported>,
    started: Option<Instant>,
    span: Option<OpenSpan>,
}

/// The span of a traced call.
struct OpenSpan {
    traced: Traced,
    kind: CallKind,
    table: TableId,
    rows: usize,
    began_ns: u64,
}

struct Reported {
    kind: CallKind,
    table: TableName,
    rows: usize,
    retries: u32,
}

impl OpenCall<'_> {
    /// The call's span, if its trace is recorded.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.span.as_ref().map(|span| span.traced.context)
    }

    pub(crate) fn end<T>(mut self, result: &Result<T, Error>, retries: u32) {
        if let Some(reported) = &mut self.reported {
            reported.retries = retries;
        }
        self.record(u64::from(retries), result.as_ref().err().map(ToString::to_string));
        self.report(match result {
            Ok(_) => CallOutcome::Done,
            Err(error) => CallOutcome::Failed(error),
        });
    }

    fn record(&mut self, retries: u64, error: Option<String>) {
        let Some(OpenSpan { traced, kind, table, rows, began_ns }) = self.span.take() else { return };
        let attributes = vec![
            ("db.system.name", "terrane".to_owned().into()),
            ("terrane.table", table.0.into()),
            ("terrane.rows", (rows as u64).into()),
            ("terrane.retries", retries.into()),
        ];
        let took_ns = now_ns().saturating_sub(began_ns);
        let (name, kind) = (kind.name(), SpanKind::Client);
        self.observer.tracer.record(traced, Part { name, kind, began_ns, took_ns, attributes, error });
    }

    fn report(&mut self, outcome: CallOutcome<'_>) {
        let (Some(hook), Some(reported)) = (&self.observer.hook, self.reported.take()) else { return };
        let latency = self.started.map(|started| started.elapsed()).unwrap_or_default();
        let Reported { kind, table, rows, retries } = reported;
        hook.finished(&CallFinished { kind, table: &table, rows, latency, retries, outcome });
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.record(0, Some("its future was dropped before it ended".to_owned()));
        self.report(CallOutcome::Dropped);
        let last = self.observer.open.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.observer.closing.load(Ordering::SeqCst) {
            self.observer.idle.notify_waiters();
        }
    }
}
