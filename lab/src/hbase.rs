//! `cargo xtask hbase`: HBase's own clients against clusters.
//!
//! They come from Maven, once, into `target/hbase`; they need Java, Maven and a way to a Maven repository. If one of those
//! is missing, the part fails when it is requested, and is skipped with a message in `check`, because nothing else needs
//! Java.

mod bench;
mod clients;
mod evaluation;
mod failover;
mod jars;
mod load_test;
mod tools;
mod wide_row;
mod ycsb;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use clap::Args;
use clap::builder::PossibleValuesParser;
use terrane_lab::builds;

use self::jars::jars;

/// Where the programs and the lists of jars are.
const SOURCES: &str = "hbase/java";
/// Time limit of the checking program.
const SMOKE_SECONDS_MAX: &str = "240";
/// What can be run, in the order in which everything runs; the last two only by name.
const PARTS: [&str; 9] =
    ["smoke", "failover", "ycsb", "loadtest", "tools", "clients", "evaluation", "wide-row", "bench"];
const ONLY_BY_NAME: [&str; 2] = ["wide-row", "bench"];
/// Rows and calls of each YCSB workload: of CI, and otherwise. Rows of LoadTestTool.
const YCSB_SHORT: ycsb::Amount = ycsb::Amount { rows: 500, calls: 1_000 };
const YCSB: ycsb::Amount = ycsb::Amount { rows: 10_000, calls: 20_000 };
const LOAD_TEST_ROWS: u64 = 3_000;

/// HBase's own clients against clusters. They need java and mvn; docs/hbase.md has the parts.
#[derive(Args)]
pub struct Asked {
    /// What to run (default: all but the last two).
    #[arg(value_name = "PART", value_parser = PossibleValuesParser::new(PARTS))]
    parts: Vec<String>,
    /// Check this binary instead of the release build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Rounds of `failover`.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Run what is fast against a debug build, and skip what this machine has not.
    #[arg(long, hide = true)]
    check: bool,
    #[command(flatten)]
    bench: bench::Asked,
}

/// Runs the named parts, or all.
pub fn run(root: &Path, asked: &Asked) -> anyhow::Result<()> {
    if asked.check {
        return check(root);
    }
    let binary = builds::release_unless(asked.binary.as_deref(), root)?;
    let by_default = PARTS.into_iter().filter(|part| !ONLY_BY_NAME.contains(part));
    let parts: Vec<&str> =
        if asked.parts.is_empty() { by_default.collect() } else { asked.parts.iter().map(String::as_str).collect() };
    parts.into_iter().try_for_each(|part| carry_out(root, &binary, part, asked))
}

/// As part of `cargo xtask check`: what is fast, unless something that it needs is missing.
fn check(root: &Path) -> anyhow::Result<()> {
    let fetched = jars(root, "client").and_then(|client| Ok((client, jars(root, "ycsb")?)));
    let (client, ycsb) = match fetched {
        Ok(jars) => jars,
        Err(missing) => {
            eprintln!("HBase's Java client: skipped: {missing:#}");
            return Ok(());
        }
    };
    let binary = builds::debug(root, &["--bin", "terrane"])?.join("terrane");
    smoke(root, &binary, &client)?;
    ycsb::run(root, &binary, &ycsb, YCSB_SHORT, None)?;
    match jars(root, "tools") {
        Ok(jars) => tools::run(root, &binary, &jars),
        Err(missing) => {
            eprintln!("HBase's MapReduce tools: skipped: {missing:#}");
            Ok(())
        }
    }
}

fn carry_out(root: &Path, binary: &Path, part: &str, asked: &Asked) -> anyhow::Result<()> {
    let beside = asked.bench.beside();
    match part {
        "smoke" => smoke(root, binary, &jars(root, "client")?),
        "failover" => failover::run(root, binary, &jars(root, "client")?, asked.rounds),
        "ycsb" => {
            let amount = asked.bench.rows.map_or(YCSB, |rows| ycsb::Amount { rows, calls: rows });
            ycsb::run(root, binary, &jars(root, "ycsb")?, amount, beside.as_ref())
        }
        "tools" => tools::run(root, binary, &jars(root, "tools")?),
        "loadtest" => load_test::run(binary, &jars(root, "evaluation")?, LOAD_TEST_ROWS),
        "clients" => clients::run(root, binary),
        "evaluation" => evaluation::run(binary, &jars(root, "evaluation")?),
        "wide-row" => wide_row::run(root, binary, &jars(root, "client")?, &asked.bench),
        _ => bench::run_all(root, binary, &jars(root, "client")?, &asked.bench),
    }
}

fn smoke(root: &Path, binary: &Path, jars: &Path) -> anyhow::Result<()> {
    let mut program = Command::new("timeout");
    program.arg(SMOKE_SECONDS_MAX).arg(root.join(SOURCES).join("run")).arg(binary).env("HBASE_CLIENT_JARS", jars);
    ensure!(builds::succeeds(&mut program), "HBase's Java client does not find what it expects");
    Ok(())
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

    #[test]
    fn a_command_line_names_parts_a_binary_and_another_cluster() {
        let parsed = |line: &str| Line::try_parse_from(line.split_whitespace()).map(|line| line.asked);
        let asked =
            parsed("hbase bench --binary x --rows 7 --workloads get64,put64 --beside conf --beside-processes 1,2");
        let asked = asked.unwrap();
        assert_eq!((asked.parts, asked.binary), (vec!["bench".to_owned()], Some("x".into())));
        assert_eq!((asked.bench.rows, asked.bench.seconds, asked.bench.workloads.len()), (Some(7), 20, 2));
        assert_eq!(asked.bench.beside().unwrap().processes, "1,2");
        for wrong in ["hbase what", "hbase --rows", "hbase --rows x", "hbase --beside-stop true"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
