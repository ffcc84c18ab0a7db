//! The shared parts of whole-cluster tests: a cluster in this process, oracles for reads and for exactly-once
//! operations, waiting for conditions and, with the feature `sim`, the simulated run.
//!
//! Both environments test the same code. `cluster` runs masters and servers on real sockets, files and clocks.
//! `simulation` runs the same servers and client on turmoil's network, disk and clock, where crashes lose what was not
//! synced and the same seed gives the same run. The feature replaces the implementation of `terrane-env` in the whole
//! build, so the two are never built together: `cargo xtask sim` builds the simulator in its own target directory.

#[cfg(not(feature = "sim"))]
pub mod cluster;
#[cfg(not(feature = "sim"))]
pub mod eventually;
pub mod ledger;
pub mod numbers;
pub mod oracle;
pub mod plan;
#[cfg(feature = "sim")]
pub mod simulation;
