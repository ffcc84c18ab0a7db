//! Named values that one client changes, one change after another: what a reading may show.
//!
//! A reading shows the value of the last change that succeeded. A change whose outcome is unknown may take effect at any
//! later time, or never, so its value may be shown from then on.

use std::collections::{BTreeMap, BTreeSet};

use crate::verdict::{Fate, Verdict};

/// The value of a name; `None`: the name does not exist.
pub type Value = Option<String>;

/// All names and what is known of their values.
#[derive(Debug, Default)]
pub struct Settings {
    known: BTreeMap<String, Known>,
}

#[derive(Debug, Default)]
struct Known {
    settled: Value,
    /// Values of changes whose outcome is unknown.
    maybe: BTreeSet<Value>,
}

impl Settings {
    /// A change has ended.
    pub fn end(&mut self, name: &str, value: Value, fate: Fate) {
        if fate == Fate::Refused {
            return;
        }
        let known = self.known.entry(name.to_owned()).or_default();
        if fate == Fate::Applied {
            known.settled = value;
        } else {
            known.maybe.insert(value);
        }
    }

    /// The value, if no change of it has an unknown outcome.
    #[must_use]
    pub fn certain(&self, name: &str) -> Option<&Value> {
        let known = self.known.get(name)?;
        known.maybe.is_empty().then_some(&known.settled)
    }

    /// A reading showed these values; no change was in flight.
    ///
    /// # Errors
    /// A sentence that names the value that cannot be.
    pub fn shown(&self, values: &BTreeMap<String, String>) -> Verdict {
        if let Some((name, value)) = values.iter().find(|(name, _)| !self.known.contains_key(*name)) {
            return Err(format!("{name} is {value:?}, but was never set"));
        }
        for (name, known) in &self.known {
            let value = values.get(name).cloned();
            if value != known.settled && !known.maybe.contains(&value) {
                let Known { settled, maybe } = known;
                return Err(format!("{name} is {value:?}, but was set to {settled:?} (unknown outcomes: {maybe:?})"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(settings: &Settings, values: &[(&str, &str)]) -> Verdict {
        settings.shown(&values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn value(text: &str) -> Value {
        Some(text.to_owned())
    }

    #[test]
    fn the_last_change_counts() {
        let mut settings = Settings::default();
        settings.end("a", value("1"), Fate::Applied);
        settings.end("a", value("2"), Fate::Applied);
        shown(&settings, &[("a", "2")]).unwrap();
        assert!(shown(&settings, &[("a", "1")]).unwrap_err().contains("was set to"));
        shown(&settings, &[]).unwrap_err();
        assert!(shown(&settings, &[("a", "2"), ("b", "1")]).unwrap_err().contains("never set"));
        settings.end("a", None, Fate::Applied);
        shown(&settings, &[]).unwrap();
        shown(&settings, &[("a", "2")]).unwrap_err();
    }

    #[test]
    fn an_unknown_change_may_show_from_then_on() {
        let mut settings = Settings::default();
        settings.end("a", value("1"), Fate::Applied);
        assert_eq!(settings.certain("a"), Some(&value("1")));
        settings.end("a", None, Fate::Unknown);
        settings.end("a", value("3"), Fate::Applied);
        shown(&settings, &[("a", "3")]).unwrap();
        shown(&settings, &[]).unwrap();
        shown(&settings, &[("a", "1")]).unwrap_err();
        assert_eq!(settings.certain("a"), None);
    }
}
