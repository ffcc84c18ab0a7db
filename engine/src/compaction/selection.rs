//! Which files must be compacted together, and which must not be touched meanwhile.
//!
//! Callers make a choice; it is completed downwards here until no row's log is cut, and refused when a running job is
//! in the way. Completion only goes down, never back up: where a deeper file extends beyond the chosen one, the rows it
//! has there are newer above, and stay above.
//!
//! # When two jobs may run at once
//! They share no file, and either their row ranges are disjoint, or their levels are, or one of them joins files within
//! level 0 without being passed: what another job takes from level 0 in the same rows must then be older than the
//! joined run.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use super::{FileSummary, Job, Plan, Reason, Rewrite, Tree};

/// The running jobs of a tree, looked up once per decision.
pub(super) struct RunningJobs<'a> {
    files: BTreeSet<u64>,
    jobs: Vec<JobSpan<'a>>,
}

/// The rows, levels and places that a job covers.
struct JobSpan<'a> {
    first_row: &'a [u8],
    last_row: &'a [u8],
    levels: RangeInclusive<usize>,
    /// Its inputs in level 0, by place.
    level0: Option<RangeInclusive<usize>>,
}

impl JobSpan<'_> {
    fn joins_within_level0(&self) -> bool {
        *self.levels.end() == 0
    }

    fn overlaps(&self, other: &JobSpan<'_>) -> bool {
        self.first_row <= other.last_row && self.last_row >= other.first_row
    }

    /// Whether another job takes cells past this run of level 0: the newest of them must be older than the run.
    fn is_passed_by(&self, other: &JobSpan<'_>) -> bool {
        match (&self.level0, &other.level0) {
            (Some(run), Some(taken)) => taken.end() > run.start(),
            _ => false,
        }
    }

    fn conflicts(&self, other: &JobSpan<'_>) -> bool {
        if !self.overlaps(other) {
            return false;
        }
        match (self.joins_within_level0(), other.joins_within_level0()) {
            // Each leaves its cells in their place.
            (true, true) => false,
            (true, false) => self.is_passed_by(other),
            (false, true) => other.is_passed_by(self),
            (false, false) => self.levels.start() <= other.levels.end() && self.levels.end() >= other.levels.start(),
        }
    }
}

impl<'a> RunningJobs<'a> {
    pub(super) fn of(tree: &'a Tree) -> Self {
        let files = tree.busy.iter().flat_map(|job| job.files.iter().copied()).collect();
        let jobs = tree.busy.iter().filter_map(|job| reach_of_job(tree, job)).collect();
        Self { files, jobs }
    }

    pub(super) fn is_free(&self, file: &FileSummary) -> bool {
        !self.files.contains(&file.id)
    }

    /// Whether the selection may run concurrently with all running jobs.
    fn admits(&self, selection: &Selection<'_>) -> bool {
        let reach = selection.reach();
        selection.inputs.iter().all(|input| self.is_free(input.file))
            && !self.jobs.iter().any(|job| job.conflicts(&reach))
    }
}

fn reach_of_job<'a>(tree: &'a Tree, job: &Job) -> Option<JobSpan<'a>> {
    let mut inputs: Vec<Input<'a>> = Vec::new();
    for (place, file) in tree.level0.iter().enumerate() {
        inputs.extend(job.files.contains(&file.id).then_some(Input { level: 0, place, file }));
    }
    for (above, files) in tree.levels.iter().enumerate() {
        let busy = files.iter().enumerate().filter(|(_, file)| job.files.contains(&file.id));
        inputs.extend(busy.map(|(place, file)| Input { level: above + 1, place, file }));
    }
    reach_of(&inputs, job.to_level)
}

fn reach_of<'a>(inputs: &[Input<'a>], to_level: usize) -> Option<JobSpan<'a>> {
    let places = || inputs.iter().filter(|input| input.level == 0).map(|input| input.place);
    Some(JobSpan {
        first_row: inputs.iter().map(|input| &input.file.first_row[..]).min()?,
        last_row: inputs.iter().map(|input| &input.file.last_row[..]).max()?,
        levels: inputs.iter().map(|input| input.level).min()?..=to_level,
        level0: places().min().zip(places().max()).map(|(oldest, newest)| oldest..=newest),
    })
}

#[derive(Clone, Copy)]
struct Input<'a> {
    level: usize,
    place: usize,
    file: &'a FileSummary,
}

