//! The links between hosts: breaks them, heals them, and knows which are broken.
//!
//! Faults overlap: one ends and heals a link that another has broken. So the planned times say little about how long a host
//! was out of reach; this says what the network really does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::draw::LinkFault;

type Sim = turmoil::Sim<'static>;
type Host = &'static str;

/// The broken links of a run.
#[derive(Default)]
pub struct Links {
    /// Since when nothing that the first host sends reaches the second.
    silent: BTreeMap<(Host, Host), Duration>,
    /// The hosts of paused machines.
    paused: BTreeSet<Host>,
}

impl Links {
    pub fn cut(&mut self, sim: &mut Sim, a: Host, b: Host, how: LinkFault) {
        match how {
            LinkFault::Drop => sim.partition(a, b),
            LinkFault::DropOneWay => sim.partition_oneway(a, b),
            LinkFault::Hold => sim.hold(a, b),
        }
        let now = sim.elapsed();
        self.silent.entry((a, b)).or_insert(now);
        if how != LinkFault::DropOneWay {
            self.silent.entry((b, a)).or_insert(now);
        }
    }

    /// Heals a link, unless one of its ends is paused: a machine whose clocks stand still sends and receives nothing.
    pub fn heal(&mut self, sim: &mut Sim, a: Host, b: Host) {
        if self.paused.contains(a) || self.paused.contains(b) {
            return;
        }
        sim.release(a, b);
        self.silent.remove(&(a, b));
        self.silent.remove(&(b, a));
    }

    /// From now on no link of this host is healed. False: it is paused already.
    pub fn pause(&mut self, host: Host) -> bool {
        self.paused.insert(host)
    }

    /// The links of this host may be healed again.
    pub fn resume(&mut self, host: Host) {
        self.paused.remove(host);
    }

    /// Since when nothing that `from` sends reaches `to`, if that is so.
    pub fn silent_since(&self, from: Host, to: Host) -> Option<Duration> {
        self.silent.get(&(from, to)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_hosts() -> Sim {
        let mut sim: Sim = turmoil::Builder::new().build();
        for host in ["a", "b"] {
            sim.host(host, || async { std::future::pending().await });
        }
        sim
    }

    #[test]
    fn a_link_is_silent_from_its_first_fault_until_any_heals_it() {
        let mut sim = two_hosts();
        let mut links = Links::default();
        links.cut(&mut sim, "a", "b", LinkFault::DropOneWay);
        assert_eq!((links.silent_since("a", "b"), links.silent_since("b", "a")), (Some(Duration::ZERO), None));
        sim.step().unwrap();
        links.cut(&mut sim, "b", "a", LinkFault::Hold);
        assert_eq!(links.silent_since("a", "b"), Some(Duration::ZERO));
        assert!(links.silent_since("b", "a") > Some(Duration::ZERO));
        links.heal(&mut sim, "a", "b");
        assert_eq!((links.silent_since("a", "b"), links.silent_since("b", "a")), (None, None));
    }

    #[test]
    fn no_fault_that_ends_heals_the_links_of_a_paused_machine() {
        let mut sim = two_hosts();
        let mut links = Links::default();
        links.cut(&mut sim, "a", "b", LinkFault::Hold);
        assert!(links.pause("b") && !links.pause("b"), "a machine is paused once at a time");
        links.heal(&mut sim, "a", "b");
        assert_eq!(links.silent_since("a", "b"), Some(Duration::ZERO));
        links.resume("b");
        links.heal(&mut sim, "a", "b");
        assert_eq!(links.silent_since("a", "b"), None);
    }
}
