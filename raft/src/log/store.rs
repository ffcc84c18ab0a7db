//! The log of one group as openraft sees it.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use futures::Stream;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use tokio::sync::oneshot;

use super::memory::GroupLog;
use super::record::Mark;
use super::shared::{Change, Completion, Item, Shared};
use crate::types::{Entry, LogId, Types, Vote};

/// Bytes of entries in one append to a peer: large enough that the cost per message does not matter, small enough that a
/// follower far behind does not delay others on the same link for long.
const APPEND_BYTES_MAX: usize = 2 << 20;

/// Bytes of entries read at a time when committed entries are applied.
const APPLY_BYTES_MAX: usize = 4 << 20;

/// The log of one group.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    log: Arc<GroupLog>,
}

impl Store {
    pub(super) fn new(shared: Arc<Shared>, log: Arc<GroupLog>) -> Store {
        Store { shared, log }
    }

    /// Makes the log begin after `mark`, the state of a copy that was installed. When this returns, the log has a durable
    /// record of it.
    ///
    /// Otherwise a restart would find the log as it was before the copy: a member that answered for entries of the copy
    /// could then vote for a leader without them.
    pub(crate) async fn begin_after(&self, mark: Mark) -> io::Result<()> {
        let id = mark.log_id;
        self.log.offer(mark);
        let Some(mark) = self.log.purge(&id)? else { return Ok(()) };
        if terrane_env::planted!("a copy counts before the log has a record of it") {
            self.push(Change::Purged(mark), Completion::Unobserved);
            return Ok(());
        }
        let (done, synced) = oneshot::channel();
        // The core of a replica has stopped before it is removed, but what installs a copy may still run.
        self.log.unless_removed(|| self.push(Change::Purged(mark), Completion::Waiter(done)))?;
        synced.await.map_err(|_| io::Error::other("the log was closed"))
    }

    fn push(&self, change: Change, done: Completion) {
        self.shared.push(Item { log: self.log.clone(), change, done });
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry>, io::Error>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.log.read(bounds(&range), usize::MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.vote())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        let bytes_max = terrane_env::limit!("bytes of entries in an append", APPEND_BYTES_MAX, 1..=8192);
        self.log.read(start..end, bytes_max).await
    }

    /// Reads in steps: after a restart the range is everything that was not purged.
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let range = bounds(&range);
        let log = self.log.clone();
        let start = (range.start, Vec::new().into_iter());
        futures::stream::try_unfold(start, move |(mut next, mut read)| {
            let log = log.clone();
            let end = range.end;
            async move {
                if read.len() == 0 && next < end {
                    let bytes_max =
                        terrane_env::limit!("bytes of entries read to be applied", APPLY_BYTES_MAX, 1..=8192);
                    read = log.read(next..end, bytes_max).await?.into_iter();
                }
                let Some(entry): Option<Entry> = read.next() else {
                    return Ok(None);
                };
                next = entry.log_id.index + 1;
                Ok(Some((entry, (next, read))))
            }
        })
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Store;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let (last_purged_log_id, last_log_id) = self.log.ends();
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Store {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.log.set_vote(*vote);
        if terrane_env::planted!("a vote is not logged") {
            return Ok(());
        }
        let (done, synced) = oneshot::channel();
        self.push(Change::Vote(*vote), Completion::Waiter(done));
        synced.await.map_err(|_| io::Error::other("the log was closed"))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        self.shared.wait_for_queue().await;
        let appended = self.log.append(&entries);
        self.push(Change::Entries(appended, entries), Completion::Raft(flushed));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let last = last.map(|id| id.index);
        self.log.truncate_after(last);
        self.push(Change::Truncated(last), Completion::Unobserved);
        Ok(())
    }

    async fn purge(&mut self, id: LogId) -> Result<(), io::Error> {
        if let Some(mark) = self.log.purge(&id)? {
            self.push(Change::Purged(mark), Completion::Unobserved);
        }
        Ok(())
    }
}
