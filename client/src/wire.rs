//! The wire: sessions with servers, and the only place that names the types of the protocol.

pub(crate) mod failure;
pub(crate) mod greeting;
pub(crate) mod in_flight;
pub(crate) mod peer;
pub(crate) mod pulse;
pub(crate) mod session;
