//! The search for a group's leader when the known one is gone.
//!
//! A few calls, the *scouts*, try the members with their own requests until one of them leads. All other calls wait for the
//! result, so that thousands of calls do not flood the very servers that elect a leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use terrane_types::GroupId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Scouts of one group.
const SCOUTS_MAX: usize = 16;
/// How long a call waits before it checks whether it can be a scout, and before it tries without being one.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The right to try members.
pub(crate) type Scout = OwnedSemaphorePermit;

/// The searches in progress, at most one per group.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    groups: Mutex<BTreeMap<GroupId, Arc<Search>>>,
    /// The number of searches: mostly none.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Search {
    scouts: Arc<Semaphore>,
    found: Notify,
}

impl Searches {
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Waits until the leader of a group is known, or the caller may try members: as a scout, or after a long wait without
    /// being one.
    pub(crate) async fn join(&self, group: GroupId, until: Instant, is_known: impl Fn() -> bool) -> Option<Scout> {
        let search = self.search(group);
        let until = until.min(Instant::now() + WAIT_MAX);
        loop {
            let found = search.found.notified();
            let mut found = std::pin::pin!(found);
            // Registered before the check: a result in between wakes us.
            found.as_mut().enable();
            if is_known() {
                return None;
            }
            if let Ok(scout) = Arc::clone(&search.scouts).try_acquire_owned() {
                return Some(scout);
            }
            let now = Instant::now();
            if now >= until {
                return None;
            }
            if timeout_at(until.min(now + LOOK_AGAIN), found).await.is_ok() {
                return None;
            }
        }
    }

    /// The leader of a group is known.
    pub(crate) fn found(&self, group: GroupId) {
        let mut groups = self.groups.lock();
        let search = groups.remove(&group);
        self.count.store(groups.len(), Ordering::Relaxed);
        drop(groups);
        if let Some(search) = search {
            search.found.notify_waiters();
        }
    }

    fn search(&self, group: GroupId) -> Arc<Search> {
        let mut groups = self.groups.lock();
        let new = || Arc::new(Search { scouts: Arc::new(Semaphore::new(SCOUTS_MAX)), found: Notify::new() });
        let search = Arc::clone(groups.entry(group).or_insert_with(new));
        self.count.store(groups.len(), Ordering::Relaxed);
        search
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    const GROUP: GroupId = GroupId(3);

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn few_calls_search_and_the_others_continue_when_the_leader_is_found() {
        let searches = Searches::default();
        let joining = join_all((0..SCOUTS_MAX).map(|_| searches.join(GROUP, later(), || false)));
        let scouts = joining.now_or_never().expect("no call waits");
        assert!(scouts.iter().all(Option::is_some) && searches.is_any());
        let known = std::sync::atomic::AtomicBool::new(false);
        let mut waiting = Box::pin(searches.join(GROUP, later(), || known.load(Ordering::Relaxed)));
        assert!((&mut waiting).now_or_never().is_none(), "there are enough scouts");
        known.store(true, Ordering::Relaxed);
        searches.found(GROUP);
        assert!((&mut waiting).now_or_never().expect("woken").is_none());
        assert!(!searches.is_any());
    }

    #[tokio::test]
    async fn a_scout_that_gives_up_is_replaced() {
        let searches = Searches::default();
        let mut scouts = Vec::new();
        for _ in 0..SCOUTS_MAX {
            scouts.push(searches.join(GROUP, later(), || false).await.expect("a scout"));
        }
        scouts.pop();
        assert!(searches.join(GROUP, later(), || false).await.is_some());
    }
}
