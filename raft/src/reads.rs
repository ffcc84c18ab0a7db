//! When a read may be answered, and from what: read barriers under a lease or by a quorum round, and stale reads.

pub(crate) mod barrier;
pub(crate) mod completeness;
pub(crate) mod lease;
pub(crate) mod rounds;
pub(crate) mod staleness;
