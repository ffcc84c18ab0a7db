//! The numbers a region server shows: few, each with a help text, in one registry per server.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_engine::FamilyReadCounts;
use terrane_env::budget::Usage;

/// Whose reads a number is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
pub struct OfFamily {
    /// The table's name.
    pub table: String,
    /// The family's.
    pub family: String,
}

/// What reads of each family have met, as the engine counted it.
#[derive(Default)]
pub struct FamilyReads {
    cache_hits: Family<OfFamily, Gauge>,
    cache_misses: Family<OfFamily, Gauge>,
    bytes_read: Family<OfFamily, Gauge>,
    filtered: Family<OfFamily, Gauge>,
    passed_in_vain: Family<OfFamily, Gauge>,
    shown: Mutex<BTreeSet<OfFamily>>,
}

impl FamilyReads {
    /// Shows these counts; families that are not among them are shown no longer.
    pub fn show(&self, counts: Vec<(OfFamily, FamilyReadCounts)>) {
        let mut shown = self.shown.lock();
        let now: BTreeSet<OfFamily> = counts.iter().map(|(of, _)| of.clone()).collect();
        for gone in shown.difference(&now) {
            self.each().iter().for_each(|(_, _, family)| {
                family.remove(gone);
            });
        }
        for (of, counts) in counts {
            let set = |family: &Family<OfFamily, Gauge>, count: u64| {
                family.get_or_create(&of).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set(&self.cache_hits, counts.hits);
            set(&self.cache_misses, counts.misses);
            set(&self.bytes_read, counts.read_bytes);
            set(&self.filtered, counts.filtered);
            set(&self.passed_in_vain, counts.passed_in_vain);
        }
        *shown = now;
    }

    fn each(&self) -> [(&'static str, &'static str, &Family<OfFamily, Gauge>); 5] {
        [
            ("cache_hits", "Blocks that reads found in the cache", &self.cache_hits),
            ("cache_misses", "Blocks that reads took from the disk", &self.cache_misses),
            ("bytes_read", "Bytes of the blocks that reads took from the disk", &self.bytes_read),
            ("files_filtered", "Files that bloom filters kept reads from", &self.filtered),
            ("files_passed_in_vain", "Files that bloom filters let reads look into in vain", &self.passed_in_vain),
        ]
    }
}

/// The limited resource that a number is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfResource {
    /// Its name, as in `docs/design/bounds.md`.
    pub resource: &'static str,
}

/// How full each limited resource is.
#[derive(Default)]
pub struct Resources {
    used: Family<OfResource, Gauge>,
    peak: Family<OfResource, Gauge>,
    limit: Family<OfResource, Gauge>,
    refused: Family<OfResource, Gauge>,
}

impl Resources {
    /// Shows these numbers.
    pub fn show(&self, usages: &[Usage]) {
        for usage in usages {
            let of = OfResource { resource: usage.name };
            let set = |family: &Family<OfResource, Gauge>, number: u64| {
                family.get_or_create(&of).set(i64::try_from(number).unwrap_or(i64::MAX));
            };
            set(&self.used, usage.used);
            set(&self.peak, usage.peak);
            set(&self.limit, usage.limit);
            set(&self.refused, usage.refused);
        }
    }

    fn each(&self) -> [(&'static str, &'static str, &Family<OfResource, Gauge>); 4] {
        [
            ("resource_used", "How much of a limited resource is in use", &self.used),
            ("resource_peak", "The most of a limited resource that was in use since the start", &self.peak),
            ("resource_limit", "The limit of a resource", &self.limit),
            ("resource_refused", "Requests refused for lack of a resource since the start", &self.refused),
        ]
    }
}

/// Counters and gauges; cheap to touch from any path.
#[derive(Default)]
pub struct Metrics {
    pub rows_written: Counter,
    pub rows_got: Counter,
    pub rows_scanned: Counter,
    pub refused: Counter,
    pub flushes: Counter,
    pub splits: Counter,
    pub regions: Gauge,
    pub groups_led: Gauge,
    pub memtable_bytes: Gauge,
    pub log_bytes: Gauge,
    pub log_syncs: Gauge,
    pub writes_in_flight: Gauge,
    pub write_pressure: Gauge,
    pub compactions: Gauge,
    pub compaction_bytes_read: Gauge,
    pub compaction_bytes_written: Gauge,
    pub compaction_bytes_pending: Gauge,
    pub cache_bytes: Gauge,
    pub family_reads: FamilyReads,
    pub resources: Resources,
}

impl Metrics {
    /// The numbers and the registry that shows them.
    pub fn registered() -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("terrane_server");
        metrics.register_counters(&mut registry);
        metrics.register_gauges(&mut registry);
        for (name, help, family) in metrics.family_reads.each() {
            registry.register(name, help, family.clone());
        }
        for (name, help, family) in metrics.resources.each() {
            registry.register(name, help, family.clone());
        }
        (Arc::new(metrics), Arc::new(registry))
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            ("rows_written", "Row mutations acknowledged by this server as leader", &self.rows_written),
            ("rows_got", "Rows asked for by key", &self.rows_got),
            ("rows_scanned", "Rows sent or counted by scans", &self.rows_scanned),
            ("requests_refused", "Requests answered with an error", &self.refused),
            ("flushes", "Flushes of regions finished", &self.flushes),
            ("splits", "Splits of regions applied", &self.splits),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let gauges = [
            ("regions", "Regions with a replica here", &self.regions),
            ("groups_led", "Log groups led by this server", &self.groups_led),
            ("memtable_bytes", "Bytes of cells not flushed yet", &self.memtable_bytes),
            ("log_bytes", "Bytes of the shared log on disk", &self.log_bytes),
            ("log_syncs", "Syncs of the shared log since the start", &self.log_syncs),
            ("writes_in_flight", "Writes proposed and not answered yet", &self.writes_in_flight),
            (
                "write_pressure",
                "How hard writes are held back: 0 not at all, 1000 they are refused",
                &self.write_pressure,
            ),
            ("compactions", "Compactions since the start", &self.compactions),
            ("compaction_bytes_read", "Bytes read by compactions since the start", &self.compaction_bytes_read),
            (
                "compaction_bytes_written",
                "Bytes written by compactions since the start",
                &self.compaction_bytes_written,
            ),
            ("cache_bytes", "Bytes of blocks in the cache", &self.cache_bytes),
            ("compaction_bytes_pending", "Bytes that wait to be compacted", &self.compaction_bytes_pending),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_shown_by_table_and_family_for_as_long_as_there_are_such() {
        let (metrics, registry) = Metrics::registered();
        let of = |family: &str| OfFamily { table: "t".to_owned(), family: family.to_owned() };
        let counts = FamilyReadCounts { hits: 7, ..FamilyReadCounts::default() };
        metrics.family_reads.show(vec![(of("f"), counts), (of("g"), counts)]);
        metrics.family_reads.show(vec![(of("g"), counts)]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"terrane_server_cache_hits{table="t",family="g"} 7"#), "{text}");
        assert!(!text.contains(r#"family="f""#), "{text}");
    }
}
