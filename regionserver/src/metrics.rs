//! The metrics of a region server, each with a help text, in one registry per server.
//!
//! Names follow the usual rules: base units in the name, and `_total` for what only grows (the exposition adds it to
//! counters). Counts kept elsewhere, by the engine and the log, are copied over with each report to the master.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_engine::FamilyReadCounts;
use terrane_env::budget::Usage;

/// The column family a metric is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct FamilyLabels {
    /// The table's name.
    pub table: String,
    /// The family's name.
    pub family: String,
}

/// How reads of each family went, as counted by the engine.
#[derive(Default)]
pub struct FamilyReads {
    cache_hits: Family<FamilyLabels, Counter>,
    cache_misses: Family<FamilyLabels, Counter>,
    read_bytes: Family<FamilyLabels, Counter>,
    bloom_negatives: Family<FamilyLabels, Counter>,
    bloom_false_positives: Family<FamilyLabels, Counter>,
    shown: Mutex<BTreeSet<FamilyLabels>>,
}

impl FamilyReads {
    /// Publishes these counts and drops families that are not among them.
    pub fn publish(&self, counts: Vec<(FamilyLabels, FamilyReadCounts)>) {
        let mut shown = self.shown.lock();
        let now: BTreeSet<FamilyLabels> = counts.iter().map(|(labels, _)| labels.clone()).collect();
        for gone in shown.difference(&now) {
            self.each().iter().for_each(|(_, _, family)| {
                family.remove(gone);
            });
        }
        for (labels, counts) in counts {
            let set = |family: &Family<FamilyLabels, Counter>, count| set_total(&family.get_or_create(&labels), count);
            set(&self.cache_hits, counts.hits);
            set(&self.cache_misses, counts.misses);
            set(&self.read_bytes, counts.read_bytes);
            set(&self.bloom_negatives, counts.filtered);
            set(&self.bloom_false_positives, counts.false_positives);
        }
        *shown = now;
    }

    fn each(&self) -> [(&'static str, &'static str, &Family<FamilyLabels, Counter>); 5] {
        [
            ("block_cache_hits", "Blocks that reads found in the block cache", &self.cache_hits),
            ("block_cache_misses", "Blocks that reads fetched from disk", &self.cache_misses),
            ("block_read_bytes", "Bytes of the blocks that reads fetched from disk", &self.read_bytes),
            ("bloom_negatives", "Store files that bloom filters let reads skip", &self.bloom_negatives),
            (
                "bloom_false_positives",
                "Store files that reads searched because of a bloom filter, and that did not hold the row",
                &self.bloom_false_positives,
            ),
        ]
    }
}

/// The limited resource a metric is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ResourceLabels {
    /// Its name, as in `docs/design/bounds.md`.
    pub resource: &'static str,
}

/// How much of each limited resource is in use.
#[derive(Default)]
pub struct Resources {
    used: Family<ResourceLabels, Gauge>,
    peak: Family<ResourceLabels, Gauge>,
    limit: Family<ResourceLabels, Gauge>,
    rejections: Family<ResourceLabels, Counter>,
}

impl Resources {
    /// Publishes the present usage.
    pub fn publish(&self, usages: &[Usage]) {
        for usage in usages {
            let labels = ResourceLabels { resource: usage.name };
            let set = |family: &Family<ResourceLabels, Gauge>, number| {
                family.get_or_create(&labels).set(saturating(number));
            };
            set(&self.used, usage.used);
            set(&self.peak, usage.peak);
            set(&self.limit, usage.limit);
            set_total(&self.rejections.get_or_create(&labels), usage.refused);
        }
    }

    fn register(&self, registry: &mut Registry) {
        let gauges = [
            ("resource_used", "Present usage of a limited resource, in bytes or units", &self.used),
            ("resource_peak", "Highest usage of a limited resource since the start", &self.peak),
            ("resource_limit", "Limit of a resource", &self.limit),
        ];
        for (name, help, family) in gauges {
            registry.register(name, help, family.clone());
        }
        let help = "Requests rejected because a resource was at its limit";
        registry.register("resource_rejections", help, self.rejections.clone());
    }
}

