//! Files on this server's disk that nothing names: no manifest, no log, no copy or move that may still need them.
//!
//! The engine removes what its manifest does not name, at its start and after each change. A file that a reader still held goes
//! with the next look here. What remains cannot be removed, or belongs to something that is no longer here: `admin check` names
//! it.
//!
//! Files come and go while a look takes place. Only what two looks in a row have found is an orphan.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_engine::Engine;
use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_proto::v1;
use terrane_types::GroupId;
use tokio_util::sync::CancellationToken;

use crate::group::proposal::GroupHost;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The files of a look, with their lengths.
type Files = BTreeMap<PathBuf, u64>;

/// The orphans of a server.
pub struct Orphans {
    engine: Arc<Engine>,
    host: Arc<GroupHost>,
    looks: Mutex<Looks>,
}

impl Orphans {
    pub fn new(engine: Arc<Engine>, host: Arc<GroupHost>) -> Self {
        Self { engine, host, looks: Mutex::default() }
    }

    /// Looks again and again until the server stops.
    pub async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let look = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let found = self.look().await;
                let news = self.looks.lock().take(found);
                for (path, bytes) in news {
                    tracing::warn!(path = %path.display(), bytes, "nothing names this file");
                }
            }
        };
        stop.run_until_cancelled(look).await;
    }

    /// The orphans as of the last two looks; `None` if there are none.
    pub fn report(&self) -> Option<v1::OrphanFiles> {
        let looks = self.looks.lock();
        let (first, _) = looks.orphans.first_key_value()?;
        Some(v1::OrphanFiles {
            files: looks.orphans.len() as u64,
            bytes: looks.orphans.values().sum(),
            first: first.display().to_string(),
        })
    }

    async fn look(&self) -> Files {
        let mut found = Files::new();
        match self.engine.sweep().await {
            Ok(unnamed) => found.extend(unnamed),
            Err(error) => tracing::debug!(%error, "the engine's files cannot be listed"),
        }
        match self.host.unnamed_files().await {
            Ok(unnamed) => found.extend(unnamed),
            Err(error) => tracing::debug!(%error, "the log's files cannot be listed"),
        }
        found.extend(self.incoming().await);
        found
    }

    /// What arrived of copies of groups that are not here, or need none.
    async fn incoming(&self) -> Files {
        let root = self.engine.incoming_root();
        let names = run_io({
            let root = root.clone();
            async move { fs::list(&root).await }
        });
        let mut found = Files::new();
        // Without the directory, nothing has arrived.
        for name in names.await.unwrap_or_default() {
            let group = name.parse().ok().map(GroupId);
            let needed = |group| self.host.group(group).is_some_and(|local| local.may_receive_files());
            if !group.is_some_and(needed) {
                let dir = root.join(name);
                found.extend(
                    run_io(async move { Ok::<_, std::io::Error>(files_in(dir).await) }).await.unwrap_or_default(),
                );
            }
        }
        found
    }
}

/// The files of what arrived of a copy: those of each leader that sent some are in a directory.
async fn files_in(dir: PathBuf) -> Files {
    let mut paths = Vec::new();
    for name in fs::list(&dir).await.unwrap_or_default() {
        let path = dir.join(name);
        match fs::list(&path).await {
            Ok(names) => paths.extend(names.into_iter().map(|name| path.join(name))),
            Err(_) => paths.push(path),
        }
    }
    let mut found = Files::new();
    for path in paths {
        if let Ok(bytes) = fs::file_len(&path).await {
            found.insert(path, bytes);
        }
    }
    found
}

/// What the looks have found.
#[derive(Default)]
struct Looks {
    last: Files,
    orphans: Files,
}

impl Looks {
    /// Takes what a look has found; returns the orphans that were none before.
    fn take(&mut self, found: Files) -> Files {
        let twice = |(path, bytes): (&PathBuf, &u64)| self.last.contains_key(path).then(|| (path.clone(), *bytes));
        let orphans: Files = found.iter().filter_map(twice).collect();
        let news = orphans.iter().filter(|(path, _)| !self.orphans.contains_key(*path));
        let news = news.map(|(path, bytes)| (path.clone(), *bytes)).collect();
        (self.last, self.orphans) = (found, orphans);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_two_looks_in_a_row_find_is_an_orphan() {
        let files = |names: &[&str]| -> Files { names.iter().map(|name| (PathBuf::from(name), 7)).collect() };
        let mut looks = Looks::default();
        assert!(looks.take(files(&["a", "b"])).is_empty());
        assert_eq!(looks.take(files(&["b", "c"])), files(&["b"]));
        assert!(looks.take(files(&["b", "a"])).is_empty(), "it is known already");
        assert_eq!(looks.orphans, files(&["b"]));
        assert!(looks.take(files(&[])).is_empty());
        assert!(looks.orphans.is_empty());
    }
}
