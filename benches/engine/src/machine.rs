//! The machine a run used, and the size of a directory.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark is a program beside the servers: nothing of it is ever simulated, and the file door knows no sizes"
)]

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

/// The machine, as reports name it.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let unknown = || format!("an unknown processor ({})", std::env::consts::ARCH);
        let described = fs::read_to_string("/proc/cpuinfo").ok();
        let cpu = described.as_deref().and_then(model).map_or_else(unknown, str::to_owned);
        Self { cpu, cpus: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim())
}

/// Bytes of all files below a directory.
///
/// # Errors
/// Returns the I/O error. A file that disappears meanwhile counts as empty.
pub(crate) fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Fast One @ 3.00GHz\nprocessor\t: 1\n";
        assert_eq!(model(cpuinfo), Some("A Fast One @ 3.00GHz"));
        assert_eq!(model("processor: 0"), None);
    }

    #[test]
    fn bytes_of_directories_within_count() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), [0; 100]).unwrap();
        fs::write(dir.path().join("c"), [0; 11]).unwrap();
        assert_eq!(disk_bytes(dir.path()).unwrap(), 111);
    }
}
