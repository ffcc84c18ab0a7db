//! What the leading master has seen, in memory: load, events, ended procedures.

pub(crate) mod chronicle;
pub(crate) mod events;
pub(crate) mod load_history;
pub(crate) mod procedure_history;
