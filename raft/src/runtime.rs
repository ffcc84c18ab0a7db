//! openraft's runtime, with one change: a vote may take longer than a silence that starts an election.
//!
//! openraft gives a request for a vote as long as the shortest election timeout. But a vote is answered once it is synced, by a
//! voter whose disk may be slow, and an election timeout is short so that the loss of a leader is noticed fast. With one value
//! for both, disks that take longer elect no leader: every vote arrives after the candidate has stopped listening. So the timeout
//! of that length is extended here. An answer that comes late is harmless: it counts only while its candidate is still in
//! that term, and how long that is `campaign.rs` decides.
//!
//! Invariant: nothing else in openraft waits for exactly [`ELECTION_MIN`], but the order to take over a leadership, whose
//! connection has a deadline of its own.

use std::future::Future;
use std::io;
use std::time::Duration;

use openraft_rt::{AsyncRuntime, OptionalSend, Select2, Select3, Select4};

#[cfg(feature = "sim")]
pub(crate) type TokioRuntime = openraft_rt::deterministic_rng::DeterministicRng<openraft_rt_tokio::TokioRuntime>;
#[cfg(not(feature = "sim"))]
pub(crate) type TokioRuntime = openraft_rt_tokio::TokioRuntime;

/// The shortest silence of a leader that starts an election.
pub(crate) const ELECTION_MIN: Duration = Duration::from_millis(300);
/// How long a vote may take.
pub(crate) const VOTE_MAX: Duration = Duration::from_secs(5);

/// Tokio, patient with votes.
#[derive(Debug)]
pub(crate) struct RaftRuntime(TokioRuntime);

impl AsyncRuntime for RaftRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        let is_of_vote = duration == ELECTION_MIN && !terrane_env::planted!("a vote has the time of a silence");
        TokioRuntime::timeout(if is_of_vote { VOTE_MAX } else { duration }, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn select2<A, B>(a: A, b: B) -> impl Future<Output = Select2<A::Output, B::Output>> + OptionalSend
    where
        A: Future + OptionalSend,
        B: Future + OptionalSend,
    {
        TokioRuntime::select2(a, b)
    }

    fn select3<A, B, C>(
        a: A,
        b: B,
        c: C,
    ) -> impl Future<Output = Select3<A::Output, B::Output, C::Output>> + OptionalSend
    where
        A: Future + OptionalSend,
        B: Future + OptionalSend,
        C: Future + OptionalSend,
    {
        TokioRuntime::select3(a, b, c)
    }

    fn select4<A, B, C, D>(
        a: A,
        b: B,
        c: C,
        d: D,
    ) -> impl Future<Output = Select4<A::Output, B::Output, C::Output, D::Output>> + OptionalSend
    where
        A: Future + OptionalSend,
        B: Future + OptionalSend,
        C: Future + OptionalSend,
        D: Future + OptionalSend,
    {
        TokioRuntime::select4(a, b, c, d)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        RaftRuntime(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        TokioRuntime::spawn_blocking(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_vote_may_take_longer_than_the_silence_that_starts_an_election() {
        let takes = |duration| async move {
            let begun = tokio::time::Instant::now();
            RaftRuntime::timeout(duration, std::future::pending::<()>()).await.unwrap_err();
            begun.elapsed().as_millis()
        };
        assert_eq!(takes(ELECTION_MIN).await, VOTE_MAX.as_millis());
        assert_eq!(takes(Duration::from_millis(100)).await, 100, "a heartbeat takes no longer than before");
    }
}
