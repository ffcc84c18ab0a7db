//! The clock of the cluster, as far as the clients of a simulation know it.
//!
//! It is the median of the servers' clocks. While at most one of them is wrong, that is simulated time, which the clients
//! have, within what a clock may be off and still be right.
//!
//! It is lost when two clocks are wrong at a time: stamps and bounds may say anything ever after. It is also lost when a
//! machine is suspended, because simulated time does not pass for it alone: afterwards that machine takes what it knew of
//! the others' clocks for older than it is, which no real suspension does.

use std::cell::Cell;
use std::rc::Rc;

use crate::context::Context;

/// A clock that is further off is wrong.
const ERROR_MAX_MS: u64 = 100;
/// Servers compare their clocks several times in this time.
const COMPARED_WITHIN_MS: u64 = 2_000;

/// Knows whether the clients' clock is that of the cluster.
#[derive(Clone, Default)]
pub struct ClusterClock {
    /// Some clock was a little off at some time.
    is_rough: Rc<Cell<bool>>,
    /// When a clock was last seen to be wrong.
    wrong_at_ms: Rc<Cell<Option<u64>>>,
    is_lost: Rc<Cell<bool>>,
}

impl ClusterClock {
    /// A time that the cluster's clock has not passed, in milliseconds since 1970, unless that clock is lost.
    pub fn latest_ms(&self, context: &Context) -> Option<u64> {
        let mut wrong = 0;
        for host in context.plan.server_hosts() {
            let error = terrane_env::sim::clock_error_ms(host).unsigned_abs();
            wrong += usize::from(error > ERROR_MAX_MS);
            self.is_rough.set(self.is_rough.get() || error > 0);
            self.is_lost.set(self.is_lost.get() || wrong > 1 || terrane_env::sim::was_suspended(host));
        }
        let now_ms = terrane_env::time::wall_ms();
        if wrong > 0 {
            self.wrong_at_ms.set(Some(now_ms));
        }
        let error = if self.is_rough.get() { ERROR_MAX_MS } else { 0 };
        (!self.is_lost.get()).then(|| now_ms + error)
    }

    /// Whether a server may use an earlier time. One that has just started does not know all clocks. Those that it does not
    /// know count as late, so that nothing expires too early; with one wrong clock among the others, its time may be late.
    pub fn may_lag(&self) -> bool {
        let now_ms = terrane_env::time::wall_ms();
        self.wrong_at_ms.get().is_some_and(|at| now_ms < at + COMPARED_WITHIN_MS)
    }
}
