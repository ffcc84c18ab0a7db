//! The engine over a disk that crashes, tears writes and fails: acknowledged data is there, and wrong data is never read.
//!
//! - `workload`: a small alphabet of operations, and all short workloads over it.
//! - `enumerated`: each short workload, with a power cut at every operation that changes the disk. By default
//!   every fifth of those of three operations.
//! - `faults`: each short workload, with every disk operation refused once. By default every fourth of those of two
//!   operations.
//! - `ingest`: both, for ingested files and merged regions.
//! - `install`: both, for copies of a group.
//! - `moves`: a power cut at every operation of an adoption, for regions that move between groups.
//! - `sampled`: long random workloads that crash or meet faults again and again, also while they recover.
//! - `control`: a disk that lies about syncs is caught, so these tests can fail.
//!
//! `TERRANE_SEED=n` runs one seed of the sampled tests alone, and `TERRANE_FULL=1` runs all tests in full.

mod control;
mod enumerated;
mod faults;
mod ingest;
mod install;
mod moves;
mod sampled;
mod workload;
