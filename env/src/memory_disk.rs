//! A disk in memory that can crash, tear, fill up and fail at any operation, for crash tests.
//!
//! Like a real disk it separates names from the files they point at, and for each the visible state from the durable one
//! (the platter). Syncing a file makes its content durable but none of its names; syncing a directory makes its names
//! durable but no content. After a crash, a durable name of a file that was never synced leads to an empty or torn file.
//!
//! # What a crash may do
//!
//! [`MemoryDisk::crash`] returns the disk after the restart. Everything synced is there, whatever the [`Tear`]. For the
//! rest, [`Tear::Random`] draws a state that some journaling file system in use may leave behind:
//!
//! - An unsynced write may be whole, lost, or torn after any byte: pages are written in any order and at any time. A later
//!   write may survive without an earlier one, with zeros in between. The length of a torn write may be durable before its
//!   bytes, so that it ends in zeros. Half of the files come back as if written from front to back, as appending mostly
//!   does.
//! - An unsynced change of names may survive or not. In half of the draws the changes of each directory survive up to some
//!   moment, as with a journal (ext4, XFS); in the others each name survives or not on its own, as on file systems where
//!   syncing a file also syncs its name but not its neighbours' (btrfs, F2FS). POSIX promises neither order.
//! - Every journaling file system keeps two things, so this does too: a rename is atomic, within a directory or across two,
//!   and the changes of one name survive in order. A renamed directory also keeps all changes before it, or it could end up
//!   inside itself.
//! - A file system may sync more than requested, so a `sync_dir` also makes durable what the directory's changes depend on
//!   in other directories.
//!
//! The operation at which the planned crash strikes is in flight: a write or a change of names counts as unsynced, and a sync
//! has done nothing yet beyond what a tear may do.
//!
//! # What a fault does
//!
//! - A failed write leaves nothing, or a part with [`Fault::ShortWrite`], or as much as fits when space runs out.
//! - A failed sync of a file loses the outstanding writes for good, as on Linux: they still read back, but no later sync
//!   makes them durable, though they may have reached the platter.
//! - A failed change of names did not happen. A failed sync of a directory leaves its changes outstanding.
//!
//! Left out: spontaneous damage (see [`MemoryDisk::damage`]), bytes that change between writes, and a platter that loses
//! acknowledged syncs. An engine detects those by checksum or not at all.
//!
//! One lock guards everything, because the tests are about the order of operations. Nothing depends on time, addresses or
//! hashing: one thread doing the same operations sees the same disk.
//!
//! Its tests are in `tests/`.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::node::Node;

mod chance;
mod content;
mod names;
mod operation;
#[cfg(test)]
mod tests;
mod tree;

use chance::SplitMix64;
use names::NodeId;
use operation::{Detail, Operation, Operations, Turn};
use tree::{Open, Tree};

/// What happens to unsynced changes when the disk crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// They are lost.
    Lost,
    /// They all reached the platter, except those that a failed sync lost.
    Kept,
    /// The seed decides, within what file systems may do.
    Random(u64),
}

/// How a planned operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device reports an error (`EIO`); nothing was done.
    Error,
    /// A write writes some of its bytes and reports an error (`EIO`). Like `Error` for other operations.
    ShortWrite,
    /// No space is left (`ENOSPC`); nothing was done.
    NoSpace,
}

/// What a disk falsely reports as synced. Simulates an engine that omits a sync, for tests of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The content of files.
    Files,
    /// The names in directories.
    Directories,
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        match fault {
            Fault::Error | Fault::ShortWrite => Errno::IO.into(),
            Fault::NoSpace => Errno::NOSPC.into(),
        }
    }
}

/// The cause of every error after a planned crash: a real process would be dead by then.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the disk in memory has crashed, as planned")]
pub struct Crashed;

impl Crashed {
    /// Whether an error, or one of its causes, comes from a planned crash.
    pub fn caused(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            // `io::Error::source` skips the error inside, so look at that too.
            let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if error.is::<Crashed>() || inside.is_some_and(|inside| Crashed::caused(inside)) {
                return true;
            }
            next = error.source();
        }
        false
    }
}

