//! A file system of its own for a server, which can be made to stall.
//!
//! A frozen file system (`fsfreeze`) holds every write and sync until it is thawed, as a disk does whose controller hangs.
//! Making one needs root and a loop device.

use std::path::{Path, PathBuf};
use std::process::Command;

use terrane_lab::process::quietly;

/// Size of the file system; its file is sparse.
const DISK: &str = "2G";

/// A mounted file system, thawed and unmounted when dropped.
pub struct StallingDisk {
    at: PathBuf,
}

impl StallingDisk {
    /// Makes a file system in `image` and mounts it; `None` where that is not permitted.
    pub fn mount(image: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).ok()?;
        let made = quietly(Command::new("truncate").args(["--size", DISK]).arg(image))
            && quietly(Command::new("mkfs.ext4").arg("-q").arg(image))
            && quietly(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at));
        made.then(|| Self { at: at.to_owned() })
    }

    /// Holds every write from now on.
    pub fn stall(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.fsfreeze("--freeze"), "cannot freeze {}", self.at.display());
        Ok(())
    }

    /// Lets writes continue.
    pub fn resume(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.fsfreeze("--unfreeze"), "cannot thaw {}", self.at.display());
        Ok(())
    }

    fn fsfreeze(&self, what: &str) -> bool {
        quietly(Command::new("fsfreeze").arg(what).arg(&self.at))
    }
}

impl Drop for StallingDisk {
    fn drop(&mut self) {
        // Fails if it is not frozen. A process on a frozen file system cannot be killed.
        self.fsfreeze("--unfreeze");
        // Lazily: a process killed a moment ago may still hold it.
        if !quietly(Command::new("umount").arg("--lazy").arg(&self.at)) {
            eprintln!("cannot unmount {}", self.at.display());
        }
    }
}
