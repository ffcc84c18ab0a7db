//! `hbase tools`: HBase's MapReduce tools, unchanged: CopyTable with all cells, Export with deleted rows and Import, WALPlayer,
//! HashTable and SyncTable. Jobs run in one process. What each tool leaves is compared with what it leaves in HBase.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::DevCluster;

use super::SOURCES;
use super::evaluation::{LOGGING, java};

/// Time limit of all tools.
const RUN_MAX: Duration = Duration::from_secs(400);
const PROGRAM: &str = "Tools.java";

/// Runs every tool, with calls of several sizes.
pub fn run(root: &Path, binary: &Path, jars: &Path) -> anyhow::Result<()> {
    let work = tempfile::tempdir().context("creating a directory for the tools")?;
    fs::write(work.path().join("log4j.properties"), LOGGING).context("writing the configuration")?;
    let cluster = DevCluster::start(binary, &["--hbase"])?;
    let mut program = java(work.path(), jars, &root.join(SOURCES).join(PROGRAM).display().to_string());
    // The local runner leaves links where it is started.
    program.arg(work.path()).current_dir(work.path());
    let output = cluster.run(&mut program, RUN_MAX)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let why = errors.lines().filter(|line| line.contains("xception") || line.contains("error"));
    ensure!(
        output.status.success() && said.lines().any(|line| line == "ok tools"),
        "HBase's tools do not end as on HBase: {}\n{said}{}",
        output.status,
        why.take(5).collect::<Vec<_>>().join("\n")
    );
    println!("CopyTable, Export, Import, WALPlayer, SyncTable: every cell as on HBase 2.6.4");
    cluster.stop().map(drop)
}
