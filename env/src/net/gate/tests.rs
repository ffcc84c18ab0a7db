//! Bodies that arrive in pieces, slowly, or not at all.

use futures::StreamExt as _;
use futures::channel::mpsc;

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::net::IntakeLimits;
use crate::net::unfinished::{BUDGET_CHECK_EVERY, GRACE};

/// A body that yields what is sent to it.
struct Fed(mpsc::UnboundedReceiver<Bytes>);

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.poll_next_unpin(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

fn gathered(limits: IntakeLimits) -> (mpsc::UnboundedSender<Bytes>, Arc<Intake>, Gathered) {
    let (sender, receiver) = mpsc::unbounded();
    let intake = Intake::new(limits);
    (sender, intake.clone(), Gathered::new(Body::new(Fed(receiver)), &intake))
}

fn another(intake: &Arc<Intake>) -> (mpsc::UnboundedSender<Bytes>, Gathered) {
    let (sender, receiver) = mpsc::unbounded();
    (sender, Gathered::new(Body::new(Fed(receiver)), intake))
}

fn message(length: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    message.extend((0..length).map(|at| (at % 251) as u8));
    message
}

async fn next(body: &mut Gathered) -> Option<Result<Bytes, Status>> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
    frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
}

fn is_pending(body: &mut Gathered) -> bool {
    let mut cx = Context::from_waker(futures::task::noop_waker_ref());
    Pin::new(body).poll_frame(&mut cx).is_pending()
}

fn used(intake: &Intake) -> u64 {
    intake.bodies().used()
}

#[tokio::test(start_paused = true)]
async fn messages_pass_whole_however_they_are_cut() {
    let bytes: Vec<u8> = [0, 1, 300_000, 7, 70_000].into_iter().flat_map(message).collect();
    for piece in [1, 3, 5, 4096, 65_536, 100_000, bytes.len()] {
        let (sender, intake, mut body) = gathered(IntakeLimits::default());
        let mut framing = Framing::new(usize::MAX);
        let mut out = Vec::new();
        for part in bytes.chunks(piece) {
            sender.unbounded_send(Bytes::copy_from_slice(part)).unwrap();
            let mut passed = 0;
            while !is_pending_and(&mut body, &mut out, &mut passed) {}
            assert!(passed == 0 || framing.feed(&out[out.len() - passed..]) == passed, "only whole messages");
        }
        drop(sender);
        assert!(next(&mut body).await.is_none());
        assert!(out == bytes, "in pieces of {piece}");
        assert_eq!(used(&intake), 0);
    }
}

