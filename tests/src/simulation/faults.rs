//! Applies the faults of a run one after another; each starts when enough rows are written and ends with a repair.
//! Every run has three, and the workload `counters` has more.
//!
//! Faults act between two steps of the simulation. A crash can be aimed at an acknowledgement: it comes right after the
//! step in which the client received it, so that anything that was not durable is lost.

use std::collections::VecDeque;
use std::time::Duration;

use super::run_state::RunState;
use super::{clients, trace};
use crate::plan::{Crash, Cut, CutKind, CutOff, Deaf, Plan, SERVERS, Workload};

/// Pause between two faults.
const CALM: Duration = Duration::from_millis(800);
const MASTER_HOST: &str = "master";

/// The metric of the number of groups that a server leads.
const GROUPS_LED: &str = "terrane_server_groups_led";

/// Applies the faults of a plan.
pub struct Nemesis {
    faults: VecDeque<Fault>,
    phase: Phase,
}

enum Fault {
    Crash(Crash),
    Cut(Cut),
    CutOff(CutOff),
    Deaf(Deaf),
}

enum Phase {
    /// No fault before this time.
    Calm {
        until: Duration,
    },
    /// The crash comes with the next acknowledgement after this many.
    Aiming {
        crash: Crash,
        acknowledged: u64,
    },
    /// The fault ends at this time.
    Struck {
        heal_at: Duration,
        heal: Heal,
    },
    Over,
}

