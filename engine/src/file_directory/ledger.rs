//! Which file numbers are taken, and what keeps a file that the manifest does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use terrane_env::sync::is_planted;

/// Held by every reader of a file: the file stays while one lives.
#[derive(Debug)]
pub(crate) struct Claim(());

/// Files that must not be removed for not being named: those that no record names yet, and all that are created later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected {
    unrecorded: BTreeSet<u64>,
    from: u64,
}

impl Protected {
    /// Protects no file.
    pub(super) fn nothing() -> Self {
        Self { unrecorded: BTreeSet::new(), from: u64::MAX }
    }

    fn contains(&self, id: u64) -> bool {
        id >= self.from || self.unrecorded.contains(&id)
    }
}

/// The numbers of one directory of files.
#[derive(Debug)]
pub(super) struct Ledger {
    next: u64,
    /// Files that no manifest record names yet, and one may name soon.
    unrecorded: BTreeSet<u64>,
    /// Those of the unrecorded ones whose record failed and may be on disk all the same.
    in_doubt: BTreeSet<u64>,
    claims: BTreeMap<u64, Weak<Claim>>,
}

impl Ledger {
    /// Numbering continues above those that the manifest names.
    pub(super) fn new(named: &BTreeSet<u64>) -> Self {
        let next = named.last().map_or(1, |last| last + 1);
        Self { next, unrecorded: BTreeSet::new(), in_doubt: BTreeSet::new(), claims: BTreeMap::new() }
    }

    pub(super) fn allocate(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        assert!(self.unrecorded.insert(id), "file number {id} is given out twice");
        id
    }

    pub(super) fn release(&mut self, id: u64) {
        self.unrecorded.remove(&id);
    }

    pub(super) fn in_doubt(&mut self, ids: impl Iterator<Item = u64>) {
        self.in_doubt.extend(ids);
    }

    pub(super) fn resolve_doubt(&mut self) {
        for id in std::mem::take(&mut self.in_doubt) {
            self.release(id);
        }
    }

    pub(super) fn claim(&mut self, id: u64) -> Arc<Claim> {
        if let Some(claim) = self.claims.get(&id).and_then(Weak::upgrade) {
            return claim;
        }
        let claim = Arc::new(Claim(()));
        self.claims.insert(id, Arc::downgrade(&claim));
        claim
    }

    pub(super) fn protected(&self) -> Protected {
        Protected { unrecorded: self.unrecorded.clone(), from: self.next }
    }

    /// Whether a file stays, for a clean-up that took `protected` before it took `named`.
    pub(super) fn keeps(&self, id: u64, named: &BTreeSet<u64>, protected: &Protected) -> bool {
        let is_claimed = self.claims.get(&id).is_some_and(|claim| claim.strong_count() > 0);
        named.contains(&id) || protected.contains(id) || (is_claimed && !is_planted("a clean-up overlooks readers"))
    }

    pub(super) fn drop_ended_claims(&mut self) {
        self.claims.retain(|_, claim| claim.strong_count() > 0);
    }
}
