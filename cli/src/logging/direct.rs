//! What a process says outside of the filter: its settings, what it is doing while it starts and stops, why it fails, and panics.
//!
//! A line of text or an object, like the lines of the log, so that a collector of the log reads one form.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value};

use super::LogFormat;
use super::json::line_of;
use crate::failure::Failure;

/// How lines are written.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The target of these lines.
const TARGET: &str = "terrane";
/// The target of settings.
const SETTINGS: &str = "terrane::settings";
/// The target of panics.
const PANIC: &str = "panic";

/// Writes lines in this form from now on.
pub fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Whether lines are objects.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Says what the process does.
pub fn say(message: &str) {
    write("INFO", TARGET, message, Map::new());
}

/// Says what may not be meant.
pub fn warn(message: &str) {
    if is_json() {
        let message = message.trim_start_matches("warning: ").trim_start_matches("note: ");
        return write("WARN", TARGET, message, Map::new());
    }
    eprintln!("{message}");
}

/// Says a setting that the process uses; `text` is the line for people.
pub fn say_setting(key: &str, value: &str, origin: &str, text: &str) {
    if is_json() {
        return write("INFO", SETTINGS, "setting", fields([("key", key), ("value", value), ("origin", origin)]));
    }
    eprintln!("{text}");
}

/// Says what failed, and what to do.
pub fn report(failure: &Failure) {
    if !is_json() {
        return failure.print();
    }
    if let Some((what, next)) = failure.said() {
        write("ERROR", TARGET, what, fields(next.map(|next| ("next", next))));
    }
}

/// Says that a part of the process failed, which goes on.
pub fn complain(message: &str) {
    if is_json() {
        return write("ERROR", TARGET, message, Map::new());
    }
    eprintln!("terrane: {message}");
}

/// Says why the process ends at once.
pub fn last_words(message: &str) {
    if is_json() {
        return write("ERROR", TARGET, &format!("aborting: {message}"), Map::new());
    }
    eprintln!("terrane: aborting: {message}");
}

/// From now on, a panic is a line like others while lines are objects.
pub fn report_panics() {
    let of_text = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if is_json() {
            let (message, fields) = panicked(panic);
            write("ERROR", PANIC, &message, fields);
        } else {
            of_text(panic);
        }
    }));
}

fn panicked(panic: &PanicHookInfo<'_>) -> (String, Map<String, Value>) {
    let payload = panic.payload();
    let message = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
    let thread = std::thread::current();
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let mut said = fields([("thread", thread.name().unwrap_or("unnamed")), ("location", location.as_str())]);
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        said.insert("backtrace".to_owned(), trace.to_string().into());
    }
    (message.unwrap_or_else(|| "a panic without a message".to_owned()), said)
}

fn fields<'a>(named: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    named.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

fn write(level: &str, target: &str, message: &str, fields: Map<String, Value>) {
    if is_json() {
        eprintln!("{}", line_of(level, target, message, fields));
    } else {
        eprintln!("{message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_described_by_its_message_thread_and_place() {
        let found = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let kept = std::sync::Arc::clone(&found);
        let before = std::panic::take_hook();
        let own = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            // Other tests may panic meanwhile.
            if std::thread::current().id() == own {
                *kept.lock() = Some(panicked(panic));
            } else {
                before(panic);
            }
        }));
        let end = std::panic::catch_unwind(|| panic!("a \"quote\"\nand {}", "a line"));
        assert!(end.is_err());
        let (message, fields) = found.lock().take().expect("the hook ran");
        // The hook of the other tests was moved into ours.
        drop(std::panic::take_hook());
        assert_eq!(message, "a \"quote\"\nand a line");
        assert!(fields["location"].as_str().is_some_and(|place| place.contains("direct.rs:")), "{fields:?}");
        let line = line_of("ERROR", PANIC, &message, fields).to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
