//! The region servers, as the leading master sees them: registration, reports, who is alive and who leads what.

pub(crate) mod callbacks;
pub(crate) mod inventory;
pub(crate) mod liveness;
pub(crate) mod membership;
pub(crate) mod observed;
