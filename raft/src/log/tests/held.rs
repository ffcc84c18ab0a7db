//! Held files: which groups continue to write while one is held back, and the state after a crash at any of the steps.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use openraft::storage::RaftLogStorage;
use proptest::prelude::*;
use terrane_types::{Inspection, ReplicaId};

use super::super::store::Store;
use super::super::{GroupLog, SharedLog, check_log, place, spill};
use super::{A, B, append, copy, entry, log_of, mark, payloads, spec};
use crate::types::log_id;
use crate::{GroupSpec, LogConfig, OpenError};

const LIMIT: u64 = 64 << 10;
/// Entries of the held group, among those of the other.
const HELD: u64 = 40;

fn config() -> LogConfig {
    LogConfig { segment_bytes: 4 << 10, cache_bytes: 1 << 10, limit_bytes: LIMIT, purge_budget_bytes: 16 << 10 }
}

async fn open(directory: &Path) -> Result<Arc<SharedLog>, OpenError> {
    SharedLog::open(directory.to_owned(), &config()).await
}

fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let paths = super::segments(directory);
    paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == ending)).collect()
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn create(log: &SharedLog, group: terrane_types::GroupId) -> (Arc<GroupLog>, Store) {
    let created = log.create(spec(group)).await.unwrap();
    let store = log.store(&created);
    (created, store)
}

/// Purges everything before `index`.
async fn purge(log: &GroupLog, store: &mut Store, index: u64) {
    log.offer(mark(index));
    store.purge(log_id(1, index)).await.unwrap();
}

/// Writes both groups in turn; only `B` is purged.
async fn write_both(log: &SharedLog) {
    let ((_, mut held), (other, mut free)) = (create(log, A).await, create(log, B).await);
    for index in 0..HELD {
        append(&mut held, vec![entry(index, index as u8, 300)]).await;
        append(&mut free, (4 * index..4 * index + 4).map(|index| entry(index, 1, 300)).collect()).await;
        purge(&other, &mut free, 4 * index).await;
    }
    // Its sync covers the last purge.
    append(&mut free, vec![entry(4 * HELD, 1, 300)]).await;
}

fn expected(entries: impl IntoIterator<Item = u64>) -> Vec<(u64, u8)> {
    entries.into_iter().map(|index| (index, index as u8)).collect()
}

async fn reopened(directory: &Path) -> Vec<(u64, u8)> {
    let log = open(directory).await.unwrap();
    let found = payloads(&log_of(&log, A).unwrap()).await;
    log.close().await;
    found
}

