//! The engine's workloads, over one small trait: the same rows in the same order for every store that is compared.
//!
//! The engine, sled and (from a package of its own, `benches/rocksdb`) RocksDB each take their turn in one process, on one
//! thread of load, with equal block caches and write buffers. `docs/performance.md` and the README quote what comes out.
//!
//! # What makes the figures comparable
//! - Every key, value and choice is a function of the seed: see `data.rs`.
//! - Answers are checked: a get that does not find its row, or a scan that is short of rows, ends the run.
//! - Every workload is bounded, in operations and in time; one that ran out of time says so in the report.
//! - Figures contain the making of keys and values. The report says what that costs.
//!
//! Left out: servers, log and network (`terrane bench` has them), several threads of load, and the time of `fsync`: none
//! of the stores has a log of its own here, as ours does not.

pub mod command;
mod data;
mod error;
mod machine;
mod meter;
mod options;
mod report;
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

/// What is going on, for a line on the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Who is measured.
    pub subject: &'static str,
    /// By what.
    pub workload: Workload,
}

/// Runs the workloads on each contender in turn. It blocks for minutes and builds runtimes of its own: call it from
/// outside of any, or on a thread for blocking work.
///
/// # Errors
/// [`Error::Subject`] when a store fails, [`Error::Wrong`] when it answers wrongly, [`Error::Io`] for the directory. The
/// directory of the contender at hand is removed all the same.
pub fn run(options: &Options, contenders: &[Contender], progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    let rows = Rows::new(options.rows, options.seed);
    let mut report = Report::new(Machine::here(), options, workload::making_cost(&rows));
    for contender in contenders {
        let dir = match &options.dir {
            Some(parent) => tempfile::tempdir_in(parent),
            None => tempfile::tempdir(),
        };
        let dir = dir.map_err(|cause| Error::Io { doing: "make a directory for the store", cause })?;
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
    let mut course = workload::Course::new(options, contender, rows, dir);
    for workload in Workload::ALL {
        progress(Progress { subject: contender.name, workload });
        let measured = course.run(workload)?;
        report.extend(measured);
    }
    course.finish()
}

#[cfg(test)]
mod tests;
