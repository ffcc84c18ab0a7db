//! What many runs had in total: verdicts, faults, fault points, and the processor time they took.

use std::collections::BTreeMap;

use super::program::{Ending, Run};

/// Prefixes of the lines in a run's output that list counts.
const FAULTS: &str = "faults: ";
const MACHINES: &str = "machines: ";
const POINTS: &str = "fault points: ";
/// So many runs must contain every kind of fault.
const RUNS_WITH_ALL_FAULTS: u64 = 300;

/// The totals so far.
#[derive(Default)]
pub struct Totals {
    runs: u64,
    simulated_seconds: f64,
    faults: BTreeMap<String, u64>,
    machines: BTreeMap<String, u64>,
    points: BTreeMap<String, u64>,
    /// Kinds of faults that never struck, though there were runs enough.
    missing: Vec<String>,
    broken: Vec<u64>,
    not_proven: Vec<u64>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, run: &Run) {
        self.runs += 1;
        match run.ending {
            Ending::Held => {}
            Ending::Broken => self.broken.push(run.seed),
            Ending::NotProven => self.not_proven.push(run.seed),
        }
        for line in run.output.lines() {
            if let Some(listed) = line.strip_prefix(FAULTS) {
                add_counts(&mut self.faults, listed);
            } else if let Some(listed) = line.strip_prefix(MACHINES) {
                add_counts(&mut self.machines, listed);
            } else if let Some(listed) = line.strip_prefix(POINTS) {
                add_counts(&mut self.points, listed);
            } else if let Some((seconds, _)) = line.split_once(" simulated s") {
                self.simulated_seconds += seconds.parse::<f64>().unwrap_or_default();
            }
        }
    }

    /// Compares the faults that struck with all kinds there are.
    pub fn expect_faults(&mut self, kinds: &[String]) {
        let missing = kinds.iter().filter(|kind| !self.faults.contains_key(*kind)).cloned();
        self.missing = missing.collect();
    }

    /// Whether every run held, and many runs contained every kind of fault.
    pub fn well(&self) -> bool {
        let complete = self.missing.is_empty() || self.runs < RUNS_WITH_ALL_FAULTS;
        self.broken.is_empty() && self.not_proven.is_empty() && complete
    }

    /// Prints the totals; `cpu_seconds` is what all runs took, where the system says so.
    pub fn print(&mut self, cpu_seconds: Option<f64>) {
        self.broken.sort_unstable();
        self.not_proven.sort_unstable();
        println!("faults: {}", listed(&self.faults));
        println!("machines: {}", listed(&self.machines));
        println!("fault points: {}", listed(&self.points));
        println!("kinds of faults that never struck: {:?}", self.missing);
        let runs = self.runs.max(1) as f64;
        let struck = self.faults.values().sum::<u64>() as f64;
        let cost = cpu_seconds.map_or_else(String::new, |seconds| format!(", {:.2} core-seconds", seconds / runs));
        println!(
            "a run on average: {:.1} simulated s, {:.1} faults{cost}",
            self.simulated_seconds / runs,
            struck / runs
        );
        let (broken, not_proven) = (&self.broken, &self.not_proven);
        let held = self.runs - broken.len() as u64 - not_proven.len() as u64;
        println!(
            "{} seeds: {held} held, {} broken {broken:?}, {} not proven {not_proven:?}",
            self.runs,
            broken.len(),
            not_proven.len()
        );
    }
}

/// Adds the counts of a line like `held link 2, power cut 1`.
fn add_counts(counts: &mut BTreeMap<String, u64>, listed: &str) {
    for entry in listed.split(", ") {
        if let Some((name, count)) = entry.rsplit_once(' ')
            && let Ok(count) = count.parse::<u64>()
        {
            *counts.entry(name.to_owned()).or_default() += count;
        }
    }
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// Processor seconds that ended children of this process took; `None` where the system does not say.
pub fn children_cpu_seconds() -> Option<f64> {
    /// Clock ticks a second, which Linux fixes for this file.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain spaces; the fields after it are numbered from 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    Some((field(16)? + field(17)?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_runs_are_added_up() {
        let mut totals = Totals::default();
        let output = "25.5 simulated s, 7 operations\nfaults: held link 2, power cut 1\nfault points: none\nseed 1 ok";
        for (seed, ending) in [(1, Ending::Held), (2, Ending::Broken), (3, Ending::NotProven)] {
            totals.add(&Run { seed, output: output.to_owned(), ending });
        }
        assert_eq!(listed(&totals.faults), "held link 6, power cut 3");
        assert!(totals.points.is_empty());
        assert!(!totals.well());
        assert_eq!((totals.broken, totals.not_proven), (vec![2], vec![3]));
    }
}
