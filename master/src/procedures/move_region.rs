//! Carries out moves of regions: orders the leader of the region's group until the move has ended, and records the end.

use std::time::Duration;

use terrane_proto::v1;
use terrane_types::{Error, GroupId, ServerId};

use super::region_move::{MoveAnswer, MoveProgress, Next, landing, next};
use crate::backoff::Backoff;
use crate::catalog::CatalogEdit;
use crate::catalog::moves::{MoveEnd, MoveId, MoveReason, RegionMove};
use crate::context::{MasterContext, Subject};
use crate::history::chronicle;
use crate::servers::liveness::Moment;
use crate::servers::observed::now;

/// Between two orders of a move that makes progress.
const ORDER_EVERY: Duration = Duration::from_millis(100);
/// Between two orders that fail.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// A planned move without progress is undone after this time; an administrator's move waits for the administrator.
const PATIENCE: Duration = Duration::from_secs(120);
/// Tries to hand over the leadership of the new group. The region is there in any case.
const HANDOVERS_MAX: u32 = 5;

/// Drives a journaled move to its end.
pub async fn perform(context: &MasterContext, id: MoveId) -> Result<(), Error> {
    let mut backoff = Backoff::new(ORDER_EVERY, RETRY_MAX);
    let mut answer = None;
    let mut stalled = Stalled::begin();
    chronicle::moving(context, id);
    while let Some((known, step)) = decide(context, id, answer.take()) {
        terrane_env::buggify_pause!("a move of a region waits between two orders").await;
        context.leadership.confirm().await?;
        match step {
            Next::End(end) => {
                if let (MoveEnd::Moved(_), Some(server)) = (&end, known.lead) {
                    hand_over(context, known.to, server).await;
                }
                tracing::info!(region = %known.region.region, to = %known.to, ?end, "a move of a region has ended");
                return context.journal.record(&CatalogEdit::EndMove { id, end }).await.map(drop);
            }
            Next::Order { cancel, as_before } => {
                let answered = order(context, id, &known, (cancel, as_before)).await;
                if let Ok(MoveAnswer::UnderWay(progress)) = &answered {
                    context.note_move(id, progress.clone());
                    if stalled.see(progress) {
                        backoff = Backoff::new(ORDER_EVERY, RETRY_MAX);
                    }
                }
                answer = Some(answered);
            }
            Next::Wait { what } => {
                if stalled.is_new() {
                    context.end_wait(Subject::Move(id));
                } else {
                    context.begin_wait(Subject::Move(id), what.clone());
                }
                if known.reason != MoveReason::Operator && known.cancelled.is_none() && stalled.for_long() {
                    let why = format!("it made no progress for {} s, waiting for {what}", PATIENCE.as_secs());
                    context.journal.record(&CatalogEdit::CancelMove { id, why }).await?;
                }
                tokio::time::sleep(if stalled.is_new() { ORDER_EVERY } else { backoff.next_wait() }).await;
            }
        }
    }
    Ok(())
}

fn decide(
    context: &MasterContext,
    id: MoveId,
    answer: Option<Result<MoveAnswer, Error>>,
) -> Option<(RegionMove, Next)> {
    context.journal.read(|catalog| {
        let known = catalog.moves().get(id)?;
        Some((known.clone(), next(known, landing(catalog, known), answer)))
    })
}

async fn order(
    context: &MasterContext,
    id: MoveId,
    known: &RegionMove,
    how: (bool, bool),
) -> Result<MoveAnswer, Error> {
    let reply = context.orders.move_region(id, &known.region, known.to, how).await?;
    let missing = || Error::Internal { message: "a move was answered without its region".to_owned() };
    Ok(match reply.state() {
        v1::MoveState::Moved => MoveAnswer::Moved(reply.region.ok_or_else(missing)?.try_into()?),
        v1::MoveState::Undone => MoveAnswer::Undone(reply.detail),
        state @ (v1::MoveState::Unspecified | v1::MoveState::Copying | v1::MoveState::Frozen) => {
            MoveAnswer::UnderWay(MoveProgress {
                frozen: state == v1::MoveState::Frozen,
                detail: reply.detail,
                copied_bytes: reply.copied_bytes,
                bytes: reply.bytes,
            })
        }
    })
}

/// Hands the leadership of the new group to the server that was asked for, if it can lead.
async fn hand_over(context: &MasterContext, group: GroupId, server: ServerId) {
    let mut backoff = Backoff::new(ORDER_EVERY, RETRY_MAX);
    for _ in 0..HANDOVERS_MAX {
        let replica = context.journal.read(|catalog| {
            let entry = catalog.groups().get(group)?;
            let is_leading = context.observed.with(|observed| observed.leader(group)) == Some(server);
            entry.members.iter().find(|(_, on)| **on == server && !is_leading).map(|(replica, _)| *replica)
        });
        let Some(replica) = replica else { return };
        chronicle::hands_over(context, group, server, "a region was moved to this server");
        match context.orders.transfer_leader(group, replica).await {
            Ok(()) => {
                chronicle::handed_over(context, group, server);
                return;
            }
            Err(error) => tracing::warn!(%group, %server, %error, "a leadership was not handed over after a move"),
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

/// Since when a move has made no progress.
struct Stalled {
    last: MoveProgress,
    since: Moment,
}

impl Stalled {
    fn begin() -> Self {
        Self { last: MoveProgress::default(), since: now() }
    }

    /// Notes the progress; whether there is some.
    fn see(&mut self, progress: &MoveProgress) -> bool {
        let is_same = (self.last.frozen, self.last.copied_bytes) == (progress.frozen, progress.copied_bytes);
        if !is_same {
            *self = Self { last: progress.clone(), since: now() };
        }
        !is_same
    }

    /// Whether the last progress is of this moment: the next is likely to follow soon.
    fn is_new(&self) -> bool {
        now().since(self.since) < RETRY_MAX
    }

    fn for_long(&self) -> bool {
        // A frozen region is adopted or undone by its leader alone.
        !self.last.frozen && now().since(self.since) >= PATIENCE
    }
}
