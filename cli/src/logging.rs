//! The log of a process: on standard error, as text or JSON, under a filter that can be replaced while it runs.
//!
//! Repeats are limited ([`repeats`]). Events of the target `audit` are the audit stream: they pass the filter like others,
//! are never limited, and go to a file of their own as well if the process has one ([`keep_audit_in`]), whatever the
//! filter.
//!
//! With `--log-format json` every line on standard error is an object, from the first to the last: what a process says outside of
//! the filter ([`direct`]), such as its settings, why it does not start and why it ends, is one, too. So the form is known before
//! the command line is read ([`format::chosen`]).

mod direct;
mod format;
mod json;
mod repeats;

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use parking_lot::Mutex;
use terrane_env::log_control::{self, LogControl};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::failure::Failure;

pub use direct::{complain, is_json, report, say, say_setting, set_format, warn};
pub use format::{LogFormat, chosen};
pub use repeats::report as report_repeats;

/// The environment variable that selects what is logged, in the syntax of `tracing_subscriber::EnvFilter`.
const VARIABLE: &str = "TERRANE_LOG";
/// Warnings of our own crates. openraft logs every heartbeat that a busy or stopping peer did not answer; what matters
/// of that (a lost leader, a failed disk) our crates log themselves.
const DEFAULT: &str = "warn,openraft=off";
/// Masters and servers also log what administrators do.
const DEFAULT_OF_ROLES: &str = "warn,openraft=off,audit=info";
/// The target of the audit stream.
const AUDIT: &str = "audit";

/// The file of the audit stream, if it has one.
static AUDIT_FILE: OnceLock<Mutex<AuditFile>> = OnceLock::new();

#[expect(
    clippy::disallowed_types,
    reason = "a line is written where it is logged, which may be outside of any runtime"
)]
type AuditFile = std::fs::File;

/// Begins to log to standard error. `is_role`: this process is a master or a server.
pub fn begin(is_role: bool) {
    direct::report_panics();
    let default = if is_role { DEFAULT_OF_ROLES } else { DEFAULT };
    let chosen = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parsed = chosen.as_deref().map(EnvFilter::try_new);
    let (filter, text, bad) = match (parsed, chosen) {
        (Some(Ok(filter)), Some(text)) => (filter, text, None),
        (Some(Err(error)), _) => (EnvFilter::new(default), default.to_owned(), Some(error)),
        _ => (EnvFilter::new(default), default.to_owned(), None),
    };
    let (filter, handle) = reload::Layer::<EnvFilter, Registry>::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(crate::failure::has_colours())
        .with_writer(std::io::stderr)
        .event_format(Lines::default());
    let audit = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(AuditWriter)
        .event_format(json::JsonLines)
        .with_filter(filter_fn(|metadata| metadata.target() == AUDIT && AUDIT_FILE.get().is_some()));
    tracing_subscriber::registry().with(lines.with_filter(filter.and(repeats::Limit))).with(audit).init();
    if let Some(error) = bad {
        tracing::warn!(%error, "{VARIABLE} is not a filter of the log; {default} is used instead");
    }
    log_control::install(Box::new(Control { handle, text: Mutex::new(text) }));
}

/// Appends the audit stream to a file from now on.
#[expect(
    clippy::disallowed_types,
    reason = "a line is written where it is logged, which may be outside of any runtime"
)]
pub fn keep_audit_in(path: &Path) -> Result<(), Failure> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let file = opened.map_err(|error| {
        Failure::usage(format!("cannot open the audit log {}: {error}", path.display()))
            .advise("name a file in a directory that exists and that this process may write to")
    })?;
    AUDIT_FILE.get_or_init(|| Mutex::new(file));
    Ok(())
}

/// Replaces the filter of the running process.
struct Control {
    handle: reload::Handle<EnvFilter, Registry>,
    text: Mutex<String>,
}

impl LogControl for Control {
    fn filter(&self) -> String {
        self.text.lock().clone()
    }

    fn set_filter(&self, filter: &str) -> Result<(), String> {
        let parsed = EnvFilter::try_new(filter).map_err(|error| {
            format!("{filter:?} is not a filter of the log: {error}; write a level, or target=level")
        })?;
        let mut text = self.text.lock();
        self.handle.reload(parsed).map_err(|error| format!("the filter cannot be replaced: {error}"))?;
        *text = filter.to_owned();
        Ok(())
    }

    fn last_words(&self, message: &str) {
        direct::last_words(message);
    }
}

/// Lines of the form that the settings chose.
#[derive(Default)]
struct Lines {
    text: Format<Full>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        match is_json() {
            true => json::JsonLines.format_event(context, writer, event),
            false => self.text.format_event(context, writer, event),
        }
    }
}

/// Writes to the file of the audit stream.
struct AuditWriter;

impl<'w> MakeWriter<'w> for AuditWriter {
    type Writer = AuditWriter;

    fn make_writer(&'w self) -> AuditWriter {
        AuditWriter
    }
}

impl Write for AuditWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if let Some(file) = AUDIT_FILE.get()
            && let Err(error) = file.lock().write_all(line)
        {
            // Not through the log, which called this.
            complain(&format!("cannot write to the audit log: {error}"));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
