//! The scenes of faults, one after another, each begun when enough rows are written and ended by healing: three in every
//! run, and further ones where answers matter.
//!
//! They act between two steps of the simulation. A crash in the moment of an acknowledgement is aimed: the step in which a
//! client saw it has just ended, and whatever had only been promised is lost.

use std::collections::VecDeque;
use std::time::Duration;

use super::stage::Stage;
use super::{clients, trace};
use crate::plan::{Course, Crash, Cut, CutKind, CutOff, Deaf, Plan, SERVERS};

/// How long everything is left alone between two scenes.
const CALM: Duration = Duration::from_millis(800);
const MASTER_HOST: &str = "master";

/// The metric that tells how many groups a server leads.
const GROUPS_LED: &str = "terrane_server_groups_led";

/// Plays the scenes of a plan.
pub struct Nemesis {
    scenes: VecDeque<Scene>,
    now: Now,
}

enum Scene {
    Crash(Crash),
    Cut(Cut),
    CutOff(CutOff),
    Deaf(Deaf),
}

enum Now {
    /// Nothing before this time.
    Calm {
        until: Duration,
    },
    /// The crash comes with the next acknowledgement after so many.
    Aiming {
        crash: Crash,
        acknowledged: u64,
    },
    /// Healed at this time.
    Struck {
        heal_at: Duration,
        heal: Heal,
    },
    Over,
}

/// How a scene ends.
enum Heal {
    Restart { server: &'static str },
    Link(Cut),
    Links { server: &'static str },
    Hearing(Deaf),
}

type Sim = turmoil::Sim<'static>;

impl Nemesis {
    pub fn new(plan: &Plan, course: Course) -> Nemesis {
        let mut scenes =
            vec![Scene::Crash(plan.crash.clone()), Scene::Cut(plan.cut.clone()), Scene::CutOff(plan.cut_off.clone())];
        if course == Course::Counters {
            scenes.extend(plan.lost_answers.deaf.iter().cloned().map(Scene::Deaf));
        }
        scenes.sort_by_key(Scene::after_rows);
        Nemesis { scenes: scenes.into(), now: Now::Calm { until: Duration::ZERO } }
    }

    /// Does what is due after this step.
    pub fn act(&mut self, sim: &mut Sim, stage: &Stage) {
        let elapsed = sim.elapsed();
        match &self.now {
            Now::Calm { until } if elapsed >= *until => self.begin(sim, stage),
            Now::Aiming { crash, acknowledged } if stage.acknowledged() > *acknowledged => {
                let crash = crash.clone();
                self.now = strike_crash(sim, &crash);
            }
            Now::Struck { heal_at, heal } if elapsed >= *heal_at => {
                heal.act(sim);
                self.now = Now::Calm { until: elapsed + CALM };
            }
            Now::Calm { .. } | Now::Aiming { .. } | Now::Struck { .. } | Now::Over => {}
        }
    }

    fn begin(&mut self, sim: &mut Sim, stage: &Stage) {
        let Some(scene) = self.scenes.front() else {
            trace::note(format_args!("faults are over"));
            stage.faults_are_over();
            self.now = Now::Over;
            return;
        };
        if stage.rows_written() < scene.after_rows() {
            return;
        }
        let now = match scene {
            Scene::Crash(crash) if crash.at_acknowledgement => {
                Now::Aiming { crash: crash.clone(), acknowledged: stage.acknowledged() }
            }
            Scene::Crash(crash) => strike_crash(sim, crash),
            Scene::Cut(cut) => strike_cut(sim, cut),
            Scene::CutOff(cut_off) => strike_cut_off(sim, cut_off, stage),
            Scene::Deaf(deaf) => strike_deaf(sim, deaf),
        };
        self.now = now;
        self.scenes.pop_front();
    }
}

impl Scene {
    fn after_rows(&self) -> usize {
        match self {
            Scene::Crash(crash) => crash.after_rows,
            Scene::Cut(cut) => cut.after_rows,
            Scene::CutOff(cut_off) => cut_off.after_rows,
            Scene::Deaf(deaf) => deaf.after_rows,
        }
    }
}

fn strike_crash(sim: &mut Sim, crash: &Crash) -> Now {
    let server = crash.server;
    trace::note(format_args!("CRASH of {server}, silent {}", crash.silent));
    if crash.silent {
        // A crash runs destructors, which say goodbye to peers; a real power cut does not.
        all_but(server).for_each(|other| sim.partition(server, other));
    }
    sim.crash(server);
    Now::Struck { heal_at: sim.elapsed() + crash.down, heal: Heal::Restart { server } }
}

fn strike_cut(sim: &mut Sim, cut: &Cut) -> Now {
    let (a, b) = cut.between;
    trace::note(format_args!("CUT of {a} - {b}, {:?}", cut.how));
    match cut.how {
        CutKind::Drop => sim.partition(a, b),
        CutKind::DropOneWay => sim.partition_oneway(a, b),
        CutKind::Hold => sim.hold(a, b),
    }
    Now::Struck { heal_at: sim.elapsed() + cut.lasts, heal: Heal::Link(cut.clone()) }
}

fn strike_deaf(sim: &mut Sim, deaf: &Deaf) -> Now {
    trace::note(format_args!("DEAF {} to {}", deaf.client, deaf.server));
    sim.partition_oneway(deaf.server, deaf.client);
    Now::Struck { heal_at: sim.elapsed() + deaf.lasts, heal: Heal::Hearing(deaf.clone()) }
}

fn strike_cut_off(sim: &mut Sim, cut_off: &CutOff, stage: &Stage) -> Now {
    let led = |server: &&'static str| stage.number(server, GROUPS_LED);
    let server = SERVERS.into_iter().max_by(|a, b| led(a).total_cmp(&led(b))).expect("there are servers");
    trace::note(format_args!("CUT OFF {server}, from the master too {}", cut_off.from_master));
    for other in all_but(server) {
        let stays = other == clients::CAPTIVE || (other == MASTER_HOST && !cut_off.from_master);
        if !stays {
            sim.partition(server, other);
        }
    }
    // The captive hears nothing of what the others decide.
    SERVERS.into_iter().filter(|other| *other != server).for_each(|other| sim.partition(clients::CAPTIVE, other));
    Now::Struck { heal_at: sim.elapsed() + cut_off.lasts, heal: Heal::Links { server } }
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

/// All hosts but one that were there from the start.
fn all_but(host: &'static str) -> impl Iterator<Item = &'static str> {
    let nodes = SERVERS.into_iter().chain([MASTER_HOST]);
    nodes.chain(clients::HOSTS).filter(move |other| *other != host)
}

/// All nodes lose power in one moment, and have it back in the next.
pub fn power_cut_of_all(sim: &mut Sim) {
    let nodes = || SERVERS.into_iter().chain([MASTER_HOST]);
    nodes().for_each(|node| sim.crash(node));
    nodes().for_each(|node| sim.bounce(node));
}
