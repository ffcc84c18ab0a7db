//! Exactly once: what a region remembers of the operations that were applied to it.
//!
//! Every row mutation has a number of its client's. A retry after a lost reply, a change of leader or a split names the
//! same number, and is answered with the first outcome instead of being applied again. What cannot be known any more is
//! said to be so, never guessed.
//!
//! Of each client a region keeps the *settled mark* (below it the client waits for nothing), the numbers above it that are
//! settled all the same, those that were applied and are not settled, both as ranges, and results where there is one of at
//! most [`RESULT_BYTES_MAX`]. A client whose lowest number is stuck says which of the others it still waits for
//! ([`WindowUpdate::settle`]): so a region keeps results of calls under way, and of few others, however long one of them takes.
//!
//! A client that was idle for [`IDLE_MS_MAX`] of log time leaves. While all of it takes more than [`WINDOW_BYTES_MAX`], a
//! client at work gives up what it has beyond [`SHARE_BYTES_MAX`], and then the client leaves that was idle longest. The
//! region's *floor* then rises to the time the client was last heard of: an operation of an unknown client that was first
//! tried at or before the floor may have been applied and forgotten. What a client gives up are its oldest results: those
//! calls are still known to have been applied. Only a client that does not say what it waits for can come to lose numbers.
//!
//! Invariants:
//! - The window changes in [`Window::note`] alone, by what the log says: all replicas of a region have the same, and a
//!   replay after a restart gives it again.
//! - A number that was applied is answered as applied or as [`Known::TooOld`], never as [`Known::New`].

mod codec;
mod ranges;
mod under_way;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub use self::ranges::Ranges;
pub use self::under_way::UnderWay;

/// A client's id. The nil id ([`NO_CLIENT`]) belongs to no client; its operations are not recorded.
pub type ClientId = [u8; 16];

/// Log time after which an idle client leaves (15 minutes).
pub const IDLE_MS_MAX: u64 = 15 * 60 * 1000;
/// Bytes of one region's window, as they lie on disk (1 MiB). Tests fill a smaller one.
pub const WINDOW_BYTES_MAX: usize = if cfg!(test) { 256 << 10 } else { 1 << 20 };
/// What one client may keep of a full window: the results of more than 10,000 increments.
const SHARE_BYTES_MAX: usize = WINDOW_BYTES_MAX / 4 * 3;
/// Bytes of a result that is kept; of a larger one is known only that it was (4 KiB).
pub const RESULT_BYTES_MAX: usize = 4 << 10;

/// The client id of nobody: its operations are not remembered.
pub const NO_CLIENT: ClientId = [0; 16];

/// What a client, the rest of one that has lost or settled something, a range and a result take on disk.
const CLIENT_BYTES: usize = 16 + 8 + 8 + 8 + 4 + 4;
const EXTENDED_BYTES: usize = 8 + 4;
const RANGE_BYTES: usize = 16;
const RESULT_OVERHEAD_BYTES: usize = 8 + 4;

/// What is remembered of an operation number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was not applied here.
    New,
    /// It was applied.
    Applied(Kept),
    /// It is older than what is remembered: it may have been applied.
    TooOld,
}

/// What is kept of the result of an operation that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It had nothing to tell.
    Nothing,
    Result(Bytes),
    /// It had a result, which was too large to be kept or has been forgotten.
    Gone,
}

/// A region's memory of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// An operation of an unknown client is known to be new only if it was first tried after this; 0: nobody left yet.
    floor: u64,
    clients: BTreeMap<ClientId, Client>,
    /// The same clients by when they were last heard of, the longest idle first.
    by_time: BTreeSet<(u64, ClientId)>,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Log time at which it was last heard of.
    last: u64,
    /// Operations first tried at or before this that are not among the applied may have been, before the client left and
    /// came back.
    since: u64,
    settled: u64,
    /// Numbers above the mark that the client does not wait for either.
    settled_above: Ranges,
    /// Numbers that were applied and are not settled.
    applied: Ranges,
    /// Results of numbers below this are no longer kept.
    gone_below: u64,
    /// Of the operations that had one. Empty: it is not kept.
    results: BTreeMap<u64, Bytes>,
    /// What the results take on disk.
    result_bytes: usize,
}

impl Client {
    fn new(last: u64, since: u64, settled: u64) -> Self {
        Self {
            last,
            since,
            settled,
            settled_above: Ranges::default(),
            applied: Ranges::default(),
            gone_below: 0,
            results: BTreeMap::new(),
            result_bytes: 0,
        }
    }

