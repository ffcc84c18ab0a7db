//! The content of a file: the visible bytes, the durable ones (on the platter), and the changes between the two.
//!
//! Invariant: replaying the changes that no failed sync has dropped over the durable bytes gives what a sync makes durable.

use super::Tear;
use super::chance::Chance;

/// The bytes of one file.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The visible bytes: the page cache over the platter.
    cached: Vec<u8>,
    durable: Vec<u8>,
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
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes: written } => overwrite(bytes, *offset, written),
            Change::Length(length) => bytes.resize(*length, 0),
        }
    }
}

impl Content {
    /// A file that has been on the platter all along.
    pub(super) fn durable(bytes: Vec<u8>) -> Content {
        Content { cached: bytes.clone(), durable: bytes, unsynced: Vec::new() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.cached
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
        let Some(byte) = self.cached.get_mut(offset) else { return false };
        *byte ^= mask;
        if let Some(byte) = self.durable.get_mut(offset) {
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

    /// Overwrites what lies within the durable content, in the visible bytes too.
    #[cfg(feature = "sim")]
    pub(super) fn overwrite_durably(&mut self, offset: usize, bytes: &[u8]) {
        for content in [&mut self.durable, &mut self.cached] {
            if let Some(place) = content.get_mut(offset..) {
                let length = place.len().min(bytes.len());
                place[..length].copy_from_slice(&bytes[..length]);
            }
        }
    }

    #[cfg(feature = "sim")]
    pub(super) fn durable_length(&self) -> usize {
        self.durable.len().min(self.cached.len())
    }

    /// The number of changes that a crash may lose.
    #[cfg(feature = "sim")]
    pub(super) fn outstanding(&self) -> usize {
        self.unsynced.len()
    }

    /// The content after a crash, if a name still leads to the file.
    pub(super) fn after_crash(&self, tear: Tear, chance: &mut Chance) -> Vec<u8> {
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

    fn cut_short(&self, bytes: &mut Vec<u8>, chance: &mut Chance) {
        let whole = chance.below(self.unsynced.len() + 1);
        for unsynced in &self.unsynced[..whole] {
            unsynced.change.apply(bytes);
        }
        if let Some(next) = self.unsynced.get(whole) {
            tear_one(&next.change, bytes, chance);
        }
    }

    fn scatter(&self, bytes: &mut Vec<u8>, chance: &mut Chance) {
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
fn tear_one(change: &Change, bytes: &mut Vec<u8>, chance: &mut Chance) {
    let Change::Write { offset, bytes: written } = change else { return };
    let kept = chance.below(written.len());
    overwrite(bytes, *offset, &written[..kept]);
    let end = offset + written.len();
    if chance.in_eight(4) && bytes.len() < end {
        bytes.resize(end, 0);
    }
}

/// Writes into `bytes`, extending it with zeros up to `offset` where needed.
fn overwrite(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    let end = offset + written.len();
    if bytes.len() < end && !written.is_empty() {
        bytes.resize(end, 0);
    }
    if let Some(place) = bytes.get_mut(offset..end) {
        place.copy_from_slice(written);
    }
}
