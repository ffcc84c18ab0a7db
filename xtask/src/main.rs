//! `cargo xtask`: the repository's own checks and tools, in Rust so that they need only the toolchain.
//!
//! - `check` runs what CI runs and changes nothing; `quick` what is worth running after each change; `fix` applies mechanical
//!   changes.
//! - `tidy` checks the rules that the compiler does not (see [`tidy`]).
//! - `examples` and `python` run the examples, in Rust and in Python, against a `terrane dev` cluster.
//! - `faults`, `failover`, `chaos`, `scale`, `containers` and `hbase` run the laboratory (`lab/`), whose drivers start clusters of real
//!   processes.
//! - `fuzz` builds the fuzz driver and runs its targets.
//! - `sim` builds the simulator and runs one seed, or many.
//! - `interleavings` runs the tests of threads that race, under many schedules.
//! - `book` builds the documents as a book, and checks its links.
//! - `dist` builds the binary that ships.
//! - `manifests` checks the files for Kubernetes and Compose against their schemas.
//! - `package` checks the crates that are published.
//!
//! Exit status: 0 success, 1 a step failed, 2 wrong command line.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool for the checkout that never runs in a node or in the simulation"
)]

mod book;
mod changes;
mod dist;
mod examples;
mod fuzz;
mod interleavings;
mod lab;
mod manifests;
mod markdown;
mod package;
mod python;
mod quick;
mod simulator;
mod steps;
mod tidy;
mod virtual_environment;

use std::process::ExitCode;

use terrane_lab::builds::root;

const USAGE: &str = "usage: cargo xtask COMMAND

  check            what CI runs: format, lints, documents, tidy, the book, tests, simulated environment, simulator, interleavings,
                   packages, manifests, examples, Python, HBase's client, two minutes of chaos. Some of it depends on what
                   changed in the last commits; --all: everything
  quick [CRATE ..] format, tidy, clippy and fast tests of the crates that changed, or of those named
  fix              format the sources
  tidy             the repository's own rules; `--arrows CRATE` prints its import cycles in full
  examples         run every Rust example against a cluster
  python           run the Python example against a cluster
  faults [NAME ..] real processes under faults: clocks, disks, kills, overload; takes minutes on a quiet machine
                   (--runs N: repetitions of checks that depend on chance, default 20;
                   --binary FILE: check this build)
  failover         the gap that clients see in each region when a server, a disk or a master fails (--fault NAME,
                   --runs N: of each fault, default 9, --masters N, --servers N, --regions N, --tasks N,
                   --log-mib N: before a restart, --binary FILE, --json)
  chaos            random kills, stops, drains, moves, splits and merges under load, and a check of everything that the
                   clients saw (--seed N: draws the same faults, --minutes M: of faults, default 2, --binary FILE)
  scale            3, 6 and 9 servers under load: how rows, leaderships and replicas spread, the gap that clients see
                   meanwhile, and the processor time per call (--seconds N: of each load, --regions N, --tasks N,
                   --binary FILE, --json)
  containers       the image around a binary, and the compose file with it, as containers of podman: commands, stops, kills,
                   restrictions (--binary FILE). It needs root, podman, a runtime such as runc, and python3
  fuzz             every fuzz target for a while (--target NAME --executions N --minutes M --seed S; docs/testing.md)
  hbase [PART ..]  HBase's own clients against clusters: `smoke` (a program that checks what it reads), `failover` (while
                   servers fail; --rounds N), `ycsb`, `loadtest` (HBase's LoadTestTool), `tools` (its MapReduce tools),
                   `clients` (others than HBase's), `evaluation` (its PerformanceEvaluation), `wide-row` (--rows N: columns of its one row),
                   `bench` (--rows N, --seconds N: of each workload, --workloads A,.., --beside DIR: an hbase-site.xml of a
                   running HBase); default: all but the last two (--binary FILE: this build). They need java and mvn; docs/hbase.md
  book             the documents as a book, in target/book/html, with every link checked (needs mdbook)
  manifests        the files for Kubernetes and Compose against their schemas; needs python3 and a package index
  dist             the stripped release binary and its debug information, in target/dist; prints the size
  package          the client's packages, compiled from what they contain, and the number of its dependencies
  interleavings    races inside a process, under many schedules; arguments select tests, as for `cargo test`
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", &[] as &[String]),
    };
    match (command, rest) {
        ("interleavings", rest) => interleavings::run(&root(), rest),
        (driver, rest) if lab::NAMES.contains(&driver) => lab::run(&root(), driver, rest),
        ("fuzz", rest) => fuzz::run(&root(), rest),
        ("check", []) => steps::check(&root(), false),
        ("check", [all]) if all == "--all" => steps::check(&root(), true),
        ("quick", named) => steps::quick(&root(), named),
        ("book", []) => steps::book_alone(&root()),
        ("dist", []) => dist::run(&root()),
        ("manifests", []) => steps::manifests_alone(&root()),
        ("package", []) => package::run(&root()),
        ("fix", []) => steps::fix(&root()),
        ("tidy", [flag, package]) if flag == "--arrows" => steps::arrows(&root(), package),
        ("tidy", []) => steps::tidy_alone(&root()),
        ("examples", []) => steps::examples_alone(&root()),
        ("python", []) => steps::python_alone(&root()),
        ("sim", rest) => simulator::run(&root(), rest).unwrap_or_else(wrong),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}{}", simulator::USAGE);
            ExitCode::SUCCESS
        }
        _ => wrong(),
    }
}

fn wrong() -> ExitCode {
    eprintln!("{USAGE}{}", simulator::USAGE);
    ExitCode::from(2)
}
