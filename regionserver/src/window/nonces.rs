//! The operations of callers that number nothing: each has a random nonce, which a retry carries again.
//!
//! A nonce says nothing about order or time, so neither a settled mark nor a floor can stand for those that are forgotten.
//! A region keeps what was applied in the last [`NONCE_MS`] of log time, and no more than the last [`NONCES_MAX`]: a retry
//! within these bounds is not applied again. A later one is. Only what took effect is kept, without its result: the caller
//! reads the columns again.

use std::collections::{HashSet, VecDeque};

use super::ClientId;

/// The client whose operation numbers are nonces, made by [`nonce_number`]. No client makes itself an id of text.
pub const NONCE_CLIENT: ClientId = *b"terrane's nonces";

/// Log time for which a nonce is kept (5 minutes).
pub const NONCE_MS: u64 = 5 * 60 * 1000;
/// Nonces of one region: 2 MiB as encoded, 9 MiB in memory.
pub const NONCES_MAX: usize = if cfg!(test) { 1 << 10 } else { 256 << 10 };

/// The number of an operation with this nonce, of this group of nonces. It is recorded, so it never changes. Numbers of
/// different nonces of one group differ; those of two groups do unless chance has it, once in 2^64.
#[must_use]
pub const fn nonce_number(group: u64, nonce: u64) -> u64 {
    let number = spread(spread(group) ^ nonce);
    // 0 is no number.
    if number == 0 { 1 } else { number }
}

/// The finalizer of splitmix64: a permutation in which each bit depends on all others.
const fn spread(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The nonces that were applied lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nonces {
    /// With the stamps of their entries, oldest first. Stamps never fall.
    order: VecDeque<(u64, u64)>,
    known: HashSet<u64>,
}

impl Nonces {
    pub fn contains(&self, number: u64) -> bool {
        self.known.contains(&number)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Oldest first, with their stamps.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.order.iter().copied()
    }

    /// Records a number of an entry with this stamp; false if it is known already.
    pub fn insert(&mut self, stamp: u64, number: u64) -> bool {
        if !self.known.insert(number) {
            return false;
        }
        if self.order.len() >= NONCES_MAX {
            self.forget_first();
        }
        self.order.push_back((stamp, number));
        true
    }

    /// Forgets what is older than an entry with this stamp needs.
    pub fn expire(&mut self, stamp: u64) {
        while self.order.front().is_some_and(|(of, _)| stamp >= of.saturating_add(NONCE_MS)) {
            self.forget_first();
        }
        if self.order.is_empty() && self.order.capacity() > 0 {
            *self = Self::default();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, number)) = self.order.pop_front() {
            self.known.remove(&number);
        }
    }

    /// What two neighbours know together. A row belongs to one of them, so what both know is from before they were split.
    #[must_use]
    pub fn united(left: Self, right: Self) -> Self {
        if right.is_empty() || left.is_empty() {
            return if left.is_empty() { right } else { left };
        }
        let mut all: Vec<_> = left.order.into_iter().chain(right.order).collect();
        all.sort_unstable();
        let mut united = Self::default();
        for (stamp, number) in all {
            united.insert(stamp, number);
        }
        united
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nonces_are_on_disks() {
        assert_eq!(nonce_number(0, 0), 1);
        assert_eq!((nonce_number(1, 2), nonce_number(2, 1)), (0xef30_b01c_2974_aeeb, 0x3ec2_d42f_3a45_cc6e));
    }

    #[test]
    fn a_nonce_is_known_for_five_minutes_of_log_time() {
        let mut nonces = Nonces::default();
        assert!(nonces.insert(1_000, 7) && !nonces.insert(2_000, 7) && nonces.insert(2_000, 8));
        nonces.expire(1_000 + NONCE_MS - 1);
        assert!(nonces.contains(7));
        nonces.expire(1_000 + NONCE_MS);
        assert!(!nonces.contains(7) && nonces.contains(8));
        nonces.expire(u64::MAX);
        assert_eq!(nonces, Nonces::default());
    }

    #[test]
    fn the_oldest_nonces_go_when_there_are_too_many() {
        let mut nonces = Nonces::default();
        for number in 1..=NONCES_MAX as u64 + 2 {
            nonces.insert(number, number);
        }
        assert_eq!((nonces.order.len(), nonces.known.len()), (NONCES_MAX, NONCES_MAX));
        assert!(!nonces.contains(2) && nonces.contains(3));
    }

    #[test]
    fn neighbours_together_know_what_each_of_them_knew() {
        let of = |numbers: &[(u64, u64)]| {
            let mut nonces = Nonces::default();
            numbers.iter().for_each(|(stamp, number)| assert!(nonces.insert(*stamp, *number)));
            nonces
        };
        let united = Nonces::united(of(&[(1, 10), (3, 30)]), of(&[(1, 10), (2, 20)]));
        assert_eq!(united, of(&[(1, 10), (2, 20), (3, 30)]));
    }
}
