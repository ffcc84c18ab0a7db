//! Exactly once: the operation numbers that a region has recorded, and their results.
//!
//! A client numbers its row mutations. A retry after a lost reply, a change of leader, a split or a merge carries the same number,
//! and is answered with the first outcome instead of being applied again. If the window no longer knows, it says so and
//! never guesses.
//!
//! For each client a region keeps the *settled mark* (the client waits for no number below it), the settled numbers above
//! the mark, the numbers that were applied and are not settled (both as ranges), and results of at most
//! [`RESULT_BYTES_MAX`]. A client whose lowest number is stuck reports which other numbers it still waits for
//! ([`WindowUpdate::settle`]). So a region keeps the results of calls in flight, and few others, however long one of them
//! takes.
//!
//! A client that was idle for [`IDLE_MS_MAX`] of log time is evicted. While the whole window takes more than
//! [`WINDOW_BYTES_MAX`], the client being updated first gives up what it has beyond [`SHARE_BYTES_MAX`]; then the client
//! that was idle longest is evicted. An eviction raises the region's *floor* to the time at which the client was last
//! active: an operation of an unknown client that was first tried at or before the floor may have been applied. A client
//! over its share loses its oldest results first; those operations are still known to have been applied. It loses numbers
//! only if they alone exceed the share, which takes a client that does not report what it waits for.
//!
//! Callers of another protocol have no numbers but random nonces, whose record is of its own ([`nonces`]). To the log, they
//! are all one client, [`NONCE_CLIENT`].
//!
//! Invariants:
//! - Only [`Window::update`] and [`Window::united`] change windows, by what the log says: all replicas of a region have the same one, and a
//!   replay after a restart rebuilds it.
//! - A number that was applied is answered as applied or as [`Known::TooOld`], never as [`Known::New`].
//! - The floor and a client's settled mark only rise.

mod codec;
mod nonces;
mod ranges;
mod under_way;
mod united;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub use self::nonces::{NONCE_CLIENT, Nonces, nonce_number};
pub use self::ranges::Ranges;
pub use self::under_way::UnderWay;

/// A client's id. The nil id (`NO_CLIENT`) belongs to no client; its operations are not recorded.
pub type ClientId = [u8; 16];

/// Log time after which an idle client is evicted (15 minutes).
pub const IDLE_MS_MAX: u64 = 15 * 60 * 1000;
/// Bytes of one region's window as encoded (1 MiB). Tests fill a smaller one.
pub const WINDOW_BYTES_MAX: usize = if cfg!(test) { 256 << 10 } else { 1 << 20 };
/// The share of a full window that one client may keep: the results of more than 10,000 increments.
const SHARE_BYTES_MAX: usize = WINDOW_BYTES_MAX / 4 * 3;
/// Bytes of the largest result that is kept (4 KiB). Of a larger one, only its existence is recorded.
pub const RESULT_BYTES_MAX: usize = 4 << 10;

/// The id of no client: its operations are not recorded.
pub const NO_CLIENT: ClientId = [0; 16];

/// Encoded sizes: a client, a range, and a result without its bytes.
const CLIENT_BYTES: usize = 16 + 8 + 8 + 8 + 4 + 4 + 8 + 4;
const RANGE_BYTES: usize = 16;
const RESULT_OVERHEAD_BYTES: usize = 8 + 4;

/// What the window knows of an operation number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was not applied here.
    New,
    /// It was applied.
    Applied(Kept),
    /// It is older than the record reaches: it may have been applied.
    TooOld,
}

/// What is kept of an applied operation's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It had no result.
    Nothing,
    Result(Bytes),
    /// It had a result, which was too large to keep or has been dropped.
    Gone,
}

