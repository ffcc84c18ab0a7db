//! Metrics by table, for a bounded number of tables.
//!
//! Regions count what is requested of them in any case; their counts are added up by table with each report, so a request
//! pays nothing more. A region that splits, merges or leaves takes with it what it counted since the last report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_metrics::list::server as list;
use terrane_metrics::{OTHER_TABLES, TABLES_MAX};
use terrane_types::{GroupId, RegionId};

use crate::region::load::Load;

/// The table that a metric is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct TableLabels {
    table: String,
}

/// The tables that have series of their own: the first that came, while they are here.
#[derive(Debug, Default)]
pub struct NamedTables {
    names: BTreeSet<String>,
}

impl NamedTables {
    /// Forgets tables that are not here any more.
    pub fn retain(&mut self, here: &BTreeSet<String>) {
        self.names.retain(|name| here.contains(name));
    }

    /// The label for a table.
    pub fn label(&mut self, table: &str) -> String {
        if self.names.contains(table) || (self.names.len() < TABLES_MAX && self.names.insert(table.to_owned())) {
            return table.to_owned();
        }
        OTHER_TABLES.to_owned()
    }
}

/// A region's share in the counts of its table.
#[derive(Clone, Debug)]
pub struct TableCounts {
    pub table: String,
    pub region: RegionId,
    pub group: GroupId,
    /// What was requested of it since this server opened it, in total.
    pub requested: Load,
    /// Bytes of its files and memtables.
    pub bytes: u64,
}

/// The metrics by table.
#[derive(Default)]
pub struct Tables {
    rows_read: Family<TableLabels, Counter>,
    rows_written: Family<TableLabels, Counter>,
    bytes: Family<TableLabels, Counter>,
    regions: Family<TableLabels, Gauge>,
    size: Family<TableLabels, Gauge>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    named: NamedTables,
    /// What each region had counted at the last look.
    regions: BTreeMap<(RegionId, GroupId), Load>,
    shown: BTreeSet<TableLabels>,
}

impl Tables {
    /// Adds what the regions have counted since the last call. `with` runs with the choice of named tables.
    pub fn publish(&self, regions: &[TableCounts], with: impl FnOnce(&mut NamedTables)) {
        let mut seen = self.seen.lock();
        let here: BTreeSet<String> = regions.iter().map(|region| region.table.clone()).collect();
        seen.named.retain(&here);
        let mut sizes: BTreeMap<TableLabels, (i64, i64)> = BTreeMap::new();
        let before = std::mem::take(&mut seen.regions);
        for region in regions {
            let labels = TableLabels { table: seen.named.label(&region.table) };
            let size = sizes.entry(labels.clone()).or_default();
            size.0 += 1;
            size.1 = size.1.saturating_add(i64::try_from(region.bytes).unwrap_or(i64::MAX));
            let key = (region.region, region.group);
            let last = before.get(&key).copied().unwrap_or_default();
            seen.regions.insert(key, region.requested);
            // A region that was closed and opened again counts from 0.
            let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            let add = |family: &Family<TableLabels, Counter>, more: u64| {
                family.get_or_create(&labels).inner().fetch_add(more, Ordering::Relaxed);
            };
            add(&self.rows_read, grown(region.requested.rows_read, last.rows_read));
            add(&self.rows_written, grown(region.requested.rows_written, last.rows_written));
            add(&self.bytes, grown(region.requested.bytes, last.bytes));
        }
        for gone in seen.shown.iter().filter(|shown| !sizes.contains_key(shown)) {
            for family in [&self.rows_read, &self.rows_written, &self.bytes] {
                family.remove(gone);
            }
            for family in [&self.regions, &self.size] {
                family.remove(gone);
            }
        }
        seen.shown = sizes.keys().cloned().collect();
        for (labels, (regions, bytes)) in sizes {
            self.regions.get_or_create(&labels).set(regions);
            self.size.get_or_create(&labels).set(bytes);
        }
        with(&mut seen.named);
    }

    pub fn register(&self, registry: &mut Registry) {
        list::TABLE_ROWS_READ.register(registry, self.rows_read.clone());
        list::TABLE_ROWS_WRITTEN.register(registry, self.rows_written.clone());
        list::TABLE_BYTES.register(registry, self.bytes.clone());
        list::TABLE_REGIONS.register(registry, self.regions.clone());
        list::TABLE_SIZE.register(registry, self.size.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(table: &str, region: u64, rows_read: u64) -> TableCounts {
        let requested = Load { rows_read, ..Load::default() };
        TableCounts { table: table.to_owned(), region: RegionId(region), group: GroupId(1), requested, bytes: 10 }
    }

    fn shown(tables: &Tables) -> String {
        let mut registry = Registry::default();
        tables.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn regions_are_added_up_and_counters_never_go_back() {
        let tables = Tables::default();
        tables.publish(&[counts("t", 1, 5), counts("t", 2, 7)], |_| {});
        // One region has been split away, the other one was opened again.
        tables.publish(&[counts("t", 2, 3)], |_| {});
        let text = shown(&tables);
        assert!(text.contains(r#"terrane_server_table_rows_read_total{table="t"} 15"#), "{text}");
        assert!(text.contains(r#"terrane_server_table_regions{table="t"} 1"#), "{text}");
        assert!(text.contains(r#"terrane_server_table_size_bytes{table="t"} 10"#), "{text}");
    }

    #[test]
    fn tables_beyond_the_bound_are_added_up_until_there_is_room() {
        let tables = Tables::default();
        let many: Vec<_> = (0..TABLES_MAX + 2).map(|n| counts(&format!("t{n}"), n as u64, 1)).collect();
        tables.publish(&many, |_| {});
        assert!(shown(&tables).contains(r#"terrane_server_table_rows_read_total{table="other"} 2"#));
        tables.publish(&many[2..], |_| {});
        let text = shown(&tables);
        assert!(!text.contains(r#"table="other""#) && !text.contains(r#"table="t0""#), "{text}");
    }
}
