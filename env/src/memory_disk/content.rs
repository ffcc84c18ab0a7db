//! The content of a file: the visible bytes, the durable ones (on the platter), and the changes between the two.
//!
//! Invariant: replaying the changes that no failed sync has dropped over the durable bytes gives what a sync makes durable.

use super::Tear;
use super::chance::SplitMix64;

/// The bytes of one file.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The visible bytes: the page cache over the platter.
    cached: Extent,
    durable: Extent,
    /// In order.
    unsynced: Vec<Unsynced>,
}

#[derive(Debug)]
struct Unsynced {
    change: Change,
    /// A sync failed while it was outstanding: the kernel marked its pages clean, so no later sync writes them.
    dropped: bool,
}

#[derive(Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, extent: &mut Extent) {
        match self {
            Change::Write { offset, bytes } => extent.write(*offset, bytes),
            Change::Length(length) => extent.set_len(*length),
        }
    }
}

impl Content {
    /// A file that has been on the platter all along.
    pub(super) fn durable(durable: Extent) -> Content {
        Content { cached: durable.clone(), durable, unsynced: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.cached.length
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.cached.length];
        bytes[..self.cached.written.len()].copy_from_slice(&self.cached.written);
        bytes
    }

    /// Fills the buffer from `offset`; false if the file is shorter.
    pub(super) fn read(&self, offset: usize, buffer: &mut [u8]) -> bool {
        let inside = offset.checked_add(buffer.len()).is_some_and(|end| end <= self.cached.length);
        if inside {
            self.cached.read(offset, buffer);
        }
        inside
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        // An empty write does not extend a file, whatever its offset.
        if !bytes.is_empty() {
            self.change(Change::Write { offset, bytes: bytes.to_vec() });
        }
    }

    pub(super) fn set_len(&mut self, length: usize) {
        self.change(Change::Length(length));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.unsynced.push(Unsynced { change, dropped: false });
    }

    pub(super) fn sync(&mut self) {
        for Unsynced { change, dropped } in self.unsynced.drain(..) {
            if !dropped {
                change.apply(&mut self.durable);
            }
        }
    }

    /// A failed sync: outstanding changes still read back, but will never be durable.
    pub(super) fn fail_sync(&mut self) {
        for unsynced in &mut self.unsynced {
            unsynced.dropped = true;
        }
    }

    /// Flips a bit in every copy of the byte; false if the file has no such byte.
    pub(super) fn damage(&mut self, offset: usize, bit: u8) -> bool {
        let mask = 1 << (bit % 8);
        let Some(byte) = self.cached.byte_mut(offset) else { return false };
        *byte ^= mask;
        if let Some(byte) = self.durable.byte_mut(offset) {
            *byte ^= mask;
        }
        for unsynced in &mut self.unsynced {
            if let Change::Write { offset: start, bytes } = &mut unsynced.change
                && let Some(byte) = offset.checked_sub(*start).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
        true
    }

    /// Whether the durable content begins with these bytes.
    #[cfg(feature = "sim")]
    pub(super) fn durably_begins(&self, with: &[u8]) -> bool {
        self.durable.written.starts_with(with)
    }

    /// Durably turns everything into zeros from the last place on that begins with these bytes. Returns where that is.
    #[cfg(feature = "sim")]
    pub(super) fn lose_end(&mut self, from_last: &[u8]) -> Option<u64> {
        let written = &self.durable.written;
        let offset = written.windows(from_last.len()).rposition(|bytes| bytes == from_last)?;
        self.overwrite_durably(offset, &vec![0; written.len() - offset]);
        Some(offset as u64)
    }

    /// Overwrites what lies within the durable content, in the visible bytes too.
    #[cfg(feature = "sim")]
    pub(super) fn overwrite_durably(&mut self, offset: usize, bytes: &[u8]) {
        for extent in [&mut self.durable, &mut self.cached] {
            let length = extent.length.saturating_sub(offset).min(bytes.len());
            extent.write(offset, &bytes[..length]);
        }
    }

    /// Without zeros that were only reserved.
    #[cfg(feature = "sim")]
    pub(super) fn durable_length(&self) -> usize {
        self.durable.written.len().min(self.cached.length)
    }

    /// The number of changes that a crash may lose.
    #[cfg(feature = "sim")]
    pub(super) fn outstanding(&self) -> usize {
        self.unsynced.len()
    }

    /// The content after a crash, if a name still leads to the file.
    pub(super) fn after_crash(&self, tear: Tear, chance: &mut SplitMix64) -> Extent {
        let mut bytes = self.durable.clone();
        match tear {
            Tear::Lost => {}
            Tear::Kept => self.unsynced.iter().for_each(|unsynced| unsynced.change.apply(&mut bytes)),
            // Half of the files come back as if written from front to back up to some moment, as appending mostly does; the
            // other half with each change surviving on its own, as write-back page by page may do.
            Tear::Random(_) if chance.in_eight(4) => self.cut_short(&mut bytes, chance),
            Tear::Random(_) => self.scatter(&mut bytes, chance),
        }
        bytes
    }

    fn cut_short(&self, bytes: &mut Extent, chance: &mut SplitMix64) {
        let whole = chance.below(self.unsynced.len() + 1);
        for unsynced in &self.unsynced[..whole] {
            unsynced.change.apply(bytes);
        }
        if let Some(next) = self.unsynced.get(whole) {
            tear_one(&next.change, bytes, chance);
        }
    }

    fn scatter(&self, bytes: &mut Extent, chance: &mut SplitMix64) {
        for unsynced in &self.unsynced {
            match chance.below(4) {
                0 | 1 => unsynced.change.apply(bytes),
                2 => tear_one(&unsynced.change, bytes, chance),
                _ => {}
            }
        }
    }
}

/// A torn change: a prefix of a write, in half of the cases with the length of the whole write, because the length is
/// metadata and may be durable before the bytes. A change of length cannot tear, so it is lost.
fn tear_one(change: &Change, extent: &mut Extent, chance: &mut SplitMix64) {
    let Change::Write { offset, bytes } = change else { return };
    let kept = chance.below(bytes.len());
    extent.write(*offset, &bytes[..kept]);
    let end = offset + bytes.len();
    if chance.in_eight(4) && extent.length < end {
        extent.set_len(end);
    }
}

/// Bytes of a file. What is not written is zeros and takes no memory, because logs reserve many megabytes ahead.
#[derive(Clone, Debug, Default)]
pub(super) struct Extent {
    /// The bytes up to the last one ever written. Never longer than `length`.
    written: Vec<u8>,
    length: usize,
}

impl Extent {
    fn set_len(&mut self, length: usize) {
        self.length = length;
        self.written.truncate(length);
    }

    /// Extends the file where needed. An empty write does not, whatever its offset.
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return;
        }
        self.length = self.length.max(end);
        if self.written.len() < offset {
            self.written.resize(offset, 0);
        }
        let overlap = (self.written.len() - offset).min(bytes.len());
        self.written[offset..offset + overlap].copy_from_slice(&bytes[..overlap]);
        self.written.extend_from_slice(&bytes[overlap..]);
    }

    /// The range must be inside.
    fn read(&self, offset: usize, buffer: &mut [u8]) {
        let written = self.written.get(offset..).unwrap_or_default();
        let overlap = written.len().min(buffer.len());
        buffer[..overlap].copy_from_slice(&written[..overlap]);
        buffer[overlap..].fill(0);
    }

    fn byte_mut(&mut self, offset: usize) -> Option<&mut u8> {
        if offset < self.length && self.written.len() <= offset {
            self.written.resize(offset + 1, 0);
        }
        self.written.get_mut(offset)
    }
}