impl From<Crashed> for io::Error {
    fn from(crashed: Crashed) -> io::Error {
        io::Error::other(crashed)
    }
}

/// A disk in memory. Clones are the same disk; code under test gets `Disk::from(&disk)`.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    operations: Operations,
    lie: Option<Lie>,
}

impl Default for State {
    fn default() -> State {
        State { tree: Tree::new(), operations: Operations::default(), lie: None }
    }
}

impl MemoryDisk {
    /// An empty disk without limits or planned faults. Its root is the only directory.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Like [`MemoryDisk::new`], without a trace, for long runs.
    pub fn untraced() -> MemoryDisk {
        let state = State { operations: Operations::untraced(), ..State::default() };
        MemoryDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// The disk after a power cut now, or at the planned crash: another disk, without limits or planned faults, counting from
    /// zero. This one does not change.
    pub fn crash(&self, tear: Tear) -> MemoryDisk {
        let mut chance = SplitMix64::new(if let Tear::Random(seed) = tear { seed } else { 0 });
        let state = self.state();
        let tree = state.tree.after_crash(tear, &mut chance);
        let after = State { tree, operations: state.operations.restarted(), lie: None };
        MemoryDisk { state: Arc::new(Mutex::new(after)) }
    }

    /// Plans a crash: the first `number` operations of the disk's life succeed, the next one is in flight when the power is
    /// cut, and it and all later ones fail with [`Crashed`]. If there have been that many already, the next one crashes.
    pub fn crash_at(&self, number: u64) {
        self.state().operations.crash_at(number);
    }

    /// Whether the planned crash has happened.
    pub fn crashed(&self) -> bool {
        self.state().operations.crashed()
    }

    /// Plans a fault: after `number` operations of the disk's life the next one fails, and only that one. Several faults may
    /// be planned.
    pub fn fail_at(&self, number: u64, fault: Fault) {
        self.state().operations.fail_at(number, fault);
    }

    /// The number of operations so far: calls of [`super::Disk`] and [`super::File`]. Calls after the planned crash do not
    /// count, nor does dropping a file.
    pub fn operations(&self) -> u64 {
        self.state().operations.count()
    }

    /// The latest operations (some tens of thousands) as text, each with its number: `3 write /data/1.log 0+512`.
    pub fn trace(&self) -> Vec<String> {
        self.state().operations.trace()
    }

    /// Sets how many bytes may still be written before space runs out. A file takes as many bytes as it is long, whether
    /// written or extended. `None` removes the limit.
    pub fn set_free_space(&self, bytes: Option<u64>) {
        self.state().tree.set_free(bytes);
    }

    /// Sets how many files may be open at a time (`EMFILE` beyond). Reading by name, listing and syncing a directory open one
    /// briefly. `None` removes the limit.
    pub fn set_open_files_max(&self, files: Option<usize>) {
        self.state().tree.set_handles_max(files);
    }

    /// Makes syncs do nothing but report success. The disk after a crash is honest again.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    /// How many files are open.
    pub fn open_files(&self) -> usize {
        self.state().tree.handles()
    }

    /// Flips a bit (0 to 7) of a file, as decay would: reads see it, and so does every disk after a crash. Fails if there is
    /// no such byte.
    pub fn damage(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        self.state().tree.damage(path, offset, bit)
    }

    /// Overwrites bytes of a file on the platter, past the file system: like damage, reads see it at once and no sync is
    /// needed. What would lie beyond the durable content is dropped.
    #[cfg(feature = "sim")]
    pub(crate) fn overwrite_durably(&self, path: &Path, offset: u64, bytes: &[u8]) {
        self.state().tree.overwrite_durably(path, offset, bytes);
    }

    /// Whether the durable content of a file begins with these bytes.
    #[cfg(feature = "sim")]
    pub(crate) fn durably_begins(&self, path: &Path, with: &[u8]) -> bool {
        self.state().tree.durably_begins(path, with)
    }

    /// Durably turns a file into zeros from the last place on that begins with these bytes. Returns where that is.
    #[cfg(feature = "sim")]
    pub(crate) fn lose_end(&self, path: &Path, from_last: &[u8]) -> Option<u64> {
        self.state().tree.lose_end(path, from_last)
    }

    /// The path of every file, each with the number of its durable bytes, without reserved ones at the end.
    #[cfg(feature = "sim")]
    pub(crate) fn durable_files(&self) -> Vec<(String, u64)> {
        self.state().tree.durable_files()
    }

    /// The number of changes, of content and of names, that a power cut could lose.
    #[cfg(feature = "sim")]
    pub(crate) fn outstanding(&self) -> usize {
        self.state().tree.outstanding()
    }

    /// The bytes that files take.
    #[cfg(feature = "sim")]
    pub(crate) fn used(&self) -> u64 {
        self.state().tree.used()
    }

    /// The bytes that are left.
    #[cfg(feature = "sim")]
    pub(crate) fn free(&self) -> u64 {
        self.state().tree.free()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked must not panic again when its files are dropped. No change is ever half applied.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation that changes nothing.
    fn look<T>(&self, operation: Operation, step: impl FnOnce(&Tree) -> io::Result<T>) -> io::Result<T> {
        self.operate(operation, |tree, turn| match turn {
            Turn::Happens => step(tree),
            Turn::InFlight => Err(Crashed.into()),
            Turn::Fails(fault) => Err(fault.into()),
        })
    }

    /// An operation whose effect is visible at once, and outstanding until synced.
    fn change<T>(&self, operation: Operation, step: impl FnOnce(&mut Tree) -> io::Result<T>) -> io::Result<T> {
        self.operate(operation, |tree, turn| match turn {
            Turn::Happens => step(tree),
            // Whether it would have failed no longer matters.
            Turn::InFlight => step(tree).and(Err(Crashed.into())),
            Turn::Fails(fault) => Err(fault.into()),
        })
    }

    fn operate<T>(&self, operation: Operation, step: impl FnOnce(&mut Tree, Turn) -> io::Result<T>) -> io::Result<T> {
        crate::sync::point();
        let mut state = self.state();
        let turn = state.operations.begin()?;
        let result = match (turn, step(&mut state.tree, turn)) {
            (Turn::InFlight, _) => Err(Crashed.into()),
            (_, result) => result,
        };
        state.operations.end(operation, turn, &result);
        result
    }
}

fn on(verb: &'static str, path: &Path) -> Operation {
    Operation { verb, path: name(path), detail: Detail::None }
}

fn from_to(verb: &'static str, from: &Path, to: &Path) -> Operation {
    Operation { verb, path: name(from), detail: Detail::Target(name(to)) }
}

fn name(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// The operations of [`super::Disk`].
impl MemoryDisk {
    pub(super) fn create_new(&self, path: &Path) -> io::Result<MemoryFile> {
        self.open("create", path, Open::New, true)
    }

    pub(super) fn open_rw(&self, path: &Path) -> io::Result<MemoryFile> {
        self.open("open_rw", path, Open::OrCreate, true)
    }

    pub(super) fn open_read(&self, path: &Path) -> io::Result<MemoryFile> {
        self.open("open", path, Open::Existing, false)
    }

    fn open(&self, verb: &'static str, path: &Path, how: Open, writable: bool) -> io::Result<MemoryFile> {
        let operation = on(verb, path);
        let path = operation.path.clone();
        let node = self.operate(operation, |tree, turn| match turn {
            Turn::Happens => tree.open(path_of(&path), how),
            Turn::InFlight => {
                // The file may get created; the handle does not.
                if let Ok(node) = tree.open(path_of(&path), how) {
                    tree.close(node);
                }
                Err(Crashed.into())
            }
            Turn::Fails(fault) => Err(fault.into()),
        })?;
        Ok(MemoryFile { disk: self.clone(), node, path, writable })
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.look(on("read", path), |tree| tree.read(path))
    }

    pub(super) fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.look(on("file_len", path), |tree| tree.file_len(path))
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.look(on("list", path), |tree| tree.list(path))
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        self.look(on("exists", path), |tree| tree.exists(path))
    }

    pub(super) fn node(&self, path: &Path) -> io::Result<Node> {
        self.look(on("node", path), |tree| Ok(Node { device: 0, number: tree.found(path)? }))
    }

    pub(super) fn free_space(&self, path: &Path) -> io::Result<u64> {
        self.look(
            on("free_space", path),
            |tree| {
                if tree.exists(path)? { Ok(tree.free()) } else { Err(Errno::NOENT.into()) }
            },
        )
    }

    pub(super) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(on("create_dir_all", path), |tree| tree.create_dir_all(path))
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(from_to("rename", from, to), |tree| tree.rename(from, to))
    }

    pub(super) fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(from_to("link", from, to), |tree| tree.hard_link(from, to))
    }

