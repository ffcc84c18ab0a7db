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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

use self::jars::jars;
use crate::dev_cluster;
use crate::processes;

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

/// A binary to run, and what to run against it.
struct Request {
    parts: Vec<String>,
    binary: Option<PathBuf>,
    bench: bench::Asked,
    rounds: u32,
}

/// `cargo xtask hbase`.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let outcome = parse(arguments).and_then(|request| carry_out(root, &request));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether a change of this file can change what HBase's clients see: the protocol, and what it stands on in a region server.
pub fn is_about(file: &str) -> bool {
    file.contains("hbase") || file.starts_with("regionserver/src/edge")
}

/// As part of `check`: what is fast, unless something that it needs is missing.
pub fn check_succeeds(root: &Path) -> bool {
    let fetched = jars(root, "client").and_then(|client| Ok((client, jars(root, "ycsb")?)));
    let (client, ycsb) = match fetched {
        Ok(jars) => jars,
        Err(missing) => {
            eprintln!("HBase's Java client: skipped: {missing:#}");
            return true;
        }
    };
    let checked = dev_cluster::build(root).and_then(|programs| {
        let binary = programs.join("terrane");
        smoke(root, &binary, &client)?;
        ycsb::run(root, &binary, &ycsb, YCSB_SHORT, None)?;
        match jars(root, "tools") {
            Ok(jars) => tools::run(root, &binary, &jars),
            Err(missing) => {
                eprintln!("HBase's MapReduce tools: skipped: {missing:#}");
                Ok(())
            }
        }
    });
    checked.inspect_err(|error| eprintln!("{error:#}")).is_ok()
}

fn parse(arguments: &[String]) -> anyhow::Result<Request> {
    let mut request = Request { parts: Vec::new(), binary: None, bench: bench::Asked::default(), rounds: 3 };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--binary" => request.binary = Some(value()?.into()),
            "--rounds" => request.rounds = value()?.parse().context("--rounds takes a number")?,
            part if PARTS.contains(&part) => request.parts.push(word.clone()),
            flag if flag.starts_with("--") => bench::flag(&mut request.bench, flag, value()?)?,
            other => bail!("{other} is none of {}", PARTS.join(", ")),
        }
    }
    if request.parts.is_empty() {
        request.parts =
            PARTS.iter().filter(|part| !ONLY_BY_NAME.contains(part)).map(|part| (*part).to_owned()).collect();
    }
    Ok(request)
}

fn carry_out(root: &Path, request: &Request) -> anyhow::Result<()> {
    let binary = match &request.binary {
        Some(binary) => fs::canonicalize(binary).with_context(|| format!("finding {}", binary.display()))?,
        None => processes::release_binary(root).context("terrane does not build")?,
    };
    for part in &request.parts {
        match part.as_str() {
            "smoke" => smoke(root, &binary, &jars(root, "client")?)?,
            "failover" => failover::run(root, &binary, &jars(root, "client")?, request.rounds)?,
            "ycsb" => {
                let amount = request.bench.rows.map_or(YCSB, |rows| ycsb::Amount { rows, calls: rows });
                ycsb::run(root, &binary, &jars(root, "ycsb")?, amount, request.bench.beside.as_ref())?;
            }
            "tools" => tools::run(root, &binary, &jars(root, "tools")?)?,
            "loadtest" => load_test::run(&binary, &jars(root, "evaluation")?, LOAD_TEST_ROWS)?,
            "clients" => clients::run(root, &binary)?,
            "evaluation" => evaluation::run(&binary, &jars(root, "evaluation")?)?,
            "wide-row" => wide_row::run(root, &binary, &jars(root, "client")?, &request.bench)?,
            _ => bench::run(root, &binary, &jars(root, "client")?, &request.bench)?,
        }
    }
    Ok(())
}

fn smoke(root: &Path, binary: &Path, jars: &Path) -> anyhow::Result<()> {
    let mut program = Command::new("timeout");
    program.arg(SMOKE_SECONDS_MAX).arg(root.join(SOURCES).join("run")).arg(binary).env("HBASE_CLIENT_JARS", jars);
    ensure!(processes::succeeds(&mut program), "HBase's Java client does not find what it expects");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_command_line_names_parts_and_a_binary() {
        let request = parse(&words("bench --binary x --rows 7 --seconds 2")).unwrap();
        assert_eq!((request.parts, request.binary), (vec!["bench".to_owned()], Some("x".into())));
        assert_eq!((request.bench.rows, request.bench.seconds), (Some(7), 2));
        assert_eq!(
            parse(&[]).unwrap().parts,
            ["smoke", "failover", "ycsb", "loadtest", "tools", "clients", "evaluation"]
        );
        for wrong in ["what", "--rows", "--rows x"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
