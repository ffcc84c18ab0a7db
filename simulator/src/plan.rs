//! The parameters of a simulated run, drawn from its seed: scenario, sizes, speeds, latencies, and the kind, place and time
//! of faults.
//!
//! The parameters vary on purpose. With a fixed disk speed, 2 of 20 seeds found a write that was acknowledged before it
//! was synced; with random speeds, and faults aimed at acknowledgements, half of them do. `terrane_env::sim` draws the
//! parameters of the disks.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::fault::draw::{self, Fault, PlannedFault};
use crate::kind::Kind;

use crate::planted::Requirement;

/// The hosts of the region servers; a run has the first three, four or five of them.
pub const SERVERS: [&str; 5] = ["s1", "s2", "s3", "s4", "s5"];
/// The hosts of the masters; a run has the first one, or the first three, which found the cluster. The last one waits to be
/// added, where the masters change.
pub const MASTERS: [&str; 4] = ["master", "m2", "m3", "m4"];
/// Several masters.
const SEVERAL: usize = 3;
/// Replicas of each group.
pub const REPLICATION: usize = 3;
/// Separates the plan's random numbers from those of turmoil, which uses the seed itself.
const STREAM: u64 = 0x7065_7272_616e_6500;

/// Separates the random numbers of faults that are asked for.
const NEEDED_STREAM: u64 = 0x6461_6d61_6765_6400;

/// What a sync takes on a disk that is slow all the time.
const SLOW_SYNC_MS: u64 = 350;

/// Lost syncs of a run that needs some.
const LOST_SYNCS: usize = 4;
/// Pauses of machines in a run that needs some.
const PAUSES: usize = 4;
/// Isolations of masters in a run with several.
const MASTER_FAULTS: usize = 2;

/// What the operator does most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A bit of everything.
    Mixed,
    /// Moves regions, also one region twice at a time.
    Moves,
    /// Splits regions and merges them again.
    Merges,
}

/// Fault points of moves that runs which need moves pass in any case, each once in so many passes.
const POINTS_OF_MOVES: [(&str, u64); 5] = [
    ("an adoption is proposed late", 3),
    ("an adoption is given up early", 3),
    ("an adoption's answer is lost", 5),
    ("a refusal is asked for late", 2),
    ("the end of regions is recorded late", 2),
];
/// Limits that are small in runs which need moves.
const LIMITS_OF_MOVES: [(&str, u64); 1] = [("moves whose outcome is remembered", 1)];

