//! Manifest records and their bytes. The first byte is the format version, the second the kind; neither number ever
//! changes its meaning.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_types::schema::{Bloom, Compression, FamilyStorage};
use terrane_types::versions::FormatVersions;
use terrane_types::visibility::{RulesChange, RulesHistory};
use terrane_types::{FamilyName, FamilyRules, GroupId, KeepDeleted, KeyRange, RegionId, TableId};

use super::family::{FamilyRecord, RulesFrom};
use crate::codec::{ByteWriter as _, Reader};
use crate::point::{DurablePoint, GroupPoint, RegionKey};
use crate::row_range::RowRange;

const FORMAT: u8 = 1;
/// The versions of the manifest.
pub(crate) const VERSIONS: FormatVersions =
    FormatVersions { name: "manifest", oldest: FORMAT as u32, newest: FORMAT as u32 };
const ENGINE: u8 = 1;
const REGION: u8 = 2;
const SPLIT: u8 = 3;
const DROP: u8 = 4;
const GROUP: u8 = 5;
const MERGE: u8 = 6;
const INSTALL: u8 = 7;
const REMOVE_GROUP: u8 = 8;

/// A region's part of a file, with what reads and compactions need before they open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) id: u64,
    pub(crate) level: u8,
    /// The file's length on disk.
    pub(crate) size: u64,
    /// Bytes of data within the bounds, approximately.
    pub(crate) bytes: u64,
    /// The region's part of the file.
    pub(crate) bounds: RowRange,
    /// The first and last row of the whole file.
    pub(crate) first_row: Bytes,
    pub(crate) last_row: Bytes,
    pub(crate) timestamps: (i64, i64),
    pub(crate) sequences: (u64, u64),
    /// Cells of the whole file, and the tombstones among them.
    pub(crate) cells: u64,
    pub(crate) deletes: u64,
    /// The sequence number and the log time up to which it was collected with everything older present; zeros for a
    /// file that was not.
    pub(crate) collected: (u64, i64),
    /// The number that the file was written under, which its checksums cover: a different one for an ingested file.
    pub(crate) origin: u64,
    /// The sequence number of all its cells, for an ingested file; 0: they have their own.
    pub(crate) ingested_at: u64,
}

impl FileRecord {
    /// Whether the file extends beyond the bounds.
    pub(crate) fn straddles(&self) -> bool {
        !self.bounds.hold(&self.first_row, &self.last_row)
    }

    /// Where the region's part begins.
    pub(crate) fn first_inside(&self) -> &[u8] {
        let start = self.bounds.start.as_slice();
        if start.is_empty() { &self.first_row } else { self.first_row.as_ref().max(start) }
    }

    /// Whether the region's part ends before `row`.
    pub(crate) fn ends_before(&self, row: &[u8]) -> bool {
        self.last_row.as_ref() < row || (!self.bounds.end.is_empty() && self.bounds.end.as_slice() <= row)
    }

    /// Whether `row` may be in the region's part.
    pub(crate) fn holds(&self, row: &[u8]) -> bool {
        self.first_inside() <= row && !self.ends_before(row)
    }

    /// How the file, examined as a whole, differs from what this says of it.
    pub(crate) fn difference(&self, found: &Self) -> Option<&'static str> {
        let differs = [
            ("its rows", (&self.first_row, &self.last_row) != (&found.first_row, &found.last_row)),
            ("the number of its cells", (self.cells, self.deletes) != (found.cells, found.deletes)),
            ("its timestamps", self.timestamps != found.timestamps),
            ("its sequence numbers", self.ingested_at == 0 && self.sequences != found.sequences),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(what, _)| what)
    }

    /// Whether the region's part may have a row within `bounds`.
    pub(crate) fn meets(&self, bounds: &RowRange) -> bool {
        self.bounds.intersect(bounds).meets(&self.first_row, &self.last_row)
    }
}

/// Families with their rules, as of some moment.
pub(crate) type Families = BTreeMap<FamilyName, FamilyRecord>;

/// Everything a region is restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegionRecord {
    pub(crate) region: RegionId,
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    pub(crate) point: DurablePoint,
    pub(crate) families: Families,
    /// By family; those of level 0 oldest first.
    pub(crate) files: BTreeMap<FamilyName, Vec<FileRecord>>,
}

impl RegionRecord {
    /// What distinguishes the region from all others of the manifest.
    pub(crate) fn key(&self) -> RegionKey {
        (self.point.group, self.region)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The engine that the directory belongs to: the first record.
    Engine {
        name: String,
    },
    Region(RegionRecord),
    /// Replaces the parent by its daughters.
    Split {
        parent: RegionId,
        /// Left and right.
        daughters: Box<[RegionRecord; 2]>,
    },
    /// Replaces two neighbours by the merged region.
    Merge {
        parents: [RegionId; 2],
        region: Box<RegionRecord>,
    },
    /// Removes regions, with the state of their group as of then.
    Drop {
        regions: Vec<RegionId>,
        group: GroupId,
        point: GroupPoint,
    },
    Group {
        group: GroupId,
        point: GroupPoint,
    },
    /// Replaces the state of a group and all its regions by a copy of another server's.
    Install(GroupRecord),
    /// Removes a group's state and all its regions.
    RemoveGroup(GroupId),
}

/// Everything that a manifest says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) group: GroupId,
    pub(crate) point: GroupPoint,
    pub(crate) regions: Vec<RegionRecord>,
}

