//! Injects the faults of a plan, and heals them.
//!
//! It acts between two steps of the simulation. Faults overlap, so each has its own end. A crash can be aimed: it then
//! comes right after the step in which a client received an acknowledgement, a leadership moved or a flush ended, or in the
//! middle of a step of a procedure, which is held up until then. What it is aimed at may not happen in time; then the crash
//! comes anyway, and counts as a missed aim.
//!
//! A process that ends itself is restarted. It may only do so where its disk failed.

mod healing;
mod pausing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::draw::{Damage, DiskFault, Fault, LinkFault, MASTER_NODE, PlannedFault, Target, Trigger};
use super::links::Links;
use super::machine::{self, Crash};
use super::staged::{LogDamage, LostSync, Place, Staged};
use crate::context::Context;
use crate::scenario::{CAPTIVE, HOSTS};
use crate::trace;
use crate::verdict::Failure;

/// How long an aimed fault waits.
const AIM_MAX: Duration = Duration::from_secs(2);
/// Pause between two links that break or heal in a swizzle.
const SWIZZLE_PAUSE: Duration = Duration::from_millis(150);
/// How long a process that ended itself stays down.
const EXIT_PAUSE: Duration = Duration::from_millis(300);
const GROUPS_LED: &str = "terrane_server_groups_led";
const FLUSHES: &str = "terrane_server_flushes_total";

type Sim = turmoil::Sim<'static>;
type Host = &'static str;

/// Applies the faults of a plan.
pub struct Nemesis {
    context: Context,
    /// When clients could start; times of faults count from here.
    began: Option<Duration>,
    planned: VecDeque<PlannedFault>,
    aiming: Vec<ArmedFault>,
    staged: Vec<Staged>,
    links: Links,
    /// What happens later: heals, and further steps of faults.
    later: Vec<(Duration, FaultEvent)>,
    /// Hosts that are down.
    pub(super) down: BTreeMap<Host, Duration>,
    /// Hosts whose disk failed or was damaged, which may have made their process end itself.
    failing: BTreeSet<Host>,
    /// The host whose disk was damaged. It stays down after the first phase.
    damaged: Option<Host>,
    /// Where its log is damaged.
    place: Option<Place>,
}

struct ArmedFault {
    planned: PlannedFault,
    since: Duration,
    /// What it looks at, when it began.
    before: ClusterSample,
    /// The host that is held up in a step.
    held: Option<Host>,
}

#[derive(PartialEq)]
struct ClusterSample {
    acknowledged: u64,
    led: Vec<u64>,
    flushes: Vec<u64>,
}

/// Something that happens at a time.
#[derive(Clone)]
enum FaultEvent {
    Restart(Host),
    PowerCut(Host),
    Break(Host, Host, LinkFault),
    Heal(Host, Host),
    /// The link breaks now, heals after half of the period, and so on until the time given.
    Flap(Host, Host, Duration, Duration),
    Lossless(Host, Host),
    Fast(Host, Host),
    HealDisk(Host),
    HealClock(Host),
    /// The paused machine goes on; other servers reach it a little later than clients do.
    Resume(Host),
}

impl Nemesis {
    pub fn new(context: &Context) -> Nemesis {
        Nemesis {
            context: context.clone(),
            began: None,
            planned: context.plan.faults.clone().into(),
            aiming: Vec::new(),
            staged: Vec::new(),
            links: Links::default(),
            later: Vec::new(),
            down: BTreeMap::new(),
            failing: BTreeSet::new(),
            damaged: None,
            place: None,
        }
    }

    /// Acts after a step of the simulation. Ends the first phase when its time has come and everything is healed.
    pub fn act(&mut self, sim: &mut Sim) {
        self.inject(sim);
        for server in self.servers() {
            // Since when the last master has heard nothing.
            let silent = self.masters().iter().map(|master| self.links.silent_since(server, master));
            let since = silent.collect::<Option<Vec<Duration>>>().and_then(|since| since.into_iter().max());
            self.context.watch.cut_off(server, since);
        }
    }

    fn inject(&mut self, sim: &mut Sim) {
        let now = sim.elapsed();
        // First of all: it says which host must not crash at present.
        self.continue_staged(sim, now);
        self.drive(sim);
        if self.began.is_none() && self.context.state.is_ready() {
            self.began = Some(now);
        }
        let Some(began) = self.began else { return };
        if now >= began + self.context.plan.until {
            if !self.context.state.is_over() {
                self.heal_all(sim);
                self.context.state.end();
            }
            return;
        }
        self.take_aimed(sim, now);
        while self.planned.front().is_some_and(|planned| began + planned.at <= now) {
            let Some(planned) = self.planned.pop_front() else { break };
            self.begin(sim, now, planned);
        }
    }

