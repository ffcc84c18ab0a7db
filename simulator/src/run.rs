//! One simulated run of a whole cluster: a master, region servers and clients in one process, under simulated time, network
//! and disk.
//!
//! [`run`] steps the simulation, injects faults between steps, and watches the state that clients and nodes record. A run
//! has three phases. In the first, clients work and check while faults occur. In the second, everything is healed, and a
//! client reads and checks everything. In the third, the whole cluster loses power at once and restarts, and everything is
//! read and checked again.
//!
//! Invariants:
//! - Everything is drawn from the seed ([`crate::plan`]).
//! - One seed per process. Its whole [`trace`] is the same each time. Updated dependencies may change it, so hashes are only
//!   compared between runs of one build, never stored.
//! - A run that does not end in time has failed: it is stuck.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::context::Context;
use crate::fault::nemesis::Nemesis;
use crate::nodes;
use crate::plan::Plan;
use crate::run_state::CatalogState;
use crate::scenario::{Play, Scenario, scenario};
use crate::trace::{self, chain};
use crate::verdict::{Failure, Verdict};
use crate::watch::{
    changed_cell, damaged, liveness, lost_majority, masters_change, rebuilt_catalog, status, strangers,
};

/// How long the two readings after the first phase may take each, with everything healed.
const READING_MAX: Duration = Duration::from_secs(45);
/// How long the tables may take to be created.
const START_MAX: Duration = Duration::from_secs(30);
/// How long clients may take to end after the first phase: their last calls have deadlines.
const LAST_CALLS_MAX: Duration = Duration::from_secs(30);
/// The simulated wall clock at the start: 2026-01-01, in every run.
const EPOCH_SECONDS: u64 = 1_767_225_600;
/// The fault points at which answers are lost.
const LOST_ANSWERS: [&str; 2] =
    ["a session breaks before its answers are sent", "the answer to a change of a table is lost"];
/// How long the recovery of groups may take, and the return of the servers that were lost.
const RECOVERY_MAX: Duration = Duration::from_secs(90);
/// How long strangers may knock.
const STRANGERS_MAX: Duration = Duration::from_secs(90);
/// How long the search for a replica that differs may take, and its replacement.
const CHANGED_MAX: Duration = Duration::from_secs(130);
/// How long the rebuild of the catalog may take, with everything that is done then.
const REBUILD_MAX: Duration = Duration::from_secs(90);
/// Segments in flight on a simulated connection. A sender that exceeds it would lose some.
const TCP_CAPACITY: usize = 65_536;

/// What happened in a run.
#[derive(Clone, Debug)]
pub struct Summary {
    pub simulated: Duration,
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Results that were checked.
    pub checks: u64,
    pub flushes: u64,
    pub splits: u64,
    /// Log segments that were purged.
    pub purges: u64,
    /// How often each kind of fault struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// What struck the machines, as `terrane-env` counts it.
    pub machines: BTreeMap<&'static str, u64>,
    /// How often each check of the whole cluster was made.
    pub watched: BTreeMap<&'static str, u64>,
    /// Each fault point that was reached: how often, and how often it fired.
    pub points: BTreeMap<&'static str, (u64, u64)>,
    /// Limits that were small in this run.
    pub small_limits: BTreeMap<&'static str, u64>,
}

/// Runs the simulation of a plan, up to the given simulated time if there is one.
pub fn run(plan: Plan, until: Option<Duration>) -> (Summary, Verdict) {
    trace::note(format_args!("plan {plan:?}"));
    terrane_env::sim::set_fault_points(plan.fault_points);
    terrane_env::sim::set_small_limits(plan.fault_points);
    terrane_env::sim::compare_witnesses();
    if plan.lost_answers_one_in > 0 {
        LOST_ANSWERS.iter().for_each(|point| terrane_env::sim::aim_fault_point(point, plan.lost_answers_one_in));
    }
    plan.aimed.iter().for_each(|(point, one_in)| terrane_env::sim::aim_fault_point(point, *one_in));
    plan.aimed_limits.iter().for_each(|(limit, value)| terrane_env::sim::aim_limit(limit, *value));
    if plan.rows_per_request > 0 {
        terrane_env::sim::aim_limit("rows in a request", plan.rows_per_request);
    }
    let mut run = SimulatedRun { sim: world(&plan), context: Context::new(plan), until };
    let verdict = run.all();
    let summary = run.summary();
    // Its destructor would drop hundreds of unfinished futures outside of any host; the process exits anyway.
    std::mem::forget(run.sim);
    (summary, verdict)
}

