//! HBase's own clients against `terrane dev --hbase`: a program that checks what it reads, HBase's PerformanceEvaluation,
//! and a benchmark.
//!
//! They come from Maven, once, into `target/hbase`; they need Java, Maven and a way to a Maven repository. If one of those
//! is missing, the part fails when it is requested, and is skipped with a message in `check`, because nothing else needs
//! Java.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::dev_cluster::{self, DevCluster};
use crate::processes;

const SOURCES: &str = "hbase/java";
/// Time limits: for fetching jars in seconds, for the checking program, for one command of PerformanceEvaluation, and for
/// all workloads of the benchmark.
const FETCH_SECONDS_MAX: &str = "300";
const SMOKE_SECONDS_MAX: &str = "240";
const EVALUATION_MAX: Duration = Duration::from_secs(300);
const BENCH_MAX: Duration = Duration::from_secs(1_800);
/// PerformanceEvaluation's commands, in an order in which reads find rows, each with so many clients.
const COMMANDS: [(&str, u32); 20] = [
    ("sequentialWrite", 4),
    ("randomWrite", 4),
    ("asyncSequentialWrite", 1),
    ("asyncRandomWrite", 1),
    ("sequentialRead", 2),
    ("randomRead", 4),
    ("asyncRandomRead", 2),
    ("scan", 2),
    ("asyncScan", 2),
    ("reverseScan", 1),
    ("scanRange10", 2),
    ("scanRange100", 2),
    ("scanRange1000", 1),
    ("filterScan", 1),
    ("randomSeekScan", 1),
    ("increment", 4),
    ("append", 2),
    ("checkAndMutate", 2),
    ("checkAndPut", 2),
    ("checkAndDelete", 2),
];
/// Of each client. Scans with filters read the whole table for each of them.
const EVALUATION_ROWS: u32 = 500;
const EVALUATION_CLASS: &str = "org.apache.hadoop.hbase.PerformanceEvaluation";
/// What logs of PerformanceEvaluation, which prints its results there.
const LOGGING: &str = "\
log4j.rootLogger=WARN,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.target=System.err
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%p %c{1}: %m%n
log4j.logger.org.apache.hadoop.hbase.PerformanceEvaluation=INFO
";

/// A binary to run, and what to run against it.
struct Request {
    parts: Vec<String>,
    binary: Option<PathBuf>,
    rows: u64,
    seconds: u64,
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

/// As part of `check`: the program that checks what it reads, unless something that it needs is missing.
pub fn check_succeeds(root: &Path) -> bool {
    let jars = match jars(root, "client") {
        Ok(jars) => jars,
        Err(missing) => {
            eprintln!("HBase's Java client: skipped: {missing:#}");
            return true;
        }
    };
    let checked = dev_cluster::build(root).and_then(|programs| smoke(root, &programs.join("terrane"), &jars));
    checked.inspect_err(|error| eprintln!("{error:#}")).is_ok()
}

fn parse(arguments: &[String]) -> anyhow::Result<Request> {
    let mut request = Request { parts: Vec::new(), binary: None, rows: 300_000, seconds: 20 };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--binary" => request.binary = Some(value()?.into()),
            "--rows" => request.rows = value()?.parse().context("--rows takes a number")?,
            "--seconds" => request.seconds = value()?.parse().context("--seconds takes a number")?,
            "smoke" | "evaluation" | "bench" => request.parts.push(word.clone()),
            other => bail!("{other} is none of smoke, evaluation, bench, --binary, --rows, --seconds"),
        }
    }
    if request.parts.is_empty() {
        request.parts = vec!["smoke".to_owned(), "evaluation".to_owned()];
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
            "evaluation" => evaluation(root, &binary)?,
            _ => bench(root, &binary, request)?,
        }
    }
    Ok(())
}

