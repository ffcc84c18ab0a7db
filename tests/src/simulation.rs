//! One simulated run of a whole cluster: a master, three region servers and clients in one process, under simulated
//! time, network and disk.
//!
//! [`run`] steps the simulation, applies [`faults`] between steps, and watches the [`run_state`], in which clients and
//! nodes record what they observe. A run has three phases. In the first, writers fill a table with tiny regions, so
//! that flushes, purges and splits happen; readers check every result against the [`crate::oracle::History`]; and three
//! faults occur: a server crashes, a link breaks, and a leader is isolated from its peers while a client still reaches
//! it. In the second phase, everything is repaired, and all rows are read in several ways and compared. In the third,
//! the whole cluster loses power at once and restarts, and all rows are read again.
//!
//! That is [`Workload::Rows`]. With [`Workload::Counters`], clients increment, append, and check and mutate, the
//! [`crate::ledger::Ledger`] checks their results, and replies are lost all the time, in addition to the faults above.
//!
//! Invariants:
//! - Everything is drawn from the seed: sizes, speeds, latencies, times and targets of faults ([`crate::plan`]).
//! - One seed per process. Its whole [`trace`] is the same each time. Updated dependencies may change it, so hashes are
//!   only compared between runs of one build, never stored.
//! - A run that does not end within [`TIME_MAX`] of simulated time has failed: it is stuck.

mod clients;
mod counting;
mod faults;
mod nodes;
mod readings;
mod run_state;
pub mod trace;

use std::time::{Duration, SystemTime};

use run_state::RunState;

use crate::plan::{Plan, Workload};

/// Simulated time after which a run counts as stuck.
pub const TIME_MAX: Duration = Duration::from_secs(180);
/// The simulated wall clock at the start: 2026-01-01, in every run.
const EPOCH_SECONDS: u64 = 1_767_225_600;

/// The summary of a successful run.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub simulated: Duration,
    pub acknowledged: u64,
    /// Operations without effect: conditions that did not hold, and errors that guarantee it.
    pub refused: u64,
    /// Operations with an unknown outcome.
    pub unknown: u64,
    pub reads: u64,
    pub flushes: u64,
    pub splits: u64,
    pub purges: u64,
    pub regions: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} simulated s, {} writes acknowledged, {} refused, {} unknown, {} reads checked, {} flushes, {} splits, \
             {} regions, {} segments purged",
            self.simulated.as_secs_f64(),
            self.acknowledged,
            self.refused,
            self.unknown,
            self.reads,
            self.flushes,
            self.splits,
            self.regions,
            self.purges
        )
    }
}

/// Runs the simulation of `seed`.
///
/// # Errors
/// What was lost, got stuck or never happened.
pub fn run(seed: u64, workload: Workload) -> Result<Summary, String> {
    let plan = Plan::drawn(seed);
    trace::note(format_args!("plan {plan:?} disk {:?}", terrane_env::sim::disk()));
    terrane_env::sim::set_fault_points(plan.fault_points);
    let mut run = SimulatedRun { sim: world(&plan), state: RunState::new(), plan, workload };
    let outcome = run.all();
    // Its destructor would drop hundreds of unfinished futures outside of any host; the process exits anyway.
    std::mem::forget(run.sim);
    outcome
}

fn world(plan: &Plan) -> turmoil::Sim<'static> {
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(plan.seed)
        .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS))
        .tick_duration(plan.tick)
        .simulation_duration(TIME_MAX)
        .min_message_latency(plan.latency_min)
        .max_message_latency(plan.latency_max)
        .tcp_capacity(TCP_CAPACITY)
        .enable_random_order();
    // Small blocks, so that a power failure tears writes in flight.
    builder.fs().block_size(512);
    builder.fs().io_latency().min_latency(Duration::from_micros(100)).max_latency(Duration::from_millis(5));
    builder.build()
}

/// Segments in flight on a simulated connection. A sender that exceeds it would lose some.
const TCP_CAPACITY: usize = 65_536;

struct SimulatedRun {
    sim: turmoil::Sim<'static>,
    state: RunState,
    plan: Plan,
    workload: Workload,
}

impl SimulatedRun {
    fn all(&mut self) -> Result<Summary, String> {
        nodes::add(&mut self.sim, &self.plan, &self.state);
        match self.workload {
            Workload::Rows => clients::add(&mut self.sim, &self.plan, &self.state),
            Workload::Counters => counting::add(&mut self.sim, &self.plan, &self.state),
        }
        let mut nemesis = faults::Nemesis::new(&self.plan, self.workload);
        self.until_clients_end(|sim, state| nemesis.act(sim, state))?;
        trace::note(format_args!("healed: reading everything"));
        self.read_everything("reading-healed")?;
        trace::note(format_args!("power failure of all"));
        faults::power_failure_of_all(&mut self.sim);
        self.read_everything("reading-restarted")?;
        self.summary()
    }

    fn read_everything(&mut self, host: &'static str) -> Result<(), String> {
        match self.workload {
            Workload::Rows => readings::add(&mut self.sim, host, &self.state),
            Workload::Counters => counting::add_last_readings(&mut self.sim, host, &self.state),
        }
        self.until_clients_end(|_, _| {})
    }

    fn until_clients_end(&mut self, mut act: impl FnMut(&mut turmoil::Sim<'static>, &RunState)) -> Result<(), String> {
        loop {
            let ended = self.sim.step().map_err(|error| self.stalled_or(&error.to_string()))?;
            if let Some(failure) = self.state.failure() {
                return Err(failure);
            }
            if ended {
                return Ok(());
            }
            act(&mut self.sim, &self.state);
        }
    }

    /// turmoil reports its time limit in the same way as a host's error.
    fn stalled_or(&self, error: &str) -> String {
        if self.sim.elapsed() < TIME_MAX {
            return error.to_owned();
        }
        format!("stalled: not at the end after {} simulated s; {}", TIME_MAX.as_secs(), self.state.progress())
    }

    /// The summary; fails if the run did not exercise what it should.
    fn summary(&self) -> Result<Summary, String> {
        let summary = self.state.summary(self.sim.elapsed());
        let purges = ("purge of a log segment", summary.purges);
        let shown = [("flush", summary.flushes), ("split", summary.splits)].into_iter();
        // Counters are few and small, so that a run may fit into one segment.
        for (what, count) in shown.chain((self.workload == Workload::Rows).then_some(purges)) {
            if count == 0 {
                return Err(format!("no {what} happened, so the run shows little: {summary}"));
            }
        }
        Ok(summary)
    }
}