/// The parameters of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub scenario: Kind,
    pub tick: Duration,
    pub latency_min: Duration,
    pub latency_max: Duration,
    /// Number of masters.
    pub masters: usize,
    /// Whether an operator replaces one of the masters by another process again and again.
    pub changes_masters: bool,
    /// Whether the next build is rolled out: processes begin at this build's feature level, and each reaches the next one when it
    /// restarts.
    pub rolls_out: bool,
    /// Whether servers start this build again by mistake when the next one is rolled out.
    pub falls_back: bool,
    /// What the operator does most.
    pub work: Work,
    /// Whether two servers are lost at once when everything is healed, and their groups recovered.
    pub loses_majority: bool,
    /// Whether the only master loses its disk when everything is healed, and the catalog is rebuilt.
    pub loses_catalog: bool,
    /// Whether processes come that are not the servers that they say they are, when everything is healed.
    pub has_strangers: bool,
    /// Servers whose disks are slow all the time, and what a sync takes there.
    pub slow_disks: (&'static [&'static str], Duration),
    /// Fault points that fire whatever the seed drew, each once in so many passes.
    pub aimed: Vec<(&'static str, u64)>,
    /// Limits that have this value in any case.
    pub aimed_limits: Vec<(&'static str, u64)>,
    /// Number of region servers.
    pub servers: usize,
    /// Initial regions of a table.
    pub first_regions: usize,
    pub region_size: u64,
    pub flush_size: u64,
    pub segment_bytes: u64,
    pub purge_budget: u64,
    pub log_limit: u64,
    pub log_cache_bytes: u64,
    pub block_cache_bytes: u64,
    pub memtable_budget: u64,
    pub groups_per_server: usize,
    /// How long a silent server is waited for before its replicas are replaced.
    pub replace_after: Duration,
    pub value_bytes: usize,
    /// Whether the fault points in the code are active, at which unlikely but legal events happen.
    pub fault_points: bool,
    /// One batch of replies in this many is lost, together with its session, and as many answers to changes of tables; 0: none.
    pub lost_answers_one_in: u64,
    /// When the first phase ends: clients work, and faults occur, until then.
    pub until: Duration,
    pub faults: Vec<PlannedFault>,
    /// Whether servers confirm all reads with a quorum. Where they do, no hypervisor tells a machine that it was paused.
    pub strict_reads: bool,
    /// The time in which servers compare the replicas of the regions that they lead; zero: they do not.
    pub compare_every: Duration,
    /// Whether a cell of one replica changes when everything is healed, which the comparison has to find.
    pub changes_a_cell: bool,
    /// Rows in one request of a call that writes many, so that a call takes several requests to a region; 0: as usual.
    pub rows_per_request: u64,
}

impl Plan {
    /// The plan of a seed, with the given scenario or the one that the seed draws.
    #[must_use]
    pub fn drawn(seed: u64, scenario: Option<Kind>) -> Plan {
        let mut rng = StdRng::seed_from_u64(seed ^ STREAM);
        let rng = &mut rng;
        // Drawn in any case, so that a seed has the same parameters whether its scenario is named or not.
        let drawn = *Kind::ALL.choose(rng).expect("not empty");
        let segment_bytes = *[32 << 10, 64 << 10, 128 << 10].choose(rng).expect("not empty");
        let servers = *[3, 3, 3, 4, 5].choose(rng).expect("not empty");
        let until = Duration::from_millis(rng.random_range(20_000..24_000));
        let mut plan = Plan {
            seed,
            masters: 1,
            changes_masters: false,
            rolls_out: false,
            falls_back: false,
            work: Work::Mixed,
            loses_majority: false,
            loses_catalog: false,
            has_strangers: false,
            slow_disks: (&[], Duration::ZERO),
            aimed: Vec::new(),
            aimed_limits: Vec::new(),
            scenario: scenario.unwrap_or(drawn),
            tick: milliseconds(*[2, 5, 5, 10].choose(rng).expect("not empty")),
            latency_min: milliseconds(rng.random_range(0..=2)),
            latency_max: milliseconds(*[3, 10, 30].choose(rng).expect("not empty")),
            servers,
            first_regions: rng.random_range(2..=5),
            region_size: rng.random_range(16..=40) << 10,
            flush_size: rng.random_range(4..=10) << 10,
            segment_bytes,
            // Often under ten segments: then segments are purged with every report.
            purge_budget: rng.random_range(1..=16) * segment_bytes,
            log_limit: *[4 << 20, 16 << 20, 256 << 20].choose(rng).expect("not empty"),
            log_cache_bytes: *[16 << 10, 256 << 10].choose(rng).expect("not empty"),
            block_cache_bytes: *[0, 32 << 10, 1 << 20].choose(rng).expect("not empty"),
            memtable_budget: *[128 << 10, 1 << 20, 4 << 20].choose(rng).expect("not empty"),
            groups_per_server: rng.random_range(1..=2),
            replace_after: Duration::from_secs(*[2, 5, 300].choose(rng).expect("not empty")),
            value_bytes: rng.random_range(40..=240),
            fault_points: rng.random_bool(0.6),
            lost_answers_one_in: *[0, 0, 10, 30, 100].choose(rng).expect("not empty"),
            until,
            faults: draw::faults(rng, servers, until),
            strict_reads: false,
            compare_every: Duration::ZERO,
            changes_a_cell: false,
            rows_per_request: *[0, 1, 2, 3].choose(rng).expect("not empty"),
        };
        if rng.random_bool(0.4) {
            plan = plan.with_masters(rng);
        }
        plan.changes_masters = rng.random_bool(0.4) && plan.masters == SEVERAL;
        plan.rolls_out = rng.random_bool(0.2);
        plan.falls_back = plan.rolls_out && rng.random_bool(0.5);
        plan.work = *[Work::Mixed, Work::Mixed, Work::Mixed, Work::Moves, Work::Merges].choose(rng).expect("not empty");
        plan.loses_majority = rng.random_bool(0.2) && !plan.damages_a_disk() && !plan.rolls_out;
        plan.loses_catalog = rng.random_bool(0.3) && plan.masters == 1 && !plan.damages_a_disk() && !plan.rolls_out;
        plan.strict_reads = rng.random_bool(0.2);
        plan.compare_every = milliseconds(*[0, 1_000, 5_000].choose(rng).expect("not empty"));
        if rng.random_bool(0.2) && !plan.damages_a_disk() && !plan.rolls_out {
            plan = plan.with_a_changed_cell();
        }
        let sync = milliseconds(rng.random_range(200..350));
        // The search for a changed cell would take too long then.
        if rng.random_bool(1.0 / 12.0) && !plan.changes_a_cell {
            plan.slow_disks = (&SERVERS[..1], sync);
        }
        plan.has_strangers = rng.random_bool(0.25) && plan.may_have_strangers();
        plan
    }

    /// Beside strangers a server is down, so nothing else is missing then.
    fn may_have_strangers(&self) -> bool {
        let loses = self.loses_majority || self.loses_catalog || self.damages_a_disk();
        !(loses || self.rolls_out || self.changes_masters) && self.slow_disks.0.is_empty()
    }

    /// Whether the disk of a server returns other bytes than were written.
    #[must_use]
    pub fn damages_a_disk(&self) -> bool {
        self.faults.iter().any(|planned| matches!(planned.fault, Fault::Damage { .. }))
    }

    /// The plan with a cell that changes on one replica.
    fn with_a_changed_cell(mut self) -> Plan {
        (self.changes_a_cell, self.compare_every) = (true, milliseconds(1_000));
        self
    }

    /// The plan with three masters, and faults of them.
    fn with_masters(mut self, rng: &mut StdRng) -> Plan {
        self.masters = SEVERAL;
        let faults = (0..MASTER_FAULTS).map(|_| draw::master_isolation(rng, self.until));
        self.faults.extend(faults);
        self.faults.sort_by_key(|planned| planned.at);
        self.has_strangers &= self.may_have_strangers();
        self
    }

    /// The plan with what a planted bug needs to show: damage to the disk of one server and no other, or several lost syncs.
    #[must_use]
    pub fn with(mut self, needed: Requirement) -> Plan {
        let mut rng = StdRng::seed_from_u64(self.seed ^ NEEDED_STREAM);
        match needed {
            Requirement::Damage(what) => {
                self.faults.retain(|planned| !matches!(planned.fault, Fault::Damage { .. }));
                self.faults.push(draw::damage(&mut rng, self.servers, self.until, what));
                (self.loses_majority, self.loses_catalog, self.changes_a_cell) = (false, false, false);
            }
            Requirement::LostMajority => {
                self.faults.retain(|planned| !matches!(planned.fault, Fault::Damage { .. }));
                (self.loses_majority, self.rolls_out) = (true, false);
            }
            Requirement::LostCatalog => {
                self.faults.retain(|planned| !matches!(planned.fault, Fault::Damage { .. }));
                self.faults.retain(|planned| !matches!(planned.fault, Fault::MasterIsolation { .. }));
                (self.loses_catalog, self.rolls_out) = (true, false);
                (self.masters, self.changes_masters) = (1, false);
            }
            Requirement::Masters => {
                self = self.with_masters(&mut rng);
                self.loses_catalog = false;
            }
            Requirement::MastersChange => {
                self = self.with_masters(&mut rng);
                (self.changes_masters, self.loses_catalog, self.rolls_out) = (true, false, false);
            }
            Requirement::RollOut => {
                (self.rolls_out, self.falls_back) = (true, true);
                (self.loses_majority, self.loses_catalog, self.changes_a_cell) = (false, false, false);
            }
            Requirement::Moves => {
                (self.work, self.aimed) = (Work::Moves, POINTS_OF_MOVES.to_vec());
                self.aimed_limits = LIMITS_OF_MOVES.to_vec();
            }
            Requirement::Merges => self.work = Work::Merges,
            Requirement::Replacements => {
                self.servers = self.servers.max(REPLICATION + 1);
                self.replace_after = Duration::from_secs(2);
            }
            Requirement::Strangers => {
                self.faults.retain(|planned| !matches!(planned.fault, Fault::Damage { .. }));
                (self.loses_majority, self.loses_catalog) = (false, false);
                (self.rolls_out, self.changes_masters) = (false, false);
                self.slow_disks = (&[], Duration::ZERO);
                self.has_strangers = true;
            }
            Requirement::ChangedCell => {
                self.faults.retain(|planned| !matches!(planned.fault, Fault::Damage { .. }));
                (self.rolls_out, self.falls_back) = (false, false);
                self = self.with_a_changed_cell();
            }
            Requirement::LateLoads => self.aimed = vec![("a load is proposed again later", 2)],
            Requirement::Pauses => {
                self.strict_reads = true;
                self.faults.extend((0..PAUSES).map(|_| draw::pause(&mut rng, self.until)));
            }
            Requirement::SlowDisks => self.slow_disks = (&SERVERS, milliseconds(SLOW_SYNC_MS)),
            Requirement::LostSyncs(of) => {
                let lost = (0..LOST_SYNCS).map(|_| draw::lost_sync(&mut rng, self.servers, self.until, of));
                self.faults.extend(lost);
            }
        }
        self.has_strangers &= self.may_have_strangers();
        self.faults.sort_by_key(|planned| planned.at);
        self
    }

    /// The hosts of this run's masters, and of the process that waits to be added to them.
    #[must_use]
    pub fn master_hosts(&self) -> &'static [&'static str] {
        &MASTERS[..self.masters + usize::from(self.changes_masters)]
    }

    /// The addresses of the masters that found the cluster.
    #[must_use]
    pub fn masters(&self) -> Vec<String> {
        MASTERS[..self.masters].iter().map(|host| master_address(host)).collect()
    }

    /// Whether this host founds the cluster with others, or waits to be added to it.
    #[must_use]
    pub fn founds(&self, host: &str) -> bool {
        MASTERS[..self.masters].contains(&host)
    }

    /// The hosts of all processes: servers and masters.
    pub fn nodes(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.server_hosts().iter().chain(self.master_hosts()).copied()
    }

    /// The hosts of this run's servers whose disks are slow all the time.
    pub fn slow_hosts(&self) -> impl Iterator<Item = &'static str> + use<> {
        let slow = self.slow_disks.0;
        self.server_hosts().iter().copied().filter(move |host| slow.contains(host))
    }

    /// The timeout of a client that is to give up early: long enough for a write whose quorum needs the slow disk, or a writer
    /// that repeats until it succeeds never ends.
    #[must_use]
    pub fn patience_with_disks(&self, patience: Duration) -> Duration {
        patience + 3 * self.slow_disks.1
    }

    /// The hosts of this run's servers.
    #[must_use]
    pub fn server_hosts(&self) -> &'static [&'static str] {
        &SERVERS[..self.servers]
    }
}

