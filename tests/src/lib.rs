//! What the tests of whole clusters share: a cluster in this process, oracles for reads and for what must count once,
//! waiting for conditions, and, under the feature `sim`, the simulated run itself.
//!
//! Two worlds, one code under test. `cluster` runs masters and servers on real sockets and files, on the real clock;
//! `simulation` runs the same servers and the same client on turmoil's network, disk and clock, where crashes lose what
//! was not synced and a seed gives the same run twice. The feature swaps the doors of `terrane-env` for the whole build,
//! so the two are never built together: `cargo xtask sim` builds the second with a target directory of its own.

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
