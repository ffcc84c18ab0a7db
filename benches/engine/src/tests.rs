//! The workloads over a store that is a map: complete, and quick to detect a wrong answer.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

use super::*;

thread_local! {
    /// Where the stores of this thread keep their rows, because a contender is opened by a plain function.
    static KEPT: Cell<BTreeMap<Vec<u8>, Vec<u8>>> = const { Cell::new(BTreeMap::new()) };
}

#[derive(Clone, Copy, PartialEq)]
enum Lie {
    None,
    Forgets,
    FindsAnything,
    CutsScans,
}

struct Map {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    lie: Lie,
    compacting: Cell<u32>,
}

fn open(lie: Lie) -> Result<Box<dyn Subject>, SubjectError> {
    Ok(Box::new(Map { rows: KEPT.take(), lie, compacting: Cell::new(0) }))
}

impl Subject for Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SubjectError> {
        self.rows.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn put_batch(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), SubjectError> {
        assert!(rows.is_sorted(), "batches are sorted");
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<bool, SubjectError> {
        Ok(match self.lie {
            Lie::Forgets => false,
            Lie::FindsAnything => true,
            Lie::None | Lie::CutsScans => self.rows.contains_key(key),
        })
    }

    fn scan(&self, start: &[u8], limit: usize, reverse: bool) -> Result<usize, SubjectError> {
        let limit = if self.lie == Lie::CutsScans { limit - 1 } else { limit };
        Ok(if reverse {
            self.rows.range(..=start.to_vec()).rev().take(limit).count()
        } else {
            self.rows.range(start.to_vec()..).take(limit).count()
        })
    }

    fn drain(&mut self) -> Result<(), SubjectError> {
        Ok(())
    }

    fn compact(&mut self) -> Result<(), SubjectError> {
        Ok(())
    }

    fn start_compaction(&mut self) -> Result<bool, SubjectError> {
        self.compacting.set(1);
        Ok(true)
    }

    fn compacting(&self) -> bool {
        // For one check.
        self.compacting.replace(0) > 0
    }

    fn close(self: Box<Self>) -> Result<(), SubjectError> {
        KEPT.set(self.rows);
        Ok(())
    }
}

pub(crate) fn options() -> Options {
    Options {
        rows: 3_000,
        batch_rows: 2_000,
        gets: 500,
        scans: 50,
        seconds: 3_600,
        cache_mib: 1,
        write_buffer_mib: 1,
        compaction: Compaction::Full,
        seed: 7,
        dir: None,
    }
}

fn run_with(options: &Options, open: Open) -> Result<Report, Error> {
    run(options, &[Contender { name: "map", about: "a map", open }], &mut |_| ())
}

#[test]
fn every_workload_is_measured_in_full() {
    let report = run_with(&options(), |_, _| open(Lie::None)).unwrap();
    let workloads: Vec<_> = report.measurements().iter().map(|measured| measured.workload).collect();
    assert_eq!(workloads, Workload::ALL);
    let of = |workload| report.measurements().iter().find(|measured| measured.workload == workload).unwrap();
    assert!(report.measurements().iter().all(|measured| measured.complete));
    assert_eq!((of(Workload::Batches).operations, of(Workload::Batches).rows), (2, 2_000));
    assert_eq!(of(Workload::Inserts).latency.unwrap().count, 3_000);
    assert_eq!(of(Workload::Compact).data_bytes, Some(3_000 * 140));
    assert_eq!((of(Workload::Gets).operations, of(Workload::AbsentGets).operations), (500, 500));
    assert_eq!((of(Workload::Scans).rows, of(Workload::ReverseScans).rows), (5_000, 5_000));
    assert_eq!(of(Workload::FullScan).rows, 3_000);
    let puts = of(Workload::PutsInCompaction);
    assert!(puts.in_compaction.is_some_and(|latency| latency.count <= puts.operations), "{puts:?}");
}

#[test]
fn no_more_compaction_than_asked_for() {
    let options = Options { compaction: Compaction::Settled, ..options() };
    let report = run_with(&options, |_, _| open(Lie::None)).unwrap();
    assert!(report.measurements().iter().all(|measured| measured.workload != Workload::Compact));
}

#[test]
fn a_workload_that_has_no_time_is_cut_short_and_says_so() {
    let options = Options { seconds: 0, ..options() };
    let error = run_with(&options, |_, _| open(Lie::None)).unwrap_err();
    assert!(matches!(error, Error::Wrong { workload: Workload::Inserts, .. }), "{error}");
}

#[test]
fn wrong_answers_end_the_run() {
    let wrong = |open: Open| match run_with(&options(), open) {
        Err(Error::Wrong { workload, what, .. }) => (workload, what),
        other => panic!("{other:?}"),
    };
    let (workload, what) = wrong(|_, _| open(Lie::Forgets));
    assert_eq!(workload, Workload::Gets);
    assert!(what.starts_with("did not find user0"), "{what}");
    assert_eq!(wrong(|_, _| open(Lie::FindsAnything)).0, Workload::AbsentGets);
    assert_eq!(wrong(|_, _| open(Lie::CutsScans)).0, Workload::Scans);
}

#[test]
fn a_stores_own_error_comes_with_where_it_happened() {
    let refuse = |_: &Path, _: &Settings| Err(SubjectError::new("the disk is full"));
    let error = run_with(&options(), refuse).unwrap_err();
    assert!(matches!(error, Error::Subject { subject: "map", workload: Workload::Batches, .. }), "{error:?}");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the disk is full");
}
