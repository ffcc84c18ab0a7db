//! Jars from Maven, fetched once into `target/hbase`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use terrane_lab::builds::{succeeds, target_directory};
use terrane_lab::process::quietly;

use super::SOURCES;

/// Time limit in seconds.
const FETCH_SECONDS_MAX: &str = "300";

/// The directory with the jars of a part, fetched unless it is complete.
pub fn jars(root: &Path, part: &str) -> anyhow::Result<PathBuf> {
    for program in ["java", "mvn"] {
        ensure!(quietly(Command::new(program).arg("-version")), "{program} is not installed");
    }
    let sources = root.join(SOURCES);
    let pom = if part == "client" { sources.join("pom.xml") } else { sources.join(part).join("pom.xml") };
    let wanted = fs::read_to_string(&pom).context("reading which jars are needed")?;
    let directory = target_directory(root).join("hbase").join(part);
    // Written last, so that a partial directory is never used.
    let complete = directory.join("complete.xml");
    if fs::read_to_string(&complete).is_ok_and(|fetched| fetched == wanted) {
        return Ok(directory);
    }
    println!("hbase: fetching the jars of {}", pom.display());
    let mut fetch = Command::new("timeout");
    fetch.args([FETCH_SECONDS_MAX, "mvn", "-B", "-q", "-f"]).arg(&pom);
    fetch.arg("dependency:copy-dependencies").arg(format!("-DoutputDirectory={}", directory.display()));
    let fetched = succeeds(fetch.stdin(Stdio::null()).stdout(Stdio::null()));
    ensure!(fetched, "Maven cannot fetch what {} lists; is a repository reachable?", pom.display());
    fs::write(&complete, wanted).context("marking the jars as complete")?;
    Ok(directory)
}
