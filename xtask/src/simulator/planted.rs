//! Planted bugs: each is a deliberate mistake in production code, and the simulator has to find it. One that is not found is
//! a fault of the harness.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arguments::Request;
use super::many::in_parallel;
use super::program::{Ending, Program};

/// A planted bug, as the simulator lists it.
struct Bug {
    name: String,
    /// The scenario that ought to find it.
    scenario: String,
    /// Whether CI looks for it.
    quick: bool,
}

/// Looks for all planted bugs, or the one named. Whether all were found.
pub fn run(program: &Program, seeds: &Range<u64>, name: Option<&str>, request: &Request) -> bool {
    let bugs = bugs(program);
    let chosen: Vec<&Bug> = bugs.iter().filter(|bug| name.is_none_or(|name| bug.name == name)).collect();
    if chosen.is_empty() {
        eprintln!("no planted bug has this name; the names are:");
        bugs.iter().for_each(|bug| eprintln!("  {}", bug.name));
        return false;
    }
    look_for(program, seeds, &chosen, request)
}

/// Looks for the planted bugs that are found quickly.
pub fn run_quick(program: &Program, seeds: &Range<u64>, request: &Request) -> bool {
    let bugs = bugs(program);
    look_for(program, seeds, &bugs.iter().filter(|bug| bug.quick).collect::<Vec<_>>(), request)
}

fn look_for(program: &Program, seeds: &Range<u64>, bugs: &[&Bug], request: &Request) -> bool {
    let mut missed = Vec::new();
    for bug in bugs {
        let (tried, found) = (AtomicU64::new(0), Mutex::new(None));
        in_parallel(seeds.clone(), request, |seed| {
            let words = ["--scenario", &bug.scenario, "--plant", &bug.name].map(str::to_owned);
            let run = program.run(seed, &words);
            tried.fetch_add(1, Ordering::Relaxed);
            if run.ending != Ending::Broken {
                return true;
            }
            found.lock().expect("no thread panics while it holds the lock").get_or_insert(run.last_line().to_owned());
            false
        });
        let tried = tried.into_inner();
        match found.into_inner().expect("all threads ended") {
            Some(line) => println!("found     {} ({}), {tried} seeds: {line}", bug.name, bug.scenario),
            None => {
                println!("NOT FOUND {} ({}), {tried} seeds", bug.name, bug.scenario);
                missed.push(bug.name.as_str());
            }
        }
    }
    println!("{} planted bugs: {} found, not found {missed:?}", bugs.len(), bugs.len() - missed.len());
    missed.is_empty()
}

/// The planted bugs that the simulator knows.
fn bugs(program: &Program) -> Vec<Bug> {
    let bug = |line: &str| {
        let mut parts = line.split('\t');
        let (name, scenario) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        Some(Bug { name, scenario, quick: parts.next()? == "quick" })
    };
    program.listed("--plant").iter().filter_map(|line| bug(line)).collect()
}
