//! Group 0's state machine: each operation is a catalog edit, each reply its outcome.
//!
//! Applying is pure and in memory. Apart from the log, only the checkpoint is written to disk, by a task of its own
//! ([`CatalogMachine::write_checkpoints`]): when the log needs to be purged, after many edits, and at shutdown.
//!
//! Invariants: the checkpoint at index `durable` is synced; entries at or below the applied index are skipped, so that
//! replaying the log over a checkpoint applies nothing twice.

mod copying;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use terrane_raft::{
    AppliedEntry, BoxFuture, Durable, Factory, GroupSpec, Packing, Prepared, Proposal, StagedCopy, StateCopy,
    StateMachine,
};
use terrane_types::versions::Levels;
use tokio::sync::{Notify, watch};

use crate::catalog::checkpoint::{Checkpoint, path_in};
use crate::catalog::{Catalog, CatalogEdit, Outcome, Refusal};

pub use self::copying::INCOMING;

/// Edits after which a checkpoint is written in any case, to bound what a restart replays.
const EDITS_PER_CHECKPOINT: u64 = 1_000;

/// The catalog as group 0's state machine.
pub struct CatalogMachine {
    /// The levels of clusters whose catalog this build can read.
    levels: Levels,
    dir: PathBuf,
    state: RwLock<Checkpoint>,
    /// The index of the last synced checkpoint.
    durable: AtomicU64,
    /// Notified when a checkpoint is needed.
    wanted: Notify,
    /// Incremented whenever waiting procedures and calls should look again.
    changes: watch::Sender<u64>,
    /// Held while a checkpoint is written, so that an older one never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
    last_error: Mutex<Option<String>>,
    /// For copies that are installed later.
    this: Weak<Self>,
}

