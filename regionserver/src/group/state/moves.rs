//! Regions that leave for another group, and regions that come from one.
//!
//! A region leaves in two steps, Freeze and Depart, with Unfreeze in between if the other group refuses. It arrives in one,
//! Adopt. Both groups keep notes, so that a step that is repeated has no second effect: the first keeps where a region went,
//! the second what became of a move.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use terrane_types::{ByteWriter as _, MoveId, RegionDescriptor, RegionEpoch, RegionId, TableSchema};

use super::{GroupState, RegionState, TableChanges};
use crate::group::reply::Reply;
use crate::operation::{Depart, Freeze, Unfreeze, put_descriptor, read_descriptor};
use crate::record::{Malformed, Reader};

/// The regions that left whose new group is remembered. Clients that missed more ask the master.
const DEPARTED_MAX: usize = 1024;
/// The moves to this group whose outcome is remembered. The other group asks within the time of a move, as a rule.
const ARRIVALS_MAX: usize = 1024;

/// What the group's part says about moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    departed: BTreeMap<RegionId, (MoveId, RegionDescriptor)>,
    departed_order: VecDeque<RegionId>,
    /// Later moves have higher ids.
    arrivals: BTreeMap<MoveId, Arrival>,
    /// What became of moves up to this one may be forgotten. 0: of none is it.
    forgotten: MoveId,
}

/// What became of a move to this group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By the entry at this index. The region may have been split or moved on since.
    Adopted {
        region: RegionId,
        index: u64,
    },
    Refused,
}

/// What an Adopt leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// The region comes in, in this state.
    Comes(Box<RegionState>),
    /// It did by an earlier entry, and may have been split or moved on since.
    IsHere,
    Refused(String),
    /// The move is older than those whose outcome is remembered: it may have been adopted or refused before. It is not
    /// adopted from now on.
    Forgotten,
}

impl Moves {
    pub(super) fn departed(&self, region: RegionId) -> Option<&(MoveId, RegionDescriptor)> {
        self.departed.get(&region)
    }

    fn depart(&mut self, id: MoveId, adopted: RegionDescriptor) {
        let region = adopted.region;
        if self.departed.insert(region, (id, adopted)).is_none() {
            self.departed_order.push_back(region);
        }
        while self.departed_order.len() > terrane_env::limit!("moved regions that are remembered", DEPARTED_MAX, 1..=4)
        {
            if let Some(oldest) = self.departed_order.pop_front() {
                self.departed.remove(&oldest);
            }
        }
    }

    fn arrive(&mut self, id: MoveId, arrival: Arrival) {
        self.arrivals.insert(id, arrival);
        while self.arrivals.len() > terrane_env::limit!("moves whose outcome is remembered", ARRIVALS_MAX, 1..=4) {
            // The one that has just been decided may be the oldest of all, and is asked for next.
            let Some(oldest) = self.arrivals.keys().copied().find(|of| *of != id) else { return };
            self.arrivals.remove(&oldest);
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    fn is_forgotten(&self, id: MoveId) -> bool {
        id <= self.forgotten
            && !self.arrivals.contains_key(&id)
            && !terrane_env::planted!("a refused move forgets an adopted one")
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.count(self.departed_order.len());
        for (id, adopted) in self.departed_order.iter().filter_map(|region| self.departed.get(region)) {
            out.u64(id.0);
            put_descriptor(out, adopted);
        }
        out.u64(self.forgotten.0);
        out.count(self.arrivals.len());
        for (id, arrival) in &self.arrivals {
            // No region has the id 0.
            let (region, index) = match arrival {
                Arrival::Adopted { region, index } => (region.0, *index),
                Arrival::Refused => (0, 0),
            };
            [id.0, region, index].into_iter().for_each(|number| out.u64(number));
        }
    }

    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        let mut moves = Self::default();
        for _ in 0..reader.count(12)? {
            let id = MoveId(reader.u64()?);
            moves.depart(id, read_descriptor(reader)?);
        }
        moves.forgotten = MoveId(reader.u64()?);
        for _ in 0..reader.count(24)? {
            let (id, region, index) = (MoveId(reader.u64()?), reader.u64()?, reader.u64()?);
            let arrival = match region {
                0 => Arrival::Refused,
                region => Arrival::Adopted { region: RegionId(region), index },
            };
            moves.arrive(id, arrival);
        }
        Ok(moves)
    }
}

impl GroupState {
    /// Freezes a region for a move; the same move may freeze it again. Returns the region's new state.
    pub fn freeze(&mut self, freeze: &Freeze) -> Result<RegionState, Reply> {
        let stale = self.stale(freeze.region);
        let region = self.regions.get_mut(&freeze.region).ok_or(stale)?;
        if region.descriptor.epoch != freeze.epoch {
            let current = vec![region.descriptor.clone()];
            return Err(Reply::Stale { region: freeze.region, current });
        }
        if let Some(other) = region.moving.as_ref().filter(|moving| moving.id != freeze.to.id) {
            let what = format!("region {} moves to group {} already", freeze.region, other.group);
            return Err(Reply::Invalid { what });
        }
        region.moving = Some(freeze.to.clone());
        Ok(region.clone())
    }

