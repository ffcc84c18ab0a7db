//! The map of regions: what the master may say about it, from one look to the next.
//!
//! - The regions of a table cover all keys, without a hole and without an overlap.
//! - A region id stands for one region: one table, one group, and never a second time.
//! - The epoch of a region never goes down, and a region whose range changes has a higher one, as has a region that replaces
//!   others.
//!
//! A look is one answer of a master, hence one state of its catalog. Looks are taken in the order of the answers, one call
//! at a time, so that a later one is not older.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{KeyRange, RegionDescriptor, RegionId, escape};

/// What was seen of the map so far.
#[derive(Debug, Default)]
pub struct RegionMap {
    known: BTreeMap<RegionId, RegionDescriptor>,
    /// Regions that were replaced or dropped.
    gone: BTreeSet<RegionId>,
    looks: u64,
}

impl RegionMap {
    /// Compares all regions of all tables with what was seen before. Those of tables that are being created or dropped are
    /// `partial`: they need not cover all keys.
    ///
    /// # Errors
    /// What is wrong, and with which region.
    pub fn look(&mut self, regions: &[RegionDescriptor], partial: &BTreeSet<RegionId>) -> Result<(), Wrong> {
        self.looks += 1;
        let mut now = BTreeMap::new();
        for region in regions {
            self.check_region(region)?;
            if now.insert(region.region, region.clone()).is_some() {
                return Err(Wrong::new(region, "is there twice"));
            }
        }
        check_cover(regions.iter().filter(|region| !partial.contains(&region.region)))?;
        self.gone.extend(self.known.keys().filter(|region| !now.contains_key(region)));
        self.known = now;
        Ok(())
    }

    /// The number of looks.
    #[must_use]
    pub const fn looks(&self) -> u64 {
        self.looks
    }

    /// A region that was not there before has a higher epoch than those whose rows it has taken over.
    fn check_replaced(&self, region: &RegionDescriptor) -> Result<(), Wrong> {
        let overlaps = |known: &&RegionDescriptor| {
            let (a, b) = (&known.range, &region.range);
            known.table == region.table && starts_within(a, b) && starts_within(b, a)
        };
        match self.known.values().filter(overlaps).find(|known| known.epoch >= region.epoch) {
            Some(known) => {
                Err(Wrong::new(region, &format!("replaces region {} of epoch {}", known.region, known.epoch)))
            }
            None => Ok(()),
        }
    }

    fn check_region(&self, region: &RegionDescriptor) -> Result<(), Wrong> {
        if self.gone.contains(&region.region) {
            return Err(Wrong::new(region, "was gone and is there again"));
        }
        let Some(before) = self.known.get(&region.region) else { return self.check_replaced(region) };
        if before.table != region.table {
            return Err(Wrong::new(region, &format!("was of table {}", before.table)));
        }
        if region.epoch < before.epoch {
            return Err(Wrong::new(region, &format!("was of epoch {}", before.epoch)));
        }
        if region.group != before.group && region.epoch == before.epoch {
            return Err(Wrong::new(region, &format!("was in group {} in the same epoch", before.group)));
        }
        if region.range != before.range && region.epoch == before.epoch {
            return Err(Wrong::new(region, &format!("held {:?} in the same epoch", before.range)));
        }
        Ok(())
    }
}

/// Whether `a` starts before `b` ends: two ranges overlap if each starts before the other ends.
fn starts_within(a: &KeyRange, b: &KeyRange) -> bool {
    b.end.is_empty() || a.start < b.end
}

fn check_cover<'a>(regions: impl Iterator<Item = &'a RegionDescriptor>) -> Result<(), Wrong> {
    let mut sorted: Vec<&RegionDescriptor> = regions.collect();
    sorted.sort_by(|a, b| (a.table, &a.range.start).cmp(&(b.table, &b.range.start)));
    for table in sorted.chunk_by(|a, b| a.table == b.table) {
        let (first, last) = (table[0], table[table.len() - 1]);
        if !first.range.start.is_empty() {
            return Err(Wrong::new(first, "is the first of its table and has a start"));
        }
        if !last.range.end.is_empty() {
            return Err(Wrong::new(last, "is the last of its table and has an end"));
        }
        for pair in table.windows(2) {
            if pair[0].range.end.is_empty() || pair[0].range.end > pair[1].range.start {
                return Err(Wrong::new(pair[1], &format!("overlaps region {}", pair[0].region)));
            }
            if pair[0].range.end < pair[1].range.start {
                return Err(Wrong::new(pair[1], &format!("leaves a hole after region {}", pair[0].region)));
            }
        }
    }
    Ok(())
}

