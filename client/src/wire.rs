//! The wire: sessions with servers, and the only place that names the types of the protocol.

pub(crate) mod bulk;
pub(crate) mod diagnostics;
pub(crate) mod failure;
pub(crate) mod get;
pub(crate) mod hello;
pub(crate) mod in_flight;
pub(crate) mod liveness;
pub(crate) mod maintenance;
pub(crate) mod master_calls;
pub(crate) mod masters;
pub(crate) mod message;
pub(crate) mod mutate;
pub(crate) mod page;
pub(crate) mod peer;
pub(crate) mod scan;
pub(crate) mod scan_stream;
pub(crate) mod session;
