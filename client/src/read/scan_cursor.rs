//! Where a scan stands: what is left of its range, how far it is in the current region, and the parts of a row that is larger
//! than a block.
//!
//! Sans-I/O: blocks go in, rows and the next request come out. The cursor keeps two positions. RegionProgress one region and epoch,
//! the server's resume token is exact: it knows the cell of a wide row, or how much of an offset is skipped. When the region
//! changes during the scan, the cursor drops the token and uses its own position, which is after the last whole row it
//! received; the new regions continue from there, and no row is skipped or repeated. Rows that a region counted or skipped
//! become final when the region, or a row in it, is done; after a restart that part starts over.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::{
    KeyRange, PackedCells, PackedRow, PackedRows, RegionDescriptor, RegionEpoch, RegionId, Row, escape,
};

use crate::consistency::older;
use crate::read::row_data::RowData;
use crate::route::router::Position;
use crate::wire::get::ReadSpec;
use crate::wire::scan::{AggregatePart, Latest, Output, RegionScan, ScanBlock};

/// The bytes of the first block for each row, when the limit is below [`FEW_ROWS`]: a server charges such a scan about as
/// much as that many gets.
const FEW_ROWS_BYTES_EACH: u32 = 16 << 10;
const FEW_ROWS: u64 = 16;

/// The state of one scan.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The part of the range that is left, as of the last whole row or region. It only shrinks.
    rest: KeyRange,
    reverse: bool,
    limit: Option<u64>,
    /// Rows to skip, as of the last whole row or region.
    offset: u64,
    counted: u64,
    finished: bool,
    /// How far the scan is in the current region.
    within: Option<RegionProgress>,
    /// The parts so far of a row that is larger than a block.
    part: Option<(Row, Vec<u8>)>,
    /// What servers summed up in the regions that are done, in the order of the range.
    sums: Vec<AggregatePart>,
    /// Of a scan for the latest rows: the last prefix and how many of its rows were returned, as of the last whole row or
    /// region.
    prefix: (Bytes, u32),
    as_of_ms: Option<u64>,
    /// Of a snapshot scan: the sequence number at which the region with this range was last read. It holds for the daughters
    /// of that region too.
    moment: Option<(KeyRange, u64)>,
}

#[derive(Debug)]
struct RegionProgress {
    region: RegionId,
    epoch: RegionEpoch,
    /// The part of the scan's range in this region; the same for all its blocks.
    asked: KeyRange,
    resume: Bytes,
    offset: u64,
    limit: Option<u64>,
    counted: u64,
    sum: Option<AggregatePart>,
    prefix: (Bytes, u32),
}

impl RegionProgress {
    /// The size of the next block; 0 for the server's usual size. A server counts the whole block that a scan may fill against
    /// what one client may have in flight, so a scan for few rows starts with a small block. Rows that do not fit continue in
    /// blocks of the usual size.
    fn block_bytes(&self, wanted: &Wanted) -> u32 {
        let few = self.limit.filter(|rows| wanted.block_bytes == 0 && self.resume.is_empty() && *rows < FEW_ROWS);
        few.map_or(wanted.block_bytes, |rows| u32::try_from(rows).map_or(0, |rows| rows * FEW_ROWS_BYTES_EACH))
    }
}

/// What a scan wants from each region.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) spec: Arc<ReadSpec>,
    pub(crate) block_bytes: u32,
    pub(crate) output: Output,
    pub(crate) latest: Option<Latest>,
    pub(crate) snapshot: bool,
    pub(crate) fill_cache_never: bool,
}

impl Cursor {
    pub(crate) fn new(range: KeyRange, reverse: bool, limit: Option<u64>, offset: u64) -> Self {
        let finished = range.is_empty() || limit == Some(0);
        Self {
            rest: range,
            reverse,
            limit,
            offset,
            counted: 0,
            finished,
            within: None,
            part: None,
            sums: Vec::new(),
            prefix: (Bytes::new(), 0),
            as_of_ms: None,
            moment: None,
        }
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// The rows that servers counted in the regions that are done.
    pub(crate) const fn counted(&self) -> u64 {
        self.counted
    }

    /// What servers summed up in the regions that are done.
    pub(crate) fn into_sums(self) -> Vec<AggregatePart> {
        self.sums
    }

    /// As of when the answer so far is complete, if a stale read bounds it.
    pub(crate) const fn as_of_ms(&self) -> Option<u64> {
        self.as_of_ms
    }

    /// Which region comes next.
    pub(crate) fn position(&self) -> Position<'_> {
        if self.reverse { Position::Before(&self.rest.end) } else { Position::Row(&self.rest.start) }
    }

