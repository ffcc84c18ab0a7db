//! The parameters of a simulated run, drawn from its seed: sizes, speeds, latencies, and the kind, place and time of
//! faults.
//!
//! The parameters vary on purpose. With a fixed disk speed, 2 of 20 seeds found a write that was acknowledged before it
//! was synced; with random speeds, and faults aimed at acknowledgements, half of them do. `terrane_env::sim` draws the
//! parameters of the disk.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Number of rows that the writers put.
pub const ROWS: usize = 2_000;
/// The prefix of the writers' keys.
pub const ROW_PREFIX: &[u8] = b"row-";
/// The hosts of the region servers.
pub const SERVERS: [&str; 3] = ["s1", "s2", "s3"];
/// Separates the plan's random numbers from those of turmoil, which uses the seed itself.
const STREAM: u64 = 0x7065_7272_616e_6500;

/// The parameters of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub tick: Duration,
    pub latency_min: Duration,
    pub latency_max: Duration,
    /// Initial regions of the table.
    pub first_regions: usize,
    pub region_size: u64,
    pub flush_size: u64,
    pub segment_bytes: u64,
    pub purge_budget: u64,
    pub log_cache_bytes: u64,
    pub groups_per_server: usize,
    pub value_bytes: usize,
    /// One put in this many is followed by an overwrite of an earlier row.
    pub overwrite_one_in: u32,
    /// Whether the fault points in the code are active, at which unlikely but legal events happen.
    pub fault_points: bool,
    pub crash: Crash,
    pub cut: Cut,
    pub cut_off: CutOff,
    /// Faults that lose replies, for the workload of counters.
    pub lost_answers: LostAnswers,
}

/// What the clients of a run do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// Put and read rows.
    #[default]
    Rows,
    /// Increment, append, and check and mutate, which shows writes that are applied twice.
    Counters,
}

impl std::str::FromStr for Workload {
    type Err = ();

    fn from_str(name: &str) -> Result<Workload, ()> {
        match name {
            "rows" => Ok(Workload::Rows),
            "counters" => Ok(Workload::Counters),
            _ => Err(()),
        }
    }
}

/// Lost replies, which make clients retry operations that were applied.
#[derive(Clone, Debug)]
pub struct LostAnswers {
    /// One batch of replies in this many is lost, together with its session.
    pub one_in: u64,
    /// Links that for a while deliver no replies.
    pub deaf: Vec<Deaf>,
}

/// A link that works only from client to server.
#[derive(Clone, Debug)]
pub struct Deaf {
    pub server: &'static str,
    pub client: &'static str,
    pub after_rows: usize,
    pub lasts: Duration,
}

/// A server loses power.
#[derive(Clone, Debug)]
pub struct Crash {
    pub server: &'static str,
    /// After this many rows.
    pub after_rows: usize,
    /// Right at the next acknowledgement, rather than at any time.
    pub at_acknowledgement: bool,
    /// Its peers see no closed connections, as in a real power failure.
    pub silent: bool,
    pub down: Duration,
}

/// A broken link between two hosts.
#[derive(Clone, Debug)]
pub struct Cut {
    pub between: (&'static str, &'static str),
    pub how: CutKind,
    pub after_rows: usize,
    pub lasts: Duration,
}

/// How a link is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutKind {
    /// All packets are dropped in both directions.
    Drop,
    /// All packets in one direction are dropped.
    DropOneWay,
    /// All packets are delayed until the link is repaired.
    Hold,
}

/// The server that leads most groups is isolated from its peers; one client reaches it, and only it.
#[derive(Clone, Debug)]
pub struct CutOff {
    pub after_rows: usize,
    /// Whether it is also isolated from the master.
    pub from_master: bool,
    pub lasts: Duration,
}

