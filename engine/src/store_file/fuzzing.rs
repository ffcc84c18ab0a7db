//! Store files and their blocks as the fuzz driver sees them.
//!
//! The formats of blocks are payloads behind their checksum. [`FORGED`] is a whole file whose checksums are computed
//! again after bytes changed: what a bug could write, not what a disk could damage.

use std::ops::ControlFlow;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use terrane_env::fs::{Disk, MemoryDisk};
use terrane_types::fuzzing::{Damage, Dice, Format, draw as shared, no_limits, round_trip};
use terrane_types::schema::Compression;

use super::block::{self, BlockAt, PADDING_BYTES, Sealer};
use super::data_block::{self, DataBlock, Decoder, Next, Place};
use super::filter::Filter;
use super::footer::{FOOTER_BYTES, Footer};
use super::index::{IndexBlock, IndexBuilder, UpperBound};
use super::properties::StoreFileProperties;
use super::reader::StoreFile;
use super::{FamilyReads, StoreFileOptions, StoreFileShared, StoreFileWriter, path_of};
use crate::Error;
use crate::cells::Cells;
use crate::column_selection::ColumnSelection;
use crate::fuzzing::draw;
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;
use crate::source::{Reading, RowLookup, Source};

/// The file that all blocks belong to, and where they are in it.
const FILE_ID: u64 = 7;
const OFFSET: u64 = 100;
/// Where data blocks end, for indexes on their own.
const DATA_END: u64 = 1 << 40;

/// A block with its checksum.
pub(crate) const BLOCK: Format = Format {
    name: "store-block",
    damage: Damage::Refused,
    read: |bytes| block::unseal(bytes, FILE_ID, OFFSET).ok().map(|_| bytes.to_vec()),
    draw: |dice| {
        let payload = [dice.bytes(200), vec![7; dice.below(200)]].concat();
        let compression = dice.pick(&Compression::ALL);
        sealed(&payload, compression)
    },
    limits: || {
        let mut payload = Vec::new();
        data_block::encode(&draw::largest(), &mut payload);
        Compression::ALL.iter().map(|compression| sealed(&payload, *compression)).collect()
    },
};

/// A compression and a compressed payload, without the checksum.
pub(crate) const COMPRESSED: Format = Format {
    name: "store-block-compressed",
    damage: Damage::Undetected,
    read: |bytes| {
        let (compression, payload) = bytes.split_first()?;
        let sealed = resealed(&[payload, &[*compression]].concat(), OFFSET);
        block::unseal(&sealed, FILE_ID, OFFSET).ok().map(|_| bytes.to_vec())
    },
    draw: |dice| {
        let payload = vec![dice.array::<1>()[0]; dice.below(600)];
        let compression = dice.pick(&Compression::ALL);
        let mut sealed = sealed(&payload, compression);
        sealed.truncate(sealed.len() - 4);
        let compression = sealed.pop().expect("a block has a compression");
        [&[compression], &sealed[..]].concat()
    },
    limits: no_limits,
};

/// A block of cells. Reads every cell, and seeks some of them.
pub(crate) const DATA: Format = Format {
    name: "store-data-block",
    damage: Damage::Undetected,
    read: |bytes| {
        let block = DataBlock::new(padded(bytes)).ok()?;
        let cells = decoded(&block)?;
        for at in [0, cells.len() / 2, cells.len().saturating_sub(1)] {
            if at < cells.len() {
                let cell = cells.get(at);
                Decoder::default().seek(&block, Place { row: cell.row, qualifier: Some(cell.qualifier) }).ok();
                Decoder::default().seek(&block, Place::after(cell.row)).ok();
            }
        }
        (!cells.is_empty()).then(|| block_of(&cells))
    },
    draw: |dice| {
        let cells = draw::cells(dice, 40);
        let bytes = block_of(&cells);
        let block = DataBlock::new(padded(&bytes)).expect("a block that was written is read");
        let back = decoded(&block).expect("the cells of a block that was written are read");
        assert_eq!(draw::shown(&back), draw::shown(&cells), "a block is read with other cells");
        for cell in cells.iter() {
            let mut decoder = Decoder::default();
            let place = Place { row: cell.row, qualifier: Some(cell.qualifier) };
            let found = decoder.seek(&block, place);
            assert_eq!(found, Ok(Next::NewRow), "a cell that was written is not found");
            assert_eq!((decoder.cell(&block).row, decoder.cell(&block).qualifier), (cell.row, cell.qualifier));
        }
        bytes
    },
    limits: || {
        let cells = draw::largest();
        let bytes = block_of(&cells);
        let block = DataBlock::new(padded(&bytes)).expect("the largest block is read");
        assert!(decoded(&block).is_some_and(|back| block_of(&back) == bytes), "the largest cells are read as others");
        vec![bytes]
    },
};

