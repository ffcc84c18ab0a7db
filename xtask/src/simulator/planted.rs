//! Planted bugs: each is a deliberate mistake in production code, and the simulator has to find it. One that is not found is
//! a fault of the harness.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arguments::Request;
use super::many::in_parallel;
use super::program::{Ending, Program};
use crate::changes::Recent;

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

/// How many planted bugs CI tries in files that did not change; each commit selects different ones.
const ROTATING: usize = 10;

/// Looks for the planted bugs that are found quickly: all of them, or those in files that changed recently and some others. A change
/// of the simulator or its checkers makes all due, because they measure them.
pub fn run_quick(
    program: &Program,
    seeds: &Range<u64>,
    request: &Request,
    recent: Option<&Recent>,
    root: &Path,
) -> bool {
    let bugs: Vec<Bug> = bugs(program).into_iter().filter(|bug| bug.quick).collect();
    let measured = |file: &str| ["simulator/src/", "oracle/src/"].iter().any(|folder| file.starts_with(folder));
    let recent = recent.filter(|recent| !recent.any(measured));
    let changed = recent.and_then(|recent| recent.sources(root));
    let due = match (recent, changed) {
        (Some(recent), Some(changed)) => due(&bugs, &changed, recent.commits),
        _ => bugs.iter().collect(),
    };
    println!("{} of {} planted bugs are due", due.len(), bugs.len());
    look_for(program, seeds, &due, request)
}

/// The bugs in these sources, and ten others in rotation.
fn due<'a>(bugs: &'a [Bug], changed: &[String], commits: usize) -> Vec<&'a Bug> {
    let is_near = |bug: &&Bug| {
        let name = format!("\"{}\"", bug.name);
        changed.iter().any(|source| source.contains("planted!(") && source.contains(&name))
    };
    let (near, others): (Vec<&Bug>, Vec<&Bug>) = bugs.iter().partition(is_near);
    let from = (commits * ROTATING).checked_rem(others.len()).unwrap_or(0);
    let rotating = others.iter().cycle().skip(from).take(ROTATING.min(others.len())).copied();
    near.into_iter().chain(rotating).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_in_changed_files_are_due_and_ten_others_that_rotate() {
        let bug = |number: usize| Bug { name: format!("bug {number}"), scenario: "rows".to_owned(), quick: true };
        let bugs: Vec<Bug> = (0..25).map(bug).collect();
        let changed = ["if terrane_env::planted!(\"bug 3\") {".to_owned(), "\"bug 4\" is only named here".to_owned()];
        let mut seen = std::collections::BTreeSet::new();
        for commits in 0..3 {
            let due: Vec<&str> = due(&bugs, &changed, commits).iter().map(|bug| bug.name.as_str()).collect();
            assert_eq!((due[0], due.len()), ("bug 3", 11));
            seen.extend(due.iter().map(|name| (*name).to_owned()));
        }
        assert_eq!(seen.len(), 25, "after three commits all had their turn");
    }

    #[test]
    fn few_bugs_are_each_due_once() {
        let bugs = [Bug { name: "a".to_owned(), scenario: "rows".to_owned(), quick: true }];
        assert_eq!(due(&bugs, &[], 7).len(), 1);
        assert!(due(&[], &[], 7).is_empty());
    }
}
