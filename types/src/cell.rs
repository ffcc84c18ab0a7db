//! The packed cell: the form of a cell on the wire, in log entries and in exports.
//!
//! The client packs a cell once, and nothing on its way encodes it again: the server validates the bytes, the leader
//! fills in timestamps in place, the log stores them, and a scan copies them out. `docs/formats/cell.md` documents the
//! layout; only this file implements it.
//!
//! Integers are little-endian; one cell follows another without padding:
//!
//! ```text
//! family_len u8 | qualifier_len u16 | tags_len u16 | value_len u32 | timestamp i64 | kind u8
//!               | family | qualifier | tags | value
//! ```
//!
//! Invariants:
//! - The timestamp has a fixed width and offset, so that stamping never moves a byte.
//! - Lengths in untrusted bytes are compared with the bytes that are left; none becomes the size of an allocation.
//! - The bytes of a [`PackedCells`] are valid; iterating over them cannot fail.

use std::fmt;

use bytes::Bytes;

use crate::escape::{escape, escape_family};
use crate::invalid::Invalid;
use crate::limits::{QUALIFIER_BYTES_MAX, ROW_MUTATION_BYTES_MAX, TAGS_BYTES_MAX, TIMESTAMP_MAX, VALUE_BYTES_MAX};
use crate::name::check_family_name;

/// Bytes of a cell before its family.
pub const HEADER_BYTES: usize = 18;

/// The timestamp that tells the leader to fill in its stamp; no stored cell has it.
pub const LATEST: i64 = i64::MAX;

/// The tag with a cell's own time to live in milliseconds, a u64. HBase has the same number.
pub const TTL_TAG: u8 = 8;

const TIMESTAMP_AT: usize = 9;
const KIND_AT: usize = 17;

/// What a cell does. The numbers are stored and sent: they are never changed or reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CellKind {
    /// Sets a value.
    Put = 0,
    /// Deletes one version of one column: the one with exactly this timestamp.
    Delete = 1,
    /// Deletes all versions of one column up to and at this timestamp.
    DeleteColumn = 2,
    /// Deletes all versions of all columns of the family up to and at this timestamp.
    DeleteFamily = 3,
    /// Deletes the versions with exactly this timestamp in all columns of the family.
    DeleteFamilyVersion = 4,
}

impl CellKind {
    /// All kinds: the tombstones, from the one that deletes most, then the put. This is HBase's order of cells that agree in
    /// row, column and timestamp.
    pub const WIDEST_FIRST: [Self; 5] =
        [Self::DeleteFamily, Self::DeleteColumn, Self::DeleteFamilyVersion, Self::Delete, Self::Put];

    /// The kind with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Put),
            1 => Some(Self::Delete),
            2 => Some(Self::DeleteColumn),
            3 => Some(Self::DeleteFamily),
            4 => Some(Self::DeleteFamilyVersion),
            _ => None,
        }
    }

    /// Whether the cell is a tombstone of the whole family; such a cell has an empty qualifier.
    #[must_use]
    pub const fn is_family_tombstone(self) -> bool {
        matches!(self, Self::DeleteFamily | Self::DeleteFamilyVersion)
    }

    /// Whether the cell is a tombstone.
    #[must_use]
    pub const fn is_delete(self) -> bool {
        !matches!(self, Self::Put)
    }
}

/// One borrowed cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// The family's name.
    pub family: &'a [u8],
    /// The qualifier; empty for the kinds that act on a family.
    pub qualifier: &'a [u8],
    /// Milliseconds since 1970 by convention, or [`LATEST`].
    pub timestamp: i64,
    /// What the cell does.
    pub kind: CellKind,
    /// The tag section, empty for most cells: see [`ttl_tag`].
    pub tags: &'a [u8],
    /// The value; empty for deletes.
    pub value: &'a [u8],
}

impl<'a> CellRef<'a> {
    /// A put without tags.
    #[must_use]
    pub const fn put(family: &'a [u8], qualifier: &'a [u8], timestamp: i64, value: &'a [u8]) -> Self {
        Self { family, qualifier, timestamp, kind: CellKind::Put, tags: &[], value }
    }

    /// A tombstone of this kind.
    #[must_use]
    pub const fn delete(kind: CellKind, family: &'a [u8], qualifier: &'a [u8], timestamp: i64) -> Self {
        Self { family, qualifier, timestamp, kind, tags: &[], value: &[] }
    }

