//! A message that has not arrived in full: its bytes count against the budget of bodies, its sender has a deadline, and it
//! gives way when others need its room and it hardly moves.
//!
//! A sender may take [`GRACE`], and a second more for each [`RATE_MIN`] bytes. While the budget is nearly used up, large
//! messages wait and small ones continue, so that a few large ones hold up nothing but each other. One large message at a
//! time does not wait: if all did, none would ever complete and return its share. Time that the server does not read in does
//! not count against the sender.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::arriving::{Place, RATE_MIN};
use super::connection::Connection;
use super::intake::Intake;
use crate::budget::Share;

/// How long a message may take to arrive, however short; in each further second [`RATE_MIN`] bytes must arrive.
pub const GRACE: Duration = Duration::from_secs(10);
/// How full the budget of bodies may be while large unfinished messages are still read; the rest is for small messages.
const SOFT_PERCENT: u64 = 75;
/// The part of the budget up to which a message is small.
const SMALL_PART: u64 = 1024;
/// How long a message may take once it is read in spite of a full budget: the others wait for it.
const PASS_MAX: Duration = Duration::from_secs(10);
/// How often a waiting body checks the budget.
pub(super) const BUDGET_CHECK_EVERY: Duration = Duration::from_millis(10);

/// The deadline of a message that began then and of which so many bytes have come.
pub(super) fn due(began: Instant, received: u64) -> Instant {
    began + GRACE + Duration::from_millis(received.saturating_mul(1000) / RATE_MIN)
}

/// Why a message will not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It took too long.
    #[error("the message did not arrive in time: senders may take 10 s and 1 s more for each 64 KiB")]
    TooSlow,
    /// Others needed its room, and it hardly moved.
    #[error("the server holds too many unfinished messages, and this one hardly arrives; try again")]
    GaveWay,
}

/// The message.
#[derive(Debug)]
pub struct Unfinished {
    intake: Arc<Intake>,
    connection: Option<Arc<Connection>>,
    share: Option<Share>,
    place: Option<Arc<Place>>,
    /// When it began, and how many bytes of it have arrived.
    under_way: Option<(Instant, u64)>,
    /// Since when the server does not read it.
    paused: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Held (since when) by the one large message that is read although the budget of bodies is nearly used up.
    pass: Option<(OwnedSemaphorePermit, Instant)>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if crate::planted!("an unfinished message keeps its budget") {
            std::mem::forget(self.share.take());
        }
        self.complete();
    }
}

impl Unfinished {
    /// Nothing has arrived.
    pub fn new(intake: &Arc<Intake>, connection: Option<&Arc<Connection>>) -> Unfinished {
        Unfinished {
            intake: intake.clone(),
            connection: connection.cloned(),
            share: None,
            place: None,
            under_way: None,
            paused: None,
            timer: None,
            pass: None,
        }
    }

    /// Expects a message from now on.
    pub fn begin(&mut self) {
        self.under_way = Some((Instant::now(), 0));
    }

    /// Whether some of it is counted.
    pub fn is_counted(&self) -> bool {
        self.share.is_some()
    }

    /// Bytes of it that have arrived.
    pub fn received(&self) -> u64 {
        self.under_way.map_or(0, |(_, received)| received)
    }

    /// The message has arrived, or will never.
    pub fn complete(&mut self) {
        if let Some(place) = self.place.take() {
            self.intake.arriving().lock().remove(&place);
        }
        (self.share, self.under_way, self.paused, self.timer, self.pass) = (None, None, None, None, None);
    }

    /// So many bytes of it have arrived.
    pub fn has_received(&mut self, bytes: u64) {
        let (_, received) = self.under_way.get_or_insert_with(|| (Instant::now(), 0));
        let more = bytes.saturating_sub(*received);
        *received = bytes;
        if let Some(connection) = self.connection.as_ref().filter(|_| more > 0) {
            connection.has_moved();
        }
        if let Some(place) = &self.place {
            place.received(more);
        }
    }

    /// Counts so many of its bytes in all; false if there is no room for them.
    #[must_use]
    pub fn count(&mut self, bytes: u64) -> bool {
        let counted = match &mut self.share {
            Some(share) => share.grow(bytes.saturating_sub(share.amount())),
            None => {
                self.share = self.intake.bodies().try_take(bytes);
                self.share.is_some()
            }
        };
        if !counted {
            self.intake.make_room();
        } else if let Some(place) = &self.place {
            place.holds(bytes);
        } else {
            self.place = Some(self.intake.arriving().lock().add(bytes));
        }
        counted
    }

    /// Counts so many of its bytes in all, as soon as there is room.
    ///
    /// # Errors
    /// The sender's time is over, or the message gives way.
    pub async fn counted(&mut self, bytes: u64) -> Result<(), Ended> {
        if self.count(bytes) {
            return Ok(());
        }
        // The timer of each look at the budget wakes this.
        poll_fn(|cx| {
            let bodies = self.intake.bodies();
            let more = bytes.saturating_sub(self.share.as_ref().map_or(0, Share::amount));
            // Looks first: each refusal is counted.
            if bodies.used().saturating_add(more) <= bodies.limit() && self.count(bytes) {
                return Poll::Ready(Ok(()));
            }
            self.intake.make_room();
            self.poll_patience(cx, true).map(Err)
        })
        .await
    }

    /// Waits until more of it may be read.
    ///
    /// # Errors
    /// The sender's time is over, or the message gives way.
    pub async fn may_be_read(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| if self.must_wait() { self.poll_patience(cx, true).map(Err) } else { Poll::Ready(Ok(())) }).await
    }

    /// Whether it has to wait for the budget.
    pub(super) fn must_wait(&mut self) -> bool {
        let bodies = self.intake.bodies();
        let Some(share) = &self.share else { return false };
        if share.amount() <= bodies.limit() / SMALL_PART || bodies.used() <= bodies.limit() / 100 * SOFT_PERCENT {
            return false;
        }
        if self.pass.is_none() {
            self.pass = self.intake.pass().map(|permit| (permit, Instant::now()));
        }
        let waits = self.pass.is_none();
        if waits {
            self.intake.make_room();
        }
        waits
    }

    /// The server does not read it for a while, for reasons of its own.
    pub fn pauses(&mut self) {
        if self.under_way.is_some() && self.paused.is_none() {
            self.paused = Some(Instant::now());
        }
        if let Some(place) = &self.place {
            place.is_read(false);
        }
    }

    /// Waits for the next bytes, or until the budget may have space again; not longer than the message may take. It wakes the
    /// task at times when nothing is to be done.
    pub fn poll_patience(&mut self, cx: &mut Context<'_>, waits_for_budget: bool) -> Poll<Ended> {
        if let (Some(paused), Some((began, _))) = (self.paused.take(), &mut self.under_way) {
            *began += paused.elapsed();
        }
        if let Some(place) = &self.place {
            place.is_read(!waits_for_budget);
            if place.gives_way(cx.waker()) {
                return Poll::Ready(Ended::GaveWay);
            }
        }
        let Some((began, received)) = self.under_way else { return Poll::Pending };
        let due = due(began, received);
        let due = self.pass.as_ref().map_or(due, |(_, since)| due.min(*since + PASS_MAX));
        loop {
            let now = Instant::now();
            if now >= due {
                return Poll::Ready(Ended::TooSlow);
            }
            let next = if waits_for_budget { due.min(now + BUDGET_CHECK_EVERY) } else { due };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
