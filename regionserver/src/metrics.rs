//! The numbers a region server shows: few, each with a help text, in one registry per server.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
}

impl Metrics {
    /// The numbers and the registry that shows them.
    pub fn registered() -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("terrane_server");
        metrics.register_counters(&mut registry);
        metrics.register_gauges(&mut registry);
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
            ("compaction_bytes_pending", "Bytes that wait to be compacted", &self.compaction_bytes_pending),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
    }
}
