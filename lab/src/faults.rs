//! `cargo xtask faults`: real processes under faults that once stopped a cluster or lost data.
//!
//! Each check starts a master and three region servers of the release build as separate processes, on loopback and in a
//! temporary directory, injects one fault, and prints what it measured. `docs/reliability.md` has the limits and the
//! figures. The checks take minutes and need a quiet machine, so CI does not run them; each bug they found has a test in
//! its crate (`docs/track-record.md`).
//!
//! Every load is bounded in time and count and stays on this machine.

mod behind;
mod clock;
mod counters;
mod deleted_directory;
mod failing_start;
mod full_disk;
mod http2;
mod load;
mod lost_server;
mod masterless;
mod one_client;
mod promised_bodies;
mod split_key;
mod wide_row;
mod wrong_address;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use clap::builder::PossibleValuesParser;
use terrane_lab::builds;

/// The outcome of a check: figures as text, or why it was skipped.
pub enum Verdict {
    Held(String),
    Skipped(String),
}

/// Settings that the checks share.
pub struct Bench {
    /// The release build.
    pub terrane: PathBuf,
    /// Repetitions of a check that depends on chance.
    pub runs: u32,
}

struct Check {
    name: &'static str,
    what: &'static str,
    run: fn(&Bench) -> anyhow::Result<Verdict>,
}

const CHECKS: &[Check] = &[
    Check { name: "split-key", what: "a split at a key of 40,000 bytes is refused", run: split_key::run },
    Check {
        name: "clock",
        what: "a server whose clock is a day ahead leads nothing and expires nothing",
        run: clock::run,
    },
    Check { name: "no-master", what: "servers restart and serve without a master", run: masterless::run },
    Check { name: "wide-row", what: "a row of 200 MB is scanned and refused in bounded memory", run: wide_row::run },
    Check {
        name: "promised-bodies",
        what: "10,000 streams that promise large bodies cost no memory",
        run: promised_bodies::run,
    },
    Check {
        name: "unread-answers",
        what: "a client that reads no answers costs bounded memory and slows no other",
        run: one_client::unread,
    },
    Check {
        name: "silent-clients",
        what: "silent connections and half-sent calls on every port hurt no other client",
        run: one_client::silent,
    },
    Check { name: "full-disk", what: "a follower whose disk is full refuses, and starts again", run: full_disk::run },
    Check {
        name: "lost-server",
        what: "a server is lost with its disk, and the logs of the others have little room: writes continue",
        run: lost_server::run,
    },
    Check {
        name: "failing-start",
        what: "a server that fails at every start is replaced, and a refused setting leaves nothing behind",
        run: failing_start::run,
    },
    Check {
        name: "wrong-address",
        what: "a server whose address does not lead to it holds up no other, and none takes the address of another",
        run: wrong_address::run,
    },
    Check {
        name: "behind",
        what: "a server misses a bulk load and is whole soon after it is back; then any server can stop",
        run: behind::returns,
    },
    Check {
        name: "without-files",
        what: "a server finds the files of a bulk load nowhere: it gets copies, and holds up nothing meanwhile",
        run: behind::without_files,
    },
    Check {
        name: "deleted-directory",
        what: "a server and a master whose data directories are deleted end at once",
        run: deleted_directory::run,
    },
    Check { name: "counters", what: "counters over kill -9 are exact, and every call is answered", run: counters::run },
    Check { name: "stop", what: "SIGTERM under load", run: load::stop },
    Check { name: "hang", what: "SIGSTOP under load", run: load::hang },
    Check { name: "overload", what: "ten times the calls that fill the cluster", run: load::overload },
];

/// Faults that once stopped a cluster or lost data: clocks, disks, kills, overload; takes minutes on a quiet machine.
#[derive(Debug, Args)]
pub struct Asked {
    /// Only these checks (default: all).
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(CHECKS.iter().map(|check| check.name)))]
    names: Vec<String>,
    /// Repetitions of a check that depends on chance.
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u32,
    /// Check this binary instead of the release build, for example an earlier one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Runs the named checks, or all of them.
pub fn run(root: &Path, asked: &Asked) -> anyhow::Result<()> {
    let bench = Bench { terrane: builds::release_unless(asked.binary.as_deref(), root)?, runs: asked.runs };
    let mut broken = Vec::new();
    let is_asked = |check: &&Check| asked.names.is_empty() || asked.names.iter().any(|name| name == check.name);
    for check in CHECKS.iter().filter(is_asked) {
        println!("== {}: {}", check.name, check.what);
        let begun = Instant::now();
        let outcome = (check.run)(&bench);
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(Verdict::Held(figures)) => println!("== {}: held ({seconds:.0} s): {figures}", check.name),
            Ok(Verdict::Skipped(why)) => println!("== {}: skipped: {why}", check.name),
            Err(error) => {
                println!("== {}: BROKEN ({seconds:.0} s): {error:#}", check.name);
                broken.push(check.name);
            }
        }
    }
    ensure!(broken.is_empty(), "broken: {}", broken.join(" "));
    println!("every check held");
    Ok(())
}
