//! What a group's log says about tables and regions, as a pure structure: entries in, decisions out.
//!
//! Every replica runs this over the same entries and must come to the same answers, even when it starts from its own
//! durable points. Hence the invariants:
//! - A region's part (descriptor, schema) is a function of the region's durable point and the entries after it. It is kept
//!   with the region, not with the group: a region that replays from an old point must see the schema of that time.
//! - The group's part (schemas for new regions, dropped tables, forwarding of split and merged regions) may be newer than a region's.
//!   It only adds refusals that the log itself would have led to.
//! - The regions of one table in a group never overlap. If the log creates a region whose range is already covered by
//!   others, that region was split or merged before this replica's durable points: the creation is skipped, and so are the entries
//!   about the region. A region that moved away is covered by nothing. But it left with a record of the group's part, and
//!   no creation or adoption that this part covers is carried out again.
//! - Of adopting and refusing a move the first in the log stands.
//! - A region's epoch only rises, the daughters of a split cover their parent's range exactly, and a merged region covers
//!   those of both its parents.

mod moves;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use terrane_types::versions::FormatVersions;
use terrane_types::{
    ByteWriter as _, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId, TableSchema,
};

use self::moves::Moves;
pub use self::moves::{Arrival, Arriving};
use super::region_state::RegionState;
use crate::group::reply::Reply;
use crate::operation::{ChangeTables, Merge, Split, WriteHeader, read_schema};
use crate::record::{Malformed, Reader};
use crate::region::boundary::check_boundary;

/// The layout of the group's part of a durable point.
const FORMAT: u8 = 1;
/// Its versions.
pub const VERSIONS: FormatVersions =
    FormatVersions { name: "group state", oldest: FORMAT as u32, newest: FORMAT as u32 };

/// The number of split and merged regions that are kept with their successors. Clients that missed more ask the master.
const RETIRED_MAX: usize = 1024;

/// A group as of the last applied entry.
#[derive(Clone, Debug)]
pub struct GroupState {
    group: GroupId,
    tables: BTreeMap<TableId, Arc<TableSchema>>,
    dropped: BTreeSet<TableId>,
    regions: BTreeMap<RegionId, RegionState>,
    /// Regions that were split or merged with what they became, oldest first in `retired_order`.
    retired: BTreeMap<RegionId, Successors>,
    retired_order: VecDeque<RegionId>,
    moves: Moves,
}

/// What a region became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Successors {
    Daughters([RegionId; 2]),
    Merged(RegionId),
}

impl Successors {
    fn ids(&self) -> &[RegionId] {
        match self {
            Self::Daughters(daughters) => daughters,
            Self::Merged(into) => std::slice::from_ref(into),
        }
    }
}

/// What an entry about tables changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TableChanges {
    pub created: Vec<RegionState>,
    /// Regions with a newer schema, and the schema they had before.
    pub altered: Vec<(RegionId, Arc<TableSchema>)>,
    pub dropped: Vec<RegionId>,
}

impl GroupState {
    #[must_use]
    pub fn new(group: GroupId) -> Self {
        Self {
            group,
            tables: BTreeMap::new(),
            dropped: BTreeSet::new(),
            regions: BTreeMap::new(),
            retired: BTreeMap::new(),
            retired_order: VecDeque::new(),
            moves: Moves::default(),
        }
    }

    /// Adds a region that the engine has on disk.
    pub fn restore(&mut self, region: RegionState) {
        self.regions.insert(region.descriptor.region, region);
    }

    #[must_use]
    pub fn region(&self, region: RegionId) -> Option<&RegionState> {
        self.regions.get(&region)
    }

    pub fn regions(&self) -> impl Iterator<Item = &RegionState> {
        self.regions.values()
    }

    #[must_use]
    pub fn table(&self, table: TableId) -> Option<&Arc<TableSchema>> {
        self.tables.get(&table)
    }

