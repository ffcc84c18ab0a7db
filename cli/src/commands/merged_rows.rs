//! The rows of several ranges in one order: a salted table's buckets, merged into the order of their keys.
//!
//! All ranges are read at once. The smallest head, in reverse the largest, is the next row; it is known once every range
//! that has not ended has a head. No server sees all buckets, so offset and limit are counted here.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::try_join_all;
use terrane_client::{Error, KeyRange, RowData, RowStream, Scan, Table};

use crate::table_text::Ranges;

/// The merged rows.
pub struct MergedRows {
    sources: Vec<RowStream>,
    skip_bytes: usize,
    reverse: bool,
    offset: u64,
    limit: Option<u64>,
    /// The next row of each source that has one, in order.
    heads: BTreeMap<(Bytes, usize), RowData>,
    /// The sources whose next row is not known.
    unknown: Vec<usize>,
}

/// How the rows are read: the scan of one range, and what to skip and return of the merged rows.
pub struct MergedScan<F> {
    pub of_range: F,
    pub reverse: bool,
    pub offset: u64,
    pub limit: Option<u64>,
}

impl MergedRows {
    /// Starts reading. Offset and limit are those of all ranges together.
    pub async fn open<F: Fn(KeyRange) -> Scan>(
        table: &Table,
        ranges: Ranges,
        scan: MergedScan<F>,
    ) -> Result<MergedRows, Error> {
        let MergedScan { of_range, reverse, offset, limit } = scan;
        let alone = ranges.ranges.len() == 1;
        let one = |range| {
            let mut scan = of_range(range);
            if reverse {
                scan = scan.reverse();
            }
            if alone {
                scan = scan.offset(offset);
            }
            // The rows to skip may be in any range.
            let most = if alone { limit } else { limit.map(|limit| limit.saturating_add(offset)) };
            match most {
                Some(most) => scan.limit(most),
                None => scan,
            }
        };
        let opened = ranges
            .ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .map(|range| table.scan(one(range)).into_future());
        let sources = try_join_all(opened).await?;
        let unknown = (0..sources.len()).collect();
        let offset = if alone { 0 } else { offset };
        Ok(MergedRows {
            sources,
            skip_bytes: ranges.skip_bytes,
            reverse,
            offset,
            limit,
            heads: BTreeMap::new(),
            unknown,
        })
    }

    /// The next row; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<RowData>, Error> {
        loop {
            if self.limit == Some(0) {
                return Ok(None);
            }
            for at in std::mem::take(&mut self.unknown) {
                if let Some(row) = self.sources[at].next().await {
                    let row = row?;
                    let bytes = row.row().clone().into_bytes();
                    self.heads.insert((bytes.slice(self.skip_bytes.min(bytes.len())..), at), row);
                }
            }
            let next = if self.reverse { self.heads.pop_last() } else { self.heads.pop_first() };
            let Some(((_, at), row)) = next else { return Ok(None) };
            self.unknown.push(at);
            if self.offset > 0 {
                self.offset -= 1;
                continue;
            }
            self.limit = self.limit.map(|limit| limit - 1);
            return Ok(Some(row));
        }
    }

    /// As of when the rows so far are complete, if stale reads bound it.
    pub fn as_of_ms(&self) -> Option<u64> {
        self.sources.iter().filter_map(RowStream::as_of_ms).min()
    }
}
