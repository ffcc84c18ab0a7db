//! Page tokens: positions in a range, sealed so that a web page can hand them to its reader.
//!
//! A token may come from anyone. So it carries an HMAC-SHA256 over its own bytes and over what it is bound to: table, the
//! whole range, direction, filter (and principal, empty until there is access control). A token that opens was sealed for
//! the same request, and the server keeps no state for it. Positions are not secret: the holder of a token has seen the row
//! that it names, the last one of the page.
//!
//! Keys come from the master with each registration and report, newest first (`master/src/catalog/page_keys.rs`). The newest
//! one seals, and every known one opens. A server that cannot reach a master continues with the keys it has.
//!
//! ```text
//! token    = version u8 (1) | key u32 | table u64 | binding u32 | count u16 | position * | tag [32]
//! position = bucket u32 | finished u8 (0, 1) | last row u16-length
//! tag      = HMAC-SHA256(key, "terrane page token 1" | token without tag | bound)
//! bound    = start u32-length | end u32-length | reverse u8 | filter u32-length | principal u32-length
//! ```
//!
//! Numbers are little-endian. `binding` is the CRC-32C of `bound`. It adds no security: it distinguishes a token that was
//! made for another request from a damaged one, so that the error can say which.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use parking_lot::RwLock;
use sha2::Sha256;
use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{ByteWriter as _, Error, Invalid, TableId};
use tokio::time::Instant;

use crate::edge::error_mapping::no_page_key;
use crate::record::{Malformed, Reader};

const VERSION: u8 = 1;
const DOMAIN: &[u8] = b"terrane page token 1";
const TAG_BYTES: usize = 32;
const FINISHED: u8 = 1;

/// How long a new key only opens tokens. Servers receive new keys with their next report, twice a second.
const ADOPT_AFTER: Duration = Duration::from_secs(10);

/// Positions in a token: one per bucket of a salted table.
const POSITIONS_MAX: usize = 256;
/// Bytes of a token. A row of maximal length fits, or a few hundred bytes for each of the maximal number of buckets.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// A key from the master.
#[derive(Clone)]
pub struct PageKey {
    pub id: u32,
    pub secret: Bytes,
}

/// The request that a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub table: TableId,
    pub start: Bytes,
    pub end: Bytes,
    pub reverse: bool,
    pub filter: String,
}

/// The position of one part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub bucket: u32,
    /// The last row shown; empty: none yet.
    pub last: Bytes,
    pub finished: bool,
}

/// The keys with which this server seals and opens tokens.
#[derive(Default)]
pub struct PageSeal {
    keys: RwLock<Arc<[PageKey]>>,
    /// Until when the newest key only opens: other servers may not have it yet.
    adopt_at: RwLock<Option<Instant>>,
}

impl PageSeal {
    /// Replaces the keys by those from a master, newest first. An empty list (the master is older, or has no keys yet) changes
    /// nothing.
    pub fn set(&self, keys: Vec<PageKey>) {
        self.set_at(keys, Instant::now());
    }

    fn set_at(&self, keys: Vec<PageKey>, now: Instant) {
        let Some(newest) = keys.first().map(|key| key.id) else { return };
        let mut known = self.keys.write();
        if known.first().is_none_or(|key| key.id != newest) {
            *self.adopt_at.write() = Some(now + ADOPT_AFTER);
        }
        *known = keys.into();
    }

