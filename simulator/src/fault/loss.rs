//! Servers that are lost, as far as an operator knows, and are back after all; and a master whose disk is lost.

use std::time::Duration;

use super::machine::Crash;
use super::nemesis::Nemesis;
use crate::trace;

type Sim = turmoil::Sim<'static>;
type Host = &'static str;

impl Nemesis {
    /// Some servers lose power at once, and stay down.
    pub fn lose_some<const N: usize>(&mut self, sim: &mut Sim) -> [Host; N] {
        let mut left = self.servers().to_vec();
        let lost = std::array::from_fn(|_| {
            let drawn = terrane_env::rand::range(0..left.len() as u64);
            left.swap_remove(usize::try_from(drawn).expect("below a length"))
        });
        for host in lost {
            trace::note(format_args!("{host} is lost"));
            self.down.insert(host, Duration::MAX);
            Crash::PowerCut { silent: false }.strike(sim, host);
        }
        lost
    }

    /// The only master loses power, and its disk; it starts again with another one.
    pub fn lose_master(&mut self, sim: &mut Sim) {
        let &[master] = self.masters() else { unreachable!("runs with several masters keep their catalog") };
        trace::note(format_args!("{master} has lost its disk"));
        Crash::PowerCut { silent: false }.strike(sim, master);
        terrane_env::sim::wipe_disk(master);
        sim.bounce(master);
    }

    /// Servers that were lost are back.
    pub fn restart_lost<const N: usize>(&mut self, sim: &mut Sim, lost: [Host; N]) {
        for host in lost {
            trace::note(format_args!("{host} is back"));
            self.down.remove(host);
            sim.bounce(host);
        }
    }
}