    /// Does what is due: ends faults, and restarts processes that ended themselves.
    pub fn drive(&mut self, sim: &mut Sim) {
        let now = sim.elapsed();
        self.restart_exited(sim, now);
        self.act_later(sim, now);
    }

    /// Restarts processes that ended themselves, as a supervisor does. One without a reason fails the run.
    fn restart_exited(&mut self, sim: &mut Sim, now: Duration) {
        let exits = terrane_env::sim::take_exits().into_iter().chain(self.context.state.take_exits());
        for (host, message) in exits {
            trace::note(format_args!("EXIT of {host}: {message}"));
            if !self.context.state.was_mistaken(host) && !self.failing.contains(host) {
                let what = format!("{host} ended itself without a failure of its disk: {message}");
                self.context.state.fail(Failure { what, about: vec![host.to_owned()] });
            }
            self.context.state.count_fault("process that ended itself");
            if self.down.contains_key(host) {
                continue;
            }
            self.down.insert(host, now + EXIT_PAUSE);
            sim.crash(host);
            // One that could not notice its damage stays down.
            if !self.is_unnoticeable(host) {
                self.later.push((now + EXIT_PAUSE, FaultEvent::Restart(host)));
            }
        }
    }

    /// Does the next step of the faults that wait for their hosts.
    fn continue_staged(&mut self, sim: &mut Sim, now: Duration) {
        for mut staged in std::mem::take(&mut self.staged) {
            match (staged.is_due(), &staged) {
                (true, Staged::Log(damage)) => self.finish_log_damage(sim, now, damage),
                (true, Staged::Sync(lost)) => self.finish_lost_sync(sim, now, lost),
                (false, _) => self.staged.push(staged),
            }
        }
    }

    fn finish_log_damage(&mut self, sim: &mut Sim, now: Duration, damage: &LogDamage) {
        let name = Fault::Damage { victim: 0, what: damage.what }.name();
        trace::note(format_args!("FAULT {name} of {} at {:?}", damage.host, damage.place));
        self.context.state.count_fault(name);
        self.place.clone_from(&damage.place);
        let how = if terrane_env::rand::range(0..2) == 0 { Crash::Kill } else { Crash::PowerCut { silent: false } };
        self.crash(sim, damage.host, now + damage.lasts, how);
    }

    fn finish_lost_sync(&mut self, sim: &mut Sim, now: Duration, lost: &LostSync) {
        let name = Fault::LostSync { target: Target::Leader, of: lost.of, kill: lost.kill }.name();
        trace::note(format_args!("FAULT {name} of {}, kill {}", lost.host, lost.kill));
        self.context.state.count_fault(name);
        if lost.kill {
            self.crash(sim, lost.host, now + EXIT_PAUSE, Crash::Kill);
        }
        self.later.push((now + lost.lasts, FaultEvent::PowerCut(lost.host)));
    }

    fn is_unnoticeable(&self, host: Host) -> bool {
        let of_host = |staged: &Staged| matches!(staged, Staged::Log(log) if log.host == host && log.is_unnoticeable());
        self.staged.iter().any(of_host)
    }

