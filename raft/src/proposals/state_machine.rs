//! What a host needs to know about its groups' state machines and proposals.
//!
//! A proposal is a value until the leader packs it: [`StateMachine::prepare`] writes it into the entry, once. From there on it
//! is bytes, on the leader too, and [`StateMachine::apply`] reads it from them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
pub use futures::future::BoxFuture;

use crate::GroupSpec;

/// Something that is proposed to a group.
pub trait Proposal: Send + 'static {
    /// The bytes that it counts for in the queue and in an entry: about those it takes in memory and in the log.
    fn bytes(&self) -> usize;
}

/// Bytes that go to the log as they are.
impl Proposal for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The meaning of a group's entries: one per group replica, opened by the [`Factory`].
pub trait StateMachine: Send + Sync + 'static {
    /// What is proposed to a group.
    type Proposal: Proposal;
    /// The answer to a proposal.
    type Answer: Send + Sync + 'static;

    /// Leader only, in log order, when a proposal is packed into an entry: appends the operation to `entry`, with the stamp
    /// filled in and with everything decided that the leader decides for all members.
    ///
    /// It is called only when the first entry of the leader's term and all before it are applied here. A proposal that has
    /// to be packed again is prepared again. Unless the result is that it was packed, what was appended is removed.
    fn prepare(&self, packing: &Packing, proposal: &Self::Proposal, entry: &mut Vec<u8>) -> Prepared<Self::Answer>;

    /// Applies committed entries in order; returns an answer per operation, for each entry. Entries whose term or ordinal
    /// does not hold arrive without operations. After a restart the entries since the purged part of the log are applied
    /// again: the state machine skips what its own durable points cover.
    ///
    /// If it cannot read an entry, it returns the answers of those before it: this replica is damaged, has noted that itself,
    /// and stops.
    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<Self::Answer>>>;

    /// How far applying is, while a call to [`StateMachine::apply`] lasts and after it.
    fn progress(&self) -> Progress {
        Progress::default()
    }

    /// The log of this replica is damaged: what it holds is not what the leader packed. It is to be replaced by a copy of the
    /// group, and should not lead.
    fn note_damage(&self, _what: &str) {}

    /// The damage that was noted.
    fn damage(&self) -> Option<String> {
        None
    }

    /// The index up to which all entries are in synced files of this replica, and what holds it back.
    fn durable(&self) -> Durable;

    /// Whether files are kept beside the log because an entry after `index` names them, as long as the log has the entry.
    fn keeps_files_after(&self, _index: u64) -> bool {
        false
    }

    /// The log wants to be purged up to `index`: starts to flush what holds it back. Returns at once.
    fn relieve(&self, index: u64);

    /// Entries that were packed here had no effect, or it is unknown whether they had: drops everything assumed about them.
    /// Nothing is in flight, and what had no effect will be prepared again.
    fn discard_assumptions(&self) {}

    /// This replica leads from now on, in another term than before. It may not have applied what it has to yet.
    fn gained_leadership(&self) {}

    /// This replica leads and has applied the first entry of its term, and so all before it: it serves.
    fn began_to_serve(&self) {}

    /// This replica no longer leads: drops what only a leader keeps.
    fn lost_leadership(&self) {}

    /// Whether this state machine can be copied. If not, the log is kept for members that are behind, however long.
    fn can_be_copied(&self) -> bool {
        false
    }

    /// A copy of what is in synced files here, for a member that lacks entries which the log no longer has. A restart could
    /// begin from it with the log after any index that [`StateMachine::durable`] has reported before this call.
    ///
    /// # Errors
    /// Why there is none. The member keeps lacking the entries.
    fn copy(&self) -> BoxFuture<'_, Result<Arc<dyn StateCopy>, String>> {
        Box::pin(async { Err("this state machine cannot be copied".to_owned()) })
    }

    /// Where the files of copies are put as they arrive, each under its [`CopiedFile::name`]: a directory that is this group's
    /// own. What a former copy left in it may be used again.
    fn incoming_dir(&self) -> Option<PathBuf> {
        None
    }

    /// [`StateMachine::incoming_dir`], if there is room for a copy of so many bytes.
    ///
    /// # Errors
    /// Why it cannot be received now.
    fn incoming(&self, _bytes: u64) -> BoxFuture<'_, Result<PathBuf, String>> {
        Box::pin(async { Err("this state machine cannot be copied".to_owned()) })
    }

    /// Verifies a copy whose files have all arrived and are synced. It has everything up to `index`. Nothing changes yet.
    ///
    /// # Errors
    /// What is wrong with it: it is discarded.
    fn stage<'a>(&'a self, _dir: &'a Path, _index: u64) -> BoxFuture<'a, Result<Box<dyn StagedCopy>, String>> {
        Box::pin(async { Err("this state machine cannot be copied".to_owned()) })
    }
}