/// An index block. Looks some places up.
pub(crate) const INDEX: Format = Format {
    name: "store-index-block",
    damage: Damage::Undetected,
    read: |bytes| {
        let index = IndexBlock::new(&padded(bytes), DATA_END).ok()?;
        for entry in index.entries().iter().take(5) {
            let found = index.find(Place { row: index.row(entry), qualifier: index.qualifier(entry) });
            assert!(found <= index.len(), "a search ends beyond the index");
            index.find(Place::after(index.row(entry)));
        }
        let mut builder = IndexBuilder::default();
        for entry in index.entries() {
            let (row, qualifier) = (index.row(entry).to_vec(), index.qualifier(entry).map(<[u8]>::to_vec));
            // The sums of a forged index may not fit into the index above it.
            builder.add(UpperBound { row, qualifier }, entry.at, 0, 0);
        }
        Some(builder.finish()?.0)
    },
    draw: |dice| {
        let mut builder = IndexBuilder::default();
        let (mut offset, mut bounds) = (dice.number() % 1000, Vec::new());
        for row in drawn_rows(dice) {
            let bound = UpperBound { row, qualifier: dice.one_in(3).then(|| dice.bytes(20)) };
            let at = BlockAt { offset, len: 1 + dice.number32() % 100_000 };
            offset += u64::from(at.len);
            builder.add(bound.clone(), at, 0, 0);
            bounds.push((bound, at));
        }
        let (payload, ..) = builder.finish().expect("at least one entry was added");
        let index = IndexBlock::new(&padded(&payload), DATA_END).expect("an index that was written is read");
        let back = index.entries().iter().map(|entry| {
            let (row, qualifier) = (index.row(entry).to_vec(), index.qualifier(entry).map(<[u8]>::to_vec));
            (UpperBound { row, qualifier }, entry.at)
        });
        assert_eq!(back.collect::<Vec<_>>(), bounds, "an index is read with other entries");
        payload
    },
    limits: no_limits,
};

/// A filter.
pub(crate) const FILTER: Format = Format {
    name: "store-filter",
    damage: Damage::Undetected,
    read: |bytes| {
        let filter = Filter::new(bytes).ok()?;
        for hash in [0, 1, u64::MAX, 1 << 32] {
            filter.may_contain(hash);
        }
        Some(bytes.to_vec())
    },
    draw: |dice| {
        let hashes: Vec<u64> = dice.list(100, Dice::u64);
        let payload = Filter::build(&hashes);
        let filter = Filter::new(&payload).expect("a filter that was written is read");
        assert!(hashes.iter().all(|hash| filter.may_contain(*hash)), "a filter denies a key that it has");
        payload
    },
    limits: no_limits,
};

/// The properties of a file.
pub(crate) const PROPERTIES: Format = Format {
    name: "store-properties",
    damage: Damage::Undetected,
    read: |bytes| blank().decode(bytes).ok().map(|properties| properties.encode()),
    draw: |dice| {
        let mut rows = [dice.bytes(60), dice.bytes(60)];
        rows.sort_unstable();
        let [first_row, last_row] = rows;
        let properties = StoreFileProperties {
            first_row,
            last_row,
            cells: dice.number(),
            deletes: dice.number(),
            rows: dice.number(),
            longest_row_cells: dice.number(),
            timestamps: (dice.signed(), dice.signed()),
            sequences: (dice.number(), dice.number()),
            data_bytes: dice.number(),
            data_blocks: dice.number(),
            index_blocks: dice.number(),
            storage: shared::storage(dice),
            prefix_id: dice.flag().then(|| dice.number()),
            ..blank()
        };
        round_trip(&properties, properties.encode(), |bytes| blank().decode(bytes))
    },
    limits: no_limits,
};

