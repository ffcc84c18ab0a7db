//! The door between a group's log and what the log means.

use std::sync::Arc;

use bytes::Bytes;
pub use futures::future::BoxFuture;

use crate::GroupSpec;

/// What a group's entries mean: one per group replica, made by the [`Factory`].
pub trait StateMachine: Send + Sync + 'static {
    /// Leader only, in log order, when an operation is packed into an entry: appends to `entry` the form in which it goes to
    /// the log, with the stamp filled in and whatever the leader decides for all members decided.
    ///
    /// It is called only when the first entry of the leader's term and all before it are applied here. An operation that
    /// has to be packed anew is prepared again, from the form in which it was submitted. Unless the answer is that it was
    /// packed, what was appended is taken back.
    fn prepare(&self, packing: &Packing, operation: &[u8], entry: &mut Vec<u8>) -> Prepared;

    /// Applies committed entries in order; answers one reply per operation (empty: plain success). Entries whose term or
    /// ordinal does not hold never get here. After a restart the entries since the purged part of the log come again:
    /// what the state machine's own durable points cover is its to skip.
    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<Bytes>>>;

    /// Up to where all entries are in synced files of this replica, and who holds that back.
    fn durable(&self) -> Durable;

    /// The log wants to be purged up to `index`: start to flush what holds it back. Returns at once.
    fn relieve(&self, index: u64);

    /// Entries that were packed here have no effect, or nobody knows: whatever was assumed of them is to be forgotten.
    /// Nothing is in flight, and what had no effect will be prepared again.
    fn came_back(&self) {}

    /// This replica no longer leads: drop what only a leader keeps.
    fn lost_leadership(&self) {}
}

/// The entry that is being packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The term it is packed in.
    pub term: u64,
    /// Its place among the entries of the term, counted from 1.
    pub ordinal: u64,
    /// The leader's milliseconds; never below an earlier entry's.
    pub stamp: u64,
    /// All entries of the term up to this ordinal have landed: they are applied here.
    pub landed: u64,
    /// Nothing is in flight and nothing is packed into this entry yet: what is applied here is all there is.
    pub alone: bool,
}

/// What became of an operation that was to be packed.
pub enum Prepared {
    /// Its logged form is in the entry.
    Packed,
    /// The same, and nothing more is packed before this entry has landed.
    PackedAlone,
    /// It is answered with this and not proposed.
    Refused(Bytes),
    /// What is in flight has to land first, this entry included; then it is prepared again. Never the answer to an
    /// operation that is [`Packing::alone`].
    WhenLanded,
    /// Something has to be read first; then it is prepared again. Nothing passes it.
    NeedsDisk(BoxFuture<'static, ()>),
    /// A moment has to pass first. It leaves the queue for a millisecond, others pass it, and it is prepared again; one that
    /// goes on answering this is told `Busy`.
    Later,
}

/// How far a replica's own files cover its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// All entries up to this index are in synced files (0: none). State machines without files of their own answer 0 and
    /// so keep their whole log.
    pub index: u64,
    /// Who holds it back, for people ("region 7").
    pub held_by: Option<String>,
}

/// One committed entry as the state machine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedEntry {
    /// The term it was proposed in.
    pub term: u64,
    /// Its log index.
    pub index: u64,
    /// The leader's milliseconds; never goes back within a group.
    pub stamp: u64,
    /// The operations in it, in order.
    pub operations: Vec<Bytes>,
}

/// Makes the state machine of a group replica, when the group is made and at each start of the process.
pub trait Factory: Send + Sync + 'static {
    /// The state machine for `spec`.
    fn open(&self, spec: &GroupSpec) -> Arc<dyn StateMachine>;
}
