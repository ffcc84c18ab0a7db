//! What a client counts: look-ups at masters, requests, retries.

use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of a client's counters. All count from when the client connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Look-ups of regions at a master. A warm client makes none.
    pub master_lookups: u64,
    /// Other calls to masters: tables, status, scans of the meta table.
    pub master_calls: u64,
    /// Requests sent to region servers: writes, gets, blocks of small scans, opened scan streams.
    pub requests: u64,
    /// Failed tries that were followed by another.
    pub retries: u64,
    /// Redirects followed, to a changed region or another leader.
    pub redirects: u64,
    /// Sessions opened to region servers, the first ones included.
    pub sessions_opened: u64,
    /// Reads that were sent to a second member because the first took long.
    pub hedged_reads: u64,
}

/// The live counters. Nothing is derived from their order, so relaxed ordering is enough.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) master_lookups: Count,
    pub(crate) master_calls: Count,
    pub(crate) requests: Count,
    pub(crate) retries: Count,
    pub(crate) redirects: Count,
    pub(crate) sessions_opened: Count,
    pub(crate) hedged_reads: Count,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counting {
    pub(crate) fn read(&self) -> Counters {
        Counters {
            master_lookups: self.master_lookups.read(),
            master_calls: self.master_calls.read(),
            requests: self.requests.read(),
            retries: self.retries.read(),
            redirects: self.redirects.read(),
            sessions_opened: self.sessions_opened.read(),
            hedged_reads: self.hedged_reads.read(),
        }
    }
}
