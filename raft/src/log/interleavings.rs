//! What the log's callers and its writer share, for tests of their interleavings (docs/testing.md). Built with the
//! feature `interleave` only.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]

use std::sync::Arc;

use terrane_env::fs::{Disk, MemoryDisk};
use terrane_env::interleave::{block_on, spawn};
use terrane_types::{GroupId, ReplicaId};
use tokio::sync::oneshot;

use super::files::Files;
use super::memory::{Appended, GroupLog, Source};
use super::place::Place;
use super::record::Mark;
use super::shared::{Change, Completion, Item, Shared};
use crate::proposals::entry::Sequence;
use crate::types::{Entry, Payload, StoredMembership, log_id, term_of};
use crate::{GroupSpec, LogConfig};

fn group_log() -> Arc<GroupLog> {
    let spec = GroupSpec { group: GroupId(1), replica: ReplicaId(1), members: [].into() };
    Arc::new(GroupLog::new(spec, Arc::new(Files::new(Disk::os(), "no directory".into()))))
}

fn blank(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: Payload::Blank }
}

/// Appends of two callers go through the queue, which holds about two of them. The writer gets all, each caller's in their
/// order, and then the end. While the writer waits for space, it is told to look again. With `abandons` it gives up after the
/// first batch instead, and no caller waits for it.
pub fn callers_and_writer_share_a_queue(abandons: bool) {
    const APPENDS: u64 = 3;
    let shared = Arc::new(Shared::new(&LogConfig::default()));
    let writing = spawn({
        let shared = Arc::clone(&shared);
        move || {
            let (mut written, mut looks) = (Vec::new(), 0);
            while let Some(items) = block_on(shared.next_items()) {
                looks += usize::from(items.is_empty());
                for item in items {
                    let Change::Entries(appended, _) = &item.change else { panic!("only entries are queued") };
                    written.push((appended.first_serial, appended.first_index));
                    item.done.report();
                }
                if abandons {
                    shared.abandon();
                    break;
                }
            }
            (written, looks)
        }
    });
    let callers = [1, 2].map(|caller| {
        let shared = Arc::clone(&shared);
        spawn(move || {
            let log = group_log();
            let waiting = (0..APPENDS).map(|index| {
                block_on(shared.wait_for_queue());
                let (done, synced) = oneshot::channel();
                let appended = Appended { first_index: index, first_serial: caller };
                let change = Change::Entries(appended, vec![blank(1, index)]);
                shared.push(Item { log: Arc::clone(&log), change, done: Completion::Waiter(done) });
                synced
            });
            let waiting: Vec<_> = waiting.collect();
            waiting.into_iter().map(block_on).filter(Result::is_ok).count()
        })
    });
    shared.retry_allocation();
    let reported: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    shared.close();
    let (written, looks) = writing.join().unwrap();
    assert_eq!(written.len(), reported.iter().sum::<usize>(), "what was written is reported, and nothing else");
    for caller in [1, 2] {
        let of_caller: Vec<_> = written.iter().filter(|(by, _)| *by == caller).map(|(_, index)| *index).collect();
        assert!(of_caller.is_sorted(), "the appends of caller {caller} were written in the order {of_caller:?}");
    }
    if !abandons {
        assert_eq!(reported, [3, 3]);
        assert!(looks > 0, "the writer was never told to look for space again");
    }
}

/// The log of a group is appended to, truncated, filled again and purged while the writer reports the places of what it has
/// written and evicts payloads. A reader finds each entry at its own place or in memory, and no gap.
pub fn a_log_is_truncated_while_its_writer_reports_places() {
    let log = group_log();
    let (queue, queued) = (Arc::new(Shared::new(&LogConfig::default())), log.clone());
    let append = |term: u64, indexes: std::ops::RangeInclusive<u64>| {
        let entries: Vec<_> = indexes.map(|index| blank(term, index)).collect();
        let appended = queued.append(&entries);
        queue.push(Item {
            log: queued.clone(),
            change: Change::Entries(appended, entries),
            done: Completion::Unobserved,
        });
    };
    let writing = spawn({
        let (queue, log) = (Arc::clone(&queue), log.clone());
        move || {
            while let Some(items) = block_on(queue.next_items()) {
                for item in items {
                    let Change::Entries(appended, entries) = item.change else { continue };
                    let places: Vec<_> = entries.iter().map(place_of).collect();
                    log.placed(appended, &places);
                    log.evict(appended.first_index, appended.first_serial);
                }
            }
        }
    });
    let reading = spawn({
        let log = log.clone();
        move || (0..3).for_each(|_| check_places(&log))
    });
    append(1, 0..=2);
    append(1, 3..=4);
    log.truncate_after(Some(1));
    append(2, 2..=3);
    log.offer(Mark { log_id: log_id(1, 1), membership: StoredMembership::default(), sequence: Sequence::default() });
    log.purge(&log_id(1, 1)).unwrap();
    log.truncate_after(Some(2));
    append(3, 3..=5);
    reading.join().unwrap();
    queue.close();
    writing.join().unwrap();
    check_places(&log);
    let terms: Vec<_> = log.locate(0..10, usize::MAX).iter().map(|(id, _)| (term_of(id), id.index)).collect();
    assert_eq!(terms, [(2, 2), (3, 3), (3, 4), (3, 5)]);
    assert_eq!(log.bytes(), 4 * u64::from(LENGTH), "every entry has a place");
}

const LENGTH: u32 = 10;

/// A place that says whose it is.
fn place_of(entry: &Entry) -> Place {
    Place { segment: 1, offset: term_of(&entry.log_id) * 1_000 + entry.log_id.index, length: LENGTH }
}

fn check_places(log: &GroupLog) {
    let mut next = None;
    for (id, source) in log.locate(0..10, usize::MAX) {
        assert_eq!(next.unwrap_or(id.index), id.index, "entries are missing");
        next = Some(id.index + 1);
        if let Source::Disk(place) = source {
            assert_eq!(place, place_of(&blank(term_of(&id), id.index)), "the place of {id} is another entry's");
        }
    }
}

/// A segment is removed while it is read. Afterwards the log has no handle of it, which would keep its space.
pub fn a_segment_is_removed_while_it_is_read() {
    const SEGMENT: u64 = 1;
    let disk = Disk::from(&MemoryDisk::new());
    let files = Arc::new(Files::new(disk.clone(), "/".into()));
    let path = files.path(SEGMENT);
    block_on(async {
        let file = disk.create_new(&path).await.unwrap();
        file.write_all_at(&[7; 8], 0).await.unwrap();
    });
    let reading = spawn({
        let files = Arc::clone(&files);
        move || {
            let place = Place { segment: SEGMENT, offset: 0, length: 8 };
            // It is there, or it is not.
            if let Ok(bytes) = block_on(files.read(place)) {
                assert_eq!(bytes.as_ref(), [7; 8]);
            }
        }
    });
    block_on(disk.remove_file(&path)).unwrap();
    files.forget(SEGMENT);
    reading.join().unwrap();
    assert!(!files.is_open(SEGMENT), "a removed segment stays open");
}
