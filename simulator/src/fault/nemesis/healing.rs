//! The end of all faults. What was damaged stays damaged, and its server is lost for good.

use std::time::Duration;

use super::{Act, Host, Nemesis, Sim};
use crate::fault::machine;
use crate::scenario::HOSTS;
use crate::trace;

/// How long new groups take until their first election.
const FORMING_MAX: Duration = Duration::from_secs(3);

impl Nemesis {
    /// Whether the server that is about to be lost for good may be the only one that knows a new group: until its first
    /// election the other members have nothing of it, and the group would stay without a leader. Groups are created when a
    /// server joins.
    pub(super) fn would_take_a_group_along(&self, now: Duration) -> bool {
        let is_up = self.damaged.is_some_and(|damaged| !self.down.contains_key(damaged));
        is_up && self.damaged_since.is_some_and(|since| now < since + FORMING_MAX)
    }

    /// Ends all faults.
    pub(super) fn heal_all(&mut self, sim: &mut Sim) {
        trace::note(format_args!("HEAL of everything"));
        let now = sim.elapsed();
        self.aiming.clear();
        self.staged.clear();
        let later = std::mem::take(&mut self.later);
        for (_, act) in later.into_iter().filter(|(_, act)| matches!(act, Act::Lossless(..) | Act::Fast(..))) {
            self.perform(sim, now, act);
        }
        let hosts: Vec<Host> = self.nodes().into_iter().chain(HOSTS).collect();
        for (place, a) in hosts.iter().enumerate() {
            hosts[place + 1..].iter().for_each(|b| self.links.heal(sim, a, b));
        }
        for host in self.nodes() {
            machine::heal_disk(host);
            machine::heal_clock(host);
            terrane_env::sim::start_clocks(host, now);
        }
        let mut down = std::mem::take(&mut self.down);
        if let Some(damaged) = self.damaged {
            // What an operator does with it. Until replicas are replaced, two of three members go on without it.
            trace::note(format_args!("{damaged} stays down: its disk is damaged"));
            if down.remove(damaged).is_none() {
                sim.crash(damaged);
            }
        }
        for host in down.into_keys() {
            trace::note(format_args!("RESTART of {host}"));
            sim.bounce(host);
        }
    }
}
