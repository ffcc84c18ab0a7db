//! The manifest truncated at every byte, and damaged.

use bytes::Bytes;
use terrane_env::fs::{Fault, MemoryDisk, Tear};
use terrane_types::schema::FamilyStorage;
use terrane_types::visibility::RulesHistory;
use terrane_types::{FamilyRules, KeyRange, RegionId, TableId};

use super::*;
use crate::point::DurablePoint;
use crate::row_range::RowRange;

fn file(id: u64) -> FileRecord {
    FileRecord {
        id,
        level: 2,
        size: 9,
        bytes: 7,
        bounds: RowRange { start: b"b".to_vec(), end: Vec::new() },
        first_row: Bytes::from_static(b"a"),
        last_row: Bytes::from_static(b"c"),
        timestamps: (-1, 5),
        sequences: (3, 4),
        cells: 6,
        deletes: 1,
        collected: (0, 0),
        origin: 8,
        ingested_at: 0,
    }
}

fn region(id: u64, index: u64) -> RegionRecord {
    let name = terrane_types::FamilyName::new("f").unwrap();
    RegionRecord {
        region: RegionId(id),
        table: TableId(3),
        range: KeyRange::new(&b"a"[..], &b"z"[..]).unwrap(),
        point: DurablePoint { index, descriptor: Bytes::from_static(b"descriptor"), ..DurablePoint::default() },
        families: [(
            name.clone(),
            FamilyRecord::new(
                2,
                RulesHistory::new(FamilyRules { ttl_ms: Some(9), ..FamilyRules::default() }),
                FamilyStorage { block_size: 4 << 10, in_memory: true, ..FamilyStorage::default() },
            ),
        )]
        .into(),
        files: [(name, vec![file(index)])].into(),
    }
}

/// The region with other rules for its later rows.
fn with_rules_by_row(mut region: RegionRecord) -> RegionRecord {
    for family in region.families.values_mut() {
        let other = FamilyRecord::new(7, RulesHistory::new(FamilyRules::default()), family.storage);
        *family = family.joined(&Bytes::from_static(b"m"), &other);
    }
    region
}

fn records() -> Vec<Record> {
    let point = GroupPoint { index: 9, state: Bytes::from_static(b"state") };
    vec![
        Record::Engine { name: "memory".into() },
        Record::Region(region(1, 4)),
        Record::Group { group: GroupId(2), point: point.clone() },
        Record::Split { parent: RegionId(1), daughters: Box::new([region(2, 5), region(3, 5)]) },
        Record::Merge { parents: [RegionId(2), RegionId(3)], region: Box::new(region(4, 6)) },
        Record::Region(with_rules_by_row(region(5, 7))),
        Record::Drop { regions: vec![RegionId(2)], group: GroupId(2), point: point.clone() },
        Record::Install(GroupRecord {
            group: GroupId(0),
            point,
            regions: vec![region(4, 7), with_rules_by_row(region(5, 8))],
        }),
        Record::RemoveGroup(GroupId(2)),
    ]
}

/// All records as in a manifest, and where each ends.
pub(super) fn encoded() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for record in records() {
        frame(&mut bytes, &record.encode());
        ends.push(bytes.len());
    }
    (bytes, ends)
}

#[test]
fn records_read_back() {
    for record in records() {
        assert_eq!(Record::decode(&record.encode()), Some(record));
    }
}

