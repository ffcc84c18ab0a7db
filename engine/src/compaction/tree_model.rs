//! A tree whose files know their cells, to carry plans out in memory and check that no row's log was cut.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;

use super::{FileSummary, Job, LEVEL_MAX, Plan, Policy, Rewrite, Tree};

/// What a file has of one row; rows are letters.
#[derive(Clone, Debug, Default)]
pub(super) struct RowPart {
    pub(super) sequences: Vec<u64>,
    pub(super) bytes: u64,
    pub(super) deletes: u64,
}

type Rows = BTreeMap<u8, RowPart>;

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) tree: Tree,
    contents: BTreeMap<u64, Rows>,
    next_id: u64,
    pub(super) sequence: u64,
}

impl Model {
    /// A file with these rows, made of the newest cells.
    pub(super) fn file(&mut self, rows: &[u8], bytes: u64, deletes: u64) -> FileSummary {
        let mut contents = Rows::new();
        for (nth, &row) in (0u64..).zip(rows) {
            self.sequence += 1;
            let part = |whole: u64| (nth + 1) * whole / rows.len() as u64 - nth * whole / rows.len() as u64;
            let part = RowPart { sequences: vec![self.sequence], bytes: part(bytes), deletes: part(deletes) };
            contents.insert(row, part);
        }
        self.next_id += 1;
        self.contents.insert(self.next_id, contents);
        let times = 0..=0;
        self.summary(self.next_id, times)
    }

    fn summary(&self, id: u64, times: std::ops::RangeInclusive<i64>) -> FileSummary {
        let rows = &self.contents[&id];
        let row = |row: Option<&u8>| Bytes::copy_from_slice(&[*row.expect("a file has rows")]);
        let sequences = || rows.values().flat_map(|part| part.sequences.iter().copied());
        FileSummary {
            id,
            bytes: rows.values().map(|part| part.bytes).sum(),
            first_row: row(rows.keys().next()),
            last_row: row(rows.keys().next_back()),
            min_timestamp: *times.start(),
            max_timestamp: *times.end(),
            min_sequence: sequences().min().expect("a file has cells"),
            max_sequence: sequences().max().expect("a file has cells"),
            cells: 10 * sequences().count() as u64,
            deletes: rows.values().map(|part| part.deletes).sum(),
            straddles: false,
            collected_sequence: 0,
            collected_ms: 0,
        }
    }

    pub(super) fn place(&mut self, level: usize, file: FileSummary) {
        if level == 0 {
            self.tree.level0.push(file);
            return;
        }
        if self.tree.levels.len() < level {
            self.tree.levels.resize(level, Vec::new());
        }
        let files = &mut self.tree.levels[level - 1];
        files.push(file);
        files.sort_by(|a, b| a.first_row.cmp(&b.first_row));
    }

    /// Marks what a plan needs as busy; `None` when there is nothing to do.
    pub(super) fn start(&mut self, plan: &Plan) -> Option<Job> {
        let job = plan.job()?;
        assert!(!job.files.is_empty(), "a plan without files: {plan:?}");
        for running in &self.tree.busy {
            assert!(running.files.is_disjoint(&job.files), "busy files in {plan:?}");
        }
        self.tree.busy.push(job.clone());
        Some(job)
    }

    pub(super) fn finish(&mut self, plan: &Plan, policy: &Policy) {
        let job = plan.job().expect("only what was started is finished");
        self.tree.busy.retain(|running| *running != job);
        match plan {
            Plan::Idle | Plan::Wait => unreachable!("they have no job"),
            Plan::Drop { files } => files.iter().for_each(|&file| drop(self.take(file))),
            Plan::Move { file, from_level, to_level } => {
                let (level, _, file) = self.take(*file);
                assert_eq!(level, *from_level);
                assert!(!file.straddles, "a file that straddles was moved");
                self.place(*to_level, file);
            }
            Plan::Rewrite(rewrite) => self.rewrite(rewrite, policy),
        }
    }

    fn take(&mut self, id: u64) -> (usize, usize, FileSummary) {
        let levels = std::iter::once(&mut self.tree.level0).chain(&mut self.tree.levels);
        let mut found = levels.enumerate().filter_map(|(level, files)| {
            let place = files.iter().position(|file| file.id == id)?;
            Some((level, place, files.remove(place)))
        });
        found.next().unwrap_or_else(|| panic!("no file {id}"))
    }

