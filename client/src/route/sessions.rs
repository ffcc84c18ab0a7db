//! The sessions of one client, one per server, and which servers take calls.
//!
//! A server that could not be reached, or has stopped answering, is *away*: calls go to other members, and a call that would
//! have gone there opens a new session on trial. The server is back when it accepts a session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use terrane_types::ServerId;
use tokio::time::Instant;

use crate::route::counters::Count;
use crate::wire::failure::Failure;
use crate::wire::peer::Peer;
use crate::wire::session::{Session, Standing};

/// The shortest time between two attempts to reach a server that is away.
const TRIAL_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Sessions {
    /// At most one per server of the cluster.
    sessions: RwLock<BTreeMap<ServerId, Arc<Session>>>,
    /// Held while a session is opened, so that concurrent callers open one.
    opening: Mutex<()>,
}

impl Sessions {
    /// The session with a server, if it takes requests now.
    pub(crate) fn ready(&self, server: ServerId, address: &str) -> Option<Arc<Session>> {
        let sessions = self.sessions.read();
        let session = sessions.get(&server)?;
        (session.address() == address && session.standing() == Standing::Ready).then(|| Arc::clone(session))
    }

    /// The session with a server, opened if necessary. `None`: the server is away.
    pub(crate) fn reach(&self, peer: Peer, address: &str, opened: &Count) -> Result<Option<Arc<Session>>, Failure> {
        let _opening = self.opening.lock();
        let last = self.sessions.read().get(&peer.server).cloned();
        let ping_timeout = last.as_ref().map(|last| last.ping_timeout()).unwrap_or_default();
        let last = last.filter(|last| last.address() == address);
        let on_trial = match step(last.as_ref().map(|last| last.standing()), Instant::now()) {
            Step::Use => return Ok(last),
            Step::Pass => return Ok(None),
            Step::Open => false,
            Step::OpenOnTrial => true,
        };
        opened.add();
        let session = Session::open(address, peer, ping_timeout, on_trial)?;
        self.sessions.write().insert(peer.server, Arc::clone(&session));
        Ok((!on_trial).then_some(session))
    }

    /// Ends all sessions, once their callers are gone.
    pub(crate) fn clear(&self) {
        self.sessions.write().clear();
    }
}

/// What a call does about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Sends on the session there is.
    Use,
    /// Opens a session and sends on it.
    Open,
    /// Opens a session for later calls, and goes to another member.
    OpenOnTrial,
    /// Goes to another member.
    Pass,
}

/// Decides, given the last session with the server at this address.
fn step(last: Option<Standing>, now: Instant) -> Step {
    match last {
        None => Step::Open,
        Some(Standing::Ready) => Step::Use,
        Some(Standing::Away) => Step::Pass,
        Some(Standing::Broken { doubtful: false, .. }) => Step::Open,
        Some(Standing::Broken { doubtful: true, since }) if now.duration_since(since) < TRIAL_PAUSE => Step::Pass,
        Some(Standing::Broken { doubtful: true, .. }) => Step::OpenOnTrial,
    }
}

#[cfg(test)]
mod tests;
