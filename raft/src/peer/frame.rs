//! The layout of what servers send each other about groups.
//!
//! ```text
//! message = format u8 (1) | crc u32 | part *
//! part    = flags u8 (1 first of its frame, 2 last) | length u32 | bytes
//! frame   = call u64 | group u64 | replica u64 | kind u8 | body
//! ```
//!
//! A message carries everything that was queued: frames of many groups. A frame larger than [`PART_BYTES_MAX`] travels in
//! parts, one after another. The checksum of a message is CRC32C of all its other bytes: TCP's is too weak for what members decide
//! with. A reply has the call number of its request. No openraft type is serialized by a derive.

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderError, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use terrane_types::versions::FormatVersions;
use terrane_types::{ByteWriter as _, GroupId, ReplicaId};

use crate::CopiedFile;
use crate::codec::{Malformed, ReadRaft as _, Reader, WriteRaft, detached, malformed};
use crate::copies::{FILES_MAX, Offer, Part};
use crate::log::{payload_bytes, put_mark, read_mark};
use crate::members::applying::Applying;
use crate::reads::completeness::Bound;
use crate::types::{Types, Vote};

/// Bytes of a frame in one part. A message of another group never waits for more than this.
pub(crate) const PART_BYTES_MAX: usize = 256 << 10;

/// Bytes of a whole frame; a larger one is refused. Holds the largest proposal with the entry around it and a few more.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

const FORMAT: u8 = 1;
/// The versions of frames.
pub(crate) const VERSIONS: FormatVersions =
    FormatVersions { name: "peer frame", oldest: FORMAT as u32, newest: FORMAT as u32 };
const CRC_BYTES: usize = 4;
/// The bytes before the parts of a message, without its checksum.
pub(crate) const HEAD: [u8; 1 + CRC_BYTES] = [FORMAT, 0, 0, 0, 0];
const PART_HEADER_BYTES: usize = 5;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// One request or reply.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) call: u64,
    pub(crate) group: GroupId,
    /// The replica that a request is meant for.
    pub(crate) replica: ReplicaId,
    pub(crate) message: Message,
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// Heartbeats also carry the leader's bound.
    Append(AppendEntriesRequest<Types>, Option<Bound>),
    /// With how far the member has applied.
    Appended(AppendEntriesResponse<Types>, Applying),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Voted(VoteResponse<Types>),
    Transfer(TransferLeaderRequest<Types>),
    Transferred(TransferLeaderResponse<Types>),
    /// The log is not kept for members up to this index. Sent to members that refuse entries, which would otherwise tell them.
    Released(u64),
    /// Asks what the server's clock shows and whether the server is willing to lead.
    Clock,
    ClockReply {
        wall_ms: u64,
        /// It has a reason to lead nothing.
        abstains: bool,
    },
    /// The leader offers a copy of its state.
    Offer(Offer),
    /// What the member has of the copy already: bytes of files.
    Held(Vec<CopiedFile>),
    /// A part of a file of the copy.
    Part(Part),
    /// The part is written.
    Taken,
    /// All files have been sent: the member is to install the copy.
    Install {
        offer: u64,
        vote: Vote,
    },
    /// It has, or did not need to; with its vote.
    Installed(Vote),
    /// The receiver could not carry out the request, for example because it does not have the group.
    Failed(String),
}

impl Message {
    /// The bytes it takes, here and on its way, approximately.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            Message::Append(request, _) => {
                request.entries.iter().map(|entry| payload_bytes(&entry.payload)).sum::<usize>()
            }
            Message::Offer(Offer { files, .. }) | Message::Held(files) => files.len() * size_of::<CopiedFile>(),
            Message::Part(part) => part.bytes.len(),
            _ => 0,
        };
        (bytes + MESSAGE_BYTES_MIN) as u64
    }
}

/// The bytes that a message takes in addition to its entries, approximately.
const MESSAGE_BYTES_MIN: usize = 128;

