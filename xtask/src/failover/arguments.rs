//! The command line of `cargo xtask failover`.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use super::faults::{FAULTS, Fault};

pub const USAGE: &str =
    "usage: cargo xtask failover [--fault NAME].. [--runs N] [--masters N] [--servers N] [--regions N]
           [--tasks N] [--log-mib N] [--binary FILE] [--json]";

/// Runs of each fault.
const RUNS_DEFAULT: u32 = 9;
const RUNS_MAX: u32 = 1_000;
/// The default cluster.
const MASTERS_DEFAULT: u16 = 3;
const SERVERS_DEFAULT: u16 = 5;
const REGIONS_DEFAULT: u32 = 100;
const TASKS_DEFAULT: u32 = 64;
/// Data in the log when all processes are restarted.
const LOG_MIB_DEFAULT: u32 = 1_024;

/// The parsed command line.
pub struct Asked {
    pub faults: Vec<&'static Fault>,
    pub runs: u32,
    pub masters: u16,
    pub servers: u16,
    pub regions: u32,
    /// Client tasks that read and write.
    pub tasks: u32,
    pub log_mib: u32,
    pub json: bool,
    /// Measure this binary instead of the release build.
    pub binary: Option<PathBuf>,
}

pub fn parse(arguments: &[String]) -> anyhow::Result<Asked> {
    let mut asked = Asked {
        faults: Vec::new(),
        runs: RUNS_DEFAULT,
        masters: MASTERS_DEFAULT,
        servers: SERVERS_DEFAULT,
        regions: REGIONS_DEFAULT,
        tasks: TASKS_DEFAULT,
        log_mib: LOG_MIB_DEFAULT,
        json: false,
        binary: None,
    };
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        if flag == "--json" {
            asked.json = true;
            continue;
        }
        let value = arguments.next().with_context(|| format!("{flag} takes a value, or is unknown"))?;
        match flag.as_str() {
            "--fault" => asked.faults.push(fault(value)?),
            "--runs" => asked.runs = number(flag, value, RUNS_MAX)?,
            "--masters" => asked.masters = number(flag, value, 5)?,
            "--servers" => asked.servers = number(flag, value, 20)?,
            "--regions" => asked.regions = number(flag, value, 1_000)?,
            "--tasks" => asked.tasks = number(flag, value, 1_000)?,
            "--log-mib" => asked.log_mib = number(flag, value, 16_384)?,
            "--binary" => asked.binary = Some(value.into()),
            _ => bail!("there is no flag {flag}"),
        }
    }
    ensure!(
        asked.masters % 2 == 1,
        "an even number of masters tolerates no more failures than one less: use 1, 3 or 5"
    );
    ensure!(asked.servers >= 3, "three replicas need three servers");
    if asked.faults.is_empty() {
        asked.faults = FAULTS.iter().collect();
    }
    Ok(asked)
}

fn fault(name: &str) -> anyhow::Result<&'static Fault> {
    let names = || FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>().join(" ");
    FAULTS.iter().find(|fault| fault.name == name).with_context(|| format!("there is no fault `{name}`: {}", names()))
}

fn number<N>(flag: &str, value: &str, max: N) -> anyhow::Result<N>
where
    N: Copy + std::str::FromStr + PartialOrd + From<u8> + std::fmt::Display,
{
    let number = value.parse().ok().filter(|number| (N::from(1)..=max).contains(number));
    number.with_context(|| format!("{flag} takes a number from 1 to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> anyhow::Result<Asked> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn without_flags_every_fault_runs_nine_times() {
        let asked = parsed("").unwrap();
        assert_eq!((asked.faults.len(), asked.runs, asked.servers, asked.regions), (FAULTS.len(), 9, 5, 100));
    }

    #[test]
    fn faults_are_named() {
        let asked = parsed("--fault kill --fault stop --runs 2 --json").unwrap();
        assert_eq!(asked.faults.iter().map(|fault| fault.name).collect::<Vec<_>>(), ["kill", "stop"]);
        assert!(asked.json && asked.runs == 2);
    }

    #[test]
    fn mistakes_are_refused() {
        for line in ["--fault fire", "--runs 0", "--runs x", "--masters 2", "--servers 2", "--runs", "--colour red"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
