//! A server that joins with an empty disk and is lost for good about when it starts the first election of a new group.

use std::time::Duration;

use super::{Act, Host, Nemesis, Sim};
use crate::fault::draw::{Damage, Fault};
use crate::fault::machine::Crash;
use crate::trace;

/// When a server that is lost for good restarts.
const NEVER: Duration = Duration::MAX;
/// The loss comes up to so many ms after the step before the election: the other members have heard nothing yet, have voted, or
/// know the leader.
const AFTER_MS_MAX: u64 = 40;

impl Nemesis {
    /// The server has reached the step.
    pub(super) fn plan_loss(&mut self, now: Duration, host: Host) {
        let after = Duration::from_millis(terrane_env::rand::range(0..AFTER_MS_MAX));
        self.later.push((now + after, Act::Lose(host)));
    }

    /// Whether the server is down for good, whatever was planned before.
    pub(super) fn is_lost(&self, host: Host) -> bool {
        self.down.get(host) == Some(&NEVER)
    }

    /// The server crashes and never restarts.
    pub(super) fn lose(&mut self, sim: &mut Sim, host: Host) {
        let name = Fault::Damage { victim: 0, what: Damage::LostAsItJoins }.name();
        trace::note(format_args!("FAULT {name}: {host}"));
        self.context.state.strike(name);
        if self.down.insert(host, NEVER).is_none() {
            Crash::PowerCut { silent: false }.strike(sim, host);
        }
    }
}
