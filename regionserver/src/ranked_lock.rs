//! A lock whose rank is part of its type, so that locks are taken in one order everywhere.
//!
//! A thread that holds a lock may only take locks of a higher rank. A debug build asserts it at every lock, so that a test
//! that takes two locks in the wrong order fails even when no other thread is there to deadlock with. A release build pays
//! nothing.

use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

/// A mutex of this rank.
#[derive(Default)]
pub struct RankedMutex<T, const RANK: u8>(Mutex<T>);

/// Access to the value until it is dropped.
pub struct RankedGuard<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T, const RANK: u8> RankedMutex<T, RANK> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub fn lock(&self) -> RankedGuard<'_, T, RANK> {
        let held = held::Held::enter(RANK);
        RankedGuard { guard: self.0.lock(), _held: held }
    }
}

impl<T, const RANK: u8> Deref for RankedGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for RankedGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::Cell;

    thread_local! {
        /// The rank of the lock that this thread took last and still holds; 0: none.
        static HIGHEST: Cell<u8> = const { Cell::new(0) };
    }

    /// A held lock, with the rank held before it.
    pub(super) struct Held(u8);

    impl Held {
        pub(super) fn enter(rank: u8) -> Self {
            let before = HIGHEST.get();
            assert!(before < rank, "a lock of rank {rank} is taken while one of rank {before} is held");
            HIGHEST.set(rank);
            Self(before)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HIGHEST.set(self.0);
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    pub(super) struct Held;

    impl Held {
        #[inline]
        pub(super) fn enter(_rank: u8) -> Self {
            Self
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (low, high) = (RankedMutex::<_, 1>::new(0), RankedMutex::<_, 2>::new(0));
        for _ in 0..2 {
            let mut low = low.lock();
            *low += *high.lock() + 1;
            *high.lock() += 1;
        }
        assert_eq!((*low.lock(), *high.lock()), (3, 2));
    }

    #[test]
    #[should_panic(expected = "a lock of rank 1 is taken while one of rank 2 is held")]
    fn the_opposite_order_fails() {
        let (low, high) = (RankedMutex::<_, 1>::new(0), RankedMutex::<_, 2>::new(0));
        let _high = high.lock();
        drop(low.lock());
    }
}