/// How a fault ends.
enum Heal {
    Restart { server: &'static str },
    Link(Cut),
    Links { server: &'static str },
    Hearing(Deaf),
}

type Sim = turmoil::Sim<'static>;

impl Nemesis {
    pub fn new(plan: &Plan, workload: Workload) -> Nemesis {
        let mut faults =
            vec![Fault::Crash(plan.crash.clone()), Fault::Cut(plan.cut.clone()), Fault::CutOff(plan.cut_off.clone())];
        if workload == Workload::Counters {
            faults.extend(plan.lost_answers.deaf.iter().cloned().map(Fault::Deaf));
        }
        faults.sort_by_key(Fault::after_rows);
        Nemesis { faults: faults.into(), phase: Phase::Calm { until: Duration::ZERO } }
    }

    /// Acts after a step of the simulation.
    pub fn act(&mut self, sim: &mut Sim, state: &RunState) {
        let elapsed = sim.elapsed();
        match &self.phase {
            Phase::Calm { until } if elapsed >= *until => self.begin(sim, state),
            Phase::Aiming { crash, acknowledged } if state.acknowledged() > *acknowledged => {
                let crash = crash.clone();
                self.phase = strike_crash(sim, &crash);
            }
            Phase::Struck { heal_at, heal } if elapsed >= *heal_at => {
                heal.act(sim);
                self.phase = Phase::Calm { until: elapsed + CALM };
            }
            Phase::Calm { .. } | Phase::Aiming { .. } | Phase::Struck { .. } | Phase::Over => {}
        }
    }

    fn begin(&mut self, sim: &mut Sim, state: &RunState) {
        let Some(fault) = self.faults.front() else {
            trace::note(format_args!("faults are over"));
            state.faults_are_over();
            self.phase = Phase::Over;
            return;
        };
        if state.rows_written() < fault.after_rows() {
            return;
        }
        let phase = match fault {
            Fault::Crash(crash) if crash.at_acknowledgement => {
                Phase::Aiming { crash: crash.clone(), acknowledged: state.acknowledged() }
            }
            Fault::Crash(crash) => strike_crash(sim, crash),
            Fault::Cut(cut) => strike_cut(sim, cut),
            Fault::CutOff(cut_off) => strike_cut_off(sim, cut_off, state),
            Fault::Deaf(deaf) => strike_deaf(sim, deaf),
        };
        self.phase = phase;
        self.faults.pop_front();
    }
}

impl Fault {
    fn after_rows(&self) -> usize {
        match self {
            Fault::Crash(crash) => crash.after_rows,
            Fault::Cut(cut) => cut.after_rows,
            Fault::CutOff(cut_off) => cut_off.after_rows,
            Fault::Deaf(deaf) => deaf.after_rows,
        }
    }
}

fn strike_crash(sim: &mut Sim, crash: &Crash) -> Phase {
    let server = crash.server;
    trace::note(format_args!("CRASH of {server}, silent {}", crash.silent));
    if crash.silent {
        // A crash runs destructors, which close connections; a real power failure does not.
        all_but(server).for_each(|other| sim.partition(server, other));
    }
    sim.crash(server);
    Phase::Struck { heal_at: sim.elapsed() + crash.down, heal: Heal::Restart { server } }
}

fn strike_cut(sim: &mut Sim, cut: &Cut) -> Phase {
    let (a, b) = cut.between;
    trace::note(format_args!("CUT of {a} - {b}, {:?}", cut.how));
    match cut.how {
        CutKind::Drop => sim.partition(a, b),
        CutKind::DropOneWay => sim.partition_oneway(a, b),
        CutKind::Hold => sim.hold(a, b),
    }
    Phase::Struck { heal_at: sim.elapsed() + cut.lasts, heal: Heal::Link(cut.clone()) }
}

fn strike_deaf(sim: &mut Sim, deaf: &Deaf) -> Phase {
    trace::note(format_args!("DEAF {} to {}", deaf.client, deaf.server));
    sim.partition_oneway(deaf.server, deaf.client);
    Phase::Struck { heal_at: sim.elapsed() + deaf.lasts, heal: Heal::Hearing(deaf.clone()) }
}

fn strike_cut_off(sim: &mut Sim, cut_off: &CutOff, state: &RunState) -> Phase {
    let led = |server: &&'static str| state.number(server, GROUPS_LED);
    let server = SERVERS.into_iter().max_by(|a, b| led(a).total_cmp(&led(b))).expect("there are servers");
    trace::note(format_args!("CUT OFF {server}, from the master too {}", cut_off.from_master));
    for other in all_but(server) {
        let stays = other == clients::CAPTIVE || (other == MASTER_HOST && !cut_off.from_master);
        if !stays {
            sim.partition(server, other);
        }
    }
    // The captive cannot learn what the others decide.
    SERVERS.into_iter().filter(|other| *other != server).for_each(|other| sim.partition(clients::CAPTIVE, other));
    Phase::Struck { heal_at: sim.elapsed() + cut_off.lasts, heal: Heal::Links { server } }
}

impl Heal {
    fn act(&self, sim: &mut Sim) {
        match self {
            Heal::Restart { server } => {
                trace::note(format_args!("RESTART of {server}"));
                all_but(server).for_each(|other| sim.repair(*server, other));
                sim.bounce(*server);
            }
            Heal::Link(cut) => {
                let (a, b) = cut.between;
                trace::note(format_args!("HEAL of {a} - {b}"));
                match cut.how {
                    CutKind::Drop => sim.repair(a, b),
                    CutKind::DropOneWay => sim.repair_oneway(a, b),
                    CutKind::Hold => sim.release(a, b),
                }
            }
            Heal::Hearing(deaf) => {
                trace::note(format_args!("HEAL of {} - {}", deaf.server, deaf.client));
                sim.repair_oneway(deaf.server, deaf.client);
            }
            Heal::Links { server } => {
                trace::note(format_args!("HEAL of {server}"));
                all_but(server).for_each(|other| sim.repair(*server, other));
                let others = SERVERS.into_iter().filter(|other| other != server);
                others.for_each(|other| sim.repair(clients::CAPTIVE, other));
            }
        }
    }
}

/// All original hosts but one.
fn all_but(host: &'static str) -> impl Iterator<Item = &'static str> {
    let nodes = SERVERS.into_iter().chain([MASTER_HOST]);
    nodes.chain(clients::HOSTS).filter(move |other| *other != host)
}

/// All nodes lose power at once and restart immediately.
pub fn power_failure_of_all(sim: &mut Sim) {
    let nodes = || SERVERS.into_iter().chain([MASTER_HOST]);
    nodes().for_each(|node| sim.crash(node));
    nodes().for_each(|node| sim.bounce(node));
}
