//! The interface of a Terrane process to its environment: network, files, time, randomness and tasks.
//!
//! Every other crate does I/O only through this one (`clippy.toml` forbids the rest), so the same code runs in production
//! and in a deterministic simulation. Each module has two implementations with the same signatures: the real one and, under
//! the feature `sim`, one over turmoil's simulated network and disk. Modules and type aliases select the implementation,
//! not trait objects, so the real one costs nothing.
//!
//! Invariants:
//! - Nothing here inspects data that passes through, except for the length prefix of each message on a port (`net::Gate`).
//! - The simulation draws every choice from the seed (`sim::seed`) and never reads a real clock, file or socket.
//! - File functions are `async` in both implementations. The real ones are plain blocking calls: a loop that owns a disk
//!   runs on its own thread ([`task::spawn_io_loop`]), other disk work goes through [`task::run_io`].
//!
//! Left out on purpose: metrics (each node owns its registry) and timers (`tokio::time` works in both, because turmoil
//! pauses tokio's clock per host).

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is the one place that may name what the lists forbid to all others"
)]

pub mod budget;
#[cfg(feature = "sim")]
mod delay;
pub mod fs;
pub mod net;
pub mod rand;
#[cfg(feature = "sim")]
pub mod sim;
pub mod task;
pub mod time;

/// A fault point: true when the simulation injects an unlucky but legal event here. Always false in production.
///
/// Use it for what real systems do rarely: a batch cut short, a cache eviction, a needless retry.
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {
        $crate::fault_point($name)
    };
}

/// A planted bug: true when the simulation runs with this bug switched on, to test whether it finds it. Always false in
/// production.
///
/// Unlike a fault point it is *not* legal: a run with it must fail. A run that passes is a bug of the harness.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::bug_is_planted($name)
    };
}

/// What [`planted!`] expands to; a function so that the feature of this crate decides, not the caller's.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn bug_is_planted(_name: &'static str) -> bool {
    false
}

/// What [`planted!`] expands to; a function so that the feature of this crate decides, not the caller's.
#[cfg(feature = "sim")]
pub fn bug_is_planted(name: &'static str) -> bool {
    sim::bug_is_planted(name)
}

/// What [`buggify!`] expands to; a function so that the feature of this crate decides, not the caller's.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn fault_point(_name: &'static str) -> bool {
    false
}

/// What [`buggify!`] expands to; a function so that the feature of this crate decides, not the caller's.
#[cfg(feature = "sim")]
pub fn fault_point(name: &'static str) -> bool {
    sim::fault_point(name)
}
