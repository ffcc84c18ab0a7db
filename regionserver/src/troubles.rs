//! What is wrong with this server at the moment, for `status`: reported to the master until it is over.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Troubles by what they are about, one sentence each.
#[derive(Default)]
pub struct Troubles {
    current: Mutex<BTreeMap<String, String>>,
}

impl Troubles {
    /// Notes a trouble; true when it is new, so that it is logged once.
    pub fn set(&self, about: &str, sentence: String) -> bool {
        self.current.lock().insert(about.to_owned(), sentence).is_none()
    }

    /// The trouble is over; true when there was one.
    pub fn clear(&self, about: &str) -> bool {
        self.current.lock().remove(about).is_some()
    }

    /// The trouble's sentence, while there is one.
    pub fn get(&self, about: &str) -> Option<String> {
        self.current.lock().get(about).cloned()
    }

    pub fn sentences(&self) -> Vec<String> {
        self.current.lock().values().cloned().collect()
    }
}
