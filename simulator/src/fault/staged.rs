//! Faults of several steps, where each step waits for what the host has done since the one before.
//!
//! - Damage of the log must be noticed if the log itself says that the damaged place was synced: a later batch does. Otherwise it
//!   cannot be told from a torn write, and no log could notice it. So a bit flips only below what was durable before the log
//!   grew, and a host whose write was lost or misdirected does not crash until its log has grown. Then it crashes, for a log
//!   is read at the start. One fault aims at the moment when a segment gets a successor, whose first header is then all that
//!   says where the segment ends.
//! - A sync fails, the process ends, and soon after its restart the power is cut. In between, the bytes that the sync lost still
//!   read back: a process that trusts them loses them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use terrane_env::fs::Fault as DiskError;
use terrane_env::{rand, sim};

use super::draw::{Damage, SyncedFile};

type Host = &'static str;

/// How a batch of a log begins (docs/formats/log.md).
const BATCH: &[u8] = b"TRNLOG\0";

/// A fault that has begun and waits for its host.
pub enum Staged {
    Log(LogDamage),
    Sync(LostSync),
}

impl Staged {
    /// Whether its next step is due.
    pub fn is_due(&mut self) -> bool {
        match self {
            Staged::Log(damage) => damage.is_done(),
            Staged::Sync(lost) => lost.failed.get(),
        }
    }
}

/// Damage of the log of the victim.
pub struct LogDamage {
    pub host: Host,
    pub what: Damage,
    /// How long the host stays down once it crashes.
    pub lasts: Duration,
    segments: Segments,
    /// The damaged place, once there is one.
    pub place: Option<Place>,
}

/// A failed sync, and the crashes after it.
pub struct LostSync {
    pub host: Host,
    pub of: SyncedFile,
    pub kill: bool,
    /// From the failure to the power cut.
    pub lasts: Duration,
    failed: Rc<Cell<bool>>,
}

/// A damaged place of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub path: String,
    pub offset: u64,
}

impl Place {
    /// Whether the host still has it: a log removes what it no longer needs.
    pub fn is_there(&self, host: Host) -> bool {
        sim::durable_files(host).iter().any(|(path, length)| *path == self.path && *length > self.offset)
    }
}

impl LogDamage {
    pub fn begin(host: Host, what: Damage, lasts: Duration) -> LogDamage {
        sim::allow_exits(true);
        match what {
            Damage::LogMisdirectedWrite => sim::misdirect_write(host, is_segment),
            Damage::LogLostWrite => sim::lose_write(host, is_segment),
            _ => {}
        }
        LogDamage { host, what, lasts, segments: Segments::of(host), place: None }
    }

    /// Whether the damage is done and has to be noticed.
    fn is_done(&mut self) -> bool {
        match self.what {
            // A power cut may have left a torn batch as the first one, which says nothing.
            Damage::LogBitRot if self.segments.growths(self.host) > 1 => self.place = self.segments.damage(self.host),
            Damage::LogLostEnd => self.place = self.segments.lose_end(self.host),
            Damage::LogBitRot => {}
            _ => return self.is_miss_noticeable(),
        }
        self.place.is_some()
    }

    /// Whether a write has not reached its place and the log says that it was synced.
    fn is_miss_noticeable(&mut self) -> bool {
        let Some(place) = &self.place else {
            self.place = sim::missed_write(self.host).map(|(path, offset)| Place { path, offset });
            self.segments = Segments::of(self.host);
            // What becomes durable together with the missed write does not say that it was synced.
            self.segments.end =
                self.segments.end.take().max(self.place.as_ref().map(|at| (at.path.clone(), at.offset)));
            return false;
        };
        // The first batch of a segment and the next one become durable together.
        let needed = if place.offset == 0 { 2 } else { 1 };
        self.segments.growths(self.host) >= needed
    }

    /// Whether the host must not crash: nothing says yet that the lost bytes were synced.
    pub fn is_unnoticeable(&self) -> bool {
        self.place.is_some()
    }
}

impl LostSync {
    pub fn begin(host: Host, of: SyncedFile, kill: bool, lasts: Duration) -> LostSync {
        sim::allow_exits(true);
        let failed = Rc::new(Cell::new(false));
        let fails = failed.clone();
        sim::fail_disk(host, 0, 1, DiskError::Error, move |verb, path| {
            let matches = verb == "sync" && is_of(path, of);
            fails.set(fails.get() || matches);
            matches
        });
        LostSync { host, of, kill, lasts, failed }
    }
}

fn is_of(path: &str, file: SyncedFile) -> bool {
    match file {
        SyncedFile::Log => is_segment(path),
        SyncedFile::Manifest => path.ends_with("/MANIFEST"),
    }
}

fn is_segment(path: &str) -> bool {
    path.ends_with(".log") && path.contains("/log/")
}

/// The segments of a log: what was durable at some moment, and whether the log has grown since.
struct Segments {
    durable: BTreeMap<String, u64>,
    end: Option<(String, u64)>,
    growths: u32,
}

impl Segments {
    fn of(host: Host) -> Segments {
        let durable = durable_segments(host);
        let end = end_of(&durable);
        Segments { durable, end, growths: 0 }
    }

    /// How often the log was seen to have grown.
    fn growths(&mut self, host: Host) -> u32 {
        let end = end_of(&durable_segments(host));
        if end > self.end {
            self.end = end;
            self.growths += 1;
        }
        self.growths
    }

    /// As soon as what was the newest segment has a successor, whose first header says where it ends, its last batch is lost.
    fn lose_end(&mut self, host: Host) -> Option<Place> {
        let now = durable_segments(host);
        let newest = now.keys().next_back().filter(|newest| sim::durably_begins(host, newest, BATCH))?;
        let before = now.keys().nth_back(1).filter(|_| self.durable.keys().next_back() != Some(newest));
        self.durable.clone_from(&now);
        let path = before?;
        Some(Place { path: path.clone(), offset: sim::lose_end(host, path, BATCH)? })
    }

    /// Damages a byte that was durable at that moment: half of the time in what was the newest segment.
    fn damage(&self, host: Host) -> Option<Place> {
        let now = durable_segments(host);
        let left: Vec<_> = self.durable.iter().filter(|(path, _)| now.contains_key(*path)).collect();
        let newest = left.len().checked_sub(1)?;
        let chosen = if rand::range(0..2) == 0 { newest } else { rand::range(0..left.len() as u64) as usize };
        let (path, length) = left.get(chosen)?;
        let offset = sim::damage_below(host, path, **length)?;
        Some(Place { path: (*path).clone(), offset })
    }
}

fn durable_segments(host: Host) -> BTreeMap<String, u64> {
    sim::durable_files(host).into_iter().filter(|(path, length)| *length > 0 && is_segment(path)).collect()
}

/// The newest segment and its length. Segments sort by their names.
fn end_of(segments: &BTreeMap<String, u64>) -> Option<(String, u64)> {
    segments.last_key_value().map(|(path, length)| (path.clone(), *length))
}