const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const VOTE: u8 = 3;
const PRE_VOTE: u8 = 4;
const VOTED: u8 = 5;
const TRANSFER: u8 = 6;
const TRANSFERRED: u8 = 7;
const FAILED: u8 = 8;
/// An append with a bound before it.
const BOUNDED_APPEND: u8 = 9;
/// Sent only to members that refused entries because their log is full.
const RELEASED: u8 = 16;
const CLOCK: u8 = 10;
const CLOCK_REPLY: u8 = 11;
const OFFER: u8 = 17;
const HELD: u8 = 18;
const PART: u8 = 19;
const TAKEN: u8 = 20;
const INSTALL: u8 = 21;
const INSTALLED: u8 = 22;

const APPENDED_ALL: u8 = 0;
const APPENDED_PART: u8 = 1;
const APPENDED_CONFLICT: u8 = 2;
const APPENDED_HIGHER_VOTE: u8 = 3;

const TRANSFERRED_DONE: u8 = 0;
const TRANSFERRED_VOTE_CHANGED: u8 = 1;
const TRANSFERRED_NOT_FLUSHED: u8 = 2;

/// An entry takes at least term, index and kind.
const ENTRY_BYTES_MIN: usize = 17;

/// A file of a copy: number and size.
const FILE_BYTES: usize = 16;

fn put_frame(out: &mut Vec<u8>, frame: &Frame) {
    out.u64(frame.call);
    out.u64(frame.group.0);
    out.u64(frame.replica.0);
    match &frame.message {
        Message::Append(request, None) => {
            out.push(APPEND);
            put_append(out, request);
        }
        Message::Append(request, Some(bound)) => {
            out.push(BOUNDED_APPEND);
            out.u64(bound.time_ms);
            out.u64(bound.index);
            put_append(out, request);
        }
        Message::Appended(reply, applying) => {
            out.push(APPENDED);
            out.u64(applying.applied);
            out.u64(applying.lacks_for);
            out.flag(applying.asks);
            put_appended(out, reply);
        }
        Message::Vote(request) => put_vote_request(out, VOTE, request),
        Message::PreVote(request) => put_vote_request(out, PRE_VOTE, request),
        Message::Voted(reply) => {
            out.push(VOTED);
            out.vote(&reply.vote);
            out.flag(reply.vote_granted);
            out.option(reply.last_log_id.as_ref(), WriteRaft::log_id);
        }
        Message::Transfer(request) => {
            out.push(TRANSFER);
            out.vote(request.from_leader());
            out.u64(request.to_node_id().0);
            out.option(request.last_log_id(), WriteRaft::log_id);
        }
        Message::Transferred(reply) => put_transferred(out, reply),
        Message::Released(index) => {
            out.push(RELEASED);
            out.u64(*index);
        }
        Message::Clock => out.push(CLOCK),
        Message::ClockReply { wall_ms, abstains } => {
            out.push(CLOCK_REPLY);
            out.u64(*wall_ms);
            out.flag(*abstains);
        }
        Message::Offer(offer) => {
            out.push(OFFER);
            out.u64(offer.number);
            out.vote(&offer.vote);
            put_mark(out, &offer.mark);
            put_files(out, &offer.files);
        }
        Message::Held(files) => {
            out.push(HELD);
            put_files(out, files);
        }
        Message::Part(part) => {
            out.push(PART);
            out.u64(part.offer);
            out.u64(part.id);
            out.u64(part.offset);
            out.bytes(&part.bytes);
        }
        Message::Taken => out.push(TAKEN),
        Message::Install { offer, vote } => {
            out.push(INSTALL);
            out.u64(*offer);
            out.vote(vote);
        }
        Message::Installed(vote) => {
            out.push(INSTALLED);
            out.vote(vote);
        }
        Message::Failed(what) => {
            out.push(FAILED);
            out.text(what);
        }
    }
}

fn put_files(out: &mut Vec<u8>, files: &[CopiedFile]) {
    out.list(files.iter(), |out, file| {
        out.u64(file.id);
        out.u64(file.size);
    });
}