impl GroupRecord {
    /// The same as of a later entry up to which nothing else is to be recorded.
    pub(crate) fn raised_to(mut self, index: u64) -> Self {
        self.point.index = self.point.index.max(index);
        self.regions.iter_mut().for_each(|region| region.point.index = region.point.index.max(index));
        self
    }
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.u8(FORMAT);
        match self {
            Self::Engine { name } => {
                out.u8(ENGINE);
                out.bytes(name.as_bytes());
            }
            Self::Region(region) => {
                out.u8(REGION);
                write_region(&mut out, region);
            }
            Self::Split { parent, daughters } => {
                out.u8(SPLIT);
                out.u64(parent.0);
                daughters.iter().for_each(|daughter| write_region(&mut out, daughter));
            }
            Self::Merge { parents, region } => {
                out.u8(MERGE);
                parents.iter().for_each(|parent| out.u64(parent.0));
                write_region(&mut out, region);
            }
            Self::Drop { regions, group, point } => {
                out.u8(DROP);
                out.u32(count(regions.len()));
                regions.iter().for_each(|region| out.u64(region.0));
                write_group(&mut out, *group, point);
            }
            Self::Group { group, point } => {
                out.u8(GROUP);
                write_group(&mut out, *group, point);
            }
            Self::Install(copy) => {
                out.u8(INSTALL);
                write_group(&mut out, copy.group, &copy.point);
                out.u32(count(copy.regions.len()));
                copy.regions.iter().for_each(|region| write_region(&mut out, region));
            }
            Self::RemoveGroup(group) => {
                out.u8(REMOVE_GROUP);
                out.u64(group.0);
            }
        }
        out
    }

    /// `None` for what this build cannot read.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Reader::new(bytes);
        if input.u8()? != FORMAT {
            return None;
        }
        let record = match input.u8()? {
            ENGINE => Self::Engine { name: String::from_utf8(input.bytes()?.to_vec()).ok()? },
            REGION => Self::Region(read_region(&mut input)?),
            SPLIT => Self::Split {
                parent: RegionId(input.u64()?),
                daughters: Box::new([read_region(&mut input)?, read_region(&mut input)?]),
            },
            MERGE => Self::Merge {
                parents: [RegionId(input.u64()?), RegionId(input.u64()?)],
                region: Box::new(read_region(&mut input)?),
            },
            DROP => {
                let regions = (0..input.u32()?).map(|_| input.u64().map(RegionId)).collect::<Option<_>>()?;
                let (group, point) = read_group(&mut input)?;
                Self::Drop { regions, group, point }
            }
            GROUP => {
                let (group, point) = read_group(&mut input)?;
                Self::Group { group, point }
            }
            INSTALL => {
                let (group, point) = read_group(&mut input)?;
                let regions = (0..input.u32()?).map(|_| read_region(&mut input)).collect::<Option<Vec<_>>>()?;
                // A region of another group among them would outlive the next installation.
                if regions.iter().any(|region| region.point.group != group) {
                    return None;
                }
                Self::Install(GroupRecord { group, point, regions })
            }
            REMOVE_GROUP => Self::RemoveGroup(GroupId(input.u64()?)),
            _ => return None,
        };
        input.is_empty().then_some(record)
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).expect("a server has far fewer than 2^32 of anything in one record")
}

fn write_group(out: &mut Vec<u8>, group: GroupId, point: &GroupPoint) {
    out.u64(group.0);
    out.u64(point.index);
    out.bytes(&point.state);
}

fn read_group(input: &mut Reader<'_>) -> Option<(GroupId, GroupPoint)> {
    let group = GroupId(input.u64()?);
    let index = input.u64()?;
    Some((group, GroupPoint { index, state: Bytes::copy_from_slice(input.bytes()?) }))
}

fn write_region(out: &mut Vec<u8>, region: &RegionRecord) {
    out.u64(region.region.0);
    out.u64(region.table.0);
    out.bytes(&region.range.start);
    out.bytes(&region.range.end);
    let point = &region.point;
    for number in [point.group.0, point.index, point.sequence, point.stamp] {
        out.u64(number);
    }
    out.bytes(&point.descriptor);
    out.bytes(&point.window);
    out.u32(count(region.families.len()));
    for (name, family) in &region.families {
        out.bytes(name.as_bytes());
        out.u64(family.since);
        out.u8(family.storage.compression as u8);
        out.u8(family.storage.bloom as u8);
        out.u32(family.storage.block_size);
        out.flag(family.storage.in_memory);
        write_history(out, &family.rules);
        out.u32(count(family.beyond.len()));
        for from in family.beyond.iter() {
            out.bytes(&from.row);
            out.u64(from.since);
            write_history(out, &from.rules);
        }
    }
    out.u32(count(region.files.len()));
    for (family, files) in &region.files {
        out.bytes(family.as_bytes());
        out.u32(count(files.len()));
        files.iter().for_each(|file| write_file(out, file));
    }
}