    fn act_later(&mut self, sim: &mut Sim, now: Duration) {
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, act) in due {
            self.perform(sim, now, act);
        }
    }

    fn take_aimed(&mut self, sim: &mut Sim, now: Duration) {
        if self.aiming.is_empty() {
            return;
        }
        let watched = self.watched();
        if let Some((host, step)) = terrane_env::sim::held_step() {
            trace::note(format_args!("{host} is held up: {step}"));
            let aiming =
                self.aiming.iter_mut().find(|aiming| matches!(aim_of(&aiming.planned.fault), Trigger::Step(_)));
            if let Some(aiming) = aiming {
                aiming.held = Some(host);
            }
        }
        let (hit, aiming): (Vec<ArmedFault>, Vec<ArmedFault>) =
            std::mem::take(&mut self.aiming).into_iter().partition(|aiming| aiming.is_hit(&watched, now));
        self.aiming = aiming;
        for aiming in hit {
            let on_target = now < aiming.since + AIM_MAX;
            let name = if on_target { aiming.planned.fault.name() } else { "aim missed" };
            self.strike(sim, now, &aiming.planned, name, aiming.held);
        }
    }

    fn watched(&self) -> ClusterSample {
        let state = &self.context.state;
        let of = |name| self.servers().iter().map(|server| state.number(server, name) as u64).collect();
        ClusterSample { acknowledged: state.acknowledged(), led: of(GROUPS_LED), flushes: of(FLUSHES) }
    }

    pub(super) fn servers(&self) -> &'static [Host] {
        self.context.plan.server_hosts()
    }

    pub(super) fn masters(&self) -> &'static [Host] {
        self.context.plan.master_hosts()
    }

    /// The leading master, or the first one before any has led.
    fn master(&self) -> Host {
        self.context.state.leading_master().map_or(self.masters()[0], |(host, _)| host)
    }

    fn begin(&mut self, sim: &mut Sim, now: Duration, planned: PlannedFault) {
        match aim_of(&planned.fault) {
            Trigger::Time if self.begin_staged(&planned) => {}
            Trigger::Time => {
                let name = planned.fault.name();
                self.strike(sim, now, &planned, name, None);
            }
            aim => {
                if let Trigger::Step(nth) = aim {
                    terrane_env::sim::hold_step(nth);
                }
                self.aiming.push(ArmedFault { planned, since: now, before: self.watched(), held: None });
            }
        }
    }

    /// Begins a fault that strikes when its host has done something; whether it is such a fault.
    fn begin_staged(&mut self, planned: &PlannedFault) -> bool {
        let staged = match planned.fault {
            Fault::Damage { victim, what } if what.is_of_log() => {
                let host = self.servers()[victim];
                self.degrade(host);
                Staged::Log(LogDamage::begin(host, what, planned.lasts))
            }
            Fault::LostSync { target, of, kill } => {
                let host = self.host(target);
                self.failing.insert(host);
                Staged::Sync(LostSync::begin(host, of, kill, planned.lasts))
            }
            _ => return false,
        };
        self.staged.push(staged);
        true
    }

    /// Strikes; `held` is the host that an aimed crash has found in a step.
    fn strike(&mut self, sim: &mut Sim, now: Duration, planned: &PlannedFault, name: &'static str, held: Option<Host>) {
        trace::note(format_args!("FAULT {name}: {:?} for {:?}", planned.fault, planned.lasts));
        self.context.state.count_fault(name);
        let ends = now + planned.lasts;
        match &planned.fault {
            Fault::PowerCut { target, silent, .. } => {
                let server = held.unwrap_or_else(|| self.host(*target));
                self.crash(sim, server, ends, Crash::PowerCut { silent: *silent });
            }
            Fault::Kill { target, .. } => {
                let server = held.unwrap_or_else(|| self.host(*target));
                self.crash(sim, server, ends, Crash::Kill);
            }
            Fault::SeveralPowerCuts { servers } => {
                for server in servers {
                    self.crash(sim, self.servers()[*server], ends, Crash::PowerCut { silent: false });
                }
            }
            Fault::Blackout => {
                for host in self.nodes() {
                    self.crash(sim, host, ends, Crash::PowerCut { silent: false });
                }
            }
            Fault::MasterPowerCut { .. } => {
                let host = held.unwrap_or_else(|| self.master());
                self.crash(sim, host, ends, Crash::PowerCut { silent: false });
            }
            Fault::MasterIsolation { from_servers } => self.isolate_master(sim, *from_servers, ends),
            Fault::Isolation { target, from_master } => {
                let server = self.host(*target);
                self.isolate(sim, server, *from_master, ends);
            }
            Fault::Cut { between, how } => {
                let (a, b) = self.link(*between);
                self.perform(sim, now, FaultEvent::Break(a, b, *how));
                self.later.push((ends, FaultEvent::Heal(a, b)));
            }
            Fault::Flapping { between, period } => {
                let (a, b) = self.link(*between);
                self.perform(sim, now, FaultEvent::Flap(a, b, *period, ends));
                self.later.push((ends, FaultEvent::Heal(a, b)));
            }
            Fault::Swizzle { links } => self.swizzle(now, links, ends),
            Fault::Loss { between, per_mille } => {
                let (a, b) = self.link(*between);
                sim.set_link_fail_rate(a, b, f64::from(*per_mille) / 1_000.0);
                self.later.push((ends, FaultEvent::Lossless(a, b)));
            }
            Fault::SlowLink { between, latency } => {
                let (a, b) = self.link(*between);
                sim.set_link_latency(a, b, *latency);
                self.later.push((ends, FaultEvent::Fast(a, b)));
            }
            Fault::Deaf { server, client } => {
                let (server, client) = (self.servers()[*server], HOSTS[*client]);
                self.perform(sim, now, FaultEvent::Break(server, client, LinkFault::DropOneWay));
                self.later.push((ends, FaultEvent::Heal(server, client)));
            }
            Fault::Disk { target, what } => {
                let host = self.host(*target);
                if matches!(what, DiskFault::Error { .. }) {
                    self.failing.insert(host);
                }
                machine::strike_disk(host, *what, ends);
                self.later.push((ends, FaultEvent::HealDisk(host)));
            }
            Fault::Damage { victim, what } => {
                let host = self.servers()[*victim];
                self.damage(sim, host, *what, ends);
            }
            Fault::LostSync { .. } => unreachable!("it is staged"),
            Fault::Pause { target } => {
                let server = self.host(*target);
                self.pause(sim, server, ends);
            }
            Fault::Clock { server, what } => {
                let host = self.servers()[*server];
                machine::strike_clock(host, *what);
                self.later.push((ends, FaultEvent::HealClock(host)));
            }
        }
    }

    /// The disk of the host is or will be damaged.
    fn degrade(&mut self, host: Host) {
        self.failing.insert(host);
        self.damaged = Some(host);
        self.context.state.degrade(host);
    }

    fn damage(&mut self, sim: &mut Sim, host: Host, what: Damage, ends: Duration) {
        self.degrade(host);
        if what == Damage::WipedDisk {
            self.crash(sim, host, ends, Crash::PowerCut { silent: false });
        }
        if !machine::damage(host, what) {
            trace::note(format_args!("nothing to damage on {host}"));
        }
    }

    /// The host crashes now, unless it is down, and restarts later.
    fn crash(&mut self, sim: &mut Sim, host: Host, restart_at: Duration, how: Crash) {
        if self.down.contains_key(host) || self.is_unnoticeable(host) {
            return;
        }
        self.down.insert(host, restart_at);
        trace::note(format_args!("CRASH of {host}, {how:?}"));
        if how == (Crash::PowerCut { silent: true }) {
            // A crash runs destructors, which close connections; a real power failure does not.
            self.others(host).for_each(|other| self.links.cut(sim, host, other, LinkFault::Drop));
        }
        how.strike(sim, host);
        // Another master may lead, and answer, before it has said so here.
        self.context.state.leads(host, false);
        self.later.push((restart_at, FaultEvent::Restart(host)));
    }

    fn isolate(&mut self, sim: &mut Sim, server: Host, from_master: bool, ends: Duration) {
        trace::note(format_args!("ISOLATION of {server}, from the master too {from_master}"));
        let cut: Vec<(Host, Host)> = self
            .others(server)
            .filter(|other| *other != CAPTIVE && (from_master || !self.masters().contains(other)))
            .map(|other| (server, other))
            // The captive cannot learn what the others decide.
            .chain(self.servers().iter().filter(|other| **other != server).map(|other| (CAPTIVE, *other)))
            .collect();
        for (a, b) in cut {
            self.links.cut(sim, a, b, LinkFault::Drop);
            self.later.push((ends, FaultEvent::Heal(a, b)));
        }
    }

    /// The leading master hears nothing of the others, and nothing of the servers either if that is wanted.
    fn isolate_master(&mut self, sim: &mut Sim, from_servers: bool, ends: Duration) {
        let isolated = self.master();
        trace::note(format_args!("ISOLATION of {isolated}, from the servers too {from_servers}"));
        let servers = if from_servers { self.servers() } else { &[] };
        for other in self.masters().iter().chain(servers).filter(|other| **other != isolated) {
            self.links.cut(sim, isolated, other, LinkFault::Drop);
            self.later.push((ends, FaultEvent::Heal(isolated, other)));
        }
    }

    /// Links break one by one and heal one by one in reverse order of their names.
    fn swizzle(&mut self, now: Duration, links: &[(usize, usize)], ends: Duration) {
        let mut healing: Vec<(Host, Host)> = Vec::new();
        for (place, link) in links.iter().enumerate() {
            let (a, b) = self.link(*link);
            let at = now + SWIZZLE_PAUSE * u32::try_from(place).expect("few links");
            self.later.push((at, FaultEvent::Break(a, b, LinkFault::Drop)));
            healing.push((a, b));
        }
        healing.sort_unstable();
        for (place, (a, b)) in healing.into_iter().enumerate() {
            let at = ends + SWIZZLE_PAUSE * u32::try_from(place).expect("few links");
            self.later.push((at, FaultEvent::Heal(a, b)));
        }
    }

    fn perform(&mut self, sim: &mut Sim, now: Duration, act: FaultEvent) {
        match act {
            FaultEvent::Restart(host) => {
                if self.down.remove(host).is_some() {
                    trace::note(format_args!("RESTART of {host}"));
                    self.others(host).for_each(|other| self.links.heal(sim, host, other));
                    self.restart(sim, host);
                }
            }
            FaultEvent::PowerCut(host) => self.crash(sim, host, now + EXIT_PAUSE, Crash::PowerCut { silent: false }),
            FaultEvent::Break(a, b, how) => {
                trace::note(format_args!("BREAK {a} - {b} {how:?}"));
                self.links.cut(sim, a, b, how);
            }
            FaultEvent::Heal(a, b) => {
                trace::note(format_args!("HEAL {a} - {b}"));
                self.links.heal(sim, a, b);
            }
            FaultEvent::Flap(a, b, period, ends) => {
                if now >= ends {
                    return;
                }
                self.links.cut(sim, a, b, LinkFault::Drop);
                self.later.push((now + period / 2, FaultEvent::Heal(a, b)));
                self.later.push((now + period, FaultEvent::Flap(a, b, period, ends)));
            }
            FaultEvent::Lossless(a, b) => {
                sim.set_link_fail_rate(a, b, 0.0);
                self.links.heal(sim, a, b);
            }
            FaultEvent::Fast(a, b) => {
                sim.set_link_latency(a, b, self.context.plan.latency_min);
                sim.set_link_max_message_latency(a, b, self.context.plan.latency_max);
            }
            FaultEvent::HealDisk(host) => machine::heal_disk(host),
            FaultEvent::HealClock(host) => machine::heal_clock(host),
            FaultEvent::Resume(host) => self.resume(sim, now, host),
        }
    }

    fn restart(&mut self, sim: &mut Sim, host: Host) {
        if self.damaged == Some(host) {
            let there = self.place.as_ref().filter(|place| place.is_there(host));
            self.context.state.expect_refusal(there.map(|place| format!("{} at {}", place.path, place.offset)));
        }
        sim.bounce(host);
    }

    fn host(&self, target: Target) -> Host {
        let led = |server: &&Host| self.context.state.number(server, GROUPS_LED) as u64;
        let servers = self.servers().iter();
        match target {
            Target::Server(index) => self.servers()[index],
            Target::Leader => servers.max_by_key(led).expect("there are servers"),
            Target::Follower => servers.min_by_key(led).expect("there are servers"),
        }
    }

    fn link(&self, (a, b): (usize, usize)) -> (Host, Host) {
        let host = |node| if node == MASTER_NODE { self.master() } else { self.servers()[node] };
        (host(a), host(b))
    }

    fn nodes(&self) -> Vec<Host> {
        self.context.plan.nodes().collect()
    }

    fn others(&self, host: Host) -> impl Iterator<Item = Host> + use<> {
        self.nodes().into_iter().chain(HOSTS).filter(move |other| *other != host)
    }

    /// Starts the server whose disk was damaged, which stayed down; whether there is one.
    pub fn start_damaged(&mut self, sim: &mut Sim) -> bool {
        if let Some(damaged) = self.damaged {
            trace::note(format_args!("RESTART of {damaged} in spite of its damaged disk"));
            self.restart(sim, damaged);
        }
        self.damaged.is_some()
    }

    /// Stops it again.
    pub fn stop_damaged(&mut self, sim: &mut Sim) {
        let Some(damaged) = self.damaged else { return };
        self.later.retain(|(_, act)| !matches!(act, FaultEvent::Restart(host) if *host == damaged));
        if self.down.remove(damaged).is_none() {
            sim.crash(damaged);
        }
    }

    /// All nodes lose power at once and restart immediately.
    pub fn power_cut_of_all(&mut self, sim: &mut Sim) {
        trace::note(format_args!("power cut of all"));
        let mut nodes = self.nodes();
        nodes.retain(|node| Some(*node) != self.damaged);
        nodes.iter().for_each(|node| Crash::PowerCut { silent: false }.strike(sim, node));
        nodes.iter().for_each(|node| sim.bounce(*node));
    }
}

impl ArmedFault {
    fn is_hit(&self, now: &ClusterSample, elapsed: Duration) -> bool {
        let before = &self.before;
        elapsed >= self.since + AIM_MAX
            || match aim_of(&self.planned.fault) {
                Trigger::Time => true,
                Trigger::Acknowledgement => now.acknowledged > before.acknowledged,
                Trigger::Election => now.led != before.led,
                Trigger::Flush => now.flushes != before.flushes,
                Trigger::Step(_) => self.held.is_some(),
            }
    }
}

fn aim_of(fault: &Fault) -> Trigger {
    match fault {
        Fault::PowerCut { aim, .. } | Fault::Kill { aim, .. } | Fault::MasterPowerCut { aim } => *aim,
        _ => Trigger::Time,
    }
}
