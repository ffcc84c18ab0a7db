//! Crash tests: the log directory opened again after a kill, a torn write or a flipped bit.
//!
//! The directory is copied while the writer is idle. That is the state after a kill: everything written, nothing sealed.

#[allow(clippy::disallowed_types, reason = "the disk that fills up is mounted by a command")]
mod full_disk;
mod held;
mod power_cut;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use openraft::{EntryPayload, RaftLogReader};
use terrane_types::{GroupId, ReplicaId, ServerId};

use super::batch::{ALIGNMENT, BatchHeader, HeaderProbe};
use super::record::Mark;
use super::{GroupLog, SharedLog, store::Store};
use crate::proposals::entry::Sequence;
use crate::types::{Entry, Packed, StoredMembership, Types, Vote, log_id};
use crate::{GroupSpec, LogConfig, OpenError};

pub(super) const A: GroupId = GroupId(1);
pub(super) const B: GroupId = GroupId(2);

pub(super) fn config() -> LogConfig {
    LogConfig { segment_bytes: 4 << 10, cache_bytes: 1 << 10, limit_bytes: 1 << 30, purge_budget_bytes: 1 << 20 }
}

pub(super) fn spec(group: GroupId) -> GroupSpec {
    GroupSpec { group, replica: ReplicaId(group.0), members: [(ReplicaId(group.0), ServerId(1))].into() }
}

pub(super) fn entry(index: u64, fill: u8, bytes: usize) -> Entry {
    Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(Packed(vec![fill; bytes].into())) }
}

pub(super) async fn append(store: &mut Store, entries: Vec<Entry>) {
    let (done, synced) = Types::oneshot();
    store.append(entries, IOFlushed::signal(done)).await.unwrap();
    synced.await.unwrap().unwrap();
}

async fn open(directory: &Path) -> Result<Arc<SharedLog>, OpenError> {
    SharedLog::open(directory.to_owned(), &config()).await
}

pub(super) fn log_of(log: &SharedLog, group: GroupId) -> Option<Arc<GroupLog>> {
    log.groups().into_iter().find(|log| log.group() == group)
}

pub(super) async fn payloads(log: &GroupLog) -> Vec<(u64, u8)> {
    let entries = log.read(0..u64::MAX, usize::MAX).await.unwrap();
    let fill = |entry: &Entry| match &entry.payload {
        EntryPayload::Normal(packed) => packed.0[0],
        _ => 0,
    };
    entries.iter().map(|entry| (entry.log_id.index, fill(entry))).collect()
}

pub(super) fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some());
    paths.sort();
    paths
}

pub(super) fn copy(directory: &Path) -> tempfile::TempDir {
    let copied = tempfile::tempdir().unwrap();
    for path in segments(directory) {
        std::fs::copy(&path, copied.path().join(path.file_name().unwrap())).unwrap();
    }
    copied
}

/// The starts of all batches in a segment, and the end of the last one.
pub(super) fn batches(path: &Path) -> Vec<usize> {
    let bytes = bytes::Bytes::from(std::fs::read(path).unwrap());
    let mut starts = Vec::new();
    let mut end = 0;
    for at in (0..bytes.len()).step_by(ALIGNMENT) {
        if let HeaderProbe::Header(header, _) = BatchHeader::find(&bytes, at) {
            starts.push(at);
            end = super::batch::aligned(at + super::batch::HEADER_BYTES + header.length as usize);
        }
    }
    starts.push(end);
    starts
}

/// A directory after a kill, with one segment that ends with one batch for each of three appends.
pub(super) async fn killed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    let created = log.create(spec(A)).await.unwrap();
    let mut store = log.store(&created);
    store.save_vote(&Vote::new_committed(1, ReplicaId(1))).await.unwrap();
    for index in 0..3 {
        append(&mut store, vec![entry(index, index as u8 + 1, 20)]).await;
    }
    let copied = copy(directory.path());
    log.close().await;
    copied
}

/// The last segment of a directory, its bytes, and the starts of its batches, with the end of the last one.
pub(super) fn last_segment(directory: &Path) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let path = segments(directory).pop().unwrap();
    let (bytes, starts) = (std::fs::read(&path).unwrap(), batches(&path));
    (path, bytes, starts)
}

async fn reopened(directory: &Path) -> Vec<(u64, u8)> {
    let log = open(directory).await.unwrap();
    let found = payloads(&log_of(&log, A).unwrap()).await;
    log.close().await;
    found
}

const ALL: [(u64, u8); 3] = [(0, 1), (1, 2), (2, 3)];

#[tokio::test]
async fn everything_synced_is_there_after_a_kill() {
    let directory = killed().await;
    let log = open(directory.path()).await.unwrap();
    let found = log_of(&log, A).unwrap();
    assert_eq!(found.vote(), Some(Vote::new_committed(1, ReplicaId(1))));
    assert_eq!(found.spec(), &spec(A));
    assert_eq!(payloads(&found).await, ALL);
    log.close().await;
}

