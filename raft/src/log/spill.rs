//! Copies entries that hold back old segments to held files (`held.rs`), so that the segments can go.
//!
//! It begins when the segments are together larger than [`super::shared::Shared::spill_bytes`], which regions that are slow to flush do
//! not reach: who needs entries for longer waits for a member that is away, or for a disk that refuses a flush.

use std::sync::Arc;
use std::time::Duration;

use terrane_env::task;
use terrane_types::GroupId;
use tokio::sync::oneshot;

use super::SharedLog;
use super::files::Files;
use super::held;
use super::memory::GroupLog;
use super::place::Place;
use super::shared::{Change, Done, Item, SpillRequest};

/// A held file smaller than this part of a segment is copied into the next one of its group.
const SMALL_PART: u64 = 4;
/// Rest after an attempt that freed nothing.
const PAUSE: Duration = Duration::from_millis(100);
/// Rest after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Copies what is in the way whenever something is. Never ends.
pub(crate) async fn run(log: Arc<SharedLog>) {
    loop {
        let request = log.shared.spill_request.lock().take();
        match request {
            None => log.shared.spill.notified().await,
            Some(request) if !relieve(&log, &request).await => tokio::time::sleep(PAUSE).await,
            Some(_) => {}
        }
    }
}

/// Copies what is in the way now; true when anything was.
async fn relieve(log: &Arc<SharedLog>, request: &SpillRequest) -> bool {
    let mut copied = false;
    for group in &request.groups {
        match spill(log, *group, request.before).await {
            Ok(more) => {
                copied |= more;
                log.shared.set_spill_trouble(None);
            }
            Err(error) => {
                let what = format!("entries that group {group} still needs could not be copied out of old segments");
                log.shared.set_spill_trouble(Some(format!("{what}: {error}")));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
    copied
}

/// As [`run`], once.
#[cfg(test)]
pub(super) async fn run_once(log: &Arc<SharedLog>) {
    let request = log.shared.spill_request.lock().take();
    if let Some(request) = request {
        relieve(log, &request).await;
    }
}

/// Copies the entries of one group in segments before `before`; true when there were any.
async fn spill(log: &Arc<SharedLog>, group: GroupId, before: u64) -> std::io::Result<bool> {
    let Some(of_group) = log.group(group) else { return Ok(false) };
    let mut copied = false;
    loop {
        // The last one again if it is small, or a group that writes little would leave a row of tiny files.
        let small = log.files.held.lock().newest(group).filter(|newest| newest.bytes < log.segment_bytes / SMALL_PART);
        let small = small.map(|file| file.number);
        let entries = of_group.in_the_way(before, small, log.segment_bytes);
        if entries.is_empty() {
            break;
        }
        let (files, from) = (log.files.clone(), of_group.clone());
        // A file at a time: it holds a place among those who may wait for the disk.
        copied |= task::run_io(async move { copy(&files, &from, &entries, small).await }).await?;
    }
    if let Some(last) = of_group.last_held() {
        let (done, noted) = oneshot::channel();
        log.shared.push(Item { log: of_group, change: Change::Moved { before, last }, done: Done::Waiter(done) });
        // An error says that the log was closed.
        noted.await.ok();
    }
    Ok(copied)
}

/// Copies, and has the entries read from the copy; false when they were truncated meanwhile.
async fn copy(
    files: &Arc<Files>,
    log: &Arc<GroupLog>,
    entries: &[(u64, u64, Place)],
    small: Option<u64>,
) -> std::io::Result<bool> {
    let (file, moved) = held::copy(files, log.group(), entries).await?;
    let relocated = log.relocate(&moved);
    let stale = if relocated { small } else { Some(file.number) };
    if let Some(number) = stale {
        held::remove(files, log.group(), number).await?;
    }
    // All of it may have been purged while it was copied; nothing else would remove the file then.
    if relocated && log.last_in(file.number).is_none() {
        held::remove(files, log.group(), file.number).await?;
    }
    Ok(relocated)
}
