//! The interface of a Terrane process to its environment: network, files, time, randomness and tasks.
//!
//! Every other crate does I/O only through this one (`clippy.toml` forbids the rest), so the same code runs in production
//! and in a deterministic simulation. Each module has two implementations with the same signatures: the real one and, under
//! the feature `sim`, one over turmoil's simulated network and disks in memory. Modules and type aliases select the
//! implementation, not trait objects, so the real one costs nothing.
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
#[cfg(feature = "interleave")]
pub mod interleave;
pub mod log_control;
#[cfg(any(test, feature = "memory-disk"))]
mod memory_disk;
pub mod net;
mod node;
pub mod pace;
mod points;
pub mod rand;
#[cfg(feature = "sim")]
pub mod sim;
pub mod sync;
pub mod task;
pub mod time;
pub mod trace;
#[cfg(not(feature = "sim"))]
mod vm_clock;

#[doc(hidden)]
pub use points::{bug_is_planted, fault_point, is_struck, limit, pause_point, tallied, witnessed};
