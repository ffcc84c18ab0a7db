//! What clients of a cluster may see: checkers of what was called and answered, and a plain model of the data path.
//!
//! A checker is told of each call before it is sent (`begin_..`, which returns what was certain then) and of each outcome after
//! it was received (`end_..`), and says which of them cannot be ([`Verdict`]). What is known of a call that has ended is its
//! [`Fate`]. It knows neither a runtime nor I/O, so the simulator, the chaos run and the tests of whole clusters share it, and
//! ordinary tests try it on histories that are known to be right or wrong.

pub mod check;
pub mod counted_rows;
pub mod counter;
pub mod events;
pub mod expiry;
pub mod families;
pub mod held;
pub mod ledger;
pub mod linearizability;
pub mod linked;
pub mod load_history;
pub mod loaded;
pub mod meta;
pub mod model;
pub mod numbers;
pub mod resources;
pub mod rows;
pub mod settings;
pub mod staleness;
pub mod traced;
pub mod versions;

mod verdict;

pub use verdict::{Fate, Findings, Verdict, Violation};
