//! What a file says about itself: counts, ranges, and how it was written.
//!
//! Fields carry a tag and a length, so that a build reads the properties of older files and the ones it knows of newer
//! files: `properties = (tag varint, (length varint, bytes))*`. Tags never change their meaning.

use terrane_types::schema::{Bloom, Compression, FamilyStorage};

use super::data_block::Malformed;
use super::varint;
use crate::cells::Cell;

const FIRST_ROW: u64 = 1;
const LAST_ROW: u64 = 2;
const CELLS: u64 = 3;
const DELETES: u64 = 4;
const ROWS: u64 = 5;
const TIMESTAMP_MIN: u64 = 6;
const TIMESTAMP_MAX: u64 = 7;
const SEQUENCE_MIN: u64 = 8;
const SEQUENCE_MAX: u64 = 9;
const DATA_BYTES: u64 = 10;
const COMPRESSION: u64 = 11;
const BLOOM: u64 = 12;
const BLOCK_SIZE: u64 = 13;
const IN_MEMORY: u64 = 14;
const DATA_BLOCKS: u64 = 15;
const INDEX_BLOCKS: u64 = 16;
const LONGEST_ROW_CELLS: u64 = 17;
/// The last one that every file has.
const NEEDED_LAST: u64 = LONGEST_ROW_CELLS;
/// Only in files with a prefix filter.
const PREFIX_ID: u64 = 18;

/// What a file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreFileProperties {
    /// The version of the format, from the footer.
    pub(crate) format: u32,
    /// The file's id, from the footer.
    pub(crate) id: u64,
    /// The file's length on disk.
    pub(crate) size: u64,
    pub(crate) first_row: Vec<u8>,
    pub(crate) last_row: Vec<u8>,
    pub(crate) cells: u64,
    /// How many of the cells are tombstones.
    pub(crate) deletes: u64,
    pub(crate) rows: u64,
    /// The most cells of one row.
    pub(crate) longest_row_cells: u64,
    /// The lowest and the highest.
    pub(crate) timestamps: (i64, i64),
    /// The lowest and the highest.
    pub(crate) sequences: (u64, u64),
    /// Bytes of rows (one for each cell), qualifiers, tags and values.
    pub(crate) data_bytes: u64,
    pub(crate) data_blocks: u64,
    pub(crate) index_blocks: u64,
    /// How the file was written, which may differ from the family's present attributes.
    pub(crate) storage: FamilyStorage,
    /// The way rows were cut for the prefix filter, if there is one.
    pub(crate) prefix_id: Option<u64>,
}

impl StoreFileProperties {
    pub(super) fn new(format: u32, id: u64, storage: FamilyStorage) -> Self {
        Self {
            format,
            id,
            size: 0,
            first_row: Vec::new(),
            last_row: Vec::new(),
            cells: 0,
            deletes: 0,
            rows: 0,
            longest_row_cells: 0,
            timestamps: (i64::MAX, i64::MIN),
            sequences: (u64::MAX, u64::MIN),
            data_bytes: 0,
            data_blocks: 0,
            index_blocks: 0,
            storage,
            prefix_id: None,
        }
    }

