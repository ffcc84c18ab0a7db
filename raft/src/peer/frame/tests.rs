//! Frames come back as they were sent, and malformed ones are refused.

use proptest::prelude::*;

use super::*;
use crate::codec::strategies::{entries, log_ids, votes};
use crate::log::marks;
use crate::types::{Entry, Packed, log_id};

fn numbered(prev: Option<u64>, mut list: Vec<Entry>) -> Vec<Entry> {
    let first = prev.map_or(0, |index| index + 1);
    for (at, entry) in (first..).zip(&mut list) {
        entry.log_id.index = at;
    }
    list
}

fn messages() -> impl Strategy<Value = Message> {
    let some_id = || proptest::option::of(log_ids());
    let append = (
        votes(),
        proptest::option::of(0u64..1000),
        some_id(),
        proptest::collection::vec(entries(), 0..5),
        proptest::option::of(any::<(u64, u64)>()),
    )
        .prop_map(|(vote, prev, leader_commit, list, bound)| {
            let prev_log_id = prev.map(|index| log_id(3, index));
            let bound = bound.map(|(time_ms, index)| Bound { time_ms, index });
            let entries = numbered(prev, list);
            Message::Append(AppendEntriesRequest { vote, prev_log_id, leader_commit, entries }, bound)
        });
    let request = || {
        (votes(), some_id(), any::<bool>()).prop_map(|(vote, last, transfer)| {
            let mut request = VoteRequest::new(vote, last);
            request.leadership_transfer = transfer;
            request
        })
    };
    prop_oneof![
        append,
        Just(Message::Appended(AppendEntriesResponse::Success, Applying::default())),
        Just(Message::Appended(AppendEntriesResponse::Conflict, Applying::default())),
        any::<(u64, u64, bool)>().prop_map(|(applied, lacks_for, asks)| {
            Message::Appended(AppendEntriesResponse::Success, Applying { applied, lacks_for, asks })
        }),
        some_id().prop_map(|id| Message::Appended(AppendEntriesResponse::PartialSuccess(id), Applying::default())),
        votes().prop_map(|vote| Message::Appended(AppendEntriesResponse::HigherVote(vote), Applying::default())),
        request().prop_map(Message::Vote),
        request().prop_map(Message::PreVote),
        (votes(), some_id(), any::<bool>())
            .prop_map(|(v, id, granted)| Message::Voted(VoteResponse::new(v, id, granted))),
        (votes(), any::<u64>(), some_id()).prop_map(|(v, to, id)| Message::Transfer(TransferLeaderRequest::new(
            v,
            ReplicaId(to),
            id
        ))),
        Just(Message::Transferred(Ok(()))),
        (votes(), votes()).prop_map(|(expected, actual)| Message::Transferred(Err(TransferLeaderError::VoteChanged {
            expected,
            actual
        }))),
        (some_id(), some_id()).prop_map(|(expected, actual)| Message::Transferred(Err(
            TransferLeaderError::LogNotFlushed { expected, actual }
        ))),
        any::<u64>().prop_map(Message::Released),
        Just(Message::Clock),
        (any::<u64>(), any::<bool>()).prop_map(|(wall_ms, abstains)| Message::ClockReply { wall_ms, abstains }),
        (any::<u64>(), votes(), marks(), files()).prop_map(|(number, vote, mark, files)| Message::Offer(Offer {
            number,
            vote,
            mark,
            files
        })),
        files().prop_map(Message::Held),
        (any::<u64>(), any::<u64>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(
            |(offer, id, offset, bytes)| {
                Message::Part(Part { offer, id, offset: u64::from(offset), bytes: bytes.into() })
            }
        ),
        Just(Message::Taken),
        (any::<u64>(), votes()).prop_map(|(offer, vote)| Message::Install { offer, vote }),
        votes().prop_map(Message::Installed),
        ".{0,40}".prop_map(Message::Failed),
    ]
}

fn files() -> impl Strategy<Value = Vec<CopiedFile>> {
    let file = (any::<u64>(), any::<u64>()).prop_map(|(id, size)| CopiedFile { id, size });
    proptest::collection::vec(file, 0..6)
}

fn frames() -> impl Strategy<Value = Frame> {
    (any::<u64>(), any::<u64>(), any::<u64>(), messages()).prop_map(|(call, group, replica, message)| Frame {
        call,
        group: GroupId(group),
        replica: ReplicaId(replica),
        message,
    })
}

fn written(frame: &Frame) -> Vec<Bytes> {
    let mut packer = Packer::default();
    packer.push(frame);
    packer.finish()
}

fn unpacked(messages: Vec<Bytes>) -> Vec<Frame> {
    let mut unpacker = Unpacker::default();
    messages.into_iter().flat_map(|message| unpacker.feed(message).unwrap()).collect()
}

proptest! {
    #[test]
    fn frames_come_back(frames in proptest::collection::vec(frames(), 0..8)) {
        let mut packer = Packer::default();
        for frame in &frames {
            packer.push(frame);
        }
        let back = unpacked(packer.finish());
        prop_assert_eq!(format!("{back:?}"), format!("{frames:?}"));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        Unpacker::default().feed(bytes.clone().into()).ok();
        read_frame(bytes.into()).ok();
    }

    #[test]
    fn a_flipped_bit_is_detected(frame in frames(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        for message in written(&frame) {
            let mut message = message.to_vec();
            let at = at.index(message.len());
            message[at] ^= 1 << bit;
            prop_assert!(Unpacker::default().feed(message.into()).is_err());
        }
    }
}

fn large_append(bytes: usize) -> Frame {
    let payload = openraft::EntryPayload::Normal(Packed(vec![7; bytes].into()));
    let entries = vec![Entry { log_id: log_id(1, 0), payload }];
    let request = AppendEntriesRequest {
        vote: Vote::new_committed(1, ReplicaId(1)),
        prev_log_id: None,
        entries,
        leader_commit: None,
    };
    Frame { call: 1, group: GroupId(1), replica: ReplicaId(2), message: Message::Append(request, None) }
}

#[test]
fn a_large_frame_travels_in_parts_between_small_ones() {
    let small = |call| Frame { call, group: GroupId(1), replica: ReplicaId(2), message: Message::Failed("x".into()) };
    let mut packer = Packer::default();
    packer.push(&small(7));
    packer.push(&large_append(1_000_000));
    packer.push(&small(8));
    let messages = packer.finish();
    assert!(messages.len() >= 5);
    assert!(messages.iter().all(|message| message.len() <= PART_BYTES_MAX + PART_HEADER_BYTES + 5));
    let calls: Vec<u64> = unpacked(messages).iter().map(|frame| frame.call).collect();
    assert_eq!(calls, [7, 1, 8]);
}

#[test]
fn parts_out_of_order_are_refused() {
    let mut packer = Packer::default();
    packer.push(&large_append(600_000));
    let messages = packer.finish();
    let mut unpacker = Unpacker::default();
    assert!(unpacker.feed(messages[1].clone()).is_err());
    let mut unpacker = Unpacker::default();
    unpacker.feed(messages[0].clone()).unwrap();
    assert!(unpacker.feed(messages[0].clone()).is_err());
}
