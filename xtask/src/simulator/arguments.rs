//! The command line of `cargo xtask sim`.

use std::ops::Range;
use std::time::Duration;

/// Seeds tried for a planted bug unless the command line names others.
const PLANTED_SEEDS: Range<u64> = 1..501;

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub enum Mode {
    /// One run; everything goes to the simulator, which checks the words itself.
    One,
    /// Many seeds.
    Many { seeds: Range<u64> },
    /// Each seed twice, to compare traces.
    Twice { seeds: Range<u64> },
    /// Planted bugs: all, or the one named.
    Planted { seeds: Range<u64>, name: Option<String> },
    /// What CI runs.
    Ci,
}

/// A command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub mode: Mode,
    /// Runs at a time; `None`: one per processor.
    pub jobs: Option<usize>,
    /// No run starts after this time.
    pub lasts: Option<Duration>,
    /// Words for each run.
    pub passed: Vec<String>,
}

#[derive(Default)]
struct Words {
    seeds: Option<Range<u64>>,
    from: Option<u64>,
    jobs: Option<usize>,
    lasts: Option<Duration>,
    twice: bool,
    planted: bool,
    ci: bool,
    plant: Option<String>,
    passed: Vec<String>,
}

impl Request {
    /// The request; `None` if the words are wrong.
    pub fn parsed(words: &[String]) -> Option<Request> {
        let named = |name: &str| words.iter().any(|word| word == name);
        if named("--seed") || words == ["--scenario", "list"] {
            return Some(Request { mode: Mode::One, jobs: None, lasts: None, passed: words.to_vec() });
        }
        let words = Words::parsed(words)?;
        let Words { seeds, from, jobs, lasts, twice, planted, ci, plant, mut passed } = words;
        let mode = match (ci, planted, twice, seeds) {
            (true, false, false, None) => Mode::Ci,
            (false, true, false, seeds) => Mode::Planted { seeds: seeds.unwrap_or(PLANTED_SEEDS), name: plant.clone() },
            (false, false, true, Some(seeds)) => Mode::Twice { seeds },
            (false, false, false, Some(seeds)) => Mode::Many { seeds },
            (false, false, false, None) => lasts.map(|_| Mode::Many { seeds: from.unwrap_or(1)..u64::MAX })?,
            _ => return None,
        };
        if let (false, Some(plant)) = (planted, plant) {
            passed.extend(["--plant".to_owned(), plant]);
        }
        Some(Request { mode, jobs, lasts, passed })
    }
}

impl Words {
    fn parsed(words: &[String]) -> Option<Words> {
        let mut parsed = Words::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seeds" => parsed.seeds = Some(seeds(words.next()?)?),
                "--from" => parsed.from = Some(words.next()?.parse().ok()?),
                "--jobs" => parsed.jobs = Some(words.next()?.parse().ok().filter(|jobs| *jobs > 0)?),
                "--minutes" => {
                    let minutes: f64 = words.next()?.parse().ok()?;
                    parsed.lasts = Some(Duration::try_from_secs_f64(minutes * 60.0).ok()?);
                }
                "--twice" => parsed.twice = true,
                "--planted" => parsed.planted = true,
                "--ci" => parsed.ci = true,
                "--plant" => parsed.plant = Some(words.next()?.clone()),
                "--scenario" | "--workload" | "--until" | "--need" => {
                    parsed.passed.extend([word.clone(), words.next()?.clone()])
                }
                "--wire" => parsed.passed.push(word.clone()),
                _ => return None,
            }
        }
        Some(parsed)
    }
}

/// The seeds of `A..B`, excluding B.
fn seeds(text: &str) -> Option<Range<u64>> {
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?).filter(|seeds| !seeds.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Request> {
        Request::parsed(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn one_run_gets_all_words() {
        let request = parsed("--seed 7 --trace /tmp/t").unwrap();
        assert_eq!((request.mode, request.passed.len()), (Mode::One, 4));
    }

    #[test]
    fn many_runs_need_a_range_of_seeds_or_a_time() {
        let request = parsed("--seeds 3..7 --scenario counters --jobs 2").unwrap();
        assert_eq!(request.mode, Mode::Many { seeds: 3..7 });
        assert_eq!((request.jobs, request.passed), (Some(2), vec!["--scenario".to_owned(), "counters".to_owned()]));
        assert_eq!(parsed("--minutes 0.5 --from 9").unwrap().mode, Mode::Many { seeds: 9..u64::MAX });
        assert_eq!(parsed("--seeds 1..4 --twice").unwrap().mode, Mode::Twice { seeds: 1..4 });
        for wrong in
            ["", "--seeds", "--seeds 3", "--seeds 3..3", "--seeds a..b", "--jobs 0 --seeds 1..2", "7", "--what"]
        {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn planted_bugs_are_all_or_one() {
        assert_eq!(parsed("--planted").unwrap().mode, Mode::Planted { seeds: PLANTED_SEEDS, name: None });
        let request = parsed("--planted --plant x --seeds 1..3").unwrap();
        assert_eq!(request.mode, Mode::Planted { seeds: 1..3, name: Some("x".to_owned()) });
        assert!(request.passed.is_empty());
        assert_eq!(parsed("--seeds 1..3 --plant x").unwrap().passed, ["--plant", "x"]);
        assert_eq!(parsed("--ci --planted"), None);
    }
}
