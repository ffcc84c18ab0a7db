//! What a compaction changes about the files of a family.

use std::collections::BTreeSet;
use std::sync::Arc;

use terrane_types::FamilyName;

use crate::levels::{FileRef, Levels, RegionFiles};
use crate::manifest::FileRecord;

/// Files that go, move or come.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) gone: BTreeSet<u64>,
    pub(super) moved: Option<(u64, usize)>,
    pub(super) made: Vec<FileRef>,
    pub(super) to_level: usize,
}

impl Change {
    /// The region's files with the change; `None` when a file that it concerns is no longer there.
    pub(super) fn applied_to(&self, mut files: RegionFiles, family: &FamilyName) -> Option<RegionFiles> {
        let levels = files.get_mut(family)?;
        let present: BTreeSet<u64> = levels.iter().map(|file| file.record.id).collect();
        let moved = self.moved.iter().map(|(id, _)| id);
        if !self.gone.iter().chain(moved).all(|id| present.contains(id)) {
            return None;
        }
        let mut all: Vec<FileRef> = Vec::with_capacity(present.len() + self.made.len());
        // In level 0 the output takes the place of the oldest input.
        let mut made = (self.to_level == 0).then_some(&self.made);
        for file in levels.iter() {
            if self.gone.contains(&file.record.id) {
                all.extend(made.take().into_iter().flatten().cloned());
            } else if let Some((_, to_level)) = self.moved.filter(|(id, _)| *id == file.record.id) {
                let level = u8::try_from(to_level).expect("there are a handful of levels");
                let record = Arc::new(FileRecord { level, ..(*file.record).clone() });
                all.push(FileRef { record, source: Arc::clone(&file.source) });
            } else {
                all.push(file.clone());
            }
        }
        if self.to_level > 0 {
            all.extend(self.made.iter().cloned());
        }
        *levels = Levels::new(all);
        Some(files)
    }
}
