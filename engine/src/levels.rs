//! What flushes and compactions write, as a region refers to it.
//!
//! Files are immutable and shared: after a split both daughters hold the parent's, each with its own bounds. A file is
//! removed when no region in the manifest names it and no reader holds it. A file holds cells of one family.
//!
//! The files of a family lie in levels. Those of level 0 may overlap and are kept oldest first: of each row, a later
//! file holds later writes. In each level below, no row is in two files, and of each row a level holds older writes
//! than all levels above it.

mod ingested;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use terrane_types::FamilyName;

use self::ingested::IngestedSource;
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::manifest::FileRecord;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};

/// A source that a manifest record names.
pub(crate) trait FileSource: Source {
    /// Bytes of data within `bounds`, approximately, without touching the disk; `None` where that is not known.
    fn bytes_within(&self, bounds: &RowRange) -> Option<u64>;

    /// Rows at about equal distances, sorted, each with the bytes of data from it to the next: to find the best split
    /// point. May wait for the disk.
    fn samples(&self, bounds: &RowRange) -> Result<Vec<(Vec<u8>, u64)>, Error>;
}

/// A region's part of a file.
#[derive(Clone)]
pub(crate) struct FileRef {
    pub(crate) record: Arc<FileRecord>,
    pub(crate) source: Arc<dyn FileSource>,
}

impl FileRef {
    /// The part of this part within `bounds`.
    pub(crate) fn within(&self, bounds: &RowRange) -> Self {
        let bounds = self.record.bounds.intersect(bounds);
        debug_assert!(!bounds.is_empty(), "nothing of file {} is inside", self.record.id);
        let bytes = self.source.bytes_within(&bounds).unwrap_or(self.record.bytes / 2);
        Self {
            record: Arc::new(FileRecord { bounds, bytes, ..(*self.record).clone() }),
            source: Arc::clone(&self.source),
        }
    }

    /// This part and the part of a neighbour with the higher rows as one; `None` unless they are of one file and touch. A part
    /// without a file of its own (id 0) is a mark that the backend has cells, wherever they are.
    fn joined(&self, other: &Self) -> Option<Self> {
        let (ours, theirs) = (&self.record, &other.record);
        if ours.id != theirs.id
            || ours.level != theirs.level
            || (ours.bounds.end != theirs.bounds.start && ours.id != 0)
        {
            return None;
        }
        let bounds = RowRange { start: ours.bounds.start.clone(), end: theirs.bounds.end.clone() };
        let bytes = ours.bytes + theirs.bytes;
        // Those of a file are the same in both; a mark has those of its own rows.
        let first_row = Bytes::clone((&ours.first_row).min(&theirs.first_row));
        let last_row = Bytes::clone((&ours.last_row).max(&theirs.last_row));
        let record = FileRecord { bounds, bytes, first_row, last_row, ..(**ours).clone() };
        Some(Self { record: Arc::new(record), source: Arc::clone(&self.source) })
    }

    /// What readers merge: the file within its bounds.
    pub(crate) fn bounded(&self) -> Arc<dyn Source> {
        let mut source = Arc::clone(&self.source) as Arc<dyn Source>;
        if self.record.ingested_at > 0 {
            source = Arc::new(IngestedSource { source, sequence: self.record.ingested_at });
        }
        if self.record.straddles() {
            source = Arc::new(Bounded { record: Arc::clone(&self.record), source });
        }
        source
    }
}

impl std::fmt::Debug for FileRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {} ({} bytes)", self.record.id, self.record.bytes)
    }
}

/// A file that extends beyond the region.
struct Bounded {
    record: Arc<FileRecord>,
    source: Arc<dyn Source>,
}

impl Source for Bounded {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        if !self.record.bounds.contains(lookup.key.row) {
            return Ok(true);
        }
        self.source.row(lookup, out)
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let bounds = self.record.bounds.intersect(bounds);
        Arc::clone(&self.source).cursor(&bounds, reverse, reading)
    }
}

/// The files of a family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    /// Oldest first.
    pub(crate) level0: Vec<FileRef>,
    /// Level 1 and on, each sorted by row.
    pub(crate) below: Vec<Vec<FileRef>>,
}

