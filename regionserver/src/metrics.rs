//! The metrics of a region server, in one registry per server. What each of them means is in `terrane_metrics::list`.
//!
//! Counts kept elsewhere, by the engine and the log, are copied over with each report to the master.

mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_engine::FamilyReadCounts;
use terrane_metrics::list::server as list;
use terrane_metrics::{Description, Histogram, Histograms, IssueCounts, OTHER_TABLES, Resources, register_build};
use terrane_proto::versions::BUILD;
use terrane_types::versions::Levels;

use self::tables::NamedTables;
pub use self::tables::{TableCounts, Tables};

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
    /// Publishes these counts and drops families that are not among them. Those of tables beyond the bound are added up,
    /// all their families together.
    pub fn publish(&self, named: &mut NamedTables, all: Vec<(FamilyLabels, FamilyReadCounts)>) {
        let mut counts: BTreeMap<FamilyLabels, FamilyReadCounts> = BTreeMap::new();
        for (labels, count) in all {
            let table = named.label(&labels.table);
            let is_named = table == labels.table;
            let family = if is_named { labels.family } else { OTHER_TABLES.to_owned() };
            add(counts.entry(FamilyLabels { table, family }).or_default(), &count);
        }
        let mut shown = self.shown.lock();
        let now: BTreeSet<FamilyLabels> = counts.keys().cloned().collect();
        for gone in shown.difference(&now) {
            self.each().iter().for_each(|(_, family)| {
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

    fn each(&self) -> [(&'static Description, &Family<FamilyLabels, Counter>); 5] {
        [
            (&list::CACHE_HITS, &self.cache_hits),
            (&list::CACHE_MISSES, &self.cache_misses),
            (&list::BLOCK_READ_BYTES, &self.read_bytes),
            (&list::BLOOM_NEGATIVES, &self.bloom_negatives),
            (&list::BLOOM_FALSE_POSITIVES, &self.bloom_false_positives),
        ]
    }
}

fn add(sum: &mut FamilyReadCounts, more: &FamilyReadCounts) {
    sum.hits += more.hits;
    sum.misses += more.misses;
    sum.read_bytes += more.read_bytes;
    sum.filtered += more.filtered;
    sum.false_positives += more.false_positives;
}

/// What a request of a client asks for, as far as latencies are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    /// One block of a scan.
    Scan,
    Write,
    /// A step of a bulk load.
    Bulk,
}

impl Operation {
    /// Their names, in the order of the variants.
    pub const NAMES: [&'static str; 4] = ["get", "scan", "write", "bulk"];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Latencies of requests and of the stages that this crate sees; the log's are in [`terrane_raft::Metrics`].
pub struct Latencies {
    requests: Histograms<4>,
    edge: Histograms<4>,
    read: Histograms<2>,
    pub read_point: Histogram,
}

impl Default for Latencies {
    fn default() -> Self {
        let [get, scan, ..] = Operation::NAMES;
        Self {
            requests: Histograms::new("operation", Operation::NAMES),
            edge: Histograms::new("operation", Operation::NAMES),
            read: Histograms::new("operation", [get, scan]),
            read_point: Histogram::default(),
        }
    }
}

impl Latencies {
    /// A request was answered.
    pub fn request(&self, operation: Operation, ns: u64) {
        self.requests.observe_ns(operation as usize, ns);
    }

    /// A request's work began so long after its arrival.
    pub fn edge(&self, operation: Operation, ns: u64) {
        self.edge.observe_ns(operation as usize, ns);
    }

    /// The engine took so long for a get or a block of a scan.
    pub fn read(&self, operation: Operation, ns: u64) {
        self.read.observe_ns(operation as usize, ns);
    }

    fn register(&self, registry: &mut Registry) {
        list::REQUESTS.register(registry, self.requests.clone());
        list::EDGE.register(registry, self.edge.clone());
        list::READ.register(registry, self.read.clone());
        list::READ_POINT.register(registry, self.read_point.clone());
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
    pub loads: Counter,
    pub load_bytes: Counter,
    pub load_rows: Counter,
    pub damaged_replicas: Counter,
    pub comparisons: Counter,
    pub comparisons_differing: Counter,
    pub compared_bytes: Counter,
    pub regions_compared: Gauge,
    pub comparison_age_seconds: Gauge,
    pub regions: Gauge,
    pub groups_led: Gauge,
    pub kept_views: Gauge,
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
    /// The health issues that the last report had.
    pub issues: IssueCounts,
    disk_free: Gauge,
    disk_size: Gauge,
    pub family_reads: FamilyReads,
    pub tables: Tables,
    pub resources: Resources,
    pub latencies: Latencies,
    pub slow_requests: Counter,
    /// The metrics of the log groups.
    pub raft: Arc<terrane_raft::Metrics>,
}

impl Metrics {
    /// The metrics and the registry that exposes them.
    pub fn registered() -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::default();
        metrics.register_counters(&mut registry);
        metrics.register_gauges(&mut registry);
        metrics.latencies.register(&mut registry);
        for (described, family) in metrics.family_reads.each() {
            described.register(&mut registry, family.clone());
        }
        metrics.tables.register(&mut registry);
        let resources = [&list::RESOURCE_USED, &list::RESOURCE_PEAK, &list::RESOURCE_LIMIT, &list::RESOURCE_REJECTIONS];
        metrics.resources.register(resources, &mut registry);
        metrics.raft.register(&mut registry);
        register_build(&mut registry, BUILD, Levels::BUILD.newest);
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

    /// Free bytes and size of the disk of the data directory.
    pub fn set_disk(&self, free: u64, size: u64) {
        self.disk_free.set(saturating(free));
        self.disk_size.set(saturating(size));
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
            (&list::ROWS_WRITTEN, &self.rows_written),
            (&list::ROWS_GOT, &self.rows_got),
            (&list::ROWS_SCANNED, &self.rows_scanned),
            (&list::REQUEST_ERRORS, &self.refused),
            (&list::SLOW, &self.slow_requests),
            (&list::FLUSHES, &self.flushes),
            (&list::SPLITS, &self.splits),
            (&list::MERGES, &self.merges),
            (&list::REGIONS_ADOPTED, &self.regions_adopted),
            (&list::LOADS, &self.loads),
            (&list::LOAD_BYTES, &self.load_bytes),
            (&list::LOAD_ROWS, &self.load_rows),
            (&list::DAMAGED_REPLICAS, &self.damaged_replicas),
            (&list::COMPARISONS, &self.comparisons),
            (&list::COMPARISONS_DIFFERING, &self.comparisons_differing),
            (&list::COMPARED_BYTES, &self.compared_bytes),
            (&list::LOG_SYNCS, &self.log_syncs),
            (&list::COMPACTIONS, &self.compactions),
            (&list::COMPACTION_READ, &self.compaction_read_bytes),
            (&list::COMPACTION_WRITTEN, &self.compaction_written_bytes),
        ];
        counters.into_iter().for_each(|(described, counter)| described.register(registry, counter.clone()));
    }

    fn register_gauges(&self, registry: &mut Registry) {
        let gauges = [
            (&list::REGIONS, &self.regions),
            (&list::GROUPS_LED, &self.groups_led),
            (&list::REGIONS_COMPARED, &self.regions_compared),
            (&list::COMPARISON_AGE, &self.comparison_age_seconds),
            (&list::KEPT_VIEWS, &self.kept_views),
            (&list::MEMTABLE_BYTES, &self.memtable_bytes),
            (&list::LOG_BYTES, &self.log_bytes),
            (&list::WRITES_IN_FLIGHT, &self.writes_in_flight),
            (&list::BLOCK_CACHE_BYTES, &self.block_cache_bytes),
            (&list::COMPACTION_PENDING, &self.compaction_pending_bytes),
            (&list::FEATURE_LEVEL, &self.feature_level),
            (&list::DISK_FREE, &self.disk_free),
            (&list::DISK_SIZE, &self.disk_size),
        ];
        gauges.into_iter().for_each(|(described, gauge)| described.register(registry, gauge.clone()));
        self.issues.register(&list::HEALTH_ISSUES, registry);
        list::WRITE_PRESSURE.register(registry, self.write_pressure.clone());
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
    use terrane_metrics::TABLES_MAX;

    use super::*;

    #[test]
    fn reads_are_shown_by_table_and_family_while_the_family_exists() {
        let (metrics, registry) = Metrics::registered();
        let labels = |family: &str| FamilyLabels { table: "t".to_owned(), family: family.to_owned() };
        let counts = FamilyReadCounts { hits: 7, ..FamilyReadCounts::default() };
        let mut named = NamedTables::default();
        metrics.family_reads.publish(&mut named, vec![(labels("f"), counts), (labels("g"), counts)]);
        metrics.family_reads.publish(&mut named, vec![(labels("g"), counts)]);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"terrane_server_block_cache_hits_total{table="t",family="g"} 7"#), "{text}");
        assert!(!text.contains(r#"family="f""#), "{text}");
    }

    #[test]
    fn reads_of_tables_beyond_the_bound_are_added_up() {
        let (metrics, registry) = Metrics::registered();
        let counts = FamilyReadCounts { hits: 1, ..FamilyReadCounts::default() };
        let labels =
            |table: usize, family: &str| FamilyLabels { table: format!("t{table}"), family: family.to_owned() };
        let tables = TABLES_MAX + 3;
        let all = (0..tables).flat_map(|table| [(labels(table, "f"), counts), (labels(table, "g"), counts)]);
        metrics.family_reads.publish(&mut NamedTables::default(), all.collect());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"terrane_server_block_cache_hits_total{table="other",family="other"} 6"#), "{text}");
        let series = text.lines().filter(|line| line.starts_with("terrane_server_block_cache_hits_total")).count();
        assert_eq!(series, 2 * TABLES_MAX + 1);
    }
}
