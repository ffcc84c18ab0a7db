//! The differences of two reports, and whether they exceed the noise.
//!
//! The seconds of a run are samples of its rate and of its percentiles. The noise of a mean of samples is its standard error;
//! since neighbouring seconds resemble each other (a compaction lasts longer than one), the number of samples is reduced by
//! their autocorrelation. A difference counts if it exceeds three standard errors of the difference and one per cent. This
//! says what one run can say: two runs of the same build at different hours may differ by more.

use serde::Serialize;

use super::report::{Report, Second};

/// Standard errors that a difference has to exceed.
const ERRORS_MIN: f64 = 3.0;
/// The part of the value before that a difference has to exceed.
const SHARE_MIN: f64 = 0.01;
/// Seconds that a run needs to know its noise.
const SAMPLES_MIN: usize = 5;

/// The differences of two reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub figures: Vec<Figure>,
    /// Parameters that differ: name, before, after.
    pub parameters: Vec<(String, String, String)>,
}

/// One figure of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub figure: &'static str,
    pub before: f64,
    pub after: f64,
    /// The difference in per cent of the value before.
    pub difference_percent: f64,
    /// What a difference has to exceed, in per cent; `null`: it is not known.
    pub noise_percent: Option<f64>,
    pub verdict: Verdict,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Better,
    Worse,
    /// Within the noise.
    Same,
    /// The noise is not known: a run has too few seconds, or the figure has no samples.
    Unknown,
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "within noise",
            Verdict::Unknown => "cannot tell",
        }
    }
}

/// The differences of two reports.
pub fn compare(before: &Report, after: &Report) -> Comparison {
    let samples = |of: fn(&Second) -> f64| (samples(before, of), samples(after, of));
    let (one, other) = (&before.summary, &after.summary);
    let failed = |report: &Report| report.summary.errors as f64 / report.summary.seconds.max(f64::EPSILON);
    let failed_rates = (failed(before), failed(after));
    let figures = vec![
        figure("calls per second", (one.rate, other.rate), Some(samples(|second| second.rate)), true),
        figure(
            "p50, µs",
            (one.p50_us as f64, other.p50_us as f64),
            Some(samples(|second| second.p50_us as f64)),
            false,
        ),
        figure(
            "p99, µs",
            (one.p99_us as f64, other.p99_us as f64),
            Some(samples(|second| second.p99_us as f64)),
            false,
        ),
        figure(
            "p99.9, µs",
            (one.p999_us as f64, other.p999_us as f64),
            Some(samples(|second| second.p999_us as f64)),
            false,
        ),
        figure("longest, µs", (one.max_us as f64, other.max_us as f64), None, false),
        figure("client CPU per call, µs", (one.client_cpu_us, other.client_cpu_us), None, false),
        figure("failed calls per second", failed_rates, Some(samples(|second| second.errors as f64)), false),
    ];
    Comparison { figures, parameters: parameters(before, after) }
}

fn samples(report: &Report, of: fn(&Second) -> f64) -> Vec<f64> {
    report.seconds.iter().map(of).collect()
}

/// The parameters that differ. A run of another workload or rate is no comparison of builds.
fn parameters(before: &Report, after: &Report) -> Vec<(String, String, String)> {
    let (one, other) = (&before.parameters, &after.parameters);
    let rate = |rate: Option<f64>| rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("{rate}/s"));
    let all = [
        ("workload", one.workload.clone(), other.workload.clone()),
        ("mix", one.mix.clone(), other.mix.clone()),
        ("distribution", one.distribution.clone(), other.distribution.clone()),
        ("table", one.filled_with.clone(), other.filled_with.clone()),
        ("rate", rate(one.rate), rate(other.rate)),
        ("in flight", one.in_flight.to_string(), other.in_flight.to_string()),
        ("seconds", one.seconds.to_string(), other.seconds.to_string()),
        ("scan rows", one.scan_rows.to_string(), other.scan_rows.to_string()),
        ("batch", one.batch.to_string(), other.batch.to_string()),
    ];
    let differ = all.into_iter().filter(|(_, one, other)| one != other);
    differ.map(|(name, one, other)| (name.to_owned(), one, other)).collect()
}

fn figure(
    figure: &'static str,
    (before, after): (f64, f64),
    samples: Option<(Vec<f64>, Vec<f64>)>,
    more_is_better: bool,
) -> Figure {
    let noise = samples.and_then(|(one, other)| {
        let error = standard_error(&one)?.hypot(standard_error(&other)?);
        Some((ERRORS_MIN * error).max(SHARE_MIN * before.abs()))
    });
    let difference = after - before;
    let verdict = match noise {
        None if difference == 0.0 => Verdict::Same,
        None => Verdict::Unknown,
        Some(noise) if difference.abs() <= noise => Verdict::Same,
        Some(_) if (difference > 0.0) == more_is_better => Verdict::Better,
        Some(_) => Verdict::Worse,
    };
    let percent = |part: f64| if before == 0.0 { 0.0 } else { (part / before * 1_000.0).round() / 10.0 };
    Figure {
        figure,
        before,
        after,
        difference_percent: percent(difference),
        noise_percent: noise.map(percent),
        verdict,
    }
}

