//! Cell blocks: cells outside of protobuf, in the layout of HBase's `KeyValueCodec`.
//!
//! A block is a concatenation of cells without a count; the messages beside it say how many cells belong to what. One cell,
//! big-endian:
//!
//! ```text
//! cell_len u32 | key_len u32 | value_len u32
//!   | row_len u16 | row | family_len u8 | family | qualifier | timestamp i64 | type u8
//!   | value [| tags_len u16 | tags]
//! ```
//!
//! The qualifier takes what the key has left. Tags exist only under `KeyValueCodecWithTags`.
//!
//! Invariants:
//! - All lengths of a cell agree with each other and with the bytes that are there, or the block is refused from that cell
//!   on. A length is only ever compared, never allocated.
//! - A reader that has failed stays failed: what follows a malformed cell has no boundaries.

use terrane_types::cell::{CellKind, CellRef};
use terrane_types::{Invalid, escape};

use crate::proto;

/// Longest row of HBase's layout, whose length is a signed 16-bit number.
pub const ROW_BYTES_MAX: usize = i16::MAX as usize;

/// Longest family of HBase's layout, whose length is a signed byte.
pub const FAMILY_BYTES_MAX: usize = i8::MAX as usize;

/// Bytes of a key beside row, family and qualifier.
const KEY_OVERHEAD: usize = 2 + 1 + 8 + 1;

/// How the cells of a connection's blocks are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// `KeyValueCodec`: cells without tags.
    KeyValue,
    /// `KeyValueCodecWithTags`: a cell with tags carries them after its value.
    KeyValueWithTags,
}

impl Codec {
    /// The codec with this Java class.
    #[must_use]
    pub fn of_class(class: &str) -> Option<Self> {
        match class {
            "org.apache.hadoop.hbase.codec.KeyValueCodec" => Some(Self::KeyValue),
            "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags" => Some(Self::KeyValueWithTags),
            _ => None,
        }
    }
}

/// The number of a kind of cell in HBase's layout.
#[must_use]
pub const fn type_code(kind: CellKind) -> u8 {
    match kind {
        CellKind::Put => 4,
        CellKind::Delete => 8,
        CellKind::DeleteFamilyVersion => 10,
        CellKind::DeleteColumn => 12,
        CellKind::DeleteFamily => 14,
    }
}

/// The kind of cell with this number in HBase's layout.
#[must_use]
pub const fn kind_of_code(code: u8) -> Option<CellKind> {
    match code {
        4 => Some(CellKind::Put),
        8 => Some(CellKind::Delete),
        10 => Some(CellKind::DeleteFamilyVersion),
        12 => Some(CellKind::DeleteColumn),
        14 => Some(CellKind::DeleteFamily),
        _ => None,
    }
}

/// One cell with its row, borrowed from a block or from a message. Terrane's largest timestamp, "fill in the time", is
/// HBase's too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValue<'a> {
    /// The row.
    pub row: &'a [u8],
    /// The rest of the cell.
    pub cell: CellRef<'a>,
}

impl KeyValue<'_> {
    /// Appends the cell to a block.
    ///
    /// # Errors
    /// [`Invalid`] if HBase's layout has no room for the row or the family; nothing was appended.
    pub fn encode(&self, codec: Codec, out: &mut Vec<u8>) -> Result<(), Invalid> {
        let Self { row, cell } = *self;
        let tags = if codec == Codec::KeyValueWithTags { cell.tags } else { &[] };
        let tags_bytes = if tags.is_empty() { 0 } else { 2 + tags.len() };
        let key = KEY_OVERHEAD + row.len() + cell.family.len() + cell.qualifier.len();
        let row_length = u16::try_from(row.len()).ok().filter(|_| row.len() <= ROW_BYTES_MAX);
        let family_length = u8::try_from(cell.family.len()).ok().filter(|_| cell.family.len() <= FAMILY_BYTES_MAX);
        let (Some(row_length), Some(family_length)) = (row_length, family_length) else {
            return Err(Invalid::new(format!(
                "HBase's protocol has no room for {cell}: rows have at most {ROW_BYTES_MAX} bytes, families \
                 {FAMILY_BYTES_MAX}"
            )));
        };
        let length = |bytes: usize| u32::try_from(bytes).ok().filter(|_| bytes <= i32::MAX as usize);
        let (Some(total), Some(key), Some(value), Ok(tags_length)) = (
            length(8 + key + cell.value.len() + tags_bytes),
            length(key),
            length(cell.value.len()),
            u16::try_from(tags.len()),
        ) else {
            return Err(Invalid::new(format!("HBase's protocol has no room for {cell}: it has more than 2 GiB")));
        };
        let begin = out.len();
        out.reserve(4 + total as usize);
        out.extend_from_slice(&total.to_be_bytes());
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
        out.extend_from_slice(&row_length.to_be_bytes());
        out.extend_from_slice(row);
        out.push(family_length);
        out.extend_from_slice(cell.family);
        out.extend_from_slice(cell.qualifier);
        out.extend_from_slice(&cell.timestamp.to_be_bytes());
        out.push(type_code(cell.kind));
        out.extend_from_slice(cell.value);
        if !tags.is_empty() {
            out.extend_from_slice(&tags_length.to_be_bytes());
            out.extend_from_slice(tags);
        }
        let written = out.len() - begin;
        assert_eq!(written, 4 + total as usize, "a cell is not as long as it says: its reader would lose the next one");
        Ok(())
    }

    /// The cell as a message, for connections without a codec.
    #[must_use]
    pub fn to_proto(&self) -> proto::Cell {
        let Self { row, cell } = *self;
        proto::Cell {
            row: Some(row.to_vec().into()),
            family: Some(cell.family.to_vec().into()),
            qualifier: Some(cell.qualifier.to_vec().into()),
            timestamp: Some(cell.timestamp.cast_unsigned()),
            cell_type: Some(i32::from(type_code(cell.kind))),
            value: Some(cell.value.to_vec().into()),
            tags: None,
        }
    }
}

