//! `hbase bench`: rates, and the processor time of servers and client for each row; alone, or beside another cluster that
//! speaks HBase's protocol, with the same program in the same run.
//!
//! The other cluster is started by its owner, is measured first and can be stopped by a command before ours starts, so that
//! neither takes processor time or ports from the other. Figures of two runs are not compared: machines differ from hour to
//! hour.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use terrane_lab::{DevCluster, run};

use super::SOURCES;

/// Time limit of all workloads on one cluster.
const BENCH_MAX: Duration = Duration::from_secs(1_800);

/// Rows, unless it is said how many.
const ROWS: u64 = 300_000;

// What is measured. A comment for the documentation would become that of the whole command.
#[derive(Args)]
pub struct Asked {
    /// Rows or columns; by default as many as the part finds enough.
    #[arg(long, value_name = "N")]
    pub rows: Option<u64>,
    /// Length of each workload of `bench`.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub seconds: u64,
    /// Workloads of `bench` (default: all).
    #[arg(long, value_name = "A,..", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// The directory with the hbase-site.xml of another cluster, which runs.
    #[arg(long, value_name = "DIR")]
    beside: Option<PathBuf>,
    /// The ids of its processes, whose processor time is measured.
    #[arg(long, value_name = "PID,..", requires = "beside")]
    beside_processes: Option<String>,
    /// A command for a shell that stops it.
    #[arg(long, value_name = "COMMAND", requires = "beside")]
    beside_stop: Option<String>,
}

impl Asked {
    pub fn beside(&self) -> Option<Beside> {
        let (processes, stop) = (self.beside_processes.clone().unwrap_or_default(), self.beside_stop.clone());
        self.beside.clone().map(|site| Beside { site, processes, stop })
    }
}

/// Another cluster.
pub struct Beside {
    pub site: PathBuf,
    pub processes: String,
    pub stop: Option<String>,
}

impl Beside {
    /// The beginning of a class path with its site.
    fn class_path(&self) -> anyhow::Result<String> {
        ensure!(self.site.join("hbase-site.xml").is_file(), "{} has no hbase-site.xml", self.site.display());
        Ok(format!("{}:", self.site.display()))
    }

    /// Runs a program on it, and stops it, if it is known how.
    pub fn measure<T>(&self, measure: impl FnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        println!("beside, with {}", self.site.display());
        let measured = measure(&self.class_path()?)?;
        if let Some(stop) = &self.stop {
            let stopped = Command::new("sh").args(["-c", stop]).status().context("stopping the other cluster")?;
            ensure!(stopped.success(), "{stop:?} ended with {stopped}");
        }
        Ok(measured)
    }
}

/// Runs a program on the other cluster, if there is one, and then on a new one of ours; returns what it prints on ours, and on
/// the other. The program is made from the beginning of its class path and from the ids of the processes.
pub fn on_both(
    binary: &Path,
    asked: &Asked,
    limit: Duration,
    program: impl Fn(&str, &str) -> anyhow::Result<Command>,
) -> anyhow::Result<(String, Option<String>)> {
    let said = |output: Output| {
        ensure!(output.status.success(), "the program failed: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).context("its output is text")
    };
    let theirs = |beside: Beside| beside.measure(|path| said(run(&mut program(path, &beside.processes)?, limit)?));
    let theirs = asked.beside().map(theirs).transpose()?;
    let cluster = DevCluster::start(binary, &["--hbase"])?;
    let ours = said(cluster.run(&mut program("", &cluster.process.pid().to_string())?, limit)?)?;
    cluster.stop()?;
    Ok((ours, theirs))
}

/// One line of the program.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    workload: String,
    rate: f64,
    /// Microseconds of the servers' and of the client's processor time for each row, and of the median call.
    server: f64,
    client: f64,
    median: f64,
}

pub fn run_all(root: &Path, binary: &Path, jars: &Path, asked: &Asked) -> anyhow::Result<()> {
    let (ours, theirs) = on_both(binary, asked, BENCH_MAX, |path, processes| {
        ensure!(!processes.is_empty(), "--beside needs --beside-processes, whose processor time is measured");
        let mut java = Command::new("java");
        java.args(["-Xmx1500m", "-cp"]).arg(format!("{path}{}/*", jars.display()));
        java.arg(root.join(SOURCES).join("Bench.java"));
        java.args([asked.rows.unwrap_or(ROWS).to_string(), asked.seconds.to_string(), processes.to_owned()]);
        java.args(&asked.workloads);
        Ok(java)
    })?;
    print!("{}{ours}", theirs.as_deref().unwrap_or_default());
    if let Some(theirs) = theirs {
        print!("{}", compared(&lines(&ours), &lines(&theirs)));
    }
    Ok(())
}

/// The lines of the program's table.
fn lines(said: &str) -> Vec<Line> {
    let line = |text: &str| {
        let mut words = text.split_whitespace();
        let workload = words.next()?.to_owned();
        let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        let &[rate, server, client, median] = &numbers[..] else { return None };
        Some(Line { workload, rate, server, client, median })
    };
    said.lines().filter_map(line).collect()
}

/// Both tables side by side. A ratio of rates above 1 is in our favour, one of processor time below 1.
fn compared(ours: &[Line], theirs: &[Line]) -> String {
    let mut text = String::from(
        "\n| workload | beside /s | ours /s | ratio | server us: beside | ours | ratio | p50 us: beside | ours |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for our in ours {
        let Some(their) = theirs.iter().find(|their| their.workload == our.workload) else { continue };
        let (rates, times) = (our.rate / their.rate, our.server / their.server);
        text.push_str(&format!(
            "| {} | {:.0} | {:.0} | {rates:.2} | {:.2} | {:.2} | {times:.2} | {:.0} | {:.0} |\n",
            our.workload, their.rate, our.rate, their.server, our.server, their.median, our.median
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tables_become_one_with_ratios() {
        let heading = "workload         rows/s  server us/row  client us/row     p50 us\n";
        let ours = lines(&format!("{heading}get64             42000          15.50          28.00       1200\n"));
        let theirs =
            lines(&format!("{heading}get64             21000          62.00          28.00       2400\nx 1 2 3 4\n"));
        assert_eq!((ours.len(), theirs.len()), (1, 2));
        let text = compared(&ours, &theirs);
        assert!(text.ends_with("| get64 | 21000 | 42000 | 2.00 | 62.00 | 15.50 | 0.25 | 2400 | 1200 |\n"), "{text}");
    }
}