impl Levels {
    /// Puts files at the levels of their records; those of level 0 in the given order.
    pub(crate) fn new(files: impl IntoIterator<Item = FileRef>) -> Self {
        let mut levels = Self::default();
        for file in files {
            levels.level_mut(file.record.level).push(file);
        }
        for level in &mut levels.below {
            level.sort_by(|a, b| a.record.first_inside().cmp(b.record.first_inside()));
        }
        levels
    }

    /// Whether the files of each level below 0 follow each other, which readers rely on.
    fn are_in_order(&self) -> bool {
        let follow = |pair: &[FileRef]| pair[0].record.ends_before(pair[1].record.first_inside());
        self.below.iter().all(|level| level.windows(2).all(follow))
    }

    fn level_mut(&mut self, level: u8) -> &mut Vec<FileRef> {
        let Some(below) = usize::from(level).checked_sub(1) else {
            return &mut self.level0;
        };
        if self.below.len() <= below {
            self.below.resize_with(below + 1, Vec::new);
        }
        &mut self.below[below]
    }

    /// These files and those of the neighbour with the higher rows. A file that both have a part of, from when they were one
    /// region, becomes one part again where the two parts touch. Where they do not, because the part between them was
    /// rewritten, the file is there twice ([`Levels::doubles`]).
    ///
    /// The order of each side is kept. Sides share no rows, so their relative order does not matter.
    #[must_use]
    pub(crate) fn joined(&self, neighbour: &Self) -> Self {
        let mut level0 = Vec::with_capacity(self.level0.len() + neighbour.level0.len());
        let mut rest = neighbour.level0.as_slice();
        for file in &self.level0 {
            match rest.iter().enumerate().find_map(|(at, other)| Some((at, file.joined(other)?))) {
                Some((at, whole)) => {
                    level0.extend_from_slice(&rest[..at]);
                    level0.push(whole);
                    rest = &rest[at + 1..];
                }
                None => level0.push(file.clone()),
            }
        }
        level0.extend_from_slice(rest);
        let empty = Vec::new();
        let join_level = |at: usize| {
            let (left, right) = (self.below.get(at).unwrap_or(&empty), neighbour.below.get(at).unwrap_or(&empty));
            let mut level = left.clone();
            // Only the last of one side and the first of the other can touch.
            let whole = level.last().and_then(|last| last.joined(right.first()?));
            let skipped = usize::from(whole.is_some());
            if let (Some(whole), Some(last)) = (whole, level.last_mut()) {
                *last = whole;
            }
            level.extend_from_slice(&right[skipped..]);
            level
        };
        let below = (0..self.below.len().max(neighbour.below.len())).map(join_level).collect();
        let joined = Self { level0, below };
        debug_assert!(joined.are_in_order(), "a level has files that overlap: {joined:?}");
        joined
    }

    /// Every further part of a file that is there already.
    pub(crate) fn doubles(&self) -> Vec<FileRef> {
        let mut ids = BTreeSet::new();
        self.iter().filter(|file| !ids.insert(file.record.id)).cloned().collect()
    }

    /// Puts a file in the place of a part; `None` removes it.
    pub(crate) fn replace(&mut self, part: &FileRef, by: Option<&FileRef>) {
        for files in std::iter::once(&mut self.level0).chain(&mut self.below) {
            if let Some(at) = files.iter().position(|file| Arc::ptr_eq(&file.record, &part.record)) {
                files.splice(at..=at, by.cloned());
                return;
            }
        }
    }

    /// All files, level 0 first and oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FileRef> {
        self.level0.iter().chain(self.below.iter().flatten())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.iter().map(|file| file.record.bytes).sum()
    }

    /// The parts within `bounds`; files without any rows there are left out.
    pub(crate) fn within(&self, bounds: &RowRange) -> Self {
        let parts = self.iter().filter(|file| file.record.meets(bounds)).map(|file| file.within(bounds));
        let within = Self::new(parts);
        debug_assert!(within.are_in_order(), "a level has files that overlap: {within:?}");
        within
    }

    /// What readers merge, newest first: each file of level 0, then each level below as one.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn Source>> {
        let level0 = self.level0.iter().rev().map(FileRef::bounded);
        let below = self.below.iter().filter(|level| !level.is_empty()).map(|level| match level.as_slice() {
            [file] => file.bounded(),
            files => Arc::new(LevelSource { files: files.into() }) as Arc<dyn Source>,
        });
        level0.chain(below).collect()
    }
}