/// A region's record of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// An operation of an unknown client is new only if it was first tried after this; 0: no client was evicted yet.
    floor: u64,
    clients: BTreeMap<ClientId, Client>,
    /// The same clients by when they were last active, longest idle first.
    by_time: BTreeSet<(u64, ClientId)>,
    /// What the clients take as encoded.
    bytes: usize,
    nonces: Nonces,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Log time at which it was last active.
    last: u64,
    /// The floor when the client's record began: operations first tried at or before it may have been applied before the
    /// client was evicted.
    since: u64,
    /// The settled mark: the client waits for no number below it.
    settled: u64,
    /// Settled numbers above the mark.
    settled_above: Ranges,
    /// Numbers that were applied and are not settled.
    applied: Ranges,
    /// Results of numbers below this are no longer kept.
    gone_below: u64,
    /// The results that operations had. Empty bytes: the result is not kept.
    results: BTreeMap<u64, Bytes>,
    /// Encoded size of the results.
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

    fn bytes(&self) -> usize {
        CLIENT_BYTES + (self.applied.len() + self.settled_above.len()) * RANGE_BYTES + self.result_bytes
    }

    fn keep(&mut self, operation: u64, result: Bytes) {
        self.result_bytes += RESULT_OVERHEAD_BYTES + result.len();
        if let Some(before) = self.results.insert(operation, result) {
            self.result_bytes -= RESULT_OVERHEAD_BYTES + before.len();
        }
    }

    fn forget_result(&mut self, operation: u64) {
        if let Some(result) = self.results.remove(&operation) {
            self.result_bytes -= RESULT_OVERHEAD_BYTES + result.len();
        }
    }

    fn drop_first_result(&mut self) -> bool {
        let Some((_, result)) = self.results.pop_first() else { return false };
        self.result_bytes -= RESULT_OVERHEAD_BYTES + result.len();
        true
    }

    /// The highest number that may have been applied.
    pub fn highest(&self) -> u64 {
        let above = self.applied.last().max(self.settled_above.last()).unwrap_or(0);
        above.max(self.settled.saturating_sub(1))
    }

    /// What is known of a number that was first tried at `first_try_ms`.
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

    /// Whether the client may have been evicted since this time, so that its record says nothing about it.
    pub fn was_away(&self, first_try_ms: u64) -> bool {
        self.since > 0 && first_try_ms <= self.since
    }
}

impl Window {
    /// The record of a client.
    pub fn client(&self, client: &ClientId) -> Option<&Client> {
        self.clients.get(client)
    }

    /// What is known of an operation. Operations without a number, or of no client, are always new.
    pub fn look_up(&self, client: &ClientId, operation: u64, first_try_ms: u64) -> Known {
        if operation == 0 || *client == NO_CLIENT || terrane_env::planted!("a retry is applied again") {
            return Known::New;
        }
        if *client == NONCE_CLIENT {
            return if self.nonces.contains(operation) { Known::Applied(Kept::Gone) } else { Known::New };
        }
        match self.clients.get(client) {
            Some(client) => client.look_up(operation, first_try_ms),
            None if self.floor > 0 && first_try_ms <= self.floor => Known::TooOld,
            None => Known::New,
        }
    }

    /// An operation of an unknown client that was first tried at or before this time is too old to be known; 0: none is.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Begins an update by an entry with this stamp, for a client that waits for no number below `lowest_unsettled`. Clients
    /// that were idle for too long are evicted first, possibly this one, which then starts a new record.
    pub fn update(&mut self, client: ClientId, lowest_unsettled: u64, stamp: u64) -> WindowUpdate<'_> {
        self.evict_idle(stamp);
        self.nonces.expire(stamp);
        let lowest_unsettled = lowest_unsettled + u64::from(terrane_env::planted!("a number under way is settled"));
        if client == NO_CLIENT || client == NONCE_CLIENT {
            return WindowUpdate { window: self, client, stamp };
        }
        if !self.clients.contains_key(&client) {
            self.insert(client, Client::new(stamp, self.floor, 0));
        }
        if let Some(of) = self.clients.get_mut(&client) {
            // All writes of an entry have one stamp, so a busy client moves in the order once per entry.
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
        WindowUpdate { window: self, client, stamp }
    }

    fn evict_idle(&mut self, stamp: u64) {
        while let Some(&(last, client)) = self.by_time.first() {
            if stamp < last.saturating_add(IDLE_MS_MAX) {
                return;
            }
            self.evict(last, client);
        }
    }