    pub(super) fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(on("remove", path), |tree| tree.remove_file(path))
    }

    pub(super) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(on("remove_dir_all", path), |tree| tree.remove_dir_all(path))
    }

    pub(super) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let lie = self.state().lie;
        self.operate(on("sync_dir", path), |tree, turn| match turn {
            Turn::Happens if lie == Some(Lie::Directories) => Ok(()),
            Turn::Happens => tree.sync_dir(path),
            Turn::InFlight => Err(Crashed.into()),
            Turn::Fails(fault) => Err(fault.into()),
        })
    }
}

/// An open file of a disk in memory.
#[derive(Debug)]
pub(super) struct MemoryFile {
    disk: MemoryDisk,
    node: NodeId,
    /// The name under which it was opened, for the trace. By now it may have other names or none.
    path: Arc<str>,
    writable: bool,
}

impl MemoryFile {
    #[cfg(feature = "sim")]
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn operation(&self, verb: &'static str, detail: Detail) -> Operation {
        Operation { verb, path: self.path.clone(), detail }
    }

    fn written(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let operation = self.operation("write", Detail::Bytes { offset, length: bytes.len() });
        self.disk.operate(operation, |tree, turn| {
            self.written()?;
            match turn {
                Turn::Happens | Turn::InFlight => tree.write_at(self.node, bytes, offset),
                Turn::Fails(Fault::ShortWrite) => {
                    // The same write always tears at the same byte, and different writes at different ones.
                    let part = SplitMix64::new(offset ^ bytes.len() as u64).below(bytes.len());
                    tree.write_at(self.node, &bytes[..part], offset).and(Err(Fault::ShortWrite.into()))
                }
                Turn::Fails(fault) => Err(fault.into()),
            }
        })
    }

