//! The queue of proposals between a group's handle and its proposer.
//!
//! A submitted proposal gets exactly one outcome: from the queue when it is full or closed, otherwise from the proposer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use crate::proposals::erased::{Answers, Submission};
use crate::{ProposeError, Timing};

/// Proposals queued in a group; more are answered `Busy`.
const QUEUED_PROPOSALS_MAX: usize = 65_536;
/// Bytes of proposals queued in a group, unless a single one is larger.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// A larger proposal would not fit the frame that carries it to the members.
pub(crate) const PROPOSAL_BYTES_MAX: usize = 48 << 20;

/// A submitted proposal that has no outcome yet.
pub(crate) struct Pending {
    pub(crate) submission: Box<dyn Submission>,
    /// What it counts for in the queue and in an entry.
    pub(crate) bytes: usize,
    /// How often it was put aside.
    pub(crate) times_aside: u32,
    /// When it was submitted, in nanoseconds of the monotonic clock.
    pub(crate) submitted_ns: u64,
}

impl Pending {
    /// Answers it with the next of these answers.
    pub(crate) fn answer(self, answers: &mut Answers, timing: Timing) {
        self.submission.finish(Ok(answers), timing);
    }

    /// Answers it with an error.
    pub(crate) fn fail(self, error: ProposeError) {
        self.submission.finish(Err(error), Timing::default());
    }
}

/// The sending end of a group's queue.
pub(crate) struct Queue {
    sender: mpsc::Sender<Pending>,
    bytes: Arc<AtomicUsize>,
    /// Requests an entry without operations, which tells followers up to where the log is not kept for members.
    pub(crate) hint: Arc<Notify>,
}

impl Queue {
    pub(crate) fn new() -> (Queue, Inbox) {
        let queued_max = terrane_env::limit!("proposals queued in a group", QUEUED_PROPOSALS_MAX, 4..=32);
        let (sender, proposals) = mpsc::channel(queued_max);
        let bytes = Arc::new(AtomicUsize::new(0));
        let hint = Arc::new(Notify::new());
        let queue = Queue { sender, bytes: bytes.clone(), hint: hint.clone() };
        (queue, Inbox { proposals, bytes, hint })
    }

    /// Queues a submission that counts for so many bytes.
    pub(crate) fn push(&self, submission: Box<dyn Submission>, bytes: usize) {
        let submitted_ns = terrane_env::time::now_ns();
        let pending = Pending { submission, bytes, times_aside: 0, submitted_ns };
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before + bytes > QUEUED_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return pending.fail(ProposeError::Busy);
        }
        if let Err(error) = self.sender.try_send(pending) {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            let (pending, reason) = match error {
                mpsc::error::TrySendError::Full(pending) => (pending, ProposeError::Busy),
                mpsc::error::TrySendError::Closed(pending) => (pending, ProposeError::Stopped),
            };
            pending.fail(reason);
        }
    }
}

/// The receiving end of a group's queue, owned by the proposer.
pub(crate) struct Inbox {
    pub(crate) proposals: mpsc::Receiver<Pending>,
    /// Bytes of everything queued, put aside included; shared with the sending end.
    pub(crate) bytes: Arc<AtomicUsize>,
    pub(crate) hint: Arc<Notify>,
}