/// A footer.
pub(crate) const FOOTER: Format = Format {
    name: "store-footer",
    damage: Damage::Refused,
    read: |bytes| {
        Footer::decode(bytes, u64::MAX >> 1).ok().filter(|_| bytes.len() == FOOTER_BYTES).map(|it| it.encode())
    },
    draw: |dice| {
        let at = |dice: &mut Dice| BlockAt { offset: dice.number() >> 2, len: 1 + dice.number32() / 2 };
        let footer = Footer {
            top_index: at(dice),
            filter: dice.flag().then(|| at(dice)),
            prefix_filter: dice.flag().then(|| at(dice)),
            properties: at(dice),
            data_end: dice.number() >> 2,
            id: dice.number(),
        };
        round_trip(&footer, footer.encode(), |bytes| {
            Footer::decode(bytes, u64::MAX >> 1).map_err(|bad| format!("{bad:?}"))
        })
    },
    limits: no_limits,
};

/// A whole file: opened, verified, and read in both directions.
pub(crate) const FILE: Format = Format {
    name: "store-file",
    damage: Damage::Refused,
    read: |bytes| {
        let file = opened(bytes).map_err(|error| error.to_string()).ok()?;
        file.check(None).map_err(|error| error.to_string()).ok()?;
        read_everything(&file).expect("a file that passes its check is read");
        Some(bytes.to_vec())
    },
    draw: |dice| file_of(dice),
    limits: no_limits,
};

/// A whole file with forged checksums: an error or cells, whatever its blocks say.
pub(crate) const FORGED: Format = Format {
    name: "store-file-forged",
    damage: Damage::Undetected,
    read: |bytes| {
        let mut bytes = bytes.to_vec();
        forge(&mut bytes);
        let file = opened(&bytes).map_err(|error| error.to_string()).ok()?;
        file.check(None).map_err(|error| error.to_string()).ok();
        read_everything(&file).map_err(|error| error.to_string()).ok();
        Some(bytes)
    },
    draw: |dice| file_of(dice),
    limits: no_limits,
};

fn padded(payload: &[u8]) -> Vec<u8> {
    [payload, &[0; PADDING_BYTES]].concat()
}

fn block_of(cells: &Cells) -> Vec<u8> {
    let mut out = Vec::new();
    data_block::encode(cells, &mut out);
    out
}

fn decoded(block: &DataBlock) -> Option<Cells> {
    let (mut decoder, mut cells) = (Decoder::default(), Cells::default());
    decoder.start();
    while decoder.next(block).ok()? != Next::End {
        cells.push(decoder.cell(block));
    }
    Some(cells)
}

fn sealed(payload: &[u8], compression: Compression) -> Vec<u8> {
    let mut out = Vec::new();
    Sealer::new(compression).seal(payload, compression, FILE_ID, OFFSET, &mut out);
    let back = block::unseal(&out, FILE_ID, OFFSET).expect("a block that was written is read");
    assert!(&back[..back.len() - PADDING_BYTES] == payload, "a block is read as another one");
    out
}

/// Payload and compression with the checksum that belongs to them.
fn resealed(covered: &[u8], offset: u64) -> Vec<u8> {
    let place = [FILE_ID.to_le_bytes(), offset.to_le_bytes()].concat();
    let checksum = crc32c::crc32c_append(crc32c::crc32c(covered), &place);
    [covered, &checksum.to_le_bytes()].concat()
}

fn drawn_rows(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut rows = dice.list(30, shared::row);
    rows.push(b"z".to_vec());
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn blank() -> StoreFileProperties {
    StoreFileProperties::new(1, FILE_ID, Default::default())
}

const DIRECTORY: &str = "/tables";

/// Runs a future over a disk in memory, which never waits.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a disk in memory waits"),
    }
}

fn disk() -> Disk {
    let disk = Disk::from(&MemoryDisk::default());
    now(disk.create_dir_all(Path::new(DIRECTORY))).expect("a disk in memory takes a directory");
    disk
}

fn file_of(dice: &mut Dice) -> Vec<u8> {
    let cells = draw::cells(dice, 60);
    let mut storage = shared::storage(dice);
    storage.block_size = dice.pick(&[64, 256, 1024]);
    let prefix = dice.flag().then(|| RowPrefix { id: 3, length: Arc::new(|row| (row.len() >= 2).then_some(2)) });
    let disk = disk();
    let options = StoreFileOptions { storage, prefix };
    let written = now(async {
        let mut writer = StoreFileWriter::create(&disk, Path::new(DIRECTORY), FILE_ID, options).await?;
        cells.iter().for_each(|cell| writer.add(cell));
        writer.finish().await
    });
    written.expect("a disk in memory takes a file");
    let bytes = now(disk.read(&path_of(Path::new(DIRECTORY), FILE_ID))).expect("the file was written");
    let file = opened(&bytes).expect("a file that was written is opened");
    file.check(None).expect("a file that was written passes its check");
    let read = read_everything(&file).expect("a file that was written is read");
    assert_eq!(draw::shown(&read), draw::shown(&cells), "a file is read with other cells");
    bytes
}

