//! What the catalog knows as rows of `hbase:meta` or `hbase:namespace`, and what one read takes of them.

use std::cmp::Ordering;

use bytes::Bytes;

use super::cells::Row;
use super::order::MetaRow;
use super::rows::{RegionRow, StateRow, render_namespace};
use crate::proto;

/// Which rows a scan wants, in the direction of the scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins; empty: at the first row, or the last one of a reversed scan.
    pub start: Bytes,
    /// Whether the row at `start` belongs to it.
    pub include_start: bool,
    /// Where it ends; empty: at the end.
    pub stop: Bytes,
    /// Whether the row at `stop` belongs to it.
    pub include_stop: bool,
    /// Whether it goes down.
    pub reversed: bool,
}

impl Span {
    /// The single row with this key.
    #[must_use]
    pub fn row(key: Bytes) -> Self {
        Self { start: key.clone(), include_start: true, stop: key, include_stop: true, reversed: false }
    }

    fn contains(&self, key: &[u8], compare: Compare) -> bool {
        let ahead = |order: Ordering| if self.reversed { order.reverse() } else { order };
        let from_start = if self.start.is_empty() {
            true
        } else {
            match ahead(compare(key, &self.start)) {
                Ordering::Greater => true,
                Ordering::Equal => self.include_start,
                Ordering::Less => false,
            }
        };
        let to_stop = || match ahead(compare(key, &self.stop)) {
            Ordering::Less => true,
            Ordering::Equal => self.include_stop,
            Ordering::Greater => false,
        };
        from_start && (self.stop.is_empty() || to_stop())
    }
}

/// The order of a table's rows.
type Compare = fn(&[u8], &[u8]) -> Ordering;

#[derive(Clone, Debug)]
enum Entry {
    Region(RegionRow),
    State(StateRow),
    Namespace(proto::NamespaceDescriptor),
}

/// All rows of a table at one time. They are rendered only when they are read.
#[derive(Clone, Debug)]
pub struct View {
    /// In the order of the keys.
    entries: Vec<(Bytes, Entry)>,
    compare: Compare,
    timestamp: i64,
}

impl View {
    /// `hbase:meta` of a complete catalog. Its cells have this timestamp.
    #[must_use]
    pub fn of_meta(regions: Vec<RegionRow>, tables: Vec<StateRow>, timestamp: i64) -> Self {
        let regions = regions.into_iter().map(|region| (region.key(), Entry::Region(region)));
        let tables = tables.into_iter().map(|table| (Bytes::from(table.table.to_string()), Entry::State(table)));
        Self::new(regions.chain(tables).collect(), MetaRow::compare, timestamp)
    }

    /// `hbase:namespace` of a complete catalog. Its cells have this timestamp.
    #[must_use]
    pub fn of_namespaces(namespaces: Vec<proto::NamespaceDescriptor>, timestamp: i64) -> Self {
        let entries = namespaces.into_iter().map(|namespace| (namespace.name.clone(), Entry::Namespace(namespace)));
        Self::new(entries.collect(), |one, other| one.cmp(other), timestamp)
    }

    fn new(mut entries: Vec<(Bytes, Entry)>, compare: Compare, timestamp: i64) -> Self {
        entries.sort_by(|(one, _), (other, _)| compare(one, other));
        Self { entries, compare, timestamp }
    }

    /// The rows of a scan, in its direction. Rows without a wanted cell are left out.
    pub fn scan(&self, span: Span, rows: Rows) -> impl Iterator<Item = Row> {
        // The rows of a span are contiguous.
        let inside = |(key, _): &&(Bytes, Entry)| span.contains(key, self.compare);
        let first = self.entries.iter().position(|entry| inside(&entry)).unwrap_or(self.entries.len());
        let count = self.entries[first..].iter().take_while(inside).count();
        let mut inside = self.entries[first..first + count].iter();
        std::iter::from_fn(move || if span.reversed { inside.next_back() } else { inside.next() })
            .filter_map(move |(_, entry)| rows.of(self.render(entry)))
    }

    fn render(&self, entry: &Entry) -> Row {
        match entry {
            Entry::Region(region) => region.render(self.timestamp),
            Entry::State(state) => state.render(self.timestamp),
            Entry::Namespace(namespace) => render_namespace(namespace, self.timestamp),
        }
    }
}

/// Which cells a read wants: families, each with some qualifiers or with all. No family at all means every column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The lowest timestamp, and the first one above those wanted.
    pub times: (i64, i64),
    /// The same of single families, instead of those of all.
    pub family_times: Vec<(Bytes, (i64, i64))>,
    /// The families with their qualifiers; without qualifiers: all of the family.
    pub columns: Vec<(Bytes, Vec<Bytes>)>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { times: (0, i64::MAX), family_times: Vec::new(), columns: Vec::new() }
    }
}

impl Rows {
    fn of(&self, mut row: Row) -> Option<Row> {
        row.cells.retain(|cell| {
            let of_family = self.family_times.iter().find(|(family, _)| &family[..] == cell.family);
            let (from, to) = of_family.map_or(self.times, |(_, times)| *times);
            (from..to).contains(&cell.timestamp)
        });
        if !self.columns.is_empty() {
            row.cells.retain(|cell| {
                self.columns.iter().any(|(family, qualifiers)| {
                    &family[..] == cell.family
                        && (qualifiers.is_empty() || qualifiers.iter().any(|name| &name[..] == cell.qualifier))
                })
            });
        }
        (!row.cells.is_empty()).then_some(row)
    }
}

#[cfg(test)]
mod tests;
