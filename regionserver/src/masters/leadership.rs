//! The masters' newest leadership, as this server knows it: orders of an older one are refused.
//!
//! A leading master that is paused, and deposed meanwhile, may send an order when it runs again that it had decided on by what
//! was true before: to remove a replica that has become a voter since, for example. The leader's answers to reports carry the
//! number of its leadership, and a leader orders only what follows from reports. So a server that has reported to the new
//! leader refuses the former one.
//!
//! The number is not stored. After its start a server knows none until its first report is answered, within a moment; the
//! former leader would have to run again just then, and a server that has just started leads no group yet.
//!
//! Orders never raise the number, since they are checked before the cluster that they name. Answers to reports come from the
//! server's own masters.

use std::sync::atomic::{AtomicU64, Ordering};

use terrane_types::{Error, GroupId};

/// The newest leadership that this server has heard of.
#[derive(Debug, Default)]
pub struct NewestLeadership(AtomicU64);

impl NewestLeadership {
    /// A leader has answered a report; 0: it does not say which leadership it has.
    pub fn heard(&self, number: u64) {
        self.0.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether no later leadership than this one has been heard of.
    pub fn is_newest(&self, number: u64) -> bool {
        number >= self.0.load(Ordering::Relaxed)
    }

    /// Refuses an order of a leadership that has ended. Servers and clients name none: 0.
    ///
    /// # Errors
    /// [`Error::NotLeader`] of the masters' group.
    pub fn admit(&self, number: u64) -> Result<(), Error> {
        let newest = self.0.load(Ordering::Relaxed);
        if number == 0 || number >= newest {
            return Ok(());
        }
        tracing::warn!(number, newest, "refusing an order of a master that no longer leads");
        let (leader, address) = (None, None);
        Err(Error::NotLeader { group: GroupId::MASTER, term: newest, leader, address, members: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_an_older_leadership_are_refused() {
        let newest = NewestLeadership::default();
        assert!(newest.admit(3).is_ok(), "nothing was heard yet");
        newest.heard(5);
        newest.heard(0);
        newest.heard(4);
        assert!(matches!(newest.admit(4), Err(Error::NotLeader { group: GroupId::MASTER, term: 5, .. })));
        assert!(newest.admit(5).is_ok() && newest.admit(6).is_ok());
        assert!(newest.admit(0).is_ok(), "a server or a client names none");
        assert!(newest.admit(5).is_ok(), "an order raises nothing");
    }
}
