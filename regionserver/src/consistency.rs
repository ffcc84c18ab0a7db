//! What a read may miss: the three choices that a request has.
//!
//! - **Linearizable**: everything acknowledged before the read began. The leader answers under its lease, or after a quorum
//!   round where it has none.
//! - **Strict**: the same, always by a quorum round: nothing rests on clocks that run at about the same speed.
//! - **Stale**: any member answers at once from what it has applied, and says up to which time that is everything.
//!
//! Region and epoch are checked in all three, against the state of whoever answers.

use std::time::Duration;

use terrane_types::Error;

use crate::addresses::Addresses;
use crate::error_mapping::barrier_error;
use crate::proposal::Group;

/// What a read is to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    #[default]
    Linearizable,
    Strict,
    Stale,
}

/// A moment to read at.
#[derive(Clone, Copy, Debug)]
pub struct ReadTime {
    /// The time by which cells are expired.
    pub now_ms: i64,
    /// Of a stale read: everything acknowledged before this time is shown. 0 for the others, which show all.
    pub as_of_ms: u64,
}

impl Consistency {
    /// Waits for what is promised to be applied here; what is read after that shows it.
    pub async fn read_point(self, group: &Group, addresses: &Addresses, deadline: Duration) -> Result<ReadTime, Error> {
        let point = async {
            Ok(match self {
                Self::Linearizable => (group.read_barrier().await?.stamp, 0),
                Self::Strict => (group.strict_read_barrier().await?.stamp, 0),
                Self::Stale => group.stale_point().map(|point| (point.stamp, point.as_of_ms))?,
            })
        };
        let point = tokio::time::timeout(deadline, point).await.map_err(|_| Error::DeadlineExceeded)?;
        let (stamp, as_of_ms) = point.map_err(|error| barrier_error(error, group, addresses))?;
        Ok(ReadTime { now_ms: i64::try_from(group.time_ms(stamp)).unwrap_or(i64::MAX), as_of_ms })
    }
}
