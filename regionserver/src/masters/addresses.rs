//! The `addresses` file: where the servers of the cluster were last reached.
//!
//! Addresses come from the master and from peers (`terrane_raft::AddressBook`). They are stored so that a restarted server
//! finds its peers while no master answers. The file is text with a version and a checksum, like the `server` file next to
//! it. Its content is a hint: if it is missing or damaged, the server waits for a master or a peer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_types::ServerId;
use tokio_util::sync::CancellationToken;

pub use terrane_raft::AddressBook as Addresses;

pub const NAME: &str = "addresses";
const HEADER: &str = "terrane addresses 1";
/// The pause before a failed write is retried: the disk may be full for a while.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Reads the stored addresses. Returns none if the file is missing or damaged.
pub async fn load(directory: &Path) -> BTreeMap<ServerId, String> {
    let file = directory.join(NAME);
    let text = match fs::read(&file).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => {
            tracing::warn!(%error, "cannot read {}; a master or the peers will send the addresses", file.display());
            return BTreeMap::new();
        }
    };
    decode(&text).unwrap_or_else(|what| {
        tracing::warn!("ignoring {}: {what}; a master or the peers will send the addresses", file.display());
        BTreeMap::new()
    })
}

/// Stores the addresses whenever one changes, until `stop`.
pub async fn keep(addresses: Arc<Addresses>, directory: PathBuf, stop: CancellationToken) {
    let file = directory.join(NAME);
    let mut stored = fs::read(&file).await.unwrap_or_default();
    let mut failed = false;
    loop {
        let change = async { if failed { tokio::time::sleep(RETRY_PAUSE).await } else { addresses.changed().await } };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = change => {}
        }
        let bytes = encode(&addresses.all());
        if bytes == stored {
            continue;
        }
        let (path, content) = (file.clone(), bytes.clone());
        let written = run_io(async move { fs::write_durable(&path, &content).await }).await;
        match written {
            Ok(()) => (stored, failed) = (bytes, false),
            Err(error) => {
                if !failed {
                    tracing::warn!(%error, "cannot write {}; retrying", file.display());
                }
                failed = true;
            }
        }
    }
}

pub(crate) fn encode(addresses: &BTreeMap<ServerId, String>) -> Vec<u8> {
    let lines: String = addresses.iter().map(|(server, address)| format!("server {server} {address}\n")).collect();
    let body = format!("{HEADER}\n{lines}");
    format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes()
}

/// Decodes the file's bytes.
pub fn decode(bytes: &[u8]) -> Result<BTreeMap<ServerId, String>, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let (body, checksum) = text.rsplit_once("crc32c ").ok_or("it ends before its checksum")?;
    let expected = u32::from_str_radix(checksum.trim_end(), 16).map_err(|_| "its checksum is not a number")?;
    if crc32c::crc32c(body.as_bytes()) != expected {
        return Err("its checksum does not match");
    }
    let mut lines = body.lines();
    if lines.next() != Some(HEADER) {
        return Err("this build does not know its version");
    }
    let address = |line: &str| {
        let (server, address) = line.strip_prefix("server ")?.split_once(' ')?;
        Some((ServerId(server.parse().ok()?), address.to_owned()))
    };
    let addresses = lines.map(|line| address(line).ok_or("a line has no server and address"));
    let addresses = addresses.collect::<Result<BTreeMap<_, _>, _>>()?;
    // The checksum covers neither its own digits nor what follows them.
    if encode(&addresses) == bytes { Ok(addresses) } else { Err("it is not in the form in which it is written") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BTreeMap<ServerId, String> {
        [(ServerId(1), "127.0.0.1:7700".to_owned()), (ServerId(20), "b.example:7700".to_owned())].into()
    }

    #[test]
    fn addresses_round_trip_and_every_flipped_bit_is_detected() {
        let whole = encode(&sample());
        assert_eq!(decode(&whole), Ok(sample()));
        assert_eq!(decode(&encode(&BTreeMap::new())), Ok(BTreeMap::new()));
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(decode(&bytes).is_err(), "byte {at}, bit {bit}");
        }
    }

    #[tokio::test]
    async fn a_changed_address_is_stored_for_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let (book, stop) = (Arc::new(Addresses::default()), CancellationToken::new());
        assert!(load(directory.path()).await.is_empty());
        let keeping = tokio::spawn(keep(book.clone(), directory.path().to_owned(), stop.clone()));
        book.set(sample());
        let stored = async {
            while load(directory.path()).await != sample() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), stored).await.unwrap();
        stop.cancel();
        keeping.await.unwrap();
    }
}
