//! The `master` file: the cluster of a master's data directory, and the number of its starts.
//!
//! It is written before the first entry of group 0, whose log contains the cluster id; that entry then records the same
//! id in the catalog. The file is readable text with a version and a checksum. Each start increments the boot number
//! and syncs the file before anything else is opened. One of several masters also keeps what it contributed to the
//! cluster id, and the list of all masters (`founding`). One that was
//! added later keeps the masters that it met, to be found by them before it has the catalog.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use terrane_env::fs;
use terrane_types::ClusterId;

use crate::masters::numbers::{Peer, numbered, place_of};

pub(crate) const NAME: &str = "master";
/// The file that marks a region server's data directory.
const NAME_OF_A_SERVER: &str = "server";
const HEADER: &str = "terrane catalog master 1";
/// How the file began before Terrane's first release.
const HEADER_UNRELEASED: &str = "terrane master ";

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster; nil until its founding is complete.
    pub cluster: ClusterId,
    /// The number of this master: its place in the list of masters, from 1. One that took the place of a lost one has a
    /// number of its own, see [`numbered`].
    pub number: u64,
    /// The number of starts.
    pub boot: u64,
    /// What the masters of a cluster tell each other when they found it; `None`: a single master.
    pub founder: Option<Founder>,
    /// The masters when this one was added, with itself; empty: it took part in the founding. The catalog has the present ones.
    pub met: Vec<Peer>,
}

/// One of several masters that found a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founder {
    /// All masters, sorted.
    pub peers: Vec<String>,
    /// Their contributions to the cluster id, as far as this master knows them.
    pub nonces: Vec<Option<Nonce>>,
}

/// The contribution of one master to the cluster id.
pub type Nonce = [u8; 16];

/// Why a data directory cannot be used as a master's.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file is damaged.
    #[error("{} cannot be read: {what}; restore it from a backup or start with an empty directory", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The directory belongs to a region server.
    #[error("{} is the data directory of a region server; choose another with --data", directory.display())]
    ServersDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// The file could not be read or written.
    #[error("cannot read or write {}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Identity {
    /// Reads the directory's identity and counts this start. A new directory gets the identity that `fresh` returns.
    pub async fn begin(directory: &Path, fresh: impl FnOnce() -> Self) -> Result<Self, IdentityError> {
        Self::check_directory(directory).await?;
        let file = directory.join(NAME);
        let io = |source| IdentityError::Io { file: file.clone(), source };
        let identity = if fs::exists(&file).await.map_err(io)? {
            let bytes = fs::read(&file).await.map_err(io)?;
            let known = Self::decode(&bytes).map_err(|what| IdentityError::Damaged { file: file.clone(), what })?;
            Self { boot: known.boot + 1, ..known }
        } else {
            fresh()
        };
        identity.store(directory).await?;
        Ok(identity)
    }

    /// A single master of a new cluster.
    pub fn single() -> Self {
        Self { cluster: ClusterId(terrane_env::rand::bytes()), number: 1, boot: 1, founder: None, met: Vec::new() }
    }

    /// One of several masters of a new cluster, at this place in the sorted list.
    pub fn one_of(peers: Vec<String>, place: usize) -> Self {
        let mut nonces = vec![None; peers.len()];
        nonces[place] = Some(terrane_env::rand::bytes());
        let founder = Some(Founder { peers, nonces });
        Self { cluster: ClusterId::nil(), number: numbered(place, 0), boot: 1, founder, met: Vec::new() }
    }

    /// Refuses the directory of a region server.
    pub async fn check_directory(directory: &Path) -> Result<(), IdentityError> {
        let file = directory.join(NAME_OF_A_SERVER);
        match fs::exists(&file).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(IdentityError::ServersDirectory { directory: directory.to_owned() }),
            Err(source) => Err(IdentityError::Io { file, source }),
        }
    }

    /// A master that is added to a cluster with this number.
    pub const fn added(cluster: ClusterId, number: u64, met: Vec<Peer>) -> Self {
        Self { cluster, number, boot: 1, founder: None, met }
    }

    /// Whether a directory has an identity.
    pub async fn exists(directory: &Path) -> Result<bool, IdentityError> {
        let file = directory.join(NAME);
        fs::exists(&file).await.map_err(|source| IdentityError::Io { file, source })
    }

    /// The masters when this one began, which is reached at `own`.
    pub fn first_masters(&self, own: &str) -> Vec<Peer> {
        if !self.met.is_empty() {
            return self.met.clone();
        }
        let single = || vec![own.to_owned()];
        let addresses = self.founder.as_ref().map_or_else(single, |founder| founder.peers.clone());
        let peer = |(place, address)| Peer { number: numbered(place, 0), address };
        addresses.into_iter().enumerate().map(peer).collect()
    }

    /// Replaces the file durably.
    pub async fn store(&self, directory: &Path) -> Result<(), IdentityError> {
        let file = directory.join(NAME);
        let stored = fs::write_stamp(&file, &self.encode()).await;
        stored.map_err(|source| IdentityError::Io { file, source })
    }

    /// Reads the directory's identity without changing it.
    pub(crate) async fn look(directory: &Path) -> Result<Self, IdentityError> {
        let file = directory.join(NAME);
        let bytes = fs::read(&file).await.map_err(|source| IdentityError::Io { file: file.clone(), source })?;
        Self::decode(&bytes).map_err(|what| IdentityError::Damaged { file, what })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = format!("{HEADER}\ncluster {}\nmaster {}\nboot {}\n", self.cluster, self.number, self.boot);
        if let Some(Founder { peers, nonces }) = &self.founder {
            let nonces: Vec<String> = nonces.iter().map(|nonce| nonce.map_or_else(|| "-".to_owned(), hex)).collect();
            body += &format!("peers {}\nnonces {}\n", peers.join(","), nonces.join(","));
        }
        if !self.met.is_empty() {
            let met: Vec<String> = self.met.iter().map(|peer| format!("{}={}", peer.number, peer.address)).collect();
            body += &format!("masters {}\n", met.join(","));
        }
        format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (body, checksum) = text.rsplit_once("crc32c ").ok_or("it ends before its checksum")?;
        let expected = u32::from_str_radix(checksum.trim_end(), 16).map_err(|_| "its checksum is not a number")?;
        if crc32c::crc32c(body.as_bytes()) != expected {
            return Err("its checksum is wrong".into());
        }
        let mut lines = body.lines();
        match lines.next() {
            Some(HEADER) => {}
            Some(header) if header.starts_with(HEADER_UNRELEASED) => {
                return Err(
                    "a build from before the first release wrote it, and no later one reads its directory".into()
                );
            }
            _ => return Err("its version is unknown to this build".into()),
        }
        let fields: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(' ')).collect();
        let field = |name: &str| fields.get(name).copied().ok_or_else(|| format!("it has no {name}"));
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number"));
        let cluster = parse_cluster(field("cluster")?).ok_or("its cluster id is malformed")?;
        let mut identity = Self {
            cluster,
            number: number(field("master")?)?,
            boot: number(field("boot")?)?,
            founder: None,
            met: Vec::new(),
        };
        if let Some(peers) = fields.get("peers") {
            let peers: Vec<String> = peers.split(',').map(str::to_owned).collect();
            let nonces: Option<Vec<_>> = field("nonces")?.split(',').map(parse_nonce).collect();
            let nonces = nonces.filter(|nonces| nonces.len() == peers.len()).ok_or("its nonces are malformed")?;
            if place_of(identity.number) >= peers.len() {
                return Err(format!("it has no place for master {}", identity.number));
            }
            identity.founder = Some(Founder { peers, nonces });
        }
        if let Some(met) = fields.get("masters") {
            let met: Option<Vec<Peer>> = met.split(',').map(parse_peer).collect();
            identity.met = met.filter(|met| !met.is_empty()).ok_or("its masters are malformed")?;
        }
        // The checksum does not cover its own digits and what follows them, so compare with the only valid encoding.
        if identity.encode() != bytes {
            return Err("it contains unexpected bytes".into());
        }
        Ok(identity)
    }
}