fn world(plan: &Plan) -> turmoil::Sim<'static> {
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(plan.seed)
        .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS))
        .tick_duration(plan.tick)
        .simulation_duration(Duration::MAX)
        .min_message_latency(plan.latency_min)
        .max_message_latency(plan.latency_max)
        .tcp_capacity(TCP_CAPACITY)
        .enable_random_order();
    builder.build()
}

struct SimulatedRun {
    sim: turmoil::Sim<'static>,
    context: Context,
    until: Option<Duration>,
}

/// Why a phase ended early.
enum Stop {
    Broken(Failure),
    /// The time that the command line gave has come.
    Until,
}

impl SimulatedRun {
    fn all(&mut self) -> Verdict {
        let scenario = scenario(self.context.plan.scenario);
        match self.phases(scenario.as_ref()) {
            Err(Stop::Broken(failure)) => Verdict::Broken(failure),
            Err(Stop::Until) => Verdict::NotProven("stopped at the given time".to_owned()),
            Ok(()) => self.shortfall(scenario.as_ref()).map_or(Verdict::Held, Verdict::NotProven),
        }
    }

    fn phases(&mut self, scenario: &dyn Scenario) -> Result<(), Stop> {
        nodes::add(&mut self.sim, &self.context);
        let plan = &self.context.plan;
        plan.slow_hosts().for_each(|host| terrane_env::sim::slow_disk_down(host, plan.slow_disks.1));
        for (host, play) in scenario.clients(&self.context) {
            self.add_client(host, play);
        }
        self.add_client("watcher", Box::pin(status::watch_status(self.context.clone())));
        if self.context.plan.changes_masters {
            let changes = masters_change::change_repeatedly(self.context.clone());
            self.add_client("operator-of-masters", Box::pin(changes));
        }
        let mut nemesis = Nemesis::new(&self.context);
        let ends = START_MAX + self.context.plan.until + LAST_CALLS_MAX;
        self.until_clients_end("the clients", ends, |sim| nemesis.act(sim))?;
        trace::note(format_args!("healed: reading everything"));
        self.read_everything(["reading-healed", "watcher-healed"], scenario, &mut nemesis)?;
        self.compare_damaged(&mut nemesis)?;
        if self.context.plan.has_strangers {
            self.run_strangers(&mut nemesis)?;
        }
        if self.context.plan.changes_a_cell {
            self.change_a_cell(&mut nemesis)?;
        }
        if self.context.plan.loses_majority {
            self.lose_majority(&mut nemesis)?;
        }
        if self.context.plan.loses_catalog {
            self.lose_catalog(&mut nemesis)?;
        }
        nemesis.power_cut_of_all(&mut self.sim);
        self.read_everything(["reading-restarted", "watcher-restarted"], scenario, &mut nemesis)
    }

    /// Adds a client; its error fails the run.
    fn add_client(&mut self, host: &'static str, play: Play) {
        let state = self.context.state.clone();
        self.sim.client(host, async move {
            if let Err(error) = play.await {
                state.fail(Failure::new(format!("{host}: {}", chain(&error))));
            }
            Ok(())
        });
    }

