//! Applies what entries say about the files of bulk loads.
//!
//! A load needs files that are not here by the log alone. They were built, verified and synced on a quorum before it was
//! proposed; a replica without them fetches them first ([`super::files`]), and applies nothing else meanwhile. The record of
//! the manifest is written before the entry counts as applied, so a restart finds all files in the region, and the number
//! of the load in its window, or applies the entry again.
//!
//! The entry has no other operation: everything written before it is frozen under the point of the entry before, and the
//! cells of the load come after all that.

use std::sync::Arc;

use terrane_engine::{DurablePoint, Error, IngestFile, StoreFileBuilder};
use terrane_env::task::abort_process;
use terrane_raft::{AppliedEntry, Packing, Prepared};
use tokio::time::Instant;

use super::files::Retry;
use super::regions::FULL_DISK_PATIENCE;
use super::{GroupMachine, Inner};
use crate::group::reply::Reply;
use crate::operation::Load;
use crate::replicas::hosted::HostedRegion;
use crate::staging::StagedFiles;
use crate::window::{Known, Window};

/// How a load ends before it begins, or how it goes on.
enum Begun {
    Refused(Reply),
    /// It took effect before, by this entry or an earlier one.
    IsHere,
    Comes(Arc<HostedRegion>),
}

impl GroupMachine {
    /// Packs a load, unless it is refused or was applied before. It is packed alone, so nothing is in flight.
    pub(super) fn prepare_load(&self, packing: &Packing, load: &Load, entry: &mut Vec<u8>) -> Prepared<Reply> {
        if load.first_try_ms > packing.stamp {
            // A number from the future would, once its client is dropped from the window, pass for a new one.
            return Prepared::Later;
        }
        match self.inner.lock().begin_load(load) {
            Begun::Refused(reply) => return Prepared::Refused(reply),
            Begun::IsHere => return Prepared::Refused(Reply::Applied { stamp: packing.stamp }),
            Begun::Comes(_) => {}
        }
        self.packed_alone(|entry| load.encode(entry), entry)
    }

    /// Whether a load took effect, as far as it is applied here.
    pub fn has_load(&self, load: &Load) -> bool {
        let inner = self.inner.lock();
        matches!(known(inner.windows.get(&load.region), load), Known::Applied(_))
    }

    /// Whether the files of a load are to be ingested now.
    pub(super) fn loads_now(&self, entry: &AppliedEntry, load: &Load) -> bool {
        matches!(self.inner.lock().begin_load_at(entry, load), Begun::Comes(_))
    }

    /// Ingests the files of a load, or says why not. The boundary is held. `began`: when the entry was first tried.
    pub(super) async fn ingest(
        &self,
        entry: &AppliedEntry,
        load: &Load,
        files: StagedFiles,
        began: Instant,
    ) -> Result<Reply, Retry> {
        let applied = Reply::Applied { stamp: entry.stamp };
        let begun = self.inner.lock().begin_load_at(entry, load);
        let (hosted, dir) = match (begun, files) {
            (Begun::Comes(hosted), StagedFiles::Load(dir)) => (hosted, dir),
            (Begun::Comes(_), _) => return Err(Retry),
            (Begun::IsHere, _) => return Ok(applied),
            (Begun::Refused(reply), _) => return Ok(reply),
        };
        // Between two entries: the boundary is held.
        self.freeze(load.region);
        let (point, window) = self.inner.lock().point_with(self, entry, &hosted, load);
        let path = |number| dir.join(StoreFileBuilder::file_name(number));
        let ingest = load.files.iter().map(|file| IngestFile { family: file.family.clone(), path: path(file.number) });
        let mut files: Vec<IngestFile> = ingest.collect();
        if terrane_env::planted!("a replica skips the files of a load") {
            files.clear();
        }
        match self.engine.ingest(&hosted.engine, files, point).await {
            Ok(()) => {
                self.loaded(entry, &hosted, load, window);
                if terrane_env::planted!("the files of a load go once they are taken in") {
                    self.staging.discard(load.staging).await;
                }
                Ok(applied)
            }
            // The files are the same everywhere, so every replica comes to this.
            Err(Error::NotIngested { why, .. }) => {
                Ok(Reply::Invalid { what: format!("the files cannot be taken into the region: {why}") })
            }
            Err(Error::Corruption { file, offset, .. }) => {
                let file = file.display();
                tracing::warn!(region = %load.region, %file, offset, "a file of a load is damaged; all are fetched again");
                self.staging.discard(load.staging).await;
                Err(Retry)
            }
            Err(error) if error.is_disk_full() && began.elapsed() <= FULL_DISK_PATIENCE => Err(Retry),
            Err(error) => {
                abort_process(&format!("cannot take the files of a load into region {}: {error}", load.region));
            }
        }
    }

