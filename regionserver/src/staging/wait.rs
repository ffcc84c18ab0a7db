//! What a replica waits for that cannot apply an entry before files are here which other members have.
//!
//! A load and an adoption need files that the log does not have. They were fetched and verified by a quorum before the entry
//! was proposed; a replica without them fetches them when it applies the entry. That takes as long as it takes. It ends when
//! the files are here, the server stops, the replica is removed, or a copy of the group is installed that covers the entry.
//!
//! Bytes that arrive and searches without a result are noted, so that the raft crate can tell a replica that is slow from one
//! that is stuck ([`terrane_raft::Progress`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use terrane_raft::Progress;
use terrane_types::GroupId;
use tokio_util::sync::CancellationToken;

/// The waits of a replica for files, as others see them.
#[derive(Default)]
pub struct Waits {
    /// Cancelled when the replica is removed.
    removed: CancellationToken,
    /// Cancelled when the present wait is to end.
    present: Mutex<CancellationToken>,
    is_waiting: AtomicBool,
    /// The most bytes that were here in this wait.
    bytes: AtomicU64,
    /// The entry whose files were not found, and why.
    lacks: Mutex<Option<(u64, String)>>,
}

/// A wait for the files of an entry. It ends when this is dropped.
pub struct Wait<'a> {
    pub group: GroupId,
    pub index: u64,
    waits: &'a Waits,
    given_up: CancellationToken,
}

impl Waits {
    /// A wait begins. What happens from now on ends it: look afterwards whether it is still needed.
    pub fn begin(&self, group: GroupId, index: u64) -> Wait<'_> {
        let given_up = self.removed.child_token();
        *self.present.lock() = given_up.clone();
        self.bytes.store(0, Ordering::Relaxed);
        self.is_waiting.store(true, Ordering::Relaxed);
        Wait { group, index, waits: self, given_up }
    }

    /// Ends the present wait: its entry is covered by a copy.
    pub fn supersede(&self) {
        self.present.lock().cancel();
    }

    /// The replica is removed: this wait ends, and so does any other.
    pub fn give_up(&self) {
        self.removed.cancel();
    }

    /// How far applying is, with everything up to `applied` applied.
    pub fn progress(&self, applied: u64) -> Progress {
        Progress {
            applied,
            steps: self.bytes.load(Ordering::Relaxed),
            lacks: self.lacks.lock().clone(),
            waits: self.is_waiting.load(Ordering::Relaxed),
        }
    }
}

impl Wait<'_> {
    /// So many bytes of the files are here. Fewer than before, because what was fetched is damaged, are no progress.
    pub fn arrived(&self, bytes: u64) {
        self.waits.bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The files were not found.
    pub fn not_found(&self, why: String) {
        *self.waits.lacks.lock() = Some((self.index, why));
    }

    /// Pauses. True if the wait has ended, or the server stops.
    pub async fn ends_within(&self, stop: &CancellationToken, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = stop.cancelled() => true,
            () = self.given_up.cancelled() => true,
            () = tokio::time::sleep(pause) => false,
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waits.is_waiting.store(false, Ordering::Relaxed);
        *self.waits.lacks.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_fetched_again_because_they_were_damaged_are_no_progress() {
        let waits = Waits::default();
        let wait = waits.begin(GroupId(1), 7);
        wait.arrived(100);
        let steps = waits.progress(6).steps;
        wait.arrived(40);
        wait.arrived(100);
        assert_eq!(waits.progress(6).steps, steps);
        wait.arrived(101);
        assert_ne!(waits.progress(6).steps, steps);
        drop(wait);
        let _next = waits.begin(GroupId(1), 8);
        assert_eq!(waits.progress(7).steps, 0, "the files of another entry");
    }
}