    pub(super) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let operation = self.operation("read", Detail::Bytes { offset, length: buffer.len() });
        self.disk.look(operation, |tree| tree.read_exact_at(self.node, buffer, offset))
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.disk.look(self.operation("len", Detail::None), |tree| tree.len(self.node))
    }

    pub(super) fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.change(self.operation("set_len", Detail::Length(length)), |tree| {
            self.written()?;
            tree.set_len(self.node, length)
        })
    }

    pub(super) fn allocate(&self, length: u64) -> io::Result<()> {
        self.disk.change(self.operation("allocate", Detail::Length(length)), |tree| {
            self.written()?;
            if tree.len(self.node)? < length { tree.set_len(self.node, length) } else { Ok(()) }
        })
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let lie = self.disk.state().lie;
        self.disk.operate(self.operation("sync", Detail::None), |tree, turn| match turn {
            Turn::Happens if lie == Some(Lie::Files) => Ok(()),
            Turn::Happens => tree.sync(self.node),
            Turn::InFlight => Err(Crashed.into()),
            Turn::Fails(fault) => {
                tree.fail_sync(self.node);
                Err(fault.into())
            }
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // Not counted as an operation: a failure could not be reported to the caller.
        self.disk.state().tree.close(self.node);
    }
}

fn path_of(path: &Arc<str>) -> &Path {
    Path::new(path.as_ref())
}
