//! Power cuts of a disk in memory: a restart acts only on what it has made durable.

use std::path::PathBuf;
use std::sync::Arc;

use terrane_env::fs::{Disk, Fault, Lie, MemoryDisk, Tear};

use super::{A, config, entry, mark, payloads, spec};
use crate::log::files::Files;
use crate::log::memory::GroupLog;
use crate::log::recover::{self, Recovered};
use crate::log::shared::{Change, Completion, Item, Shared};
use crate::log::store::Store;
use crate::log::writer::Writer;

/// What a process does with the log, without the loop that ends it after an error.
struct Process {
    shared: Arc<Shared>,
    writer: Writer,
    log: Arc<GroupLog>,
}

async fn recovered(disk: &MemoryDisk) -> (Arc<Files>, Recovered) {
    let files = Arc::new(Files::new(Disk::from(disk), PathBuf::from("/log")));
    let found = recover::recover(&files, 1 << 10).await.unwrap();
    (files, found)
}

/// The entries that a restart reads from this disk.
async fn shown(disk: &MemoryDisk) -> Vec<(u64, u8)> {
    let (_, found) = recovered(disk).await;
    payloads(&found.groups[&A]).await
}

impl Process {
    /// A process with a new group and two entries, which are synced.
    async fn start(disk: &MemoryDisk) -> Process {
        let (files, found) = recovered(disk).await;
        let shared = Arc::new(Shared::new(&config()));
        let mut writer = Writer::start(shared.clone(), files.clone(), config().segment_bytes, found, 7).await.unwrap();
        let log = Arc::new(GroupLog::new(spec(A), files));
        let created = Item { log: log.clone(), change: Change::Created, done: Completion::Unobserved };
        assert!(writer.write(vec![created]).await.unwrap());
        let mut process = Process { shared, writer, log };
        process.append(0).await.unwrap();
        process.append(1).await.unwrap();
        process
    }

    /// A process that finds the log of another.
    async fn restart(disk: &MemoryDisk) -> Writer {
        let (files, found) = recovered(disk).await;
        Writer::start(Arc::new(Shared::new(&config())), files, config().segment_bytes, found, 8).await.unwrap()
    }

    async fn append(&mut self, index: u64) -> std::io::Result<bool> {
        let items = vec![self.entry(index, 20)];
        self.writer.write(items).await
    }

    fn entry(&self, index: u64, bytes: usize) -> Item {
        let entries = vec![entry(index, index as u8 + 1, bytes)];
        self.item(Change::Entries(self.log.append(&entries), entries))
    }

    fn item(&self, change: Change) -> Item {
        Item { log: self.log.clone(), change, done: Completion::Unobserved }
    }
}

const ALL: [(u64, u8); 3] = [(0, 1), (1, 2), (2, 3)];

#[tokio::test]
async fn what_a_restart_has_read_survives_a_power_cut_although_an_earlier_sync_failed() {
    let disk = MemoryDisk::new();
    let mut process = Process::start(&disk).await;
    // The write succeeds, its sync fails, and the process ends.
    disk.fail_at(disk.operations() + 1, Fault::Error);
    process.append(2).await.unwrap_err();
    drop(process);
    assert_eq!(shown(&disk.crash(Tear::Lost)).await, ALL[..2], "the sync did not fail");
    assert_eq!(shown(&disk).await, ALL, "the bytes are still in the page cache");
    assert_eq!(shown(&disk.crash(Tear::Lost)).await, ALL);
}

#[tokio::test]
async fn what_a_killed_process_did_not_sync_is_durable_once_it_was_read() {
    let disk = MemoryDisk::new();
    let mut process = Process::start(&disk).await;
    disk.set_lie(Some(Lie::Files));
    process.append(2).await.unwrap();
    drop(process);
    disk.set_lie(None);
    assert_eq!(shown(&disk.crash(Tear::Lost)).await, ALL[..2], "the entry was synced");
    assert_eq!(shown(&disk).await, ALL);
    assert_eq!(shown(&disk.crash(Tear::Lost)).await, ALL);
}