    /// Counts a cell, except for its row.
    #[inline]
    pub(super) fn count(&mut self, cell: &Cell<'_>) {
        self.cells += 1;
        self.deletes += u64::from(cell.kind.is_delete());
        self.timestamps = (self.timestamps.0.min(cell.timestamp), self.timestamps.1.max(cell.timestamp));
        self.sequences = (self.sequences.0.min(cell.sequence), self.sequences.1.max(cell.sequence));
        self.data_bytes += cell.data_bytes() as u64;
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = |tag: u64, bytes: &[u8]| {
            varint::put(&mut out, tag);
            varint::put_bytes(&mut out, bytes);
        };
        field(FIRST_ROW, &self.first_row);
        field(LAST_ROW, &self.last_row);
        for (tag, value) in [
            (CELLS, self.cells),
            (DELETES, self.deletes),
            (ROWS, self.rows),
            (TIMESTAMP_MIN, self.timestamps.0 as u64),
            (TIMESTAMP_MAX, self.timestamps.1 as u64),
            (SEQUENCE_MIN, self.sequences.0),
            (SEQUENCE_MAX, self.sequences.1),
            (DATA_BYTES, self.data_bytes),
            (BLOCK_SIZE, u64::from(self.storage.block_size)),
            (DATA_BLOCKS, self.data_blocks),
            (INDEX_BLOCKS, self.index_blocks),
            (LONGEST_ROW_CELLS, self.longest_row_cells),
        ] {
            field(tag, &value.to_le_bytes());
        }
        if let Some(id) = self.prefix_id {
            field(PREFIX_ID, &id.to_le_bytes());
        }
        for (tag, value) in [
            (COMPRESSION, self.storage.compression as u8),
            (BLOOM, self.storage.bloom as u8),
            (IN_MEMORY, u8::from(self.storage.in_memory)),
        ] {
            field(tag, &[value]);
        }
        out
    }

    /// Reads what [`StoreFileProperties::encode`] wrote.
    pub(super) fn decode(mut self, bytes: &[u8]) -> Result<Self, Malformed> {
        const BAD: Malformed = "the properties are malformed although their checksum is right";
        const NEEDED: u64 = (1 << (NEEDED_LAST + 1)) - 2;
        let mut at = 0;
        let mut seen = 0u64;
        while at < bytes.len() {
            let tag = varint::get(bytes, &mut at).ok_or(BAD)?;
            let field = varint::get_bytes(bytes, &mut at).ok_or(BAD)?;
            seen |= 1u64.checked_shl(u32::try_from(tag).unwrap_or(u32::MAX)).unwrap_or(0);
            let number = || field.try_into().map(u64::from_le_bytes).map_err(|_| BAD);
            let byte = || field.first().copied().ok_or(BAD);
            match tag {
                FIRST_ROW => self.first_row = field.to_vec(),
                LAST_ROW => self.last_row = field.to_vec(),
                CELLS => self.cells = number()?,
                DELETES => self.deletes = number()?,
                ROWS => self.rows = number()?,
                TIMESTAMP_MIN => self.timestamps.0 = number()? as i64,
                TIMESTAMP_MAX => self.timestamps.1 = number()? as i64,
                SEQUENCE_MIN => self.sequences.0 = number()?,
                SEQUENCE_MAX => self.sequences.1 = number()?,
                DATA_BYTES => self.data_bytes = number()?,
                DATA_BLOCKS => self.data_blocks = number()?,
                INDEX_BLOCKS => self.index_blocks = number()?,
                LONGEST_ROW_CELLS => self.longest_row_cells = number()?,
                PREFIX_ID => self.prefix_id = Some(number()?),
                BLOCK_SIZE => self.storage.block_size = u32::try_from(number()?).map_err(|_| BAD)?,
                COMPRESSION => self.storage.compression = Compression::from_u8(byte()?).ok_or(BAD)?,
                BLOOM => self.storage.bloom = Bloom::from_u8(byte()?).ok_or(BAD)?,
                IN_MEMORY => self.storage.in_memory = byte()? != 0,
                // Added by a newer build of the same format: useful, not required.
                _ => {}
            }
        }
        let whole = seen & NEEDED == NEEDED && self.first_row <= self.last_row;
        if whole { Ok(self) } else { Err(BAD) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_round_trip_and_unknown_ones_are_skipped() {
        let empty = || StoreFileProperties::new(1, 7, FamilyStorage::default());
        let mut written = empty();
        written.first_row = b"a".to_vec();
        written.last_row = b"b".to_vec();
        written.timestamps = (-5, 9);
        written.storage.in_memory = true;
        let mut bytes = written.encode();
        varint::put(&mut bytes, 1000);
        varint::put_bytes(&mut bytes, b"from the future");
        assert_eq!(empty().decode(&bytes).unwrap(), written);
        assert!(empty().decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(empty().decode(&bytes[4..]).is_err(), "the first row is missing");
    }
}
