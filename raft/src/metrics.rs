//! The metrics of a host: how long proposals spend on each part of their way, and how groups and log stand.
//!
//! Durations are counted where they end, without a lock. Everything else is published from time to time
//! ([`crate::Host::publish_metrics`]), so a scrape costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_metrics::Histogram;
use terrane_metrics::list::raft as list;

use crate::{GroupStatus, LogStatus};

/// How long a proposal that took effect spent on each part of its way, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// In the queue, until it was packed into an entry.
    pub queue_ns: u64,
    /// In flight, until a quorum had synced the entry and it was about to be applied.
    pub commit_ns: u64,
    /// While the entry was applied, together with its neighbours.
    pub apply_ns: u64,
}

/// The metrics of one host.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) queue: Histogram,
    pub(crate) commit: Histogram,
    pub(crate) log_sync: Histogram,
    pub(crate) apply: Histogram,
    pub(crate) leaderships: Counter,
    pub(crate) unreadable_messages: Counter,
    groups: Gauge,
    groups_without_leader: Gauge,
    failed_replicas: Gauge,
    stuck_replicas: Gauge,
    unapplied_entries: Gauge,
    log_entries: Counter,
    log_written: Counter,
    log_segments: Gauge,
    clock_error: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Exposes them.
    pub fn register(&self, registry: &mut Registry) {
        let histograms = [
            (&list::QUEUE, &self.queue),
            (&list::COMMIT, &self.commit),
            (&list::LOG_SYNC, &self.log_sync),
            (&list::APPLY, &self.apply),
        ];
        histograms.into_iter().for_each(|(described, metric)| described.register(registry, metric.clone()));
        let counters = [
            (&list::LEADERSHIPS, &self.leaderships),
            (&list::UNREADABLE_MESSAGES, &self.unreadable_messages),
            (&list::LOG_ENTRIES, &self.log_entries),
            (&list::LOG_WRITTEN, &self.log_written),
        ];
        counters.into_iter().for_each(|(described, metric)| described.register(registry, metric.clone()));
        let gauges = [
            (&list::GROUPS, &self.groups),
            (&list::GROUPS_WITHOUT_LEADER, &self.groups_without_leader),
            (&list::FAILED_REPLICAS, &self.failed_replicas),
            (&list::STUCK_REPLICAS, &self.stuck_replicas),
            (&list::APPLY_LAG, &self.unapplied_entries),
            (&list::LOG_SEGMENTS, &self.log_segments),
        ];
        gauges.into_iter().for_each(|(described, metric)| described.register(registry, metric.clone()));
        list::CLOCK_ERROR.register(registry, self.clock_error.clone());
    }

    /// How far the clock of this process is ahead of others.
    #[allow(clippy::cast_precision_loss, reason = "an error of years is not told to the millisecond")]
    pub(crate) fn set_clock_error(&self, ms: i64) {
        self.clock_error.set(ms as f64 / 1000.0);
    }

    /// Shows the present state.
    pub(crate) fn publish(&self, groups: &[GroupStatus], log: &LogStatus) {
        let count = |of: &dyn Fn(&GroupStatus) -> bool| shown(groups.iter().filter(|group| of(group)).count() as u64);
        self.groups.set(shown(groups.len() as u64));
        self.groups_without_leader.set(count(&|group| group.leader.is_none()));
        self.failed_replicas.set(count(&|group| group.failed.is_some()));
        self.stuck_replicas.set(count(&|group| group.stuck.is_some()));
        let unapplied = groups.iter().map(|group| group.committed.saturating_sub(group.applied)).sum();
        self.unapplied_entries.set(shown(unapplied));
        self.log_entries.inner().store(log.entries, Ordering::Relaxed);
        self.log_written.inner().store(log.written, Ordering::Relaxed);
        self.log_segments.set(shown(log.segments));
    }
}

fn shown(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