    /// Checks a write against the state at its entry.
    pub fn check_write(&self, header: &WriteHeader) -> Result<&RegionState, Reply> {
        let region = self.regions.get(&header.region).ok_or_else(|| self.stale(header.region))?;
        region.check_write(header.epoch)?;
        let version = region.schema.version;
        if header.exact_schema && header.schema_version != version {
            return Err(Reply::SchemaChanged { table: region.schema.table, version });
        }
        Ok(region)
    }

    /// The refusal of a request for a region that is not here, or no longer.
    #[must_use]
    pub fn stale(&self, region: RegionId) -> Reply {
        Reply::Stale { region, current: self.successors(region) }
    }

    /// The present regions that `region` was split or merged into.
    #[must_use]
    pub fn successors(&self, region: RegionId) -> Vec<RegionDescriptor> {
        let mut found: Vec<RegionDescriptor> = Vec::new();
        let mut pending = vec![region];
        while let Some(region) = pending.pop() {
            if let Some(state) = self.regions.get(&region) {
                // Both daughters of a region may have been merged again.
                if found.last().is_none_or(|last| last.region != region) {
                    found.push(state.descriptor.clone());
                }
            } else if let Some(successors) = self.retired.get(&region) {
                pending.extend(successors.ids().iter().rev());
            } else if let Some((_, elsewhere)) = self.moves.departed(region) {
                found.push(elsewhere.clone());
            }
        }
        found
    }

    /// Splits a region: the daughters replace the parent.
    pub fn split(&mut self, split: &Split) -> Result<(RegionState, RegionState), Reply> {
        let (left, right) = self.check_split(split)?;
        let parent = self.regions.remove(&split.region);
        let parent = parent.expect("a split is checked against its region");
        assert_covers(&parent.descriptor, &left.descriptor, &right.descriptor);
        self.retire(split.region, Successors::Daughters([split.left, split.right]));
        self.regions.insert(split.left, left.clone());
        self.regions.insert(split.right, right.clone());
        Ok((left, right))
    }

    /// The daughters that a split would give, or why it is refused.
    pub fn check_split(&self, split: &Split) -> Result<(RegionState, RegionState), Reply> {
        let parent = self.regions.get(&split.region).ok_or_else(|| self.stale(split.region))?;
        let was = &parent.descriptor;
        if was.epoch != split.epoch {
            return Err(Reply::Stale { region: split.region, current: vec![was.clone()] });
        }
        parent.check_resting()?;
        if split.left == split.right
            || self.regions.contains_key(&split.left)
            || self.regions.contains_key(&split.right)
        {
            return Err(Reply::Invalid { what: "the ids of the daughters are in use".to_owned() });
        }
        let (left, right) = was.range.split(&split.at).map_err(|invalid| Reply::Invalid { what: invalid.what })?;
        // An alter may have made the table keep more rows together since the boundary was chosen.
        check_boundary(&split.at, parent).map_err(|invalid| Reply::Invalid { what: invalid.what })?;
        let daughter = |region, range| RegionState {
            descriptor: RegionDescriptor { region, range, epoch: RegionEpoch(was.epoch.0 + 1), ..was.clone() },
            schema: parent.schema.clone(),
            planned: parent.planned.clone(),
            moving: None,
        };
        Ok((daughter(split.left, left), daughter(split.right, right)))
    }

    /// Records the daughters of a region that is already gone. Does nothing if they are recorded, or if nothing shows that the
    /// region was split. Returns whether anything changed.
    pub fn note_split(&mut self, split: &Split) -> bool {
        let daughters = [split.left, split.right];
        let known = |region: &RegionId| self.regions.contains_key(region) || self.retired.contains_key(region);
        let is_new = !self.retired.contains_key(&split.region) && daughters.iter().any(known);
        if is_new {
            self.retire(split.region, Successors::Daughters(daughters));
        }
        is_new
    }

    fn retire(&mut self, region: RegionId, successors: Successors) {
        if self.retired.insert(region, successors).is_none() {
            self.retired_order.push_back(region);
        }
        while self.retired_order.len() > terrane_env::limit!("split regions that are remembered", RETIRED_MAX, 1..=4) {
            if let Some(oldest) = self.retired_order.pop_front() {
                self.retired.remove(&oldest);
            }
        }
    }

