//! Waiting for conditions, which are looked at again and again: there is no call that waits.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

/// Time limit for a condition of a cluster: debug builds share few cores with other work.
pub const WAIT_MAX: Duration = Duration::from_secs(90);
/// Interval between looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Repeats a check until it holds.
pub fn eventually<T>(what: &str, look: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eventually_within(WAIT_MAX, what, look)
}

/// Repeats a check until it holds, for so long at most.
pub fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() >= deadline => bail!("{what}: not within {} s: {error:#}", limit.as_secs()),
            Err(_) => thread::park_timeout(LOOK_EVERY),
        }
    }
}

/// Lets a load run before a fault; there is no condition to wait for.
pub fn let_it_run(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}