    fn rewrite(&mut self, rewrite: &Rewrite, policy: &Policy) {
        let (mut rows, mut place0) = (Rows::new(), None);
        let (mut min, mut max) = (i64::MAX, i64::MIN);
        for &(level, id) in &rewrite.inputs {
            let (found, place, file) = self.take(id);
            assert_eq!(level, found, "file {id}");
            if level == 0 {
                // Newest first: each was directly above the next one.
                assert!(rewrite.to_level > 0 || place0.is_none_or(|newer| newer == place + 1), "a gap in {rewrite:?}");
                place0 = Some(place);
            }
            (min, max) = (min.min(file.min_timestamp), max.max(file.max_timestamp));
            for (row, part) in self.contents.remove(&id).expect("every file has contents") {
                let merged: &mut RowPart = rows.entry(row).or_default();
                merged.sequences.extend(part.sequences);
                merged.bytes += part.bytes;
                merged.deletes += part.deletes;
            }
        }
        let deepest = rewrite.to_level == LEVEL_MAX;
        let outputs = if rewrite.to_level == 0 { vec![rows] } else { cut(rows, policy.file_bytes) };
        for mut rows in outputs {
            if deepest {
                rows.values_mut().for_each(|part| part.deletes = 0);
            }
            self.next_id += 1;
            self.contents.insert(self.next_id, rows);
            let mut file = self.summary(self.next_id, min..=max);
            if deepest {
                file.collected_sequence = policy.oldest_snapshot;
                file.collected_ms = policy.log_time_ms;
            }
            match place0.filter(|_| rewrite.to_level == 0) {
                Some(place) => self.tree.level0.insert(place, file),
                None => self.place(rewrite.to_level, file),
            }
        }
    }

    /// No two files of a level overlap, and the cells of every row are in the order of the log.
    pub(super) fn check(&self) {
        for level in 1..=LEVEL_MAX {
            for pair in self.tree.level(level).windows(2) {
                assert!(pair[0].last_row < pair[1].first_row, "level {level} overlaps:\n{}", self.draw());
            }
        }
        let mut lowest: BTreeMap<u8, u64> = BTreeMap::new();
        let newest_first = self.tree.level0.iter().rev().chain(self.tree.levels.iter().flatten());
        for file in newest_first {
            for (row, part) in &self.contents[&file.id] {
                let (min, max) = (part.sequences.iter().min().copied(), part.sequences.iter().max().copied());
                let (min, max) = (min.expect("a part has cells"), max.expect("a part has cells"));
                if let Some(&above) = lowest.get(row) {
                    assert!(max < above, "row {} of file {} is out of order:\n{}", *row as char, file.id, self.draw());
                }
                lowest.insert(*row, min);
            }
        }
    }

    pub(super) fn cells(&self) -> usize {
        let files = self.tree.level0.iter().chain(self.tree.levels.iter().flatten());
        files.flat_map(|file| self.contents[&file.id].values()).map(|part| part.sequences.len()).sum()
    }

    /// One line per level that has files.
    pub(super) fn draw(&self) -> String {
        let mut out = String::new();
        for level in 0..=LEVEL_MAX {
            let files = self.tree.level(level);
            if files.is_empty() {
                continue;
            }
            write!(out, "L{level}").expect("to a string");
            for file in files {
                let row = |row: &Bytes| String::from_utf8_lossy(row).into_owned();
                let (first, last) = (row(&file.first_row), row(&file.last_row));
                write!(out, "  {}:{first}-{last}={}", file.id, file.bytes).expect("to a string");
                if file.deletes > 0 {
                    write!(out, ",deletes={}/{}", file.deletes, file.cells).expect("to a string");
                }
                if file.straddles {
                    out.push_str(",straddles");
                }
                if file.max_timestamp != 0 {
                    write!(out, ",time={}..{}", file.min_timestamp, file.max_timestamp).expect("to a string");
                }
            }
            out.push('\n');
        }
        out
    }
}

/// Cuts between rows once a file is large enough.
fn cut(rows: Rows, file_bytes: u64) -> Vec<Rows> {
    let mut files: Vec<(Rows, u64)> = Vec::new();
    for (row, part) in rows {
        match files.last_mut() {
            Some((file, bytes)) if *bytes < file_bytes => {
                *bytes += part.bytes;
                file.insert(row, part);
            }
            _ => files.push((Rows::from([(row, part.clone())]), part.bytes)),
        }
    }
    files.into_iter().map(|(rows, _)| rows).collect()
}
