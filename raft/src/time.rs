//! The time of a group: the clocks of the servers, as they read them from each other, and what a group makes of them.

pub(crate) mod clock;
pub(crate) mod group_time;
pub(crate) mod probe;
