//! Operation numbers: they let a server recognise a row mutation that is sent again.
//!
//! Servers record, per client id and region, which numbers they have applied. A row mutation gets its number before it is
//! first sent and keeps it over all retries. The number is *settled* when it will not be sent again: its caller has the
//! answer, or has given up or gone. Requests carry the lowest unsettled number, so that servers can drop their records of
//! the numbers below it.
//!
//! Invariants:
//! - a number is never used twice under one client id;
//! - the lowest unsettled number never passes one that may still be sent;
//! - a number that was given up is settled although its request may be on its way: a server then refuses or applies it, and
//!   its caller knows that the outcome is unknown.
//!
//! One stuck operation holds the lowest unsettled number back, and with it the records of every region for all numbers
//! above. So while that number lags, requests list from time to time which numbers are not settled
//! ([`Ticket::unsettled_to_report`]). An identity that spans too many numbers is replaced by a new one; operations in flight
//! keep the old one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use terrane_types::RegionId;

use crate::wire::message::{OperationNumbers, Unsettled};

/// When the lowest unsettled number and the next are further apart than this, a new identity is taken. Well above what is
/// normally in flight: 8192 requests per server, and some batches of thousands of rows.
const SPAN_MAX: u64 = 1 << 18;

/// The lowest unsettled number lags when it is further behind than twice the numbers in flight and this many more.
const LAG_MIN: u64 = 256;
/// At least this many requests go to a region from one report of the unsettled numbers to the next.
const REPORT_EVERY_MIN: u64 = 64;
/// Regions whose requests are counted; with more, counting starts over.
const COUNTED_REGIONS_MAX: usize = 4096;
/// Ranges that a server accepts in one report.
const RANGES_MAX: usize = 8192;

/// Gives out numbers under the client's current identity.
pub(crate) struct Operations {
    current: RwLock<Arc<Identity>>,
    span_max: u64,
}

/// A client id and the numbers used under it.
pub(crate) struct Identity {
    /// 16 random bytes.
    client_id: Bytes,
    window: Mutex<Window>,
    /// The window's lowest unsettled number, readable without the lock: it only grows, and an outdated value is safe.
    lowest: AtomicU64,
    /// Whether that number lags far behind those in flight.
    lags: AtomicBool,
    /// Requests to each region since its last report of the unsettled numbers.
    unreported: Mutex<BTreeMap<RegionId, u64>>,
}

impl Operations {
    pub(crate) fn new() -> Self {
        Self { current: RwLock::new(Arc::new(Identity::new())), span_max: SPAN_MAX }
    }

    /// Takes `count` consecutive numbers.
    pub(crate) fn take(&self, count: u64) -> Ticket {
        {
            let identity = self.current.read();
            if let Some(first) = identity.reserve(count, self.span_max) {
                return Ticket { identity: Arc::clone(&identity), first, count };
            }
        }
        let mut current = self.current.write();
        // Another call may have replaced it while we waited for the lock.
        let first = current.reserve(count, self.span_max).unwrap_or_else(|| {
            *current = Arc::new(Identity::new());
            current.reserve(count, u64::MAX).expect("a new identity spans no numbers yet")
        });
        Ticket { identity: Arc::clone(&current), first, count }
    }
}

impl Identity {
    fn new() -> Self {
        Self {
            client_id: Bytes::copy_from_slice(&match terrane_env::planted!("two clients share an identity") {
                true => [1; 16],
                false => terrane_env::rand::bytes::<16>(),
            }),
            window: Mutex::new(Window::new()),
            lowest: AtomicU64::new(1),
            lags: AtomicBool::new(false),
            unreported: Mutex::default(),
        }
    }

    /// `None` when the identity spans too many numbers already.
    fn reserve(&self, count: u64, span_max: u64) -> Option<u64> {
        let mut window = self.window.lock();
        if window.next - window.lowest > span_max {
            return None;
        }
        Some(window.reserve(count))
    }

    fn settle(&self, first: u64, count: u64) {
        let mut window = self.window.lock();
        for number in first..first + count {
            window.settle(number);
        }
        self.lowest.store(window.lowest, Ordering::Relaxed);
        let lag_min = terrane_env::limit!("numbers by which the lowest one lags", LAG_MIN, 1..=16);
        self.lags.store(window.next - window.lowest > 2 * window.in_flight + lag_min, Ordering::Relaxed);
    }

    fn unsettled_to_report(&self, region: RegionId) -> Option<Unsettled> {
        let mut unreported = self.unreported.lock();
        if unreported.len() >= COUNTED_REGIONS_MAX && !unreported.contains_key(&region) {
            unreported.clear();
        }
        // The first request to a region reports at once.
        let requests = unreported.entry(region).or_insert(u64::MAX - 1);
        *requests += 1;
        let window = self.window.lock();
        let requests_min = terrane_env::limit!("requests between two reports of numbers", REPORT_EVERY_MIN, 1..=8);
        if *requests < requests_min.max(window.in_flight / 4) {
            return None;
        }
        *requests = 0;
        let ranges = window.unsettled();
        (ranges.len() <= RANGES_MAX).then_some(Unsettled { below: window.next, ranges })
    }
}

