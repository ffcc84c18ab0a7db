//! The queue of operations between a group's handle and its proposer.
//!
//! A submitted operation gets exactly one outcome: from the queue when it is full or closed, otherwise from the proposer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::ProposeError;

/// Operations queued in a group; more are answered `Busy`.
const QUEUED_OPERATIONS_MAX: usize = 65_536;
/// Bytes of operations queued in a group, unless a single one is larger.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// A larger operation would not fit the frame that carries it to the members.
pub(crate) const OPERATION_BYTES_MAX: usize = 48 << 20;

/// Receives the outcome of a submitted operation. Called once, from a task that must not be blocked.
pub type Reply = Box<dyn FnOnce(Result<Bytes, ProposeError>) + Send>;

/// Receives the outcome of an operation.
pub(crate) enum ReplyTo {
    Waiting(oneshot::Sender<Result<Bytes, ProposeError>>),
    Callback(Reply),
}

impl ReplyTo {
    pub(crate) fn answer(self, outcome: Result<Bytes, ProposeError>) {
        match self {
            // The caller may have stopped waiting.
            ReplyTo::Waiting(waiting) => drop(waiting.send(outcome)),
            ReplyTo::Callback(reply) => reply(outcome),
        }
    }
}

/// A submitted operation and the receiver of its outcome.
pub(crate) struct Pending {
    pub(crate) operation: Vec<u8>,
    pub(crate) reply_to: ReplyTo,
    /// How often it was put aside.
    pub(crate) times_aside: u32,
}

/// The sending end of a group's queue.
pub(crate) struct Queue {
    sender: mpsc::Sender<Pending>,
    bytes: Arc<AtomicUsize>,
    /// Requests an entry without operations, which tells followers up to where all members have the log.
    pub(crate) hint: Arc<Notify>,
}

impl Queue {
    pub(crate) fn new() -> (Queue, Inbox) {
        let (sender, operations) = mpsc::channel(QUEUED_OPERATIONS_MAX);
        let bytes = Arc::new(AtomicUsize::new(0));
        let hint = Arc::new(Notify::new());
        let queue = Queue { sender, bytes: bytes.clone(), hint: hint.clone() };
        (queue, Inbox { operations, bytes, hint })
    }

    pub(crate) fn push(&self, operation: Vec<u8>, reply_to: ReplyTo) {
        let length = operation.len();
        let before = self.bytes.fetch_add(length, Ordering::Relaxed);
        if before > 0 && before + length > QUEUED_BYTES_MAX {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            return reply_to.answer(Err(ProposeError::Busy));
        }
        if let Err(error) = self.sender.try_send(Pending { operation, reply_to, times_aside: 0 }) {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            let (pending, reason) = match error {
                mpsc::error::TrySendError::Full(pending) => (pending, ProposeError::Busy),
                mpsc::error::TrySendError::Closed(pending) => (pending, ProposeError::Stopped),
            };
            pending.reply_to.answer(Err(reason));
        }
    }
}

/// The receiving end of a group's queue, owned by the proposer.
pub(crate) struct Inbox {
    pub(crate) operations: mpsc::Receiver<Pending>,
    pub(crate) bytes: Arc<AtomicUsize>,
    pub(crate) hint: Arc<Notify>,
}