    /// The last moment of a put with a time to live of its own; `i64::MAX`: it has none.
    #[must_use]
    pub fn expires_ms(&self) -> i64 {
        expires_ms(self.tags, self.timestamp)
    }

    /// The size of the packed cell.
    #[must_use]
    pub const fn packed_len(&self) -> usize {
        HEADER_BYTES + self.family.len() + self.qualifier.len() + self.tags.len() + self.value.len()
    }

    /// Checks the family name, lengths, the timestamp, and the rules of the kind.
    ///
    /// # Errors
    /// [`Invalid`] that names the part and the limit.
    pub fn check(&self) -> Result<(), Invalid> {
        check_family_name(self.family)?;
        self.check_length("qualifier", self.qualifier.len(), QUALIFIER_BYTES_MAX)?;
        self.check_length("tag section", self.tags.len(), TAGS_BYTES_MAX)?;
        self.check_length("value", self.value.len(), VALUE_BYTES_MAX)?;
        if self.timestamp < 0 {
            return Err(Invalid::new(format!(
                "the timestamp of {self} is negative; timestamps are 0 to {TIMESTAMP_MAX}"
            )));
        }
        if self.kind.is_delete() && !self.value.is_empty() {
            return Err(Invalid::new(format!("{self} deletes and yet carries a value")));
        }
        if self.kind.is_family_tombstone() && !self.qualifier.is_empty() {
            return Err(Invalid::new(format!("{self} deletes in a whole family and yet names a qualifier")));
        }
        if self.kind.is_delete() && !self.tags.is_empty() {
            return Err(Invalid::new(format!("{self} deletes and yet carries tags")));
        }
        check_tags(self.tags).map_err(|why| Invalid::new(format!("the tag section of {self} {why}")))
    }

    fn check_length(&self, what: &str, length: usize, limit: usize) -> Result<(), Invalid> {
        if length <= limit {
            return Ok(());
        }
        Err(Invalid::new(format!("the {what} of {self} has {length} bytes; the limit is {limit}")))
    }
}

/// `family:qualifier` with at most 64 bytes of the qualifier: for messages.
impl fmt::Display for CellRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.qualifier[..self.qualifier.len().min(64)];
        let more = if shown.len() < self.qualifier.len() { "..." } else { "" };
        write!(f, "{}:{}{more}", escape_family(self.family), escape(shown))
    }
}

impl fmt::Debug for CellRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}/{:?}/{} bytes", self.timestamp, self.kind, self.value.len())
    }
}

/// A tag section is a sequence of `type u8 | length u16 | bytes` that fills it exactly.
fn check_tags(mut tags: &[u8]) -> Result<(), &'static str> {
    while let Some((_, _, rest)) = next_tag(tags)? {
        tags = rest;
    }
    Ok(())
}

type Tag<'a> = (u8, &'a [u8], &'a [u8]);

/// The type and the bytes of the first tag, and the tags after it.
fn next_tag(tags: &[u8]) -> Result<Option<Tag<'_>>, &'static str> {
    match tags {
        [] => Ok(None),
        [kind, low, high, rest @ ..] => {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let (bytes, rest) = rest.split_at_checked(length).ok_or("ends inside a tag")?;
            Ok(Some((*kind, bytes, rest)))
        }
        _ => Err("ends inside a tag's header"),
    }
}

