//! The stock of region ids that the master hands out in advance, so that a split needs no master.

use std::collections::VecDeque;

use parking_lot::Mutex;
use terrane_types::RegionId;

/// Ids kept in stock: enough for the splits of several seconds of import into tiny regions.
pub const STOCK_IDS: u32 = 128;

/// Blocks of unused ids. Ids lost in a crash are never used; there are 2^48 of them.
#[derive(Default)]
pub struct RegionIdStock {
    blocks: Mutex<VecDeque<(u64, u64)>>,
}

impl RegionIdStock {
    /// Adds `count` ids, beginning with `first`.
    pub fn add(&self, first: u64, count: u32) {
        if count > 0 {
            self.blocks.lock().push_back((first, first.saturating_add(u64::from(count))));
        }
    }

    /// Takes the two ids that a split needs, or none.
    pub fn take_two(&self) -> Option<(RegionId, RegionId)> {
        let mut blocks = self.blocks.lock();
        let left: u64 = blocks.iter().map(|(first, end)| end - first).sum();
        if left < 2 {
            return None;
        }
        Some((take(&mut blocks)?, take(&mut blocks)?))
    }

    /// Takes the id that a merge needs, or none.
    pub fn take_one(&self) -> Option<RegionId> {
        take(&mut self.blocks.lock())
    }

    /// Above all ids in stock; 0: there are none.
    pub fn end(&self) -> u64 {
        self.blocks.lock().iter().map(|(_, end)| *end).max().unwrap_or(0)
    }

    /// The number of ids to request from the master.
    pub fn wanted(&self) -> u32 {
        let left: u64 = self.blocks.lock().iter().map(|(first, end)| end - first).sum();
        terrane_env::limit!("region ids in stock", STOCK_IDS, 2..=6)
            .saturating_sub(u32::try_from(left).unwrap_or(u32::MAX))
    }
}

fn take(blocks: &mut VecDeque<(u64, u64)>) -> Option<RegionId> {
    let (first, end) = blocks.front_mut()?;
    let id = RegionId(*first);
    *first += 1;
    if first == end {
        blocks.pop_front();
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_across_blocks_and_only_once() {
        let stock = RegionIdStock::default();
        stock.add(10, 1);
        assert_eq!(stock.take_two(), None);
        stock.add(20, 2);
        assert_eq!(stock.take_two(), Some((RegionId(10), RegionId(20))));
        assert_eq!(stock.take_two(), None);
        assert_eq!(stock.wanted(), STOCK_IDS - 1);
    }
}
