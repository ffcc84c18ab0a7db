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
use terrane_env::net::{Answering, Call as Admitted, Connection};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Calls, READ_BYTES_MIN};
use crate::answer::{Answer, Outcome};
use crate::exception::Exception;
use crate::frame::{NO_CALL, begin_answer, encode_exception};

/// A write is full with so many bytes; its last answer may be larger.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Parts of answers at least this large are written from where they are: another slice in a write costs about as much as
/// copying this many bytes.
const APART_BYTES_MIN: usize = 1 << 10;
/// Most such parts of one write.
const APART_MAX: usize = 32;
/// Smaller answers are not counted: the permits of their calls bound them.
const COUNTED_BYTES_MIN: usize = 1 << 10;
/// How long a client may take none of its answers.
const WRITE_WAIT: Duration = Duration::from_secs(60);

/// A frame on its way out.
pub struct Outgoing {
    /// All of it but the cells.
    beginning: Bytes,
    cells: Vec<u8>,
    /// Its place among the calls of its connection until it has left.
    _permit: Option<OwnedSemaphorePermit>,
    /// What it occupies at its server.
    held: Option<(Admitted, Option<Answering>)>,
}

impl Outgoing {
    /// A frame that answers no call, or one that occupies nothing.
    pub(super) const fn bytes(beginning: Bytes) -> Self {
        Self { beginning, cells: Vec::new(), _permit: None, held: None }
    }

    /// Frees what it carries.
    fn free(&mut self) {
        (self.beginning, self.cells, self.held) = (Bytes::new(), Vec::new(), None);
    }

    /// The refusal of a call or of the connection.
    pub(super) fn refusal(call: u32, exception: &Exception) -> Self {
        Self::bytes(encode_exception(call, exception))
    }

    /// A message that answers no call.
    pub(super) fn message(message: &[u8]) -> Self {
        let (beginning, cells) = frame(NO_CALL, message, Vec::new());
        Self { beginning, cells, _permit: None, held: None }
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
    admitted: Admitted,
    answers: mpsc::Sender<Sent>,
}

impl Ticket {
    pub(super) const fn new(
        call: u32,
        permit: OwnedSemaphorePermit,
        admitted: Admitted,
        answers: mpsc::Sender<Sent>,
    ) -> Self {
        Self { call, permit, admitted, answers }
    }

    /// The call's answer as a frame.
    #[must_use]
    pub fn answer(mut self, outcome: Outcome) -> Outgoing {
        let (beginning, cells) = match outcome {
            Ok(Answer { message, cells }) => frame(self.call, &message, cells),
            Err(exception) => (encode_exception(self.call, &exception), Vec::new()),
        };
        self.admitted.is_answered();
        let bytes = beginning.len() + cells.len();
        let is_counted = bytes >= COUNTED_BYTES_MIN && !terrane_env::planted!("an answer is in no budget");
        let unsent = if is_counted { self.admitted.leaves(bytes as u64) } else { None };
        Outgoing { beginning, cells, _permit: Some(self.permit), held: Some((self.admitted, unsent)) }
    }