fn hex(nonce: Nonce) -> String {
    ClusterId(nonce).to_string()
}

fn parse_nonce(text: &str) -> Option<Option<Nonce>> {
    if text == "-" { Some(None) } else { parse_cluster(text).map(|ClusterId(nonce)| Some(nonce)) }
}

fn parse_peer(text: &str) -> Option<Peer> {
    let (number, address) = text.split_once('=')?;
    Some(Peer { number: number.parse().ok()?, address: address.to_owned() })
}

fn parse_cluster(hex: &str) -> Option<ClusterId> {
    let number = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32)?;
    Some(ClusterId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_start_is_counted_and_the_cluster_stays() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::begin(dir.path(), Identity::single).await.unwrap();
        let second = Identity::begin(dir.path(), || panic!("the directory is not new")).await.unwrap();
        assert!(!first.cluster.is_nil());
        assert_eq!((first.boot, &second), (1, &Identity { boot: 2, ..first.clone() }));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let single = Identity { cluster: ClusterId([0xa7; 16]), number: 1, boot: 4, founder: None, met: Vec::new() };
        let peers = vec!["a:1".into(), "b:1".into(), "c:1".into()];
        let founder = Founder { peers, nonces: vec![None, Some([0x5c; 16]), Some([1; 16])] };
        let one_of_three = Identity { number: 2, founder: Some(founder), ..single.clone() };
        let met = vec![Peer { number: 1, address: "a:1".into() }, Peer { number: 18, address: "b:1".into() }];
        let added = Identity { number: 18, met, ..single.clone() };
        for whole in [single, one_of_three, added] {
            let bytes = whole.encode();
            for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(Identity::decode(&flipped).is_err(), "byte {at}, bit {bit}");
            }
            assert_eq!(Identity::decode(&bytes), Ok(whole));
        }
    }

    #[tokio::test]
    async fn a_region_servers_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        terrane_env::fs::write_durable(&dir.path().join(NAME_OF_A_SERVER), b"x").await.unwrap();
        let refused = Identity::begin(dir.path(), Identity::single).await.unwrap_err().to_string();
        assert!(refused.contains("region server"), "{refused}");
    }
}
