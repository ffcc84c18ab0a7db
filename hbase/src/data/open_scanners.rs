//! The open scanners of a connection and of a server, within their bounds.
//!
//! A scanner holds its description, a cursor and a snapshot, no rows. A description may have a filter of up to a megabyte, so a
//! server bounds the memory of all of them, and a connection their number. Those whose lease has run out are closed, whichever
//! connection has them: now and then because of their snapshots, and at a bound.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::scanners::Scanner;
use crate::exception::{Exception, REGION_TOO_BUSY, UNKNOWN_SCANNER};

/// Most open scanners of a connection.
const SCANNERS_MAX: usize = 1_024;
/// Most memory that the scanners of a server take.
const BYTES_MAX: usize = 64 << 20;
/// Closed scanners that are remembered, because clients close them once more.
const CLOSED_MAX: usize = 256;

type Open = Mutex<HashMap<u64, Scanner>>;

/// The scanners of all connections of a server.
pub(super) struct AllScanners {
    /// How long a scanner waits for its next call.
    lease: Duration,
    /// What they take, those that are being kept included.
    bytes: AtomicUsize,
    connections: Mutex<Vec<Weak<Open>>>,
}

/// The scanners of one connection.
pub(super) struct Scanners {
    all: Arc<AllScanners>,
    open: Arc<Open>,
    closed: Mutex<VecDeque<u64>>,
}

impl AllScanners {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, bytes: AtomicUsize::new(0), connections: Mutex::default() }
    }

    /// Whether a scanner's lease has run out.
    fn is_silent(&self, scanner: &Scanner, now: Instant) -> bool {
        now.saturating_duration_since(scanner.heard) > self.lease
    }

    /// Closes silent scanners from now on, as long as there are connections to come.
    pub(super) fn close_silent_ones(self: &Arc<Self>) {
        let (all, pause) = (Arc::downgrade(self), self.lease / 4);
        terrane_env::task::spawn_named("hbase scanner leases", async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(all) = all.upgrade() else { return };
                all.close_silent(Instant::now());
            }
        });
    }

    /// Closes scanners that have been silent for too long.
    fn close_silent(&self, now: Instant) {
        let connections: Vec<Arc<Open>> = self.connections.lock().iter().filter_map(Weak::upgrade).collect();
        for open in connections {
            self.close_silent_of(&open, now);
        }
    }

    fn close_silent_of(&self, open: &Open, now: Instant) {
        open.lock().retain(|_, scanner| {
            let is_heard = !self.is_silent(scanner, now);
            if !is_heard {
                self.bytes.fetch_sub(scanner.bytes, Ordering::Relaxed);
            }
            is_heard
        });
    }

    /// Whether there is room for so many bytes more, which are then taken.
    fn take_room(&self, bytes: usize, now: Instant) -> bool {
        let taken = |before: usize| Some(before + bytes).filter(|&after| after <= BYTES_MAX);
        let try_take = || self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok();
        try_take() || {
            self.close_silent(now);
            try_take()
        }
    }
}

