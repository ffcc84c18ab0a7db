//! Moves of regions between groups: a region moves once at a time, and its table stays as it is meanwhile.
//!
//! A move is journaled before the region's leader is told of it, and its id names it in the logs of both groups. The leader
//! carries it out (`crate::procedures::region_move`); the record keeps other changes away from the region and lets any later
//! master continue. The end of a move that was made enters the region into the map at once.
//!
//! Invariants: the id of a move is taken when it begins and never used again; a region moves once at a time; while a
//! region of a table moves, the table is not removed.

use terrane_types::RegionDescriptor;

use super::moves::{EndedMove, MoveEnd, MoveId, MovePlan, RegionMove};
use super::tables::TableState;
use super::{Catalog, Outcome, Refusal};

impl Catalog {
    pub(super) fn begin_move(&mut self, plan: &MovePlan, stamp: u64) -> Result<Outcome, Refusal> {
        let region = self.check_move(plan)?;
        let reuses = terrane_env::planted!("the id of a move is used again");
        let ids = if reuses { &mut self.ids.clone() } else { &mut self.ids };
        let id = ids.region_move();
        let MovePlan { to, lead, reason, merge_with, .. } = *plan;
        let known = RegionMove {
            region,
            to,
            lead,
            reason,
            why: plan.why.clone(),
            merge_with,
            cancelled: None,
            since_ms: stamp,
        };
        let before = self.moves.add(id, known);
        assert!(before.is_none() || reuses, "move id {id} was handed out twice");
        Ok(Outcome::Move(id))
    }

    /// The region of a plan, if it can move.
    fn check_move(&self, plan: &MovePlan) -> Result<RegionDescriptor, Refusal> {
        let (region, to) = (plan.region, plan.to);
        let known = self.regions.get(region).ok_or_else(|| Refusal::NotFound(format!("region {region}")))?;
        let known = &known.descriptor;
        if known.epoch != plan.epoch {
            return Err(Refusal::Changed(format!("region {region} is at epoch {}, not {}", known.epoch, plan.epoch)));
        }
        if known.group == to {
            return Err(Refusal::Invalid(format!("region {region} is in group {to} already")));
        }
        if let Some((id, _)) = self.moves.of_region(region) {
            return Err(Refusal::Changed(format!("region {region} is already moving (move-{id})")));
        }
        match self.groups.get(to) {
            None => return Err(Refusal::NotFound(format!("group {to}"))),
            Some(group) if !group.is_open() => {
                return Err(Refusal::Changed(format!("group {to} is {}", group.state.name())));
            }
            Some(_) => {}
        }
        let table = self.tables.get(known.table).filter(|table| table.state == TableState::Enabled);
        if table.is_none() {
            return Err(Refusal::Changed(format!("the table of region {region} is being changed")));
        }
        Ok(known.clone())
    }

    pub(super) fn cancel_move(&mut self, id: MoveId, why: &str) -> Result<Outcome, Refusal> {
        let known = self.moves.get_mut(id).ok_or_else(|| unknown_move(id))?;
        known.cancelled.get_or_insert_with(|| why.to_owned());
        Ok(Outcome::Done)
    }

    pub(super) fn end_move(&mut self, id: MoveId, end: &MoveEnd, stamp: u64) -> Result<Outcome, Refusal> {
        if self.moves.end_of(id).is_some() {
            return Ok(Outcome::Done);
        }
        let known = self.moves.get(id).ok_or_else(|| unknown_move(id))?;
        let (region, to, merge_with) = (known.region.region, known.to, known.merge_with);
        if let MoveEnd::Moved(moved) = end {
            if (moved.region, moved.table) != (region, known.region.table) {
                return Err(Refusal::Invalid(format!("move {id} is one of region {region}, not {}", moved.region)));
            }
            self.index_regions(std::slice::from_ref(moved), stamp);
        }
        self.moves.end(EndedMove { id, region, to, merge_with, end: end.clone(), ended_ms: stamp });
        Ok(Outcome::Done)
    }
}

fn unknown_move(id: MoveId) -> Refusal {
    Refusal::NotFound(format!("move {id}"))
}