/// The standard error of the mean of neighbouring samples; `None` with too few of them.
fn standard_error(samples: &[f64]) -> Option<f64> {
    if samples.len() < SAMPLES_MIN {
        return None;
    }
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (count - 1.0);
    if variance == 0.0 {
        return Some(0.0);
    }
    let products: f64 = samples.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    let correlation = (products / ((count - 1.0) * variance)).clamp(0.0, 0.9);
    let independent = count * (1.0 - correlation) / (1.0 + correlation);
    Some((variance / independent).sqrt())
}

impl Figure {
    /// The figure as a row of a table: itself, before, after, difference, noise, verdict.
    pub fn row(&self) -> Vec<String> {
        let number = |number: f64| {
            let whole = crate::output::grouped(number as u64);
            if number < 100.0 && number.fract() != 0.0 { format!("{number:.2}") } else { whole }
        };
        vec![
            self.figure.to_owned(),
            number(self.before),
            number(self.after),
            if self.before == 0.0 { "-".to_owned() } else { format!("{:+.1} %", self.difference_percent) },
            self.noise_percent.map_or_else(|| "-".to_owned(), |noise| format!("±{noise:.1} %")),
            self.verdict.text().to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;
    use crate::random::Random;

    /// Seconds whose rates vary by ten per cent around a mean, and whose medians are its inverse.
    fn seconds(seed: u64, mean: f64, count: usize) -> Vec<(f64, u64)> {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let varied = |random: &mut Random| mean * (0.95 + random.below(1_000) as f64 / 10_000.0);
        (0..count).map(|_| varied(&mut random)).map(|rate| (rate, (1e7 / rate) as u64)).collect()
    }

    fn verdicts(before: &[(f64, u64)], after: &[(f64, u64)]) -> Vec<Verdict> {
        let comparison = compare(&report("ycsb-a", before), &report("ycsb-a", after));
        comparison.figures.iter().take(2).map(|figure| figure.verdict).collect()
    }

    #[test]
    fn noise_makes_no_difference_and_a_change_does() {
        for seed in 0..20 {
            let before = seconds(seed, 1_000.0, 30);
            assert_eq!(verdicts(&before, &seconds(seed + 100, 1_000.0, 30)), [Verdict::Same; 2], "seed {seed}");
            assert_eq!(verdicts(&before, &seconds(seed + 200, 1_200.0, 30)), [Verdict::Better; 2], "seed {seed}");
            assert_eq!(verdicts(&before, &seconds(seed + 300, 850.0, 30)), [Verdict::Worse; 2], "seed {seed}");
        }
    }

    #[test]
    fn short_runs_say_nothing() {
        let (before, after) = (seconds(1, 1_000.0, 4), seconds(2, 2_000.0, 30));
        assert_eq!(verdicts(&before, &after), [Verdict::Unknown; 2]);
    }

    #[test]
    fn slow_waves_are_noisier_than_independent_seconds() {
        let alternating: Vec<f64> = (0..40).map(|second| f64::from(second % 2) * 10.0).collect();
        let wave: Vec<f64> = (0..40).map(|second| f64::from(second / 10 % 2) * 10.0).collect();
        let (fast, slow) = (standard_error(&alternating).expect("samples"), standard_error(&wave).expect("samples"));
        assert!(slow > 2.0 * fast, "{slow} {fast}");
        assert_eq!(standard_error(&[3.0; 10]), Some(0.0));
    }

    #[test]
    fn a_hundredth_is_not_a_difference_even_without_noise() {
        let steady = |rate: f64| vec![(rate, 100); 10];
        assert_eq!(verdicts(&steady(1_000.0), &steady(1_009.0))[0], Verdict::Same);
        assert_eq!(verdicts(&steady(1_000.0), &steady(1_011.0))[0], Verdict::Better);
    }

    #[test]
    fn parameters_that_differ_are_named() {
        let (one, mut other) = (report("ycsb-a", &[(1.0, 1)]), report("ycsb-b", &[(1.0, 1)]));
        other.parameters.rate = Some(5_000.0);
        let named = compare(&one, &other).parameters;
        let expected = [("workload", "ycsb-a", "ycsb-b"), ("rate", "closed loop", "5000/s")];
        assert_eq!(named, expected.map(|(name, one, other)| (name.to_owned(), one.to_owned(), other.to_owned())));
    }
}
