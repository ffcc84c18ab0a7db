//! Checkers: what a history of operations may show. They know nothing of the simulation, so that ordinary tests try them
//! on histories that are known to be right or wrong.

pub mod events;
pub mod expiry;
pub mod families;
pub mod held;
pub mod ledger;
pub mod linked;
pub mod load_history;
pub mod loaded;
pub mod meta;
pub mod presence;
pub mod registers;
pub mod resources;
pub mod settings;
pub mod staleness;
pub mod traced;
pub mod versions;

pub use terrane_linearizability as linearizability;
