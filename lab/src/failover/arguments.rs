//! The command line of `cargo xtask failover`.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, value_parser};

use super::faults::{FAULTS, Fault};

/// The gap that clients see in each region when a server, a disk or a master fails.
#[derive(Args)]
pub struct Asked {
    /// A fault to cause; can be repeated (default: all).
    #[arg(long = "fault", value_name = "NAME", value_parser = fault)]
    faults: Vec<&'static Fault>,
    /// Runs of each fault.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = value_parser!(u32).range(1..=1_000))]
    pub runs: u32,
    /// An even number of masters tolerates no more failures than one less.
    #[arg(long, value_name = "1|3|5", default_value = "3", value_parser = masters)]
    pub masters: u16,
    /// Three replicas need three servers.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u16).range(3..=20))]
    pub servers: u16,
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=1_000))]
    pub regions: u32,
    /// Client tasks that read and write.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1_000))]
    pub tasks: u32,
    /// Data in the log when all processes are restarted.
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = value_parser!(u32).range(1..=16_384))]
    pub log_mib: u32,
    /// Print one JSON object per fault.
    #[arg(long)]
    pub json: bool,
    /// Measure this binary instead of the release build.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
}

impl Asked {
    pub fn faults(&self) -> Vec<&'static Fault> {
        if self.faults.is_empty() { FAULTS.iter().collect() } else { self.faults.clone() }
    }
}

fn fault(name: &str) -> anyhow::Result<&'static Fault> {
    let names = || FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>().join(" ");
    FAULTS.iter().find(|fault| fault.name == name).with_context(|| format!("the faults are {}", names()))
}

fn masters(number: &str) -> anyhow::Result<u16> {
    number.parse().ok().filter(|number| [1, 3, 5].contains(number)).context("use 1, 3 or 5")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Asked,
    }

    fn parsed(line: &str) -> Result<Asked, clap::Error> {
        Line::try_parse_from(["failover"].into_iter().chain(line.split_whitespace())).map(|line| line.asked)
    }

    #[test]
    fn without_flags_every_fault_runs_nine_times() {
        let asked = parsed("").unwrap();
        assert_eq!((asked.faults().len(), asked.runs, asked.servers, asked.regions), (FAULTS.len(), 9, 5, 100));
    }

    #[test]
    fn faults_are_named() {
        let asked = parsed("--fault kill --fault stop --runs 2 --json").unwrap();
        assert_eq!(asked.faults().iter().map(|fault| fault.name).collect::<Vec<_>>(), ["kill", "stop"]);
        assert!(asked.json && asked.runs == 2);
    }

    #[test]
    fn mistakes_are_refused() {
        for line in ["--fault fire", "--runs 0", "--runs x", "--masters 2", "--servers 2", "--runs", "--colour red"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
