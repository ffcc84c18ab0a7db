//! The trace of a run: the run's own events and the log lines of the nodes, each with its simulated time and host.
//!
//! Its hash identifies the run: two runs of a seed with one build must have the same. If they differ, compare their traces
//! (`--trace FILE`): before the first difference, some code used time, randomness or I/O from outside of the simulation.
//! With `--wire` the trace also contains every simulated TCP segment with its bytes, which costs a quarter of the run.
//!
//! The last lines are kept in memory, so that a failure comes with those that concern it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{Arguments, Write};
use std::io::Write as _;
use std::time::Duration;

use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use xxhash_rust::xxh3::Xxh3;

use crate::memory;

/// Lines kept in memory, and their bytes.
const KEPT_LINES_MAX: usize = 200_000;
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Lines that concern a failure that are printed, the latest ones.
const SHOWN_MAX: usize = 60;
/// Words of lines that are always shown with a failure.
const ALWAYS: [&str; 6] = ["FAULT ", "CRASH ", "RESTART ", "HEAL ", "FAILURE ", " healed"];

thread_local! {
    /// A simulation runs on one thread, so there is one trace.
    static TRACE: RefCell<Trace> = RefCell::new(Trace::default());
}

#[derive(Default)]
struct Trace {
    hash: Xxh3,
    events: u64,
    file: Option<std::io::BufWriter<std::fs::File>>,
    line: String,
    kept: VecDeque<String>,
    kept_bytes: usize,
    /// The last simulated time inside a host; outside of hosts there is none.
    now: Duration,
    /// The host that runs; empty between hosts.
    host: String,
}

impl Trace {
    fn take(&mut self, write: impl FnOnce(&mut String)) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        self.now = turmoil::sim_elapsed().unwrap_or(self.now);
        write!(line, "{:>9} {:<8} ", self.now.as_micros(), self.host).expect("writing to a string does not fail");
        write(&mut line);
        line.push('\n');
        if let Some(file) = &mut self.file {
            file.write_all(line.as_bytes()).expect("the trace's file can be written");
        }
        self.hash.update(line.as_bytes());
        self.events += 1;
        self.keep(&line);
        self.line = line;
    }

    /// Keeps a line, in the string of the oldest one if there are enough.
    fn keep(&mut self, line: &str) {
        let mut kept = String::new();
        while self.kept.len() >= KEPT_LINES_MAX || self.kept_bytes + line.len() > KEPT_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.kept_bytes -= oldest.len();
            kept = oldest;
        }
        kept.clear();
        kept.push_str(line);
        self.kept_bytes += kept.len();
        self.kept.push_back(kept);
    }
}

/// Starts tracing, to a file if there is one.
///
/// # Panics
/// If the file cannot be created.
pub fn begin(file: Option<&std::path::Path>, wire: bool) {
    let file =
        file.map(|path| std::io::BufWriter::new(std::fs::File::create(path).expect("the trace's file can be created")));
    TRACE.with_borrow_mut(|trace| trace.file = file);
    let layers = Targets::new()
        .with_targets(NODES.map(|node| (node, LevelFilter::DEBUG)))
        .with_target("openraft", LevelFilter::INFO)
        // Segments are events of level TRACE; the span of the running host has level INFO.
        .with_target("turmoil", if wire { LevelFilter::TRACE } else { LevelFilter::INFO });
    tracing_subscriber::registry().with(TraceLayer.with_filter(layers)).init();
}

/// The crates of the nodes, as log targets.
const NODES: [&str; 6] =
    ["terrane_env", "terrane_engine", "terrane_raft", "terrane_regionserver", "terrane_master", "terrane_client"];

/// An event of the run itself.
pub fn note(what: Arguments<'_>) {
    TRACE.with_borrow_mut(|trace| {
        trace.take(|line| line.write_fmt(what).expect("writing to a string does not fail"));
    });
}

/// The simulated time.
#[must_use]
pub fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_else(|| TRACE.with_borrow(|trace| trace.now))
}

/// The hash of all events so far, and their number. Completes the file.
///
/// # Panics
/// If the file cannot be written.
#[must_use]
pub fn end() -> (u64, u64) {
    TRACE.with_borrow_mut(|trace| {
        if let Some(file) = &mut trace.file {
            file.flush().expect("the trace's file can be written");
        }
        (trace.hash.digest(), trace.events)
    })
}

/// The latest lines that contain one of the texts, and all faults; oldest first.
#[must_use]
pub fn concerning(texts: &[String]) -> Vec<String> {
    TRACE.with_borrow(|trace| {
        let concerns = |line: &&String| {
            ALWAYS.iter().any(|word| line.contains(word))
                || texts.iter().any(|text| !text.is_empty() && line.contains(text.as_str()))
        };
        let mut lines: Vec<String> = trace.kept.iter().rev().filter(concerns).take(SHOWN_MAX).cloned().collect();
        lines.reverse();
        lines
    })
}

/// The text of an error and its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

struct TraceLayer;

/// The host of a span that turmoil enters while a host runs.
struct RunningHost(String);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TraceLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() == "node" && attributes.metadata().target().starts_with("turmoil") {
            let mut name = Name(String::new());
            attributes.record(&mut name);
            if let Some(span) = context.span(id) {
                span.extensions_mut().insert(RunningHost(name.0));
            }
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(host) = span.extensions().get::<RunningHost>() {
            TRACE.with_borrow_mut(|trace| trace.host.clone_from(&host.0));
            memory::enter();
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(host) = span.extensions().get::<RunningHost>() {
            memory::exit(&host.0);
            TRACE.with_borrow_mut(|trace| trace.host.clear());
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        TRACE.with(|trace| {
            // An event logged while another is being formatted is already part of that line.
            let Ok(mut trace) = trace.try_borrow_mut() else { return };
            trace.take(|line| {
                line.push_str(event.metadata().target());
                event.record(&mut Fields { line });
            });
        });
    }
}

/// The field `name` of a span.
struct Name(String);

impl tracing::field::Visit for Name {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        if field.name() == "name" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}
}

struct Fields<'a> {
    line: &'a mut String,
}

impl tracing::field::Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        write!(self.line, " {}={value:?}", field.name()).expect("writing to a string does not fail");
    }
}
