//! Watches the free space of the disk: refuses writes and holds compactions off before the reserve is used up.

use std::time::Duration;

use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_raft::{Abstention, Weight};
use terrane_types::IssueKind;
use tokio::time::Instant;

use super::disk_space::Assessment;
use super::{Background, Finished, InFlight};

/// How often the disk's free space is read.
pub(super) const DISK_INTERVAL: Duration = Duration::from_secs(1);

/// Names the reason why this server abstains from leading.
const DISK: &str = "disk";

impl Background {
    /// Reads the disk's free space when it is due.
    pub(super) fn start_disk_check(&self, in_flight: &mut InFlight) {
        if !in_flight.disk_check.is_due(Instant::now()) {
            return;
        }
        let directory = self.data_dir.clone();
        in_flight.push(async move {
            let sizes =
                run_io(async move { Ok((fs::free_space(&directory).await?, fs::total_space(&directory).await?)) });
            Finished::DiskCheck(sizes.await)
        });
    }

    /// Acts on the disk's free and total bytes.
    pub(super) fn apply_disk_check(&self, in_flight: &mut InFlight, sizes: std::io::Result<(u64, u64)>) {
        self.disk_free.set(sizes.as_ref().ok().map(|(free, _)| *free));
        if let Ok((free, total)) = &sizes {
            self.metrics.set_disk(*free, *total);
        }
        let Assessment { full, low, refuses_followed_entries, available } = match sizes {
            Ok((free, total)) => in_flight.disk_space.assess(&self.data_dir, free, total),
            Err(error) => {
                // Writes continue: a disk that is really full fails them by itself.
                tracing::debug!(%error, "cannot read the free space of the disk");
                return;
            }
        };
        let reason = full.or_else(|| self.host.log_lacks_space());
        match &reason {
            Some(reason) if self.health.set(IssueKind::DiskFull.issue(reason.as_str())) => tracing::error!("{reason}"),
            None if self.health.clear(IssueKind::DiskFull, None) => {
                tracing::info!("the disk has free space again; writes resume")
            }
            _ => {}
        }
        match low.filter(|_| reason.is_none()) {
            Some(low) if self.health.set(IssueKind::DiskLow.issue(low.as_str())) => tracing::warn!("{low}"),
            None if self.health.clear(IssueKind::DiskLow, None) => tracing::info!("the disk is no longer nearly full"),
            _ => {}
        }
        self.limit_compactions(available);
        self.host.set_disk_reserved(reason.clone().filter(|_| refuses_followed_entries));
        let abstention = |reason| Abstention { reason, weight: Weight::Soft };
        self.host.set_abstains(DISK, reason.clone().map(abstention));
        self.admission.set_disk_full(reason);
    }

    /// Keeps compactions out of the reserve, and reports when one waits for space.
    fn limit_compactions(&self, available: u64) {
        self.engine.set_compaction_headroom(available);
        let Some(needed) = self.engine.compaction_waits_for() else {
            if self.health.clear(IssueKind::CompactionSpace, None) {
                tracing::info!("compactions have disk space again");
            }
            return;
        };
        let sentence = format!(
            "a compaction in {} waits for disk space: it needs {} MiB, and {} MiB are free above the reserve",
            self.data_dir.display(),
            needed.div_ceil(1 << 20),
            available >> 20
        );
        if self.health.set(IssueKind::CompactionSpace.issue(sentence.as_str())) {
            tracing::warn!("{sentence}");
        }
        // Whether it fits now shows at the next search.
        self.signals.request_compaction();
    }
}