    /// Sends the call's answer to where it is written.
    pub async fn send(self, outcome: Outcome) {
        let answers = self.answers.clone();
        // Without a receiver the client is gone.
        answers.send(Sent::Frame(self.answer(outcome))).await.ok();
    }
}

/// Writes answers until no more can come, or until the client takes none.
pub(super) async fn write_answers(
    mut writes: impl AsyncWrite + Unpin,
    queue: mpsc::Receiver<Sent>,
    connection: Arc<Connection>,
) {
    let mut ready = Ready { queue, calls: None, frames: Vec::new() };
    let mut together = Vec::new();
    while ready.wait().await {
        let mut frames = std::mem::take(&mut ready.frames);
        let mut left = 0;
        while left < frames.len() {
            let first = left;
            // What is apart, and how much of `together` comes before it.
            let mut apart: SmallVec<[(usize, &[u8]); APART_MAX]> = SmallVec::new();
            let mut bytes = 0;
            while bytes < WRITE_BYTES_MAX
                && apart.len() + 2 <= APART_MAX
                && let Some(Outgoing { beginning, cells, .. }) = frames.get(left)
            {
                left += 1;
                for part in [&beginning[..], cells] {
                    bytes += part.len();
                    if part.len() < APART_BYTES_MIN {
                        together.extend_from_slice(part);
                    } else {
                        apart.push((together.len(), part));
                    }
                }
            }
            if write_all(&mut writes, &together, &apart, &connection).await.is_err() {
                return;
            }
            drop(apart);
            together.clear();
            together.shrink_to(READ_BYTES_MIN);
            // A slow client holds no more than what it has not taken.
            frames[first..left].iter_mut().for_each(Outgoing::free);
        }
        // With them go their permits: these answers have left.
        frames.clear();
        frames.shrink_to(FRAMES_KEPT);
        ready.frames = frames;
    }
    writes.shutdown().await.ok();
}

/// Writes `together` with each of `apart` at its place in it, in as few system calls as it takes. A client may be slow, but
/// has to take some.
async fn write_all(
    writes: &mut (impl AsyncWrite + Unpin),
    together: &[u8],
    apart: &[(usize, &[u8])],
    connection: &Connection,
) -> io::Result<()> {
    if apart.is_empty() {
        return tokio::time::timeout(WRITE_WAIT, writes.write_all(together)).await?;
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
    // Skips empty parts: a write of nothing returns 0, which means a closed stream.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let written = tokio::time::timeout(WRITE_WAIT, writes.write_vectored(left)).await??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, written);
        if !left.is_empty() {
            connection.has_moved();
        }
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

    use parking_lot::Mutex;
    use proptest::prelude::*;
    use terrane_env::net::{Intake, IntakeLimits};

    use super::*;

    /// Takes some bytes at a time and lets every other call wait, like a socket whose buffer is nearly full.
    struct Sips {
        taken: Arc<Mutex<Taken>>,
        most: usize,
        is_vectored: bool,
        waits: bool,
    }

    #[derive(Default)]
    struct Taken {
        bytes: Vec<u8>,
        writes: usize,
    }

    impl AsyncWrite for Sips {
        fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.waits = !self.waits;
            if self.waits {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let sip = &bytes[..bytes.len().min(self.most)];
            let mut taken = self.taken.lock();
            taken.bytes.extend_from_slice(sip);
            taken.writes += 1;
            Poll::Ready(Ok(sip.len()))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            if !self.is_vectored {
                let first = parts.iter().find(|part| !part.is_empty());
                return self.poll_write(context, first.map_or(&[], |part| part));
            }
            let mut offered = Vec::new();
            for part in parts {
                let room = self.most - offered.len();
                offered.extend_from_slice(&part[..part.len().min(room)]);
            }
            self.poll_write(context, &offered)
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

    /// Writes answers with these bytes before their cells, and of cells; returns what arrived and what should have.
    fn write(answers: &[(usize, usize)], most: usize, is_vectored: bool) -> (Taken, Vec<u8>) {
        let (sender, queue) = mpsc::channel(answers.len());
        let mut expected = Vec::new();
        for (at, (beginning, cells)) in answers.iter().enumerate() {
            let part = |bytes: usize, step: usize| (0..bytes).map(|byte| (byte * step + at) as u8).collect::<Vec<_>>();
            let (beginning, cells) = (part(*beginning, 3), part(*cells, 5));
            expected.extend_from_slice(&beginning);
            expected.extend_from_slice(&cells);
            sender
                .try_send(Sent::Frame(Outgoing { beginning: beginning.into(), cells, _permit: None, held: None }))
                .ok();
        }
        drop(sender);
        let taken = Arc::<Mutex<Taken>>::default();
        let sips = Sips { taken: taken.clone(), most, is_vectored, waits: false };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let intake = Intake::new(IntakeLimits::default());
        runtime.block_on(async { write_answers(sips, queue, intake.connect().unwrap()).await });
        let taken = std::mem::take(&mut *taken.lock());
        (taken, expected)
    }

    #[test]
    fn answers_with_large_cells_leave_in_one_write_up_to_its_bytes() {
        let (taken, expected) = write(&[(20, 10_000), (30, 0), (2_000, 50), (20, 10_000)], 1 << 20, true);
        assert!(taken.bytes == expected);
        assert_eq!(taken.writes, 1);
        // The second fills the first write, so the third goes into another.
        let (taken, expected) = write(&[(20, 100), (20, 1 << 20), (20, 1 << 20)], 1 << 24, true);
        assert!(taken.bytes == expected);
        assert_eq!(taken.writes, 2);
    }

    fn part_bytes() -> impl Strategy<Value = usize> {
        prop_oneof![Just(0), 1usize..300, 1usize..4_000, Just(APART_BYTES_MIN)]
    }

    proptest! {
        #[test]
        fn answers_leave_whole_and_in_order_however_little_is_taken_at_once(
            answers in prop::collection::vec((1usize..2_000, part_bytes()), 1..60),
            most in prop_oneof![50usize..500, 1_000usize..100_000],
            is_vectored: bool,
        ) {
            let (taken, expected) = write(&answers, most, is_vectored);
            prop_assert!(taken.bytes == expected);
        }
    }
}
