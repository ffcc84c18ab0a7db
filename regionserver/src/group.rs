//! A group's state machine: what its log means.
//!
//! [`state`] decides, as a plain structure over descriptors and schemas; [`machine`] does: it applies entries to the
//! engine, in order, and keeps what the edge looks up in step.

pub mod machine;
pub mod region_state;
pub mod state;
