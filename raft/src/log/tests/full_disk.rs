//! The log on a full disk: a real file system in memory, which needs the right to mount. Without it the tests are skipped.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;

use super::super::{SharedLog, store::Store};
use super::{entry, log_of, payloads, spec};
use crate::types::Types;
use crate::{LogConfig, OpenError};
use terrane_types::GroupId;

const A: GroupId = GroupId(1);
const SEGMENT: u64 = 1 << 20;

/// A file system of 8 MiB; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(directory.path()).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(directory));
        }
        eprintln!("skipped: mounting a tmpfs is not permitted here");
        None
    }

    fn log(&self) -> std::path::PathBuf {
        self.0.path().join("log")
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.0.path().join("ballast")
    }

    /// Uses up every free byte.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = Command::new("umount").arg("--lazy").arg(self.0.path()).status() {
            eprintln!("cannot unmount: {error}");
        }
    }
}

async fn open(directory: &Path) -> Result<Arc<SharedLog>, OpenError> {
    let config =
        LogConfig { segment_bytes: SEGMENT, cache_bytes: 1 << 10, limit_bytes: 1 << 30, purge_budget_bytes: 1 << 30 };
    SharedLog::open(directory.to_owned(), &config).await
}

/// Appends one entry of 64 KiB; the returned future ends when it is synced.
async fn append(store: &mut Store, index: u64) -> impl Future<Output = ()> + use<> {
    let (done, synced) = Types::oneshot();
    store.append([entry(index, 7, 64 << 10)], IOFlushed::signal(done)).await.unwrap();
    async move { synced.await.unwrap().unwrap() }
}

#[tokio::test]
async fn a_full_disk_refuses_in_time_holds_back_what_is_under_way_and_goes_on_with_room() {
    let Some(disk) = SmallDisk::mount() else { return };
    let log = open(&disk.log()).await.unwrap();
    let group = log.create(spec(A)).await.unwrap();
    let mut store = log.store(&group);
    disk.fill();
    assert_eq!(log.space_refusal(), None, "the next segment is allocated already");
    let mut index = 0;
    while log.space_refusal().is_none() {
        append(&mut store, index).await.await;
        index += 1;
    }
    let refusal = log.space_refusal().unwrap();
    assert!(refusal.contains("has no space for the next log segment of 1024 KiB"), "{refusal}");
    // More than a leader would propose by now, but what is in flight is never lost: it waits.
    let mut waiting = Vec::new();
    for _ in 0..30 {
        waiting.push(Box::pin(append(&mut store, index).await));
        index += 1;
    }
    let last = waiting.pop().unwrap();
    for _ in 0..100 {
        log.retry_allocation();
        tokio::task::yield_now().await;
    }
    disk.make_room();
    log.retry_allocation();
    // The writer may just have been about to wait.
    let looking = async {
        loop {
            log.retry_allocation();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = last => {}
        () = looking => {}
    }
    while log.space_refusal().is_some() {
        tokio::task::yield_now().await;
    }
    log.close().await;
    let log = open(&disk.log()).await.unwrap();
    assert_eq!(payloads(&log_of(&log, A).unwrap()).await.len() as u64, index);
    log.close().await;
}

#[tokio::test]
async fn a_restart_needs_no_new_space() {
    let Some(disk) = SmallDisk::mount() else { return };
    let log = open(&disk.log()).await.unwrap();
    let group = log.create(spec(A)).await.unwrap();
    let mut store = log.store(&group);
    disk.fill();
    let mut index = 0;
    while log.space_refusal().is_none() {
        append(&mut store, index).await.await;
        index += 1;
    }
    drop(store);
    log.close().await;
    for _ in 0..8 {
        disk.fill();
        let log = open(&disk.log()).await.unwrap();
        assert_eq!(payloads(&log_of(&log, A).unwrap()).await.len() as u64, index);
        log.close().await;
    }
    disk.make_room();
    let log = open(&disk.log()).await.unwrap();
    assert_eq!(log.space_refusal(), None);
    let mut store = log.store(&log_of(&log, A).unwrap());
    append(&mut store, index).await.await;
    drop(store);
    log.close().await;
}
