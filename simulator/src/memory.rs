//! The memory that each simulated host holds.
//!
//! All hosts share one allocator. A meter that the binary provides says how much is allocated in all; the difference between
//! the beginning and the end of a host's turn belongs to that host. Messages move between hosts: one allocates them, another
//! frees them. So the numbers are not exact, which does not matter for limits far above normal use.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

thread_local! {
    static METER: Cell<Option<fn() -> usize>> = const { Cell::new(None) };
    static HOSTS: RefCell<BTreeMap<String, i64>> = const { RefCell::new(BTreeMap::new()) };
    static BEFORE: Cell<usize> = const { Cell::new(0) };
}

/// Measures with this meter from now on: it returns all allocated bytes.
pub fn meter(allocated: fn() -> usize) {
    METER.set(Some(allocated));
}

/// A host's turn begins.
pub fn enter() {
    if let Some(allocated) = METER.get() {
        BEFORE.set(allocated());
    }
}

/// The host's turn ends.
pub fn exit(host: &str) {
    let Some(allocated) = METER.get() else { return };
    let more = signed(allocated()) - signed(BEFORE.get());
    HOSTS.with_borrow_mut(|hosts| match hosts.get_mut(host) {
        Some(bytes) => *bytes += more,
        None => _ = hosts.insert(host.to_owned(), more),
    });
}

/// The host starts with nothing.
pub fn forget(host: &str) {
    HOSTS.with_borrow_mut(|hosts| hosts.remove(host));
}

/// The bytes that a host holds.
#[must_use]
pub fn of(host: &str) -> i64 {
    HOSTS.with_borrow(|hosts| hosts.get(host).copied().unwrap_or(0))
}

/// The bytes that all hosts and the simulation hold.
#[must_use]
pub fn of_process() -> usize {
    METER.get().map_or(0, |allocated| allocated())
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static ALLOCATED: Cell<usize> = const { Cell::new(100) };
    }

    #[test]
    fn what_a_host_allocates_in_its_turns_is_its_own() {
        meter(|| ALLOCATED.get());
        enter();
        ALLOCATED.set(150);
        exit("a");
        ALLOCATED.set(1_000);
        enter();
        ALLOCATED.set(990);
        exit("a");
        assert_eq!((of("a"), of("b"), of_process()), (40, 0, 990));
        forget("a");
        assert_eq!(of("a"), 0);
    }
}