/// The address of a master.
#[must_use]
pub fn master_address(host: &str) -> String {
    format!("{host}:7600")
}

const fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_plan_and_seeds_differ() {
        let shown = |seed| format!("{:?}", Plan::drawn(seed, None));
        assert_eq!(shown(7), shown(7));
        assert_ne!(shown(7), shown(8));
    }

    #[test]
    fn plans_with_what_a_bug_needs_go_together() {
        for seed in 0..300 {
            let needed = Requirement::NAMED.iter().map(|(_, needed)| *needed);
            for needed in needed.chain([Requirement::Damage(draw::Damage::BitRot)]) {
                let plan = Plan::drawn(seed, None).with(needed);
                let loses = plan.loses_majority || plan.loses_catalog;
                assert!(!loses || !plan.rolls_out, "{needed:?}: {plan:?}");
                // The comparison needs every voter, and builds that know it.
                let compares = !plan.changes_a_cell || !(plan.rolls_out || plan.damages_a_disk());
                assert!(compares, "{needed:?}: {plan:?}");
                assert!(!loses || !plan.damages_a_disk(), "{needed:?}: {plan:?}");
                assert!(!plan.loses_catalog || plan.masters == 1, "{needed:?}: {plan:?}");
                assert!(!plan.has_strangers || plan.may_have_strangers(), "{needed:?}: {plan:?}");
                assert!(needed != Requirement::Strangers || plan.has_strangers, "{plan:?}");
                assert!(!plan.changes_masters || plan.masters == SEVERAL, "{needed:?}: {plan:?}");
            }
        }
    }

    #[test]
    fn a_named_scenario_changes_nothing_else() {
        let drawn = Plan::drawn(7, None);
        for kind in Kind::ALL {
            let named = Plan::drawn(7, Some(kind));
            assert_eq!((named.scenario, &named.faults), (kind, &drawn.faults));
        }
    }

    #[test]
    fn every_scenario_is_drawn_and_every_run_has_faults_that_end_in_time() {
        let plans: Vec<Plan> = (0..300).map(|seed| Plan::drawn(seed, None)).collect();
        let scenarios: BTreeSet<&str> = plans.iter().map(|plan| plan.scenario.name()).collect();
        assert_eq!(scenarios.len(), Kind::ALL.len());
        for plan in &plans {
            assert!(plan.faults.len() >= draw::FAULTS_MIN, "{plan:?}");
            assert!(plan.faults.iter().all(|planned| planned.at < plan.until), "{plan:?}");
        }
    }
}
