//! Messages between servers as the fuzz driver sees them.

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use terrane_types::fuzzing::{Damage, Dice, Format};
use terrane_types::{GroupId, ReplicaId};

use super::frame::{Frame, HEAD, Message, Packer, Unpacker, sealed};
use crate::CopiedFile;
use crate::copies::{Offer, Part};
use crate::fuzzing::draw;
use crate::members::applying::Applying;
use crate::reads::completeness::Bound;
use crate::types::{Entry, Packed, Payload, Types, log_id};

/// The messages of one stream without their format and checksum, each after its 32-bit length.
pub(crate) const STREAM: Format = Format {
    name: "peer-stream",
    damage: Damage::Undetected,
    read: |bytes| read(bytes).map(|frames| written(&frames)),
    draw: |dice| {
        let frames = dice.list(5, frame);
        checked(&frames)
    },
    limits: || vec![checked(&[largest()])],
};

/// Streams up to this size are compared as text.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// All frames of the stream; `None` as soon as it would be ended.
fn read(mut bytes: &[u8]) -> Option<Vec<Frame>> {
    let (mut unpacker, mut frames) = (Unpacker::default(), Vec::new());
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?.min(rest.len());
        let (message, rest) = rest.split_at(length);
        bytes = rest;
        let message = sealed([&HEAD, message].concat());
        frames.extend(unpacker.feed(message).map_err(|error| error.to_string()).ok()?);
    }
    Some(frames)
}

fn written(frames: &[Frame]) -> Vec<u8> {
    let mut packer = Packer::default();
    frames.iter().for_each(|frame| packer.push(frame));
    let mut out = Vec::new();
    for message in packer.finish() {
        let parts = &message[HEAD.len()..];
        out.extend_from_slice(&u32::try_from(parts.len()).expect("messages are far below 4 GiB").to_le_bytes());
        out.extend_from_slice(parts);
    }
    out
}

fn checked(frames: &[Frame]) -> Vec<u8> {
    let bytes = written(frames);
    let back = read(&bytes).expect("a stream that was written is read");
    // Requests and replies of openraft have no equality, and the text of the largest frame would take too long.
    if bytes.len() < TEXT_BYTES_MAX {
        assert_eq!(format!("{back:?}"), format!("{frames:?}"), "frames are read as other ones");
    }
    assert!(written(&back) == bytes, "frames that were read are written as other ones");
    bytes
}

fn frame(dice: &mut Dice) -> Frame {
    Frame {
        call: dice.number(),
        group: GroupId(dice.number()),
        replica: ReplicaId(dice.number()),
        message: message(dice),
    }
}

fn applying(dice: &mut Dice) -> Applying {
    Applying { applied: dice.number(), lacks_for: dice.number(), asks: dice.flag() }
}

fn message(dice: &mut Dice) -> Message {
    let term = dice.number();
    match dice.below(21) {
        0 | 1 => append(dice),
        2 => Message::Appended(AppendEntriesResponse::Success, applying(dice)),
        3 => Message::Appended(AppendEntriesResponse::Conflict, applying(dice)),
        4 => Message::Appended(
            AppendEntriesResponse::PartialSuccess(dice.flag().then(|| draw::some_id(dice))),
            applying(dice),
        ),
        5 => Message::Appended(AppendEntriesResponse::HigherVote(draw::vote(dice, term)), applying(dice)),
        6 => Message::Vote(vote_request(dice)),
        7 => Message::PreVote(vote_request(dice)),
        8 => {
            let (vote, last) = (draw::vote(dice, term), dice.flag().then(|| draw::some_id(dice)));
            Message::Voted(VoteResponse::new(vote, last, dice.flag()))
        }
        9 => {
            let (vote, last) = (draw::vote(dice, term), dice.flag().then(|| draw::some_id(dice)));
            Message::Transfer(TransferLeaderRequest::new(vote, ReplicaId(dice.number()), last))
        }
        10 => Message::Transferred(transferred(dice)),
        11 => Message::Released(term),
        12 => Message::Clock,
        13 => Message::ClockReply { wall_ms: term, abstains: dice.flag() },
        14 => Message::Offer(Offer {
            number: term,
            vote: draw::vote(dice, term),
            mark: draw::mark(dice),
            files: files(dice),
        }),
        15 => Message::Held(files(dice)),
        16 => Message::Part(Part { offer: term, id: term, offset: dice.number() >> 1, bytes: dice.bytes(60).into() }),
        17 => Message::Taken,
        18 => Message::Install { offer: dice.number(), vote: draw::vote(dice, term) },
        19 => Message::Installed(draw::vote(dice, term)),
        _ => Message::Failed(dice.text(60)),
    }
}

fn files(dice: &mut Dice) -> Vec<CopiedFile> {
    dice.list(4, |dice| CopiedFile { id: dice.number(), size: dice.number() })
}

fn append(dice: &mut Dice) -> Message {
    let prev = dice.flag().then(|| log_id(dice.number(), dice.number() >> 1));
    let mut next = prev.map_or(0, |id| id.index + 1);
    let entries = dice.list(5, |dice| {
        next += 1;
        Entry { log_id: log_id(dice.number(), next - 1), payload: draw::payload(dice) }
    });
    let term = dice.number();
    let request = AppendEntriesRequest {
        vote: draw::vote(dice, term),
        prev_log_id: prev,
        leader_commit: dice.flag().then(|| draw::some_id(dice)),
        entries,
    };
    let bound = dice.flag().then(|| Bound { time_ms: dice.number(), index: dice.number() });
    Message::Append(request, bound)
}

fn vote_request(dice: &mut Dice) -> VoteRequest<Types> {
    let term = dice.number();
    let mut request = VoteRequest::new(draw::vote(dice, term), dice.flag().then(|| draw::some_id(dice)));
    request.leadership_transfer = dice.flag();
    request
}

fn transferred(dice: &mut Dice) -> Result<(), TransferLeaderError<Types>> {
    let (one, other) = (dice.number(), dice.number());
    match dice.below(3) {
        0 => Ok(()),
        1 => Err(TransferLeaderError::VoteChanged { expected: draw::vote(dice, one), actual: draw::vote(dice, other) }),
        _ => Err(TransferLeaderError::LogNotFlushed {
            expected: dice.flag().then(|| draw::some_id(dice)),
            actual: dice.flag().then(|| draw::some_id(dice)),
        }),
    }
}

/// The largest entry, which travels in parts.
fn largest() -> Frame {
    let payload = Payload::Normal(Packed(vec![7; terrane_types::limits::BATCH_BYTES_MAX + (1 << 20)].into()));
    let request = AppendEntriesRequest {
        vote: draw::vote(&mut Dice::new(1), u64::MAX),
        prev_log_id: None,
        entries: vec![Entry { log_id: log_id(u64::MAX, 0), payload }],
        leader_commit: None,
    };
    Frame { call: 1, group: GroupId(1), replica: ReplicaId(2), message: Message::Append(request, None) }
}