#[test]
fn a_manifest_torn_at_any_byte_recovers_to_the_last_whole_record() {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    let mut contents = Contents::default();
    let mut states = Vec::new();
    for record in records() {
        frame(&mut bytes, &record.encode());
        contents.take(record);
        ends.push(bytes.len());
        states.push(contents.clone());
    }
    for cut in ends[0]..=bytes.len() {
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let (read, end) = read_records(Path::new("m"), &bytes[..cut]).unwrap();
        assert_eq!((&read, end), (&states[whole - 1], ends[whole - 1] as u64), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_below_whole_records_is_damage() {
    let mut bytes = Vec::new();
    for record in records() {
        frame(&mut bytes, &record.encode());
    }
    let first = FRAME_HEADER_BYTES + records()[0].encode().len();
    // In the length, in the checksum, and in the record itself.
    for at in [first, first + 1, first + 3, first + 4, first + FRAME_HEADER_BYTES, first + FRAME_HEADER_BYTES + 5] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        let error = read_records(Path::new("m"), &flipped).unwrap_err();
        assert!(matches!(error, Error::Corruption { offset, .. } if offset == first as u64), "{error}");
    }
}

#[test]
fn a_region_at_every_limit_is_read_again() {
    use terrane_types::limits::{FAMILIES_MAX, NAME_CHARS_MAX, ROW_BYTES_MAX, SCHEMA_BYTES_MAX, VERSIONS_MAX};
    let row = |byte| Bytes::from(vec![byte; ROW_BYTES_MAX]);
    let mut longest = region(u64::MAX, u64::MAX);
    longest.range = KeyRange::new(row(b'a'), row(b'z')).unwrap();
    longest.point.descriptor = vec![7; SCHEMA_BYTES_MAX + 4 * ROW_BYTES_MAX].into();
    longest.point.window = vec![7; 4 << 20].into();
    let rules = FamilyRules {
        versions: VERSIONS_MAX,
        min_versions: VERSIONS_MAX,
        ttl_ms: Some(u64::MAX),
        keep_deleted_cells: terrane_types::KeepDeleted::Yes,
    };
    for number in 0..FAMILIES_MAX {
        let name = terrane_types::FamilyName::new(&format!("{number:0>NAME_CHARS_MAX$}")).unwrap();
        let storage = FamilyStorage { block_size: terrane_types::limits::BLOCK_SIZE_MAX, ..FamilyStorage::default() };
        longest.families.insert(name.clone(), FamilyRecord::new(u64::MAX, RulesHistory::new(rules), storage));
        let bounds = RowRange { start: row(b'a').to_vec(), end: row(b'z').to_vec() };
        let file = FileRecord { bounds, first_row: row(b'b'), last_row: row(b'c'), ..file(number as u64) };
        longest.files.insert(name, vec![file]);
    }
    let record = Record::Split { parent: RegionId(1), daughters: Box::new([longest.clone(), longest]) };
    assert_eq!(Record::decode(&record.encode()), Some(record));
}

#[tokio::test]
async fn what_a_restart_has_read_survives_a_power_cut_although_an_earlier_sync_failed() {
    let memory = MemoryDisk::new();
    let (disk, dir) = (Disk::from(&memory), Path::new("/engine"));
    disk.create_dir_all(dir).await.unwrap();
    disk.sync_dir(Path::new("/")).await.unwrap();
    let mut manifest = Manifest::open(&disk, dir, "memory").await.unwrap();
    // The write succeeds, its sync fails, and the process is killed.
    memory.fail_at(memory.operations() + 1, Fault::Error);
    manifest.append(Record::Region(region(1, 4))).await.unwrap_err();
    drop(manifest);
    let mut manifest = Manifest::open(&disk, dir, "memory").await.unwrap();
    let found = manifest.contents().clone();
    assert!(found.regions.contains_key(&region(1, 0).key()), "the bytes are still in the page cache");
    manifest.append(Record::Region(region(2, 5))).await.unwrap();
    let after = Manifest::open(&Disk::from(&memory.crash(Tear::Lost)), dir, "memory").await.unwrap();
    assert_eq!(after.contents(), manifest.contents());
}

#[tokio::test]
async fn a_record_that_a_killed_process_did_not_sync_is_durable_once_it_was_read() {
    let memory = MemoryDisk::new();
    let (disk, dir) = (Disk::from(&memory), Path::new("/engine"));
    disk.create_dir_all(dir).await.unwrap();
    disk.sync_dir(Path::new("/")).await.unwrap();
    drop(Manifest::open(&disk, dir, "memory").await.unwrap());
    // The process is killed between the write and the sync.
    let file = disk.open_rw(&dir.join(FILE_NAME)).await.unwrap();
    let mut bytes = Vec::new();
    frame(&mut bytes, &Record::Region(region(1, 4)).encode());
    file.write_all_at(&bytes, file.len().await.unwrap()).await.unwrap();
    let found = Manifest::open(&disk, dir, "memory").await.unwrap().contents().clone();
    assert!(found.regions.contains_key(&region(1, 0).key()));
    let after = Manifest::open(&Disk::from(&memory.crash(Tear::Lost)), dir, "memory").await.unwrap();
    assert_eq!(after.contents(), &found);
}
