//! The problems this server has right now. They are reported to the master and shown by `status` until they are resolved.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_types::RegionId;

/// Open issues by topic, one sentence each.
#[derive(Default)]
pub struct HealthIssues {
    open: Mutex<BTreeMap<String, String>>,
}

impl HealthIssues {
    /// Opens or updates an issue. Returns true if it is new, so that the caller logs it once.
    pub fn set(&self, topic: &str, sentence: String) -> bool {
        self.open.lock().insert(topic.to_owned(), sentence).is_none()
    }

    /// Closes an issue. Returns true if it was open.
    pub fn clear(&self, topic: &str) -> bool {
        self.open.lock().remove(topic).is_some()
    }

    /// The sentence of an open issue.
    pub fn get(&self, topic: &str) -> Option<String> {
        self.open.lock().get(topic).cloned()
    }

    /// All open issues.
    pub fn sentences(&self) -> Vec<String> {
        self.open.lock().values().cloned().collect()
    }
}

/// The topic of failed compactions of a region.
pub fn compaction_topic(region: RegionId) -> String {
    format!("compaction of region {region}")
}
