//! Verifies the data directory of a stopped master: identity, catalog checkpoint and log, and that they fit together.

use std::path::Path;

use terrane_env::fs;
use terrane_raft::LoggedGroup;
use terrane_types::{GroupId, Inspection};

use crate::catalog::checkpoint::{self, Checkpoint, CheckpointError};
use crate::machine::INCOMING;
use crate::masters::rebuild;
use crate::server::identity::{self, Identity};

const CATALOG: &str = "catalog";
const LOG: &str = "log";
/// The file of the directory's lock; its content has no meaning.
const LOCK: &str = "LOCK";

/// Whether this is the data directory of a master, damaged or not.
///
/// # Errors
/// The system's error.
pub async fn is_data_directory(directory: &Path) -> std::io::Result<bool> {
    Ok(fs::exists(&directory.join(identity::NAME)).await? || fs::exists(&directory.join(CATALOG)).await?)
}

/// Verifies the data directory. The caller holds its lock.
pub async fn check(directory: &Path, inspection: &mut Inspection) {
    let path = directory.join(identity::NAME);
    let identity = Identity::look(directory).await;
    match &identity {
        Ok(_) => inspection.looks_at("identity", &path, fs::file_len(&path).await.unwrap_or_default()),
        Err(error) => inspection.damage(&path, 0, error.to_string()),
    }
    let names = match fs::list(directory).await {
        Ok(names) => names,
        Err(error) => return inspection.damage(directory, 0, format!("the directory cannot be read: {error}")),
    };
    let mut catalog = None;
    let mut logged = None;
    for name in &names {
        let path = directory.join(name);
        match name.as_str() {
            LOCK | identity::NAME => {}
            CATALOG => catalog = check_catalog(&path, inspection).await,
            LOG => logged = terrane_raft::check_log(&path, inspection).await,
            _ => inspection.warning(&path, 0, "not a file of a master"),
        }
    }
    for missing in [CATALOG, LOG].into_iter().filter(|part| !names.iter().any(|name| name == part)) {
        inspection.damage(&directory.join(missing), 0, "it is missing");
    }
    let Some(catalog) = catalog else { return };
    if let (Ok(identity), Some(bootstrap)) = (&identity, catalog.catalog.bootstrap())
        && bootstrap.cluster != identity.cluster
    {
        let what = format!("it names cluster {}, the catalog cluster {}", identity.cluster, bootstrap.cluster);
        inspection.damage(&path, 0, what);
    }
    // The checkpoint must include the purged entries.
    let purged = logged.and_then(|groups| groups.get(&GroupId::MASTER).and_then(|LoggedGroup { purged, .. }| *purged));
    if let Some(purged) = purged.filter(|purged| *purged > catalog.applied) {
        let what = format!(
            "entries up to {purged} are purged, but the checkpoint only includes entries up to {}",
            catalog.applied
        );
        inspection.damage(&directory.join(LOG), 0, what);
    }
}

/// The checkpoint, or an empty catalog if there is none; `None` if it is damaged.
async fn check_catalog(directory: &Path, inspection: &mut Inspection) -> Option<Checkpoint> {
    let path = checkpoint::path_in(directory);
    match fs::list(directory).await {
        Ok(names) => {
            let others = names
                .iter()
                .filter(|name| name.as_str() != INCOMING && name.as_str() != rebuild::NAME)
                .map(|name| directory.join(name));
            for other in others.filter(|other| *other != path) {
                inspection.warning(&other, 0, "not a file of the catalog");
            }
        }
        Err(error) => inspection.damage(directory, 0, format!("the directory cannot be read: {error}")),
    }
    // There is no file before the first checkpoint.
    if let Ok(bytes) = fs::file_len(&path).await {
        inspection.looks_at("catalog", &path, bytes);
    }
    match Checkpoint::load(directory).await {
        Ok(checkpoint) => Some(checkpoint),
        Err(CheckpointError::Damage { what, .. }) => {
            inspection.damage(&path, 0, what);
            None
        }
        Err(CheckpointError::Io { source, .. }) => {
            inspection.damage(&path, 0, format!("the checkpoint cannot be read: {source}"));
            None
        }
    }
}