/// The tag section of a put that expires so many milliseconds after its timestamp.
#[must_use]
pub fn ttl_tag(ttl_ms: u64) -> [u8; 11] {
    let mut tag = [TTL_TAG, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    tag[3..].copy_from_slice(&ttl_ms.to_le_bytes());
    tag
}

/// The time to live in a tag section.
#[must_use]
pub fn ttl_of(tags: &[u8]) -> Option<u64> {
    let mut rest = tags;
    while let Ok(Some((kind, bytes, next))) = next_tag(rest) {
        if let (TTL_TAG, Ok(ttl)) = (kind, bytes.try_into()) {
            return Some(u64::from_le_bytes(ttl));
        }
        rest = next;
    }
    None
}

/// The last moment of a put with these tags; `i64::MAX`: it has no time to live of its own.
#[must_use]
#[inline]
pub fn expires_ms(tags: &[u8], timestamp: i64) -> i64 {
    if tags.is_empty() {
        return i64::MAX;
    }
    ttl_of(tags).map_or(i64::MAX, |ttl| timestamp.saturating_add_unsigned(ttl))
}

/// Appends a cell in its packed form.
///
/// # Panics
/// If a length does not fit its field. Check cells from outside with [`CellRef::check`] first; its limits all fit.
pub fn pack(out: &mut Vec<u8>, cell: CellRef<'_>) {
    let fits = "cells are checked against the limits before they are packed";
    out.reserve(cell.packed_len());
    out.push(u8::try_from(cell.family.len()).expect(fits));
    out.extend_from_slice(&u16::try_from(cell.qualifier.len()).expect(fits).to_le_bytes());
    out.extend_from_slice(&u16::try_from(cell.tags.len()).expect(fits).to_le_bytes());
    out.extend_from_slice(&u32::try_from(cell.value.len()).expect(fits).to_le_bytes());
    out.extend_from_slice(&cell.timestamp.to_le_bytes());
    out.push(cell.kind as u8);
    out.extend_from_slice(cell.family);
    out.extend_from_slice(cell.qualifier);
    out.extend_from_slice(cell.tags);
    out.extend_from_slice(cell.value);
}

/// Reads the first cell of `bytes` and returns it with its length; `None` if the bytes do not start with a whole cell
/// of a known kind. Checks only the structure; [`CellRef::check`] checks the rest.
#[must_use]
pub fn unpack(bytes: &[u8]) -> Option<(CellRef<'_>, usize)> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let family_len = usize::from(header[0]);
    let qualifier_len = usize::from(u16::from_le_bytes([header[1], header[2]]));
    let tags_len = usize::from(u16::from_le_bytes([header[3], header[4]]));
    let value_len = u32::from_le_bytes([header[5], header[6], header[7], header[8]]) as usize;
    let kind = CellKind::from_u8(header[KIND_AT])?;
    let (_, timestamp) = header[..KIND_AT].split_last_chunk::<8>()?;

    // Each split fails if the bytes end early, so no length is trusted.
    let (family, rest) = body.split_at_checked(family_len)?;
    let (qualifier, rest) = rest.split_at_checked(qualifier_len)?;
    let (tags, rest) = rest.split_at_checked(tags_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    let cell = CellRef { family, qualifier, timestamp: i64::from_le_bytes(*timestamp), kind, tags, value };
    Some((cell, bytes.len() - rest.len()))
}

/// Sets the timestamp of every cell with [`LATEST`] to `stamp` and returns their number. The bytes must be valid;
/// nothing is changed after the first malformed cell.
pub fn stamp_in_place(cells: &mut [u8], stamp: i64) -> usize {
    stamp_those_in_place(cells, stamp, |_| true)
}

/// As [`stamp_in_place`], for cells of some kinds only.
pub fn stamp_those_in_place(cells: &mut [u8], stamp: i64, takes: impl Fn(CellKind) -> bool) -> usize {
    debug_assert!((0..LATEST).contains(&stamp), "a stamp of {stamp} is not a valid timestamp of a cell");
    let mut stamped = 0;
    let mut at = 0;
    while let Some((cell, length)) = unpack(&cells[at..]) {
        if cell.timestamp == LATEST && takes(cell.kind) {
            cells[at + TIMESTAMP_AT..at + KIND_AT].copy_from_slice(&stamp.to_le_bytes());
            stamped += 1;
        }
        at += length;
    }
    stamped
}

/// Packed cells that are well-formed and within the limits.
///
/// ```
/// use bytes::Bytes;
/// use terrane_types::cell::{CellRef, LATEST, PackedCells, pack};
///
/// let mut bytes = Vec::new();
/// pack(&mut bytes, CellRef::put(b"data", b"airtemp", LATEST, &[0, 0, 0, 21]));
/// let cells = PackedCells::validate(Bytes::from(bytes))?;
/// assert_eq!(cells.iter().next().unwrap().qualifier, b"airtemp");
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedCells(Bytes);

impl PackedCells {
    /// Checks bytes from outside: whole cells of known kinds and within the limits, with nothing left over.
    ///
    /// # Errors
    /// [`Invalid`] that names the first bad cell.
    pub fn validate(bytes: Bytes) -> Result<Self, Invalid> {
        check_cells(&bytes, |_| Ok(()))?;
        Ok(Self(bytes))
    }

    /// Takes bytes that were validated before they were stored. Checks only the structure (whole cells of known kinds,
    /// nothing left over), because a checksum protects stored bytes.
    ///
    /// # Errors
    /// [`Invalid`] that names the offset of the first malformed cell.
    pub fn stored(bytes: Bytes) -> Result<Self, Invalid> {
        let mut at = 0;
        while at < bytes.len() {
            at += unpack(&bytes[at..]).ok_or_else(|| malformed(at, bytes.len()))?.1;
        }
        Ok(Self(bytes))
    }

    /// Checks the cells of one row's mutation: as [`PackedCells::validate`], and also not empty, at most
    /// [`ROW_MUTATION_BYTES_MAX`] bytes, and without features that are not implemented.
    ///
    /// A tombstone of one version must name its timestamp: with [`LATEST`], it would get the stamp of this write, which
    /// no cell has yet, and silently delete nothing.
    ///
    /// # Errors
    /// [`Invalid`] that names what is wrong and the limit.
    pub fn validate_mutation(bytes: Bytes) -> Result<Self, Invalid> {
        Self::validate_mutation_with(bytes, |_| Ok(()))
    }

    /// As [`PackedCells::validate_mutation`], with a further check of each cell in the same pass.
    pub(crate) fn validate_mutation_with(
        bytes: Bytes,
        mut further: impl FnMut(&CellRef<'_>) -> Result<(), Invalid>,
    ) -> Result<Self, Invalid> {
        if bytes.is_empty() {
            return Err(Invalid::new("the mutation of a row holds no cell"));
        }
        if bytes.len() > ROW_MUTATION_BYTES_MAX {
            return Err(Invalid::new(format!(
                "the mutation of a row has {} bytes of cells; the limit is {ROW_MUTATION_BYTES_MAX}",
                bytes.len()
            )));
        }
        check_cells(&bytes, |cell| {
            // A tag that is not understood might be a rule about who sees the cell.
            if !cell.tags.is_empty() && cell.tags[..] != ttl_of(cell.tags).map(ttl_tag).unwrap_or_default() {
                return Err(Invalid::new(format!("{cell} carries tags other than one time to live of 8 bytes")));
            }
            if cell.timestamp == LATEST && matches!(cell.kind, CellKind::Delete | CellKind::DeleteFamilyVersion) {
                return Err(Invalid::new(format!("the delete of one version of {cell} must name its timestamp")));
            }
            further(cell)
        })?;
        Ok(Self(bytes))
    }

    /// Packs cells.
    ///
    /// # Errors
    /// [`Invalid`] for the first that breaks a limit.
    pub fn from_cells<'a>(cells: impl IntoIterator<Item = CellRef<'a>>) -> Result<Self, Invalid> {
        let mut out = Vec::new();
        for cell in cells {
            cell.check()?;
            pack(&mut out, cell);
        }
        Ok(Self(out.into()))
    }

    /// The cells, in the order of packing.
    #[must_use]
    pub fn iter(&self) -> Cells<'_> {
        Cells::new(&self.0)
    }

    /// The packed bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The packed bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Whether there is no cell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a PackedCells {
    type Item = CellRef<'a>;
    type IntoIter = Cells<'a>;

    fn into_iter(self) -> Cells<'a> {
        self.iter()
    }
}