fn read_files(reader: &mut Reader) -> Result<Vec<CopiedFile>, Malformed> {
    let count = reader.count(FILE_BYTES)?;
    if count > FILES_MAX {
        return Err(malformed("a copy of too many files"));
    }
    (0..count).map(|_| Ok(CopiedFile { id: reader.u64()?, size: reader.u64()? })).collect()
}

fn put_append(out: &mut Vec<u8>, request: &AppendEntriesRequest<Types>) {
    out.vote(&request.vote);
    out.option(request.prev_log_id.as_ref(), WriteRaft::log_id);
    out.option(request.leader_commit.as_ref(), WriteRaft::log_id);
    out.list(request.entries.iter(), |out, entry| out.entry(&entry.log_id, &entry.payload));
}

fn put_appended(out: &mut Vec<u8>, reply: &AppendEntriesResponse<Types>) {
    match reply {
        AppendEntriesResponse::Success => out.push(APPENDED_ALL),
        AppendEntriesResponse::PartialSuccess(last) => {
            out.push(APPENDED_PART);
            out.option(last.as_ref(), WriteRaft::log_id);
        }
        AppendEntriesResponse::Conflict => out.push(APPENDED_CONFLICT),
        AppendEntriesResponse::HigherVote(vote) => {
            out.push(APPENDED_HIGHER_VOTE);
            out.vote(vote);
        }
    }
}

fn put_vote_request(out: &mut Vec<u8>, kind: u8, request: &VoteRequest<Types>) {
    out.push(kind);
    out.vote(&request.vote);
    out.option(request.last_log_id.as_ref(), WriteRaft::log_id);
    out.flag(request.leadership_transfer);
}

fn put_transferred(out: &mut Vec<u8>, reply: &TransferLeaderResponse<Types>) {
    out.push(TRANSFERRED);
    match reply {
        Ok(()) => out.push(TRANSFERRED_DONE),
        Err(TransferLeaderError::VoteChanged { expected, actual }) => {
            out.push(TRANSFERRED_VOTE_CHANGED);
            out.vote(expected);
            out.vote(actual);
        }
        Err(TransferLeaderError::LogNotFlushed { expected, actual }) => {
            out.push(TRANSFERRED_NOT_FLUSHED);
            out.option(expected.as_ref(), WriteRaft::log_id);
            out.option(actual.as_ref(), WriteRaft::log_id);
        }
    }
}

fn read_frame(bytes: Bytes) -> Result<Frame, Malformed> {
    let mut reader = Reader::new(bytes);
    let call = reader.u64()?;
    let group = GroupId(reader.u64()?);
    let replica = ReplicaId(reader.u64()?);
    let message = match reader.u8()? {
        APPEND => Message::Append(read_append(&mut reader)?, None),
        BOUNDED_APPEND => {
            let bound = Bound { time_ms: reader.u64()?, index: reader.u64()? };
            Message::Append(read_append(&mut reader)?, Some(bound))
        }
        APPENDED => {
            let applying = Applying { applied: reader.u64()?, lacks_for: reader.u64()?, asks: reader.flag()? };
            Message::Appended(read_appended(&mut reader)?, applying)
        }
        VOTE => Message::Vote(read_vote_request(&mut reader)?),
        PRE_VOTE => Message::PreVote(read_vote_request(&mut reader)?),
        VOTED => {
            let (vote, granted) = (reader.vote()?, reader.flag()?);
            Message::Voted(VoteResponse::new(vote, reader.option(Reader::log_id)?, granted))
        }
        TRANSFER => {
            let (from, to): (Vote, _) = (reader.vote()?, ReplicaId(reader.u64()?));
            Message::Transfer(TransferLeaderRequest::new(from, to, reader.option(Reader::log_id)?))
        }
        TRANSFERRED => Message::Transferred(read_transferred(&mut reader)?),
        RELEASED => Message::Released(reader.u64()?),
        CLOCK => Message::Clock,
        CLOCK_REPLY => Message::ClockReply { wall_ms: reader.u64()?, abstains: reader.flag()? },
        OFFER => {
            let (number, vote, mark) = (reader.u64()?, reader.vote()?, read_mark(&mut reader)?);
            Message::Offer(Offer { number, vote, mark, files: read_files(&mut reader)? })
        }
        HELD => Message::Held(read_files(&mut reader)?),
        PART => {
            let (offer, id, offset, bytes) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.bytes()?);
            if offset.checked_add(bytes.len() as u64).is_none() {
                return Err(malformed("a part of a file beyond any length"));
            }
            Message::Part(Part { offer, id, offset, bytes })
        }
        TAKEN => Message::Taken,
        INSTALL => Message::Install { offer: reader.u64()?, vote: reader.vote()? },
        INSTALLED => Message::Installed(reader.vote()?),
        FAILED => Message::Failed(String::from_utf8_lossy(&reader.bytes()?).into_owned()),
        _ => return Err(malformed("a frame of an unknown kind")),
    };
    reader.finish()?;
    Ok(Frame { call, group, replica, message })
}

