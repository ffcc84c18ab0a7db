//! From a submitted proposal to an applied entry and its answer.

pub(crate) mod adapter;
pub(crate) mod entry;
pub(crate) mod erased;
pub(crate) mod proposer;
pub(crate) mod state_machine;
pub(crate) mod submission;