/// The numbers of one call. Dropping it settles them.
pub(crate) struct Ticket {
    identity: Arc<Identity>,
    first: u64,
    count: u64,
}

impl Ticket {
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn client_id(&self) -> Bytes {
        self.identity.client_id.clone()
    }

    /// All numbers below this one are settled. At most the lowest number of this ticket.
    pub(crate) fn lowest_unsettled(&self) -> u64 {
        self.identity.lowest.load(Ordering::Relaxed)
    }

    /// The numbers that are not settled, if the lowest of them lags and this region is due for a report.
    pub(crate) fn unsettled_to_report(&self, region: RegionId) -> Option<Unsettled> {
        if self.identity.lags.load(Ordering::Relaxed) { self.identity.unsettled_to_report(region) } else { None }
    }

    /// What a request to a region says about these numbers.
    pub(crate) fn header(&self, region: RegionId) -> OperationNumbers {
        OperationNumbers {
            client_id: self.client_id(),
            lowest_unsettled: self.lowest_unsettled(),
            unsettled: self.unsettled_to_report(region),
        }
    }

    /// `count` more numbers under the same identity, for operations that need a new number.
    pub(crate) fn another(&self, count: u64) -> Ticket {
        let first = self.identity.reserve(count, u64::MAX).expect("no span is too large for it");
        Ticket { identity: Arc::clone(&self.identity), first, count }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.identity.settle(self.first, self.count);
    }
}

/// Which numbers are settled: a bitmap that starts near the lowest that is not.
struct Window {
    next: u64,
    lowest: u64,
    /// How many are given out and not settled.
    in_flight: u64,
    /// The number of the first bit; a multiple of 64.
    base: u64,
    settled: VecDeque<u64>,
}

impl Window {
    fn new() -> Self {
        // There is no operation 0: on the wire it means an operation without a number.
        Self { next: 1, lowest: 1, in_flight: 0, base: 0, settled: VecDeque::from([1]) }
    }

    fn reserve(&mut self, count: u64) -> u64 {
        let first = self.next;
        // A wrapped number would be used twice, and servers would drop the second operation as a repetition.
        self.next = first.checked_add(count).expect("an identity is replaced long before its numbers run out");
        self.in_flight += count;
        let words = (self.next - self.base).div_ceil(64);
        self.settled.resize(usize::try_from(words).expect("the span of an identity is bounded"), 0);
        first
    }

    fn settle(&mut self, number: u64) {
        assert!(
            (self.lowest..self.next).contains(&number),
            "operation {number} is settled, but only {} to {} are in flight",
            self.lowest,
            self.next
        );
        let bit = number - self.base;
        let word = usize::try_from(bit / 64).expect("inside the bitmap");
        let mask = 1 << (bit % 64);
        assert!(self.settled[word] & mask == 0, "operation {number} is settled twice");
        self.settled[word] |= mask;
        self.in_flight -= 1;
        if number != self.lowest {
            return;
        }
        // Each word is removed once, so settling a number takes amortised constant time.
        while self.settled.front() == Some(&u64::MAX) {
            self.settled.pop_front();
            self.base += 64;
        }
        let lowest = self.base + self.settled.front().map_or(0, |word| u64::from(word.trailing_ones()));
        assert!(lowest > self.lowest, "the lowest unsettled operation regressed from {} to {lowest}", self.lowest);
        self.lowest = lowest;
    }

    /// The numbers that are not settled, as ranges.
    fn unsettled(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        let mut first = self.lowest;
        while first < self.next {
            let end = self.find(first, true).min(self.next);
            ranges.push((first, end - 1));
            first = self.find(end, false);
        }
        ranges
    }

    /// The first number from `number` on that is settled, or is not; the end of the bitmap when there is none.
    fn find(&self, number: u64, is_settled: bool) -> u64 {
        let bit = number - self.base;
        let (at, offset) = (usize::try_from(bit / 64).expect("inside the bitmap"), bit % 64);
        let mut start = self.base + bit - offset;
        let mut mask = u64::MAX << offset;
        for word in self.settled.range(at.min(self.settled.len())..) {
            let wanted = if is_settled { *word } else { !*word };
            let found = wanted & mask;
            if found != 0 {
                return start + u64::from(found.trailing_zeros());
            }
            (start, mask) = (start + 64, u64::MAX);
        }
        start
    }
}

#[cfg(test)]
mod tests;
