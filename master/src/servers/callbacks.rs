//! Calls servers back at the addresses that they advertise, and asks who answers there.
//!
//! A report travels from the server to the master, so it says nothing of whether orders, peers and clients find the server. Every
//! master therefore calls a server when its process has reported for the first time, before it counts as live, and again when an
//! order to it has failed while it reports. What the answers mean is `crate::servers::liveness`'s to say; this only calls.
//!
//! Each master calls for itself, like each observes reports for itself, so that a new leader knows already.

use std::collections::BTreeSet;
use std::time::Duration;

use terrane_types::ServerId;
use tokio::task::JoinSet;

use crate::context::MasterContext;
use crate::servers::liveness::NoAnswer;
use crate::servers::observed::now;

/// How often servers that do not answer are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Calls under way at a time.
const CALLS_MAX: usize = 64;

/// An answered call: the server, the boot that was asked for, and what answered.
type Called = (ServerId, u64, Result<(), NoAnswer>);

/// Calls servers as they are due. Never returns.
pub async fn drive(context: &std::sync::Arc<MasterContext>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut calls: JoinSet<Called> = JoinSet::new();
    let mut under_way: BTreeSet<ServerId> = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            Some(called) = calls.join_next() => {
                // A call that panicked ends this task, so that no server stays under way.
                let (server, boot, answer) = called.expect("a call does not panic");
                under_way.remove(&server);
                take(context, server, boot, answer);
            }
            () = context.observed.until_called_for() => {}
            _ = looks.tick() => {}
        }
        let due = context.observed.with(|observed| observed.liveness.due(now()));
        for (server, boot) in due {
            if calls.len() < CALLS_MAX && is_known(context, server) && under_way.insert(server) {
                let context = std::sync::Arc::clone(context);
                calls.spawn(async move { (server, boot, context.orders.identify(server, boot).await) });
            }
        }
    }
}

fn is_known(context: &MasterContext, server: ServerId) -> bool {
    context.journal.read(|catalog| catalog.servers().get(server).is_some())
}

/// Takes the answer over, and says what has changed.
fn take(context: &MasterContext, server: ServerId, boot: u64, answer: Result<(), NoAnswer>) {
    let (before, became_live, why) = context.observed.with(|observed| {
        let before = observed.liveness.state(server);
        let became_live = observed.liveness.called(server, boot, answer, now());
        (before, became_live, observed.liveness.unreachable_because(server).map(str::to_owned))
    });
    let after = context.observed.with(|observed| observed.liveness.state(server));
    if became_live.is_some() {
        tracing::info!(%server, before = before.name(), "server is live");
    } else if let Some(why) = why.filter(|_| before != after) {
        let address = context.journal.read(|catalog| catalog.servers().address(server));
        tracing::warn!(%server, address, why, "a server reports and cannot be reached at its address: check its --advertise");
    }
    if before != after {
        context.journal.nudge();
    }
}
