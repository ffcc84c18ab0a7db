//! What the disk in memory keeps and what it may lose, through [`Disk`], as an engine uses it.

use std::path::{Path, PathBuf};

use super::MemoryDisk;
use crate::fs::{Disk, File};

mod crashes;
// It compares with the system's disk, which the simulation does not have.
#[cfg(not(feature = "sim"))]
mod file_system;
mod limits;
mod plans;
mod random;

/// Enough draws to see every outcome that these tests expect; failures name the seed.
const SEEDS: u64 = 400;

fn at(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

/// A disk with the durable directory `/data`.
async fn disk() -> (MemoryDisk, Disk) {
    let memory = MemoryDisk::new();
    let disk = Disk::from(&memory);
    disk.create_dir_all(Path::new("/data")).await.unwrap();
    disk.sync_dir(Path::new("/")).await.unwrap();
    (memory, disk)
}

/// A file with these bytes, durable in content and name.
async fn durable(disk: &Disk, name: &str, bytes: &[u8]) -> File {
    let file = disk.create_new(&at(name)).await.unwrap();
    file.write_all_at(bytes, 0).await.unwrap();
    file.sync_all().await.unwrap();
    disk.sync_dir(Path::new("/data")).await.unwrap();
    file
}

/// The names in `/data` with their contents.
async fn state(memory: &MemoryDisk) -> Vec<(String, Vec<u8>)> {
    let disk = Disk::from(memory);
    let mut state = Vec::new();
    for name in disk.list(Path::new("/data")).await.unwrap() {
        let bytes = disk.read(&at(&name)).await.unwrap();
        state.push((name, bytes));
    }
    state
}

async fn names(memory: &MemoryDisk) -> Vec<String> {
    Disk::from(memory).list(Path::new("/data")).await.unwrap()
}

async fn bytes(memory: &MemoryDisk, name: &str) -> Vec<u8> {
    Disk::from(memory).read(&at(name)).await.unwrap()
}

fn files(expected: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    expected.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
}
