//! A record of the shared log: one change of one group.
//!
//! ```text
//! crc u32 (CRC32C of all that follows) | length u32 (of the body) | body: kind u8 | group u64 | ...
//! ```
//!
//! The records of a group, read in order, rebuild its log. `Created`, `Vote` and `Purged` are repeated at the head of each
//! segment, so the segments before it can be removed without losing them.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_types::{ByteWriter, GroupId, ReplicaId, ServerId};

use crate::GroupSpec;
use crate::codec::{Malformed, ReadRaft as _, Reader, WriteRaft as _, malformed};
use crate::proposals::entry::Sequence;
use crate::types::{Entry, LogId, Payload, StoredMembership, Vote};

/// Bytes before a record's body.
pub(crate) const FRAME_BYTES: usize = 8;

const KIND_CREATED: u8 = 1;
const KIND_VOTE: u8 = 2;
const KIND_ENTRY: u8 = 3;
const KIND_TRUNCATED: u8 = 4;
const KIND_PURGED: u8 = 5;
const KIND_REMOVED: u8 = 6;

/// A group's state as of an index: everything that the entries after it need from the log before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The last entry it includes.
    pub(crate) log_id: LogId,
    /// The membership at that entry.
    pub(crate) membership: StoredMembership,
    /// Decides whether the next entry takes effect.
    pub(crate) sequence: Sequence,
}

/// A change of a group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    /// The local replica was created.
    Created(GroupSpec),
    /// It voted, or learned about a leader.
    Vote(Vote),
    /// An entry was appended.
    Entry(Entry),
    /// Entries after this index (all if `None`) are no longer part of the log.
    Truncated(Option<u64>),
    /// Entries up to the mark are no longer needed.
    Purged(Mark),
    /// The local replica was removed. If records of the group follow, they are those of another replica and begin with its
    /// `Created`.
    Removed(ReplicaId),
}

pub(crate) fn put_created(out: &mut Vec<u8>, spec: &GroupSpec) {
    framed(out, KIND_CREATED, spec.group, |out| {
        out.u64(spec.replica.0);
        out.list(spec.members.iter(), |out, (replica, server)| {
            out.u64(replica.0);
            out.u64(server.0);
        });
    });
}

pub(crate) fn put_vote_record(out: &mut Vec<u8>, group: GroupId, vote: &Vote) {
    framed(out, KIND_VOTE, group, |out| out.vote(vote));
}

pub(crate) fn put_entry_record(out: &mut Vec<u8>, group: GroupId, id: &LogId, payload: &Payload) {
    framed(out, KIND_ENTRY, group, |out| out.entry(id, payload));
}

pub(crate) fn put_truncated(out: &mut Vec<u8>, group: GroupId, last: Option<u64>) {
    framed(out, KIND_TRUNCATED, group, |out| out.option(last, ByteWriter::u64));
}

pub(crate) fn put_purged(out: &mut Vec<u8>, group: GroupId, mark: &Mark) {
    framed(out, KIND_PURGED, group, |out| put_mark(out, mark));
}

pub(crate) fn put_removed(out: &mut Vec<u8>, group: GroupId, replica: ReplicaId) {
    framed(out, KIND_REMOVED, group, |out| out.u64(replica.0));
}

pub(crate) fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.log_id(&mark.log_id);
    out.stored_membership(&mark.membership);
    out.u64(mark.sequence.term);
    out.u64(mark.sequence.ordinal);
    out.u64(mark.sequence.stamp);
    out.u64(mark.sequence.released);
}

