//! Copies of a group's state, for members that lack entries which the log no longer has.
//!
//! openraft asks the leader to send a snapshot, or a member that cannot apply what it has asks for one ([`requested`]). The
//! leader then takes a copy of its state machine ([`sending`]): files that do not change while the copy lives. It offers them to the member, which answers what it has already; it sends the rest part
//! by part, and at last orders the member to install. The member ([`receiving`]) keeps whole files whatever happens to the
//! leader or itself, verifies everything before it changes anything, and hands the copy to openraft, which purges its log up
//! to the copy.
//!
//! The copy may be newer than the log id that it is sent under: the state machine skips entries that its files cover, as it
//! does after a restart.
//!
//! Bounds: so many copies at once per process, sent and received ([`COPIES_AT_ONCE`]), so many bytes a second
//! ([`BYTES_PER_SECOND`]), and for each copy one part of a file in memory and the list of its files ([`FILES_MAX`]). A copy
//! that has no turn is refused and offered again; the leader takes it at the moment of each offer.

pub(crate) mod progress;
pub(crate) mod receiving;
pub(crate) mod requested;
pub(crate) mod sending;
pub(crate) mod share;
pub(crate) mod turns;

use std::time::Duration;

use crate::CopiedFile;
use crate::log::Mark;
use crate::types::Vote;

/// Copies that a process sends, and that it receives, at the same time. The others are tried again.
pub(crate) const COPIES_AT_ONCE: usize = 2;
/// The rate of all copies that a process sends.
const BYTES_PER_SECOND: u64 = 128 << 20;
/// Bytes of a file in one message.
const PART_BYTES: usize = 1 << 20;
/// How long a member may take to look at what it has, and to write a part.
const STEP_DEADLINE: Duration = Duration::from_secs(10);
/// The most files of a copy.
pub(crate) const FILES_MAX: usize = 1 << 20;

/// What a leader offers to a member.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Drawn for each offer. What follows it names the number, so that nothing of an earlier copy that arrives late is taken
    /// for a part of this one.
    pub(crate) number: u64,
    /// The leader's.
    pub(crate) vote: Vote,
    /// The state that the member will be in.
    pub(crate) mark: Mark,
    pub(crate) files: Vec<CopiedFile>,
}

/// A part of a file of a copy.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The number of the offer that it belongs to.
    pub(crate) offer: u64,
    pub(crate) id: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: bytes::Bytes,
}
