//! Copying a group from one server to another: what the manifest says of it at one moment, and the files that this names.
//!
//! Together with the log from the least of the points in it, such a copy is what the source itself would start from. So the
//! receiver needs no other consistency: regions may be as of different log entries, as they are after a restart.
//!
//! [`Engine::copy_group`] takes the copy. Its files stay on the source while it lives, whatever is compacted or dropped
//! meanwhile. The receiver decodes the [`GroupContents`], fetches the files, syncs them, and calls [`Engine::stage_group`] and
//! [`Engine::install_group`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_types::GroupId;

use super::{BoxFuture, Engine};
use crate::Error;
use crate::file_directory::Claim;
use crate::manifest::{FileRecord, GroupRecord, Record};

/// The directory in the engine's where copies arrive.
pub(crate) const INCOMING: &str = "incoming";

/// A file that a copy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its number on the source.
    pub id: u64,
    /// Its length in bytes.
    pub size: u64,
}

/// What a copy of a group consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupContents(pub(super) GroupRecord);

impl GroupContents {
    /// For the receiver. The layout is that of a manifest record (`docs/formats/manifest.md`).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Record::Install(self.0.clone()).encode()
    }

    /// `None` for what this build cannot read.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match Record::decode(bytes)? {
            Record::Install(copy) => Some(Self(copy)),
            _ => None,
        }
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.0.group
    }

    /// The least of all points: the log is needed from the entry after it.
    #[must_use]
    pub fn index(&self) -> u64 {
        let regions = self.0.regions.iter().map(|region| region.point.index);
        regions.fold(self.0.point.index, u64::min)
    }

    /// The files, each once, by number.
    #[must_use]
    pub fn files(&self) -> Vec<CopiedFile> {
        let files: BTreeMap<u64, u64> = self.records().map(|file| (file.id, file.size)).collect();
        files.into_iter().map(|(id, size)| CopiedFile { id, size }).collect()
    }

    fn records(&self) -> impl Iterator<Item = &FileRecord> {
        self.0.regions.iter().flat_map(|region| region.files.values().flatten())
    }
}

/// A copy of a group. Its files stay while it lives.
#[derive(Debug)]
pub struct GroupCopy {
    contents: GroupContents,
    files: BTreeMap<u64, (PathBuf, Arc<Claim>)>,
}

impl GroupCopy {
    /// What it consists of.
    #[must_use]
    pub fn contents(&self) -> &GroupContents {
        &self.contents
    }

    /// Where a file is.
    #[must_use]
    pub fn path(&self, id: u64) -> Option<&PathBuf> {
        self.files.get(&id).map(|(path, _)| path)
    }
}

impl Engine {
    /// The engine's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of [`Engine::incoming_dir`].
    #[must_use]
    pub fn incoming_root(&self) -> PathBuf {
        self.dir.join(INCOMING)
    }

    /// Where the files of a copy are put as they arrive: a directory that the engine leaves alone.
    #[must_use]
    pub fn incoming_dir(&self, group: GroupId) -> PathBuf {
        self.incoming_root().join(format!("{group}"))
    }

    /// Whether groups can be copied: cells are in files that hold one region's, or some.
    #[must_use]
    pub fn can_copy_groups(&self) -> bool {
        self.backend.files().is_some()
    }

    /// Takes a copy of what is recorded of a group. It leaves out what is in memory.
    ///
    /// # Errors
    /// [`Error::NotCopied`] with an engine that has no files of its own.
    pub fn copy_group(&self, group: GroupId) -> BoxFuture<'_, Result<GroupCopy, Error>> {
        Box::pin(async move {
            self.copied_files(group)?;
            // Until all files are claimed, so that no clean-up runs with a later manifest before.
            let manifest = self.manifest.lock().await;
            let contents = GroupContents(manifest.contents().group(group));
            let files = self.claimed(contents.records());
            drop(manifest);
            Ok(GroupCopy { contents, files })
        })
    }
}