    /// Whether it has what the first version of the record has no place for.
    fn is_extended(&self) -> bool {
        self.gone_below > 0 || self.settled_above.len() > 0
    }

    fn bytes(&self) -> usize {
        let extended = if self.is_extended() { EXTENDED_BYTES } else { 0 };
        CLIENT_BYTES + extended + (self.applied.len() + self.settled_above.len()) * RANGE_BYTES + self.result_bytes
    }

    fn keep(&mut self, operation: u64, result: Bytes) {
        self.result_bytes += RESULT_OVERHEAD_BYTES + result.len();
        if let Some(before) = self.results.insert(operation, result) {
            self.result_bytes -= RESULT_OVERHEAD_BYTES + before.len();
        }
    }

    fn forget_first_result(&mut self) -> bool {
        let Some((_, result)) = self.results.pop_first() else { return false };
        self.result_bytes -= RESULT_OVERHEAD_BYTES + result.len();
        true
    }

    /// The highest number that may have been applied.
    pub fn highest(&self) -> u64 {
        let above = self.applied.last().max(self.settled_above.last()).unwrap_or(0);
        above.max(self.settled.saturating_sub(1))
    }

    /// What is remembered of a number.
    pub fn look_up(&self, operation: u64, first_try_ms: u64) -> Known {
        if self.is_settled(operation) {
            return Known::TooOld;
        }
        if self.applied.contains(operation) {
            return Known::Applied(match self.results.get(&operation) {
                None if operation < self.gone_below => Kept::Gone,
                None => Kept::Nothing,
                Some(result) if result.is_empty() => Kept::Gone,
                Some(result) => Kept::Result(result.clone()),
            });
        }
        if self.was_away(first_try_ms) { Known::TooOld } else { Known::New }
    }

    fn is_settled(&self, operation: u64) -> bool {
        operation < self.settled || self.settled_above.contains(operation)
    }

    /// Whether the client may have left since this time, so that what is remembered of it says nothing.
    pub fn was_away(&self, first_try_ms: u64) -> bool {
        self.since > 0 && first_try_ms <= self.since
    }
}

impl Window {
    /// What is remembered of a client.
    pub fn client(&self, client: &ClientId) -> Option<&Client> {
        self.clients.get(client)
    }

    /// What is remembered of an operation. Operations without a number, or of nobody, are always new.
    pub fn look_up(&self, client: &ClientId, operation: u64, first_try_ms: u64) -> Known {
        if operation == 0 || *client == NO_CLIENT {
            return Known::New;
        }
        match self.clients.get(client) {
            Some(client) => client.look_up(operation, first_try_ms),
            None if self.floor > 0 && first_try_ms <= self.floor => Known::TooOld,
            None => Known::New,
        }
    }

    /// First tried at or before this, an operation of an unknown client is too old to be known; 0: none is.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Notes that an entry with this stamp applies operations of a client, which waits for none below `lowest_unsettled`.
    /// Those that were idle for too long leave now, this one too: then it comes back as one that is not known.
    pub fn update(&mut self, client: ClientId, lowest_unsettled: u64, stamp: u64) -> WindowUpdate<'_> {
        self.let_idle_leave(stamp);
        if client == NO_CLIENT {
            return WindowUpdate { window: self, client };
        }
        if !self.clients.contains_key(&client) {
            self.insert(client, Client::new(stamp, self.floor, 0));
        }
        if let Some(of) = self.clients.get_mut(&client) {
            // All writes of one entry have one stamp, so a busy client changes its place once an entry.
            if of.last < stamp {
                self.by_time.remove(&(of.last, client));
                self.by_time.insert((stamp, client));
                of.last = stamp;
            }
            if of.settled < lowest_unsettled {
                self.bytes -= of.bytes();
                of.settle(lowest_unsettled);
                self.bytes += of.bytes();
            }
        }
        WindowUpdate { window: self, client }
    }

    fn let_idle_leave(&mut self, stamp: u64) {
        while let Some(&(last, client)) = self.by_time.first() {
            if stamp < last.saturating_add(IDLE_MS_MAX) {
                return;
            }
            self.leave(last, client);
        }
    }

    fn leave(&mut self, last: u64, client: ClientId) {
        self.by_time.remove(&(last, client));
        if let Some(gone) = self.clients.remove(&client) {
            self.bytes -= gone.bytes();
        }
        self.floor = self.floor.max(last);
    }

    fn insert(&mut self, id: ClientId, client: Client) {
        self.bytes += client.bytes();
        self.by_time.insert((client.last, id));
        self.clients.insert(id, client);
    }

    /// The client `keep` is at work. What it takes beyond its share of the window is forgotten, its oldest results first, before
    /// anything of others is: one busy client must not push all others out. Then others leave, those idle
    /// longest first.
    fn hold_limit(&mut self, keep: &ClientId) {
        while self.bytes > WINDOW_BYTES_MAX {
            if self.clients.get(keep).is_some_and(|client| client.bytes() > SHARE_BYTES_MAX)
                && let Some(mut greedy) = self.clients.remove(keep)
            {
                self.bytes -= greedy.bytes();
                self.by_time.remove(&(greedy.last, *keep));
                // Some more than needed, so that a client that stays at the limit does not come here with every operation.
                greedy.forget(SHARE_BYTES_MAX / 8 * 7);
                self.insert(*keep, greedy);
                continue;
            }
            let oldest = self.by_time.iter().find(|(_, client)| client != keep).copied();
            let Some((last, client)) = oldest else { return };
            self.leave(last, client);
        }
    }
}

