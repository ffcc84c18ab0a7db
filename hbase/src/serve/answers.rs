//! The way out of a connection: answers leave in the order in which they are ready, as many in one write as there are.
//!
//! A task of its own writes them, and is also where answers of calls without a task are made: they come from the data path
//! and go straight into the next write.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Calls, READ_BYTES_MIN};
use crate::answer::{Answer, Outcome};
use crate::exception::Exception;
use crate::frame::{NO_CALL, begin_answer, encode_exception};

/// Bytes of small answers that leave together.
const TOGETHER_BYTES_MAX: usize = 64 << 10;
/// Cells of an answer that are not copied to leave together with others.
const APART_BYTES_MIN: usize = 16 << 10;
/// How long a write of answers may take.
const WRITE_WAIT: Duration = Duration::from_secs(60);

/// A frame on its way out.
pub struct Outgoing {
    /// All of it but the cells.
    beginning: Bytes,
    cells: Vec<u8>,
    /// What its call occupies until it has left.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Outgoing {
    /// A frame that answers no call, or one that occupies nothing.
    pub(super) const fn bytes(beginning: Bytes) -> Self {
        Self { beginning, cells: Vec::new(), _permit: None }
    }

    /// The refusal of a call or of the connection.
    pub(super) fn refusal(call: u32, exception: &Exception) -> Self {
        Self::bytes(encode_exception(call, exception))
    }

    /// A message that answers no call.
    pub(super) fn message(message: &[u8]) -> Self {
        let (beginning, cells) = frame(NO_CALL, message, Vec::new());
        Self { beginning, cells, _permit: None }
    }
}

/// What goes to the task that writes.
pub(super) enum Sent {
    /// The connection's calls; once, before any of their answers.
    Opened(Arc<dyn Calls>),
    Frame(Outgoing),
}

/// A call's place among those of its connection. As long as there is one, the connection waits for answers.
pub struct Ticket {
    call: u32,
    permit: OwnedSemaphorePermit,
    answers: mpsc::Sender<Sent>,
}

impl Ticket {
    pub(super) const fn new(call: u32, permit: OwnedSemaphorePermit, answers: mpsc::Sender<Sent>) -> Self {
        Self { call, permit, answers }
    }

    /// The call's answer as a frame.
    #[must_use]
    pub fn answer(self, outcome: Outcome) -> Outgoing {
        let (beginning, cells) = match outcome {
            Ok(Answer { message, cells }) => frame(self.call, &message, cells),
            Err(exception) => (encode_exception(self.call, &exception), Vec::new()),
        };
        Outgoing { beginning, cells, _permit: Some(self.permit) }
    }

    /// Sends the call's answer to where it is written.
    pub async fn send(self, outcome: Outcome) {
        let answers = self.answers.clone();
        // Without a receiver the client is gone.
        answers.send(Sent::Frame(self.answer(outcome))).await.ok();
    }
}

/// Writes answers until no more can come, or until the client takes none.
pub(super) async fn write_answers(mut writes: impl AsyncWrite + Unpin, queue: mpsc::Receiver<Sent>) {
    let mut ready = Ready { queue, calls: None, frames: Vec::new() };
    let mut together = Vec::new();
    while ready.wait().await {
        let mut frames = std::mem::take(&mut ready.frames);
        let mut leaving = frames.iter_mut().peekable();
        while leaving.peek().is_some() {
            let mut apart = Vec::new();
            while apart.is_empty()
                && together.len() < TOGETHER_BYTES_MAX
                && let Some(Outgoing { beginning, cells, .. }) = leaving.next()
            {
                together.extend_from_slice(beginning);
                if cells.len() < APART_BYTES_MIN {
                    together.extend_from_slice(cells);
                } else {
                    apart = std::mem::take(cells);
                }
            }
            let write = async {
                writes.write_all(&together).await?;
                writes.write_all(&apart).await
            };
            if !matches!(tokio::time::timeout(WRITE_WAIT, write).await, Ok(Ok(()))) {
                return;
            }
            together.clear();
            together.shrink_to(READ_BYTES_MIN);
        }
        // With them go their permits: these answers have left.
        frames.clear();
        frames.shrink_to(FRAMES_KEPT);
        ready.frames = frames;
    }
    writes.shutdown().await.ok();
}

/// Room for so many frames stays allocated.
const FRAMES_KEPT: usize = 16;

/// Answers that can leave.
struct Ready {
    queue: mpsc::Receiver<Sent>,
    calls: Option<Arc<dyn Calls>>,
    frames: Vec<Outgoing>,
}

impl Ready {
    /// Waits for answers; false if none can come any more.
    async fn wait(&mut self) -> bool {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        // Permits of the calls bound what there is to take.
        let ended = loop {
            match self.queue.poll_recv(context) {
                Poll::Ready(Some(Sent::Opened(calls))) => self.calls = Some(calls),
                Poll::Ready(Some(Sent::Frame(frame))) => self.frames.push(frame),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if let Some(calls) = &self.calls {
            calls.clone().poll_answers(context, &mut self.frames);
        }
        match (self.frames.is_empty(), ended) {
            (false, _) => Poll::Ready(true),
            // Calls that wait for an answer hold the queue open.
            (true, true) => Poll::Ready(false),
            (true, false) => Poll::Pending,
        }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if let Some(calls) = &self.calls {
            calls.close();
        }
    }
}

/// The frame of an answer, up to its cells, and the cells.
fn frame(call: u32, message: &[u8], cells: Vec<u8>) -> (Bytes, Vec<u8>) {
    match begin_answer(call, message, cells.len()) {
        Ok(beginning) => (beginning, cells),
        Err(too_large) => (encode_exception(call, &too_large), Vec::new()),
    }
}