/// Counters and gauges. Any path may update them: an update is one atomic operation.
#[derive(Default)]
pub struct Metrics {
    pub rows_written: Counter,
    pub rows_got: Counter,
    pub rows_scanned: Counter,
    pub refused: Counter,
    pub flushes: Counter,
    pub splits: Counter,
    pub merges: Counter,
    pub regions_adopted: Counter,
    pub damaged_replicas: Counter,
    pub regions: Gauge,
    pub groups_led: Gauge,
    pub memtable_bytes: Gauge,
    pub log_bytes: Gauge,
    log_syncs: Counter,
    pub writes_in_flight: Gauge,
    write_pressure: Gauge<f64, AtomicU64>,
    compactions: Counter,
    compaction_read_bytes: Counter,
    compaction_written_bytes: Counter,
    compaction_pending_bytes: Gauge,
    pub block_cache_bytes: Gauge,
    /// The feature level of the cluster, as this server knows it.
    pub feature_level: Gauge,
    pub family_reads: FamilyReads,
    pub resources: Resources,
}

impl Metrics {
    /// The metrics and the registry that exposes them.
    pub fn registered() -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("terrane_server");
        metrics.register_counters(&mut registry);
        metrics.register_gauges(&mut registry);
        for (name, help, family) in metrics.family_reads.each() {
            registry.register(name, help, family.clone());
        }
        metrics.resources.register(&mut registry);
        (Arc::new(metrics), Arc::new(registry))
    }

    /// Syncs of the shared log since the start.
    pub fn set_log_syncs(&self, syncs: u64) {
        set_total(&self.log_syncs, syncs);
    }

    /// How hard writes are held back, in thousandths.
    pub fn set_write_pressure(&self, thousandths: u32) {
        self.write_pressure.set(f64::from(thousandths) / 1000.0);
    }

    /// The engine's compaction counts since the start.
    pub fn set_compactions(&self, totals: &terrane_engine::CompactionTotals) {
        set_total(&self.compactions, totals.compactions);
        set_total(&self.compaction_read_bytes, totals.bytes_read);
        set_total(&self.compaction_written_bytes, totals.bytes_written);
        self.compaction_pending_bytes.set(saturating(totals.bytes_pending));
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            ("rows_written", "Row mutations that this server acknowledged as a leader", &self.rows_written),
            ("rows_got", "Rows requested by gets", &self.rows_got),
            ("rows_scanned", "Rows returned or counted by scans", &self.rows_scanned),
            ("request_errors", "Requests answered with an error", &self.refused),
            ("flushes", "Flushes of regions that ended", &self.flushes),
            ("splits", "Splits of regions applied", &self.splits),
            ("merges", "Merges of neighbouring regions applied", &self.merges),
            ("regions_adopted", "Regions taken in from other groups", &self.regions_adopted),
            ("damaged_replicas", "Replicas with damaged files that left this server", &self.damaged_replicas),
            ("log_syncs", "Syncs of the shared log", &self.log_syncs),
            ("compactions", "Compactions that ended", &self.compactions),
            ("compaction_read_bytes", "Bytes read by compactions", &self.compaction_read_bytes),
            ("compaction_written_bytes", "Bytes written by compactions", &self.compaction_written_bytes),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let gauges = [
            ("regions", "Regions with a replica on this server", &self.regions),
            ("groups_led", "Log groups that this server leads", &self.groups_led),
            ("memtable_bytes", "Bytes of cells in memory that are not flushed yet", &self.memtable_bytes),
            ("log_bytes", "Bytes of the shared log on disk", &self.log_bytes),
            ("writes_in_flight", "Writes proposed and not yet answered", &self.writes_in_flight),
            ("block_cache_bytes", "Bytes of blocks in the block cache", &self.block_cache_bytes),
            ("compaction_pending_bytes", "Bytes waiting to be compacted", &self.compaction_pending_bytes),
            ("feature_level", "Feature level of the cluster, as this server knows it", &self.feature_level),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let help = "How hard writes are held back: 0 is not at all, at 1 they are rejected";
        registry.register("write_pressure_ratio", help, self.write_pressure.clone());
    }
}

/// Sets a counter to a total that is counted elsewhere.
fn set_total(counter: &Counter, total: u64) {
    counter.inner().store(total, Ordering::Relaxed);
}

fn saturating(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_shown_by_table_and_family_while_the_family_exists() {
        let (metrics, registry) = Metrics::registered();
        let labels = |family: &str| FamilyLabels { table: "t".to_owned(), family: family.to_owned() };
        let counts = FamilyReadCounts { hits: 7, ..FamilyReadCounts::default() };
        metrics.family_reads.publish(vec![(labels("f"), counts), (labels("g"), counts)]);
        metrics.family_reads.publish(vec![(labels("g"), counts)]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"terrane_server_block_cache_hits_total{table="t",family="g"} 7"#), "{text}");
        assert!(!text.contains(r#"family="f""#), "{text}");
    }
}
