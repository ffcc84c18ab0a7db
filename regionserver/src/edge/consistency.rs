//! How recent a read must be: the three levels that a request can choose.
//!
//! - **Linearizable**: everything acknowledged before the read began. The leader answers under its lease, or after a quorum
//!   round if it has none.
//! - **Strict**: the same, always by a quorum round, so that nothing depends on clocks running at about the same speed.
//! - **Stale**: any member answers at once from what it has applied, and names the time up to which that is complete.
//!
//! Region and epoch are checked at all three levels, against the state of the replica that answers.

use std::time::Duration;

use terrane_types::Error;

use crate::edge::error_mapping::barrier_error;
use crate::group::proposal::Group;
use crate::masters::addresses::Addresses;

/// What a read must show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    #[default]
    Linearizable,
    Strict,
    Stale,
}

/// The time of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadTime {
    /// The time at which expiry of cells is judged.
    pub now_ms: i64,
    /// For a stale read: everything acknowledged before this time is shown. 0 for other reads, which show everything.
    pub as_of_ms: u64,
}

impl Consistency {
    /// The level at which a read is answered whose table or server may want strict reads. A stale read asks for less by name.
    pub fn under(self, wants_strict: impl FnOnce() -> bool) -> Self {
        match self {
            Self::Linearizable if wants_strict() && !terrane_env::planted!("strict reads rely on a lease") => {
                Self::Strict
            }
            asked => asked,
        }
    }

    /// Waits until everything that the read must show is applied here.
    pub async fn read_point(self, group: &Group, addresses: &Addresses, deadline: Duration) -> Result<ReadTime, Error> {
        let point = async {
            Ok(match self {
                Self::Linearizable if terrane_env::planted!("a linearizable read does not wait") => {
                    (group.stale_point()?.stamp, 0)
                }
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

#[cfg(test)]
mod tests {
    use super::Consistency::{Linearizable, Stale, Strict};

    #[test]
    fn reads_of_a_strict_table_do_not_rely_on_a_lease() {
        let levels = [Linearizable, Strict, Stale];
        assert_eq!(levels.map(|asked| asked.under(|| true)), [Strict, Strict, Stale]);
        assert_eq!(levels.map(|asked| asked.under(|| false)), levels);
    }
}