#[tokio::test]
async fn a_file_cut_anywhere_in_its_last_batches_keeps_all_whole_ones() {
    let directory = killed().await;
    let (path, bytes, starts) = last_segment(directory.path());
    let entries = &starts[starts.len() - 4..];
    for length in entries[0]..entries[3] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let other = copy(directory.path());
        let whole = entries[1..].iter().filter(|end| padding_aside(&bytes, **end) <= length).count();
        assert_eq!(reopened(other.path()).await, ALL[..whole], "cut at {length}");
        // And once more: cut entries stay cut, new ones are kept.
        assert_eq!(reopened(other.path()).await, ALL[..whole]);
    }
}

/// The end of a batch without its padding of zeros.
fn padding_aside(bytes: &[u8], end: usize) -> usize {
    (0..ALIGNMENT).map(|back| end - back).find(|end| bytes[end - 1] != 0).unwrap_or(end - ALIGNMENT + 1)
}

#[tokio::test]
async fn a_torn_last_batch_is_cut_and_written_over() {
    let directory = killed().await;
    let (path, bytes, starts) = last_segment(directory.path());
    let (last, end) = (starts[starts.len() - 2], starts[starts.len() - 1]);
    // The later part of a write may reach the disk before the earlier one.
    for torn in last + 1..end {
        let mut torn_bytes = bytes.clone();
        torn_bytes[last..torn].fill(0);
        if torn_bytes == bytes {
            continue;
        }
        std::fs::write(&path, &torn_bytes).unwrap();
        let other = copy(directory.path());
        let log = open(other.path()).await.unwrap();
        let found = log_of(&log, A).unwrap();
        assert_eq!(payloads(&found).await, ALL[..2], "torn up to {torn}");
        append(&mut log.store(&found), vec![entry(2, 9, 20)]).await;
        log.close().await;
        assert_eq!(reopened(other.path()).await, [(0, 1), (1, 2), (2, 9)]);
    }
}

#[tokio::test]
async fn a_flipped_bit_is_a_torn_tail_in_the_last_batch_and_damage_before_it() {
    let directory = killed().await;
    let (path, bytes, starts) = last_segment(directory.path());
    let last = starts[starts.len() - 2];
    for at in 0..starts[starts.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        let other = copy(directory.path());
        if at >= last {
            assert_eq!(reopened(other.path()).await, ALL[..2], "flipped at {at}");
            continue;
        }
        let batch = *starts.iter().rev().find(|start| **start <= at).unwrap();
        assert_damaged(other.path(), "00000001.log", Some(batch)).await;
    }
}

#[tokio::test]
async fn a_flipped_bit_after_the_end_loses_nothing() {
    let directory = killed().await;
    let (path, mut bytes, starts) = last_segment(directory.path());
    bytes[starts[starts.len() - 1] + 100] = 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(reopened(directory.path()).await, ALL);
}

#[tokio::test]
async fn a_clean_stop_protects_the_last_batch_too() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    let created = log.create(spec(A)).await.unwrap();
    append(&mut log.store(&created), vec![entry(0, 7, 20)]).await;
    log.close().await;
    let (path, mut bytes, starts) = last_segment(directory.path());
    let last_entry = starts[starts.len() - 3];
    bytes[last_entry + 70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_damaged(directory.path(), "", Some(last_entry)).await;
}

#[tokio::test]
async fn a_synced_batch_that_reads_as_zeros_is_damage() {
    let directory = killed().await;
    let (path, mut bytes, starts) = last_segment(directory.path());
    let (from, to) = (starts[starts.len() - 3], starts[starts.len() - 2]);
    bytes[from..to].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    assert_damaged(directory.path(), "", Some(from)).await;
}

/// Several segments of two groups.
pub(super) async fn long() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    for group in [A, B] {
        let created = log.create(spec(group)).await.unwrap();
        let mut store = log.store(&created);
        for index in 0..20 {
            append(&mut store, vec![entry(index, index as u8, 500)]).await;
        }
    }
    log.close().await;
    assert!(segments(directory.path()).len() >= 5);
    directory
}

