//! The command line of `cargo xtask chaos`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

pub const USAGE: &str = "usage: cargo xtask chaos [--seed N] [--minutes M] [--binary FILE]";

const MINUTES_DEFAULT: u32 = 2;
/// The clients' rows and calls are bounded, so a longer run would end without load.
const MINUTES_MAX: u32 = 30;

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub seed: u64,
    /// How long the faults last.
    pub minutes: u32,
    /// Torment this binary instead of a debug build.
    pub binary: Option<PathBuf>,
}

impl Asked {
    /// The command that draws the same faults.
    pub fn replay(&self) -> String {
        let binary = self.binary.as_ref().map_or(String::new(), |binary| format!(" --binary {}", binary.display()));
        format!("cargo xtask chaos --seed {} --minutes {}{binary}", self.seed, self.minutes)
    }
}

pub fn parse(arguments: &[String]) -> anyhow::Result<Asked> {
    let mut asked = Asked { seed: of_the_clock(), minutes: MINUTES_DEFAULT, binary: None };
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{flag} takes a value, or is unknown"))?;
        match flag.as_str() {
            "--seed" => asked.seed = value.parse().ok().context("--seed takes a number")?,
            "--minutes" => {
                let minutes = value.parse().ok().filter(|minutes| (1..=MINUTES_MAX).contains(minutes));
                asked.minutes = minutes.with_context(|| format!("--minutes takes a number from 1 to {MINUTES_MAX}"))?;
            }
            "--binary" => asked.binary = Some(value.into()),
            _ => bail!("there is no flag {flag}"),
        }
    }
    Ok(asked)
}

/// Another seed for each run that does not name one.
fn of_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> anyhow::Result<Asked> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_replay_is_the_same_run() {
        let asked = parsed("--seed 7 --minutes 3 --binary /tmp/t").unwrap();
        assert_eq!((asked.seed, asked.minutes), (7, 3));
        let replay = asked.replay();
        assert_eq!(parsed(replay.strip_prefix("cargo xtask chaos ").unwrap()).unwrap(), asked);
        assert_eq!(parsed("").unwrap().minutes, MINUTES_DEFAULT);
    }

    #[test]
    fn mistakes_are_refused() {
        for line in ["--seed", "--seed x", "--minutes 0", "--minutes 99", "--color red"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
