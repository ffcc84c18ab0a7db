//! The map: which region, in which group, has a row.
//!
//! A region's own log is authoritative; the map is an index that follows the reports of leaders. A claim (a reported
//! descriptor) enters the map only if its epoch is higher than those of all regions it overlaps.
//!
//! Invariant: the regions of a table always cover all keys, each key once. A split therefore enters the map when both
//! daughters are claimed, and a late report of the parent changes nothing, since the daughters have higher epochs.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_types::{GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId};

use super::codec::{ByteWriter as _, DecodeError, Reader};

/// A region in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// The region as its leader reported it.
    pub descriptor: RegionDescriptor,
    /// The stamp of the entry that added it, in milliseconds since 1970.
    pub since_ms: u64,
}

/// All regions of all tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    by_table: BTreeMap<TableId, BTreeMap<Bytes, RegionEntry>>,
    by_id: BTreeMap<RegionId, (TableId, Bytes)>,
}

impl Regions {
    /// The region of this id.
    pub fn get(&self, region: RegionId) -> Option<&RegionEntry> {
        let (table, start) = self.by_id.get(&region)?;
        self.by_table.get(table)?.get(start)
    }

    /// A table's regions in key order.
    pub fn of_table(&self, table: TableId) -> impl DoubleEndedIterator<Item = &RegionEntry> {
        self.by_table.get(&table).into_iter().flat_map(BTreeMap::values)
    }

    /// All regions, by table and key.
    pub fn iter(&self) -> impl Iterator<Item = &RegionEntry> {
        self.by_table.values().flat_map(BTreeMap::values)
    }

    /// The number of regions.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The number of regions of a table.
    pub fn count(&self, table: TableId) -> usize {
        self.by_table.get(&table).map_or(0, BTreeMap::len)
    }

    /// The number of regions of each group that has any.
    pub fn per_group(&self) -> BTreeMap<GroupId, u64> {
        let mut counts = BTreeMap::new();
        for entry in self.iter() {
            *counts.entry(entry.descriptor.group).or_default() += 1;
        }
        counts
    }

    /// The groups with regions of a table, and those regions.
    pub fn groups_of(&self, table: TableId) -> BTreeMap<GroupId, Vec<RegionDescriptor>> {
        let mut groups: BTreeMap<GroupId, Vec<RegionDescriptor>> = BTreeMap::new();
        for entry in self.of_table(table) {
            groups.entry(entry.descriptor.group).or_default().push(entry.descriptor.clone());
        }
        groups
    }

