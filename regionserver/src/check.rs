//! Verifies the data directory of a stopped region server: identity, engine, log, and that they fit together.

use std::collections::BTreeMap;
use std::path::Path;

use terrane_engine::Recorded;
use terrane_env::fs;
use terrane_raft::LoggedGroup;
use terrane_types::{GroupId, Inspection};

use crate::masters::addresses;
use crate::server::identity::{self, Identity};

const ENGINE: &str = "engine";
const LOG: &str = "log";
/// The lock file of the directory. Its content does not matter.
const LOCK: &str = "LOCK";

/// Whether this is the data directory of a region server, even a damaged one.
///
/// # Errors
/// Errors of the file system.
pub async fn is_data_directory(directory: &Path) -> std::io::Result<bool> {
    Ok(fs::exists(&directory.join(identity::NAME)).await? || fs::exists(&directory.join(ENGINE)).await?)
}

/// Verifies every relevant byte in the data directory. The caller holds its lock.
pub async fn check(directory: &Path, inspection: &mut Inspection) {
    let path = directory.join(identity::NAME);
    let identity = Identity::look(directory).await;
    match &identity {
        Ok(_) => inspection.looks_at("identity", &path, fs::file_len(&path).await.unwrap_or_default()),
        Err(error) => inspection.damage(&path, 0, error.to_string()),
    }
    let mut recorded = None;
    let mut logged = None;
    let names = match fs::list(directory).await {
        Ok(names) => names,
        Err(error) => return inspection.damage(directory, 0, format!("cannot read the directory: {error}")),
    };
    for name in &names {
        let path = directory.join(name);
        match name.as_str() {
            LOCK | identity::NAME => {}
            addresses::NAME => check_addresses(&path, inspection).await,
            ENGINE => recorded = terrane_engine::check(&path, inspection).await,
            LOG => logged = terrane_raft::check_log(&path, inspection).await,
            _ => inspection.warning(&path, 0, "this file does not belong to a region server"),
        }
    }
    let is_there = |name: &str| names.iter().any(|there| there == name);
    if is_there(LOG) && !is_there(ENGINE) {
        inspection.damage(&directory.join(ENGINE), 0, "the engine's directory is missing");
    }
    if let Some(recorded) = &recorded {
        let damages_before = inspection.damages();
        if let Ok(identity) = &identity
            && !recorded.engine.is_empty()
            && recorded.engine != identity.engine
        {
            let what = format!("it names engine {}, and the manifest names {}", identity.engine, recorded.engine);
            inspection.damage(&path, 0, what);
        }
        if !recorded.regions.is_empty() && !is_there(LOG) {
            inspection.damage(&directory.join(LOG), 0, "the log is missing");
        }
        if let Some(logged) = &logged
            && inspection.damages() == damages_before
        {
            compare(directory, recorded, logged, inspection);
        }
    }
}

async fn check_addresses(path: &Path, inspection: &mut Inspection) {
    match fs::read(path).await {
        Ok(bytes) => {
            inspection.looks_at("addresses", path, bytes.len() as u64);
            if let Err(what) = addresses::decode(&bytes) {
                inspection.damage(
                    path,
                    0,
                    format!("{what}; remove it, and a master or the peers will send the addresses"),
                );
            }
        }
        Err(error) => inspection.damage(path, 0, format!("cannot read it: {error}")),
    }
}

/// Everything the engine recorded was synced to the log before, so the log cannot end below it. (How far the log was purged
/// says nothing: a region with nothing in memory does not hold it back, whatever its durable point.)
fn compare(
    directory: &Path,
    recorded: &Recorded,
    logged: &BTreeMap<GroupId, LoggedGroup>,
    inspection: &mut Inspection,
) {
    let regions = recorded.regions.iter().map(|((group, region), index)| (format!("region {region}"), group, index));
    let groups = recorded.groups.iter().map(|(group, index)| ("its own state".to_owned(), group, index));
    for (what, group, index) in regions.chain(groups) {
        let problem = match logged.get(group) {
            None => format!("group {group} is not in the log, but the engine has {what} of it"),
            Some(LoggedGroup { last, .. }) if last.unwrap_or(0) < *index => {
                format!(
                    "the log of group {group} ends before entry {index}, but the engine has {what} as of that entry"
                )
            }
            Some(_) => continue,
        };
        inspection.damage(&directory.join(LOG), 0, problem);
    }
}
