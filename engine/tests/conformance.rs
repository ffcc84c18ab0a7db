//! Every backend against a plain model, against crashes, and against itself under concurrency.
//!
//! - `model`: what a region holds, told as the list of everything ever applied, with a slow and obvious way to read it.
//! - `world`: an engine and its model side by side, driven by a log as the raft room would drive it.
//! - `steps`, `random`: random steps; a failure prints its seed, and `TERRANE_SEED=n` runs that one alone.
//! - `crash`, `history`, `points`, `racing`, `reading`: one claim per test.

#![allow(clippy::unwrap_used, reason = "what helpers of tests unwrap is what the test claims")]

#[path = "conformance/crash.rs"]
mod crash;
#[path = "conformance/dice.rs"]
mod dice;
#[path = "conformance/files.rs"]
mod files;
#[path = "conformance/history.rs"]
mod history;
#[path = "conformance/model.rs"]
mod model;
#[path = "conformance/passing.rs"]
mod passing;
#[path = "conformance/points.rs"]
mod points;
#[path = "conformance/racing.rs"]
mod racing;
#[path = "conformance/random.rs"]
mod random;
#[path = "conformance/reading.rs"]
mod reading;
#[path = "conformance/scanning.rs"]
mod scanning;
#[path = "conformance/steps.rs"]
mod steps;
#[allow(dead_code, reason = "the crash tests use the rest")]
#[path = "conformance/world.rs"]
mod world;
