//! The engine over a disk that crashes, tears and fails: what was acknowledged is there, and nothing wrong is ever read.
//!
//! - `workload`: a small alphabet of operations, and all short workloads over it.
//! - `enumerated`: each short workload, with the power going at every operation that changes the disk.
//! - `faults`: each short workload, with every operation of the disk refused once.
//! - `files`: both, for files taken in and regions merged.
//! - `sampled`: long random workloads that crash or meet faults over and over, also while they recover.
//! - `control`: a disk that lies about syncs is found out, so these tests can fail.
//!
//! The world, its model and the random steps are those of the conformance tests. `TERRANE_SEED=n` runs one seed of the
//! sampled tests alone, and `TERRANE_FULL=1` takes the thorough forms of the enumerated ones.

#![allow(clippy::unwrap_used, reason = "what helpers of tests unwrap is what the test claims")]

#[path = "crash/control.rs"]
mod control;
#[path = "conformance/dice.rs"]
mod dice;
#[path = "crash/enumerated.rs"]
mod enumerated;
#[path = "crash/faults.rs"]
mod faults;
#[path = "crash/files.rs"]
mod files;
#[allow(dead_code, reason = "the conformance tests use the rest")]
#[path = "conformance/model.rs"]
mod model;
#[allow(dead_code, reason = "the conformance tests use the rest")]
#[path = "conformance/passing.rs"]
mod passing;
#[path = "crash/sampled.rs"]
mod sampled;
#[allow(dead_code, reason = "the conformance tests use the rest")]
#[path = "conformance/scanning.rs"]
mod scanning;
#[allow(dead_code, reason = "the conformance tests use the rest")]
#[path = "conformance/steps.rs"]
mod steps;
#[path = "crash/workload.rs"]
mod workload;
#[allow(dead_code, reason = "the conformance tests use the rest")]
#[path = "conformance/world.rs"]
mod world;
