//! Several masters: how they found a cluster, call each other, join, take a place, and rebuild a catalog that all lost.

pub(crate) mod enrolment;
pub(crate) mod founding;
pub(crate) mod joining;
pub(crate) mod numbers;
pub(crate) mod peer_calls;
pub(crate) mod peers;
pub(crate) mod rebuild;
pub(crate) mod replacing;
