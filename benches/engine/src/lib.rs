//! Workloads that compare storage engines, over one small trait: the same rows in the same order for every store.
//!
//! Our engine, sled and RocksDB (from the separate package `benches/rocksdb`) run one after another in one process, with
//! one thread of load and equal block caches and write buffers. `docs/performance.md` and the README quote the results.
//!
//! # What makes the figures comparable
//! - Every key, value and choice is a function of the seed: see `data.rs`.
//! - Answers are checked: a get that misses its row, or a scan that returns too few rows, ends the run.
//! - Every workload is bounded in operations and in time; the report marks one that ran out of time.
//! - Figures include generating keys and values; the report states that cost.
//!
//! Not covered: servers, log and network (see `terrane bench`), several threads of load, and `fsync`: our engine has no log
//! of its own, so the other stores run without theirs.

pub mod command;
mod data;
mod error;
mod machine;
mod meter;
mod options;
mod report;
mod runner;
mod subject;
mod subjects;
mod workload;

use std::path::Path;

pub use error::{Error, SubjectError};
pub use machine::Machine;
pub use meter::Latency;
pub use options::{Compaction, Options};
pub use report::{Measurement, Report};
pub use subject::{Contender, Open, Settings, Subject};
pub use subjects::contenders;
pub use workload::Workload;

use data::Rows;

/// Progress, for a line on the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The store being measured.
    pub subject: &'static str,
    /// The workload.
    pub workload: Workload,
}

/// Runs the workloads on each contender in turn. Blocks for minutes and builds its own runtimes, so do not call it from
/// inside one.
///
/// # Errors
/// [`Error::Subject`] when a store fails, [`Error::Wrong`] when it returns a wrong answer, [`Error::Io`] for the directory.
/// The contender's directory is removed in any case.
pub fn run(options: &Options, contenders: &[Contender], progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    let rows = Rows::new(options.rows, options.seed);
    let mut report = Report::new(Machine::here(), options, runner::making_cost(&rows));
    for contender in contenders {
        let dir = match &options.dir {
            Some(parent) => tempfile::tempdir_in(parent),
            None => tempfile::tempdir(),
        };
        let dir = dir.map_err(|cause| Error::Io { doing: "create a directory for the store", cause })?;
        run_one(options, contender, &rows, dir.path(), progress, &mut report)?;
        dir.close().map_err(|cause| Error::Io { doing: "remove the store's directory", cause })?;
    }
    Ok(report)
}

fn run_one(
    options: &Options,
    contender: &Contender,
    rows: &Rows,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
    report: &mut Report,
) -> Result<(), Error> {
    report.introduce(contender);
    let mut runner = runner::Runner::new(options, contender, rows, dir);
    for workload in Workload::ALL {
        progress(Progress { subject: contender.name, workload });
        let measured = runner.run(workload)?;
        report.extend(measured);
    }
    runner.finish()
}

#[cfg(test)]
mod tests;