/// Directories after a kill: one after the entries of `A` were copied out of old segments, and one from just before that.
async fn spilled() -> (tempfile::TempDir, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    write_both(&log).await;
    let before = copy(directory.path());
    assert!(log.totals().bytes > LIMIT / 2, "{:?}", log.totals());
    let spilling = tokio::spawn(spill::run(log.clone()));
    eventually("segments go", || log.totals().bytes <= LIMIT / 2).await;
    spilling.abort();
    assert!(spilling.await.unwrap_err().is_cancelled());
    let after = copy(directory.path());
    log.close().await;
    (before, after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_group_does_not_keep_the_segments_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    let spilling = tokio::spawn(spill::run(log.clone()));
    write_both(&log).await;
    eventually("segments go", || log.totals().bytes <= LIMIT / 2).await;
    let held = log_of(&log, A).unwrap();
    assert_eq!(payloads(&held).await, expected(0..HELD));
    assert!(log.totals().held_bytes > 0 && log.totals().all_bytes() < LIMIT);
    assert!(held.bytes() > HELD * 300 && held.bytes_through(HELD / 2) < held.bytes());
    spilling.abort();
    log.close().await;
    assert_eq!(reopened(directory.path()).await, expected(0..HELD));
    let mut inspection = Inspection::default();
    assert!(check_log(directory.path(), &mut inspection).await.is_some());
    assert!(inspection.findings().is_empty(), "{inspection:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_held_files_are_put_together() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path()).await.unwrap();
    let spilling = tokio::spawn(spill::run(log.clone()));
    let ((held, mut writes_little), (other, mut free)) = (create(&log, A).await, create(&log, B).await);
    for index in 0..30 {
        append(&mut writes_little, vec![entry(index, index as u8, 20)]).await;
        for at in 20 * index..20 * index + 20 {
            append(&mut free, vec![entry(at, 1, 1500)]).await;
            purge(&other, &mut free, at).await;
        }
        eventually("segments go", || log.totals().bytes <= LIMIT / 2).await;
    }
    assert!(log.totals().held_files <= 4, "{:?}", log.totals());
    assert_eq!(payloads(&held).await, expected(0..30));
    spilling.abort();
    log.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_the_copy_and_the_removal_loses_and_repeats_nothing() {
    let (before, after) = spilled().await;
    assert_eq!(reopened(after.path()).await, expected(0..HELD));
    // Every segment, and every held file.
    for path in files(after.path(), "held") {
        std::fs::copy(&path, before.path().join(path.file_name().unwrap())).unwrap();
    }
    std::fs::write(before.path().join("00000099.held.new"), b"half a fi").unwrap();
    assert_eq!(reopened(before.path()).await, expected(0..HELD));
    assert!(files(before.path(), "held").is_empty(), "entries in segments need no held file");
    assert!(files(before.path(), "new").is_empty());
    assert_eq!(reopened(before.path()).await, expected(0..HELD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_entries_do_not_come_back_from_a_held_file() {
    let (_, after) = spilled().await;
    let log = open(after.path()).await.unwrap();
    let held = log_of(&log, A).unwrap();
    let mut store = log.store(&held);
    store.truncate_after(Some(log_id(1, 2))).await.unwrap();
    append(&mut store, vec![entry(3, 77, 20)]).await;
    eventually("later ones are gone", || files(after.path(), "held").len() == 1).await;
    let last = files(after.path(), "held").remove(0);
    let end = || {
        let bytes = std::fs::read(&last).unwrap();
        super::super::held::read(1 | place::HELD, &bytes.into()).map(|loaded| loaded.index.end()).unwrap_or(0)
    };
    eventually("it is cut after the last remaining entry", || end() == 3).await;
    // Also once the segment with the truncation is removed.
    let expected = [(0, 0), (1, 1), (2, 2), (3, 77)];
    assert_eq!(payloads(&held).await, expected);
    let copied = copy(after.path());
    log.close().await;
    assert_eq!(reopened(copied.path()).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_files_are_removed_when_they_are_purged() {
    let (_, after) = spilled().await;
    let log = open(after.path()).await.unwrap();
    let held = log_of(&log, A).unwrap();
    let mut store = log.store(&held);
    purge(&held, &mut store, HELD - 2).await;
    append(&mut store, vec![entry(HELD, HELD as u8, 20)]).await;
    eventually("they are gone", || files(after.path(), "held").is_empty() && log.totals().held_bytes == 0).await;
    let copied = copy(after.path());
    log.close().await;
    assert_eq!(reopened(copied.path()).await, expected([HELD - 1, HELD]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_missing_held_file_is_refused_by_name() {
    let (_, after) = spilled().await;
    let path = files(after.path(), "held").remove(0);
    let bytes = std::fs::read(&path).unwrap();
    for at in (0..bytes.len()).step_by(13) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        let Err(OpenError::Damage { file, .. }) = open(after.path()).await else { panic!("flipped at {at}") };
        assert!(file.ends_with(".held"), "{file}");
        let mut inspection = Inspection::default();
        assert!(check_log(after.path(), &mut inspection).await.is_none());
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(open(after.path()).await, Err(OpenError::Damage { .. })));
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Truncate(u64),
    Purge(u64),
    /// The other group writes and is purged.
    Other(u64),
    Spill,
    /// The replica of `A` is removed, and another one created.
    Replace,
    /// The log is opened again after a kill.
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..12).prop_map(Step::Append),
        1 => (0u64..20).prop_map(Step::Truncate),
        1 => (0u64..20).prop_map(Step::Purge),
        3 => (1u64..20).prop_map(Step::Other),
        3 => Just(Step::Spill),
        1 => Just(Step::Replace),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The expected entries of `A`, and the progress of both groups.
#[derive(Default)]
struct Model {
    entries: std::collections::BTreeMap<u64, u8>,
    purged: Option<u64>,
    fill: u8,
    other: u64,
    replaced: u64,
}

impl Model {
    fn next(&self) -> u64 {
        let behind = self.entries.last_key_value().map(|(last, _)| last + 1);
        behind.or(self.purged.map(|purged| purged + 1)).unwrap_or(0)
    }

    async fn take(&mut self, log: &Arc<SharedLog>, step: &Step) {
        let (mut held, other) = (log_of(log, A).unwrap(), log_of(log, B).unwrap());
        let (mut store, mut free) = (log.store(&held), log.store(&other));
        match step {
            Step::Append(count) => {
                self.fill = self.fill.wrapping_add(1);
                for index in self.next()..self.next() + count {
                    self.entries.insert(index, self.fill);
                }
                let first = self.next() - count;
                let entries = (first..self.next()).map(|index| entry(index, self.fill, 200)).collect();
                append(&mut store, entries).await;
            }
            Step::Truncate(back) => {
                // Purged entries are committed, and never truncated.
                let Some((first, _)) = self.entries.first_key_value() else { return };
                let keep = self.next().saturating_sub(*back).max(first + 1);
                if keep < self.next() {
                    store.truncate_after(Some(log_id(1, keep - 1))).await.unwrap();
                    self.entries.retain(|index, _| *index < keep);
                }
            }
            Step::Purge(count) => {
                let Some((first, _)) = self.entries.first_key_value() else { return };
                let last = (first + count).min(self.next() - 1);
                purge(&held, &mut store, last).await;
                self.entries.retain(|index, _| *index > last);
                self.purged = Some(last);
            }
            Step::Other(count) => {
                append(&mut free, (self.other..self.other + count).map(|index| entry(index, 1, 600)).collect()).await;
                self.other += count;
                purge(&other, &mut free, self.other - 1).await;
            }
            Step::Spill => spill::run_once(log).await,
            Step::Replace => {
                log.remove(&held).await.unwrap();
                assert!(log_of(log, A).is_none());
                self.replaced += 1;
                let replica = ReplicaId(spec(A).replica.0 + 100 * self.replaced);
                held = log.create(GroupSpec { replica, ..spec(A) }).await.unwrap();
                (self.entries, self.purged) = (std::collections::BTreeMap::new(), None);
            }
            Step::Kill => {}
        }
        // The first append makes everything durable and removes what is not needed; the second waits until that is done.
        for _ in 0..2 {
            append(&mut free, vec![entry(self.other, 1, 20)]).await;
            self.other += 1;
        }
        let expected: Vec<(u64, u8)> = self.entries.iter().map(|(index, fill)| (*index, *fill)).collect();
        assert_eq!(payloads(&held).await, expected, "{step:?}");
    }
}

async fn walk(steps: Vec<Step>) {
    let mut directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).await.unwrap();
    create(&log, A).await;
    create(&log, B).await;
    let mut model = Model::default();
    for step in &steps {
        model.take(&log, step).await;
        if matches!(step, Step::Kill) {
            let copied = copy(directory.path());
            log.close().await;
            directory = copied;
            log = open(directory.path()).await.unwrap();
            let (purged, _) = log_of(&log, A).unwrap().ends();
            assert_eq!(purged.map(|id| id.index), model.purged);
        }
    }
    log.close().await;
    let mut inspection = Inspection::default();
    assert!(check_log(directory.path(), &mut inspection).await.is_some(), "{inspection:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn copying_truncating_purging_and_replacing_never_change_the_content_of_the_log(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(walk(steps));
    }
}
