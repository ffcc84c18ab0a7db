//! How far the copies of a group have come that its leader sends: for what keeps the log, and for people.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_types::ReplicaId;

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The entry up to which the member needs no log once it has installed the copy.
    pub(crate) index: u64,
    pub(crate) bytes: u64,
    pub(crate) sent: u64,
}

/// The copies of one group that are being sent.
#[derive(Default)]
pub(crate) struct Sending {
    members: Mutex<BTreeMap<ReplicaId, Progress>>,
}

impl Sending {
    /// A copy is being sent to a member, as long as the result lives.
    pub(super) fn begin(&self, to: ReplicaId, index: u64) -> Sent<'_> {
        self.members.lock().insert(to, Progress { index, ..Progress::default() });
        Sent { sending: self, to }
    }

    pub(super) fn note(&self, to: ReplicaId, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.members.lock().get_mut(&to) {
            change(progress);
        }
    }

    /// The log is kept from the entry after this one on, or the members would need another copy at once.
    pub(crate) fn keeps_after(&self) -> Option<u64> {
        self.members.lock().values().map(|progress| progress.index).min()
    }

    pub(crate) fn progress(&self) -> BTreeMap<ReplicaId, Progress> {
        self.members.lock().clone()
    }
}

/// Removes the copy from those that are being sent, however it ends.
pub(super) struct Sent<'a> {
    sending: &'a Sending,
    to: ReplicaId,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.sending.members.lock().remove(&self.to);
    }
}