fn read_append(reader: &mut Reader) -> Result<AppendEntriesRequest<Types>, Malformed> {
    let vote = reader.vote()?;
    let prev_log_id = reader.option(Reader::log_id)?;
    let leader_commit = reader.option(Reader::log_id)?;
    let mut entries = Vec::new();
    let mut next = prev_log_id.map_or(0, |id| id.index.saturating_add(1));
    for _ in 0..reader.count(ENTRY_BYTES_MIN)? {
        let mut entry = reader.entry()?;
        // openraft relies on this.
        if entry.log_id.index != next {
            return Err(malformed("an entry does not follow its predecessor"));
        }
        next = next.saturating_add(1);
        entry.payload = detached(entry.payload);
        entries.push(entry);
    }
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

fn read_appended(reader: &mut Reader) -> Result<AppendEntriesResponse<Types>, Malformed> {
    Ok(match reader.u8()? {
        APPENDED_ALL => AppendEntriesResponse::Success,
        APPENDED_PART => AppendEntriesResponse::PartialSuccess(reader.option(Reader::log_id)?),
        APPENDED_CONFLICT => AppendEntriesResponse::Conflict,
        APPENDED_HIGHER_VOTE => AppendEntriesResponse::HigherVote(reader.vote()?),
        _ => return Err(malformed("an unknown outcome of an append")),
    })
}

fn read_vote_request(reader: &mut Reader) -> Result<VoteRequest<Types>, Malformed> {
    let mut request = VoteRequest::new(reader.vote()?, reader.option(Reader::log_id)?);
    request.leadership_transfer = reader.flag()?;
    Ok(request)
}

fn read_transferred(reader: &mut Reader) -> Result<TransferLeaderResponse<Types>, Malformed> {
    Ok(match reader.u8()? {
        TRANSFERRED_DONE => Ok(()),
        TRANSFERRED_VOTE_CHANGED => {
            Err(TransferLeaderError::VoteChanged { expected: reader.vote()?, actual: reader.vote()? })
        }
        TRANSFERRED_NOT_FLUSHED => Err(TransferLeaderError::LogNotFlushed {
            expected: reader.option(Reader::log_id)?,
            actual: reader.option(Reader::log_id)?,
        }),
        _ => return Err(malformed("an unknown outcome of a transfer")),
    })
}

/// Packs frames into messages.
#[derive(Default)]
pub(crate) struct Packer {
    finished: Vec<Bytes>,
    current: Vec<u8>,
}

impl Packer {
    pub(crate) fn push(&mut self, frame: &Frame) {
        if self.current.is_empty() {
            self.current.extend_from_slice(&HEAD);
        }
        let start = self.current.len();
        self.current.extend_from_slice(&[0; PART_HEADER_BYTES]);
        put_frame(&mut self.current, frame);
        let length = self.current.len() - start - PART_HEADER_BYTES;
        if length <= PART_BYTES_MAX {
            write_part_header(&mut self.current[start..], FIRST | LAST, length);
        } else {
            let large = self.current.split_off(start);
            self.finish_message();
            self.push_parts(&large[PART_HEADER_BYTES..]);
        }
        if self.current.len() >= PART_BYTES_MAX {
            self.finish_message();
        }
    }

    fn push_parts(&mut self, frame: &[u8]) {
        let parts = frame.len().div_ceil(PART_BYTES_MAX);
        for (at, part) in frame.chunks(PART_BYTES_MAX).enumerate() {
            let first = if at == 0 { FIRST } else { 0 };
            let last = if at + 1 == parts { LAST } else { 0 };
            let mut message = Vec::with_capacity(HEAD.len() + PART_HEADER_BYTES + part.len());
            message.extend_from_slice(&HEAD);
            message.extend_from_slice(&[0; PART_HEADER_BYTES]);
            write_part_header(&mut message[HEAD.len()..], first | last, part.len());
            message.extend_from_slice(part);
            self.finished.push(sealed(message));
        }
    }

    fn finish_message(&mut self) {
        // Without a part it is no message.
        if self.current.len() > HEAD.len() {
            self.finished.push(sealed(std::mem::take(&mut self.current)));
        }
    }

    /// The messages with everything that was pushed, in order.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        self.finish_message();
        self.finished
    }
}

