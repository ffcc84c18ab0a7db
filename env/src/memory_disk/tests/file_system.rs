//! Without faults it behaves like the system's file system.

use std::io::ErrorKind;
use std::path::Path;

use super::{MemoryDisk, at, disk, durable};
use crate::fs::Disk;

#[tokio::test]
async fn a_file_reads_back_what_was_written_where() {
    let (_, disk) = disk().await;
    let file = disk.open_rw(&at("f")).await.unwrap();
    file.write_all_at(b"world", 6).await.unwrap();
    file.write_all_at(b"hello", 0).await.unwrap();
    assert_eq!(disk.read(&at("f")).await.unwrap(), b"hello\0world");
    let mut buffer = [0; 5];
    file.read_exact_at(&mut buffer, 6).await.unwrap();
    assert_eq!(&buffer, b"world");
    file.read_exact_at_now(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"hello");
    assert_eq!(file.read_exact_at_now(&mut buffer, 7).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_exact_at_now(&mut buffer, u64::MAX).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    file.set_len(3).await.unwrap();
    file.allocate(5).await.unwrap();
    file.allocate(2).await.unwrap();
    assert_eq!(disk.read(&at("f")).await.unwrap(), b"hel\0\0");
    assert_eq!((file.len().await.unwrap(), disk.file_len(&at("f")).await.unwrap()), (5, 5));
}

#[tokio::test]
async fn refusals_have_the_kinds_of_the_system() {
    async fn kinds(disk: &Disk, root: &Path) -> Vec<ErrorKind> {
        let p = |name: &str| root.join(name);
        disk.create_dir_all(&p("dir/below")).await.unwrap();
        disk.create_dir_all(&p("empty")).await.unwrap();
        disk.create_new(&p("file")).await.unwrap();
        disk.create_new(&p("other")).await.unwrap();
        let read_only = disk.open_read(&p("file")).await.unwrap();
        let refusals = [
            disk.create_new(&p("file")).await.map(drop),
            disk.create_new(&p("missing/file")).await.map(drop),
            disk.open_rw(&p("dir")).await.map(drop),
            disk.open_read(&p("missing")).await.map(drop),
            disk.read(&p("missing")).await.map(drop),
            disk.read(&p("dir")).await.map(drop),
            disk.list(&p("missing")).await.map(drop),
            disk.list(&p("file")).await.map(drop),
            disk.file_len(&p("missing")).await.map(drop),
            disk.create_dir_all(&p("file")).await,
            disk.sync_dir(&p("missing")).await,
            disk.rename(&p("missing"), &p("x")).await,
            disk.rename(&p("dir"), &p("dir/below/x")).await,
            disk.rename(&p("empty"), &p("file")).await,
            disk.rename(&p("file"), &p("empty")).await,
            disk.rename(&p("empty"), &p("dir")).await,
            disk.hard_link(&p("missing"), &p("x")).await,
            disk.hard_link(&p("file"), &p("other")).await,
            disk.hard_link(&p("dir"), &p("x")).await,
            disk.remove_file(&p("missing")).await,
            disk.remove_file(&p("dir")).await,
            disk.remove_dir_all(&p("missing")).await,
        ];
        let mut kinds: Vec<ErrorKind> = refusals.into_iter().map(|refusal| refusal.unwrap_err().kind()).collect();
        kinds.push(read_only.write_all_at(b"x", 0).await.unwrap_err().kind());
        kinds
    }
    let directory = tempfile::tempdir().unwrap();
    let real = kinds(&Disk::os(), directory.path()).await;
    assert_eq!(kinds(&Disk::from(&MemoryDisk::new()), Path::new("/")).await, real);
}

#[tokio::test]
async fn names_behave_as_on_the_system() {
    async fn scene(disk: &Disk, root: &Path) -> Vec<String> {
        let p = |name: &str| root.join(name);
        disk.create_dir_all(&p("a/b")).await.unwrap();
        disk.write_durable(&p("a/STAMP"), b"first").await.unwrap();
        disk.write_durable(&p("a/STAMP"), b"second").await.unwrap();
        disk.hard_link(&p("a/STAMP"), &p("a/b/LINK")).await.unwrap();
        // Two names of one file: nothing happens.
        disk.rename(&p("a/STAMP"), &p("a/b/LINK")).await.unwrap();
        disk.open_rw(&p("a/STAMP")).await.unwrap().write_all_at(b"S", 0).await.unwrap();
        disk.rename(&p("a/b"), &p("c")).await.unwrap();
        disk.create_new(&p("c/gone")).await.unwrap();
        disk.remove_file(&p("c/gone")).await.unwrap();
        disk.create_dir_all(&p("d/e")).await.unwrap();
        disk.create_new(&p("d/e/f")).await.unwrap();
        disk.remove_dir_all(&p("d")).await.unwrap();
        let mut seen = Vec::new();
        for name in ["", "a", "c"] {
            seen.push(format!("{name}: {:?}", disk.list(&p(name)).await.unwrap()));
        }
        for name in ["a/STAMP", "c/LINK"] {
            seen.push(String::from_utf8(disk.read(&p(name)).await.unwrap()).unwrap());
        }
        for name in ["a", "a/b", "c/LINK", "d/e", "c/LINK-not"] {
            seen.push(format!("{name}: {}", disk.exists(&p(name)).await.unwrap()));
        }
        seen
    }
    let directory = tempfile::tempdir().unwrap();
    let real = scene(&Disk::os(), directory.path()).await;
    assert_eq!(scene(&Disk::from(&MemoryDisk::new()), Path::new("/")).await, real);
}

#[tokio::test]
async fn an_open_file_outlives_its_name() {
    let (_, disk) = disk().await;
    let file = durable(&disk, "f", b"content").await;
    disk.remove_file(&at("f")).await.unwrap();
    disk.sync_dir(Path::new("/data")).await.unwrap();
    let successor = durable(&disk, "f", b"another").await;
    let mut buffer = [0; 7];
    file.read_exact_at_now(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"content");
    successor.read_exact_at_now(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"another");
}
