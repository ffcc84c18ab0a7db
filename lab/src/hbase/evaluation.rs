//! `hbase evaluation`: HBase's PerformanceEvaluation, unchanged.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::DevCluster;

/// Time limit of one command.
const EVALUATION_MAX: Duration = Duration::from_secs(300);
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
pub const LOGGING: &str = "\
log4j.rootLogger=WARN,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.target=System.err
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%p %c{1}: %m%n
log4j.logger.org.apache.hadoop.hbase.PerformanceEvaluation=INFO
";

/// Runs every command of PerformanceEvaluation on a cluster, and prints the time of each.
pub fn run(binary: &Path, jars: &Path) -> anyhow::Result<()> {
    let logging = tempfile::tempdir().context("creating a directory for the configuration")?;
    fs::write(logging.path().join("log4j.properties"), LOGGING).context("writing the configuration")?;
    let cluster = DevCluster::start(binary, &["--hbase"])?;
    let mut failed = Vec::new();
    for (command, clients) in COMMANDS {
        let mut java = java(logging.path(), jars, EVALUATION_CLASS);
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

/// A class of HBase's jars, with a directory that has the configuration of its logs.
pub fn java(logging: &Path, jars: &Path, class: &str) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx1g", "--add-opens", "java.base/java.nio=ALL-UNNAMED"]);
    java.args(["--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp"]);
    java.arg(format!("{}:{}/*", logging.display(), jars.display())).arg(class);
    java
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_succeeded_if_it_summed_up_and_nothing_failed() {
        let well = "INFO: [RandomReadTest] Summary of timings (ms): [12, 13]\n";
        assert_eq!(summary(well).as_deref(), Some("12, 13"));
        assert_eq!(summary(&format!("java.io.IOException: no\n{well}")), None);
        assert_eq!(summary(""), None);
    }
}
