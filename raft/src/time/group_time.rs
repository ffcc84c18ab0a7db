//! A group's time, as its local replica reads it from the members' clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use terrane_types::ServerId;

use crate::groups::group_view::GroupView;
use crate::time::clock::{Clocks, TimeBounds};

/// The time of a group.
pub(crate) struct GroupTime {
    view: Arc<GroupView>,
    clocks: Arc<Clocks>,
    /// How far this server's clock was off the members' at the last check, if too far; otherwise 0.
    off_ms: AtomicI64,
    /// The bounds of the group's time at the last check.
    bounds: Mutex<Option<TimeBounds>>,
}

impl GroupTime {
    pub(crate) fn new(view: Arc<GroupView>, clocks: Arc<Clocks>) -> GroupTime {
        GroupTime { view, clocks, off_ms: AtomicI64::new(0), bounds: Mutex::default() }
    }

    /// This server's clock as far as the members' clocks confirmed it at the last check. `None` while too few are known.
    pub(crate) fn now_ms(&self) -> Option<u64> {
        let known = *self.bounds.lock();
        known.or_else(|| self.look()).map(|bounds| self.clocks.within(bounds))
    }

    /// The same, as far as they confirm it now.
    pub(crate) fn confirmed_ms(&self) -> Option<u64> {
        self.look().map(|bounds| self.clocks.within(bounds))
    }

    /// A time that the members' clocks have certainly reached; 0: none is known.
    pub(crate) fn floor_ms(&self) -> u64 {
        self.clocks.floor_ms(&self.view.servers())
    }

    /// This server's wall clock, right or wrong.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.clocks.wall_ms()
    }

    /// Whether a server has no reason not to lead a group of these members, as far as is known.
    pub(crate) fn is_willing(&self, server: ServerId, members: &[ServerId]) -> bool {
        self.clocks.is_willing(server, members)
    }

    /// Why its clock keeps this replica from leading.
    pub(crate) fn reason(&self) -> Option<String> {
        let off = self.off_ms.load(Ordering::Relaxed);
        let direction = if off < 0 { "behind" } else { "ahead of" };
        let off = off.unsigned_abs();
        (off > 0).then(|| {
            format!("its clock is {off} ms {direction} the other servers': it leads nothing until it is set right")
        })
    }

    /// Compares this server's clock with the other members'.
    pub(crate) fn judge(&self) {
        self.look();
        let before = self.off_ms.load(Ordering::Relaxed);
        let off = self.clocks.off_ms(&self.view.servers(), before != 0).unwrap_or(0);
        self.off_ms.store(off, Ordering::Relaxed);
        let group = self.view.group();
        match (before, off) {
            (0, 1.. | ..=-1) => {
                tracing::warn!(%group, off_ms = off, "this server's clock is wrong: it does not lead the group");
            }
            (1.. | ..=-1, 0) => tracing::info!(%group, "this server's clock is right again"),
            _ => {}
        }
    }

    /// Reads the members' clocks again.
    fn look(&self) -> Option<TimeBounds> {
        let bounds = self.clocks.bounds(&self.view.servers());
        *self.bounds.lock() = bounds;
        bounds
    }
}
