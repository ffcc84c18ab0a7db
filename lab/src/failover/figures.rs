//! What the runs of one fault showed: percentiles and a histogram of the gaps, and what exceeds the bounds.

use serde_json::{Value, json};

/// Upper bounds of the histogram's classes in milliseconds; the last class has none.
const CLASSES_MS: [f64; 13] =
    [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 1_500.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0];

/// The largest figures that a fault may cause, in milliseconds. No call may fail, and no check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// The 99th percentile of the regions' gaps.
    pub p99: Option<f64>,
    /// The longest gap of any region.
    pub max: Option<f64>,
    /// The longest time without any answer.
    pub silence: Option<f64>,
    /// Until a namespace can be created again.
    pub administration: Option<f64>,
}

/// One run, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The longest gap of each region.
    pub gaps: Vec<f64>,
    pub silence: f64,
    pub longest_call: f64,
    pub administration: Option<f64>,
    pub failed: u64,
    pub violations: u64,
    /// Answered calls per second.
    pub rate: f64,
}

/// All runs of a fault.
#[derive(Clone, Debug)]
pub struct Figures {
    pub fault: &'static str,
    pub runs: Vec<Run>,
}

impl Figures {
    /// A quantile of the regions' gaps in the run where it is largest.
    pub fn worst_quantile(&self, share: f64) -> f64 {
        self.worst(|run| quantile(&run.gaps, share))
    }

    /// The figure of the run where it is largest.
    pub fn worst(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(figure).fold(0.0, f64::max)
    }

    pub fn failed(&self) -> u64 {
        self.runs.iter().map(|run| run.failed).sum()
    }

    pub fn violations(&self) -> u64 {
        self.runs.iter().map(|run| run.violations).sum()
    }

    pub fn administration(&self) -> Option<f64> {
        self.runs.iter().filter_map(|run| run.administration).reduce(f64::max)
    }

    /// What exceeds the bounds, as text.
    pub fn excesses(&self, bounds: &Bounds) -> Vec<String> {
        let mut excesses = Vec::new();
        let limits = [
            ("p99 of the gaps", self.worst_quantile(0.99), bounds.p99),
            ("longest gap", self.worst_quantile(1.0), bounds.max),
            ("time without any answer", self.worst(|run| run.silence), bounds.silence),
            ("administration back", self.administration().unwrap_or(0.0), bounds.administration),
        ];
        for (what, found, bound) in limits {
            if let Some(bound) = bound.filter(|bound| found > *bound) {
                excesses.push(format!("{what} {found:.0} ms, bound {bound:.0} ms"));
            }
        }
        for (what, count) in [("failed calls", self.failed()), ("violations", self.violations())] {
            if count > 0 {
                excesses.push(format!("{count} {what}"));
            }
        }
        excesses
    }

    /// The regions of all runs by their gaps: the upper bound of each class (`None`: the last) and its regions.
    pub fn histogram(&self) -> Vec<(Option<f64>, usize)> {
        let bounds = CLASSES_MS.iter().copied().map(Some).chain([None]);
        let mut classes: Vec<(Option<f64>, usize)> = bounds.map(|bound| (bound, 0)).collect();
        for gap in self.runs.iter().flat_map(|run| &run.gaps) {
            let class = CLASSES_MS.iter().position(|bound| gap <= bound).unwrap_or(CLASSES_MS.len());
            classes[class].1 += 1;
        }
        classes
    }

    pub fn json(&self, excesses: &[String]) -> Value {
        json!({
            "fault": self.fault,
            "runs": self.runs.len(),
            "p50_ms": self.worst_quantile(0.5),
            "p99_ms": self.worst_quantile(0.99),
            "max_ms": self.worst_quantile(1.0),
            "silence_ms": self.worst(|run| run.silence),
            "longest_call_ms": self.worst(|run| run.longest_call),
            "administration_ms": self.administration(),
            "failed": self.failed(),
            "violations": self.violations(),
            "histogram": self.histogram(),
            "held": excesses.is_empty(),
            "excesses": excesses,
        })
    }
}

/// The smallest number that this share of the numbers does not exceed; 0 for none.
pub fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gaps: &[f64]) -> Run {
        Run { gaps: gaps.to_vec(), ..Run::default() }
    }

    #[test]
    fn quantiles_are_by_rank() {
        let numbers: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| quantile(&numbers, share)), [50.0, 99.0, 100.0]);
        assert_eq!((quantile(&[7.0], 0.5), quantile(&[], 0.5)), (7.0, 0.0));
    }

    #[test]
    fn the_worst_run_counts() {
        let mut gaps = vec![1.0; 98];
        gaps.extend([900.0, 1_800.0]);
        let figures = Figures { fault: "kill", runs: vec![run(&[3.0; 100]), run(&gaps)] };
        assert_eq!([0.5, 0.99, 1.0].map(|share| figures.worst_quantile(share)), [3.0, 900.0, 1_800.0]);
        let bounds = |p99, max| Bounds { p99: Some(p99), max: Some(max), ..Bounds::default() };
        assert!(figures.excesses(&bounds(900.0, 1_800.0)).is_empty());
        assert_eq!(figures.excesses(&bounds(899.0, 1_700.0)).len(), 2);
    }

    #[test]
    fn failed_calls_and_violations_are_excesses_of_every_fault() {
        let failed = Run { failed: 2, violations: 1, ..run(&[1.0]) };
        let figures = Figures { fault: "stop", runs: vec![run(&[1.0]), failed] };
        assert_eq!(figures.excesses(&Bounds::default()), ["2 failed calls", "1 violations"]);
    }

    #[test]
    fn every_region_of_every_run_is_in_one_class() {
        let figures = Figures { fault: "kill", runs: vec![run(&[0.0, 5.0, 5.1]), run(&[900.0, 99_999.0])] };
        let filled: Vec<_> = figures.histogram().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(Some(5.0), 2), (Some(10.0), 1), (Some(1_000.0), 1), (None, 1)]);
    }
}