    fn evict(&mut self, last: u64, client: ClientId) {
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

    /// Brings the window back to its limit after an update of the client `keep`. That client gives up what it has beyond its
    /// share before any other client is evicted: one busy client must not push out all others. Then others are evicted,
    /// longest idle first.
    fn hold_limit(&mut self, keep: &ClientId) {
        while self.bytes > WINDOW_BYTES_MAX {
            if self.clients.get(keep).is_some_and(|client| client.bytes() > SHARE_BYTES_MAX)
                && let Some(mut greedy) = self.clients.remove(keep)
            {
                self.bytes -= greedy.bytes();
                self.by_time.remove(&(greedy.last, *keep));
                // A bit more than needed, so that a client that stays at the limit does not get here with every operation.
                greedy.shrink(SHARE_BYTES_MAX / 8 * 7);
                self.insert(*keep, greedy);
                continue;
            }
            let oldest = self.by_time.iter().find(|(_, client)| client != keep).copied();
            let Some((last, client)) = oldest else { break };
            self.evict(last, client);
        }
        assert!(self.bytes <= WINDOW_BYTES_MAX, "the window takes {} bytes, over its limit", self.bytes);
        debug_assert_eq!(self.clients.len(), self.by_time.len(), "each client is in the order of times once");
    }
}

impl Client {
    fn settle(&mut self, lowest_unsettled: u64) {
        if lowest_unsettled <= self.settled {
            return; // The mark only rises.
        }
        self.settled = lowest_unsettled;
        self.settled_above.remove_below(lowest_unsettled);
        self.applied.remove_below(lowest_unsettled);
        while self.results.first_key_value().is_some_and(|(operation, _)| *operation < lowest_unsettled) {
            self.drop_first_result();
        }
    }

    /// Settles every number that the client does not wait for.
    fn settle_others(&mut self, under_way: &UnderWay) {
        let waits = |operation: u64| operation >= under_way.below || under_way.contains(operation);
        let settled = under_way.settled_from(self.settled);
        self.applied.remove_ranges(&settled);
        self.settled_above.insert_ranges(settled);
        let result_bytes = &mut self.result_bytes;
        self.results.retain(|operation, result| {
            let waits = waits(*operation);
            if !waits {
                *result_bytes -= RESULT_OVERHEAD_BYTES + result.len();
            }
            waits
        });
    }

    /// Shrinks the record to `bytes_max`: drops the oldest results first, and then settles the lowest numbers.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes() > bytes_max {
            let Some((first, _)) = self.results.first_key_value() else { break };
            self.gone_below = self.gone_below.max(first.saturating_add(1));
            self.drop_first_result();
        }
        while self.bytes() > bytes_max {
            // Settled numbers alone exceed the share only of a client that reports ever other ones, against the protocol.
            let lowest = self.applied.first_end().or_else(|| self.settled_above.first_end());
            let Some(last) = lowest else { break };
            self.settle(last.saturating_add(1));
        }
    }
}

/// An update of the window by one client's operations. When it is dropped, the window is brought back to its limit.
pub struct WindowUpdate<'a> {
    window: &'a mut Window,
    client: ClientId,
    /// Of the entry.
    stamp: u64,
}

impl WindowUpdate<'_> {
    /// Records that an operation is applied. Returns false if it was applied before: it must not be applied again.
    pub fn applied(&mut self, operation: u64, result: Option<&Bytes>) -> bool {
        if self.client == NONCE_CLIENT && operation != 0 {
            return terrane_env::planted!("a nonce is not recorded")
                || self.window.nonces.insert(self.stamp, operation);
        }
        // `NO_CLIENT` is never among the clients.
        let Some(client) = self.window.clients.get_mut(&self.client).filter(|_| operation != 0) else { return true };
        if client.is_settled(operation) {
            // The client no longer waits for it, so there is nothing to record: a retry is too old.
            return true;
        }
        let before = client.bytes();
        if !client.applied.insert(operation) && !terrane_env::planted!("a retry is applied again") {
            return false;
        }
        if let Some(result) = result.filter(|_| !terrane_env::planted!("the result of an operation is not kept")) {
            // Copied, because a slice would keep the whole entry in memory.
            let kept = if result.len() <= RESULT_BYTES_MAX { Bytes::copy_from_slice(result) } else { Bytes::new() };
            client.keep(operation, kept);
        }
        // A number between two ranges joins them, so the size may have shrunk.
        self.window.bytes = self.window.bytes - before + client.bytes();
        true
    }

    /// Settles every number that the client does not wait for. Does nothing for a client without a record.
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
mod script_tests;
#[cfg(test)]
mod tests;
