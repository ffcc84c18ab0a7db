//! What a program may see of its client's calls: a hook for metrics, spans for traces, and the count of calls under way that
//! a graceful close waits for.
//!
//! A client without a hook pays for two atomic additions a call; a span that nobody listens to costs a check of a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use terrane_types::TableName;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::Error;
use crate::route::target::Target;

/// Told about every call of a client; given to [`crate::ClientBuilder::metrics`].
///
/// Its methods run on the callers' tasks and hold them up: count, and return. They are called once each per call, `started`
/// first. A call over many rows is one call, however many requests it takes.
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
    /// A call begins.
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
    /// Mutates many rows, each by itself.
    WriteMany,
    /// Mutates several rows as one.
    WriteAtomic,
    /// Reads one row.
    Read,
    /// Reads many rows.
    ReadMany,
    /// Takes one block of a scan: a scan is as many calls as it takes blocks.
    Scan,
    /// Makes or opens a page token.
    Page,
}

impl CallKind {
    /// A name for labels: `write`, `write_many`, `write_atomic`, `read`, `read_many`, `scan`, `page`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteMany => "write_many",
            Self::WriteAtomic => "write_atomic",
            Self::Read => "read",
            Self::ReadMany => "read_many",
            Self::Scan => "scan",
            Self::Page => "page",
        }
    }
}

/// A call that begins.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct CallStarted<'a> {
    /// What it does.
    pub kind: CallKind,
    /// The table it is made on.
    pub table: &'a TableName,
    /// The rows it writes or asks for.
    pub rows: usize,
}

/// A call that has ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct CallFinished<'a> {
    /// What it did.
    pub kind: CallKind,
    /// The table it was made on.
    pub table: &'a TableName,
    /// The rows it wrote or asked for.
    pub rows: usize,
    /// From its beginning to its end, waits and retries included.
    pub latency: Duration,
    /// Tries that failed on the way.
    pub retries: u32,
    /// How it ended.
    pub outcome: CallOutcome<'a>,
}

/// How a call ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub enum CallOutcome<'a> {
    /// It did what it was asked. Of calls over many rows: it ended; rows have outcomes of their own.
    Done,
    /// It failed.
    Failed(&'a Error),
    /// Its future was dropped before it ended.
    Dropped,
}

/// Counts the calls of one client and tells its hook.
pub(crate) struct Observer {
    hook: Option<Arc<dyn Metrics>>,
    under_way: AtomicU64,
    closing: AtomicBool,
    /// Told when the last call under way ends.
    idle: Notify,
}

impl Observer {
    pub(crate) fn new(hook: Option<Arc<dyn Metrics>>) -> Self {
        Self { hook, under_way: AtomicU64::new(0), closing: AtomicBool::new(false), idle: Notify::new() }
    }

    /// Lets a call begin, unless the client was closed.
    pub(crate) fn begin(&self, kind: CallKind, target: &Target, rows: usize) -> Result<UnderWay<'_>, Error> {
        // Counted first: a close that does not see the count has set the flag before, and is seen here.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let told = self.hook.as_ref().map(|_| Told { kind, table: target.schema().name.clone(), rows, retries: 0 });
        let mut call = UnderWay { observer: self, told: None, started: None };
        if self.closing.load(Ordering::SeqCst) {
            return Err(Error::Closed { what: "the client".to_owned() });
        }
        if let (Some(hook), Some(told)) = (&self.hook, told) {
            hook.started(&CallStarted { kind, table: &told.table, rows });
            call.started = Some(Instant::now());
            call.told = Some(told);
        }
        Ok(call)
    }

    /// Refuses new calls and waits for those under way.
    pub(crate) async fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            // Enabled before looking: an end in between is noticed.
            idle.as_mut().enable();
            if self.under_way.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// A call from its beginning to its end; dropped without [`UnderWay::end`] it counts as dropped by its caller.
pub(crate) struct UnderWay<'a> {
    observer: &'a Observer,
    told: Option<Told>,
    started: Option<Instant>,
}

struct Told {
    kind: CallKind,
    table: TableName,
    rows: usize,
    retries: u32,
}

impl UnderWay<'_> {
    pub(crate) fn end<T>(mut self, result: &Result<T, Error>, retries: u32) {
        if let Some(told) = &mut self.told {
            told.retries = retries;
        }
        self.tell(match result {
            Ok(_) => CallOutcome::Done,
            Err(error) => CallOutcome::Failed(error),
        });
    }

    fn tell(&mut self, outcome: CallOutcome<'_>) {
        let (Some(hook), Some(told)) = (&self.observer.hook, self.told.take()) else { return };
        let latency = self.started.map(|started| started.elapsed()).unwrap_or_default();
        let Told { kind, table, rows, retries } = told;
        hook.finished(&CallFinished { kind, table: &table, rows, latency, retries, outcome });
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.tell(CallOutcome::Dropped);
        let last = self.observer.under_way.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.observer.closing.load(Ordering::SeqCst) {
            self.observer.idle.notify_waiters();
        }
    }
}