pub(crate) fn write_file(out: &mut Vec<u8>, file: &FileRecord) {
    out.u64(file.id);
    out.u8(file.level);
    out.u64(file.size);
    out.u64(file.bytes);
    for row in [file.bounds.start.as_slice(), &file.bounds.end, &file.first_row, &file.last_row] {
        out.bytes(row);
    }
    out.i64(file.timestamps.0);
    out.i64(file.timestamps.1);
    for number in
        [file.sequences.0, file.sequences.1, file.cells, file.deletes, file.collected.0, file.origin, file.ingested_at]
    {
        out.u64(number);
    }
    out.i64(file.collected.1);
}

pub(crate) fn read_file(input: &mut Reader<'_>) -> Option<FileRecord> {
    let mut record = FileRecord {
        id: input.u64()?,
        level: input.u8()?,
        size: input.u64()?,
        bytes: input.u64()?,
        bounds: RowRange { start: input.bytes()?.to_vec(), end: input.bytes()?.to_vec() },
        first_row: Bytes::copy_from_slice(input.bytes()?),
        last_row: Bytes::copy_from_slice(input.bytes()?),
        timestamps: (input.i64()?, input.i64()?),
        sequences: (input.u64()?, input.u64()?),
        cells: input.u64()?,
        deletes: input.u64()?,
        collected: (input.u64()?, 0),
        origin: input.u64()?,
        ingested_at: input.u64()?,
    };
    record.collected.1 = input.i64()?;
    Some(record)
}

fn read_region(input: &mut Reader<'_>) -> Option<RegionRecord> {
    let (region, table) = (RegionId(input.u64()?), TableId(input.u64()?));
    let start = Bytes::copy_from_slice(input.bytes()?);
    let range = KeyRange::new(start, Bytes::copy_from_slice(input.bytes()?)).ok()?;
    let point = DurablePoint {
        group: GroupId(input.u64()?),
        index: input.u64()?,
        sequence: input.u64()?,
        stamp: input.u64()?,
        descriptor: Bytes::copy_from_slice(input.bytes()?),
        window: Bytes::copy_from_slice(input.bytes()?),
    };
    let mut families = BTreeMap::new();
    for _ in 0..input.u32()? {
        let name = FamilyName::new(std::str::from_utf8(input.bytes()?).ok()?).ok()?;
        let since = input.u64()?;
        let storage = FamilyStorage {
            compression: Compression::from_u8(input.u8()?)?,
            bloom: Bloom::from_u8(input.u8()?)?,
            block_size: input.u32()?,
            in_memory: input.u8()? != 0,
        };
        let rules = read_history(input)?;
        let beyond = read_beyond(input)?;
        families.insert(name, FamilyRecord { since, rules, storage, beyond });
    }
    let mut files = BTreeMap::new();
    for _ in 0..input.u32()? {
        let name = FamilyName::new(std::str::from_utf8(input.bytes()?).ok()?).ok()?;
        let of_family = (0..input.u32()?).map(|_| read_file(input)).collect::<Option<Vec<_>>>()?;
        files.insert(name, of_family);
    }
    Some(RegionRecord { region, table, range, point, families, files })
}

fn write_history(out: &mut Vec<u8>, rules: &RulesHistory) {
    out.u32(count(rules.changes().len()));
    rules.changes().iter().for_each(|change| write_rules(out, change));
}

fn read_history(input: &mut Reader<'_>) -> Option<RulesHistory> {
    let changes = (0..input.u32()?).map(|_| read_rules(input)).collect::<Option<Vec<_>>>()?;
    RulesHistory::from_changes(&changes)
}

fn read_beyond(input: &mut Reader<'_>) -> Option<Arc<[RulesFrom]>> {
    let from = |input: &mut Reader<'_>| {
        let (row, since) = (Bytes::copy_from_slice(input.bytes()?), input.u64()?);
        Some(RulesFrom { row, since, rules: read_history(input)? })
    };
    let beyond = (0..input.u32()?).map(|_| from(input)).collect::<Option<Vec<_>>>()?;
    beyond.windows(2).all(|pair| pair[0].row < pair[1].row).then(|| beyond.into())
}

fn write_rules(out: &mut Vec<u8>, change: &RulesChange) {
    out.u64(change.sequence);
    out.i64(change.stamp_ms);
    out.u32(change.rules.versions);
    out.u32(change.rules.min_versions);
    out.u64(change.rules.ttl_ms.unwrap_or(0));
    out.u8(change.rules.keep_deleted_cells as u8);
}

fn read_rules(input: &mut Reader<'_>) -> Option<RulesChange> {
    let (sequence, stamp_ms) = (input.u64()?, input.i64()?);
    let rules = FamilyRules {
        versions: input.u32()?,
        min_versions: input.u32()?,
        ttl_ms: Some(input.u64()?).filter(|&ttl| ttl != 0),
        keep_deleted_cells: KeepDeleted::from_u8(input.u8()?)?,
    };
    Some(RulesChange { sequence, stamp_ms, rules })
}
