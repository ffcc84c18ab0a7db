//! What a data directory holds before a process takes it for its own: one check for masters, servers and whole clusters.
//!
//! A directory without the file that says who it belongs to used to pass for empty. A process then began with nothing beside the
//! data of another one, and its reader believed the data lost. Only an empty directory and the process's own are accepted.

use std::io;
use std::path::{Path, PathBuf};

use super::{UNFINISHED, list};

/// Whose directory it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// A master.
    Master,
    /// A region server.
    Server,
    /// All processes of `terrane dev`, each in a directory within.
    Cluster,
}

impl Occupant {
    /// With its article, for people.
    const fn name(self) -> &'static str {
        match self {
            Self::Master => "a master",
            Self::Server => "a region server",
            Self::Cluster => "a whole cluster, as `terrane dev` makes it",
        }
    }

    /// The file with the identity of a process.
    const fn identity(self) -> Option<&'static str> {
        match self {
            Self::Master => Some("master"),
            Self::Server => Some("server"),
            Self::Cluster => None,
        }
    }
}

/// Why a directory is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Occupied {
    /// It is the directory of something else.
    #[error("{} is the data directory of {}, not of {}; {advice}", directory.display(), found.name(), wanted.name())]
    Other {
        /// The directory.
        directory: PathBuf,
        /// Whose it is.
        found: Occupant,
        /// Whose it was to be.
        wanted: Occupant,
        /// What to do.
        advice: String,
    },
    /// It has parts of the process's data, and not the file that says whose they are.
    #[error(
        "{} has data of {} ({}) and no file `{identity}`, which says whose it is; restore that file from a backup, or choose an empty \
         directory",
        directory.display(), wanted.name(), names.join(", ")
    )]
    Headless {
        /// The directory.
        directory: PathBuf,
        /// Whose it was to be.
        wanted: Occupant,
        /// The missing file.
        identity: &'static str,
        /// What is there.
        names: Vec<String>,
    },
    /// It has files of no process of ours.
    #[error(
        "{} is not empty and no data directory of {}: it has {}; choose an empty directory, or one that does not exist",
        directory.display(), wanted.name(), named(names)
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// Whose it was to be.
        wanted: Occupant,
        /// What is there.
        names: Vec<String>,
    },
    /// It cannot be read.
    #[error("cannot read the directory {}: {source}", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Files that a message names.
const NAMED_MAX: usize = 5;
/// What is left in an empty directory: the lock of a start that failed, and what a file system keeps at its root.
const NOTHING: [&str; 2] = ["LOCK", "lost+found"];
/// Directories within the data directory of a master or a server.
const PARTS: [&str; 3] = ["catalog", "engine", "log"];

fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Refuses a directory that is neither empty nor that of its future occupant. One that does not exist is empty.
///
/// # Errors
/// What the directory is, and what to do.
pub async fn check_occupant(directory: &Path, wanted: Occupant) -> Result<(), Occupied> {
    let io = |source| Occupied::Io { directory: directory.to_owned(), source };
    let mut names = match list(directory).await {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    names.retain(|name| !NOTHING.contains(&name.as_str()) && !name.ends_with(UNFINISHED));
    if names.is_empty() {
        return Ok(());
    }
    let found = occupant(directory, &names).await.map_err(io)?;
    let directory = directory.to_owned();
    match found {
        Some(found) if found == wanted => Ok(()),
        Some(found) => {
            let advice = advice(&directory, &names, found, wanted);
            Err(Occupied::Other { directory, found, wanted, advice })
        }
        None => match wanted.identity() {
            Some(identity) if names.iter().all(|name| PARTS.contains(&name.as_str())) => {
                Err(Occupied::Headless { directory, wanted, identity, names })
            }
            _ => Err(Occupied::Foreign { directory, wanted, names }),
        },
    }
}

/// Whose directory it is: that of a process has a file with its identity, that of a cluster directories of processes.
async fn occupant(directory: &Path, names: &[String]) -> io::Result<Option<Occupant>> {
    for process in [Occupant::Server, Occupant::Master] {
        let Some(identity) = process.identity().filter(|identity| names.iter().any(|name| name == identity)) else {
            continue;
        };
        if !is_directory(&directory.join(identity)).await? {
            return Ok(Some(process));
        }
    }
    for name in names.iter().filter(|name| is_of_cluster(name)) {
        if is_directory(&directory.join(name)).await? {
            return Ok(Some(Occupant::Cluster));
        }
    }
    Ok(None)
}

fn is_of_cluster(name: &str) -> bool {
    let numbered = |kind: &str| {
        let number = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name == "master" || name == "server" || numbered("master") || numbered("server")
}

async fn is_directory(path: &Path) -> io::Result<bool> {
    match list(path).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

fn advice(directory: &Path, names: &[String], found: Occupant, wanted: Occupant) -> String {
    let kind = wanted.identity().unwrap_or_default();
    let within = names.iter().find(|name| *name == kind || name.starts_with(&format!("{kind}-")));
    match (found, within) {
        (Occupant::Cluster, Some(within)) => {
            format!(
                "choose an empty directory with --data, or a part of that cluster: --data {}",
                directory.join(within).display()
            )
        }
        _ => "choose an empty directory with --data, or the one that was used before".to_owned(),
    }
}

#[cfg(all(test, not(feature = "sim")))]
mod tests {
    use super::*;

    /// A directory with these files, and directories where the name ends with a slash.
    fn holding(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in names {
            let path = directory.path().join(name);
            match name.strip_suffix('/') {
                Some(_) => std::fs::create_dir_all(path).expect("a directory"),
                None => std::fs::write(path, b"x").expect("a file"),
            }
        }
        directory
    }

    async fn refused(names: &[&str], wanted: Occupant) -> Option<String> {
        let directory = holding(names);
        let checked = check_occupant(directory.path(), wanted).await;
        checked.err().map(|why| why.to_string().replace(&directory.path().display().to_string(), "DIR"))
    }

    #[tokio::test]
    async fn an_empty_directory_and_the_own_one_are_taken() {
        use Occupant::{Cluster, Master, Server};
        for wanted in [Cluster, Master, Server] {
            assert_eq!(refused(&[], wanted).await, None);
            assert_eq!(refused(&["LOCK", "lost+found/"], wanted).await, None, "a start that failed");
            check_occupant(Path::new("/nonexistent/terrane"), wanted).await.unwrap();
        }
        assert_eq!(refused(&["LOCK", "server", "engine/", "log/"], Server).await, None);
        assert_eq!(refused(&["LOCK", "master", "catalog/", "log/"], Master).await, None);
        assert_eq!(refused(&["master/", "server-1/", "server-2/"], Cluster).await, None);
        assert_eq!(refused(&["master-1/", "master-2/", "master-3/"], Cluster).await, None);
    }

    #[tokio::test]
    async fn the_directory_of_something_else_is_refused_by_what_it_is() {
        use Occupant::{Cluster, Master, Server};
        let dev = ["master/", "server-1/"];
        let says = refused(&dev, Server).await.unwrap();
        assert!(says.starts_with("DIR is the data directory of a whole cluster"), "{says}");
        assert!(says.ends_with("--data DIR/server-1"), "{says}");
        let says = refused(&dev, Master).await.unwrap();
        assert!(says.ends_with("--data DIR/master"), "{says}");
        let server = ["LOCK", "server", "engine/", "log/"];
        for wanted in [Master, Cluster] {
            let says = refused(&server, wanted).await.unwrap();
            assert!(says.starts_with("DIR is the data directory of a region server, not of"), "{says}");
        }
        let says = refused(&["master", "catalog/", "log/"], Server).await.unwrap();
        assert!(says.starts_with("DIR is the data directory of a master, not of a region server"), "{says}");
    }

    #[tokio::test]
    async fn a_directory_with_other_files_is_refused_with_their_names() {
        let says = refused(&["notes.txt", "photos/"], Occupant::Server).await.unwrap();
        assert!(says.contains("no data directory of a region server: it has notes.txt, photos"), "{says}");
        let says = refused(&["a", "b", "c", "d", "e", "f", "g"], Occupant::Cluster).await.unwrap();
        assert!(says.contains("it has a, b, c, d, e and 2 more"), "{says}");
        let says = refused(&["LOCK", "engine/", "log/"], Occupant::Server).await.unwrap();
        assert!(says.contains("has data of a region server (engine, log) and no file `server`"), "{says}");
    }
}