fn opened(bytes: &[u8]) -> Result<Arc<StoreFile>, Error> {
    let disk = disk();
    let directory = Path::new(DIRECTORY);
    let written = now(async {
        let file = disk.create_new(&path_of(directory, FILE_ID)).await?;
        file.write_all_at(bytes, 0).await
    });
    written.expect("a disk in memory takes a file");
    let shared = Arc::new(StoreFileShared::new(disk, directory.to_owned(), 1 << 16, 4));
    StoreFile::open(&shared, FILE_ID, Some(FILE_ID), bytes.len() as u64, &Arc::new(FamilyReads::default()), None)
        .map(Arc::new)
}

/// All cells in order; also reads backwards, and looks up the first and the last row.
fn read_everything(file: &Arc<StoreFile>) -> Result<Cells, Error> {
    let reading = Reading { blocking: true, sequential: true, fills_cache: false, time_min: i64::MIN, prefix: None };
    let mut cells = Cells::default();
    file.each_cell(&mut |cell| {
        cells.push(cell);
        ControlFlow::Continue(())
    })?;
    file.samples(16)?;
    file.bytes_within(&RowRange { start: file.properties().first_row.clone(), end: b"b".to_vec() });
    let mut out = Cells::default();
    for reverse in [false, true] {
        let mut cursor = Arc::clone(file).cursor(&RowRange::default(), reverse, reading)?;
        // A forged file may have its rows in any order.
        for _ in 0..1000 {
            if cursor.row().is_none() {
                break;
            }
            out.clear();
            cursor.take(ColumnSelection::ALL, usize::MAX, &mut out)?;
        }
    }
    for row in [file.properties().first_row.clone(), file.properties().last_row.clone()] {
        out.clear();
        file.row(
            &RowLookup::new(&row, ColumnSelection::ALL, Reading { sequential: false, ..reading }, usize::MAX),
            &mut out,
        )?;
    }
    Ok(cells)
}

/// Computes the checksums of the footer and of every block that it, or an index, refers to.
fn forge(bytes: &mut [u8]) {
    let Some(fields_at) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    let end = bytes.len();
    let id_at = end - 16 - 8;
    bytes[id_at..id_at + 8].copy_from_slice(&FILE_ID.to_le_bytes());
    bytes[end - 12..end - 8].copy_from_slice(&1u32.to_le_bytes());
    bytes[end - 8..].copy_from_slice(b"TRNTABLE");
    let covered = crc32c::crc32c_append(crc32c::crc32c(&bytes[fields_at..end - 16]), &bytes[end - 12..]);
    bytes[end - 16..end - 12].copy_from_slice(&covered.to_le_bytes());
    let Ok(footer) = Footer::decode(&bytes[fields_at..], end as u64) else { return };
    for at in [Some(footer.properties), footer.filter, footer.prefix_filter].into_iter().flatten() {
        forge_block(bytes, at);
    }
    for partition in forge_index(bytes, footer.top_index, footer.top_index.offset) {
        for data in forge_index(bytes, partition, footer.data_end) {
            forge_block(bytes, data);
        }
    }
}

/// Where the blocks of an index are, after its checksum is computed.
fn forge_index(bytes: &mut [u8], at: BlockAt, end: u64) -> Vec<BlockAt> {
    let Some(sealed) = forge_block(bytes, at) else { return Vec::new() };
    let payload = block::unseal(&sealed, FILE_ID, at.offset).ok();
    let index = payload.and_then(|payload| IndexBlock::new(&payload, end).ok());
    index.map_or_else(Vec::new, |index| index.entries().iter().take(100).map(|entry| entry.at).collect())
}

fn forge_block(bytes: &mut [u8], at: BlockAt) -> Option<Vec<u8>> {
    let start = usize::try_from(at.offset).ok()?;
    let end = start.checked_add(at.len as usize).filter(|end| *end <= bytes.len())?;
    let covered = end.checked_sub(4).filter(|covered| *covered > start)?;
    let sealed = resealed(&bytes[start..covered], at.offset);
    bytes[start..end].copy_from_slice(&sealed);
    Some(sealed)
}
