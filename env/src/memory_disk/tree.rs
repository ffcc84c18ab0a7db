//! Paths, files and directories of the disk in memory, as a file system; planned faults are handled above.
//!
//! Every error has the kind that Linux reports. Paths start at the root, with or without a leading slash.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use rustix::io::Errno;

use super::Tear;
use super::chance::SplitMix64;
use super::content::Content;
use super::names::{Change, Directories, Names, NodeId, Place, ROOT};

/// The largest file; no test needs so much memory.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// The free space that a disk without a limit reports.
const FREE_BYTES_UNLIMITED: u64 = 1 << 40;

/// A file system.
#[derive(Debug)]
pub(super) struct Tree {
    directories: Directories,
    files: BTreeMap<NodeId, FileNode>,
    /// Numbers are never reused, so a handle never refers to another file.
    next_node: NodeId,
    /// Bytes left to write, if limited. A file takes as many as it is long; a file without names returns them with its last
    /// handle.
    free: Option<u64>,
    /// Files open now, and how many may be.
    handles: usize,
    handles_max: Option<usize>,
}

#[derive(Debug, Default)]
struct FileNode {
    content: Content,
    names: usize,
    handles: usize,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    Existing,
    OrCreate,
    New,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree::durable(BTreeMap::from([(ROOT, Names::new())]), BTreeMap::new(), ROOT + 1)
    }

    fn durable(directories: BTreeMap<NodeId, Names>, files: BTreeMap<NodeId, FileNode>, next_node: NodeId) -> Tree {
        let directories = Directories::durable(directories);
        Tree { directories, files, next_node, free: None, handles: 0, handles_max: None }
    }

    /// The file system after a crash now.
    pub(super) fn after_crash(&self, tear: Tear, chance: &mut SplitMix64) -> Tree {
        let directories = self.directories.after_crash(tear, chance);
        let mut files: BTreeMap<NodeId, FileNode> = BTreeMap::new();
        for node in directories.values().flat_map(Names::values).filter(|node| !directories.contains_key(node)) {
            if let Some(file) = self.files.get(node) {
                let back = files.entry(*node).or_insert_with(|| FileNode {
                    content: Content::durable(file.content.after_crash(tear, chance)),
                    ..FileNode::default()
                });
                back.names += 1;
            }
        }
        Tree::durable(directories, files, self.next_node)
    }

    pub(super) fn set_free(&mut self, bytes: Option<u64>) {
        self.free = bytes;
    }

    pub(super) fn free(&self) -> u64 {
        self.free.unwrap_or(FREE_BYTES_UNLIMITED)
    }

    pub(super) fn set_handles_max(&mut self, handles: Option<usize>) {
        self.handles_max = handles;
    }

    pub(super) fn handles(&self) -> usize {
        self.handles
    }

    /// Whether one more file may be open, however briefly.
    fn has_handle(&self) -> io::Result<()> {
        if self.handles_max.is_some_and(|most| self.handles >= most) { Err(Errno::MFILE.into()) } else { Ok(()) }
    }

    /// The number of directories, files and outstanding changes of names, for the test that they do not pile up.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        let (directories, changes) = self.directories.sizes();
        (directories, self.files.len(), changes)
    }

    // Names.

    /// What a path points at; `None` if its last part does not exist.
    fn find(&self, path: &Path) -> io::Result<Option<NodeId>> {
        match self.place(path)? {
            Some(place) => Ok(self.at(&place)),
            None => Ok(Some(ROOT)),
        }
    }

    fn at(&self, place: &Place) -> Option<NodeId> {
        self.directories.names(place.directory)?.get(&place.name).copied()
    }

    pub(super) fn found(&self, path: &Path) -> io::Result<NodeId> {
        self.find(path)?.ok_or_else(|| Errno::NOENT.into())
    }

    /// The place of a path's last part, in a directory that must exist; `None` for the root.
    fn place(&self, path: &Path) -> io::Result<Option<Place>> {
        let names = parts(path)?;
        let Some((last, above)) = names.split_last() else { return Ok(None) };
        let mut directory = ROOT;
        for name in above {
            let names = self.directories.names(directory).ok_or(Errno::NOTDIR)?;
            directory = *names.get(*name).ok_or(Errno::NOENT)?;
        }
        self.directories.names(directory).ok_or(Errno::NOTDIR)?;
        Ok(Some(Place { directory, name: (*last).to_owned() }))
    }

    /// The place of a path that is not the root.
    fn changeable_place(&self, path: &Path) -> io::Result<Place> {
        self.place(path)?.ok_or_else(|| Errno::BUSY.into())
    }

    fn is_directory(&self, node: NodeId) -> bool {
        self.directories.names(node).is_some()
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.find(path) {
            Ok(node) => Ok(node.is_some()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.has_handle()?;
        let names = self.directories.names(self.found(path)?).ok_or(Errno::NOTDIR)?;
        Ok(names.keys().cloned().collect())
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut directory = ROOT;
        for name in parts(path)? {
            let place = Place { directory, name: name.to_owned() };
            directory = match self.at(&place) {
                Some(node) if self.is_directory(node) => node,
                Some(_) => return Err(Errno::EXIST.into()),
                None => {
                    let node = self.new_node();
                    self.directories.add(node);
                    self.directories.change(Change::Put { place, node });
                    node
                }
            };
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.can_sync_dir(path)?;
        let directory = self.found(path)?;
        self.directories.sync(directory);
        self.sweep();
        Ok(())
    }

    pub(super) fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        self.has_handle()?;
        // On Linux, opening a file to sync it as a directory works and syncs the file; here it is an error.
        if self.is_directory(self.found(path)?) { Ok(()) } else { Err(Errno::NOTDIR.into()) }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (source, target) = (self.changeable_place(from)?, self.changeable_place(to)?);
        let node = self.at(&source).ok_or(Errno::NOENT)?;
        let is_directory = self.is_directory(node);
        if is_directory && parts(to)?.starts_with(&parts(from)?) && source != target {
            return Err(Errno::INVAL.into());
        }
        match self.at(&target) {
            // Two names of one file: the call succeeds and does nothing.
            Some(replaced) if replaced == node => return Ok(()),
            Some(replaced) => match (is_directory, self.directories.names(replaced)) {
                (true, None) => return Err(Errno::NOTDIR.into()),
                (false, Some(_)) => return Err(Errno::ISDIR.into()),
                (true, Some(names)) if !names.is_empty() => return Err(Errno::NOTEMPTY.into()),
                _ => self.lose_name(replaced),
            },
            None => {}
        }
        self.directories.change(Change::Move { from: source, to: target, node, is_directory });
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.found(from)?;
        let place = self.place(to)?.ok_or(Errno::EXIST)?;
        if self.at(&place).is_some() {
            return Err(Errno::EXIST.into());
        }
        self.files.get_mut(&node).ok_or(Errno::PERM)?.names += 1;
        self.directories.change(Change::Put { place, node });
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let place = self.place(path)?.ok_or(Errno::ISDIR)?;
        let node = self.at(&place).ok_or(Errno::NOENT)?;
        if self.is_directory(node) {
            return Err(Errno::ISDIR.into());
        }
        self.directories.change(Change::Remove { place });
        self.lose_name(node);
        Ok(())
    }

    /// One change per name, bottom up and in the order of names: a crash may keep any of them.
    pub(super) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let place = self.changeable_place(path)?;
        let node = self.at(&place).ok_or(Errno::NOENT)?;
        if !self.is_directory(node) {
            return Err(Errno::NOTDIR.into());
        }
        self.remove_below(node);
        self.directories.change(Change::Remove { place });
        Ok(())
    }

    fn remove_below(&mut self, directory: NodeId) {
        let names = self.directories.names(directory).cloned().unwrap_or_default();
        for (name, node) in names {
            if self.is_directory(node) {
                self.remove_below(node);
            }
            self.directories.change(Change::Remove { place: Place { directory, name } });
            self.lose_name(node);
        }
    }

    /// A name of the node was removed; removing the last name of a file that is not open frees its space.
    fn lose_name(&mut self, node: NodeId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.names -= 1;
            self.release(node);
        }
    }

    fn release(&mut self, node: NodeId) {
        if let Some(file) = self.files.get(&node)
            && file.names == 0
            && file.handles == 0
        {
            self.free = self.free.map(|free| free.saturating_add(file.content.len() as u64));
        }
    }

    /// Drops files that are not open and that no crash can bring back.
    fn sweep(&mut self) {
        let kept: BTreeSet<NodeId> = self.directories.sweep();
        self.files.retain(|node, file| file.handles > 0 || file.names > 0 || kept.contains(node));
    }

    fn new_node(&mut self) -> NodeId {
        let node = self.next_node;
        self.next_node += 1;
        node
    }

    // Files.

    pub(super) fn open(&mut self, path: &Path, how: Open) -> io::Result<NodeId> {
        let place = self.place(path)?.ok_or(Errno::ISDIR)?;
        let node = match self.at(&place) {
            Some(_) if how == Open::New => return Err(Errno::EXIST.into()),
            // Linux opens directories for reading; here it is an error.
            Some(node) if self.is_directory(node) => return Err(Errno::ISDIR.into()),
            Some(node) => {
                self.has_handle()?;
                node
            }
            None if how == Open::Existing => return Err(Errno::NOENT.into()),
            None => {
                self.has_handle()?;
                let node = self.new_node();
                self.files.insert(node, FileNode { names: 1, ..FileNode::default() });
                self.directories.change(Change::Put { place, node });
                node
            }
        };
        self.handles += 1;
        self.file_mut(node)?.handles += 1;
        Ok(node)
    }

    pub(super) fn close(&mut self, node: NodeId) {
        if let Some(file) = self.files.get_mut(&node) {
            self.handles -= 1;
            file.handles -= 1;
            self.release(node);
        }
    }

    fn file(&self, node: NodeId) -> io::Result<&FileNode> {
        self.files.get(&node).ok_or_else(|| Errno::BADF.into())
    }

    fn file_mut(&mut self, node: NodeId) -> io::Result<&mut FileNode> {
        self.files.get_mut(&node).ok_or_else(|| Errno::BADF.into())
    }

    fn named_file(&self, path: &Path) -> io::Result<&FileNode> {
        self.files.get(&self.found(path)?).ok_or_else(|| Errno::ISDIR.into())
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.has_handle()?;
        Ok(self.named_file(path)?.content.to_vec())
    }

    pub(super) fn file_len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.named_file(path)?.content.len() as u64)
    }

    pub(super) fn len(&self, node: NodeId) -> io::Result<u64> {
        Ok(self.file(node)?.content.len() as u64)
    }

    pub(super) fn read_exact_at(&self, node: NodeId, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = &self.file(node)?.content;
        // An empty read succeeds at any offset.
        let read = buffer.is_empty() || usize::try_from(offset).is_ok_and(|offset| content.read(offset, buffer));
        if read { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Writes as many of the bytes as fit on the disk; fails if not all fit.
    pub(super) fn write_at(&mut self, node: NodeId, bytes: &[u8], offset: u64) -> io::Result<()> {
        let length = self.len(node)?;
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        let room = self.free.map_or(end, |free| length.saturating_add(free)).min(end);
        let fitting = room.saturating_sub(offset) as usize;
        if fitting > 0 {
            self.take_space(length, length.max(room));
            self.file_mut(node)?.content.write(offset as usize, &bytes[..fitting]);
        }
        if fitting < bytes.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }

    pub(super) fn set_len(&mut self, node: NodeId, wanted: u64) -> io::Result<()> {
        let length = self.len(node)?;
        if wanted > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        if self.free.is_some_and(|free| wanted > length.saturating_add(free)) {
            return Err(Errno::NOSPC.into());
        }
        self.take_space(length, wanted);
        self.file_mut(node)?.content.set_len(wanted as usize);
        Ok(())
    }

    fn take_space(&mut self, from: u64, to: u64) {
        self.free = self.free.map(|free| free.saturating_add(from).saturating_sub(to));
    }

    pub(super) fn sync(&mut self, node: NodeId) -> io::Result<()> {
        self.file_mut(node)?.content.sync();
        Ok(())
    }

    pub(super) fn fail_sync(&mut self, node: NodeId) {
        if let Some(file) = self.files.get_mut(&node) {
            file.content.fail_sync();
        }
    }

    #[cfg(feature = "sim")]
    pub(super) fn overwrite_durably(&mut self, path: &Path, offset: u64, bytes: &[u8]) {
        if let Ok(Some(node)) = self.find(path)
            && let (Some(file), Ok(offset)) = (self.files.get_mut(&node), usize::try_from(offset))
        {
            file.content.overwrite_durably(offset, bytes);
        }
    }

    #[cfg(feature = "sim")]
    pub(super) fn durably_begins(&self, path: &Path, with: &[u8]) -> bool {
        let node = self.find(path).ok().flatten();
        node.and_then(|node| self.files.get(&node)).is_some_and(|file| file.content.durably_begins(with))
    }

    #[cfg(feature = "sim")]
    pub(super) fn lose_end(&mut self, path: &Path, from_last: &[u8]) -> Option<u64> {
        let node = self.find(path).ok().flatten()?;
        self.files.get_mut(&node)?.content.lose_end(from_last)
    }

    #[cfg(feature = "sim")]
    pub(super) fn durable_files(&self) -> Vec<(String, u64)> {
        let mut files = Vec::new();
        let mut directories = vec![(String::new(), ROOT)];
        while let Some((path, directory)) = directories.pop() {
            for (name, node) in self.directories.names(directory).into_iter().flatten() {
                let path = format!("{path}/{name}");
                match self.files.get(node) {
                    Some(file) => files.push((path, file.content.durable_length() as u64)),
                    None => directories.push((path, *node)),
                }
            }
        }
        files
    }

    #[cfg(feature = "sim")]
    pub(super) fn outstanding(&self) -> usize {
        let contents = self.files.values().map(|file| file.content.outstanding());
        contents.sum::<usize>() + self.directories.outstanding()
    }

    #[cfg(feature = "sim")]
    pub(super) fn used(&self) -> u64 {
        let used = self.files.values().filter(|file| file.names > 0 || file.handles > 0);
        used.map(|file| file.content.len() as u64).sum()
    }

    pub(super) fn damage(&mut self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let node = self.found(path)?;
        let file = self.files.get_mut(&node).ok_or(Errno::ISDIR)?;
        let there = usize::try_from(offset).is_ok_and(|offset| file.content.damage(offset, bit));
        if there { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// The parts of a path.
fn parts(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str().ok_or(Errno::ILSEQ)?),
            // Going up is never needed, and would require the directory before it to exist.
            Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL.into()),
        }
    }
    Ok(names)
}
