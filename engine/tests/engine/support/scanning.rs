//! What a reader sees: scans of an engine and of its model, and cells as both compare them.

use terrane_engine::{CellPosition, Engine, Error, Patience, Region, RowScanner, ScanSpec, Snapshot, Step};
use terrane_types::cell::ttl_tag;
use terrane_types::{CellRef, KeyRange, PackedCells, PackedRows, Projection};

use super::model::{ModelCell, RegionModel, Seen};
use super::world::range;

pub fn packed(cells: &[ModelCell]) -> PackedCells {
    let tags: Vec<_> = cells.iter().map(|cell| cell.ttl_ms.map(ttl_tag)).collect();
    let cells = cells.iter().zip(&tags).map(|(cell, tag)| CellRef {
        family: cell.family.as_bytes(),
        qualifier: &cell.qualifier,
        timestamp: cell.timestamp,
        kind: cell.kind,
        tags: tag.as_ref().map_or(&[], |tag| tag),
        value: &cell.value,
    });
    PackedCells::from_cells(cells).unwrap()
}

pub fn seen_of(cells: &PackedCells) -> Vec<Seen> {
    let seen = |cell: CellRef<'_>| {
        let family = String::from_utf8(cell.family.to_vec()).unwrap();
        (family, cell.qualifier.to_vec(), cell.timestamp, cell.value.to_vec())
    };
    cells.iter().map(seen).collect()
}

/// What a scan returns, row by row.
pub type SeenRows = Vec<(Vec<u8>, Vec<Seen>)>;

/// A scan of both sides.
pub struct Scan {
    pub range: KeyRange,
    pub reverse: bool,
    pub projection: Projection,
    pub now: i64,
}

impl Scan {
    pub fn spec(&self) -> ScanSpec {
        let forward = ScanSpec::new(self.range.clone(), self.projection.clone(), self.now);
        ScanSpec { reverse: self.reverse, ..forward }
    }

    pub fn begin(
        &self,
        region: &Region,
        sequence: u64,
        range: KeyRange,
        from_cell: Option<CellPosition>,
    ) -> RowScanner {
        let spec = ScanSpec { range, from_cell, ..self.spec() };
        region.scan(region.snapshot_at(sequence).unwrap(), spec)
    }

    /// Runs the scan; after each part of a row a new scan continues from its last cell.
    pub fn run(&self, region: &Region, snapshot: &Snapshot, bytes_max: usize) -> SeenRows {
        self.try_run(region, snapshot, bytes_max).unwrap()
    }

    pub fn try_run(&self, region: &Region, snapshot: &Snapshot, bytes_max: usize) -> Result<SeenRows, Error> {
        let mut scanner = self.begin(region, snapshot.sequence(), self.range.clone(), None);
        let mut rows = SeenRows::new();
        let mut continues = false;
        let mut open = Vec::new();
        loop {
            let mut block = std::mem::take(&mut open);
            let bytes_max = bytes_max.max(block.len() + 1);
            let step = scanner.next(&mut block, bytes_max, Patience::MayBlock)?;
            if scanner.row_start().is_some() {
                // The row that it ends with is not complete.
                open = block;
                continue;
            }
            let mut row_of_block = None;
            for packed in PackedRows::new(block.into()) {
                let packed = packed.unwrap();
                let row = packed.row.as_bytes().to_vec();
                let cells = seen_of(&packed.cells);
                row_of_block = Some(row.clone());
                match rows.last_mut() {
                    Some((last, earlier)) if continues => {
                        assert_eq!(*last, row, "a row goes on");
                        earlier.extend(cells);
                    }
                    _ => rows.push((row, cells)),
                }
            }
            match step {
                Step::Row | Step::Hidden => continues = false,
                // As a server whose block ends in the middle of it.
                Step::HiddenPart => {
                    if let Some(position) = scanner.hidden_up_to() {
                        let rest = self.rest_from(scanner.row());
                        scanner = self.begin(region, snapshot.sequence(), rest, Some(position));
                    }
                }
                Step::Part { position } => {
                    continues = true;
                    let rest = self.rest_from(&row_of_block.unwrap());
                    scanner = self.begin(region, snapshot.sequence(), rest, Some(position));
                }
                Step::End => return Ok(rows),
            }
        }
    }

    fn rest_from(&self, row: &[u8]) -> KeyRange {
        if self.reverse { range(&self.range.start, &KeyRange::row(row).end) } else { range(row, &self.range.end) }
    }

    pub fn expected(&self, model: &RegionModel, region: &Region, sequence: u64) -> SeenRows {
        let Some(range) = self.range.intersect(region.range()) else { return Vec::new() };
        let mut rows: Vec<_> = model
            .rows(&range)
            .into_iter()
            .map(|row| {
                let seen = model.read(&row, &self.projection, sequence, self.now);
                (row, seen)
            })
            .filter(|(_, seen)| !seen.is_empty())
            .collect();
        if self.reverse {
            rows.reverse();
        }
        rows
    }
}

/// Everything that is visible in a region after all writes of a workload.
pub fn read(region: &Region) -> SeenRows {
    let scan = Scan { range: KeyRange::all(), reverse: false, projection: Projection::all(), now: 2_000 };
    scan.run(region, &region.snapshot(), usize::MAX)
}

/// The same of all regions.
pub fn read_all(engine: &Engine) -> SeenRows {
    let mut rows: SeenRows = engine.regions().iter().flat_map(|region| read(region)).collect();
    rows.sort();
    rows
}
