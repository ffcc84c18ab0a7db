//! `cargo xtask failover`: how long clients wait, per region, when a process or a disk fails.
//!
//! Each fault strikes a cluster of real processes on loopback while `terrane-lab history` reads, writes and scans all
//! regions and checks every answer. The gap of a region is the longest time during which calls to it waited and none was
//! answered. A fault is tried several times; the worst run counts. A gap above its bound, a failed call, or an answer
//! that contradicts an earlier one makes the command fail. `docs/testing.md` has the bounds and figures.
//!
//! Every load is bounded in time and count and stays on this machine.
//!
//! - `arguments`: the command line;
//! - `faults`: each fault, its bounds, and how it is repaired;
//! - `run`: the runs of one fault; `scene`: what a fault acts on;
//! - `disk`: a file system that can be made to stall; `network`: one that loses the packets of one direction;
//! - `figures`, `table`: what was measured, as plain values and as text.

mod arguments;
mod disk;
mod faults;
mod figures;
mod network;
mod run;
mod scene;
mod table;

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use terrane_lab::builds;

pub use self::arguments::Asked;
use self::figures::Figures;

/// Runs every fault, or the named ones; an error if one does not stay within its bounds.
pub fn run(root: &Path, asked: &Asked) -> anyhow::Result<()> {
    let terrane = builds::release_unless(asked.binary.as_deref(), root)?;
    let mut measured: Vec<Figures> = Vec::new();
    let mut broken = Vec::new();
    for fault in asked.faults() {
        eprintln!("== {}: {}", fault.name, fault.what);
        let begun = Instant::now();
        match run::measure(&terrane, asked, fault) {
            Ok(Some(figures)) => {
                let excesses = figures.excesses(&fault.bounds);
                let verdict = if excesses.is_empty() { "held".to_owned() } else { excesses.join("; ") };
                eprintln!("== {}: {verdict} ({:.0} s)", fault.name, begun.elapsed().as_secs_f64());
                if !excesses.is_empty() {
                    broken.push(fault.name);
                }
                if asked.json {
                    println!("{}", figures.json(&excesses));
                }
                measured.push(figures);
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!("== {}: BROKEN: {error:#}", fault.name);
                broken.push(fault.name);
            }
        }
    }
    if !asked.json {
        print!("{}", table::text(&measured));
    }
    ensure!(broken.is_empty(), "broken: {}", broken.join(" "));
    Ok(())
}