/// Reads the cells of a block in order.
#[derive(Clone, Debug)]
pub struct BlockReader<'a> {
    rest: &'a [u8],
    codec: Codec,
    /// Cells read so far, for messages.
    read: usize,
}

impl<'a> BlockReader<'a> {
    /// Reads a block of a connection with this codec.
    #[must_use]
    pub const fn new(codec: Codec, block: &'a [u8]) -> Self {
        Self { rest: block, codec, read: 0 }
    }

    /// The next cell, which a message announced.
    ///
    /// # Errors
    /// [`Invalid`] if the block has no further cell or a malformed one.
    pub fn next_cell(&mut self) -> Result<KeyValue<'a>, Invalid> {
        if self.rest.is_empty() {
            return Err(Invalid::new(format!(
                "the cell block ends after {} cells; the request announces more",
                self.read
            )));
        }
        let (cell, length) = decode(self.codec, self.rest)
            .map_err(|why| Invalid::new(format!("cell {} of the cell block is malformed: {}", self.read, why.what)))?;
        self.rest = &self.rest[length..];
        self.read += 1;
        Ok(cell)
    }

    /// The next `count` cells. The count comes from a message; the list grows with the cells that are there.
    ///
    /// # Errors
    /// [`Invalid`] if the block has fewer, or a malformed one.
    pub fn take(&mut self, count: usize) -> Result<Vec<KeyValue<'a>>, Invalid> {
        let mut cells = Vec::new();
        for _ in 0..count {
            cells.push(self.next_cell()?);
        }
        Ok(cells)
    }

    /// Checks that every cell of the block was read.
    ///
    /// # Errors
    /// [`Invalid`] if bytes are left.
    pub fn finish(&self) -> Result<(), Invalid> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Invalid::new(format!(
            "{} bytes of the cell block follow the {} cells that the request announces",
            self.rest.len(),
            self.read
        )))
    }
}

/// The cell at the front of some bytes, and how many bytes it takes.
fn decode(codec: Codec, bytes: &[u8]) -> Result<(KeyValue<'_>, usize), Invalid> {
    let (total, rest) = length(bytes)?;
    let body = rest.get(..total).ok_or_else(|| Invalid::new("it is longer than the block"))?;
    let (key_length, rest) = length(body)?;
    let (value_length, rest) = length(rest)?;
    let (key, rest) = cut(rest, key_length, "key")?;
    let (value, rest) = cut(rest, value_length, "value")?;
    let tags = match (rest, codec) {
        ([], _) => rest,
        (_, Codec::KeyValue) => return Err(Invalid::new("bytes follow its value")),
        ([high, low, tags @ ..], Codec::KeyValueWithTags)
            if tags.len() == usize::from(u16::from_be_bytes([*high, *low])) =>
        {
            tags
        }
        (_, Codec::KeyValueWithTags) => return Err(Invalid::new("its tags do not fill it exactly")),
    };
    let (row, family, qualifier, timestamp, code) = split_key(key)?;
    let kind = kind_of_code(code).ok_or_else(|| Invalid::new(format!("its type {code} is unknown")))?;
    let cell = CellRef { family, qualifier, timestamp, kind, tags, value };
    Ok((KeyValue { row, cell }, 4 + total))
}

type Key<'a> = (&'a [u8], &'a [u8], &'a [u8], i64, u8);

fn split_key(key: &[u8]) -> Result<Key<'_>, Invalid> {
    let [high, low, rest @ ..] = key else { return Err(Invalid::new("its key has no row length")) };
    let (row, rest) = cut(rest, usize::from(u16::from_be_bytes([*high, *low])), "row")?;
    if row.len() > ROW_BYTES_MAX {
        return Err(Invalid::new(format!("its row has {} bytes; the limit is {ROW_BYTES_MAX}", row.len())));
    }
    let [family_length, rest @ ..] = rest else { return Err(Invalid::new("its key has no family length")) };
    let (family, rest) = cut(rest, usize::from(*family_length), "family")?;
    let Some((code, rest)) = rest.split_last() else { return Err(Invalid::new("its key has no type")) };
    let Some((qualifier, timestamp)) = rest.split_last_chunk::<8>() else {
        return Err(Invalid::new("its key has no timestamp"));
    };
    Ok((row, family, qualifier, i64::from_be_bytes(*timestamp), *code))
}

fn length(bytes: &[u8]) -> Result<(usize, &[u8]), Invalid> {
    let Some((number, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(Invalid::new("it ends inside a length"));
    };
    let number = u32::from_be_bytes(*number);
    match usize::try_from(number) {
        Ok(length) if number <= i32::MAX as u32 => Ok((length, rest)),
        _ => Err(Invalid::new("a length is negative")),
    }
}

fn cut<'a>(bytes: &'a [u8], length: usize, what: &str) -> Result<(&'a [u8], &'a [u8]), Invalid> {
    bytes.split_at_checked(length).ok_or_else(|| {
        Invalid::new(format!("its {what} has {length} bytes, of which {} are there: {}", bytes.len(), beginning(bytes)))
    })
}

/// At most 16 bytes, for messages.
fn beginning(bytes: &[u8]) -> String {
    escape(&bytes[..bytes.len().min(16)]).to_string()
}

#[cfg(test)]
mod tests;
