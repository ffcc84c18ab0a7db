//! Whether a server is alive: a silent server gets a ping, and one that does not answer the ping is suspected.
//!
//! To a waiting caller, a slow server and a stopped one look alike. So when an answer of a server is expected and nothing at all
//! arrives for [`QUIET_TICKS`], the client sends a ping, which any live server answers at once. If no answer arrives within
//! the ping timeout, the server is suspected: the session breaks, its calls go to other members, and no call goes there until
//! the server accepts a new session. A wrong suspicion costs no data: reads are repeated, and writes have operation numbers.
//!
//! Two things keep a client on a busy machine from suspecting healthy servers:
//! - silence is counted in ticks of this process, not by the clock: a client that is not scheduled suspects no server;
//! - the ping timeout follows the slowest pings, and doubles when a suspicion proves wrong.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_proto::v1::data_client::DataClient;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

/// The step in which silence is counted.
const TICK: Duration = Duration::from_millis(50);
/// Ticks of silence before a ping is sent.
const QUIET_TICKS: u32 = 4;
/// Ticks without an expected answer before the watch goes to sleep.
const IDLE_TICKS: u32 = 20;
/// The bounds of the ping timeout. The minimum and the quiet time before it are together well below the time of an election.
const PING_TIMEOUT_MIN: Duration = Duration::from_millis(400);
const PING_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// The ping timeout is at least this many times the duration of the last ping.
const USUAL_TIMES: u32 = 8;
/// A suspected server that is back within this time was slow, not stopped.
const SOON_BACK: Duration = Duration::from_secs(2);

/// How long a server may take to answer a ping: learnt over all sessions with it.
#[derive(Debug)]
pub(crate) struct PingTimeout {
    state: Mutex<LearnedTimeout>,
}

#[derive(Debug)]
struct LearnedTimeout {
    ping_timeout: Duration,
    suspected: Option<Instant>,
}

impl Default for PingTimeout {
    fn default() -> Self {
        Self { state: Mutex::new(LearnedTimeout { ping_timeout: PING_TIMEOUT_MIN, suspected: None }) }
    }
}

impl PingTimeout {
    fn ticks(&self) -> u32 {
        let ping_timeout = self.state.lock().ping_timeout;
        u32::try_from(ping_timeout.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
    }

    /// A ping was answered: a slow one raises the timeout at once, others lower it gradually.
    fn answered(&self, took: Duration) {
        let mut state = self.state.lock();
        let lower = state.ping_timeout - state.ping_timeout / 8;
        state.ping_timeout = lower.max(took.saturating_mul(USUAL_TIMES)).clamp(PING_TIMEOUT_MIN, PING_TIMEOUT_MAX);
    }

    fn suspected(&self, now: Instant) {
        self.state.lock().suspected = Some(now);
    }

    /// The server accepted a session. If it was suspected shortly before, the suspicion was wrong.
    pub(crate) fn accepted(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.suspected.take().is_some_and(|at| now.duration_since(at) < SOON_BACK) {
            state.ping_timeout = (state.ping_timeout * 2).min(PING_TIMEOUT_MAX);
        }
    }
}

/// The signs of life of one server, and whether an answer is expected.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Messages that arrived from the server, on any stream.
    arrived: AtomicU64,
    /// Other streams that expect an answer.
    awaiting: AtomicUsize,
    /// The watch is asleep: a caller that starts to wait wakes it.
    asleep: AtomicBool,
    wake: Notify,
}

impl Activity {
    /// A message arrived.
    pub(crate) fn record_message(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer is expected from now on.
    pub(crate) fn wake_watch(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Another stream expects an answer until this is dropped.
    pub(crate) fn awaits(&self) -> Expecting<'_> {
        self.awaiting.fetch_add(1, Ordering::SeqCst);
        self.wake_watch();
        Expecting(self)
    }
}

/// One stream that expects an answer.
pub(crate) struct Expecting<'a>(&'a Activity);

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs until the server is suspected. `waits`: whether a request of the session waits for a reply.
pub(crate) async fn watch(activity: &Activity, ping_timeout: &PingTimeout, channel: Channel, waits: impl Fn() -> bool) {
    let mut silence = Silence::default();
    let mut idle = 0;
    let mut pings = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Signs of life take precedence over the tick.
            biased;
            Some(took) = pings.next() => {
                if let Some(took) = took {
                    ping_timeout.answered(took);
                    activity.record_message();
                }
                continue;
            }
            () = sleep(TICK) => {}
        }
        let waits = || activity.awaiting.load(Ordering::SeqCst) > 0 || waits();
        let expected = waits();
        match silence.tick(activity.arrived.load(Ordering::Relaxed), expected, ping_timeout.ticks()) {
            Sign::Enough => {}
            Sign::Wanted => pings.push(ping(channel.clone())),
            Sign::Missing => {
                ping_timeout.suspected(Instant::now());
                return;
            }
        }
        idle = if expected { 0 } else { idle + 1 };
        if idle >= IDLE_TICKS {
            idle = 0;
            activity.asleep.store(true, Ordering::SeqCst);
            // Checked again: a call that started to wait before the flag was set does not wake the watch.
            if !waits() {
                activity.wake.notified().await;
            }
            activity.asleep.store(false, Ordering::SeqCst);
        }
    }
}

/// How long the server took to answer; `None` if it did not. A refusal is an answer.
async fn ping(channel: Channel) -> Option<Duration> {
    use tonic::Code::{ResourceExhausted, Unimplemented};
    let began = Instant::now();
    match DataClient::new(channel).ping(v1::PingCall {}).await {
        Ok(_) => Some(began.elapsed()),
        Err(status) => matches!(status.code(), Unimplemented | ResourceExhausted).then(|| began.elapsed()),
    }
}

/// What follows a tick.
#[derive(Debug, PartialEq, Eq)]
enum Sign {
    /// The server has shown a sign of life, or none is due.
    Enough,
    /// A ping is due.
    Wanted,
    /// The ping was not answered: the server is suspected.
    Missing,
}

/// Ticks since the last sign.
#[derive(Debug, Default)]
struct Silence {
    arrived: u64,
    ticks: u32,
}

impl Silence {
    fn tick(&mut self, arrived: u64, expected: bool, ping_timeout: u32) -> Sign {
        // Once a ping was sent, its answer is expected.
        if arrived != self.arrived || (!expected && self.ticks < QUIET_TICKS) {
            *self = Self { arrived, ticks: 0 };
            return Sign::Enough;
        }
        self.ticks += 1;
        match self.ticks {
            QUIET_TICKS => Sign::Wanted,
            ticks if ticks >= QUIET_TICKS.saturating_add(ping_timeout) => Sign::Missing,
            _ => Sign::Enough,
        }
    }
}

#[cfg(test)]
mod tests;