    fn read_everything(
        &mut self,
        [host, watcher]: [&'static str; 2],
        scenario: &dyn Scenario,
        nemesis: &mut Nemesis,
    ) -> Result<(), Stop> {
        let play = scenario.last_reading(host, &self.context);
        self.add_client(host, play);
        self.add_client(watcher, Box::pin(liveness::until_well(self.context.clone())));
        // The replicas on a slow disk have to catch up within it.
        let within = READING_MAX + 3 * liveness::SYNCS_UNTIL_EQUAL * self.context.plan.slow_disks.1;
        self.until_clients_end(host, within, |sim| nemesis.drive(sim))
    }

    /// Starts the server whose disk was damaged once more, if there is one, and compares it with the others.
    fn compare_damaged(&mut self, nemesis: &mut Nemesis) -> Result<(), Stop> {
        if !nemesis.start_damaged(&mut self.sim) {
            return Ok(());
        }
        self.add_client("watcher-damaged", Box::pin(damaged::compare(self.context.clone())));
        self.until_clients_end("the comparison with the damaged server", READING_MAX, |sim| nemesis.drive(sim))?;
        nemesis.stop_damaged(&mut self.sim);
        Ok(())
    }

    /// A server is down, and processes come that are not what they say.
    fn run_strangers(&mut self, nemesis: &mut Nemesis) -> Result<(), Stop> {
        trace::note(format_args!("strangers knock"));
        let down = nemesis.lose_some(&mut self.sim);
        self.add_client("strangers", Box::pin(strangers::try_to_register(self.context.clone(), down)));
        self.until_clients_end("the strangers", STRANGERS_MAX, |sim| nemesis.drive(sim))?;
        nemesis.restart_lost(&mut self.sim, down);
        Ok(())
    }

    /// A cell changes on one replica, which is found and replaced.
    fn change_a_cell(&mut self, nemesis: &mut Nemesis) -> Result<(), Stop> {
        self.add_client("operator-comparing", Box::pin(changed_cell::is_found(self.context.clone())));
        self.until_clients_end("the search for a replica that differs", CHANGED_MAX, |sim| nemesis.drive(sim))
    }

    /// Two servers are lost at once, and their groups recovered; then the two are back.
    fn lose_majority(&mut self, nemesis: &mut Nemesis) -> Result<(), Stop> {
        trace::note(format_args!("two servers are lost"));
        self.add_client("before-the-loss", Box::pin(lost_majority::all_have_everything()));
        self.until_clients_end("the pause before the loss", READING_MAX, |sim| nemesis.drive(sim))?;
        let lost = nemesis.lose_some(&mut self.sim);
        self.add_client("operator-recovering", Box::pin(lost_majority::recover(self.context.clone(), lost)));
        self.until_clients_end("the recovery of groups", RECOVERY_MAX, |sim| nemesis.drive(sim))?;
        nemesis.restart_lost(&mut self.sim, lost);
        self.add_client("operator-waiting", Box::pin(lost_majority::until_whole(self.context.clone())));
        self.until_clients_end("the return of the lost servers", RECOVERY_MAX, |sim| nemesis.drive(sim))
    }

    /// The only master loses its disk, and the catalog is rebuilt.
    fn lose_catalog(&mut self, nemesis: &mut Nemesis) -> Result<(), Stop> {
        self.context.state.set_catalog(CatalogState::Lost);
        // The masters begin another log.
        terrane_env::sim::compare_witnesses();
        nemesis.lose_master(&mut self.sim);
        self.add_client("operator-rebuilding", Box::pin(rebuilt_catalog::goes_on(self.context.clone())));
        self.until_clients_end("the rebuild of the catalog", REBUILD_MAX, |sim| nemesis.drive(sim))
    }

    fn until_clients_end(
        &mut self,
        who: &str,
        within: Duration,
        mut act: impl FnMut(&mut turmoil::Sim<'static>),
    ) -> Result<(), Stop> {
        let began = self.sim.elapsed();
        loop {
            let ended = self.sim.step().map_err(|error| Stop::Broken(Failure::new(error.to_string())))?;
            let nodes = self.context.plan.nodes();
            self.context.watch.step(&mut self.sim, nodes, &self.context.state);
            if let Some(failure) = self.context.state.failure() {
                return Err(Stop::Broken(failure));
            }
            if ended {
                return Ok(());
            }
            if self.until.is_some_and(|until| self.sim.elapsed() >= until) {
                return Err(Stop::Until);
            }
            if self.sim.elapsed() > began + within {
                let seconds = within.as_secs();
                return Err(Stop::Broken(Failure::new(format!("stuck: {who} did not end within {seconds} s"))));
            }
            act(&mut self.sim);
        }
    }

    /// Why the run shows little, if it does.
    fn shortfall(&self, scenario: &dyn Scenario) -> Option<String> {
        let faults: u64 = self.context.state.fault_counts().values().sum();
        let least = crate::fault::draw::FAULTS_MIN as u64;
        if faults < least {
            return Some(format!("only {faults} faults of at least {least} struck"));
        }
        // On a slow disk fewer operations fit into a run.
        scenario.shortfall(&self.context).filter(|_| self.context.plan.slow_disks.1.is_zero())
    }

    fn summary(&self) -> Summary {
        let state = &self.context.state;
        let (mut machines, points) = (terrane_env::sim::counts(), terrane_env::sim::fault_points());
        machines.retain(|what, count| *count > 0 && !points.contains_key(what));
        Summary {
            simulated: self.sim.elapsed(),
            acknowledged: state.acknowledged(),
            checks: state.checks(),
            flushes: state.total("terrane_server_flushes_total"),
            splits: state.total("terrane_server_splits_total"),
            purges: state.purged(),
            faults: state.fault_counts(),
            machines,
            watched: self.context.watch.counts(),
            points,
            small_limits: terrane_env::sim::small_limits(),
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} simulated s, {} operations acknowledged, {} results checked, {} flushes, {} splits, {} segments purged",
            self.simulated.as_secs_f64(),
            self.acknowledged,
            self.checks,
            self.flushes,
            self.splits,
            self.purges
        )
    }
}
