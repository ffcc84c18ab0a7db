//! The checkpoint: the whole catalog as of one applied index, in one file with a checksum.
//!
//! The master starts from the checkpoint and the entries of group 0's log above its index. The file is replaced
//! atomically (temporary file, sync, rename, sync of the directory), so a crash leaves the old or the new one. A file
//! with a wrong checksum is damaged; the master refuses to start from it rather than lose acknowledged changes. The
//! layout is documented in `docs/formats/catalog.md`.

use std::io;
use std::path::{Path, PathBuf};

use terrane_types::versions::FormatVersions;

use super::Catalog;
use super::codec::{ByteWriter as _, DecodeError, Reader};

const MAGIC: &[u8; 8] = b"TERRACAT";
const CHECKPOINT_VERSION: u16 = 1;
/// The versions of checkpoints.
pub const VERSIONS: FormatVersions =
    FormatVersions { name: "catalog checkpoint", oldest: CHECKPOINT_VERSION as u32, newest: CHECKPOINT_VERSION as u32 };
const CHECKSUM_BYTES: usize = 4;

/// The path of the checkpoint in the catalog's directory.
pub fn path_in(dir: &Path) -> PathBuf {
    dir.join("checkpoint")
}

/// The catalog as of an index of group 0's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Every entry up to this index is applied.
    pub applied: u64,
    /// The stamp of that entry.
    pub stamp: u64,
    /// The catalog.
    pub catalog: Catalog,
}

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("cannot read {file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is damaged.
    #[error("{file} is damaged: {what}; restore it from a backup and do not delete it")]
    Damage {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Checkpoint {
    /// Encodes the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.raw(MAGIC);
        out.u16(CHECKPOINT_VERSION);
        out.u64(self.applied);
        out.u64(self.stamp);
        self.catalog.encode(&mut out);
        let checksum = crc32c::crc32c(&out);
        out.u32(checksum);
        out
    }

    /// Decodes the file.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let rule = |what: &str| DecodeError::Rule(what.to_owned());
        let split = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| rule("it is shorter than a checksum"))?;
        let (body, checksum) = bytes.split_at(split);
        if crc32c::crc32c(body).to_le_bytes() != checksum {
            return Err(rule("its checksum is wrong"));
        }
        let mut from = Reader::new(body);
        if from.array()? != *MAGIC {
            return Err(rule("it is not a catalog checkpoint"));
        }
        let version = from.u16()?;
        if version != CHECKPOINT_VERSION {
            return Err(DecodeError::Version { what: "the catalog", found: version });
        }
        let (applied, stamp) = (from.u64()?, from.u64()?);
        let checkpoint = Self { applied, stamp, catalog: Catalog::decode(&mut from)? };
        from.finish()?;
        Ok(checkpoint)
    }

    /// Reads the checkpoint in `dir`; an empty catalog at index 0 if there is none.
    pub async fn load(dir: &Path) -> Result<Self, CheckpointError> {
        let path = path_in(dir);
        let file = path.display().to_string();
        let bytes = match terrane_env::fs::read(&path).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(CheckpointError::Io { file, source }),
        };
        // A killed process may have renamed it without syncing the name, and the log is purged below this checkpoint.
        if let Err(source) = terrane_env::fs::sync_dir(dir).await {
            return Err(CheckpointError::Io { file, source });
        }
        Self::decode(&bytes).map_err(|error| CheckpointError::Damage { file, what: error.to_string() })
    }
}