    fn loaded(&self, entry: &AppliedEntry, hosted: &HostedRegion, load: &Load, window: Window) {
        hosted.engine.advance(entry.stamp);
        hosted.set_in_manifest(true);
        self.inner.lock().windows.insert(load.region, window);
        self.metrics.loads.inc();
        self.metrics.load_bytes.inc_by(load.file_bytes());
        self.signals.request_compaction();
    }
}

impl Inner {
    /// As [`Self::begin_load`], unless the region is on disk as it was after this entry.
    fn begin_load_at(&self, entry: &AppliedEntry, load: &Load) -> Begun {
        match self.hosted.get(&load.region) {
            Some(hosted) if entry.index <= hosted.opened_at => Begun::IsHere,
            _ => self.begin_load(load),
        }
    }

    /// Checks a load against the state as it is applied here. Only what may have changed since the edge is checked again:
    /// region, epoch, whether the table takes writes, and families if it was altered.
    fn begin_load(&self, load: &Load) -> Begun {
        let Some(region) = self.state.region(load.region) else {
            return Begun::Refused(self.state.stale(load.region));
        };
        if let Err(refusal) = region.check_write(load.epoch) {
            return Begun::Refused(refusal);
        }
        match known(self.windows.get(&load.region), load) {
            Known::New => {}
            _ if terrane_env::planted!("a load is taken in again") => {}
            Known::Applied(_) => return Begun::IsHere,
            Known::TooOld => return Begun::Refused(Reply::Forgotten),
        }
        let is_gone = |family: &[u8]| region.schema.family(family).is_none();
        if load.schema_version != region.schema.version && load.files.iter().any(|file| is_gone(file.family.as_bytes()))
        {
            let (table, version) = (region.schema.table, region.schema.version);
            return Begun::Refused(Reply::SchemaChanged { table, version });
        }
        match self.hosted.get(&load.region) {
            Some(hosted) => Begun::Comes(hosted.clone()),
            None => Begun::Refused(self.state.stale(load.region)),
        }
    }

    /// The region's durable point with a load, and the window that it has.
    fn point_with(
        &self,
        machine: &GroupMachine,
        entry: &AppliedEntry,
        hosted: &HostedRegion,
        load: &Load,
    ) -> (DurablePoint, Window) {
        let mut window = self.windows.get(&load.region).cloned().unwrap_or_default();
        window.update(load.client, load.lowest_unsettled, entry.stamp).applied(load.operation(), None);
        let descriptor = self.state.region(load.region).map(super::RegionState::encode).unwrap_or_default();
        let point = DurablePoint {
            group: machine.group,
            index: entry.index,
            sequence: hosted.engine.sequence() + 1,
            stamp: entry.stamp.max(self.stamp),
            descriptor,
            window: window.encode(),
        };
        (point, window)
    }
}

/// What a window knows of a load: it took effect if any load that it was cut from did.
fn known(window: Option<&Window>, load: &Load) -> Known {
    let Some(window) = window else { return Known::New };
    let mut known = Known::New;
    for operation in &load.operations {
        match window.look_up(&load.client, *operation, load.first_try_ms) {
            Known::New => {}
            Known::TooOld => known = Known::TooOld,
            applied @ Known::Applied(_) => return applied,
        }
    }
    known
}