    /// The request for the rest of the scan in `region`.
    pub(crate) fn request(&mut self, region: &RegionDescriptor, wanted: &Wanted) -> RegionScan {
        let same = self.within.as_ref().is_some_and(|w| w.region == region.region && w.epoch == region.epoch);
        if !same {
            self.restart();
        }
        let asked = self.within.is_none().then(|| self.part_of(region, wanted.snapshot));
        let (offset, limit, prefix) = (self.offset, self.limit, &self.prefix);
        let within = self.within.get_or_insert_with(|| RegionProgress {
            region: region.region,
            epoch: region.epoch,
            asked: asked.expect("it was computed because nothing is within a region yet"),
            resume: Bytes::new(),
            offset,
            limit,
            counted: 0,
            sum: None,
            prefix: prefix.clone(),
        });
        // A resume token contains the prefix. A scan that starts in a region gets the last prefix of the region before.
        let latest = wanted.latest.clone().map(|mut latest| {
            if within.resume.is_empty() {
                (latest.last_prefix, latest.given) = within.prefix.clone();
            }
            latest
        });
        let moment = self.moment.as_ref().filter(|(range, _)| wanted.snapshot && range.covers(&within.asked));
        RegionScan {
            range: within.asked.clone(),
            reverse: self.reverse,
            limit: within.limit,
            offset: within.offset,
            spec: Arc::clone(&wanted.spec),
            block_bytes: within.block_bytes(wanted),
            resume: within.resume.clone(),
            output: wanted.output.clone(),
            latest,
            snapshot: wanted.snapshot,
            fill_cache_never: wanted.fill_cache_never,
            at_sequence: moment.map(|(_, sequence)| *sequence),
        }
    }

    /// The part of what is left that the next request covers. A sequence number belongs to one region: where a snapshot scan was
    /// reading one that has been merged since, only the rest of that region can be read at its number.
    fn part_of(&self, region: &RegionDescriptor, snapshot: bool) -> KeyRange {
        let asked = self.rest.intersect(&region.range).unwrap_or_else(|| self.rest.clone());
        let part = self.moment.as_ref().filter(|_| snapshot).and_then(|(range, _)| asked.intersect(range));
        let is_next = |part: &KeyRange| if self.reverse { part.end == asked.end } else { part.start == asked.start };
        part.filter(is_next).unwrap_or(asked)
    }

    /// The region changed: starts over after the last whole row.
    pub(crate) fn restart(&mut self) {
        let within = self.within.take();
        if let Some(within) = within.filter(|within| !self.reverse && !within.asked.end.is_empty())
            && terrane_env::planted!("a scan goes on behind a region that changed")
        {
            self.rest.start = within.asked.end;
        }
        self.part = None;
    }

    /// Takes a block of `region`, which answers the last request; appends its whole rows to `rows`.
    ///
    /// # Errors
    /// A sentence, when the block cannot be read or moves the scan backwards.
    pub(crate) fn accept(
        &mut self,
        region: &RegionDescriptor,
        block: ScanBlock,
        wanted: &Wanted,
        rows: &mut Vec<RowData>,
    ) -> Result<(), String> {
        if block.row_restarted {
            self.part = None;
        }
        let before = rows.len();
        self.as_of_ms = older(self.as_of_ms, block.as_of_ms);
        if let Some(sequence) = block.sequence {
            let known = self.moment.as_ref();
            // The range that the number was taken for is kept while what became of that region is read.
            let asked = self.within.as_ref().map_or(&region.range, |within| &within.asked);
            if !known.is_some_and(|(range, known)| *known == sequence && range.covers(asked)) {
                self.moment = Some((region.range.clone(), sequence));
            }
        }
        let last = self.take_rows(block.rows, block.row_continues, rows)?;
        let taken = (rows.len() - before) as u64;
        let within = self.within.as_mut().ok_or("a block arrived without a request")?;
        within.resume = block.resume;
        within.offset = block.offset_left.min(within.offset);
        if matches!(wanted.output, Output::Rows) {
            within.limit = within.limit.map(|limit| limit.saturating_sub(taken));
        } else {
            within.counted += block.row_count;
            within.limit = within.limit.map(|_| block.limit_left);
            // It covers all blocks of the region so far.
            within.sum = block.aggregate.or(within.sum.take());
        }
        // A region without matching rows reports no prefix: the one before holds for the next region.
        if wanted.latest.is_some() && !block.last_prefix.is_empty() {
            within.prefix = (block.last_prefix, block.prefix_given);
        }
        let (offset, limit, prefix) = (within.offset, within.limit, within.prefix.clone());
        let asked = within.asked.clone();
        if let Some(last) = last {
            self.step_after(&last)?;
            (self.offset, self.limit, self.prefix) = (offset, limit, prefix);
        }
        if limit == Some(0) || block.ended {
            self.leave_region();
            self.finished = true;
        } else if block.done {
            self.leave_region();
            self.enter_next(region.region, &asked);
        }
        Ok(())
    }