    /// Merges two neighbours: one region replaces both.
    pub fn merge(&mut self, merge: &Merge) -> Result<RegionState, Reply> {
        let merged = self.check_merge(merge)?;
        for parent in [merge.left, merge.right] {
            self.regions.remove(&parent);
            self.retire(parent, Successors::Merged(merge.into));
        }
        self.regions.insert(merge.into, merged.clone());
        Ok(merged)
    }

    /// The region that a merge would give, or why it is refused.
    pub fn check_merge(&self, merge: &Merge) -> Result<RegionState, Reply> {
        let find = |region, epoch| {
            let found = self.regions.get(&region).ok_or_else(|| self.stale(region))?;
            if found.descriptor.epoch != epoch {
                return Err(Reply::Stale { region, current: vec![found.descriptor.clone()] });
            }
            found.check_resting()?;
            Ok(found)
        };
        let (left, right) = (find(merge.left, merge.left_epoch)?, find(merge.right, merge.right_epoch)?);
        if self.regions.contains_key(&merge.into) {
            return Err(Reply::Invalid { what: "the id of the merged region is in use".to_owned() });
        }
        let range = left.descriptor.range_with(&right.descriptor);
        let range = range.map_err(|invalid| Reply::Invalid { what: invalid.what })?;
        // An alter reaches all regions of a table in a group with one entry, so this cannot differ.
        if left.schema.version != right.schema.version {
            return Err(Reply::SchemaChanged { table: left.schema.table, version: left.schema.version });
        }
        let (low, high) =
            (left.descriptor.epoch.min(right.descriptor.epoch), left.descriptor.epoch.max(right.descriptor.epoch));
        let before = if terrane_env::planted!("a merged region continues from the lower epoch") { low } else { high };
        let descriptor =
            RegionDescriptor { region: merge.into, range, epoch: RegionEpoch(before.0 + 1), ..left.descriptor.clone() };
        let planned = match KeyRange::new(left.planned.start.clone(), right.planned.end.clone()) {
            Ok(planned) if left.planned != right.planned => planned,
            _ => left.planned.clone(),
        };
        Ok(RegionState { descriptor, schema: left.schema.clone(), planned, moving: None })
    }

    /// Records what two regions became that are already gone. Does nothing if that is recorded, or if nothing shows that they
    /// were merged. Returns whether anything changed.
    pub fn note_merge(&mut self, merge: &Merge) -> bool {
        let is_known = self.regions.contains_key(&merge.into) || self.retired.contains_key(&merge.into);
        let mut noted = false;
        for parent in [merge.left, merge.right] {
            if is_known && !self.regions.contains_key(&parent) && !self.retired.contains_key(&parent) {
                self.retire(parent, Successors::Merged(merge.into));
                noted = true;
            }
        }
        noted
    }

    /// Puts a schema, creates regions, drops a table. Everything is idempotent. `is_recorded`: the group's part that was on
    /// disk at the start covers this entry.
    pub fn change_tables(&mut self, change: &ChangeTables, is_recorded: bool) -> TableChanges {
        let mut changes = TableChanges::default();
        if let Some(schema) = &change.schema {
            self.put_schema(schema, &mut changes);
        }
        // Regions are on disk before the group's part: one that is covered and not here has left since.
        if !is_recorded || terrane_env::planted!("a replayed creation brings a moved region back") {
            for descriptor in &change.create {
                self.create(descriptor, &mut changes);
            }
        }
        if let Some(table) = change.drop {
            self.drop_table(table, &mut changes);
        }
        changes
    }

    fn put_schema(&mut self, schema: &TableSchema, changes: &mut TableChanges) {
        if self.dropped.contains(&schema.table) {
            return;
        }
        let schema = Arc::new(schema.clone());
        // After a restart the group's part may be newer than this entry. Each region decides by its own part.
        if self.tables.get(&schema.table).is_none_or(|known| known.version < schema.version) {
            self.tables.insert(schema.table, schema.clone());
        }
        for region in self.regions.values_mut() {
            if region.descriptor.table == schema.table && region.schema.version < schema.version {
                changes.altered.push((region.descriptor.region, region.schema.clone()));
                *region = region.under(&schema);
            }
        }
    }