/// A copy of a state machine: files that do not change while it lives.
pub trait StateCopy: Send + Sync {
    /// The files. File 0 describes the copy and is sent each time; a file with another number has the same content in
    /// every copy from this process. After a restart the number of a file that is gone may be that of another one: a member
    /// that has received the first finds that the copy is not whole, and gets all of it again.
    fn files(&self) -> Vec<CopiedFile>;

    /// Reads a part of a file. It lies within the file.
    fn read(&self, id: u64, offset: u64, length: usize) -> BoxFuture<'_, io::Result<Bytes>>;
}

/// A verified copy. It has no effect until it is installed.
pub trait StagedCopy: Send {
    /// Replaces the whole state, durably, from between two entries. The next entry applied is that after `index`.
    ///
    /// While the state machine says in its [`Progress`] that it lacks something for an entry up to `index`, the copy may be
    /// installed during the call to [`StateMachine::apply`] that waits for it: that entry and the others up to `index` then
    /// have no effect. If more than `index` is applied by then, nothing is installed.
    ///
    /// # Errors
    /// Ends the replica: the state on disk is the old one or the new one, which only a restart can tell.
    fn install(self: Box<Self>, index: u64) -> BoxFuture<'static, io::Result<()>>;
}

/// A file of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its number.
    pub id: u64,
    /// Its length in bytes.
    pub size: u64,
}

impl CopiedFile {
    /// The name of the file with this number among the files that have arrived.
    #[must_use]
    pub fn name(id: u64) -> String {
        format!("{id:016}")
    }
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
    /// Nothing is in flight and nothing is packed into this entry yet: nothing counts but what is applied here.
    pub alone: bool,
}

/// What became of a proposal that was to be packed.
pub enum Prepared<A> {
    /// Its operation is in the entry.
    Packed,
    /// The same, and nothing more is packed before this entry has landed.
    PackedAlone,
    /// It gets this answer and is not proposed.
    Refused(A),
    /// What is in flight has to land first, this entry included; then it is prepared again. Never the result for a
    /// proposal that is [`Packing::alone`].
    WhenLanded,
    /// Something has to be read first; then it is prepared again. Nothing passes it.
    NeedsDisk(BoxFuture<'static, ()>),
    /// Time has to pass first. It leaves the queue for a millisecond, others pass it, and it is prepared again. After a few
    /// times it fails with `Busy`.
    Later,
}

/// How far a replica's own files cover its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// All entries up to this index are in synced files (0: none). State machines without files of their own return 0 and
    /// so keep their whole log.
    pub index: u64,
    /// What holds it back, for people ("region 7").
    pub held_by: Option<String>,
}

/// How far a state machine is in applying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last entry that is applied as a whole. State machines that apply all entries of a call at once need not say.
    pub applied: u64,
    /// Changes while the next entry gets on, for example with the bytes of files that arrive for it.
    pub steps: u64,
    /// The next entry needs something that was not found here or on other members: the entry, and what, for people. A copy of
    /// the group that covers the entry does instead.
    pub lacks: Option<(u64, String)>,
    /// The next entry waits for something that comes from elsewhere, whether or not it was found.
    pub waits: bool,
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

/// Opens the state machine of a group replica, when the group is created and at each start of the process.
pub trait Factory: Send + Sync + 'static {
    /// The state machine of all groups of a host.
    type Machine: StateMachine;

    /// The state machine for `spec`.
    fn open(&self, spec: &GroupSpec) -> Arc<Self::Machine>;
}
