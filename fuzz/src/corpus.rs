//! Files with valid encodings, which are committed, and with inputs that failed, which are not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use terrane_types::fuzzing::{Dice, Format};

/// Files of one format, and the bytes of a file, that [`write`] makes.
const FILES: usize = 8;
const FILE_BYTES_MAX: usize = 800;

/// The folder of a format's corpus.
fn folder(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format)
}

/// The corpus of a format, in the order of its names.
///
/// # Errors
/// When a file cannot be read.
pub fn load(format: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let folder = folder(format);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.sort_unstable();
    files.iter().map(|file| fs::read(file).with_context(|| format!("reading {}", file.display()))).collect()
}

/// Adds valid encodings to the corpus of a format until it has a few; returns how many were added.
///
/// # Errors
/// When a file cannot be written.
pub fn write(format: &Format) -> anyhow::Result<usize> {
    let folder = folder(format.name);
    fs::create_dir_all(&folder)?;
    let mut known = load(format.name)?;
    let before = known.len();
    for seed in 0..200 {
        if known.len() >= FILES {
            break;
        }
        let bytes = (format.draw)(&mut Dice::new(seed));
        if bytes.is_empty() || bytes.len() > FILE_BYTES_MAX || known.contains(&bytes) {
            continue;
        }
        fs::write(folder.join(name_of(&bytes)), &bytes)?;
        known.push(bytes);
    }
    Ok(known.len() - before)
}

/// Keeps an input that failed; returns its path.
///
/// # Errors
/// When the file cannot be written.
pub fn keep_failure(format: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("failures").join(format);
    fs::create_dir_all(&folder)?;
    let file = folder.join(name_of(bytes));
    fs::write(&file, bytes)?;
    Ok(file)
}

fn name_of(bytes: &[u8]) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes))
}