    /// The key to seal with: the newest, or for a while the one before it.
    fn sealing<'a>(&self, keys: &'a [PageKey], now: Instant) -> Option<&'a PageKey> {
        let is_fresh = self.adopt_at.read().is_some_and(|at| now < at);
        keys.get(1).filter(|_| is_fresh).or(keys.first())
    }

    /// Seals a token.
    ///
    /// # Errors
    /// [`Error::Invalid`] for impossible or too many positions; [`Error::Unavailable`] before the first key arrived.
    pub fn seal(&self, binding: &Binding, positions: &[Position]) -> Result<Bytes, Error> {
        self.seal_at(binding, positions, Instant::now())
    }

    fn seal_at(&self, binding: &Binding, positions: &[Position], now: Instant) -> Result<Bytes, Error> {
        let keys = self.keys.read().clone();
        let key = self.sealing(&keys, now).ok_or_else(no_page_key)?;
        check_positions(positions)?;
        let bound = bound(binding);
        let mut token =
            Vec::with_capacity(64 + positions.iter().map(|position| 8 + position.last.len()).sum::<usize>());
        token.push(VERSION);
        token.u32(key.id);
        token.u64(binding.table.0);
        token.u32(crc32c::crc32c(&bound));
        let count = u16::try_from(positions.len()).expect("at most 256, as checked above");
        token.u16(count);
        for position in positions {
            token.u32(position.bucket);
            token.push(if position.finished { FINISHED } else { 0 });
            token.short(&position.last).map_err(|error| Invalid::new(error.to_string()))?;
        }
        let tag = mac(key, &token, &bound).finalize().into_bytes();
        token.extend_from_slice(&tag);
        if token.len() > TOKEN_BYTES_MAX {
            let what = format!(
                "the page token would have {} bytes, and the limit is {TOKEN_BYTES_MAX}: the rows are too long for {count} positions",
                token.len()
            );
            return Err(Invalid::new(what).into());
        }
        Ok(token.into())
    }

    /// Opens a token for the present request.
    ///
    /// # Errors
    /// [`Error::Invalid`], saying what the token does not match; [`Error::Unavailable`] before the first key arrived.
    pub fn open(&self, binding: &Binding, token: Bytes) -> Result<Vec<Position>, Error> {
        let keys = self.keys.read().clone();
        if keys.is_empty() {
            return Err(no_page_key());
        }
        if token.len() > TOKEN_BYTES_MAX || token.len() < TAG_BYTES {
            return Err(damaged());
        }
        let body = token.slice(..token.len() - TAG_BYTES);
        let tag = &token[body.len()..];
        let head = Head::read(&body).map_err(|_| damaged())?;
        let bound = bound(binding);
        let key = keys.iter().find(|key| key.id == head.key).ok_or_else(damaged)?;
        // In constant time, so that an attacker does not learn how many bytes of a forged tag are right.
        let is_sealed = mac(key, &body, &bound).verify_slice(tag).is_ok();
        if !is_sealed && !terrane_env::planted!("a page token is trusted unchecked") {
            return Err(head.mismatch(binding, &bound));
        }
        // The tag is right, but the token may belong to another table, which only the token itself names.
        if head.table != binding.table {
            return Err(head.mismatch(binding, &bound));
        }
        read_positions(body).map_err(|error| Error::Internal { message: format!("a sealed page token: {error}") })
    }
}

/// The fields before the positions. Not trusted before the tag is checked.
struct Head {
    key: u32,
    table: TableId,
    binding: u32,
}

impl Head {
    fn read(body: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body.clone());
        Self::take(&mut reader)
    }

    fn take(reader: &mut Reader) -> Result<Self, Malformed> {
        if reader.u8()? != VERSION {
            return Err(Malformed("its version is not known to this server"));
        }
        let key = u32::from_le_bytes(reader.array()?);
        let table = TableId(reader.u64()?);
        Ok(Self { key, table, binding: u32::from_le_bytes(reader.array()?) })
    }

    /// Why the tag does not match, as far as the fields show.
    fn mismatch(&self, binding: &Binding, bound: &[u8]) -> Error {
        if self.table != binding.table {
            return refused("the page token belongs to another table");
        }
        if self.binding != crc32c::crc32c(bound) {
            return refused("the page token was not made for this range, direction or filter");
        }
        damaged()
    }
}

fn check_positions(positions: &[Position]) -> Result<(), Error> {
    if positions.len() > POSITIONS_MAX {
        let what = format!("a page token holds at most {POSITIONS_MAX} positions, not {}", positions.len());
        return Err(Invalid::new(what).into());
    }
    match positions.iter().find(|position| position.last.len() > ROW_BYTES_MAX) {
        Some(position) => {
            let what =
                format!("a row has at most {ROW_BYTES_MAX} bytes, and this position has {}", position.last.len());
            Err(Invalid::new(what).into())
        }
        None => Ok(()),
    }
}

fn read_positions(body: Bytes) -> Result<Vec<Position>, Malformed> {
    let mut reader = Reader::new(body);
    Head::take(&mut reader)?;
    let count = u16::from_le_bytes(reader.array()?);
    let mut positions = Vec::new();
    for _ in 0..count {
        let bucket = u32::from_le_bytes(reader.array()?);
        let finished = reader.u8()? == FINISHED;
        positions.push(Position { bucket, last: reader.short()?, finished });
    }
    reader.finish()?;
    Ok(positions)
}

/// What is bound in addition to the table, which the token itself names.
fn bound(binding: &Binding) -> Vec<u8> {
    let Binding { table: _, start, end, reverse, filter } = binding;
    let mut out = Vec::with_capacity(17 + start.len() + end.len() + filter.len());
    out.bytes(start);
    out.bytes(end);
    out.flag(*reverse);
    out.text(filter);
    // The principal.
    out.bytes(b"");
    out
}

fn mac(key: &PageKey, token: &[u8], bound: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.secret).expect("HMAC takes keys of any length");
    mac.update(DOMAIN);
    mac.update(token);
    mac.update(bound);
    mac
}

fn refused(what: &str) -> Error {
    Invalid::new(format!("{what}; start from the first page")).into()
}

fn damaged() -> Error {
    refused("the page token is damaged, or was made with a key that is no longer valid")
}

#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests;