/// The message with its checksum.
pub(crate) fn sealed(mut message: Vec<u8>) -> Bytes {
    let crc = checksum(&message);
    message[1..=CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    message.into()
}

/// The checksum that belongs into a message.
fn checksum(message: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&message[..1]), &message[1 + CRC_BYTES..])
}

fn write_part_header(out: &mut [u8], flags: u8, length: usize) {
    let length = u32::try_from(length).expect("a part is at most 256 KiB");
    out[0] = flags;
    out[1..PART_HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// What the network makes of a message: now and then, the simulated one flips a bit.
fn on_its_way(message: Bytes) -> Bytes {
    if message.is_empty() || !terrane_env::buggify!("a bit of a message flips", 64) {
        return message;
    }
    let mut flipped = message.to_vec();
    let bit = terrane_env::rand::range(0..8 * flipped.len() as u64);
    flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
    flipped.into()
}

/// Reassembles the frames of one stream.
#[derive(Default)]
pub(crate) struct Unpacker {
    /// Parts of an incomplete frame.
    partial: Option<Vec<u8>>,
}

impl Unpacker {
    /// Whether a frame is incomplete.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// The frames that `message` completes.
    pub(crate) fn feed(&mut self, message: Bytes) -> Result<Vec<Frame>, Malformed> {
        let message = on_its_way(message);
        let mut reader = Reader::new(message.clone());
        if reader.u8()? != FORMAT {
            return Err(malformed("a message of an unknown format"));
        }
        let is_whole = reader.u32()? == checksum(&message);
        if !is_whole && !terrane_env::planted!("the checksum of a message is not looked at") {
            return Err(malformed("the checksum of a message does not match"));
        }
        let mut frames = Vec::new();
        while reader.remaining() > 0 {
            let flags = reader.u8()?;
            let part = reader.bytes()?;
            if let Some(frame) = self.part(flags, part)? {
                frames.push(read_frame(frame)?);
            }
        }
        Ok(frames)
    }

    fn part(&mut self, flags: u8, part: Bytes) -> Result<Option<Bytes>, Malformed> {
        match (flags, self.partial.as_mut()) {
            (3, None) => Ok(Some(part)),
            (FIRST, None) => {
                self.partial = Some(part.to_vec());
                Ok(None)
            }
            (0 | LAST, Some(partial)) => {
                if partial.len() + part.len() > FRAME_BYTES_MAX {
                    return Err(malformed("a frame is too large"));
                }
                partial.extend_from_slice(&part);
                let whole = if flags == LAST { self.partial.take() } else { None };
                Ok(whole.map(Bytes::from))
            }
            _ => Err(malformed("parts of a frame are out of order")),
        }
    }
}

#[cfg(test)]
mod tests;