/// The files of each family of a region.
pub(crate) type RegionFiles = BTreeMap<FamilyName, Levels>;

/// The files of one level below 0: one sorted source.
struct LevelSource {
    files: Arc<[FileRef]>,
}

impl LevelSource {
    /// The first file that does not end before `row`.
    fn at_or_after(&self, row: &[u8]) -> usize {
        self.files.partition_point(|file| file.record.last_row.as_ref() < row || file.record.ends_before(row))
    }
}

impl Source for LevelSource {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        let row = lookup.key.row;
        match self.files.get(self.at_or_after(row)) {
            Some(file) if file.record.holds(row) && file.record.ingested_at == 0 => file.source.row(lookup, out),
            Some(file) if file.record.holds(row) => file.bounded().row(lookup, out),
            _ => Ok(true),
        }
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let mut cursor = LevelCursor { level: self, bounds: bounds.clone(), reverse, reading, next: 0, current: None };
        cursor.next = cursor.place();
        cursor.advance()?;
        Ok(Box::new(cursor))
    }
}

/// Walks the files of a level, opening each when it is reached.
struct LevelCursor {
    level: Arc<LevelSource>,
    bounds: RowRange,
    reverse: bool,
    reading: Reading,
    /// Forward: the file to open next. In reverse: one above it.
    next: usize,
    current: Option<Box<dyn Cursor>>,
}

impl LevelCursor {
    /// The value of `next` at the bounds: forward, the first file that does not end before their start; in reverse, the
    /// last one that begins before their end.
    fn place(&self) -> usize {
        let files = &self.level.files;
        let end = self.bounds.end.as_slice();
        match (self.reverse, end.is_empty()) {
            (false, _) => self.level.at_or_after(&self.bounds.start),
            (true, true) => files.len(),
            (true, false) => files.partition_point(|file| file.record.first_inside() < end),
        }
    }

    /// Opens files until one has a row.
    fn advance(&mut self) -> Result<(), Error> {
        while self.current.as_ref().is_none_or(|current| current.row().is_none()) {
            let index = if self.reverse {
                let Some(index) = self.next.checked_sub(1) else { break };
                self.next = index;
                index
            } else {
                self.next += 1;
                self.next - 1
            };
            let Some(file) = self.level.files.get(index) else { break };
            if !file.record.meets(&self.bounds) {
                // Files are sorted, so the remaining ones lie outside too.
                self.next = if self.reverse { 0 } else { self.level.files.len() };
                break;
            }
            self.current = Some(file.bounded().cursor(&self.bounds, self.reverse, self.reading)?);
        }
        Ok(())
    }
}

impl Cursor for LevelCursor {
    fn row(&self) -> Option<&[u8]> {
        self.current.as_ref()?.row()
    }

    fn single(&self) -> Option<Cell<'_>> {
        self.current.as_ref()?.single()
    }

    fn skip(&mut self) -> Result<(), Error> {
        if let Some(current) = &mut self.current {
            current.skip()?;
            if current.row().is_none() {
                self.advance()?;
            }
        }
        Ok(())
    }

    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let Some(current) = &mut self.current else { return Ok(true) };
        let is_over = current.take(sought, bytes_max, out)?;
        if current.row().is_none() {
            self.advance()?;
        }
        Ok(is_over)
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        if let Some(current) = &mut self.current {
            current.seek_column(qualifier)?;
            if current.row().is_none() {
                self.advance()?;
            }
        }
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        let is_ahead = match self.row() {
            None => false,
            Some(at) => {
                if self.reverse {
                    at > row
                } else {
                    at < row
                }
            }
        };
        if !is_ahead {
            return Ok(());
        }
        if self.reverse {
            self.bounds.end = [row, &[0]].concat();
        } else {
            self.bounds.start = row.to_vec();
        }
        let place = self.place();
        let within_current = if self.reverse { place > self.next } else { place < self.next };
        if within_current && let Some(current) = &mut self.current {
            current.seek(row)?;
        } else {
            self.next = place;
            self.current = None;
        }
        self.advance()
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod script_tests;
