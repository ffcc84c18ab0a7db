//! The faults of a run: the catalogue, how a seed draws from it, and how each fault is injected and healed.
//!
//! [`draw`] knows nothing of the simulation; `nemesis` injects between two of its steps.

pub mod draw;
mod links;
mod loss;
mod machine;
pub mod nemesis;
mod staged;

pub use draw::{ClockFault, Damage, DiskCall, DiskFault, Fault, LinkFault, PlannedFault, SyncedFile, Target, Trigger};
