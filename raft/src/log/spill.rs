//! Copies entries that hold back old segments to held files (`held.rs`), so that the segments can be removed.
//!
//! Copying begins when all segments together exceed [`super::shared::Shared::spill_bytes`]. Regions that are merely slow to
//! flush do not reach that size: a group that still needs entries then waits for an absent member, or for a disk that fails
//! flushes.

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
use super::shared::{Change, Completion, Item, SpillRequest};

/// A held file smaller than this fraction of a segment is copied into the next one of its group.
const SMALL_PART: u64 = 4;
/// Pause after an attempt that freed nothing.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after a failed attempt.
const RETRY: Duration = Duration::from_secs(1);

/// Carries out requests to copy entries. Never returns.
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

/// Carries out one request; true if anything was copied.
async fn relieve(log: &Arc<SharedLog>, request: &SpillRequest) -> bool {
    let mut copied = false;
    for group in &request.groups {
        match spill(log, *group, request.before).await {
            Ok(more) => {
                copied |= more;
                log.shared.set_spill_trouble(None);
            }
            Err(error) => {
                let what = format!("cannot copy the entries that group {group} still needs out of old segments");
                log.shared.set_spill_trouble(Some(format!("{what}: {error}")));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
    copied
}

/// Like [`run`], once.
#[cfg(test)]
pub(super) async fn run_once(log: &Arc<SharedLog>) {
    let request = log.shared.spill_request.lock().take();
    if let Some(request) = request {
        relieve(log, &request).await;
    }
}

/// Copies the entries of one group in segments before `before`; true if there were any.
async fn spill(log: &Arc<SharedLog>, group: GroupId, before: u64) -> std::io::Result<bool> {
    let Some(of_group) = log.group(group) else { return Ok(false) };
    let mut copied = false;
    loop {
        // Copy the newest held file again if it is small, or a group that writes little would leave many tiny files.
        let small = log.files.held.lock().newest(group).filter(|newest| newest.bytes < log.segment_bytes / SMALL_PART);
        let small = small.map(|file| file.number);
        let entries = of_group.in_segments_before(before, small, log.segment_bytes);
        if entries.is_empty() {
            break;
        }
        let (files, from) = (log.files.clone(), of_group.clone());
        // One file at a time: each step occupies one of the few permits for blocking work.
        copied |= task::run_io(async move { copy(&files, &from, &entries, small).await }).await?;
    }
    if let Some(last) = of_group.last_held() {
        let (done, noted) = oneshot::channel();
        log.shared.push(Item { log: of_group, change: Change::Moved { before, last }, done: Completion::Waiter(done) });
        // An error means that the log was closed.
        noted.await.ok();
    }
    Ok(copied)
}

/// Copies entries and redirects reads to the copy; false if the entries were truncated meanwhile.
async fn copy(
    files: &Arc<Files>,
    log: &Arc<GroupLog>,
    entries: &[(u64, u64, Place)],
    small: Option<u64>,
) -> std::io::Result<bool> {
    let (file, moved) = held::copy(files, log.spec(), entries).await?;
    let relocated = log.relocate(&moved);
    let stale = if relocated { small } else { Some(file.number) };
    if let Some(number) = stale {
        held::remove(files, log.group(), number).await?;
    }
    // All entries may have been purged while they were copied; then nothing else would remove the file.
    if relocated && log.last_in(file.number).is_none() {
        held::remove(files, log.group(), file.number).await?;
    }
    Ok(relocated)
}
