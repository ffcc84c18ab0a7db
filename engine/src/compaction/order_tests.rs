//! Random trees, with flushes and jobs interleaved: no plan ever cuts a row's log, and every sequence of plans ends.
//!
//! A failure prints its seed; `TERRANE_SEED=n` runs that seed alone.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::tree_model::Model;
use super::{LEVEL_MAX, Plan, Policy, pick, pick_major};

const SEEDS: u64 = 100;
const SEEDS_FULL: u64 = 400;
const STEPS: usize = 150;
/// More than any of these trees needs to come to rest.
const STEPS_TO_REST: usize = 2_000;
const JOBS_MAX: usize = 3;

fn for_each_seed(test: impl Fn(&mut StdRng)) {
    let seeds = match std::env::var("TERRANE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("TERRANE_SEED is a number");
            seed..seed + 1
        }
        Err(_) if std::env::var_os("TERRANE_FULL").is_some() => 0..SEEDS_FULL,
        Err(_) => 0..SEEDS,
    };
    for seed in seeds {
        let failed = Seed(seed);
        test(&mut StdRng::seed_from_u64(seed));
        std::mem::forget(failed);
    }
}

/// Names the seed of a test that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        println!("TERRANE_SEED={}", self.0);
    }
}

fn policy(rng: &mut StdRng) -> Policy {
    let mut policy = Policy::new(1 << 20, 64 << 10);
    policy.file_bytes = rng.random_range(10..60);
    policy.base_bytes = rng.random_range(5..80);
    policy.multiplier = rng.random_range(2..6);
    policy.level0_files = rng.random_range(2..5);
    policy
}

fn flush(rng: &mut StdRng, model: &mut Model, policy: &Policy) {
    let rows: Vec<u8> = match rng.random_range(0..3) {
        0 => (b'a'..=b'z').filter(|_| rng.random_bool(0.5)).collect(),
        1 => (b'a'..=b'z').skip(rng.random_range(0..20)).take(rng.random_range(1..6)).collect(),
        _ => vec![rng.random_range(b'a'..=b'z'), rng.random_range(b'a'..=b'z')],
    };
    let mut rows = rows;
    rows.sort_unstable();
    rows.dedup();
    if rows.is_empty() {
        return;
    }
    let bytes = rng.random_range(1..40);
    let deletes = if rng.random_bool(0.2) { 10 * rows.len() as u64 / 2 } else { 0 };
    let mut file = model.file(&rows, bytes, deletes);
    file.straddles = rng.random_bool(0.05);
    file.max_timestamp = policy.log_time_ms + rng.random_range(-100_000..1_000);
    file.min_timestamp = file.max_timestamp - rng.random_range(0..50_000);
    model.place(0, file);
}

/// Flushes and jobs at random, then only jobs until there is nothing to do.
fn churn(rng: &mut StdRng, mut policy: Policy) -> (Model, Policy) {
    let mut model = Model::default();
    let mut running: Vec<Plan> = Vec::new();
    for step in 0..STEPS + STEPS_TO_REST {
        let writing = step < STEPS;
        if writing {
            policy.log_time_ms += rng.random_range(0..20_000);
            if rng.random_bool(0.4) {
                flush(rng, &mut model, &policy);
            }
            policy.oldest_snapshot = model.sequence.saturating_sub(rng.random_range(0..50));
        }
        let plan = match rng.random_bool(0.05) && writing {
            true => pick_major(&model.tree, &policy),
            false => pick(&model.tree, &policy).0,
        };
        if running.len() < JOBS_MAX && model.start(&plan).is_some() {
            running.push(plan.clone());
        }
        if running.is_empty() && !writing {
            assert_eq!(plan, Plan::Idle, "waits for nothing:\n{}", model.draw());
            return (model, policy);
        }
        if !running.is_empty() && (rng.random_bool(0.5) || running.len() == JOBS_MAX) {
            let plan = running.swap_remove(rng.random_range(0..running.len()));
            let before = model.cells();
            model.finish(&plan, &policy);
            assert!(matches!(plan, Plan::Drop { .. }) || model.cells() == before, "{plan:?} lost cells");
            model.check();
        }
    }
    panic!("no rest after {STEPS_TO_REST} steps:\n{}", model.draw());
}

