//! The simulator: a whole cluster, clients included, in one process under simulated time, network and disk, with faults
//! drawn from a seed and checks of everything that clients observe.
//!
//! Masters, servers and clients are the production code; only `terrane-env` is replaced (feature `sim`). A **scenario**
//! says what the clients do, `terrane_oracle` judges what they see, a **plan** holds what the seed drew (sizes, speeds, faults
//! and their times), and a **verdict** says how the run ended.
//!
//! The feature replaces `terrane-env` in the whole build, so the simulator is built on its own: `cargo xtask sim`. Without the
//! feature this crate is empty, so that a build of the workspace leaves it out.

#![cfg(feature = "sim")]

pub mod fault;
pub mod kind;
pub mod memory;
pub mod plan;
pub mod planted;
pub mod run;
pub mod scenario;
pub mod trace;
pub mod verdict;

mod context;
mod nodes;
mod run_state;
mod watch;
