//! Crashes and faults at chosen operations, and the trace that records them.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

use super::{MemoryDisk, SEEDS, at, bytes, disk, durable, files, names, state};
use crate::fs::{Crashed, Disk, Fault, Lie, Tear};

#[tokio::test]
async fn after_the_planned_crash_nothing_happens_any_more() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"synced").await;
    let before = memory.operations();
    memory.crash_at(before + 1);
    file.write_all_at(b"1", 0).await.unwrap();
    assert!(!memory.crashed());
    assert!(Crashed::caused(&file.sync_all().await.unwrap_err()), "the sync is under way");
    assert!(memory.crashed());
    let failures = [
        file.write_all_at(b"2", 0).await,
        file.sync_all().await,
        file.read_exact_at_now(&mut [0], 0),
        disk.sync_dir(Path::new("/data")).await,
        disk.remove_file(&at("f")).await,
        disk.list(Path::new("/data")).await.map(drop),
        disk.create_new(&at("g")).await.map(drop),
    ];
    for failure in failures {
        assert!(Crashed::caused(&failure.unwrap_err()));
    }
    assert_eq!(memory.operations(), before + 2, "the dead do not count");
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("f", b"synced")]));
    assert_eq!(state(&memory.crash(Tear::Kept)).await, files(&[("f", b"1ynced")]));
}

#[tokio::test]
async fn the_operation_under_way_may_have_happened() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"").await;
    memory.crash_at(memory.operations());
    file.write_all_at(b"12", 0).await.unwrap_err();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        seen.insert(bytes(&memory.crash(Tear::Random(seed)), "f").await);
    }
    let expected = [b"" as &[u8], b"\0\0", b"1", b"1\0", b"12"].map(<[u8]>::to_vec);
    assert_eq!(seen, BTreeSet::from(expected));

    let (memory, disk) = super::disk().await;
    memory.crash_at(memory.operations());
    disk.create_new(&at("f")).await.unwrap_err();
    assert_eq!(names(&memory.crash(Tear::Kept)).await, ["f"]);
    assert_eq!(names(&memory.crash(Tear::Lost)).await, [""; 0]);
}

#[tokio::test]
async fn a_crash_is_recognised_through_errors_around_it() {
    #[derive(Debug, thiserror::Error)]
    #[error("open the manifest")]
    struct Outer(#[source] io::Error);
    let inner = || io::Error::from(Crashed);
    assert!(Crashed::caused(&Outer(inner())));
    assert!(Crashed::caused(&io::Error::other(Outer(inner()))));
    assert!(!Crashed::caused(&Outer(Fault::Error.into())));
}

#[tokio::test]
async fn a_planned_fault_strikes_once() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"").await;
    let now = memory.operations();
    memory.fail_at(now, Fault::Error);
    memory.fail_at(now + 2, Fault::NoSpace);
    memory.fail_at(now + 3, Fault::Error);
    let error = file.write_all_at(b"1", 0).await.unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO));
    file.write_all_at(b"2", 0).await.unwrap();
    assert_eq!(file.write_all_at(b"3", 0).await.unwrap_err().kind(), ErrorKind::StorageFull);
    disk.rename(&at("f"), &at("g")).await.unwrap_err();
    assert_eq!(state(&memory).await, files(&[("f", b"2")]));
}

#[tokio::test]
async fn a_short_write_leaves_a_part() {
    let mut parts = BTreeSet::new();
    for length in 1..200 {
        let (memory, disk) = disk().await;
        let file = durable(&disk, "f", b"").await;
        memory.fail_at(memory.operations(), Fault::ShortWrite);
        file.write_all_at(&vec![7; length], 0).await.unwrap_err();
        let part = bytes(&memory, "f").await;
        assert!(part.len() < length && part.iter().all(|byte| *byte == 7), "{part:?} of {length}");
        parts.insert(part.len());
    }
    assert!(parts.len() > 20, "{parts:?}");
}

#[tokio::test]
async fn a_failed_sync_takes_the_outstanding_away_for_good() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"old").await;
    file.write_all_at(b"new", 0).await.unwrap();
    memory.fail_at(memory.operations(), Fault::Error);
    file.sync_data().await.unwrap_err();
    file.write_all_at(b"more", 3).await.unwrap();
    file.sync_data().await.expect("the kernel has nothing left to complain about");
    assert_eq!(bytes(&memory, "f").await, b"newmore", "the cache still has it");
    for tear in [Tear::Lost, Tear::Kept, Tear::Random(1)] {
        assert_eq!(bytes(&memory.crash(tear), "f").await, b"oldmore");
    }
}

#[tokio::test]
async fn a_failed_directory_sync_may_be_repeated() {
    let (memory, disk) = disk().await;
    disk.create_new(&at("f")).await.unwrap();
    memory.fail_at(memory.operations(), Fault::Error);
    disk.sync_dir(Path::new("/data")).await.unwrap_err();
    assert_eq!(names(&memory.crash(Tear::Lost)).await, [""; 0]);
    disk.sync_dir(Path::new("/data")).await.unwrap();
    assert_eq!(names(&memory.crash(Tear::Lost)).await, ["f"]);
}

#[tokio::test]
async fn the_trace_tells_what_happened_with_paths_and_numbers() {
    let memory = MemoryDisk::new();
    let disk = Disk::from(&memory);
    memory.fail_at(2, Fault::NoSpace);
    memory.crash_at(5);
    disk.create_dir_all(Path::new("/data")).await.unwrap();
    let file = disk.create_new(&at("f")).await.unwrap();
    file.write_all_at(b"12345", 3).await.unwrap_err();
    disk.open_read(&at("g")).await.unwrap_err();
    disk.rename(&at("f"), &at("g")).await.unwrap();
    file.sync_data().await.unwrap_err();
    file.sync_data().await.unwrap_err();
    let expected = [
        "0 create_dir_all /data",
        "1 create /data/f",
        "2 write /data/f 3+5: planned NoSpace",
        "3 open /data/g: entity not found",
        "4 rename /data/f -> /data/g",
        "5 sync /data/f: crashed",
    ];
    assert_eq!(memory.trace(), expected);
    assert_eq!(memory.operations(), 6);
}

#[tokio::test]
async fn a_disk_that_lies_about_syncs_loses_what_it_said_was_synced() {
    for (lie, kept) in [
        (None, files(&[("f", b"synced")])),
        (Some(Lie::Files), files(&[("f", b"")])),
        (Some(Lie::Directories), files(&[])),
    ] {
        let (memory, disk) = disk().await;
        memory.set_lie(lie);
        durable(&disk, "f", b"synced").await;
        assert_eq!(state(&memory.crash(Tear::Lost)).await, kept, "{lie:?}");
    }
}
