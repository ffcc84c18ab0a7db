//! The doors of a Terrane process to the world: network, files, time, randomness and tasks.
//!
//! Every other crate reaches the outside only through here (`clippy.toml` forbids the rest), which is what lets the same
//! code run in production and in a deterministic simulation. Each door has two sides of the same shape: the real one, and,
//! under the feature `sim`, one over turmoil's simulated network and disk. The sides are chosen by type aliases and modules,
//! not by trait objects, so the real side costs nothing.
//!
//! Invariants:
//! - Nothing here looks at what passes through, beyond the length that announces each message on a port (`net::Gate`).
//! - The simulated side draws every choice from the seed (`sim::seed`) and never looks at a real clock, file or socket.
//! - File functions are `async` on both sides. On the real side their bodies are plain blocking calls: a loop that owns a
//!   disk runs on a thread of its own ([`task::spawn_io_loop`]), other disk work goes through [`task::run_io`].
//!
//! Left out on purpose: metrics (one registry per node, owned by the node) and timers (`tokio::time` serves both sides,
//! since turmoil pauses tokio's clock per host).

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is the one place that may name what the lists forbid to all others"
)]

#[cfg(all(feature = "sim", not(tokio_unstable)))]
compile_error!(
    "the simulated side needs RUSTFLAGS=\"--cfg tokio_unstable\" (tokio's seeded scheduler); `cargo xtask sim` sets it"
);

pub mod budget;
pub mod fs;
pub mod net;
pub mod rand;
#[cfg(feature = "sim")]
pub mod sim;
pub mod task;
pub mod time;

/// A fault point: true when the simulation wants something unlucky, but legal, to happen here. Always false in production.
///
/// Use it for what real systems do seldom: a batch cut short, a cache that forgets, a retry without cause.
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {
        $crate::fault_point($name)
    };
}

/// A planted bug: true when the simulation was asked to have this very mistake made, to see whether it finds it. Always
/// false in production.
///
/// Unlike a fault point it is *not* legal: a run with it has to fail, and one that does not is the harness's own bug.
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
