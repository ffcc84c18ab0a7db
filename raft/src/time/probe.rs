//! Asks the other servers for their clocks and whether they are willing to lead.
//!
//! One question per peer and [`PROBE_INTERVAL`], whatever the number of groups, and at most one at a time, so a peer that does
//! not answer costs nothing more. `clock.rs` interprets the answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use terrane_types::{GroupId, ReplicaId, ServerId};
use tokio::time::Instant;

use crate::groups::registry::Registry;
use crate::peer::{Call, Lane, Message, Peers};
use crate::time::clock::{Clocks, elapsed_ms};

/// How often a peer is asked. A clock that is set wrong is detected within this time.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// An answer that takes longer says little about the clock, and the next question is due.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks periodically. Never returns.
pub(crate) async fn run(groups: Arc<Registry>, peers: Arc<Peers>, clocks: Arc<Clocks>, own: ServerId) {
    let mut asked: BTreeSet<ServerId> = BTreeSet::new();
    let mut questions = FuturesUnordered::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            biased;
            Some(answered) = questions.next(), if !questions.is_empty() => {
                asked.remove(&answered);
                continue;
            }
            () = tokio::time::sleep_until(next) => {}
        }
        next = Instant::now() + PROBE_INTERVAL;
        let members: BTreeSet<_> = groups.all().iter().flat_map(|replica| replica.view.servers().to_vec()).collect();
        for server in members.into_iter().filter(|server| *server != own) {
            if asked.insert(server) {
                questions.push(ask(peers.clone(), clocks.clone(), server));
            }
        }
    }
}

async fn ask(peers: Arc<Peers>, clocks: Arc<Clocks>, server: ServerId) -> ServerId {
    let asked = elapsed_ms();
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    // The question is for the server: no group or replica has these numbers.
    let call = Call { group: GroupId(0), replica: ReplicaId(0), message: Message::Clock, deadline };
    if let Some(answer) = peers.link(server, Lane::Votes).call(call)
        && let Ok(Message::ClockReply { wall_ms, abstains }) = answer.await
        && !terrane_env::buggify!("a reading of a clock is lost")
    {
        clocks.note(server, asked, wall_ms);
        clocks.note_abstains(server, abstains);
    }
    server
}