    /// Undoes a freeze. Returns the region's new state; `None` if the region is not frozen for this move.
    pub fn unfreeze(&mut self, unfreeze: &Unfreeze) -> Option<RegionState> {
        let region = self.regions.get_mut(&unfreeze.region)?;
        region.moving.take_if(|moving| moving.id == unfreeze.id)?;
        Some(region.clone())
    }

    /// Removes a region that the other group has adopted, and notes where it is. Returns whether it was here.
    pub fn depart(&mut self, depart: &Depart) -> Result<bool, Reply> {
        let id = depart.adopted.region;
        if let Some(region) = self.regions.get(&id) {
            // One that came back since is another matter.
            if region.moving.as_ref().is_none_or(|moving| moving.id != depart.id) {
                return Err(Reply::Stale { region: id, current: vec![region.descriptor.clone()] });
            }
        }
        let was_here = self.regions.remove(&id).is_some();
        self.moves.depart(depart.id, depart.adopted.clone());
        Ok(was_here)
    }

    /// Where a region went, and by which move.
    #[must_use]
    pub fn departed(&self, region: RegionId) -> Option<(MoveId, RegionDescriptor)> {
        self.moves.departed(region).cloned()
    }

    /// What became of a move to this group, if that is decided.
    #[must_use]
    pub fn arrival(&self, id: MoveId) -> Option<Arrival> {
        self.moves.arrivals.get(&id).copied()
    }

    /// The last entry by which a region came in, of those that are remembered; 0: none.
    #[must_use]
    pub fn last_adoption(&self) -> u64 {
        let indexes = self.moves.arrivals.values().map(|arrival| match arrival {
            Arrival::Adopted { index, .. } => *index,
            Arrival::Refused => 0,
        });
        indexes.max().unwrap_or(0)
    }

    /// What an Adopt leads to now. Nothing changes.
    #[must_use]
    pub fn arriving(&self, id: MoveId, incoming: &RegionState) -> Arriving {
        match self.arrival(id) {
            Some(Arrival::Adopted { .. }) => return Arriving::IsHere,
            Some(Arrival::Refused) if !terrane_env::planted!("a refused move is adopted") => {
                return Arriving::Refused("the move was refused before".to_owned());
            }
            None if self.has_forgotten(id) => {
                return if self.has_rows_of(&incoming.descriptor) { Arriving::IsHere } else { Arriving::Forgotten };
            }
            Some(Arrival::Refused) | None => {}
        }
        let was = &incoming.descriptor;
        if self.dropped.contains(&was.table) {
            return Arriving::Refused(format!("table {} was dropped", was.table));
        }
        if let Some(other) = self.meeting(was) {
            let (group, other) = (self.group, other.descriptor.region);
            return Arriving::Refused(format!("region {other} of group {group} has some of its rows"));
        }
        let epoch = RegionEpoch(was.epoch.0 + 1);
        let descriptor = RegionDescriptor { group: self.group, epoch, ..was.clone() };
        Arriving::Comes(Box::new(RegionState { descriptor, moving: None, ..incoming.clone() }))
    }

    /// Whether the outcome of a move to this group may be forgotten: it is neither adopted nor refused then.
    #[must_use]
    pub fn has_forgotten(&self, id: MoveId) -> bool {
        self.moves.is_forgotten(id)
    }

    /// Whether the group has rows of a region that is frozen in another group: it can only have them by adopting it.
    #[must_use]
    pub fn has_rows_of(&self, was: &RegionDescriptor) -> bool {
        self.meeting(was).is_some()
    }

    /// The region, or one with some of its rows.
    fn meeting(&self, was: &RegionDescriptor) -> Option<&RegionState> {
        self.regions.values().find(|region| {
            region.descriptor.region == was.region
                || (region.descriptor.table == was.table && region.descriptor.range.intersect(&was.range).is_some())
        })
    }

    /// Takes a region in that [`GroupState::arriving`] let pass. If the table was altered here meanwhile, the region comes
    /// under the newer schema; if it was altered there only, so are the regions here. Returns what that changes.
    pub fn adopt(&mut self, id: MoveId, index: u64, region: RegionState) -> TableChanges {
        let mut changes = TableChanges::default();
        let (region_id, schema) = (region.descriptor.region, region.schema.clone());
        self.note_adopted(id, region_id, index);
        self.regions.insert(region_id, region);
        let newest = self.tables.get(&schema.table).filter(|known| known.version > schema.version).cloned();
        let newest: Arc<TableSchema> = newest.unwrap_or(schema);
        self.put_schema(&newest, &mut changes);
        changes
    }

    /// Notes that a region came in by an entry, whether or not it is still here.
    pub fn note_adopted(&mut self, id: MoveId, region: RegionId, index: u64) {
        self.moves.arrive(id, Arrival::Adopted { region, index });
    }

    /// Refuses a move, unless its region came in before. Returns what stands; `None`: that is forgotten.
    pub fn refuse(&mut self, id: MoveId) -> Option<Arrival> {
        if self.arrival(id).is_none() && !self.has_forgotten(id) {
            self.moves.arrive(id, Arrival::Refused);
        }
        self.arrival(id)
    }
}