#[test]
fn levelled_plans_keep_the_order_of_the_log_and_come_to_rest() {
    for_each_seed(|rng| {
        let policy = policy(rng);
        let (model, policy) = churn(rng, policy);
        assert!(model.tree.level0.len() < policy.level0_files, "level 0 is full:\n{}", model.draw());
        assert!(!model.tree.levels.iter().flatten().any(|file| file.straddles), "{}", model.draw());
    });
}

#[test]
fn time_windows_keep_the_order_of_the_log_and_come_to_rest() {
    for_each_seed(|rng| {
        let mut policy = policy(rng);
        policy.ttl = Some(Duration::from_millis(rng.random_range(100_000..5_000_000)));
        policy.rules_drop_expired = rng.random_bool(0.5);
        churn(rng, policy);
    });
}

#[test]
fn a_major_compaction_puts_everything_into_the_deepest_level_and_is_then_done() {
    for_each_seed(|rng| {
        let policy = policy(rng);
        let (mut model, mut policy) = churn(rng, policy);
        policy.oldest_snapshot = model.sequence;
        policy.file_bytes = rng.random_range(1..30);
        let mut steps = 0;
        loop {
            let plan = pick_major(&model.tree, &policy);
            if model.start(&plan).is_none() {
                assert_eq!(plan, Plan::Idle, "{}", model.draw());
                break;
            }
            model.finish(&plan, &policy);
            model.check();
            steps += 1;
            assert!(steps < STEPS_TO_REST, "no end:\n{}", model.draw());
        }
        assert!((0..LEVEL_MAX).all(|level| model.tree.level(level).is_empty()), "{}", model.draw());
        assert_eq!(pick_major(&model.tree, &policy), Plan::Idle);
    });
}

#[test]
fn files_of_windows_that_take_turns_are_joined_once_they_are_too_many() {
    let mut policy = Policy::new(1 << 20, 64 << 10);
    policy.ttl = Some(Duration::from_secs(1800));
    policy.log_time_ms = 120_000;
    let mut model = Model::default();
    let mut most = 0;
    for nth in 0..500 {
        let mut file = model.file(b"az", 10, 0);
        file.max_timestamp = 60_000 * (nth % 2) + nth;
        model.place(0, file);
        let plan = pick(&model.tree, &policy).0;
        if model.start(&plan).is_some() {
            model.finish(&plan, &policy);
            model.check();
        }
        most = most.max(model.tree.level0.len());
    }
    assert!((50..70).contains(&most), "{most}");
}

#[test]
fn random_rows_are_written_a_few_times_and_take_up_little_more_than_their_size() {
    let mut policy = Policy::new(1 << 20, 26);
    (policy.file_bytes, policy.base_bytes) = (26, 104);
    let rows: Vec<u8> = (b'a'..=b'z').collect();
    let mut model = Model::default();
    let (mut flushed, mut written, mut least_at_bottom) = (0u64, 0u64, 1.0f64);
    for _ in 0..400 {
        let file = model.file(&rows, 26, 0);
        flushed += file.bytes;
        model.place(0, file);
        loop {
            let plan = pick(&model.tree, &policy).0;
            if model.start(&plan).is_none() {
                break;
            }
            if let Plan::Rewrite(rewrite) = &plan {
                let files = model.tree.level0.iter().chain(model.tree.levels.iter().flatten());
                let inputs = files.filter(|file| rewrite.inputs.iter().any(|&(_, id)| id == file.id));
                written += inputs.map(|file| file.bytes).sum::<u64>();
            }
            model.finish(&plan, &policy);
            model.check();
        }
        if flushed > 20 * policy.base_bytes {
            let deepest = model.tree.level_bytes(LEVEL_MAX) as f64;
            least_at_bottom = least_at_bottom.min(deepest / model.tree.bytes() as f64);
        }
    }
    let times = written as f64 / flushed as f64;
    println!("written {times:.1} times, {:.0} % at the bottom", least_at_bottom * 100.0);
    assert!(times < 10.0, "written {times} times");
    assert!(least_at_bottom > 0.75, "only {least_at_bottom} at the bottom");
}
