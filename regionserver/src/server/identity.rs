//! The `server` file: which cluster and server a data directory belongs to, and how often it was started.
//!
//! With it, a directory refuses another cluster or another engine by name, and every start gets a boot number by which peers
//! and masters distinguish it. It is text, so that a person can read it, with a version and a checksum, so that a damaged
//! file is refused.
//!
//! The boot number is raised and synced before anything else is opened: no two starts share one.

use std::path::{Path, PathBuf};

use terrane_env::fs;
use terrane_types::versions::Levels;
use terrane_types::{ClusterId, ServerId};

pub(crate) const NAME: &str = "server";
const HEADER: &str = "terrane region server 1";
/// How the file began before Terrane's first release.
const HEADER_UNRELEASED: &str = "terrane server ";

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster: ClusterId,
    pub server: ServerId,
    pub engine: String,
    pub boot: u64,
    /// The highest feature level that the server has seen its cluster at.
    pub level: u32,
}

/// Why a data directory cannot be used for this server.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file exists but is damaged, or of another version.
    #[error("{} cannot be read: {what}; restore it from a backup or start with an empty directory", file.display())]
    Damaged { file: PathBuf, what: String },
    /// The directory was created with another engine.
    #[error("{} was created with engine {found}, not {wanted}; start with --engine {found} or choose another directory", directory.display())]
    Engine { directory: PathBuf, found: String, wanted: String },
    /// The build is too old for what the directory contains.
    #[error("{} cannot be used by this build: {why}", directory.display())]
    Level { directory: PathBuf, why: String },
    /// The directory belongs to another cluster than the master.
    #[error("{} belongs to cluster {found}, but the master serves cluster {wanted}; name that cluster's masters or choose another directory", directory.display())]
    Cluster { directory: PathBuf, found: ClusterId, wanted: ClusterId },
    /// The file could not be read or written.
    #[error("cannot read or write {}: {source}", file.display())]
    Io { file: PathBuf, source: std::io::Error },
}

impl Identity {
    /// Reads the directory's identity. `None`: the directory is fresh. A directory of another engine is refused, and one of a
    /// cluster whose level this build does not reach.
    pub async fn load(directory: &Path, engine: &str, levels: Levels) -> Result<Option<Self>, IdentityError> {
        let file = directory.join(NAME);
        let io = |source| IdentityError::Io { file: file.clone(), source };
        if !fs::exists(&file).await.map_err(io)? {
            return Ok(None);
        }
        let bytes = fs::read(&file).await.map_err(io)?;
        let identity = Self::decode(&bytes)
            .map_err(|what| IdentityError::Damaged { file: file.clone(), what: what.to_owned() })?;
        if identity.engine != engine {
            let (directory, wanted) = (directory.to_owned(), engine.to_owned());
            return Err(IdentityError::Engine { directory, found: identity.engine, wanted });
        }
        match levels.outgrown(identity.level) {
            Some(why) => Err(IdentityError::Level { directory: directory.to_owned(), why }),
            None => Ok(Some(identity)),
        }
    }

    /// Reads the directory's identity, whichever engine it names.
    pub(crate) async fn look(directory: &Path) -> Result<Self, IdentityError> {
        let file = directory.join(NAME);
        let bytes = fs::read(&file).await.map_err(|source| IdentityError::Io { file: file.clone(), source })?;
        Self::decode(&bytes).map_err(|what| IdentityError::Damaged { file, what: what.to_owned() })
    }

    /// Stores it durably. This works on a full disk too: a start must not need new space.
    pub async fn store(&self, directory: &Path) -> Result<(), IdentityError> {
        let file = directory.join(NAME);
        let written = fs::write_stamp(&file, &self.encode()).await;
        written.map_err(|source| IdentityError::Io { file, source })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { cluster, server, engine, boot, level } = self;
        let body =
            format!("{HEADER}\ncluster {cluster}\nserver {server}\nengine {engine}\nboot {boot}\nlevel {level}\n");
        format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (body, checksum) = text.split_once("crc32c ").ok_or("it ends before its checksum")?;
        let expected = u32::from_str_radix(checksum.trim_end(), 16).map_err(|_| "its checksum is not a number")?;
        if crc32c::crc32c(body.as_bytes()) != expected {
            return Err("its checksum does not match");
        }
        let mut lines = body.lines();
        match lines.next() {
            Some(HEADER) => {}
            Some(header) if header.starts_with(HEADER_UNRELEASED) => {
                return Err("a build from before the first release wrote it, and no later one reads its directory");
            }
            _ => return Err("this build does not know its version"),
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let cluster = field("cluster").and_then(|hex| cluster_id(&hex)).ok_or("its cluster id is malformed")?;
        let server = field("server").and_then(|id| id.parse().ok()).ok_or("its server id is malformed")?;
        let engine = field("engine").ok_or("it names no engine")?;
        let boot = field("boot").and_then(|boot| boot.parse().ok()).ok_or("its boot number is malformed")?;
        let level = field("level").and_then(|level| level.parse().ok()).ok_or("its level is malformed")?;
        let identity = Self { cluster, server: ServerId(server), engine, boot, level };
        // The checksum covers neither its own digits nor what follows them, so only the exact form is accepted.
        if identity.encode() != bytes {
            return Err("it is not in the form in which it is written");
        }
        Ok(identity)
    }
}

fn cluster_id(hex: &str) -> Option<ClusterId> {
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(ClusterId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: Levels = Levels { oldest: 3, newest: 4 };

    fn sample() -> Identity {
        Identity { cluster: ClusterId([0xa7; 16]), server: ServerId(3), engine: "memory".into(), boot: 4, level: 4 }
    }

    #[test]
    fn it_round_trips() {
        assert_eq!(Identity::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn a_directory_from_before_the_first_release_is_refused_in_one_sentence() {
        let body = format!("terrane server 2\ncluster {}\nserver 3\nengine lsm\nboot 4\nlevel 4\n", ClusterId([7; 16]));
        let file = format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()));
        assert!(Identity::decode(file.as_bytes()).unwrap_err().contains("before the first release"));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let whole = sample().encode();
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(Identity::decode(&bytes).is_err(), "byte {at}, bit {bit}");
        }
    }

    #[tokio::test]
    async fn another_engine_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Identity::load(directory.path(), "sled", LEVELS).await.unwrap(), None);
        sample().store(directory.path()).await.unwrap();
        assert_eq!(Identity::load(directory.path(), "memory", LEVELS).await.unwrap(), Some(sample()));
        let refused = Identity::load(directory.path(), "sled", LEVELS).await.unwrap_err().to_string();
        assert!(refused.contains("engine memory") && refused.contains("--engine memory"), "{refused}");
    }

    #[tokio::test]
    async fn a_directory_of_a_higher_level_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        sample().store(directory.path()).await.unwrap();
        let older = Levels { oldest: 2, newest: 3 };
        let refused = Identity::load(directory.path(), "memory", older).await.unwrap_err().to_string();
        assert!(refused.contains("start a build of level 4"), "{refused}");
    }
}
