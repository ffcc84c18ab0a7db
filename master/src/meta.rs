//! The meta table: a read-only view with a row per region, made from the catalog and the observed state during a scan.
//!
//! Keys are `table,start,region` with the start escaped; values are text in the family `info`. Scripts rely on this
//! format. Rows sort by the bytes of their keys, as in every table. Nothing is stored.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_types::limits::{NAME_CHARS_MAX, ROW_BYTES_MAX, SCAN_BLOCK_BYTES_DEFAULT, SCAN_BLOCK_BYTES_MAX};
use terrane_types::{CellRef, KeyRange, PackedCells, Projection, RegionId, ServerId, escape, pack_row};

use crate::catalog::Catalog;
use crate::catalog::regions::RegionEntry;
use crate::servers::observed::Observations;

/// The only family.
pub const FAMILY: &str = "info";
/// Version of the resume token.
const TOKEN_VERSION: u8 = 1;

/// A scan of the meta table.
#[derive(Clone, Debug)]
pub struct MetaScan {
    /// The range of rows.
    pub range: KeyRange,
    /// Whether to read from the last row to the first.
    pub reverse: bool,
    /// Maximum number of rows; 0 means all.
    pub limit: u64,
    /// Rows to skip.
    pub offset: u64,
    /// Columns and timestamps to return.
    pub projection: Projection,
    /// Size of a block; 0 means the default.
    pub block_bytes: usize,
    /// Resume token of an earlier block.
    pub resume: Bytes,
    /// Whether to count rows without returning them.
    pub count_only: bool,
}

/// A block of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaBlock {
    /// Packed rows.
    pub rows: Vec<u8>,
    /// The number of rows.
    pub row_count: u64,
    /// The resume token.
    pub resume: Bytes,
    /// Whether this is the last block.
    pub done: bool,
    /// The remaining limit.
    pub limit_left: u64,
    /// The remaining offset.
    pub offset_left: u64,
}

/// One row: key and packed cells.
type MetaRow = (Vec<u8>, Vec<u8>);

/// All blocks of the result, at least one.
pub fn scan(
    catalog: &Catalog,
    observed: &Observations,
    scan: &MetaScan,
) -> Result<Vec<MetaBlock>, terrane_types::Invalid> {
    let after = position(scan)?;
    let mut rows = rows(catalog, observed, &scan.projection);
    rows.retain(|key, cells| !cells.is_empty() && scan.range.contains(key) && !passed(key, after, scan.reverse));
    let ordered: Box<dyn Iterator<Item = MetaRow>> =
        if scan.reverse { Box::new(rows.into_iter().rev()) } else { Box::new(rows.into_iter()) };
    Ok(blocks(ordered, scan))
}

fn blocks(rows: impl Iterator<Item = MetaRow>, scan: &MetaScan) -> Vec<MetaBlock> {
    let bytes_max = match scan.block_bytes {
        0 => SCAN_BLOCK_BYTES_DEFAULT,
        bytes => bytes.min(SCAN_BLOCK_BYTES_MAX),
    };
    let (mut limit, mut offset) = (scan.limit, scan.offset);
    let mut blocks = Vec::new();
    let mut block = MetaBlock { resume: scan.resume.clone(), ..MetaBlock::default() };
    for (key, cells) in rows {
        if block.rows.len() >= bytes_max {
            (block.limit_left, block.offset_left) = (limit, offset);
            let resume = block.resume.clone();
            blocks.push(std::mem::replace(&mut block, MetaBlock { resume, ..MetaBlock::default() }));
        }
        block.resume = token(&key);
        if offset > 0 {
            offset -= 1;
            continue;
        }
        block.row_count += 1;
        if !scan.count_only {
            pack_row(&mut block.rows, &key, &cells);
        }
        if limit == 1 {
            limit = 0;
            break;
        }
        limit = limit.saturating_sub(1);
    }
    (block.limit_left, block.offset_left, block.done) = (limit, offset, true);
    blocks.push(block);
    blocks
}

fn token(key: &[u8]) -> Bytes {
    let mut token = vec![TOKEN_VERSION];
    token.extend_from_slice(key);
    token.into()
}

fn position(scan: &MetaScan) -> Result<Option<&[u8]>, terrane_types::Invalid> {
    match scan.resume.split_first() {
        None => Ok(None),
        Some((&TOKEN_VERSION, key)) => Ok(Some(key)),
        Some(_) => Err(terrane_types::Invalid::new("the resume token is not a token of the meta table")),
    }
}

fn passed(key: &[u8], after: Option<&[u8]>, reverse: bool) -> bool {
    after.is_some_and(|after| if reverse { key >= after } else { key <= after })
}

fn rows(catalog: &Catalog, observed: &Observations, projection: &Projection) -> BTreeMap<Vec<u8>, Vec<u8>> {
    catalog.regions().iter().map(|region| row(catalog, observed, region, projection)).collect()
}

/// The row's key. A start that is too long in its escaped form is cut; the region id keeps the key unique.
fn key(table: &str, start: &str, region: RegionId) -> Vec<u8> {
    let start_max = ROW_BYTES_MAX - 2 * (NAME_CHARS_MAX + 1) - 32;
    // Escaped text is ASCII, so it can be cut anywhere.
    format!("{table},{},{region}", &start[..start.len().min(start_max)]).into_bytes()
}

fn row(catalog: &Catalog, observed: &Observations, entry: &RegionEntry, projection: &Projection) -> MetaRow {
    let region = &entry.descriptor;
    let table = catalog.tables().get(region.table).map_or_else(String::new, |table| table.schema.name.to_string());
    let start = escape(&region.range.start);
    let key = key(&table, &start, region.region);
    let address = |server: ServerId| catalog.servers().address(server);
    let servers: Vec<String> = catalog
        .groups()
        .get(region.group)
        .into_iter()
        .flat_map(|group| group.members.values().map(|server| address(*server)))
        .collect();
    // Sorted by qualifier, as in every row.
    let columns = [
        ("epoch", region.epoch.to_string()),
        ("group", region.group.to_string()),
        ("leader", observed.leader(region.group).map_or_else(String::new, address)),
        ("region", region.region.to_string()),
        ("servers", servers.join(",")),
        ("start", start),
        ("stop", escape(&region.range.end)),
        ("table", table),
    ];
    let timestamp = i64::try_from(entry.since_ms).unwrap_or(0);
    let in_time = projection.time_min <= timestamp && timestamp < projection.time_max;
    let shown = columns
        .iter()
        .filter(|(qualifier, _)| in_time && projection.selects(FAMILY.as_bytes(), qualifier.as_bytes()))
        .map(|(qualifier, value)| CellRef::put(FAMILY.as_bytes(), qualifier.as_bytes(), timestamp, value.as_bytes()));
    let cells = PackedCells::from_cells(shown).map_or_else(|_| Vec::new(), |cells| cells.as_bytes().to_vec());
    (key, cells)
}

#[cfg(test)]
mod tests;
