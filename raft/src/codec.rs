//! Reads and writes the plain values that log records and peer frames consist of.
//!
//! Little-endian throughout. Nothing here trusts a length: [`Reader`] returns [`Malformed`] if the bytes do not hold what
//! they announce, counts are checked against the bytes that have to follow before anything is allocated, and no length from
//! outside becomes the size of an allocation.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use terrane_types::{ByteReader, ByteWriter, ReplicaId, ServerId};

use crate::types::{Entry, LogId, Member, Membership, Packed, Payload, StoredMembership, Vote, log_id, term_of};

/// The bytes do not hold what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Malformed {
    pub(crate) what: &'static str,
}

pub(crate) const fn malformed(what: &'static str) -> Malformed {
    Malformed { what }
}

/// A cursor over bytes from outside; what it takes shares their buffer.
pub(crate) type Reader = ByteReader<Bytes>;

impl From<terrane_types::Malformed> for Malformed {
    fn from(error: terrane_types::Malformed) -> Self {
        malformed(error.what())
    }
}

/// Reads the values of log records and peer frames.
pub(crate) trait ReadRaft {
    /// The index of an entry. The greatest number is refused: what reads a log computes the index after it.
    fn index(&mut self) -> Result<u64, Malformed>;

    fn log_id(&mut self) -> Result<LogId, Malformed>;

    fn vote(&mut self) -> Result<Vote, Malformed>;

    /// `members u32 | (replica u64 | server u64)* | configurations u32 | (voters u32 | replica u64 *)*`
    fn membership(&mut self) -> Result<Membership, Malformed>;

    fn stored_membership(&mut self) -> Result<StoredMembership, Malformed>;

    /// `term u64 | index u64 | kind u8 | payload`, the payload of a normal entry preceded by its length.
    fn entry(&mut self) -> Result<Entry, Malformed>;
}

impl ReadRaft for Reader {
    fn index(&mut self) -> Result<u64, Malformed> {
        match self.u64()? {
            u64::MAX => Err(malformed("an index that no entry can follow")),
            index => Ok(index),
        }
    }

    fn log_id(&mut self) -> Result<LogId, Malformed> {
        let term = self.u64()?;
        Ok(log_id(term, self.index()?))
    }

    fn vote(&mut self) -> Result<Vote, Malformed> {
        let (term, replica) = (self.u64()?, ReplicaId(self.u64()?));
        let committed = self.flag()?;
        Ok(if committed { Vote::new_committed(term, replica) } else { Vote::new(term, replica) })
    }

    fn membership(&mut self) -> Result<Membership, Malformed> {
        let mut members = BTreeMap::new();
        for _ in 0..self.count(16)? {
            let replica = ReplicaId(self.u64()?);
            members.insert(replica, Member { server: ServerId(self.u64()?) });
        }
        let mut configurations = Vec::new();
        for _ in 0..self.count(4)? {
            let mut voters = BTreeSet::new();
            for _ in 0..self.count(8)? {
                voters.insert(ReplicaId(self.u64()?));
            }
            configurations.push(voters);
        }
        // A replica starts with an empty membership (no configuration at all), which `new` would refuse.
        if configurations.is_empty() && members.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(configurations, members).map_err(|_| malformed("a voter is not among the members"))
    }

    fn stored_membership(&mut self) -> Result<StoredMembership, Malformed> {
        let id = self.option(Reader::log_id)?;
        Ok(StoredMembership::new(id, self.membership()?))
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let id = self.log_id()?;
        let payload = match self.u8()? {
            PAYLOAD_BLANK => EntryPayload::Blank,
            PAYLOAD_NORMAL => EntryPayload::Normal(Packed(self.bytes()?)),
            PAYLOAD_MEMBERSHIP => EntryPayload::Membership(self.membership()?),
            _ => return Err(malformed("an entry of an unknown kind")),
        };
        Ok(Entry { log_id: id, payload })
    }
}

const PAYLOAD_BLANK: u8 = 0;
const PAYLOAD_NORMAL: u8 = 1;
const PAYLOAD_MEMBERSHIP: u8 = 2;

/// Writes the values of log records and peer frames.
pub(crate) trait WriteRaft: ByteWriter {
    fn log_id(&mut self, id: &LogId) {
        self.u64(term_of(id));
        self.u64(id.index);
    }

    fn vote(&mut self, vote: &Vote) {
        self.u64(vote.leader_id.term);
        self.u64(vote.leader_id.voted_for.0);
        self.flag(vote.committed);
    }

    fn membership(&mut self, membership: &Membership) {
        self.count(membership.nodes().count());
        for (replica, member) in membership.nodes() {
            self.u64(replica.0);
            self.u64(member.server.0);
        }
        self.list(membership.get_joint_config().iter(), |out, voters| {
            out.list(voters.iter(), |out, replica| out.u64(replica.0));
        });
    }

