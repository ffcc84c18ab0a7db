//! What a crash keeps, and the states that it may leave behind.

use std::collections::BTreeSet;
use std::path::Path;

use super::{MemoryDisk, SEEDS, at, bytes, disk, durable, files, names, state};
use crate::fs::{Crashed, Disk, Fault, Tear};

#[tokio::test]
async fn a_crash_keeps_what_was_synced_and_may_lose_the_rest() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"synced").await;
    file.write_all_at(b" not", 6).await.unwrap();
    disk.create_new(&at("new")).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("f", b"synced")]));
    assert_eq!(state(&memory.crash(Tear::Kept)).await, files(&[("f", b"synced not"), ("new", b"")]));
    assert_eq!(bytes(&memory, "f").await, b"synced not", "the crashed disk itself is left alone");
}

#[tokio::test]
async fn a_durable_name_does_not_make_its_content_durable() {
    let (memory, disk) = disk().await;
    let file = disk.create_new(&at("f")).await.unwrap();
    file.write_all_at(b"content", 0).await.unwrap();
    disk.sync_dir(Path::new("/data")).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("f", b"")]));
}

#[tokio::test]
async fn durable_content_does_not_make_its_name_durable() {
    let (memory, disk) = disk().await;
    let file = disk.create_new(&at("f")).await.unwrap();
    file.write_all_at(b"content", 0).await.unwrap();
    file.sync_all().await.unwrap();
    assert_eq!(names(&memory.crash(Tear::Lost)).await, [""; 0]);
}

#[tokio::test]
async fn a_directory_is_lost_with_its_name() {
    let (memory, disk) = disk().await;
    disk.create_dir_all(&at("a/b")).await.unwrap();
    disk.write_durable(&at("a/b/f"), b"x").await.unwrap();
    disk.sync_dir(&at("a")).await.unwrap();
    assert_eq!(names(&memory.crash(Tear::Lost)).await, [""; 0]);
    disk.sync_dir(Path::new("/data")).await.unwrap();
    assert_eq!(Disk::from(&memory.crash(Tear::Lost)).read(&at("a/b/f")).await.unwrap(), b"x");
}

#[tokio::test]
async fn a_removal_is_durable_only_with_the_directory() {
    let (memory, disk) = disk().await;
    drop(durable(&disk, "f", b"old").await);
    disk.remove_file(&at("f")).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("f", b"old")]));
    assert_eq!(state(&memory.crash(Tear::Kept)).await, files(&[]));
    disk.sync_dir(Path::new("/data")).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[]));
}

#[tokio::test]
async fn the_old_file_comes_back_where_a_rename_is_lost() {
    let (memory, disk) = disk().await;
    drop(durable(&disk, "f", b"old").await);
    drop(durable(&disk, "f.new", b"new").await);
    disk.rename(&at("f.new"), &at("f")).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("f", b"old"), ("f.new", b"new")]));
    assert_eq!(state(&memory.crash(Tear::Kept)).await, files(&[("f", b"new")]));
}

#[tokio::test]
async fn links_share_content_and_durability() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "a", b"shared").await;
    disk.hard_link(&at("a"), &at("b")).await.unwrap();
    file.write_all_at(b"SH", 0).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("a", b"shared")]));
    file.sync_data().await.unwrap();
    disk.remove_file(&at("a")).await.unwrap();
    disk.sync_dir(Path::new("/data")).await.unwrap();
    assert_eq!(state(&memory.crash(Tear::Lost)).await, files(&[("b", b"SHared")]));
}

#[tokio::test]
async fn write_durable_shows_old_or_new_at_every_crash() {
    for seed in 0..SEEDS {
        let (memory, disk) = disk().await;
        disk.write_durable(&at("STAMP"), b"old").await.unwrap();
        let start = memory.operations();
        memory.crash_at(start + seed % 6);
        let crashed = disk.write_durable(&at("STAMP"), b"newer").await.unwrap_err();
        assert!(Crashed::caused(&crashed), "{crashed}");
        let back = memory.crash(Tear::Random(seed));
        let content = bytes(&back, "STAMP").await;
        assert!(content == b"old" || content == b"newer", "seed {seed}: {content:?} after {:#?}", memory.trace());
    }
}

