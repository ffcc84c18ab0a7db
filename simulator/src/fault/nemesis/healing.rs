//! The end of all faults. What was damaged stays damaged, and its server is lost for good.

use super::{FaultEvent, Host, Nemesis, Sim};
use crate::fault::machine;
use crate::scenario::HOSTS;
use crate::trace;

impl Nemesis {
    /// Ends all faults.
    pub(super) fn heal_all(&mut self, sim: &mut Sim) {
        trace::note(format_args!("HEAL of everything"));
        let now = sim.elapsed();
        self.aiming.clear();
        self.staged.clear();
        let later = std::mem::take(&mut self.later);
        for (_, act) in
            later.into_iter().filter(|(_, act)| matches!(act, FaultEvent::Lossless(..) | FaultEvent::Fast(..)))
        {
            self.perform(sim, now, act);
        }
        self.nodes().into_iter().for_each(|host| self.links.resume(host));
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