    /// Splits a block into rows; returns the last whole one.
    fn take_rows(&mut self, block: Bytes, continues: bool, rows: &mut Vec<RowData>) -> Result<Option<Row>, String> {
        let mut last = None;
        let mut packed = PackedRows::new(block).peekable();
        while let Some(row) = packed.next() {
            let row = row.map_err(|invalid| format!("a block cannot be read: {invalid}"))?;
            let incomplete = continues && packed.peek().is_none();
            let row = match self.part.take() {
                None if !incomplete => row,
                // The parts are appended in place and read as a row only when all are there: a row of thousands of parts
                // is copied once.
                earlier => {
                    let part = joined(earlier, row)?;
                    if incomplete {
                        self.part = Some(part);
                        break;
                    }
                    whole(part)?
                }
            };
            last = Some(row.row.clone());
            rows.push(RowData::from(row));
        }
        Ok(last)
    }

    /// A whole row was received: only rows after it are left.
    fn step_after(&mut self, row: &Row) -> Result<(), String> {
        // A block that repeats rows, or brings rows of another range, would make the scan skip or repeat rows.
        let asked = self.within.as_ref().map(|within| &within.asked);
        if !self.rest.contains(row) || asked.is_some_and(|asked| !asked.contains(row)) {
            return Err(format!("a block ends with row {row}, which is not one of the rows left, {}", self.rest));
        }
        if self.reverse {
            self.rest.end = row.clone().into_bytes();
        } else {
            self.rest.start = row.after();
        }
        Ok(())
    }

    /// What the region skipped and counted is final from now on.
    fn leave_region(&mut self) {
        if let Some(within) = self.within.take() {
            assert!(
                within.offset <= self.offset,
                "the rows to skip grew from {} to {} in region {}",
                self.offset,
                within.offset,
                within.region
            );
            self.offset = within.offset;
            self.limit = within.limit;
            self.counted += within.counted;
            self.sums.extend(within.sum);
            self.prefix = within.prefix;
        }
        self.part = None;
    }

    fn enter_next(&mut self, region: RegionId, asked: &KeyRange) {
        let bound = if self.reverse { &asked.start } else { &asked.end };
        if bound.is_empty() {
            self.finished = true;
            return;
        }
        if self.reverse {
            assert!(
                self.rest.end.is_empty() || *bound <= self.rest.end,
                "a reverse scan regressed: rows before {} were left, and region {}'s part starts at the later row {}",
                escape(&self.rest.end),
                region,
                escape(bound)
            );
            self.rest.end = bound.clone();
        } else {
            assert!(
                *bound >= self.rest.start,
                "a scan regressed: rows from {} on were left, and region {}'s part ends at the earlier row {}",
                escape(&self.rest.start),
                region,
                escape(bound)
            );
            self.rest.start = bound.clone();
        }
        self.finished = self.rest.is_empty();
    }
}

/// A row's earlier parts, if there are any, followed by the next one.
fn joined(earlier: Option<(Row, Vec<u8>)>, next: PackedRow) -> Result<(Row, Vec<u8>), String> {
    let (row, mut cells) = earlier.unwrap_or_else(|| (next.row.clone(), Vec::new()));
    if next.row != row {
        return Err(format!("the parts of row {row} are followed by row {}", next.row));
    }
    cells.extend_from_slice(next.cells.as_bytes());
    Ok((row, cells))
}

/// The row made of these parts.
fn whole((row, cells): (Row, Vec<u8>)) -> Result<PackedRow, String> {
    let cells = PackedCells::validate(cells.into()).map_err(|invalid| format!("row {row}: {invalid}"))?;
    Ok(PackedRow { row, cells })
}

#[cfg(test)]
mod tests;
