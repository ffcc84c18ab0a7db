//! How a family's cells are stored: compression, bloom filters, block size, and cache priority.
//!
//! These attributes are separate from [`super::FamilyRules`] because they affect the cost of a read but never its
//! result. So they need no history: an alter applies to files written after it, older files stay readable (each file
//! records how it was written), and replicas may differ for a while without harm.
//!
//! The numbers of [`Compression`] and [`Bloom`] are stored in schemas and files. They are never reused.

use std::fmt;
use std::str::FromStr;

use crate::invalid::Invalid;
use crate::limits::{BLOCK_SIZE_DEFAULT, BLOCK_SIZE_MAX, BLOCK_SIZE_MIN};

/// How the blocks of a family's files are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not compressed: for values that are compressed already.
    None = 0,
    /// LZ4: reading costs almost nothing.
    #[default]
    Lz4 = 1,
    /// Zstandard: smaller, but slower.
    Zstd = 2,
}

impl Compression {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// The compression with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name in attributes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl FromStr for Compression {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let named = Self::ALL.into_iter().find(|compression| compression.name() == text);
        named.ok_or_else(|| Invalid::new(format!("compression={text} is neither none, lz4 nor zstd")))
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The contents of the bloom filters of a family's files: they decide which reads can skip a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Bloom {
    /// No filter: for families that are only scanned.
    None = 0,
    /// Rows: for gets of rows.
    #[default]
    Row = 1,
    /// Columns of rows: for gets of single columns of rows that are spread over many files.
    RowCol = 2,
}

impl Bloom {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::None, Self::Row, Self::RowCol];

    /// The bloom filter with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Row),
            2 => Some(Self::RowCol),
            _ => None,
        }
    }

    /// Its name in attributes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Row => "row",
            Self::RowCol => "rowcol",
        }
    }
}

impl FromStr for Bloom {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let named = Self::ALL.into_iter().find(|bloom| bloom.name() == text);
        named.ok_or_else(|| Invalid::new(format!("bloom={text} is neither none, row nor rowcol")))
    }
}

impl fmt::Display for Bloom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The attributes of a family that decide how its cells are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FamilyStorage {
    /// How blocks are compressed.
    pub compression: Compression,
    /// What bloom filters hold.
    pub bloom: Bloom,
    /// Bytes of cells, before compression, at which a block of a file ends. A read of a row reads a whole block.
    pub block_size: u32,
    /// Whether the block cache evicts the family's blocks last.
    pub in_memory: bool,
}

impl Default for FamilyStorage {
    fn default() -> Self {
        Self {
            compression: Compression::default(),
            bloom: Bloom::default(),
            block_size: BLOCK_SIZE_DEFAULT,
            in_memory: false,
        }
    }
}

impl FamilyStorage {
    /// Checks the attributes.
    ///
    /// # Errors
    /// [`Invalid`] that names the attribute and the limit.
    pub fn check(&self) -> Result<(), Invalid> {
        check_block_size(u64::from(self.block_size)).map(drop)
    }
}

/// Checks a block size and converts it to its stored type.
pub(crate) fn check_block_size(bytes: u64) -> Result<u32, Invalid> {
    let checked = u32::try_from(bytes).ok().filter(|bytes| (BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(bytes));
    checked.ok_or_else(|| {
        Invalid::new(format!(
            "block_size={bytes}B is out of range; it is 1KiB to 1MiB ({BLOCK_SIZE_MIN} to {BLOCK_SIZE_MAX} bytes)"
        ))
    })
}

#[cfg(test)]
mod tests;
