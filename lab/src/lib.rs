//! The launcher: `terrane` as real processes on this machine, for whatever has to start them.
//!
//! The drivers of this crate's program, the tests of the binary, the examples and xtask share it, so that ports, readiness, logs,
//! signals and the end of processes are handled in one place. Every process is owned by a value whose drop kills it, so a
//! failure leaves none behind, and every wait has a limit. It depends on nothing of ours: a process is what its command line,
//! its output and its signals show.
//!
//! - [`process`]: one process; `running`: a command beside the test; [`ports`]: free ports;
//! - `cluster`: masters and region servers, and commands against them; `dev`: `terrane dev`;
//! - [`builds`]: cargo, and what it builds; `wait`: conditions.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real processes live in real time, with real files and ports"
)]

pub mod builds;
mod cluster;
mod dev;
pub mod ports;
pub mod process;
mod running;
mod wait;

pub use self::cluster::{Cluster, Host, Role, Size};
pub use self::dev::{DevCluster, log};
pub use self::process::{Ended, Process};
pub use self::running::{Load, Running, run};
pub use self::wait::{eventually, eventually_within, let_it_run};
