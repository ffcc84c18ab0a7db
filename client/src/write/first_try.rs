//! When an operation was first tried.

use tokio::time::Instant;

/// When an operation was first tried, by the clocks of servers. A server decides by its own clock whether it may have dropped
/// its record of an operation. Clocks differ, so a retry names the earliest time that the first try had on any server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstTry {
    /// Cluster time in milliseconds: the earliest, by the clocks of all servers the operation was sent to.
    pub(crate) cluster_ms: u64,
    at: Instant,
}

impl FirstTry {
    /// The first try is now, when a server's clock shows `cluster_ms`.
    pub(crate) fn now(cluster_ms: u64) -> Self {
        Self { cluster_ms, at: Instant::now() }
    }

    /// The operation is sent again, to a server whose clock shows `cluster_ms`.
    pub(crate) fn seen_by(&mut self, cluster_ms: u64) {
        let passed = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Part of a millisecond counts as a whole one: too early is safe.
        self.cluster_ms = self.cluster_ms.min(cluster_ms.saturating_sub(passed.saturating_add(1)));
    }
}