impl Client {
    fn settle(&mut self, lowest_unsettled: u64) {
        if lowest_unsettled <= self.settled {
            return;
        }
        self.settled = lowest_unsettled;
        self.settled_above.forget_below(lowest_unsettled);
        self.applied.forget_below(lowest_unsettled);
        while self.results.first_key_value().is_some_and(|(operation, _)| *operation < lowest_unsettled) {
            self.forget_first_result();
        }
    }

    /// Settles everything that the client does not wait for.
    fn settle_others(&mut self, under_way: &UnderWay) {
        let waits = |operation: u64| operation >= under_way.below || under_way.contains(operation);
        let settled = under_way.settled_from(self.settled);
        self.applied.take_out(&settled);
        self.settled_above.join(settled);
        let result_bytes = &mut self.result_bytes;
        self.results.retain(|operation, result| {
            let waits = waits(*operation);
            if !waits {
                *result_bytes -= RESULT_OVERHEAD_BYTES + result.len();
            }
            waits
        });
    }

    /// Gives up results, the oldest first. Numbers are given up only where they alone are too many.
    fn forget(&mut self, bytes_max: usize) {
        while self.bytes() > bytes_max {
            let Some((first, _)) = self.results.first_key_value() else { break };
            self.gone_below = self.gone_below.max(first.saturating_add(1));
            self.forget_first_result();
        }
        while self.bytes() > bytes_max {
            let Some(last) = self.applied.pop_first() else { break };
            self.settle(last.saturating_add(1));
        }
    }
}

/// A client's operations being noted. Ends when it is dropped: then the window's limit is held again.
pub struct WindowUpdate<'a> {
    window: &'a mut Window,
    client: ClientId,
}

impl WindowUpdate<'_> {
    /// Notes that an operation is applied; false when it was already, and then nothing of it may be applied again.
    pub fn applied(&mut self, operation: u64, result: Option<&Bytes>) -> bool {
        // Nobody is not among the clients.
        let Some(client) = self.window.clients.get_mut(&self.client).filter(|_| operation != 0) else { return true };
        if client.is_settled(operation) {
            // The client has given up waiting for it, and there is nothing to remember: a retry is too old.
            return true;
        }
        let before = client.bytes();
        if !client.applied.insert(operation) {
            return false;
        }
        if let Some(result) = result {
            // A copy: a slice would keep the whole entry in memory.
            let kept = if result.len() <= RESULT_BYTES_MAX { Bytes::copy_from_slice(result) } else { Bytes::new() };
            client.keep(operation, kept);
        }
        // Numbers between two ranges join them, so it may have become less.
        self.window.bytes = self.window.bytes - before + client.bytes();
        true
    }
}

impl WindowUpdate<'_> {
    /// Settles everything that the client does not wait for. Nothing, if it was not heard of here.
    pub fn settle(&mut self, under_way: &UnderWay) {
        let Some(client) = self.window.clients.get_mut(&self.client) else { return };
        self.window.bytes -= client.bytes();
        client.settle_others(under_way);
        self.window.bytes += client.bytes();
    }
}

impl Drop for WindowUpdate<'_> {
    fn drop(&mut self) {
        self.window.hold_limit(&self.client);
    }
}

#[cfg(test)]
mod tests;
