//! The keys by which region servers seal page tokens.
//!
//! They are here because a token that one server sealed must open at every other, after restarts of all of them too. The
//! newest key seals, the one before it still opens: a new one is made when the newest is [`ROTATE_AFTER_MS`] old, so a token
//! lives for one to two such times. Who reads the catalog's files could forge tokens, and could read every row as well.

use std::fmt;

use super::codec::{DecodeError, Reader, Writer};

/// Bytes of a key.
pub const SECRET_BYTES: usize = 32;
/// Keys that open tokens.
const VALID: usize = 2;
/// Age at which the newest key gets a successor.
pub const ROTATE_AFTER_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// A key's bytes; never shown.
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
    /// Named by the tokens it seals; counts up from 1.
    pub id: u32,
    /// The key.
    pub secret: Secret,
    /// The stamp of the entry that made it.
    pub since_ms: u64,
}

/// The keys that are valid.
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

    /// The id that the next key gets.
    pub fn next_id(&self) -> u32 {
        // In four billion months it would begin anew, which is as good.
        self.keys.first().map_or(1, |newest| newest.id.wrapping_add(1))
    }

    /// Whether a new key is wanted at this time.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.keys.first().is_none_or(|newest| now_ms.saturating_sub(newest.since_ms) >= ROTATE_AFTER_MS)
    }

    pub(super) fn add(&mut self, secret: Secret, since_ms: u64) {
        self.keys.insert(0, PageKey { id: self.next_id(), secret, since_ms });
        self.keys.truncate(VALID);
    }

    pub(super) fn encode(&self, out: &mut Writer) {
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
            return Err(DecodeError::Rule(format!("it has {} page keys; {VALID} are valid at most", keys.len())));
        }
        Ok(Self { keys })
    }
}
