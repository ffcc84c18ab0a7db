//! The trace of a run as a hash: the run's own events and the log lines of the layers below, each with its simulated
//! time.
//!
//! Two runs of a seed with one build must have the same hash. If they differ, compare their events (`--verbose`):
//! before the first difference, some code used time, randomness or I/O from outside of the simulation.

use std::cell::RefCell;
use std::fmt::{Arguments, Write};
use std::time::Duration;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use xxhash_rust::xxh3::Xxh3;

thread_local! {
    /// A simulation runs on one thread, so there is one trace.
    static TRACE: RefCell<Trace> = RefCell::new(Trace::default());
}

#[derive(Default)]
struct Trace {
    hash: Xxh3,
    events: u64,
    verbose: bool,
    line: String,
    /// The last simulated time inside a host; outside of hosts there is none.
    now: Duration,
}

impl Trace {
    fn take(&mut self, write: impl FnOnce(&mut String)) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        self.now = turmoil::sim_elapsed().unwrap_or(self.now);
        write!(line, "{:>10.3} ", self.now.as_secs_f64() * 1e3).expect("writing to a string does not fail");
        write(&mut line);
        if self.verbose {
            eprintln!("{line}");
        }
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.events += 1;
        self.line = line;
    }
}

/// Starts tracing, including the log lines of the layers below.
pub fn begin(verbose: bool) {
    TRACE.with_borrow_mut(|trace| trace.verbose = verbose);
    let layers = Targets::new()
        .with_target("terrane", LevelFilter::DEBUG)
        .with_targets(NODES.map(|node| (node, LevelFilter::DEBUG)))
        .with_target("openraft", LevelFilter::INFO)
        .with_target("turmoil", LevelFilter::TRACE);
    tracing_subscriber::registry().with(HashLayer.with_filter(layers)).init();
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

/// The hash of all events so far, and their number.
#[must_use]
pub fn digest() -> (u64, u64) {
    TRACE.with_borrow(|trace| (trace.hash.digest(), trace.events))
}

/// The text of an error and its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

struct HashLayer;

impl<S: tracing::Subscriber> Layer<S> for HashLayer {
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

struct Fields<'a> {
    line: &'a mut String,
}

impl tracing::field::Visit for Fields<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        write!(self.line, " {}={value:?}", field.name()).expect("writing to a string does not fail");
    }
}