    fn stored_membership(&mut self, membership: &StoredMembership) {
        self.option(membership.log_id().as_ref(), Self::log_id);
        self.membership(membership.membership());
    }

    fn entry(&mut self, id: &LogId, payload: &Payload) {
        self.log_id(id);
        match payload {
            EntryPayload::Blank => self.u8(PAYLOAD_BLANK),
            EntryPayload::Normal(packed) => {
                self.u8(PAYLOAD_NORMAL);
                self.bytes(&packed.0);
            }
            EntryPayload::Membership(membership) => {
                self.u8(PAYLOAD_MEMBERSHIP);
                self.membership(membership);
            }
        }
    }
}

impl WriteRaft for Vec<u8> {}

/// A payload with its own memory if it is small: a slice would keep alive the whole buffer it came in, be that a network
/// message or a segment.
pub(crate) fn detached(payload: Payload) -> Payload {
    match payload {
        EntryPayload::Normal(Packed(bytes)) if bytes.len() < SHARED_PAYLOAD_BYTES_MIN => {
            EntryPayload::Normal(Packed(Bytes::copy_from_slice(&bytes)))
        }
        other => other,
    }
}

/// From this size on, a payload is most of the buffer it came in, so sharing wastes little.
const SHARED_PAYLOAD_BYTES_MIN: usize = 64 << 10;

#[cfg(test)]
pub(crate) mod strategies {
    //! Random values for the round-trip tests of everything that is built from these.

    use proptest::prelude::*;

    use super::*;

    pub(crate) fn log_ids() -> impl Strategy<Value = LogId> {
        (any::<u64>(), 0..u64::MAX).prop_map(|(term, index)| log_id(term, index))
    }

    pub(crate) fn votes() -> impl Strategy<Value = Vote> {
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(term, replica, committed)| {
            if committed { Vote::new_committed(term, ReplicaId(replica)) } else { Vote::new(term, ReplicaId(replica)) }
        })
    }

    pub(crate) fn memberships() -> impl Strategy<Value = Membership> {
        (proptest::collection::btree_map(any::<u64>(), any::<u64>(), 1..6), 1usize..3).prop_map(|(members, joint)| {
            let members: BTreeMap<_, _> =
                members.into_iter().map(|(r, s)| (ReplicaId(r), Member { server: ServerId(s) })).collect();
            let voters: BTreeSet<_> = members.keys().copied().collect();
            Membership::new(vec![voters; joint], members).unwrap()
        })
    }

    pub(crate) fn entries() -> impl Strategy<Value = Entry> {
        let payload = prop_oneof![
            Just(EntryPayload::Blank),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(|b| EntryPayload::Normal(Packed(b.into()))),
            memberships().prop_map(EntryPayload::Membership),
        ];
        (log_ids(), payload).prop_map(|(log_id, payload)| Entry { log_id, payload })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::strategies::{entries, memberships, votes};
    use super::*;

    fn reader(bytes: &[u8]) -> Reader {
        Reader::new(Bytes::copy_from_slice(bytes))
    }

    proptest! {
        #[test]
        fn entries_come_back(entry in entries()) {
            let mut out = Vec::new();
            out.entry(&entry.log_id, &entry.payload);
            let mut read = reader(&out);
            prop_assert_eq!(read.entry().unwrap(), entry);
            read.finish().unwrap();
        }

        #[test]
        fn votes_and_memberships_come_back(vote in votes(), membership in memberships()) {
            let mut out = Vec::new();
            out.vote(&vote);
            out.membership(&membership);
            let mut read = reader(&out);
            prop_assert_eq!(read.vote().unwrap(), vote);
            prop_assert_eq!(read.membership().unwrap(), membership);
        }

        #[test]
        fn random_bytes_are_refused_or_read_but_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            reader(&bytes).entry().ok();
            reader(&bytes).membership().ok();
            reader(&bytes).stored_membership().ok();
            reader(&bytes).vote().ok();
            reader(&bytes).bytes().ok();
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
        assert_eq!(reader(&[0xff; 8]).membership().unwrap_err().what, "a count exceeds the bytes that follow");
    }

    #[test]
    fn an_index_that_no_entry_can_follow_is_refused() {
        let id = |index: u64| [7u64.to_le_bytes(), index.to_le_bytes()].concat();
        assert_eq!(reader(&id(u64::MAX - 1)).log_id(), Ok(log_id(7, u64::MAX - 1)));
        assert_eq!(reader(&id(u64::MAX)).log_id().unwrap_err().what, "an index that no entry can follow");
    }

    #[test]
    fn the_empty_membership_comes_back() {
        let mut out = Vec::new();
        out.stored_membership(&StoredMembership::default());
        assert_eq!(reader(&out).stored_membership().unwrap(), StoredMembership::default());
    }
}
