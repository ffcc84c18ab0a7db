//! A machine that its host pauses: all its clocks stand still, and what others send to it waits, as does what it sends.
//!
//! Turmoil cannot stop the tasks of a host. Instead all links of the host are held, and its clocks do not see the time: leases
//! are judged by what they see (`terrane_env::time::seen_of`). When the machine goes on, clients reach it before the other
//! servers do. So the old leader answers them when the others have long elected another one, and believes that no time has passed.

use std::time::Duration;

use super::{FaultEvent, Host, Nemesis, Sim};
use crate::fault::draw::LinkFault;
use crate::scenario::{CAPTIVE, HOSTS};
use crate::trace;

/// How much earlier than the other servers clients reach a machine that goes on; no longer than a lease.
const CLIENTS_FIRST: Duration = Duration::from_millis(350);

impl Nemesis {
    pub(super) fn pause(&mut self, sim: &mut Sim, host: Host, ends: Duration) {
        if !self.links.pause(host) {
            trace::note(format_args!("{host} is paused already"));
            return;
        }
        // Where the hypervisor does not tell, only strict reads are safe.
        let told = !self.context.plan.strict_reads;
        trace::note(format_args!("PAUSE of {host}, told {told}"));
        terrane_env::sim::stop_clocks(host, sim.elapsed(), told);
        self.others(host).for_each(|other| self.links.cut(sim, host, other, LinkFault::Hold));
        // One client does not learn what the others decide.
        for other in self.servers().iter().copied().filter(|other| *other != host) {
            self.links.cut(sim, CAPTIVE, other, LinkFault::Drop);
            self.later.push((ends + CLIENTS_FIRST, FaultEvent::Heal(CAPTIVE, other)));
        }
        self.later.push((ends, FaultEvent::Resume(host)));
        for other in self.nodes().into_iter().filter(|other| *other != host) {
            self.later.push((ends + CLIENTS_FIRST, FaultEvent::Heal(host, other)));
        }
    }

    pub(super) fn resume(&mut self, sim: &mut Sim, now: Duration, host: Host) {
        trace::note(format_args!("RESUME of {host}"));
        terrane_env::sim::start_clocks(host, now);
        self.links.resume(host);
        HOSTS.iter().for_each(|client| self.links.heal(sim, host, client));
    }
}
