//! `hbase loadtest`: HBase's LoadTestTool, unchanged. It writes rows whose content follows from their keys, and readers verify
//! every cell while writers and updaters go on.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::DevCluster;

use super::evaluation::{LOGGING, java};

/// Time limit of one run.
const RUN_MAX: Duration = Duration::from_secs(300);
const CLASS: &str = "org.apache.hadoop.hbase.util.LoadTestTool";
const TABLE: &str = "load_test";

/// What follows the rows and the table, in this order: writers with readers, then changes of what they wrote.
const RUNS: [(&str, &[&str]); 4] = [
    ("multiput", &["-write", "3:64:4", "-read", "100:4", "-multiput", "-num_regions_per_server", "3"]),
    ("put", &["-skip_init", "-write", "3:64:4", "-read", "100:4"]),
    ("multiget", &["-skip_init", "-read", "100:4", "-multiget_batchsize", "10"]),
    ("update", &["-skip_init", "-update", "30:4:0"]),
];

/// Runs every load over so many rows.
pub fn run(binary: &Path, jars: &Path, rows: u64) -> anyhow::Result<()> {
    let logging = tempfile::tempdir().context("creating a directory for the configuration")?;
    std::fs::write(logging.path().join("log4j.properties"), LOGGING).context("writing the configuration")?;
    let cluster = DevCluster::start(binary, &["--hbase"])?;
    let rows = rows.to_string();
    for (name, arguments) in RUNS {
        let mut java = java(logging.path(), jars, CLASS);
        java.args(["-zk", "127.0.0.1", "-tn", TABLE, "-num_keys", &rows]).args(arguments);
        let output = cluster.run(&mut java, RUN_MAX)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let wrong = complaints(&said);
        ensure!(
            output.status.success() && wrong.is_empty(),
            "LoadTestTool {name}: {}: {}",
            output.status,
            wrong.join(" | ")
        );
        println!("LoadTestTool {name}: {rows} rows, every cell as it should be");
    }
    cluster.stop().map(drop)
}

/// What the tool says about calls that failed and cells that are not what they should be; it ends with success all the same.
fn complaints(said: &str) -> Vec<&str> {
    let is_failure = |line: &&str| {
        let counted = line.strip_prefix("Failed to ").and_then(|rest| rest.split_once("keys: "));
        counted.is_some_and(|(_, count)| count.trim() != "0")
            || line.starts_with("ERROR")
            || line.contains("Exception")
            || line.contains("error")
    };
    said.lines().filter(is_failure).take(5).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_keys_are_complaints() {
        assert_eq!(complaints("Starting to read data...\nFailed to write keys: 0\n"), Vec::<&str>::new());
        assert_eq!(complaints("Failed to update keys: 3\nERROR x: y\n"), ["Failed to update keys: 3", "ERROR x: y"]);
    }
}
