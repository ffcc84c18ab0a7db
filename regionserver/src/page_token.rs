//! Page tokens: positions in a range, sealed so that a web page may hand them to its reader.
//!
//! A token comes back from anybody. So it carries an HMAC-SHA256 over its own bytes and over what it is bound to: table,
//! the whole range, direction, filter (and principal, empty until security comes). What opens is what was sealed, for the
//! same question; and nothing is remembered here for it. Positions are not hidden: who gets a token has seen the row that
//! it names, as the last one of the page.
//!
//! Keys come from the master with each registration and report, the newest first (`master/src/catalog/page_keys.rs`); the
//! newest seals, every one that is known opens. A server that hears from no master goes on with those it has.
//!
//! ```text
//! token    = version u8 (1) | key u32 | table u64 | binding u32 | count u16 | position * | tag [32]
//! position = bucket u32 | finished u8 (0, 1) | last row u16-length
//! tag      = HMAC-SHA256(key, "terrane page token 1" | token without tag | bound)
//! bound    = start u32-length | end u32-length | reverse u8 | filter u32-length | principal u32-length
//! ```
//!
//! Numbers are little-endian. `binding` is the CRC-32C of `bound`: it makes nothing safe, it only tells a token that was
//! made for another question from a damaged one, so that the refusal can say which.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use parking_lot::RwLock;
use sha2::Sha256;
use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{Error, Invalid, TableId};
use tokio::time::Instant;

use crate::error_mapping::no_page_key;
use crate::record::{Malformed, Reader, put_short, put_u64};

const VERSION: u8 = 1;
const DOMAIN: &[u8] = b"terrane page token 1";
const TAG_BYTES: usize = 32;
const FINISHED: u8 = 1;

/// How long a key that is new here only opens: servers hear of one with their next reports, twice a second.
const ADOPT_AFTER: Duration = Duration::from_secs(10);

/// Positions in a token: one per bucket of a salted table.
const POSITIONS_MAX: usize = 256;
/// Bytes of a token. One row of the longest kind fits, and some hundred bytes for each of the most buckets.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// A key as the master told it.
#[derive(Clone)]
pub struct PageKey {
    pub id: u32,
    pub secret: Bytes,
}

/// What a token opens under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub table: TableId,
    pub start: Bytes,
    pub end: Bytes,
    pub reverse: bool,
    pub filter: String,
}

/// Where one part of a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub bucket: u32,
    /// The last row shown; empty: none yet.
    pub last: Bytes,
    pub finished: bool,
}

/// The keys that this server seals and opens with.
#[derive(Default)]
pub struct PageSeal {
    keys: RwLock<Arc<[PageKey]>>,
    /// Until when the newest key only opens: other servers may not have heard of it.
    adopt_at: RwLock<Option<Instant>>,
}

impl PageSeal {
    /// Takes over what a master told, the newest first. A master that tells nothing (it is older, or has none yet) takes
    /// nothing away.
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

    /// What is sealed with: the newest key, or for a while the one before it.
    fn sealing<'a>(&self, keys: &'a [PageKey], now: Instant) -> Option<&'a PageKey> {
        let is_fresh = self.adopt_at.read().is_some_and(|at| now < at);
        keys.get(1).filter(|_| is_fresh).or(keys.first())
    }

    /// Makes a token.
    ///
    /// # Errors
    /// [`Error::Invalid`] for positions that no scan has, or too many; [`Error::Unavailable`] before the first key came.
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
        token.extend_from_slice(&key.id.to_le_bytes());
        put_u64(&mut token, binding.table.0);
        token.extend_from_slice(&crc32c::crc32c(&bound).to_le_bytes());
        let count = u16::try_from(positions.len()).expect("there are no more than 256: checked above");
        token.extend_from_slice(&count.to_le_bytes());
        for position in positions {
            token.extend_from_slice(&position.bucket.to_le_bytes());
            token.push(if position.finished { FINISHED } else { 0 });
            put_short(&mut token, &position.last).map_err(|error| Invalid::new(error.to_string()))?;
        }
        let tag = mac(key, &token, &bound).finalize().into_bytes();
        token.extend_from_slice(&tag);
        if token.len() > TOKEN_BYTES_MAX {
            let what = format!(
                "the page token would have {} bytes and may have {TOKEN_BYTES_MAX}: its rows are too long for {count} positions",
                token.len()
            );
            return Err(Invalid::new(what).into());
        }
        Ok(token.into())
    }

    /// Opens a token under the binding that is asked for now.
    ///
    /// # Errors
    /// [`Error::Invalid`], saying what the token does not fit; [`Error::Unavailable`] before the first key came.
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
        // In constant time: how many bytes of a forged tag are right is not to be learned.
        if mac(key, &body, &bound).verify_slice(tag).is_err() {
            return Err(head.mismatch(binding, &bound));
        }
        // It was sealed here, but perhaps for another table: the binding says no more about that than the token.
        if head.table != binding.table {
            return Err(head.mismatch(binding, &bound));
        }
        read_positions(body).map_err(|error| Error::Internal { message: format!("a sealed page token: {error}") })
    }
}

/// What stands before the positions. Not to be believed before the tag has been checked.
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

    /// Why the tag does not fit, as far as can be told.
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
            let what = format!("a row has at most {ROW_BYTES_MAX} bytes, this position {}", position.last.len());
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

/// What is bound beside the table, which the token names itself.
fn bound(binding: &Binding) -> Vec<u8> {
    let Binding { table: _, start, end, reverse, filter } = binding;
    let mut out = Vec::with_capacity(17 + start.len() + end.len() + filter.len());
    put_part(&mut out, start);
    put_part(&mut out, end);
    out.push(u8::from(*reverse));
    put_part(&mut out, filter.as_bytes());
    // The principal.
    put_part(&mut out, b"");
    out
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    let len = u32::try_from(part.len()).expect("no message is as large as 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(part);
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