#[tokio::test]
async fn damage_in_an_earlier_segment_and_a_missing_one_are_refused_by_name() {
    let directory = long().await;
    let paths = segments(directory.path());
    let bytes = std::fs::read(&paths[1]).unwrap();
    let starts = batches(&paths[1]);
    for (from, to) in [(starts[1] + 80, starts[1] + 81), (starts[starts.len() - 2], starts[starts.len() - 1])] {
        let mut damaged = bytes.clone();
        damaged[from..to].iter_mut().for_each(|byte| *byte ^= 0xff);
        std::fs::write(&paths[1], &damaged).unwrap();
        assert_damaged(directory.path(), "00000002.log", None).await;
    }
    // The last batch of the segment is gone, but the next header continues the chain from it.
    let mut zeroed = bytes.clone();
    zeroed[starts[starts.len() - 2]..].fill(0);
    std::fs::write(&paths[1], &zeroed).unwrap();
    assert_damaged(directory.path(), "00000002.log", Some(starts[starts.len() - 2])).await;

    std::fs::write(&paths[1], &bytes).unwrap();
    std::fs::remove_file(&paths[2]).unwrap();
    assert_damaged(directory.path(), "00000003.log", None).await;
}

/// A start refuses the directory: this file is damaged, at this offset if it is given.
async fn assert_damaged(directory: &Path, name: &str, at: Option<usize>) {
    match open(directory).await.err() {
        Some(OpenError::Damage { file, offset, .. }) => {
            let is_there = at.is_none_or(|at| offset == at as u64);
            assert!(file.ends_with(name) && is_there, "{file} at {offset}, not {name} at {at:?}")
        }
        other => panic!("{other:?}, not {name} at {at:?}"),
    }
}

/// The directory after a kill right after a start, which has begun segment 2 with the state of all groups and nothing else; its
/// header alone says where segment 1 ends.
async fn killed_after_a_start() -> tempfile::TempDir {
    let directory = killed().await;
    let log = open(directory.path()).await.unwrap();
    let copied = copy(directory.path());
    log.close().await;
    copied
}

#[tokio::test]
async fn a_segment_with_a_successor_that_lost_its_end_is_refused_and_nothing_is_cut() {
    let directory = killed_after_a_start().await;
    let paths = segments(directory.path());
    assert_eq!((paths.len(), batches(&paths[1]).len()), (2, 2), "a segment with one batch is the last");
    let (bytes, starts) = (std::fs::read(&paths[0]).unwrap(), batches(&paths[0]));
    let successor = std::fs::read(&paths[1]).unwrap();
    for start in &starts[..starts.len() - 1] {
        let mut zeroed = bytes.clone();
        zeroed[*start..].fill(0);
        // The bytes read as zeros, or the file is shorter.
        for lost in [zeroed, bytes[..*start].to_vec()] {
            std::fs::write(&paths[0], &lost).unwrap();
            assert_damaged(directory.path(), "00000001.log", Some(*start)).await;
            assert_eq!(std::fs::read(&paths[1]).unwrap(), successor, "the successor is as it was");
        }
    }
    std::fs::write(&paths[0], &bytes).unwrap();
    assert_eq!(reopened(directory.path()).await, ALL);
}

#[tokio::test]
async fn a_segment_with_a_successor_that_reads_as_zeros_is_refused() {
    let directory = killed_after_a_start().await;
    let log = open(directory.path()).await.unwrap();
    let copied = copy(directory.path());
    log.close().await;
    let paths = segments(copied.path());
    std::fs::write(&paths[1], vec![0; 4096]).unwrap();
    assert_damaged(copied.path(), "00000002.log", Some(0)).await;
}

#[tokio::test]
async fn a_torn_head_of_the_last_segment_is_cut_if_the_one_before_it_is_whole() {
    let directory = killed_after_a_start().await;
    let paths = segments(directory.path());
    let (bytes, end) = (std::fs::read(&paths[1]).unwrap(), batches(&paths[1])[1]);
    for torn in (0..end).step_by(ALIGNMENT) {
        for range in [0..torn, torn..end] {
            let mut torn_bytes = bytes.clone();
            torn_bytes[range].fill(0);
            std::fs::write(&paths[1], &torn_bytes).unwrap();
            assert_eq!(reopened(copy(directory.path()).path()).await, ALL, "torn at {torn}");
        }
    }
}

#[tokio::test]
async fn a_segment_that_was_created_but_never_written_is_no_obstacle() {
    let directory = killed().await;
    std::fs::write(directory.path().join("00000002.log"), vec![0; 4096]).unwrap();
    assert_eq!(reopened(directory.path()).await, ALL);
    let directory = killed().await;
    std::fs::write(directory.path().join("00000002.log"), [9; 40]).unwrap();
    assert_eq!(reopened(directory.path()).await, ALL);
}

#[tokio::test]
async fn a_layout_of_the_future_is_refused_by_number() {
    let directory = killed().await;
    let (path, mut bytes, _) = last_segment(directory.path());
    bytes[7] = 2;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(open(directory.path()).await, Err(OpenError::Unsupported { what, .. }) if what.contains('2')));
}

#[tokio::test]
async fn entries_of_all_groups_come_back_from_memory_and_from_disk() {
    let directory = long().await;
    let log = open(directory.path()).await.unwrap();
    let expected: Vec<(u64, u8)> = (0..20).map(|index| (index, index as u8)).collect();
    for group in [A, B] {
        assert_eq!(payloads(&log_of(&log, group).unwrap()).await, expected);
    }
    log.close().await;
}