// Tears.

#[tokio::test]
async fn an_unsynced_write_is_whole_lost_torn_or_hollow() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"start").await;
    file.write_all_at(b"abc", 5).await.unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let content = bytes(&memory.crash(Tear::Random(seed)), "f").await;
        assert!(content.starts_with(b"start"), "seed {seed}");
        seen.insert(String::from_utf8(content).unwrap());
    }
    let expected =
        ["start", "start\0\0\0", "starta", "starta\0\0", "startab", "startab\0", "startabc"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_later_write_may_survive_an_earlier_one() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"").await;
    file.write_all_at(b"first", 0).await.unwrap();
    file.write_all_at(b"second", 5).await.unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        seen.insert(bytes(&memory.crash(Tear::Random(seed)), "f").await);
    }
    for possible in [b"" as &[u8], b"first", b"\0\0\0\0\0second", b"firstsecond", b"firstsec"] {
        assert!(seen.contains(possible), "{possible:?}");
    }
}

#[tokio::test]
async fn a_cut_may_be_lost_with_a_write_after_it_kept() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"long content").await;
    file.set_len(4).await.unwrap();
    file.write_all_at(b"L", 0).await.unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        seen.insert(bytes(&memory.crash(Tear::Random(seed)), "f").await);
    }
    let expected = [b"long content" as &[u8], b"long", b"Long content", b"Long"].map(<[u8]>::to_vec);
    assert_eq!(seen, BTreeSet::from(expected));
}

