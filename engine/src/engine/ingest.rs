//! Ingesting store files that were written elsewhere.
//!
//! [`StoreFileBuilder`](crate::StoreFileBuilder) writes a store file outside of any engine. [`Engine::ingest`] takes such files
//! into a region: each is verified in full, linked into the engine's directory, and named by one manifest record. Their cells
//! count as written by one mutation, with the sequence number that the region assigns; what is in memory is flushed before,
//! so that in level 0 they come after everything that was written before them.
//!
//! Like every change, an ingest is an entry of the region's log. The code that applies it calls this between two writes, on
//! every replica, and keeps the files until it is recorded: after a crash before that, the entry is applied again.

use std::path::PathBuf;
use std::sync::Arc;

use terrane_env::task;
use terrane_types::FamilyName;

use super::{BoxFuture, Engine};
use crate::Error;
use crate::backend::lsm::{self, LsmBackend};
use crate::levels::FileRef;
use crate::manifest::{FileRecord, Record};
use crate::point::DurablePoint;
use crate::region::Region;
use crate::store_file::id_of;

/// The directory in the engine's where files wait to be ingested.
pub(crate) const LOADING: &str = "loading";

/// A file to be ingested.
#[derive(Clone, Debug)]
pub struct IngestFile {
    /// The family whose cells it holds.
    pub family: FamilyName,
    /// Where it is: on the engine's own file system, under the name that [`StoreFileBuilder`](crate::StoreFileBuilder) gave
    /// it.
    pub path: PathBuf,
}

impl Engine {
    /// Where files are put that are to be ingested: the engine leaves it alone.
    #[must_use]
    pub fn loading_root(&self) -> PathBuf {
        self.dir.join(LOADING)
    }

    /// Whether this engine has store files, and so can ingest some.
    #[must_use]
    pub fn can_ingest(&self) -> bool {
        self.backend.lsm().is_some()
    }

    /// Takes files into a region, as of `point`: its sequence number, one above the region's last, becomes that of all their
    /// cells. Called between two writes by the code that applies the log, with everything before frozen under its own point.
    ///
    /// # Errors
    /// [`Error::NotIngested`] for a file that cannot be ingested, [`Error::Corruption`] for a damaged one, [`Error::Io`],
    /// [`Error::Retired`]. Nothing was ingested, and trying again is safe.
    pub fn ingest<'a>(
        self: &'a Arc<Self>,
        region: &'a Arc<Region>,
        files: Vec<IngestFile>,
        point: DurablePoint,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let (engine, region) = (Arc::clone(self), Arc::clone(region));
        Box::pin(task::run_to_end(async move { engine.ingest_here(&region, files, point).await }))
    }

    async fn ingest_here(
        &self,
        region: &Arc<Region>,
        files: Vec<IngestFile>,
        point: DurablePoint,
    ) -> Result<(), Error> {
        let Some(lsm) = self.backend.lsm() else {
            return Err(Error::NotIngested { file: PathBuf::new(), why: "this engine has no store files".to_owned() });
        };
        // What was written before goes below. Not under `point`: after a crash before the files are recorded, the region
        // would claim to have them, and the log would not bring them again.
        self.flush_here(region).await?;
        if region.unflushed_from().is_some() {
            let why = "earlier writes are not frozen".to_owned();
            return Err(Error::NotIngested { file: PathBuf::new(), why });
        }
        let mut made = Vec::with_capacity(files.len());
        let linked = async {
            for file in &files {
                made.push((file.family.clone(), link_verified(lsm, region, file, point.sequence).await?));
            }
            self.backend.sync(true).await
        };
        let linked = linked.await;
        let recorded = match linked {
            Ok(()) => self.record_ingest(region, &made, point).await,
            Err(error) => Err((error, Outcome::NotRecorded)),
        };
        let made: Vec<_> = made.into_iter().map(|(_, file)| file).collect();
        match recorded {
            Ok(()) => {
                self.release(&made);
                Ok(())
            }
            Err((error, Outcome::NotRecorded)) => {
                self.release(&made);
                Err(error)
            }
            Err((error, Outcome::InDoubt)) => {
                self.backend.in_doubt(&made);
                Err(error)
            }
        }
    }

    async fn record_ingest(
        &self,
        region: &Arc<Region>,
        made: &[(FamilyName, FileRef)],
        point: DurablePoint,
    ) -> Result<(), (Error, Outcome)> {
        let held = region.lock_record().await;
        let (families, mut files) = region.families_and_files().map_err(|error| (error, Outcome::NotRecorded))?;
        for (family, file) in made {
            files.entry(family.clone()).or_default().level0.push(file.clone());
        }
        let record = region.record(point.clone(), families, &files);
        self.append(Record::Region(record)).await.map_err(|error| (error, Outcome::InDoubt))?;
        region.install_ingested(&held, point, files);
        Ok(())
    }
}

/// What is known of a record after an error.
enum Outcome {
    NotRecorded,
    /// A restart may or may not find it.
    InDoubt,
}

/// Verifies a file and gives it a second name in the engine's directory.
async fn link_verified(lsm: &LsmBackend, region: &Region, file: &IngestFile, sequence: u64) -> Result<FileRef, Error> {
    let refused = |why: &str| Error::NotIngested { file: file.path.clone(), why: why.to_owned() };
    let origin = file.path.file_name().and_then(|name| id_of(name.to_str()?));
    let Some(origin) = origin else { return Err(refused("its name is not that of a store file")) };
    if !region.families().contains(&file.family) {
        return Err(refused("the region has no such family"));
    }
    let disk = lsm.shared.disk.clone();
    let id = lsm.files.allocate();
    let taken = async {
        lsm.files.link(&file.path, id).await?;
        let to = lsm.files.path_of(id);
        let length =
            task::run_io(async move { disk.file_len(&to).await.map_err(Error::io(format!("stat {}", to.display()))) });
        let size = length.await?;
        let source = lsm.family(region.table(), &file.family).file(id, origin, size, i64::MAX);
        let properties = lsm::checked(&source).await?;
        if properties.sequences != (0, 0) {
            return Err(refused("its cells have sequence numbers of their own"));
        }
        if !region.bounds().hold(&properties.first_row, &properties.last_row) {
            return Err(refused("it holds rows outside of the region"));
        }
        let record = FileRecord {
            id,
            size,
            bounds: region.bounds().clone(),
            sequences: (sequence, sequence),
            origin,
            ingested_at: sequence,
            ..lsm::record_of(&properties)
        };
        Ok(FileRef { record: Arc::new(record), source })
    };
    let taken = taken.await;
    if taken.is_err() {
        lsm.files.release(id);
    }
    taken
}
