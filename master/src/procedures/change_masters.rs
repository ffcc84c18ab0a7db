//! Carries out a change of the masters: makes the next step, and looks again.

use std::collections::BTreeSet;

use terrane_raft::MembersError;
use terrane_types::{Error, ReplicaId, ServerId};

use super::masters_change::{Known, Next, latest, next};
use super::{RETRY_FIRST, RETRY_MAX};
use crate::backoff::Backoff;
use crate::catalog::CatalogEdit;
use crate::catalog::masters::MastersEdit;
use crate::context::{MasterContext, Subject};
use crate::masters::numbers::Peer;

/// What one run of a change remembers.
#[derive(Default)]
struct Run {
    taken: BTreeSet<u64>,
    declined: BTreeSet<u64>,
    confirmed: Option<BTreeSet<u64>>,
}

/// Drives the journaled change of the masters to its end, or until this master has handed over.
pub async fn perform(context: &MasterContext) -> Result<(), Error> {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let mut run = Run::default();
    loop {
        let one_at_a_time = context.changing_members.lock().await;
        let Some(step) = decide(context, &run) else { break };
        terrane_env::buggify_pause!("a change of the masters waits between two steps").await;
        context.leadership.confirm().await?;
        context.journal.learn_members();
        let made = carry_out(context, &step, &mut run).await;
        drop(one_at_a_time);
        match made {
            Ok(()) => {
                context.end_wait(Subject::Masters);
                backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
            }
            Err(what) => {
                context.begin_wait(Subject::Masters, what);
                tokio::time::sleep(backoff.next_wait()).await;
            }
        }
    }
    Ok(())
}

fn decide(context: &MasterContext, run: &Run) -> Option<Next> {
    let members = context.journal.group().members();
    let known = Known {
        own: context.journal.peers().own(),
        members: &members,
        taken: &run.taken,
        declined: &run.declined,
        confirmed: run.confirmed.as_ref(),
    };
    context.journal.read(|catalog| next(catalog.masters(), &known))
}

/// Makes a step.
///
/// # Errors
/// What the change waits for.
async fn carry_out(context: &MasterContext, step: &Next, run: &mut Run) -> Result<(), String> {
    let group = context.journal.group();
    let refused = |error: MembersError| error.to_string();
    match step {
        Next::Take(peer) => {
            take(context, peer).await?;
            run.taken.insert(peer.number);
        }
        Next::Learn { number } => {
            // A restart must find the new masters before it can have them confirm anything.
            context.journal.write_checkpoint().await;
            if let Some(why) = context.journal.checkpoint_issue() {
                return Err(format!("a checkpoint of the catalog: {why}"));
            }
            context.journal.peers().learn([ServerId(*number)].into_iter());
            group.add_learner(ReplicaId(*number), ServerId(*number)).await.map_err(refused)?;
        }
        Next::Transfer { to } => {
            tracing::info!(to, "this master is to be removed and hands over");
            if let Err(error) = group.transfer_leader(ReplicaId(*to)).await {
                run.declined.insert(*to);
                return Err(refused(error));
            }
            return Err(format!("master {to}, to take over the leadership"));
        }
        Next::Vote { voters } => {
            run.confirmed = None;
            group.set_voters(voters.iter().copied().map(ReplicaId).collect()).await.map_err(refused)?;
            run.confirmed = Some(voters.clone());
        }
        Next::Leave { number } => {
            group.change_voters(None, Some(ReplicaId(*number))).await.map_err(refused)?;
        }
        Next::End { undone } => end(context, *undone).await?,
        Next::Wait { what } => {
            // One that declined may take over later.
            run.declined.clear();
            return Err(what.clone());
        }
    }
    Ok(())
}

/// Orders a process to become the master that it is to be.
async fn take(context: &MasterContext, peer: &Peer) -> Result<(), String> {
    let peers = context.journal.peers();
    let mut masters = context.journal.read(|catalog| catalog.masters().all());
    let members = context.journal.group().members();
    for master in &mut masters {
        // One that lost its directory has another number since.
        master.number = latest(&members, master.place()).unwrap_or(master.number);
    }
    let address = &peer.address;
    let reply = peers.join(address, peer.number, &masters).await;
    let reply = reply.map_err(|why| format!("the process at {address}, which does not take its number: {why}"))?;
    match (reply.waits, reply.number == peer.number && reply.cluster_id == peers.cluster().0.as_slice()) {
        (_, true) => Ok(()),
        (true, false) => Err(format!("the process at {address}, to store its number")),
        (false, false) => Err(format!(
            "the process at {address}, which does not wait to be added; start it with an empty directory and --join"
        )),
    }
}

async fn end(context: &MasterContext, undone: bool) -> Result<(), String> {
    let version = context.journal.read(|catalog| catalog.masters().version);
    let edit = CatalogEdit::Masters(MastersEdit::End { version, undone });
    context.journal.record(&edit).await.map_err(|error| format!("the catalog: {error}"))?;
    context.journal.learn_members();
    let masters = context.journal.peers().addresses().join(",");
    tracing::info!(undone, masters, "the change of the masters has ended");
    Ok(())
}