impl Scanners {
    pub(super) fn new(all: &Arc<AllScanners>) -> Self {
        let open = Arc::default();
        let mut connections = all.connections.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(&open));
        drop(connections);
        Self { all: all.clone(), open, closed: Mutex::default() }
    }

    /// How long each waits for its next call.
    pub(super) fn lease(&self) -> Duration {
        self.all.lease
    }

    pub(super) fn take(&self, id: u64, now: Instant) -> Result<Scanner, Exception> {
        let unknown =
            || Exception::new(UNKNOWN_SCANNER, format!("scanner {id} is unknown or has expired; open it again"));
        let scanner = self.open.lock().remove(&id).ok_or_else(unknown)?;
        self.all.bytes.fetch_sub(scanner.bytes, Ordering::Relaxed);
        if self.all.is_silent(&scanner, now) { Err(unknown()) } else { Ok(scanner) }
    }

    pub(super) fn keep(&self, id: u64, scanner: Scanner, now: Instant) -> Result<(), Exception> {
        let busy = |text: String| Err(Exception::new(REGION_TOO_BUSY, text));
        if self.open.lock().len() >= SCANNERS_MAX {
            self.all.close_silent_of(&self.open, now);
        }
        if self.open.lock().len() >= SCANNERS_MAX {
            return busy(format!("this connection has {SCANNERS_MAX} open scanners; close some"));
        }
        if !self.all.take_room(scanner.bytes, now) {
            return busy(format!("the open scanners of this server take {BYTES_MAX} bytes; try again later"));
        }
        let replaced = self.open.lock().insert(id, scanner);
        assert!(replaced.is_none(), "two scanners have the number {id}: a client would read the rows of another scan");
        Ok(())
    }

    pub(super) fn note_closed(&self, id: u64) {
        let mut closed = self.closed.lock();
        closed.push_back(id);
        if closed.len() > CLOSED_MAX {
            closed.pop_front();
        }
    }

    pub(super) fn was_closed(&self, id: u64) -> bool {
        self.closed.lock().contains(&id)
    }
}

impl Drop for Scanners {
    fn drop(&mut self) {
        let left: usize = self.open.lock().drain().map(|(_, scanner)| scanner.bytes).sum();
        self.all.bytes.fetch_sub(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::scanners::tests::scanner;

    const LEASE: Duration = Duration::from_secs(60);

    #[test]
    fn a_server_has_room_for_so_many_scanners_and_silent_ones_go_first() {
        let (all, now) = (Arc::new(AllScanners::new(LEASE)), Instant::now());
        let (one, other) = (Scanners::new(&all), Scanners::new(&all));
        one.keep(1, scanner(BYTES_MAX / 2, now), now).unwrap();
        one.keep(2, scanner(BYTES_MAX / 2, now), now).unwrap();
        assert_eq!(other.keep(3, scanner(1, now), now).unwrap_err().class, REGION_TOO_BUSY.name);
        // What is taken out makes room, and what is silent does.
        one.take(2, now).unwrap();
        other.keep(3, scanner(1, now), now).unwrap();
        let later = now + LEASE + Duration::from_secs(1);
        other.keep(4, scanner(BYTES_MAX / 2, later), later).unwrap();
        assert_eq!(one.take(1, later).err().unwrap().class, UNKNOWN_SCANNER.name);
        drop(other);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0, "a connection takes its scanners along");
    }

    #[test]
    fn a_silent_scanner_is_closed_after_its_lease_and_one_that_is_heard_is_not() {
        let lease = Duration::from_secs(5);
        let (all, now) = (Arc::new(AllScanners::new(lease)), Instant::now());
        let scanners = Scanners::new(&all);
        let later = now + lease / 2;
        scanners.keep(1, scanner(10, now), now).unwrap();
        scanners.keep(2, scanner(20, later), later).unwrap();
        all.close_silent(now + lease);
        assert_eq!(scanners.open.lock().len(), 2);
        // What it holds goes with it, whether its client comes back or not.
        all.close_silent(now + lease + Duration::from_millis(1));
        assert_eq!(scanners.open.lock().keys().copied().collect::<Vec<_>>(), [2]);
        assert_eq!(all.bytes.load(Ordering::Relaxed), 20);
        assert_eq!(scanners.take(1, later).err().unwrap().class, UNKNOWN_SCANNER.name);
        assert!(scanners.take(2, later + lease).is_ok());
    }

    #[test]
    fn a_connection_has_so_many_scanners() {
        let (scanners, now) = (Scanners::new(&Arc::new(AllScanners::new(LEASE))), Instant::now());
        for id in 0..SCANNERS_MAX as u64 {
            scanners.keep(id, scanner(1, now), now).unwrap();
        }
        assert_eq!(scanners.keep(u64::MAX, scanner(1, now), now).unwrap_err().class, REGION_TOO_BUSY.name);
        let later = now + LEASE + Duration::from_secs(1);
        scanners.keep(u64::MAX, scanner(1, later), later).unwrap();
        assert!(scanners.take(0, later).is_err());
    }
}