impl Plan {
    /// The plan of a seed.
    pub fn drawn(seed: u64) -> Plan {
        let mut rng = StdRng::seed_from_u64(seed ^ STREAM);
        let rng = &mut rng;
        let segment_bytes = *[32 << 10, 64 << 10, 128 << 10].choose(rng).expect("not empty");
        Plan {
            seed,
            tick: milliseconds(*[1, 2, 5].choose(rng).expect("not empty")),
            latency_min: milliseconds(rng.random_range(0..=2)),
            latency_max: milliseconds(*[3, 10, 30].choose(rng).expect("not empty")),
            first_regions: rng.random_range(3..=6),
            region_size: rng.random_range(16..=48) << 10,
            flush_size: rng.random_range(4..=12) << 10,
            segment_bytes,
            purge_budget: segment_bytes * rng.random_range(1..=2),
            log_cache_bytes: *[16 << 10, 64 << 20].choose(rng).expect("not empty"),
            groups_per_server: rng.random_range(1..=3),
            value_bytes: rng.random_range(40..=240),
            overwrite_one_in: rng.random_range(2..=6),
            fault_points: rng.random_bool(0.5),
            crash: Crash::drawn(rng),
            cut: Cut::drawn(rng),
            cut_off: CutOff::drawn(rng),
            lost_answers: LostAnswers::drawn(rng),
        }
    }
}

impl Crash {
    fn drawn(rng: &mut StdRng) -> Crash {
        Crash {
            server: SERVERS.choose(rng).expect("not empty"),
            after_rows: rng.random_range(ROWS / 10..ROWS / 3),
            at_acknowledgement: rng.random_bool(0.5),
            silent: rng.random_bool(0.5),
            down: milliseconds(rng.random_range(200..5_000)),
        }
    }
}

impl Cut {
    fn drawn(rng: &mut StdRng) -> Cut {
        let pairs = [("s1", "s2"), ("s2", "s3"), ("s3", "s1"), ("s1", "master"), ("s2", "master"), ("s3", "w1")];
        Cut {
            between: *pairs.choose(rng).expect("not empty"),
            how: *[CutKind::Drop, CutKind::DropOneWay, CutKind::Hold].choose(rng).expect("not empty"),
            after_rows: rng.random_range(ROWS / 3..ROWS / 2),
            lasts: milliseconds(rng.random_range(300..4_000)),
        }
    }
}

impl CutOff {
    fn drawn(rng: &mut StdRng) -> CutOff {
        CutOff {
            after_rows: rng.random_range(ROWS / 2..ROWS * 4 / 5),
            from_master: rng.random_bool(0.5),
            // Longer than leases and elections, so that a new leader accepts writes while the old one receives reads.
            lasts: milliseconds(rng.random_range(2_000..6_000)),
        }
    }
}

impl LostAnswers {
    fn drawn(rng: &mut StdRng) -> LostAnswers {
        let one_in = *[10, 30, 100].choose(rng).expect("not empty");
        let deaf = (0..rng.random_range(2..=4)).map(|_| Deaf {
            server: SERVERS.choose(rng).expect("not empty"),
            client: ["w1", "w2"].choose(rng).expect("not empty"),
            after_rows: rng.random_range(ROWS / 20..ROWS * 4 / 5),
            lasts: milliseconds(rng.random_range(200..1_500)),
        });
        LostAnswers { one_in, deaf: deaf.collect() }
    }
}

fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_seeds_differ() {
        let shown = |seed| format!("{:?}", Plan::drawn(seed));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
    }

    #[test]
    fn every_kind_of_fault_is_drawn_by_some_seed() {
        let plans: Vec<Plan> = (0..100).map(Plan::drawn).collect();
        for how in [CutKind::Drop, CutKind::DropOneWay, CutKind::Hold] {
            assert!(plans.iter().any(|plan| plan.cut.how == how));
        }
        for flag in [true, false] {
            assert!(plans.iter().any(|plan| plan.crash.silent == flag && plan.crash.at_acknowledgement == flag));
            assert!(plans.iter().any(|plan| plan.cut_off.from_master == flag && plan.fault_points == flag));
        }
    }
}