/// Every operation of a start that cuts a torn tail fails once. After the next start the power is cut.
#[tokio::test]
async fn a_tail_whose_cut_was_not_synced_is_cut_again() {
    let disk = MemoryDisk::new();
    drop(Process::start(&disk).await);
    let (files, found) = recovered(&disk).await;
    let (segment, end) = found.segments.last_key_value().map(|(segment, end)| (*segment, *end)).unwrap();
    let file = Disk::from(&disk).open_rw(&files.path(segment)).await.unwrap();
    file.write_all_at(b"the beginning of a batch", end).await.unwrap();
    file.sync_all().await.unwrap();
    for operation in 0.. {
        let disk = disk.crash(Tear::Kept);
        disk.fail_at(disk.operations() + operation, Fault::Error);
        let files = Arc::new(Files::new(Disk::from(&disk), PathBuf::from("/log")));
        let planned = disk.operations() + operation;
        let failed = recover::recover(&files, 1 << 10).await.is_err();
        if disk.operations() <= planned {
            assert!(operation > 3 && !failed, "a start does several things with the disk");
            return;
        }
        // The next start continues in another segment.
        drop(Process::restart(&disk).await);
        assert_eq!(shown(&disk.crash(Tear::Lost)).await, ALL[..2], "operation {operation} failed");
    }
}

/// The last entry before the log that a restart finds on this disk.
async fn begins_after(disk: &MemoryDisk) -> Option<u64> {
    let (_, found) = recovered(disk).await;
    found.groups[&A].purged().map(|mark| mark.log_id.index)
}

#[tokio::test]
async fn a_copy_counts_once_the_log_durably_begins_after_it() {
    let disk = MemoryDisk::new();
    let mut process = Process::start(&disk).await;
    let shared = Arc::new(Shared::new(&config()));
    let store = Store::new(shared.clone(), process.log.clone());
    let begun = tokio::spawn(async move { store.begin_after(mark(9)).await });
    let items = shared.next_items().await.unwrap();
    assert!(!begun.is_finished(), "the copy counts before its record is written");
    assert_eq!(begins_after(&disk.crash(Tear::Lost)).await, None);
    assert!(process.writer.write(items).await.unwrap());
    begun.await.unwrap().unwrap();
    assert_eq!(begins_after(&disk.crash(Tear::Lost)).await, Some(9));
}

#[tokio::test]
async fn nothing_follows_the_removal_of_a_replica_in_the_log() {
    let disk = MemoryDisk::new();
    let process = Process::start(&disk).await;
    let shared = Arc::new(Shared::new(&config()));
    process.log.set_removed();
    let begun = Store::new(shared.clone(), process.log.clone()).begin_after(mark(9)).await;
    assert!(begun.unwrap_err().to_string().contains("removed"));
    shared.close();
    assert!(shared.next_items().await.is_none(), "a record of a removed replica was queued");
}

/// A process whose newest segment does not exist takes its data directory for deleted, and ends.
#[tokio::test]
async fn the_newest_segment_exists_at_every_moment() {
    for operation in 0.. {
        let disk = MemoryDisk::new();
        let mut process = Process::start(&disk).await;
        let planned = disk.operations() + operation;
        // What is done before it fails is all that is done at that moment.
        disk.fail_at(planned, Fault::Error);
        for index in 2..12 {
            let items = vec![process.entry(index, 1000), process.item(Change::Purged(mark(index - 1)))];
            if process.writer.write(items).await.is_err() {
                break;
            }
        }
        let newest = process.shared.totals.lock().newest;
        if disk.operations() <= planned {
            assert!(newest > 3, "segments were begun and removed, up to {newest}");
            return;
        }
        let path = PathBuf::from(format!("/log/{newest:08}.log"));
        assert!(Disk::from(&disk).exists(&path).await.unwrap(), "{newest} is gone before operation {operation}");
    }
}
