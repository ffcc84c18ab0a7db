//! The keys with which region servers seal page tokens.
//!
//! They are part of the catalog because every server must open the tokens of every other, even after all have
//! restarted. The newest key seals, the previous one still opens. A new key is created when the newest is
//! [`ROTATE_AFTER_MS`] old, so a token is valid for one to two such periods. Anyone who can read the catalog's files
//! could forge tokens, but could read every row as well.

use std::fmt;

use super::codec::{ByteWriter as _, DecodeError, Reader};

/// Bytes of a key.
pub const SECRET_BYTES: usize = 32;
/// Number of keys that open tokens.
const VALID: usize = 2;
/// Age at which the newest key gets a successor.
pub const ROTATE_AFTER_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// A key's bytes; never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; SECRET_BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey {
    /// Its id, part of the tokens it seals; counts up from 1.
    pub id: u32,
    /// The key.
    pub secret: Secret,
    /// The stamp of the entry that added it.
    pub since_ms: u64,
}

/// The valid keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageKeys {
    /// The newest first.
    keys: Vec<PageKey>,
}

impl PageKeys {
    /// The keys, the newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PageKey> {
        self.keys.iter()
    }

    /// The id of the next key.
    pub fn next_id(&self) -> u32 {
        // Wraps after four billion months.
        self.keys.first().map_or(1, |newest| newest.id.wrapping_add(1))
    }

    /// Whether a new key is due at this time.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.keys.first().is_none_or(|newest| now_ms.saturating_sub(newest.since_ms) >= ROTATE_AFTER_MS)
    }

    pub(super) fn add(&mut self, secret: Secret, since_ms: u64) {
        self.keys.insert(0, PageKey { id: self.next_id(), secret, since_ms });
        self.keys.truncate(VALID);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.keys.iter(), |out, key| {
            out.u32(key.id);
            out.raw(&key.secret.0);
            out.u64(key.since_ms);
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let keys = from.list(|from| {
            Ok::<_, DecodeError>(PageKey { id: from.u32()?, secret: Secret(from.array()?), since_ms: from.u64()? })
        })?;
        if keys.len() > VALID {
            return Err(DecodeError::Rule(format!("it has {} page keys; at most {VALID} can be valid", keys.len())));
        }
        Ok(Self { keys })
    }
}
