//! A digest of the cells that a scan shows, whatever blocks and parts they come in.

use terrane_engine::{Error, Patience, RowScanner, Step};
use terrane_types::rows::{RowRef, RowRefs};

/// What a scan showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionDigest {
    /// The checksum of rows and cells.
    pub crc: u32,
    /// The number of rows.
    pub rows: u64,
    /// The bytes of the cells.
    pub bytes: u64,
}

impl std::fmt::Display for RegionDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows with {} bytes of cells and checksum {:08x}", self.rows, self.bytes, self.crc)
    }
}

/// Where a scan stands after a step of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Inside a row.
    WithinRow,
    /// Between two rows: another scan may continue after [`RowScanner::row`].
    AfterRow,
    End,
}

/// The digest of a scan under way.
#[derive(Default)]
pub struct CellDigest {
    digest: RegionDigest,
    /// The row that was digested last.
    last: Option<Vec<u8>>,
    /// What was read and not digested yet: part of a row that the scanner goes on with.
    block: Vec<u8>,
}

impl CellDigest {
    /// A digest that continues a checksum.
    pub fn after(crc: u32) -> Self {
        Self { digest: RegionDigest { crc, ..RegionDigest::default() }, ..Self::default() }
    }

    pub const fn digest(&self) -> RegionDigest {
        self.digest
    }

    /// Reads on for about so many bytes; less where little of what is read is visible.
    pub fn read(&mut self, scanner: &mut RowScanner, bytes_max: usize) -> Result<Place, Error> {
        loop {
            let step = scanner.next(&mut self.block, bytes_max, Patience::MayBlock)?;
            let place = match step {
                Step::Row if self.block.len() < bytes_max => continue,
                Step::Row | Step::Hidden => Place::AfterRow,
                Step::Part { .. } | Step::HiddenPart => Place::WithinRow,
                Step::End => Place::End,
            };
            // A row that the scanner has begun in the block has no length yet.
            if scanner.row_start().is_none() {
                let block = std::mem::take(&mut self.block);
                RowRefs::new(&block).filter_map(Result::ok).for_each(|row| self.add(row));
            }
            return Ok(place);
        }
    }

    /// Adds a row, or a part of one: its cells are the same bytes in one part or in several.
    fn add(&mut self, RowRef { row: key, packed: cells }: RowRef<'_>) {
        let digest = &mut self.digest;
        if self.last.as_deref() != Some(key) {
            self.last = Some(key.to_vec());
            digest.crc = crc32c::crc32c_append(digest.crc, key);
            digest.rows += 1;
        }
        digest.crc = crc32c::crc32c_append(digest.crc, cells);
        digest.bytes += cells.len() as u64;
    }
}
