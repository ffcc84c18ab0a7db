//! Whether a server is alive: silence is answered by a ping, and a silent ping by suspicion.
//!
//! A slow server and a stopped one look alike to a caller that waits. So while something is awaited from a server and
//! nothing at all arrives for [`QUIET_TICKS`], it is sent a ping, which any living server answers at once. Without an
//! answer within its ping_timeout, the server is suspect: the session breaks, its calls go elsewhere, and none goes there until
//! a new session has been accepted. Suspicion never costs data: reads are repeated, and writes have their operation
//! numbers.
//!
//! Two things keep a busy machine from suspecting healthy servers:
//! - silence is counted in ticks of this process, not by a clock. A client that was not scheduled itself suspects no server;
//! - ping_timeout follows the slowest pings seen, and doubles when a suspicion proves wrong.

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
/// Ticks of silence after which a ping is sent.
const QUIET_TICKS: u32 = 4;
/// Ticks with nothing awaited after which the watch sleeps until something is.
const IDLE_TICKS: u32 = 20;
/// How long a ping may go unanswered. Together with the quiet before it, the least is well below an election's time.
const PING_TIMEOUT_MIN: Duration = Duration::from_millis(400);
const PING_TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// A ping that took so long multiplied by this is still not unusual.
const USUAL_TIMES: u32 = 8;
/// A suspect that is back within this time was slow, not stopped.
const SOON_BACK: Duration = Duration::from_secs(2);

/// How long a server may leave a ping unanswered: learnt over all sessions with it.
#[derive(Debug)]
pub(crate) struct PingTimeout {
    state: Mutex<Learnt>,
}

#[derive(Debug)]
struct Learnt {
    ping_timeout: Duration,
    suspected: Option<Instant>,
}

impl Default for PingTimeout {
    fn default() -> Self {
        Self { state: Mutex::new(Learnt { ping_timeout: PING_TIMEOUT_MIN, suspected: None }) }
    }
}

impl PingTimeout {
    fn ticks(&self) -> u32 {
        let ping_timeout = self.state.lock().ping_timeout;
        u32::try_from(ping_timeout.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX)
    }

    /// A ping was answered: more ping_timeout at once if it was slow, less by and by if not.
    fn answered(&self, took: Duration) {
        let mut state = self.state.lock();
        let calmer = state.ping_timeout - state.ping_timeout / 8;
        state.ping_timeout = calmer.max(took.saturating_mul(USUAL_TIMES)).clamp(PING_TIMEOUT_MIN, PING_TIMEOUT_MAX);
    }

    fn suspected(&self, now: Instant) {
        self.state.lock().suspected = Some(now);
    }

    /// The server accepted a session. If it was suspected just before, the suspicion was wrong.
    pub(crate) fn accepted(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.suspected.take().is_some_and(|at| now.duration_since(at) < SOON_BACK) {
            state.ping_timeout = (state.ping_timeout * 2).min(PING_TIMEOUT_MAX);
        }
    }
}

/// What one session hears and waits for.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Messages that arrived from the server, of whatever stream.
    heard: AtomicU64,
    /// Streams beside the session that wait for the server.
    awaiting: AtomicUsize,
    /// The watch sleeps: a caller that begins to wait wakes it.
    asleep: AtomicBool,
    wake: Notify,
}

impl Activity {
    /// Something arrived.
    pub(crate) fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// Something is awaited from now on.
    pub(crate) fn wake_watch(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// A stream beside the session waits until this is dropped.
    pub(crate) fn awaits(&self) -> Expecting<'_> {
        self.awaiting.fetch_add(1, Ordering::SeqCst);
        self.wake_watch();
        Expecting(self)
    }
}

/// One wait for the server.
pub(crate) struct Expecting<'a>(&'a Activity);

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs for as long as the server gives signs of life when it is asked for one.
pub(crate) async fn watch(activity: &Activity, ping_timeout: &PingTimeout, channel: Channel, waits: impl Fn() -> bool) {
    let mut silence = Silence::default();
    let mut idle = 0;
    let mut pings = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Signs of life count before time does.
            biased;
            Some(took) = pings.next() => {
                if let Some(took) = took {
                    ping_timeout.answered(took);
                    activity.hear();
                }
                continue;
            }
            () = sleep(TICK) => {}
        }
        let waits = || activity.awaiting.load(Ordering::SeqCst) > 0 || waits();
        let awaited = waits();
        match silence.tick(activity.heard.load(Ordering::Relaxed), awaited, ping_timeout.ticks()) {
            Sign::Enough => {}
            Sign::Wanted => pings.push(ping(channel.clone())),
            Sign::Missing => {
                ping_timeout.suspected(Instant::now());
                return;
            }
        }
        idle = if awaited { 0 } else { idle + 1 };
        if idle >= IDLE_TICKS {
            idle = 0;
            activity.asleep.store(true, Ordering::SeqCst);
            // Look again: a call that began to wait before the flag was set does not wake the watch.
            if !waits() {
                activity.wake.notified().await;
            }
            activity.asleep.store(false, Ordering::SeqCst);
        }
    }
}

/// How long the server took to answer, if it did. A refusal is an answer.
async fn ping(channel: Channel) -> Option<Duration> {
    use tonic::Code::{ResourceExhausted, Unimplemented};
    let began = Instant::now();
    match DataClient::new(channel).ping(v1::PingCall {}).await {
        Ok(_) => Some(began.elapsed()),
        Err(status) => matches!(status.code(), Unimplemented | ResourceExhausted).then(|| began.elapsed()),
    }
}

/// What is missing of a server's signs of life.
#[derive(Debug, PartialEq, Eq)]
enum Sign {
    /// Nothing.
    Enough,
    /// One should be asked for.
    Wanted,
    /// The one that was asked for.
    Missing,
}

/// Ticks since the last sign.
#[derive(Debug, Default)]
struct Silence {
    heard: u64,
    ticks: u32,
}

impl Silence {
    fn tick(&mut self, heard: u64, awaited: bool, ping_timeout: u32) -> Sign {
        // Once a ping was sent, its answer is awaited.
        if heard != self.heard || (!awaited && self.ticks < QUIET_TICKS) {
            *self = Self { heard, ticks: 0 };
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