    fn create(&mut self, descriptor: &RegionDescriptor, changes: &mut TableChanges) {
        let Some(schema) = self.tables.get(&descriptor.table) else {
            return;
        };
        // An id that is in use is refused like a range: what a master sends is committed before it can be checked here, and
        // replacing a region would lose its data.
        let taken = |region: &RegionState| {
            region.descriptor.region == descriptor.region
                || (region.descriptor.table == descriptor.table
                    && region.descriptor.range.intersect(&descriptor.range).is_some())
        };
        if self.regions.values().any(taken) {
            return;
        }
        let descriptor = RegionDescriptor { group: self.group, ..descriptor.clone() };
        let planned = descriptor.range.clone();
        let region = RegionState { descriptor, schema: schema.clone(), planned, moving: None }.under(schema);
        let before = self.regions.insert(region.descriptor.region, region.clone());
        assert!(before.is_none(), "group {}: region {} is created twice", self.group, region.descriptor.region);
        changes.created.push(region);
    }

    fn drop_table(&mut self, table: TableId, changes: &mut TableChanges) {
        self.dropped.insert(table);
        self.tables.remove(&table);
        let of_table = self.regions.values().filter(|region| region.descriptor.table == table);
        changes.dropped = of_table.map(|region| region.descriptor.region).collect();
        for region in &changes.dropped {
            self.regions.remove(region);
        }
    }

    /// The group's part of its durable point. Regions keep theirs with their own points.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT];
        out.list(self.tables.values(), |out, schema| out.bytes(&schema.encode()));
        out.list(self.dropped.iter(), |out, table| out.u64(table.0));
        out.count(self.retired_order.len());
        for region in &self.retired_order {
            let (left, right) = match self.retired.get(region) {
                Some(Successors::Daughters([left, right])) => (*left, *right),
                // No region has the id 0.
                Some(Successors::Merged(into)) => (*into, RegionId(0)),
                None => continue,
            };
            for id in [*region, left, right] {
                out.u64(id.0);
            }
        }
        self.moves.encode(&mut out);
        out.into()
    }

    pub fn decode(group: GroupId, record: Bytes) -> Result<Self, Malformed> {
        let mut state = Self::new(group);
        let mut reader = Reader::new(record);
        if reader.u8()? != FORMAT {
            return Err(Malformed("this build does not know the version of the group's state"));
        }
        for _ in 0..reader.count(4)? {
            let schema = read_schema(&reader.bytes()?)?;
            state.tables.insert(schema.table, Arc::new(schema));
        }
        for _ in 0..reader.count(8)? {
            state.dropped.insert(TableId(reader.u64()?));
        }
        for _ in 0..reader.count(24)? {
            let [region, left, right] = [reader.u64()?, reader.u64()?, reader.u64()?].map(RegionId);
            let successors =
                if right == RegionId(0) { Successors::Merged(left) } else { Successors::Daughters([left, right]) };
            state.retire(region, successors);
        }
        state.moves = Moves::decode(&mut reader)?;
        reader.finish()?;
        Ok(state)
    }
}

/// The daughters of a split cover their parent's range, without gap or overlap, at a higher epoch.
fn assert_covers(parent: &RegionDescriptor, left: &RegionDescriptor, right: &RegionDescriptor) {
    let [id, left_id, right_id] = [parent, left, right].map(|descriptor| descriptor.region);
    assert!(
        left.range.start == parent.range.start
            && left.range.end == right.range.start
            && right.range.end == parent.range.end,
        "the daughters {left_id} and {right_id} do not cover region {id}"
    );
    assert!(
        left.epoch > parent.epoch && right.epoch > parent.epoch,
        "the epochs of {left_id} and {right_id} are not above that of region {id}"
    );
}

#[cfg(test)]
mod tests;
