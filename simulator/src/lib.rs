//! The simulator: a whole cluster, clients included, in one process under simulated time, network and disk, with faults
//! drawn from a seed and checks of everything that clients observe.
//!
//! Masters, servers and clients are the production code; only `terrane-env` is replaced (feature `sim`). A **scenario**
//! says what the clients do and check, a **plan** holds what the seed drew (sizes, speeds, faults and their times), and a
//! **verdict** says how the run ended. `terrane_oracle` holds the checkers, which know nothing of the simulation.
//!
//! The feature replaces `terrane-env` in the whole build, so the simulator is built on its own: `cargo xtask sim`. Without
//! the feature this crate is the plan, which ordinary tests test.

pub mod fault;
pub mod kind;
pub mod memory;
pub mod plan;
pub mod planted;
#[cfg(feature = "sim")]
pub mod run;
pub mod scenario;
#[cfg(feature = "sim")]
pub mod trace;
pub mod verdict;

#[cfg(feature = "sim")]
mod context;
#[cfg(feature = "sim")]
mod nodes;
#[cfg(feature = "sim")]
mod run_state;
#[cfg(feature = "sim")]
mod watch;
