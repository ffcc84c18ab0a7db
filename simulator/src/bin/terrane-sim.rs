//! `terrane-sim --seed N`: one simulated run of a whole cluster. `cargo xtask sim` builds and starts it.
//!
//! The last line on standard output is `seed N ok trace HASH` (exit status 0), or `seed N BROKEN: what` or `seed N NOT
//! PROVEN: why` (status 1). The lines before it give the parameters, what happened, the faults with their counts and, after
//! a failure, the lines of the trace that concern it and the command that repeats it. A wrong command line ends with
//! status 2.

#![allow(
    clippy::disallowed_methods,
    reason = "the harness around the simulation exits the process and seeds what `env` cannot reach"
)]

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use mad_turmoil_rand::SeedableRng;
use mad_turmoil_rand::rngs::StdRng;
use terrane_simulator::fault::draw::NAMES;
use terrane_simulator::kind::Kind;
use terrane_simulator::memory;
use terrane_simulator::plan::Plan;
use terrane_simulator::planted::{PLANTED, PlantedBug, Requirement};
use terrane_simulator::run::{self, Summary};
use terrane_simulator::trace;
use terrane_simulator::verdict::{Failure, Verdict};

/// Counts the memory that each host holds.
#[global_allocator]
static ALLOCATOR: cap::Cap<mimalloc::MiMalloc> = cap::Cap::new(mimalloc::MiMalloc, usize::MAX);

const USAGE: &str = "usage: terrane-sim --seed N
  --scenario NAME  this scenario instead of the one that the seed draws; --scenario list names them
  --trace FILE     write the trace to a file
  --wire           with every simulated TCP segment in the trace
  --until SECONDS  stop at this simulated time
  --need NAME      with masters, masters-change, roll-out, moves, merges, lost-majority, lost-catalog, replacements, strangers, slow-disks, pauses, changed-cell or late-loads, drawn or not
  --plant NAME     with this planted bug, which the run should find; --plant list names them and their scenarios";

thread_local! {
    /// For the report of a panic.
    static ARGUMENTS: RefCell<Option<Arguments>> = const { RefCell::new(None) };
}

#[derive(Clone, Default)]
struct Arguments {
    seed: Option<u64>,
    scenario: Option<Kind>,
    trace: Option<PathBuf>,
    wire: bool,
    until: Option<Duration>,
    plant: Option<String>,
    need: Option<(String, Requirement)>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--scenario", "list"] {
        Kind::ALL.iter().for_each(|kind| println!("{}", kind.name()));
        return;
    }
    if words == ["--fault", "list"] {
        NAMES.iter().for_each(|name| println!("{name}"));
        return;
    }
    if words == ["--plant", "list"] {
        for PlantedBug { name, scenario, quick, .. } in PLANTED {
            println!("{name}\t{}\t{}", scenario.name(), if *quick { "quick" } else { "slow" });
        }
        return;
    }
    let Some((arguments, seed)) = parsed(words.into_iter()) else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    ARGUMENTS.set(Some(arguments.clone()));
    // Before anything else, so that all randomness and time of the process come from the seed.
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    terrane_env::sim::seed(seed);
    if let Some(bug) = &arguments.plant {
        terrane_env::sim::plant(bug);
    }
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    memory::meter(|| ALLOCATOR.allocated());
    trace::begin(arguments.trace.as_deref(), arguments.wire);
    std::panic::set_hook(Box::new(fail_at_panic));
    let plan = Plan::drawn(seed, arguments.scenario);
    let bug = PLANTED.iter().find(|bug| arguments.plant.as_deref() == Some(bug.name));
    let need = arguments.need.as_ref().map(|(_, needed)| *needed);
    let plan = match need.or_else(|| bug.and_then(PlantedBug::needs)) {
        Some(needed) => plan.with(needed),
        None => plan,
    };
    println!("parameters: {plan:?}");
    let (summary, verdict) = run::run(plan, arguments.until);
    report(&summary);
    end(seed, &arguments, &verdict);
}

fn parsed(mut words: impl Iterator<Item = String>) -> Option<(Arguments, u64)> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => arguments.seed = Some(words.next()?.parse().ok()?),
            // The other two are older names.
            "--scenario" | "--workload" | "--course" => arguments.scenario = Some(words.next()?.parse().ok()?),
            "--trace" => arguments.trace = Some(words.next()?.into()),
            "--wire" => arguments.wire = true,
            "--until" => arguments.until = Some(Duration::try_from_secs_f64(words.next()?.parse().ok()?).ok()?),
            "--need" => {
                let name = words.next()?;
                let needed = Requirement::named(&name)?;
                arguments.need = Some((name, needed));
            }
            "--plant" => arguments.plant = Some(words.next()?),
            _ => return None,
        }
    }
    let seed = arguments.seed?;
    Some((arguments, seed))
}

fn report(summary: &Summary) {
    println!("{summary}");
    let listed = |counts: Vec<String>| if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    println!("faults: {}", listed(summary.faults.iter().map(|(name, count)| format!("{name} {count}")).collect()));
    println!("machines: {}", listed(summary.machines.iter().map(|(what, count)| format!("{what} {count}")).collect()));
    println!("checks: {}", listed(summary.watched.iter().map(|(name, count)| format!("{name} {count}")).collect()));
    let fired = summary.points.iter().filter(|(_, (_, fired))| *fired > 0);
    println!("fault points: {}", listed(fired.map(|(name, (_, fired))| format!("{name} {fired}")).collect()));
    let limits = summary.small_limits.iter().map(|(name, limit)| format!("{name} {limit}"));
    println!("small limits: {}", listed(limits.collect()));
}

fn end(seed: u64, arguments: &Arguments, verdict: &Verdict) -> ! {
    let (hash, events) = trace::end();
    if let Verdict::Broken(failure) = verdict {
        for line in trace::concerning(&failure.about) {
            print!("| {line}");
        }
    }
    println!("{events} events");
    if *verdict == Verdict::Held {
        println!("seed {seed} ok trace {hash:016x}");
        std::process::exit(0);
    }
    println!("to repeat it: cargo xtask sim {}", repeating(seed, arguments));
    println!("seed {seed} {verdict}");
    std::process::exit(1);
}

/// The arguments that repeat the run, with a trace.
fn repeating(seed: u64, arguments: &Arguments) -> String {
    let mut words = format!("--seed {seed}");
    if let Some(scenario) = arguments.scenario {
        words.push_str(&format!(" --scenario {}", scenario.name()));
    }
    if let Some((name, _)) = &arguments.need {
        words.push_str(&format!(" --need {name}"));
    }
    if let Some(bug) = &arguments.plant {
        words.push_str(&format!(" --plant '{bug}'"));
    }
    words + " --trace FILE"
}

/// A panic in any task of any node fails the run. Report it here: unwinding would destroy the simulation first.
fn fail_at_panic(panic: &std::panic::PanicHookInfo<'_>) {
    if terrane_env::sim::host().is_some_and(terrane_env::sim::is_exiting) {
        // The process has ended itself; until the host is restarted, its other tasks miss the one that ended.
        return;
    }
    let payload = panic.payload();
    let said = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    if std::env::var_os("RUST_BACKTRACE").is_some() {
        eprintln!("{}", std::backtrace::Backtrace::force_capture());
    }
    let what = format!("panic at {place}: {}", said.unwrap_or("no message"));
    let arguments = ARGUMENTS.with_borrow(Clone::clone).unwrap_or_default();
    end(arguments.seed.unwrap_or_default(), &arguments, &Verdict::Broken(Failure::new(what)));
}