impl CatalogMachine {
    /// The machine of a master that works at these levels, starting from a checkpoint.
    pub fn new(dir: PathBuf, checkpoint: Checkpoint, levels: Levels) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            levels,
            dir,
            durable: AtomicU64::new(checkpoint.applied),
            state: RwLock::new(checkpoint),
            wanted: Notify::new(),
            changes: watch::Sender::new(0),
            writing: tokio::sync::Mutex::new(()),
            last_error: Mutex::new(None),
        })
    }

    /// Reads the catalog. The closure must not wait: applying needs the lock.
    pub fn read<T>(&self, look: impl FnOnce(&Catalog) -> T) -> T {
        look(&self.state.read().catalog)
    }

    /// The index up to which the catalog has applied the log.
    pub fn applied(&self) -> u64 {
        self.state.read().applied
    }

    /// Changes with the catalog, and with calls of [`CatalogMachine::nudge`].
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Wakes everything that waits for changes, after observed state outside of the catalog has changed.
    pub fn nudge(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Why the last checkpoint could not be written; `None` if it was.
    pub fn checkpoint_issue(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Writes a checkpoint whenever one is needed; runs until dropped.
    pub async fn write_checkpoints(&self) {
        loop {
            self.wanted.notified().await;
            self.write_checkpoint().await;
        }
    }

    /// Writes the present catalog. A failure loses nothing, since the previous checkpoint and its log entries stay; it
    /// shows in `status`, and the next request for a checkpoint tries again.
    pub async fn write_checkpoint(&self) {
        let _writing = self.writing.lock().await;
        let (applied, bytes) = {
            let state = self.state.read();
            (state.applied, state.encode())
        };
        if applied == self.durable.load(Ordering::Acquire) {
            return;
        }
        let path = path_in(&self.dir);
        match terrane_env::fs::write_durable(&path, &bytes).await {
            Ok(()) => {
                let before = self.durable.swap(applied, Ordering::AcqRel);
                assert!(before < applied, "the checkpoint went back from index {before} to {applied}");
                *self.last_error.lock() = None;
            }
            Err(error) => {
                tracing::error!(%error, file = %path.display(), "cannot write the catalog's checkpoint");
                *self.last_error.lock() = Some(format!("cannot write {}: {error}", path.display()));
            }
        }
    }

    /// What a log contains above the levels of this build, it would not apply as the other masters do.
    fn check_level(&self, catalog: &Catalog) {
        if let Some(why) = self.levels.outgrown(catalog.level()) {
            terrane_env::task::abort_process(&format!("this master cannot continue: {why}"));
        }
    }

    fn apply_entry(state: &mut Checkpoint, entry: &AppliedEntry) -> Vec<Outcome> {
        if entry.index <= state.applied {
            return vec![Outcome::Done; entry.operations.len()];
        }
        (state.applied, state.stamp) = (entry.index, entry.stamp);
        let catalog = &mut state.catalog;
        entry.operations.iter().map(|operation| apply_operation(catalog, operation, entry.stamp)).collect()
    }
}

fn apply_operation(catalog: &mut Catalog, operation: &[u8], stamp: u64) -> Outcome {
    match CatalogEdit::decode(operation) {
        Ok(edit) => catalog.apply(&edit, stamp),
        // Every master refuses the same bytes, so that they stay equal; the proposer gets the reason.
        Err(error) => Outcome::Refused(Refusal::Invalid(error.to_string())),
    }
}

impl Proposal for CatalogEdit {
    fn bytes(&self) -> usize {
        // Edits are few: encoding one twice costs less than a second way to compute its size.
        self.encode().len()
    }
}

impl StateMachine for CatalogMachine {
    type Proposal = CatalogEdit;
    type Answer = Outcome;

    fn prepare(&self, _packing: &Packing, edit: &CatalogEdit, entry: &mut Vec<u8>) -> Prepared<Outcome> {
        entry.extend_from_slice(&edit.encode());
        Prepared::Packed
    }

    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<Outcome>>> {
        for (before, next) in entries.iter().zip(entries.iter().skip(1)) {
            let (before, next) = (before.index, next.index);
            assert!(before < next, "an entry of the catalog's log is out of order: index {next} follows {before}");
        }
        Box::pin(async move {
            let replies = {
                let mut state = self.state.write();
                let level = state.catalog.level();
                let masters = state.catalog.masters().clone();
                let replies = entries.iter().map(|entry| Self::apply_entry(&mut state, entry)).collect();
                if state.catalog.level() != level {
                    self.check_level(&state.catalog);
                    // A build that does not reach the level is refused by the checkpoint when it is started on this directory.
                    self.wanted.notify_one();
                }
                let edits = terrane_env::limit!("edits between two checkpoints", EDITS_PER_CHECKPOINT, 1..=16);
                // A start needs the addresses of the masters before it can have the log's entries confirmed.
                let is_due = *state.catalog.masters() != masters;
                if is_due || state.applied - self.durable.load(Ordering::Acquire) >= edits {
                    self.wanted.notify_one();
                }
                replies
            };
            self.nudge();
            replies
        })
    }

    fn durable(&self) -> Durable {
        let index = self.durable.load(Ordering::Acquire);
        let held_by = (index < self.applied()).then(|| "the catalog's checkpoint".to_owned());
        Durable { index, held_by }
    }

    fn relieve(&self, index: u64) {
        if index > self.durable.load(Ordering::Acquire) {
            self.wanted.notify_one();
        }
    }

    fn can_be_copied(&self) -> bool {
        true
    }

    fn copy(&self) -> BoxFuture<'_, Result<Arc<dyn StateCopy>, String>> {
        Box::pin(std::future::ready(Ok(self.copied())))
    }

    fn incoming_dir(&self) -> Option<PathBuf> {
        Some(self.dir.join(INCOMING))
    }

    fn incoming(&self, bytes: u64) -> BoxFuture<'_, Result<PathBuf, String>> {
        Box::pin(std::future::ready(self.room_for(bytes)))
    }

    fn stage<'a>(&'a self, dir: &'a Path, _index: u64) -> BoxFuture<'a, Result<Box<dyn StagedCopy>, String>> {
        Box::pin(async move {
            let machine = self.this.upgrade().ok_or("the catalog is being closed")?;
            machine.staged(dir).await
        })
    }
}

/// Provides the machine to group 0.
pub struct MasterFactory(pub Arc<CatalogMachine>);

impl Factory for MasterFactory {
    type Machine = CatalogMachine;

