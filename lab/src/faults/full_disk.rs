//! A disk too small for its server: the other servers continue; the full one reports it, serves reads and restarts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Size, eventually};

use super::{Bench, Verdict};

/// Enough for two log segments, the reserve and little more.
const DISK: &str = "320m";
const RESERVE: &str = "128MiB";

/// A separate file system, unmounted when dropped.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    fn mount(at: &Path) -> Option<SmallDisk<'_>> {
        std::fs::create_dir_all(at).ok()?;
        let options = format!("size={DISK}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output().ok()?;
        mounted.status.success().then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily: a process killed a moment ago may still hold it.
        if let Err(error) = Command::new("umount").arg("--lazy").arg(self.0).status() {
            eprintln!("cannot unmount {}: {error}", self.0.display());
        }
    }
}

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::planned(&bench.terrane, Size::SMALL, &[])?;
    let directory = cluster.server_directory(0);
    let Some(disk) = SmallDisk::mount(&directory) else {
        return Ok(Verdict::Skipped("mounting a tmpfs needs root".to_owned()));
    };
    cluster.servers[0].add_flags(&["--disk-reserve", RESERVE]);
    cluster.start_all()?;
    let flags = ["bench", "load", "--table", "t", "--rows", "900000", "--value-bytes", "1000", "--timeout", "60s"];
    let (summary, well, errors) = cluster.load(&flags)?.finish()?;
    ensure!(well && summary["rows"] == 900_000, "the other servers do not continue: {summary} {errors}");
    let trouble = eventually("status names the full server", || cluster.issue("disk_full"))?;
    let full = &mut cluster.servers[0];
    ensure!(!full.has_ended(), "the full server ended: {}", full.messages());
    full.kill();
    full.start().context("the full server does not restart")?;
    let count = cluster.json(&["count", "t"])?;
    ensure!(count["count"] == 900_000, "rows are missing: {count}");
    drop(cluster);
    drop(disk);
    Ok(Verdict::Held(format!(
        "900,000 rows were acknowledged beside the full server, which restarted; status: {trouble}"
    )))
}