/// The directory with the jars of a part, fetched unless it is complete.
fn jars(root: &Path, part: &str) -> anyhow::Result<PathBuf> {
    for program in ["java", "mvn"] {
        let found = Command::new(program).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        ensure!(found.is_ok_and(|status| status.success()), "{program} is not installed");
    }
    let sources = root.join(SOURCES);
    let pom = if part == "client" { sources.join("pom.xml") } else { sources.join(part).join("pom.xml") };
    let wanted = fs::read_to_string(&pom).context("reading which jars are needed")?;
    let directory = processes::target_directory(root).join("hbase").join(part);
    // Written last, so that a partial directory is never used.
    let complete = directory.join("complete.xml");
    if fs::read_to_string(&complete).is_ok_and(|fetched| fetched == wanted) {
        return Ok(directory);
    }
    println!("hbase: fetching the jars of {}", pom.display());
    let mut fetch = Command::new("timeout");
    fetch.args([FETCH_SECONDS_MAX, "mvn", "-B", "-q", "-f"]).arg(&pom);
    fetch.arg("dependency:copy-dependencies").arg(format!("-DoutputDirectory={}", directory.display()));
    let fetched = fetch.stdin(Stdio::null()).stdout(Stdio::null()).status().context("running mvn")?;
    ensure!(fetched.success(), "Maven cannot fetch what {} lists; is a repository reachable?", pom.display());
    fs::write(&complete, wanted).context("marking the jars as complete")?;
    Ok(directory)
}

fn smoke(root: &Path, binary: &Path, jars: &Path) -> anyhow::Result<()> {
    let mut program = Command::new("timeout");
    program.arg(SMOKE_SECONDS_MAX).arg(root.join(SOURCES).join("run")).arg(binary).env("HBASE_CLIENT_JARS", jars);
    ensure!(processes::succeeds(&mut program), "HBase's Java client does not find what it expects");
    Ok(())
}

/// Runs every command of PerformanceEvaluation on a cluster, and prints the time of each.
fn evaluation(root: &Path, binary: &Path) -> anyhow::Result<()> {
    let jars = jars(root, "evaluation")?;
    let logging = tempfile::tempdir().context("creating a directory for the configuration")?;
    fs::write(logging.path().join("log4j.properties"), LOGGING).context("writing the configuration")?;
    let cluster = DevCluster::start_for_hbase(binary)?;
    let mut failed = Vec::new();
    for (command, clients) in COMMANDS {
        let mut java = Command::new("java");
        java.args(["-Xmx1g", "--add-opens", "java.base/java.nio=ALL-UNNAMED"]);
        java.args(["--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp"]);
        java.arg(format!("{}:{}/*", logging.path().display(), jars.display())).arg(EVALUATION_CLASS);
        java.args(["--nomapred", &format!("--rows={EVALUATION_ROWS}"), "--presplit=12", command, &clients.to_string()]);
        let output = cluster.run(&mut java, EVALUATION_MAX)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        match summary(&said) {
            Some(millis) if output.status.success() => println!("{command} {clients}: {millis} ms"),
            _ => {
                println!("{command} {clients}: FAILED");
                let about = said.lines().filter(|line| line.contains("xception"));
                about.take(3).for_each(|line| println!("  {line}"));
                failed.push(command);
            }
        }
    }
    cluster.stop()?;
    ensure!(failed.is_empty(), "PerformanceEvaluation fails: {}", failed.join(", "));
    Ok(())
}

/// The times in the last line of a successful command: `[RandomReadTest] Summary of timings (ms): [12, 13]`.
fn summary(said: &str) -> Option<String> {
    if said.lines().any(|line| line.contains("Exception")) {
        return None;
    }
    let line = said.lines().find(|line| line.contains("Summary of timings") && !line.ends_with("[]"))?;
    let times = line.rsplit_once(": [")?.1.trim_end_matches(']').trim();
    (!times.is_empty()).then(|| times.to_owned())
}

fn bench(root: &Path, binary: &Path, request: &Request) -> anyhow::Result<()> {
    let jars = jars(root, "client")?;
    let cluster = DevCluster::start_for_hbase(binary)?;
    let mut java = Command::new("java");
    java.args(["-Xmx1500m", "-cp"]).arg(format!("{}/*", jars.display()));
    java.arg(root.join(SOURCES).join("Bench.java"));
    java.args([request.rows.to_string(), request.seconds.to_string(), cluster.process().to_string()]);
    let output = cluster.run(&mut java, BENCH_MAX)?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    ensure!(output.status.success(), "the benchmark failed: {}", String::from_utf8_lossy(&output.stderr));
    cluster.stop()
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
        assert_eq!((request.rows, request.seconds), (7, 2));
        assert_eq!(parse(&[]).unwrap().parts, ["smoke", "evaluation"]);
        for wrong in ["what", "--rows", "--rows x"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_command_has_succeeded_if_it_summed_up_and_nothing_failed() {
        let well = "INFO: [RandomReadTest] Summary of timings (ms): [12, 13]\n";
        assert_eq!(summary(well).as_deref(), Some("12, 13"));
        assert_eq!(summary(&format!("java.io.IOException: no\n{well}")), None);
        assert_eq!(summary(""), None);
    }
}