#[tokio::test]
async fn truncated_entries_stay_away_and_their_indexes_are_used_again() {
    let directory = killed().await;
    let log = open(directory.path()).await.unwrap();
    let found = log_of(&log, A).unwrap();
    let mut store = log.store(&found);
    store.truncate_after(Some(log_id(1, 0))).await.unwrap();
    append(&mut store, vec![entry(1, 77, 20)]).await;
    let copied = copy(directory.path());
    log.close().await;
    assert_eq!(reopened(copied.path()).await, [(0, 1), (1, 77)]);
}

pub(super) fn mark(index: u64) -> Mark {
    let sequence = Sequence { term: 1, ordinal: index, stamp: 5, released: 3 };
    Mark { log_id: log_id(1, index), membership: StoredMembership::default(), sequence }
}

#[tokio::test]
async fn purged_entries_free_their_segments_and_their_state_survives() {
    let directory = long().await;
    let log = open(directory.path()).await.unwrap();
    let before = segments(directory.path()).len();
    for group in [A, B] {
        let found = log_of(&log, group).unwrap();
        let mut store = log.store(&found);
        store.save_vote(&Vote::new(4, ReplicaId(group.0))).await.unwrap();
        found.offer(mark(18));
        store.purge(log_id(1, 18)).await.unwrap();
        assert_eq!(payloads(&found).await, [(19, 19)]);
        // Its sync covers the purge record as well.
        append(&mut store, vec![entry(20, 20, 20)]).await;
    }
    log.close().await;
    assert!(segments(directory.path()).len() < before);

    let log = open(directory.path()).await.unwrap();
    for group in [A, B] {
        let found = log_of(&log, group).unwrap();
        assert_eq!(found.purged(), Some(mark(18)));
        assert_eq!(found.vote(), Some(Vote::new(4, ReplicaId(group.0))));
        assert_eq!(payloads(&found).await, [(19, 19), (20, 20)]);
        let state = log.store(&found).get_log_state().await.unwrap();
        assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(1, 18)), Some(log_id(1, 20))));
    }
    log.close().await;
}

#[tokio::test]
async fn a_removal_is_known_until_it_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    log.create(spec(B)).await.unwrap();
    let created = log.create(spec(A)).await.unwrap();
    append(&mut log.store(&created), vec![entry(0, 7, 20)]).await;
    log.remove(&created).await.unwrap();
    assert_eq!(log.removed(), [A]);
    log.close().await;
    // Each start begins a segment, and removes those before it.
    for _ in 0..3 {
        let log = open(directory.path()).await.unwrap();
        assert_eq!(log.removed(), [A]);
        assert!(log_of(&log, A).is_none() && log_of(&log, B).is_some());
        log.close().await;
    }
    let log = open(directory.path()).await.unwrap();
    log.forget(A);
    assert_eq!(log.removed(), []);
    log.close().await;
    // The segment in which it was forgotten may still name it, but not beside a new replica.
    let log = open(directory.path()).await.unwrap();
    log.create(spec(A)).await.unwrap();
    log.close().await;
    let log = open(directory.path()).await.unwrap();
    assert!(log.removed().is_empty() && log_of(&log, A).is_some());
    log.close().await;
}

#[tokio::test]
async fn a_purge_that_no_snapshot_covered_is_refused() {
    let directory = killed().await;
    let log = open(directory.path()).await.unwrap();
    let found = log_of(&log, A).unwrap();
    assert!(log.store(&found).purge(log_id(1, 1)).await.is_err());
    assert_eq!(payloads(&found).await, ALL);
    log.close().await;
}

#[tokio::test]
async fn a_batch_larger_than_a_segment_is_one_segment() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    let created = log.create(spec(A)).await.unwrap();
    let mut store = log.store(&created);
    append(&mut store, vec![entry(0, 1, 20_000)]).await;
    append(&mut store, vec![entry(1, 2, 20)]).await;
    let copied = copy(directory.path());
    log.close().await;
    assert_eq!(reopened(copied.path()).await, [(0, 1), (1, 2)]);
}

#[tokio::test]
async fn reads_end_at_their_limit_but_never_before_the_first_entry() {
    let directory = long().await;
    let log = open(directory.path()).await.unwrap();
    let found = log_of(&log, A).unwrap();
    assert_eq!(found.read(3..9, 0).await.unwrap().len(), 1);
    assert_eq!(found.read(3..9, usize::MAX).await.unwrap().len(), 6);
    assert_eq!(log.store(&found).try_get_log_entries(18..=30).await.unwrap().len(), 2);
    assert!(found.read(20..30, usize::MAX).await.unwrap().is_empty());
    log.close().await;
}
