//! The engine through its public interface, in one test binary: linking is what costs time here.
//!
//! - `support`: an engine and a plain model of it side by side, and random steps that drive both.
//! - `conformance`: every backend against the model, against restarts, and against itself under concurrency.
//! - `crash`: the engine over a disk that crashes, tears writes and refuses calls.
//!
//! Tests that measure memory need an allocator of their own and stay binaries of their own: `memory.rs`, `wide_rows.rs`.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]

mod conformance;
mod crash;
mod support;
