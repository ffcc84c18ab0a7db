//! The way out of a connection: answers leave in the order in which they are ready, as many in one write as there are.
//!
//! A task of its own writes them, and is also where answers of calls without a task are made: they come from the data path
//! and go straight into the next write.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Calls, READ_BYTES_MIN};
use crate::answer::{Answer, Outcome};
use crate::exception::Exception;
use crate::frame::{NO_CALL, begin_answer, encode_exception};

/// Bytes of small answers that are copied to leave together.
const TOGETHER_BYTES_MAX: usize = 16 << 10;
/// Cells of an answer that leave from where they are: a part of a write costs about what it costs to copy so many bytes.
const APART_BYTES_MIN: usize = 1 << 10;
/// Most answers of one write whose cells leave from where they are.
const APART_MAX: usize = 16;
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
        let frames = std::mem::take(&mut ready.frames);
        let mut leaving = frames.iter().peekable();
        while leaving.peek().is_some() {
            // What is apart, and how much of `together` comes before it.
            let mut apart: SmallVec<[(usize, &[u8]); APART_MAX]> = SmallVec::new();
            while together.len() < TOGETHER_BYTES_MAX
                && apart.len() < APART_MAX
                && let Some(Outgoing { beginning, cells, .. }) = leaving.next()
            {
                together.extend_from_slice(beginning);
                if cells.len() < APART_BYTES_MIN {
                    together.extend_from_slice(cells);
                } else {
                    apart.push((together.len(), cells));
                }
            }
            let write = write_all(&mut writes, &together, &apart);
            if !matches!(tokio::time::timeout(WRITE_WAIT, write).await, Ok(Ok(()))) {
                return;
            }
            if together.len() < together.capacity() / 8 {
                // A burst is over.
                together.shrink_to(READ_BYTES_MIN);
            }
            together.clear();
        }
        let mut frames = frames;
        // With them go their permits: these answers have left.
        frames.clear();
        frames.shrink_to(FRAMES_KEPT);
        ready.frames = frames;
    }
    writes.shutdown().await.ok();
}

/// Writes `together` with each of `apart` at its place in it, in as few system calls as it takes.
async fn write_all(
    writes: &mut (impl AsyncWrite + Unpin),
    together: &[u8],
    apart: &[(usize, &[u8])],
) -> io::Result<()> {
    if apart.is_empty() {
        return writes.write_all(together).await;
    }
    let mut parts: SmallVec<[IoSlice<'_>; 2 * APART_MAX + 1]> = SmallVec::new();
    let mut begin = 0;
    for (end, cells) in apart {
        parts.push(IoSlice::new(&together[begin..*end]));
        parts.push(IoSlice::new(cells));
        begin = *end;
    }
    parts.push(IoSlice::new(&together[begin..]));
    let mut left = &mut parts[..];
    // Empty parts would pass for the end.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let written = writes.write_vectored(left).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use proptest::prelude::*;

    use super::*;

    /// Takes a few bytes at a time, as a socket whose buffer is nearly full.
    struct Sips {
        taken: Arc<parking_lot::Mutex<Vec<u8>>>,
        most: usize,
        is_vectored: bool,
    }

    impl AsyncWrite for Sips {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let sip = &bytes[..bytes.len().min(self.most)];
            self.taken.lock().extend_from_slice(sip);
            Poll::Ready(Ok(sip.len()))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let together: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let first = parts.iter().find(|part| !part.is_empty());
            let offered = if self.is_vectored { &together[..] } else { first.map_or(&[][..], |part| part) };
            self.poll_write(context, offered)
        }

        fn is_write_vectored(&self) -> bool {
            self.is_vectored
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        /// Answers arrive whole and in order, however large each is and however little is taken at once.
        #[test]
        fn answers_leave_whole_and_in_order(
            sizes in prop::collection::vec((0usize..300, prop_oneof![Just(0), 1usize..4_000, Just(APART_BYTES_MIN)]), 1..60),
            most in prop_oneof![1usize..50, 1_000usize..100_000],
            is_vectored: bool,
        ) {
            let (answers, queue) = mpsc::channel(sizes.len());
            let mut expected = Vec::new();
            for (at, (beginning, cells)) in sizes.into_iter().enumerate() {
                let part = |bytes: usize, step: usize| (0..bytes).map(|byte| (byte * step + at) as u8).collect::<Vec<_>>();
                // An answer without a byte is none.
                let (beginning, cells) = (part(beginning + 1, 3), part(cells, 5));
                expected.extend_from_slice(&beginning);
                expected.extend_from_slice(&cells);
                answers.try_send(Sent::Frame(Outgoing { beginning: beginning.into(), cells, _permit: None })).ok();
            }
            drop(answers);
            let taken = Arc::<parking_lot::Mutex<Vec<u8>>>::default();
            let sips = Sips { taken: taken.clone(), most, is_vectored };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(write_answers(sips, queue));
            prop_assert!(*taken.lock() == expected);
        }
    }
}
