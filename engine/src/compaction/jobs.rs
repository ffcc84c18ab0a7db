//! What a region knows of its compactions: which run, and how far a requested one has come.

use std::collections::BTreeMap;

use terrane_env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use terrane_env::sync::{Mutex, MutexGuard};
use terrane_types::FamilyName;

use super::Job;

/// The compactions of a region.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    busy: Mutex<BTreeMap<FamilyName, Vec<Job>>>,
    /// A compaction of the whole region was requested and is not finished.
    wanted: AtomicBool,
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
    /// How many want no compaction to begin.
    holds: AtomicUsize,
}

/// How far a requested compaction has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionProgress {
    /// Whether it is still to be finished.
    pub wanted: bool,
    /// Bytes of data read since it was requested.
    pub bytes_done: u64,
    /// Bytes of data that the region's files held when it was requested, or more when more arrived.
    pub bytes_total: u64,
}

impl Compactions {
    /// Lets no compaction begin until [`Compactions::end_hold`].
    pub(crate) fn begin_hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_hold(&self) {
        self.holds.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether no compaction is to begin.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Relaxed) > 0
    }

    /// The jobs that run, by family.
    pub(crate) fn busy(&self) -> MutexGuard<'_, BTreeMap<FamilyName, Vec<Job>>> {
        self.busy.lock()
    }

    /// Marks the files of a job busy; `false` when another job has one of them.
    pub(crate) fn claim(&self, family: &FamilyName, job: Job) -> bool {
        let mut busy = self.busy.lock();
        let jobs = busy.entry(family.clone()).or_default();
        let is_free = jobs.iter().all(|other| other.files.is_disjoint(&job.files));
        if is_free {
            jobs.push(job);
        }
        is_free
    }

    pub(crate) fn release(&self, family: &FamilyName, job: &Job) {
        if let Some(jobs) = self.busy.lock().get_mut(family)
            && let Some(at) = jobs.iter().position(|other| other == job)
        {
            jobs.remove(at);
        }
    }

    /// Requests a compaction of everything, `bytes` in all.
    pub(crate) fn request(&self, bytes: u64, is_possible: bool) {
        self.bytes_done.store(0, Ordering::Relaxed);
        self.bytes_total.store(bytes, Ordering::Relaxed);
        self.wanted.store(is_possible, Ordering::Relaxed);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// What was requested is done.
    pub(crate) fn finish_request(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    pub(crate) fn note_read(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> CompactionProgress {
        let bytes_done = self.bytes_done.load(Ordering::Relaxed);
        CompactionProgress {
            wanted: self.is_wanted(),
            bytes_done,
            bytes_total: self.bytes_total.load(Ordering::Relaxed).max(bytes_done),
        }
    }
}
