//! Which entries of all groups stay in memory: the most recently written ones, up to a limit in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::GroupLog;

/// Drops the payloads of the oldest entries beyond the limit. Owned by the writer, so it needs no lock.
pub(crate) struct Cache {
    oldest_first: VecDeque<Cached>,
    bytes: u64,
    bytes_max: u64,
}

struct Cached {
    log: Arc<GroupLog>,
    index: u64,
    serial: u64,
    bytes: u64,
}

impl Cache {
    pub(crate) fn new(bytes_max: u64) -> Cache {
        Cache { oldest_first: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Adds an entry that was written, and can be read back from now on.
    pub(crate) fn admit(&mut self, log: &Arc<GroupLog>, index: u64, serial: u64, bytes: usize) {
        let bytes = bytes as u64;
        self.bytes += bytes;
        self.oldest_first.push_back(Cached { log: log.clone(), index, serial, bytes });
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.bytes -= oldest.bytes;
            oldest.log.evict(oldest.index, oldest.serial);
        }
    }
}
