//! Why a server should lead nothing for now. What follows from a reason is in `abstain.rs`.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The weight of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Another member should lead if one can.
    Soft,
    /// This server must not lead, whatever the others can do.
    Firm,
}

/// Why a server should lead nothing for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abstention {
    /// For people: a sentence without its full stop.
    pub reason: String,
    /// Whether it allows leadership if no other member can lead.
    pub weight: Weight,
}

/// The reasons of one server.
#[derive(Default)]
pub(crate) struct Abstentions {
    reasons: Mutex<BTreeMap<&'static str, Abstention>>,
    changed: Notify,
}

impl Abstentions {
    /// Sets or clears the reason about one subject.
    pub(crate) fn set(&self, about: &'static str, reason: Option<Abstention>) {
        let mut reasons = self.reasons.lock();
        let before = match reason.clone() {
            Some(reason) => reasons.insert(about, reason),
            None => reasons.remove(about),
        };
        drop(reasons);
        if before != reason {
            self.changed.notify_one();
        }
    }

    /// Returns when a reason has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The reason about one subject, for people.
    pub(crate) fn about(&self, about: &'static str) -> Option<String> {
        self.reasons.lock().get(about).map(|abstention| abstention.reason.clone())
    }

    /// The weightiest reason.
    pub(crate) fn weightiest(&self) -> Option<Abstention> {
        self.reasons.lock().values().max_by_key(|abstention| abstention.weight).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weightiest_reason_counts_until_it_is_cleared() {
        let abstentions = Abstentions::default();
        let reason = |words: &str, weight| Some(Abstention { reason: words.to_owned(), weight });
        abstentions.set("disk", reason("full", Weight::Soft));
        abstentions.set("clock", reason("wrong", Weight::Firm));
        assert_eq!(abstentions.weightiest(), reason("wrong", Weight::Firm));
        abstentions.set("clock", None);
        assert_eq!(abstentions.weightiest(), reason("full", Weight::Soft));
        abstentions.set("disk", None);
        assert_eq!(abstentions.weightiest(), None);
    }
}
