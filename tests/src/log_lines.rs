//! What the nodes of a test log: errors, which fail the test unless it expects them, and the audit stream.
//!
//! ERROR means that a person must look. A cluster in a test has no such person, so an error that the test does not name is
//! a defect: of the code, or of the level of the line.
//!
//! Tests of one binary run in one process, each on a runtime of its own. A line belongs to the test on whose runtime it was
//! logged. A line from a thread without a runtime belongs to none; it is shown on standard error.

use std::sync::Once;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The target of the audit stream.
const AUDIT: &str = "audit";

/// A line of the log.
#[derive(Clone, Debug)]
pub struct Line {
    runtime: Option<Id>,
    is_error: bool,
    /// The target, the message and the fields.
    pub text: String,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Keeps errors and the audit stream of this process from now on.
pub fn keep() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        // As in the processes' default filter: what matters of openraft's lines, our crates log themselves.
        let kept = Targets::new()
            .with_default(LevelFilter::ERROR)
            .with_target("openraft", LevelFilter::OFF)
            .with_target(AUDIT, LevelFilter::INFO);
        tracing_subscriber::registry().with(Kept.with_filter(kept)).init();
    });
}

/// The errors that were logged on this runtime and are not expected: no expected text is part of them. They are forgotten.
///
/// # Panics
/// Outside of a runtime.
#[must_use]
pub fn take_unexpected_errors(expected: &[&str]) -> Vec<String> {
    let here = Some(Handle::current().id());
    let mut found = Vec::new();
    LINES.lock().retain(|line| {
        let taken = line.is_error && line.runtime == here;
        if taken && !expected.iter().any(|text| line.text.contains(text)) {
            found.push(line.text.clone());
        }
        !taken
    });
    found
}

/// The audit stream of this runtime so far.
///
/// # Panics
/// Outside of a runtime.
#[must_use]
pub fn audited() -> Vec<String> {
    let here = Some(Handle::current().id());
    let lines = LINES.lock();
    lines.iter().filter(|line| !line.is_error && line.runtime == here).map(|line| line.text.clone()).collect()
}

struct Kept;

impl<S: Subscriber> Layer<S> for Kept {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(event.metadata().target().to_owned());
        event.record(&mut fields);
        let is_error = *event.metadata().level() == Level::ERROR;
        if is_error {
            eprintln!("ERROR {}", fields.0);
        }
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        LINES.lock().push(Line { runtime, is_error, text: fields.0 });
    }
}

/// The fields of an event as text.
struct Fields(String);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push_str(&format!(" {}={value}", field.name()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.0.push_str(&format!(" {value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_errors_that_are_not_expected_are_found_and_those_of_other_runtimes_are_not() {
        keep();
        tracing::error!(region = 7, "the disk is on fire");
        tracing::error!("as planned");
        tracing::warn!("never mind");
        tracing::info!(target: "audit", action = "drop table", subject = "t");
        let elsewhere = std::thread::Builder::new();
        #[expect(clippy::disallowed_methods, reason = "another runtime needs another thread")]
        let elsewhere = elsewhere.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { tracing::error!("of another test") });
        });
        elsewhere.unwrap().join().unwrap();
        let found = take_unexpected_errors(&["as planned"]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("the disk is on fire region=7"), "{found:?}");
        assert!(take_unexpected_errors(&[]).is_empty(), "they were taken");
        assert!(audited().iter().any(|line| line.contains("action=drop table")), "{:?}", audited());
    }
}
