//! The engine under many interleavings of the threads that use it. docs/testing.md says how these tests work.
//!
//! - `world`: an engine on a disk in memory, whose log is known, and what each region must hold.
//! - the others: a structure each. Every claim has a test with a planted mistake next to it, which shows that it can fail.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]

mod files;
mod memtables;
mod snapshots;
mod splits;
mod world;