    /// Up to `limit` regions in ascending order, starting with the one that contains `key`.
    pub fn up_from(&self, table: TableId, key: &[u8], limit: usize) -> Vec<&RegionEntry> {
        let Some(regions) = self.by_table.get(&table) else { return Vec::new() };
        let first = regions.range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(key))).next_back();
        let first = first.map_or_else(Bytes::new, |(start, _)| start.clone());
        regions.range(first..).map(|(_, entry)| entry).take(limit).collect()
    }

    /// Up to `limit` regions in descending order, starting with the one that contains `key`; an empty key starts at
    /// the last.
    pub fn down_from(&self, table: TableId, key: &[u8], limit: usize) -> Vec<&RegionEntry> {
        let Some(regions) = self.by_table.get(&table) else { return Vec::new() };
        if key.is_empty() {
            return regions.values().rev().take(limit).collect();
        }
        let up_to = (std::ops::Bound::Unbounded, std::ops::Bound::Included(key));
        regions.range::<[u8], _>(up_to).rev().map(|(_, entry)| entry).take(limit).collect()
    }

    /// The claims that would change the map.
    pub(super) fn news(&self, claims: &[RegionDescriptor]) -> Vec<RegionDescriptor> {
        let named_once =
            |claim: &RegionDescriptor| claims.iter().filter(|other| other.region == claim.region).count() == 1;
        let newer = claims.iter().filter(|claim| self.is_newer(claim));
        let mut news: Vec<RegionDescriptor> = newer.filter(|claim| named_once(claim)).cloned().collect();
        news.sort_by(|a, b| (a.table, &a.range.start, b.epoch).cmp(&(b.table, &b.range.start, a.epoch)));
        // A claim that covers part of an older region waits for claims that cover the rest.
        loop {
            let before = news.len();
            let partial: Vec<KeyRange> = news.iter().flat_map(|claim| self.not_tiled(claim, &news)).collect();
            news.retain(|claim| !partial.iter().any(|range| overlaps(range, &claim.range)));
            if news.len() == before {
                return news;
            }
        }
    }

    fn is_newer(&self, claim: &RegionDescriptor) -> bool {
        let mut overlapped = self.overlapping(claim.table, &claim.range).peekable();
        let known_elsewhere = self.get(claim.region).is_some_and(|known| {
            known.descriptor.table != claim.table || !overlaps(&known.descriptor.range, &claim.range)
        });
        overlapped.peek().is_some()
            && !claim.range.is_empty()
            && !known_elsewhere
            && overlapped.all(|known| known.descriptor.epoch < claim.epoch)
    }

    /// The ranges of older regions overlapped by this claim that the claims together do not cover exactly.
    fn not_tiled(&self, claim: &RegionDescriptor, claims: &[RegionDescriptor]) -> Vec<KeyRange> {
        self.overlapping(claim.table, &claim.range)
            .map(|older| &older.descriptor.range)
            .filter(|range| !tiles(range, claims.iter().filter(|other| other.table == claim.table)))
            .cloned()
            .collect()
    }

    fn overlapping<'a>(&'a self, table: TableId, range: &'a KeyRange) -> impl Iterator<Item = &'a RegionEntry> {
        self.onwards(table, &range.start)
            .take_while(|entry| range.end.is_empty() || entry.descriptor.range.start < range.end)
            .filter(|entry| overlaps(&entry.descriptor.range, range))
    }

    fn onwards(&self, table: TableId, key: &Bytes) -> impl Iterator<Item = &RegionEntry> {
        let regions = self.by_table.get(&table);
        let first = regions.and_then(|regions| regions.range(..=key.clone()).next_back());
        let first = first.map_or_else(Bytes::new, |(start, _)| start.clone());
        regions.into_iter().flat_map(move |regions| regions.range(first.clone()..)).map(|(_, entry)| entry)
    }

    /// Enters the claims that are newer than the map; returns how many.
    pub(super) fn absorb(&mut self, claims: &[RegionDescriptor], stamp: u64) -> usize {
        let news = self.news(claims);
        for claim in &news {
            let older: Vec<_> = self.overlapping(claim.table, &claim.range).map(|entry| &entry.descriptor).collect();
            for RegionDescriptor { region, epoch, .. } in &older {
                let newer = claim.region;
                assert!(
                    *epoch < claim.epoch,
                    "region {newer} at epoch {} replaces region {region} at epoch {epoch}",
                    claim.epoch
                );
            }
            let older: Vec<RegionId> = older.iter().map(|older| older.region).collect();
            older.into_iter().for_each(|region| self.remove(region));
        }
        for claim in &news {
            let mut claim = claim.clone();
            assert!(self.get(claim.region).is_none(), "the map would have region {} twice", claim.region);
            if terrane_env::planted!("the map gives daughters the epoch of their parent") {
                claim.epoch = RegionEpoch(claim.epoch.0 - 1);
            }
            self.insert(claim, stamp);
        }
        for table in news.iter().map(|claim| claim.table) {
            debug_assert!(self.covers_all_keys(table), "the map of table {table} has a gap or an overlap");
        }
        news.len()
    }

    /// Whether the regions of a table cover all keys, each key once.
    pub fn covers_all_keys(&self, table: TableId) -> bool {
        let mut next = Some(Bytes::new());
        for range in self.of_table(table).map(|entry| &entry.descriptor.range) {
            if next.as_ref() != Some(&range.start) {
                return false;
            }
            next = (!range.end.is_empty()).then(|| range.end.clone());
        }
        next.is_none()
    }

    pub(super) fn insert(&mut self, descriptor: RegionDescriptor, since_ms: u64) {
        let (table, start) = (descriptor.table, descriptor.range.start.clone());
        self.by_id.insert(descriptor.region, (table, start.clone()));
        self.by_table.entry(table).or_default().insert(start, RegionEntry { descriptor, since_ms });
    }

    fn remove(&mut self, region: RegionId) {
        if let Some((table, start)) = self.by_id.remove(&region)
            && let Some(regions) = self.by_table.get_mut(&table)
        {
            regions.remove(&start);
        }
    }

    /// Records that all regions of the table have this schema version.
    pub(super) fn raise_schema(&mut self, table: TableId, version: u64) {
        for entry in self.by_table.get_mut(&table).into_iter().flat_map(BTreeMap::values_mut) {
            entry.descriptor.schema_version = version;
        }
    }

    pub(super) fn remove_table(&mut self, table: TableId) {
        for entry in self.by_table.remove(&table).into_iter().flat_map(BTreeMap::into_values) {
            self.by_id.remove(&entry.descriptor.region);
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let all: Vec<&RegionEntry> = self.iter().collect();
        out.list(all.into_iter(), |out, entry| {
            encode_descriptor(&entry.descriptor, out);
            out.u64(entry.since_ms);
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut regions = Self::default();
        for (descriptor, since_ms) in from.list(|from| Ok::<_, DecodeError>((decode_descriptor(from)?, from.u64()?)))? {
            regions.insert(descriptor, since_ms);
        }
        Ok(regions)
    }
}

pub(super) fn overlaps(one: &KeyRange, other: &KeyRange) -> bool {
    one.intersect(other).is_some()
}

/// Whether the claims, sorted by start, cover the range without gaps or overlaps.
fn tiles<'a>(range: &KeyRange, claims: impl Iterator<Item = &'a RegionDescriptor>) -> bool {
    let mut parts = claims.filter_map(|claim| claim.range.intersect(range));
    let Some(mut last) = parts.next().filter(|first| first.start == range.start) else { return false };
    for part in parts {
        // A part that runs to the end of all keys has an empty end, with nothing after it.
        if last.end.is_empty() || part.start != last.end {
            return false;
        }
        last = part;
    }
    last.end == range.end
}

/// Encodes a descriptor in the versioned layout that logs and manifests use, too.
pub(super) fn encode_descriptor(descriptor: &RegionDescriptor, out: &mut Vec<u8>) {
    out.bytes(&descriptor.encode());
}

pub(super) fn decode_descriptor(from: &mut Reader<'_>) -> Result<RegionDescriptor, DecodeError> {
    Ok(RegionDescriptor::decode(from.bytes()?)?)
}