#[tokio::test]
async fn unsynced_names_survive_in_any_combination_that_keeps_each_names_order() {
    let (memory, disk) = disk().await;
    drop(durable(&disk, "old", b"o").await);
    disk.create_new(&at("new")).await.unwrap();
    disk.rename(&at("new"), &at("renamed")).await.unwrap();
    disk.remove_file(&at("old")).await.unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        seen.insert(names(&memory.crash(Tear::Random(seed))).await.join(" "));
    }
    let expected = ["old", "new old", "old renamed", "", "new", "renamed"].map(str::to_owned);
    assert_eq!(seen, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_rename_across_directories_is_never_halved() {
    let (memory, disk) = disk().await;
    disk.create_dir_all(&at("a")).await.unwrap();
    disk.create_dir_all(&at("b")).await.unwrap();
    drop(durable(&disk, "a/f", b"x").await);
    disk.sync_dir(&at("a")).await.unwrap();
    disk.create_new(&at("a/noise")).await.unwrap();
    disk.rename(&at("a/f"), &at("b/f")).await.unwrap();
    disk.create_new(&at("b/noise")).await.unwrap();
    let mut moved = BTreeSet::new();
    for seed in 0..SEEDS {
        let back = Disk::from(&memory.crash(Tear::Random(seed)));
        let (from, to) = (back.exists(&at("a/f")).await.unwrap(), back.exists(&at("b/f")).await.unwrap());
        assert!(from != to, "seed {seed}: in a {from}, in b {to}");
        moved.insert(to);
    }
    assert_eq!(moved.len(), 2);
    disk.sync_dir(&at("b")).await.unwrap();
    let back = Disk::from(&memory.crash(Tear::Lost));
    assert!(!back.exists(&at("a/f")).await.unwrap(), "one directory's sync makes the whole rename durable");
    assert!(back.exists(&at("b/f")).await.unwrap());
}

#[tokio::test]
async fn a_directory_never_comes_to_lie_inside_itself() {
    for seed in 0..SEEDS {
        let (memory, disk) = disk().await;
        for name in ["a", "b", "a/keep", "b/keep"] {
            disk.create_dir_all(&at(name)).await.unwrap();
        }
        for name in ["", "a", "b"] {
            disk.sync_dir(&at(name)).await.unwrap();
        }
        disk.rename(&at("a"), &at("b/a")).await.unwrap();
        disk.rename(&at("b/a"), &at("c")).await.unwrap();
        disk.rename(&at("b"), &at("c/b")).await.unwrap();
        let back = Disk::from(&memory.crash(Tear::Random(seed)));
        let mut kept = 0;
        for path in ["a/keep", "b/keep", "b/a/keep", "c/keep", "c/b/keep"] {
            kept += usize::from(back.exists(&at(path)).await.unwrap());
        }
        assert_eq!(kept, 2, "seed {seed}");
    }
}

#[tokio::test]
async fn a_seed_gives_the_same_disk_twice() {
    let (memory, disk) = disk().await;
    let mut distinct = BTreeSet::new();
    for number in 0..10u8 {
        let file = disk.create_new(&at(&format!("f{number}"))).await.unwrap();
        file.write_all_at(&[number; 100], 0).await.unwrap();
        file.write_all_at(&[number; 100], 50).await.unwrap();
    }
    for seed in 0..SEEDS {
        let first = state(&memory.crash(Tear::Random(seed))).await;
        assert_eq!(first, state(&memory.crash(Tear::Random(seed))).await, "seed {seed}");
        distinct.insert(first);
    }
    assert!(distinct.len() as u64 > SEEDS / 2, "{}", distinct.len());
}

#[tokio::test]
async fn what_no_crash_can_bring_back_is_forgotten() {
    let (memory, disk) = disk().await;
    for round in 0..50 {
        disk.create_dir_all(&at("d/e")).await.unwrap();
        disk.create_new(&at("d/e/f")).await.unwrap().write_all_at(&[1; 100], 0).await.unwrap();
        if round % 2 == 0 {
            disk.sync_dir(&at("d")).await.unwrap();
            disk.sync_dir(Path::new("/data")).await.unwrap();
        }
        disk.write_durable(&at("STAMP"), &[2; 100]).await.unwrap();
        disk.remove_dir_all(&at("d")).await.unwrap();
        disk.sync_dir(Path::new("/data")).await.unwrap();
    }
    disk.sync_dir(Path::new("/data")).await.unwrap();
    let (directories, files, changes) = memory.state().tree.sizes();
    assert_eq!((directories, files, changes), (2, 1, 0));
}

#[tokio::test]
async fn a_directory_made_durable_survives_with_all_its_parents() {
    let memory = MemoryDisk::new();
    let made = Path::new("/srv/terrane/data");
    Disk::from(&memory).create_dir_durable(made).await.unwrap();
    Disk::from(&memory).write_durable(&made.join("STAMP"), b"1").await.unwrap();
    let after = Disk::from(&memory.crash(Tear::Lost));
    assert_eq!(after.read(&made.join("STAMP")).await.unwrap(), b"1");
    after.create_dir_durable(made).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_an_earlier_process_created_is_made_durable_too() {
    let memory = MemoryDisk::new();
    let disk = Disk::from(&memory);
    disk.create_dir_all(Path::new("/data")).await.unwrap();
    disk.create_dir_durable(Path::new("/data")).await.unwrap();
    assert!(Disk::from(&memory.crash(Tear::Lost)).exists(Path::new("/data")).await.unwrap());
}

#[tokio::test]
async fn a_directory_made_durable_survives_with_all_its_parents_whatever_failed_before() {
    let made = Path::new("/srv/terrane/data");
    for operation in 0.. {
        let memory = MemoryDisk::new();
        memory.fail_at(operation, Fault::Error);
        let disk = Disk::from(&memory);
        let failed = disk.create_dir_durable(made).await.is_err();
        if memory.operations() <= operation {
            assert!(operation > 6 && !failed, "three levels take several operations");
            return;
        }
        disk.create_dir_durable(made).await.unwrap();
        let after = Disk::from(&memory.crash(Tear::Lost));
        assert!(after.exists(made).await.unwrap(), "operation {operation} failed");
    }
}