fn framed(out: &mut Vec<u8>, kind: u8, group: GroupId, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    out.push(kind);
    out.u64(group.0);
    body(out);
    let length =
        u32::try_from(out.len() - start - FRAME_BYTES).expect("accepted sizes are bounded far below four billion");
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the record at the start of `bytes` and returns it with its length, frame included.
pub(crate) fn read(bytes: &Bytes) -> Result<(GroupId, Record, usize), Malformed> {
    let mut frame = Reader::new(bytes.clone());
    let crc = frame.u32()?;
    let length = frame.count(1)?;
    let end = FRAME_BYTES + length;
    if crc32c::crc32c(&bytes[4..end]) != crc {
        return Err(malformed("a record's checksum does not match"));
    }
    let mut body = Reader::new(bytes.slice(FRAME_BYTES..end));
    let kind = body.u8()?;
    let group = GroupId(body.u64()?);
    let record = match kind {
        KIND_CREATED => Record::Created(created(&mut body, group)?),
        KIND_VOTE => Record::Vote(body.vote()?),
        KIND_ENTRY => Record::Entry(body.entry()?),
        KIND_TRUNCATED => Record::Truncated(body.option(Reader::index)?),
        KIND_PURGED => Record::Purged(read_mark(&mut body)?),
        KIND_REMOVED => Record::Removed(ReplicaId(body.u64()?)),
        _ => return Err(malformed("a record of an unknown kind")),
    };
    body.finish()?;
    Ok((group, record, end))
}

fn created(body: &mut Reader, group: GroupId) -> Result<GroupSpec, Malformed> {
    let replica = ReplicaId(body.u64()?);
    let mut members = BTreeMap::new();
    for _ in 0..body.count(16)? {
        let replica = ReplicaId(body.u64()?);
        members.insert(replica, ServerId(body.u64()?));
    }
    Ok(GroupSpec { group, replica, members })
}

pub(crate) fn read_mark(body: &mut Reader) -> Result<Mark, Malformed> {
    Ok(Mark {
        log_id: body.log_id()?,
        membership: body.stored_membership()?,
        sequence: Sequence { term: body.u64()?, ordinal: body.u64()?, stamp: body.u64()?, released: body.u64()? },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::strategies::{entries, log_ids, memberships, votes};

    pub(crate) fn marks() -> impl Strategy<Value = Mark> {
        (log_ids(), memberships(), any::<[u64; 4]>()).prop_map(|(log_id, membership, s)| Mark {
            log_id,
            membership: StoredMembership::new(Some(log_id), membership),
            sequence: Sequence { term: s[0], ordinal: s[1], stamp: s[2], released: s[3] },
        })
    }

    fn records() -> impl Strategy<Value = Record> {
        let spec = (any::<u64>(), proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..5)).prop_map(
            |(replica, members)| {
                Record::Created(GroupSpec {
                    group: GroupId(7),
                    replica: ReplicaId(replica),
                    members: members.into_iter().map(|(r, s)| (ReplicaId(r), ServerId(s))).collect(),
                })
            },
        );
        prop_oneof![
            spec,
            votes().prop_map(Record::Vote),
            entries().prop_map(Record::Entry),
            proptest::option::of(0..u64::MAX).prop_map(Record::Truncated),
            marks().prop_map(Record::Purged),
            any::<u64>().prop_map(|replica| Record::Removed(ReplicaId(replica))),
        ]
    }

    pub(crate) fn encode(group: GroupId, record: &Record) -> Vec<u8> {
        let mut out = Vec::new();
        match record {
            Record::Created(spec) => put_created(&mut out, spec),
            Record::Vote(vote) => put_vote_record(&mut out, group, vote),
            Record::Entry(entry) => put_entry_record(&mut out, group, &entry.log_id, &entry.payload),
            Record::Truncated(last) => put_truncated(&mut out, group, *last),
            Record::Purged(mark) => put_purged(&mut out, group, mark),
            Record::Removed(replica) => put_removed(&mut out, group, *replica),
        }
        out
    }

    proptest! {
        #[test]
        fn records_round_trip(record in records(), tail in proptest::collection::vec(any::<u8>(), 0..20)) {
            let mut bytes = encode(GroupId(7), &record);
            let length = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(read(&bytes.into()).unwrap(), (GroupId(7), record, length));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes.into()).ok();
        }

        #[test]
        fn any_flipped_bit_is_detected(record in records(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = encode(GroupId(7), &record);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(read(&bytes.into()).is_err());
        }
    }
}
