//! A group's state machine: what its log means.
//!
//! [`state`] decides, as a pure structure over descriptors and schemas. [`machine`] applies entries to the engine, in order,
//! and updates what the edge looks up.

pub(crate) mod apply_gate;
pub mod machine;
pub(crate) mod proposal;
pub mod region_state;
pub(crate) mod reply;
pub mod state;