    fn open(&self, _spec: &GroupSpec) -> Arc<CatalogMachine> {
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use terrane_types::ServerId;

    use super::*;
    use crate::catalog::servers::Registration;

    fn add_server(address: &str) -> CatalogEdit {
        let (console, engine) = (String::new(), "memory".to_owned());
        CatalogEdit::AddServer(Registration { address: address.to_owned(), console, engine, zone: String::new() })
    }

    fn entry(index: u64, operations: &[&[u8]]) -> AppliedEntry {
        let operations = operations.iter().map(|operation| Bytes::copy_from_slice(operation)).collect();
        AppliedEntry { term: 1, index, stamp: index * 10, operations }
    }

    #[tokio::test]
    async fn replayed_entries_are_not_applied_twice() {
        let machine = CatalogMachine::new(PathBuf::new(), Checkpoint::default(), Levels::BUILD);
        let entries = [entry(4, &[&add_server("a:1").encode()]), entry(7, &[&add_server("b:1").encode()])];
        let replies = machine.apply(&entries).await;
        assert_eq!(replies[1][0], Outcome::Server(ServerId(2)));
        machine.apply(&entries).await;
        assert_eq!((machine.applied(), machine.read(|catalog| catalog.servers().iter().len())), (7, 2));
    }

    #[tokio::test]
    async fn an_edit_of_a_newer_build_is_refused() {
        let machine = CatalogMachine::new(PathBuf::new(), Checkpoint::default(), Levels::BUILD);
        let replies = machine.apply(&[entry(1, &[&[9, 1], &add_server("a:1").encode()])]).await;
        assert!(matches!(replies[0][0], Outcome::Refused(Refusal::Invalid(_))));
        assert_eq!(replies[0][1], Outcome::Server(ServerId(1)));
    }

    #[tokio::test]
    async fn only_a_synced_checkpoint_counts_as_durable() {
        let dir = tempfile::tempdir().unwrap();
        let machine = CatalogMachine::new(dir.path().to_owned(), Checkpoint::default(), Levels::BUILD);
        machine.apply(&[entry(5, &[&add_server("a:1").encode()])]).await;
        assert_eq!(machine.durable().index, 0);
        machine.write_checkpoint().await;
        assert_eq!(machine.durable(), Durable { index: 5, held_by: None });
        let loaded = Checkpoint::load(dir.path()).await.unwrap();
        assert_eq!((loaded.applied, loaded.stamp, loaded.catalog.servers().iter().len()), (5, 50, 1));
    }

    #[tokio::test]
    async fn a_copy_replaces_the_catalog_and_later_entries_follow() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = CatalogMachine::new(from.path().to_owned(), Checkpoint::default(), Levels::BUILD);
        source.apply(&[entry(5, &[&add_server("a:1").encode()]), entry(8, &[&add_server("b:1").encode()])]).await;
        let copy = source.copy().await.unwrap();
        let [file] = copy.files()[..] else { panic!("one file") };
        let bytes = copy.read(file.id, 0, usize::try_from(file.size).unwrap()).await.unwrap();

        let machine = CatalogMachine::new(to.path().to_owned(), Checkpoint::default(), Levels::BUILD);
        let dir = machine.incoming(file.size).await.unwrap();
        terrane_env::fs::create_dir_all(&dir).await.unwrap();
        let path = dir.join(terrane_raft::CopiedFile::name(file.id));
        terrane_env::fs::write_durable(&path, &bytes[..9]).await.unwrap();
        assert!(machine.stage(&dir, 5).await.is_err(), "it is cut");
        terrane_env::fs::write_durable(&path, &bytes).await.unwrap();
        // The copy is sent for entry 5 and has entry 8 already, which is then skipped.
        machine.stage(&dir, 5).await.unwrap().install(5).await.unwrap();
        assert_eq!(machine.durable().index, 8);
        machine.apply(&[entry(8, &[&add_server("b:1").encode()]), entry(9, &[&add_server("c:1").encode()])]).await;
        assert_eq!((machine.applied(), machine.read(|catalog| catalog.servers().iter().len())), (9, 3));
        let loaded = Checkpoint::load(to.path()).await.unwrap();
        assert_eq!((loaded.applied, loaded.catalog.servers().iter().len()), (8, 2));
    }

    #[tokio::test]
    async fn a_checkpoint_that_cannot_be_written_is_reported_and_not_durable() {
        let machine = CatalogMachine::new(PathBuf::from("/nowhere/at/all"), Checkpoint::default(), Levels::BUILD);
        machine.apply(&[entry(5, &[&add_server("a:1").encode()])]).await;
        machine.write_checkpoint().await;
        assert_eq!(machine.durable().index, 0);
        assert!(machine.checkpoint_issue().unwrap().contains("/nowhere/at/all"));
    }
}