/// Files that may be rewritten together, complete and free.
pub(super) struct Selection<'a> {
    /// Level 0 by place, then by level and row; never empty.
    inputs: Vec<Input<'a>>,
    to_level: usize,
}

impl<'a> Selection<'a> {
    /// These files of one level, with everything that overlaps them down to `to_level`. For level 0 the caller passes
    /// the result of [`free_oldest`]; for another level, neighbours. `None`: a running job is in the way.
    pub(super) fn down(
        tree: &'a Tree,
        busy: &RunningJobs<'_>,
        level: usize,
        places: &[usize],
        to_level: usize,
    ) -> Option<Self> {
        let files = tree.level(level);
        let mut inputs: Vec<Input<'a>> =
            places.iter().map(|&place| Input { level, place, file: &files[place] }).collect();
        for deeper in level + 1..=to_level {
            // The rows of what was added so far: an added file may extend beyond them, and takes along what lies below
            // it.
            let (first, last) = rows_of(inputs.iter().map(|input| input.file))?;
            let start = tree.level(deeper).partition_point(|file| file.last_row < first);
            let found = tree.overlapping(deeper, &first, &last).iter().enumerate();
            inputs.extend(found.map(|(nth, file)| Input { level: deeper, place: start + nth, file }));
        }
        Self { inputs, to_level }.admitted(busy)
    }

    /// Neighbours of one level, rewritten in place.
    pub(super) fn in_place(tree: &'a Tree, busy: &RunningJobs<'_>, level: usize, places: Range<usize>) -> Option<Self> {
        let files = tree.level(level);
        let inputs = places.map(|place| Input { level, place, file: &files[place] }).collect();
        Self { inputs, to_level: level }.admitted(busy)
    }

    fn admitted(self, busy: &RunningJobs<'_>) -> Option<Self> {
        (!self.inputs.is_empty() && busy.admits(&self)).then_some(self)
    }

    fn reach(&self) -> JobSpan<'a> {
        reach_of(&self.inputs, self.to_level).expect("a selection is never empty")
    }

    pub(super) fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.file.bytes).sum()
    }

    pub(super) fn bytes_of_level(&self, level: usize) -> u64 {
        self.inputs.iter().filter(|input| input.level == level).map(|input| input.file.bytes).sum()
    }

    pub(super) fn files(&self) -> usize {
        self.inputs.len()
    }

    pub(super) fn rewrite(mut self, reason: Reason) -> Plan {
        // Newest first, as a merge needs them; the sort is stable, so deeper levels stay in row order.
        self.inputs.sort_by_key(|input| (input.level, if input.level == 0 { usize::MAX - input.place } else { 0 }));
        let inputs = self.inputs.iter().map(|input| (input.level, input.file.id)).collect();
        Plan::Rewrite(Rewrite { inputs, to_level: self.to_level, reason })
    }
}

/// The places of the oldest files of level 0 that can move down together, about `bytes_max` bytes of them. A file that
/// cannot is left out, and with it every newer one whose rows would pass it.
pub(super) fn free_oldest(tree: &Tree, busy: &RunningJobs<'_>, bytes_max: u64) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    let mut rows: Option<(Bytes, Bytes)> = None;
    let mut bytes = 0u64;
    let mut left: Vec<&FileSummary> = Vec::new();
    for (place, file) in tree.level0.iter().enumerate() {
        if !taken.is_empty() && bytes.saturating_add(file.bytes) > bytes_max {
            break;
        }
        let (first, last) = match &rows {
            Some((first, last)) => (first.min(&file.first_row).clone(), last.max(&file.last_row).clone()),
            None => (file.first_row.clone(), file.last_row.clone()),
        };
        if busy.is_free(file) && !left.iter().any(|older| older.overlaps(&first, &last)) {
            taken.push(place);
            bytes = bytes.saturating_add(file.bytes);
            rows = Some((first, last));
        } else {
            left.push(file);
        }
    }
    taken
}

/// The smallest range of rows that holds all these files; `None` for no file.
fn rows_of<'a>(files: impl Iterator<Item = &'a FileSummary> + Clone) -> Option<(Bytes, Bytes)> {
    let first = files.clone().map(|file| &file.first_row).min()?;
    let last = files.map(|file| &file.last_row).max()?;
    Some((first.clone(), last.clone()))
}
