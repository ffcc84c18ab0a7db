//! Locks and atomics of structures that several threads share.
//!
//! In production these are parking_lot's locks and the standard library's atomics, re-exported: no code of ours is in
//! between. Under the feature `interleave` they belong to shuttle, which runs the threads of a test one at a time and chooses
//! at every lock, atomic and [`point`] which one runs next. docs/testing.md says how to write such a test.
//!
//! # Invariants
//! - A structure that is tested with interleavings takes every lock that may be held across a [`point`] from here: a lock of
//!   another kind would block the one thread that all tasks of such a test share.
//! - Orderings are not modelled: shuttle executes every atomic as sequentially consistent.

#[cfg(feature = "interleave")]
mod interleaved;

#[cfg(feature = "interleave")]
pub use self::interleaved::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, is_planted, plant, point,
};
#[cfg(not(feature = "interleave"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "interleave"))]
pub use std::sync::atomic;

/// A moment at which another thread may run: before an access to shared memory that takes no lock or atomic of this module,
/// such as a load of an `ArcSwap`. It does nothing in production.
#[cfg(not(feature = "interleave"))]
#[inline(always)]
pub const fn point() {}

/// Whether a test of interleavings has planted this mistake, to show that it finds it. Never in production. Mistakes of the
/// simulator are planted with [`crate::planted!`].
#[cfg(not(feature = "interleave"))]
#[inline(always)]
pub const fn is_planted(_mistake: &'static str) -> bool {
    false
}

/// A limit: the first number, or in a test of interleavings the second, so that few steps reach it.
pub const fn limit(production: usize, interleaved: usize) -> usize {
    if cfg!(feature = "interleave") { interleaved } else { production }
}
