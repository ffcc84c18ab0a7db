//! What a leader knows of the members of its group, gathered by its connections to them.

use crate::copies::progress::Sending;
use crate::members::applying::Members;
use crate::members::lagging::{FailingCopies, Refused};

/// What a leader knows of the members of its group. Each part has its own lock.
#[derive(Default)]
pub(crate) struct Followers {
    /// What the members have applied, as they have said.
    pub(crate) applied: Members,
    /// The copies of the group that this leader sends.
    pub(crate) sending: Sending,
    /// Members to which copies are not getting through.
    pub(crate) failing_copies: FailingCopies,
    /// Members whose log accepts no more entries of this group.
    pub(crate) refused_by: Refused,
}
