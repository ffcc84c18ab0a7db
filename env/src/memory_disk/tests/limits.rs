//! Space, open files, and decay.

use std::io::ErrorKind;
use std::path::Path;

use rustix::io::Errno;

use super::{at, bytes, disk, durable, names};
use crate::fs::Tear;

#[tokio::test]
async fn space_ends_and_comes_back() {
    let (memory, disk) = disk().await;
    memory.set_free_space(Some(10));
    let file = disk.create_new(&at("f")).await.unwrap();
    file.write_all_at(b"12345678", 0).await.unwrap();
    file.write_all_at(b"again", 0).await.expect("what is there may be overwritten");
    assert_eq!(disk.free_space(Path::new("/data")).await.unwrap(), 2);
    assert_eq!(file.write_all_at(b"abc", 8).await.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(bytes(&memory, "f").await, b"again678ab", "what fits is written");
    assert_eq!(file.set_len(11).await.unwrap_err().kind(), ErrorKind::StorageFull);
    file.set_len(4).await.unwrap();
    file.allocate(6).await.unwrap();
    assert_eq!(disk.free_space(Path::new("/data")).await.unwrap(), 4);
    disk.hard_link(&at("f"), &at("g")).await.unwrap();
    disk.remove_file(&at("f")).await.unwrap();
    disk.remove_file(&at("g")).await.unwrap();
    assert_eq!(disk.free_space(Path::new("/data")).await.unwrap(), 4, "still open");
    drop(file);
    assert_eq!(disk.free_space(Path::new("/data")).await.unwrap(), 10);
    memory.set_free_space(None);
    assert!(disk.free_space(Path::new("/data")).await.unwrap() > 1 << 30);
}

#[tokio::test]
async fn a_file_replaced_by_a_rename_gives_its_space_back() {
    let (memory, disk) = disk().await;
    memory.set_free_space(Some(100));
    disk.write_durable(&at("STAMP"), &[1; 60]).await.unwrap();
    disk.write_durable(&at("STAMP"), &[2; 30]).await.unwrap();
    assert_eq!(disk.free_space(Path::new("/")).await.unwrap(), 70);
}

#[tokio::test]
async fn an_absurd_length_is_refused() {
    let (_, disk) = disk().await;
    let file = disk.create_new(&at("f")).await.unwrap();
    for refused in [file.set_len(u64::MAX).await, file.write_all_at(b"x", u64::MAX).await, file.allocate(1 << 60).await]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}

#[tokio::test]
async fn open_files_are_counted_and_limited() {
    let (memory, disk) = disk().await;
    memory.set_open_files_max(Some(2));
    let first = disk.create_new(&at("f")).await.unwrap();
    let _second = disk.open_read(&at("f")).await.unwrap();
    assert_eq!(memory.open_files(), 2);
    let refusals = [
        disk.open_rw(&at("f")).await.map(drop),
        disk.create_new(&at("g")).await.map(drop),
        disk.read(&at("f")).await.map(drop),
        disk.list(Path::new("/data")).await.map(drop),
        disk.sync_dir(Path::new("/data")).await,
    ];
    for refusal in refusals {
        assert_eq!(Errno::from_io_error(&refusal.unwrap_err()), Some(Errno::MFILE));
    }
    disk.rename(&at("f"), &at("g")).await.expect("needs no handle");
    drop(first);
    disk.open_rw(&at("g")).await.unwrap();
    memory.set_open_files_max(None);
    assert_eq!(memory.open_files(), 1);
}

#[tokio::test]
async fn a_file_that_could_not_be_opened_is_not_made() {
    let (memory, disk) = disk().await;
    memory.set_open_files_max(Some(0));
    disk.create_new(&at("f")).await.unwrap_err();
    disk.open_rw(&at("f")).await.unwrap_err();
    memory.set_open_files_max(None);
    assert_eq!(names(&memory).await, [""; 0]);
}

#[tokio::test]
async fn damage_is_seen_now_and_after_a_crash() {
    let (memory, disk) = disk().await;
    let file = durable(&disk, "f", b"aa").await;
    file.write_all_at(b"aa", 2).await.unwrap();
    memory.damage(&at("f"), 1, 1).unwrap();
    memory.damage(&at("f"), 3, 0).unwrap();
    assert_eq!(bytes(&memory, "f").await, b"aca`");
    assert_eq!(bytes(&memory.crash(Tear::Lost), "f").await, b"ac");
    assert_eq!(bytes(&memory.crash(Tear::Kept), "f").await, b"aca`");
    assert_eq!(memory.damage(&at("f"), 4, 0).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(memory.damage(&at("g"), 0, 0).unwrap_err().kind(), ErrorKind::NotFound);
}
