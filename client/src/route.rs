//! From a row to the server that hosts it: location cache, masters, sessions, retries.

pub(crate) mod budget;
pub(crate) mod counters;
pub(crate) mod hedge;
pub(crate) mod lanes;
pub(crate) mod leader_search;
pub(crate) mod locator;
pub(crate) mod observe;
pub(crate) mod operation_numbers;
pub(crate) mod progress;
pub(crate) mod retry;
pub(crate) mod router;
pub(crate) mod sessions;
pub(crate) mod target;
pub(crate) mod trace_scope;
