//! The process's log, as far as a running process can change it: which lines it shows.
//!
//! The program that sets the log up installs the control; libraries only ask for it. A process without one (a test, a
//! program with the client) keeps the filter with which it started.

use std::sync::OnceLock;

/// Reads and replaces the filter of the log.
pub trait LogControl: Send + Sync {
    /// The filter in force.
    fn filter(&self) -> String;

    /// Replaces the filter.
    ///
    /// # Errors
    /// What is wrong with it, as a clause.
    fn set_filter(&self, filter: &str) -> Result<(), String>;

    /// Writes why the process ends at once, in the form of its lines and whatever the filter selects.
    fn last_words(&self, message: &str);
}

static CONTROL: OnceLock<Box<dyn LogControl>> = OnceLock::new();

/// Installs the control of this process's log. A second one is ignored.
pub fn install(control: Box<dyn LogControl>) {
    CONTROL.get_or_init(|| control);
}

/// The filter in force after `filter`, unless that is empty, has replaced it.
///
/// # Errors
/// Why the filter cannot be read or replaced, as a sentence.
pub fn change_filter(filter: &str) -> Result<String, String> {
    let control = CONTROL.get().ok_or("the filter of this process's log cannot be changed while it runs")?;
    if !filter.is_empty() {
        control.set_filter(filter)?;
    }
    Ok(control.filter())
}

/// [`change_filter`] for a caller at this address: a change, or the attempt, is part of the audit stream.
///
/// # Errors
/// As of [`change_filter`].
pub fn change_filter_for(peer: &str, filter: &str) -> Result<String, String> {
    let changed = change_filter(filter);
    if !filter.is_empty() {
        let outcome = changed.as_ref().map_or_else(String::as_str, |_| "done");
        tracing::info!(target: "audit", action = "log filter", subject = filter, peer, outcome);
    }
    changed
}

/// Says on standard error why the process ends at once.
pub fn last_words(message: &str) {
    match CONTROL.get() {
        Some(control) => control.last_words(message),
        None => eprintln!("terrane: aborting: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    struct Fake(Mutex<String>);

    impl LogControl for Fake {
        fn filter(&self) -> String {
            self.0.lock().clone()
        }

        fn set_filter(&self, filter: &str) -> Result<(), String> {
            if filter == "bad" {
                return Err("bad".to_owned());
            }
            *self.0.lock() = filter.to_owned();
            Ok(())
        }

        fn last_words(&self, message: &str) {
            *self.0.lock() = message.to_owned();
        }
    }

    #[test]
    fn a_filter_is_read_replaced_and_kept_if_the_new_one_is_bad() {
        assert!(change_filter("").unwrap_err().contains("cannot be changed"));
        install(Box::new(Fake(Mutex::new("warn".to_owned()))));
        assert_eq!(change_filter("").unwrap(), "warn");
        assert_eq!(change_filter("info").unwrap(), "info");
        assert_eq!(change_filter("bad").unwrap_err(), "bad");
        assert_eq!(change_filter("").unwrap(), "info");
        last_words("the disk is gone");
        assert_eq!(change_filter("").unwrap(), "the disk is gone", "the control writes them");
    }
}