fn is_pending_and(body: &mut Gathered, out: &mut Vec<u8>, passed: &mut usize) -> bool {
    let mut cx = Context::from_waker(futures::task::noop_waker_ref());
    match Pin::new(body).poll_frame(&mut cx) {
        Poll::Ready(Some(Ok(frame))) => {
            let data = frame.into_data().unwrap();
            *passed += data.len();
            out.extend_from_slice(&data);
            false
        }
        Poll::Ready(other) => panic!("{other:?}"),
        Poll::Pending => true,
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_what_arrived() {
    let (sender, intake, mut body) = gathered(IntakeLimits::default());
    for byte in &message(39 << 20)[..1000] {
        sender.unbounded_send(Bytes::copy_from_slice(&[*byte])).unwrap();
    }
    assert!(is_pending(&mut body));
    assert_eq!((used(&intake), body.held.len(), body.tail.len()), (1000, 0, 1000));
    drop(body);
    assert_eq!(used(&intake), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_sender_is_refused_and_a_steady_one_is_not() {
    let (sender, intake, mut body) = gathered(IntakeLimits::default());
    let began = Instant::now();
    let whole = Bytes::from(message(4 << 20));
    sender.unbounded_send(whole.slice(..128 << 10)).unwrap();
    let refused = next(&mut body).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), tonic::Code::DeadlineExceeded);
    assert_eq!(began.elapsed().as_secs(), GRACE.as_secs() + 2);
    assert_eq!(used(&intake), 0);
    assert!(next(&mut body).await.is_none());

    let (sender, _, mut body) = gathered(IntakeLimits::default());
    let sending = async {
        for piece in whole.chunks(128 << 10) {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.unbounded_send(Bytes::copy_from_slice(piece)).unwrap();
        }
    };
    let (first, ()) = tokio::join!(next(&mut body), sending);
    assert!(first.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_sends_nothing_is_refused_but_silence_between_messages_is_not() {
    let (_sender, _, mut body) = gathered(IntakeLimits::default());
    assert!(next(&mut body).await.unwrap().is_err());

    let (sender, _, mut body) = gathered(IntakeLimits::default());
    sender.unbounded_send(message(10).into()).unwrap();
    assert!(next(&mut body).await.unwrap().is_ok());
    assert!(tokio::time::timeout(10 * GRACE, next(&mut body)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_message_under_way_waits_for_room_and_a_new_one_is_refused() {
    let limits = IntakeLimits { body_bytes: 1000, ..IntakeLimits::default() };
    let (sender, intake, mut body) = gathered(limits);
    sender.unbounded_send(Bytes::from(message(2000)).slice(..200)).unwrap();
    assert!(is_pending(&mut body));
    let others = intake.bodies().try_take(700).unwrap();
    // Another message is the one that is still read.
    let _pass = intake.pass().unwrap();
    sender.unbounded_send(Bytes::from(message(2000)).slice(200..400)).unwrap();
    assert!(is_pending(&mut body));
    assert_eq!(used(&intake), 900, "it is not read on");

    let mut late = Gathered::new(
        Body::new(Fed({
            let (sender, receiver) = mpsc::unbounded();
            sender.unbounded_send(Bytes::from(message(2000)).slice(..200)).unwrap();
            receiver
        })),
        &intake,
    );
    assert_eq!(next(&mut late).await.unwrap().unwrap_err().code(), tonic::Code::ResourceExhausted);

    drop(others);
    tokio::time::sleep(2 * BUDGET_CHECK_EVERY).await;
    assert!(is_pending(&mut body));
    assert_eq!(used(&intake), 400);
}

#[tokio::test(start_paused = true)]
async fn what_is_announced_too_long_is_refused_by_its_reader_at_once() {
    let (sender, intake, body) = gathered(IntakeLimits::default());
    sender.unbounded_send(Bytes::from(message(41 << 20)).slice(..5)).unwrap();
    let read: Vec<_> = tokio::time::timeout(GRACE / 2, {
        let mut body = body;
        async move { futures::stream::once(async move { next(&mut body).await }).collect().await }
    })
    .await
    .unwrap();
    assert_eq!(read[0].as_ref().unwrap().as_ref().unwrap().len(), 5);
    assert_eq!(used(&intake), 0);
}

#[tokio::test(start_paused = true)]
async fn messages_that_fill_the_budget_together_are_completed_one_after_another() {
    let (first, intake, mut one) = gathered(IntakeLimits { body_bytes: 1_000, ..IntakeLimits::default() });
    let (second, mut other) = another(&intake);
    let bytes = Bytes::from(message(450));
    for (sender, body) in [(&first, &mut one), (&second, &mut other)] {
        sender.unbounded_send(bytes.slice(..400)).unwrap();
        assert!(is_pending(body));
    }
    assert_eq!(used(&intake), 800, "more than messages under way may hold together");
    for sender in [&first, &second] {
        sender.unbounded_send(bytes.slice(400..)).unwrap();
    }
    let length = bytes.len();
    let whole = |mut body: Gathered| async move {
        let mut received = 0;
        while received < length {
            received += next(&mut body).await.unwrap().unwrap().len();
        }
    };
    tokio::join!(whole(one), whole(other));
    assert_eq!(used(&intake), 0);
}

#[tokio::test(start_paused = true)]
async fn messages_that_hardly_move_give_way_to_others() {
    let (first, intake, mut stuck) = gathered(IntakeLimits { body_bytes: 1_000, ..IntakeLimits::default() });
    first.unbounded_send(Bytes::from(message(2_000)).slice(..900)).unwrap();
    assert!(is_pending(&mut stuck));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_pending(&mut stuck), "no other message needs its room");
    let (second, mut other) = another(&intake);
    let bytes = Bytes::from(message(450));
    second.unbounded_send(bytes.slice(..400)).unwrap();
    assert!(next(&mut other).await.unwrap().is_err(), "there is no room yet");
    assert_eq!(next(&mut stuck).await.unwrap().unwrap_err().code(), tonic::Code::ResourceExhausted);
    let (third, mut other) = another(&intake);
    for part in [bytes.slice(..400), bytes.slice(400..)] {
        third.unbounded_send(part).unwrap();
    }
    assert!(next(&mut other).await.unwrap().is_ok());
    drop((stuck, other));
    assert_eq!(used(&intake), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_server_does_not_read_is_not_late() {
    let (sender, _, mut body) = gathered(IntakeLimits::default());
    let two = [message(10), message(100)].concat();
    sender.unbounded_send(Bytes::from(two).slice(..50)).unwrap();
    assert!(next(&mut body).await.unwrap().is_ok());
    tokio::time::advance(10 * GRACE).await;
    sender.unbounded_send(Bytes::from(message(100)).slice(35..)).unwrap();
    assert!(next(&mut body).await.unwrap().is_ok());
}
