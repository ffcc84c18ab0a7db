//! Fuzzing of every durable format and of everything that clients and peers send, on the stable toolchain.
//!
//! The crates with formats list them ([`terrane_types::fuzzing::Format`]); [`formats`] adds those of the crates without
//! private decoders. [`checks`] has the properties, [`mutate`] changes valid encodings, [`driver`] repeats both and
//! [`corpus`] keeps valid encodings and failures. `docs/testing.md` explains how to use it.
//!
//! Stable Rust has no coverage feedback. Two things compensate: each format draws valid values of its own, so that
//! changes reach the inner fields, and formats behind a checksum have a second form whose checksums are computed by the
//! reader.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool for the checkout that never runs in a node or in the simulation"
)]

pub mod checks;
pub mod corpus;
pub mod driver;
pub mod formats;
pub mod mutate;

use std::alloc::System;

use cap::Cap;

/// Counts allocations, to notice a decoder that allocates what a length from outside says.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes allocated now, and the most at any time.
fn allocated() -> (usize, usize) {
    (ALLOCATOR.allocated(), ALLOCATOR.max_allocated())
}