impl fmt::Debug for PackedCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Checks packed cells in one pass, with the rules of a cell and with further ones.
fn malformed(at: usize, bytes: usize) -> Invalid {
    Invalid::new(format!(
        "the packed cells are malformed at byte {at} of {bytes}: no whole cell of a known kind begins there"
    ))
}

fn check_cells(bytes: &[u8], mut further: impl FnMut(&CellRef<'_>) -> Result<(), Invalid>) -> Result<(), Invalid> {
    let mut at = 0;
    while at < bytes.len() {
        let (cell, length) = unpack(&bytes[at..]).ok_or_else(|| malformed(at, bytes.len()))?;
        cell.check()?;
        further(&cell)?;
        at += length;
    }
    Ok(())
}

/// Iterates over packed cells without copying. It ends at the first malformed cell, which in valid bytes is the end.
#[derive(Clone, Debug)]
pub struct Cells<'a> {
    rest: &'a [u8],
}

impl<'a> Cells<'a> {
    /// Iterates over bytes that this process packed or validated.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The remaining bytes, starting with the next cell.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Cells<'a> {
    type Item = CellRef<'a>;

    fn next(&mut self) -> Option<CellRef<'a>> {
        let (cell, length) = unpack(self.rest)?;
        self.rest = &self.rest[length..];
        Some(cell)
    }
}

#[cfg(test)]
mod tests;