/// Something wrong with a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub region: RegionId,
    pub what: String,
}

impl Wrong {
    fn new(region: &RegionDescriptor, what: &str) -> Wrong {
        let RegionDescriptor { table, group, epoch, range, .. } = region;
        let (start, end) = (escape(&range.start), escape(&range.end));
        let place = format!("table {table}, group {group}, epoch {epoch}, from '{start}' to '{end}'");
        Wrong {
            region: region.region,
            what: format!("the map of regions is wrong: region {} ({place}) {what}", region.region),
        }
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::{GroupId, RegionEpoch, TableId};

    use super::*;

    fn region(id: u64, start: &'static str, end: &'static str, epoch: u64) -> RegionDescriptor {
        RegionDescriptor {
            region: RegionId(id),
            table: TableId(7),
            range: KeyRange { start: start.into(), end: end.into() },
            epoch: RegionEpoch(epoch),
            group: GroupId(1),
            schema_version: 1,
        }
    }

    fn looked(looks: &[&[RegionDescriptor]]) -> Result<(), String> {
        let mut map = RegionMap::default();
        looks.iter().try_for_each(|look| map.look(look, &BTreeSet::new())).map_err(|wrong| wrong.what)
    }

    #[test]
    fn a_split_is_right() {
        let before = [region(1, "", "m", 1), region(2, "m", "", 1)];
        let after = [region(3, "", "c", 2), region(4, "c", "m", 2), region(2, "m", "", 1)];
        looked(&[&before, &before, &after, &after]).unwrap();
    }

    #[test]
    fn holes_and_overlaps_are_wrong() {
        let wrong = |regions: &[RegionDescriptor]| looked(&[regions]).unwrap_err();
        assert!(wrong(&[region(1, "", "c", 1), region(2, "d", "", 1)]).contains("hole after region 1"));
        assert!(wrong(&[region(1, "", "e", 1), region(2, "d", "", 1)]).contains("overlaps region 1"));
        assert!(wrong(&[region(1, "", "", 1), region(2, "d", "", 1)]).contains("overlaps region 1"));
        assert!(wrong(&[region(1, "a", "", 1)]).contains("has a start"));
        assert!(wrong(&[region(1, "", "a", 1)]).contains("has an end"));
    }

    #[test]
    fn tables_under_construction_need_not_be_complete() {
        let mut map = RegionMap::default();
        map.look(&[region(1, "a", "b", 1)], &BTreeSet::from([RegionId(1)])).unwrap();
        assert_eq!(map.looks(), 1);
    }

    #[test]
    fn ids_are_used_once() {
        let twice = [region(1, "", "m", 1), region(1, "m", "", 1)];
        assert!(looked(&[&twice]).unwrap_err().contains("twice"));
        let (before, after) = ([region(1, "", "", 1)], [region(2, "", "", 2)]);
        assert!(looked(&[&before, &after, &before]).unwrap_err().contains("there again"));
    }

    #[test]
    fn a_region_changes_its_group_with_its_epoch() {
        let before = [region(1, "", "", 1)];
        let moved = |epoch| [RegionDescriptor { group: GroupId(2), ..region(1, "", "", epoch) }];
        looked(&[&before, &moved(2)]).unwrap();
        assert!(looked(&[&before, &moved(1)]).unwrap_err().contains("was in group 1 in the same epoch"));
    }

    #[test]
    fn epochs_rise() {
        let looks = |first: u64, second: u64| {
            let wider = [region(1, "", "n", second), region(2, "n", "", 5)];
            looked(&[&[region(1, "", "m", first), region(2, "m", "", 4)], &wider])
        };
        looks(4, 5).unwrap();
        assert!(looks(4, 3).unwrap_err().contains("was of epoch 4"));
        assert!(looks(4, 4).unwrap_err().contains("in the same epoch"));
    }

    #[test]
    fn daughters_have_higher_epochs_than_their_parent() {
        let parent = [region(1, "", "m", 3), region(2, "m", "", 7)];
        let split = |epoch| [region(3, "", "c", epoch), region(4, "c", "m", epoch), region(2, "m", "", 7)];
        looked(&[&parent, &split(4)]).unwrap();
        assert!(looked(&[&parent, &split(3)]).unwrap_err().contains("replaces region 1 of epoch 3"));
    }
}
