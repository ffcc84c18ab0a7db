//! The list of held files (`held.rs`): which files each group has, from the oldest to the newest.

use std::collections::{BTreeMap, VecDeque};

use terrane_types::GroupId;

use super::place::HELD;

/// The held files of a log, by group and from the oldest to the newest.
#[derive(Debug, Default)]
pub(crate) struct HeldList {
    /// The log's id.
    pub(super) log: u64,
    groups: BTreeMap<GroupId, VecDeque<HeldFile>>,
    last_number: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldFile {
    pub(crate) number: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: u64,
}

impl HeldList {
    pub(super) fn add(&mut self, group: GroupId, file: HeldFile) {
        self.last_number = self.last_number.max(file.number & !HELD);
        self.groups.entry(group).or_default().push_back(file);
    }

    pub(super) fn take_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number | HELD
    }

    pub(super) fn remove(&mut self, group: GroupId, number: u64) {
        if let Some(files) = self.groups.get_mut(&group) {
            files.retain(|file| file.number != number);
        }
    }

    /// Whether a held file has this number.
    pub(super) fn has(&self, number: u64) -> bool {
        self.groups.values().flatten().any(|file| file.number == number)
    }

    /// Bytes of all held files.
    pub(super) fn bytes(&self) -> u64 {
        self.groups.values().flatten().map(|file| file.bytes).sum()
    }

    /// The number of held files.
    pub(super) fn count(&self) -> u64 {
        self.groups.values().map(|files| files.len() as u64).sum()
    }

    /// The newest held file of a group.
    pub(super) fn newest(&self, group: GroupId) -> Option<HeldFile> {
        self.groups.get(&group)?.back().copied()
    }

    /// The oldest held file of a group.
    pub(super) fn oldest(&self, group: GroupId) -> Option<HeldFile> {
        self.groups.get(&group)?.front().copied()
    }

    /// A held file now ends with the entry `last`, and has `bytes` bytes.
    pub(super) fn trim(&mut self, group: GroupId, number: u64, last: u64, bytes: u64) {
        let of_group = self.groups.get_mut(&group);
        if let Some(file) = of_group.and_then(|files| files.iter_mut().find(|file| file.number == number)) {
            file.last = last;
            file.bytes = bytes;
        }
    }
}
