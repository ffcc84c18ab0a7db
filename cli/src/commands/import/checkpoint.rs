//! The file that `--state` names: how far an import is, so that another run continues there.
//!
//! Invariants:
//! - it is written before the first row, with the timestamp of all cells that have none of their own, so that rows written
//!   again by a later run are the same cells;
//! - afterwards it is written only when everything before its positions is durable, and replaced atomically;
//! - it fits exactly one import: the table (not only its name), the flags that give bytes their meaning, and the inputs,
//!   which must not have changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use terrane_client::{ClusterId, Table};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::counts::Counts;
use super::inputs::Input;
use crate::args::transfer::Import;
use crate::failure::Failure;
use crate::input::Position;

/// The first interval between two states; it doubles
const EVERY_MIN: Duration = Duration::from_millis(250);
/// up to this, since all rows in flight are waited for each time.
const EVERY_MAX: Duration = Duration::from_secs(4);
/// Between two saves of a bulk load.
const EVERY_LONG: Duration = Duration::from_secs(30);
/// Bytes at either end of an input that tell whether it has changed.
const COMPARED_BYTES: u64 = 64 << 10;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// What identifies the import.
    import: Identity,
    /// The timestamp of cells without one of their own.
    pub timestamp: i64,
    /// How far each input is.
    pub files: Vec<Progress>,
    /// What was counted up to there.
    pub counts: Counts,
    /// The length of the file of rejected lines.
    pub rejects_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    cluster: String,
    table: String,
    table_id: u64,
    format: String,
    columns: Option<String>,
    separator: Option<u8>,
    no_header: bool,
    /// Older states have none.
    #[serde(default)]
    no_escapes: bool,
    raw: bool,
}

/// How far an input is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    path: PathBuf,
    bytes: u64,
    /// A hash of its first and last bytes.
    ends: String,
    /// Everything before this is written.
    pub position: Position,
    /// Whether that is all.
    pub done: bool,
}

/// Writes the state from time to time.
pub struct Checkpoints {
    path: PathBuf,
    every: Duration,
    last: Instant,
}

impl State {
    /// The state before an import has written anything.
    pub async fn new(
        args: &Import,
        cluster: ClusterId,
        table: &Table,
        inputs: &[Input],
        timestamp: i64,
    ) -> Result<State, Failure> {
        let import = Identity {
            cluster: cluster.to_string(),
            table: table.name().to_string(),
            table_id: table.id().0,
            format: args.format.name().to_owned(),
            columns: args.columns.clone(),
            separator: args.separator,
            no_header: args.no_header,
            no_escapes: args.no_escapes,
            raw: args.raw,
        };
        let mut files = Vec::new();
        for input in inputs {
            let compared = compared(&input.path).await;
            let (bytes, ends) =
                compared.map_err(|error| Failure::new(format!("cannot read {}: {error}", input.path.display())))?;
            files.push(Progress { path: input.path.clone(), bytes, ends, position: input.start, done: false });
        }
        Ok(State { import, timestamp, files, counts: Counts::default(), rejects_bytes: 0 })
    }

    /// Continues the stored import if it is the same, given what it would be if it were new.
    fn continued(self, new: &State, file: &Path) -> Result<State, Failure> {
        let file = file.display();
        let differs = |what: &str| {
            Failure::new(format!("the import of {file} has {what}")).advise(format!(
                "use the flags of that import, or another --state; or remove {file} to import everything again"
            ))
        };
        let (old, now) = (&self.import, &new.import);
        if old.table != now.table {
            return Err(differs(&format!("another table, {}", old.table)));
        }
        if old.cluster != now.cluster {
            return Err(differs("another cluster"));
        }
        if old.table_id != now.table_id {
            return Err(Failure::new(format!(
                "table {} was dropped and created again since the import of {file}",
                old.table
            ))
            .advise(format!("remove {file} to import everything again")));
        }
        if old != now {
            return Err(differs("another --format, --columns, --separator, --no-header, --no-escapes or --raw"));
        }
        let paths = |state: &State| state.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        if paths(&self) != paths(new) {
            return Err(differs("other files, or the same in another order"));
        }
        for (old, now) in self.files.iter().zip(&new.files) {
            if (old.bytes, &old.ends) != (now.bytes, &now.ends) {
                let path = old.path.display();
                return Err(Failure::new(format!(
                    "{path} has changed since it was imported up to line {}",
                    old.position.line
                ))
                .advise(format!("restore it to continue; or remove {file} to import everything again")));
            }
        }
        Ok(self)
    }
}

impl Checkpoints {
    /// Opens the state file: continues what it says, or starts with `new` and writes that.
    pub async fn open(path: &Path, new: State) -> Result<(Checkpoints, State), Failure> {
        let unreadable =
            |error: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {error}", path.display()));
        let exists = terrane_env::fs::exists(path).await.map_err(|error| unreadable(&error))?;
        let now = Instant::now();
        let mut checkpoints = Checkpoints { path: path.to_owned(), every: EVERY_MIN, last: now };
        if exists {
            let bytes = terrane_env::fs::read(path).await.map_err(|error| unreadable(&error))?;
            let stored: State = serde_json::from_slice(&bytes).map_err(|error| {
                Failure::new(format!("{} is not the state of an import: {error}", path.display()))
                    .advise("name another file; nothing was imported")
            })?;
            return Ok((checkpoints, stored.continued(&new, path)?));
        }
        checkpoints.save(&new).await?;
        Ok((checkpoints, new))
    }

    /// Whether it is time to save again.
    pub fn due(&self) -> bool {
        self.last.elapsed() >= self.every
    }

    /// Whether the last save is so long ago that even an expensive one pays.
    pub fn long_due(&self) -> bool {
        self.last.elapsed() >= EVERY_LONG
    }

    /// Saves a state up to whose positions everything is durable.
    pub async fn save(&mut self, state: &State) -> Result<(), Failure> {
        let bytes = serde_json::to_vec_pretty(state).expect("a state has nothing that JSON cannot express");
        let saved = terrane_env::fs::write_durable(&self.path, &bytes).await;
        saved.map_err(|error| Failure::new(format!("cannot write {}: {error}", self.path.display())))?;
        self.every = (self.every * 2).min(EVERY_MAX);
        self.last = Instant::now();
        Ok(())
    }
}

/// The length of a file and a hash of its ends.
async fn compared(path: &Path) -> std::io::Result<(u64, String)> {
    let file = terrane_env::fs::File::open_read(path).await?;
    let bytes = file.len().await?;
    let length = bytes.min(COMPARED_BYTES);
    let mut ends = vec![0; 2 * length as usize];
    let (first, last) = ends.split_at_mut(length as usize);
    file.read_exact_at(first, 0).await?;
    file.read_exact_at(last, bytes - length).await?;
    Ok((bytes, format!("{:016x}", xxh3_64(&ends))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(path: &Path, bytes: u64) -> State {
        let import = Identity {
            cluster: "c".to_owned(),
            table: "t".to_owned(),
            table_id: 7,
            format: "csv".to_owned(),
            columns: None,
            separator: None,
            no_header: false,
            no_escapes: false,
            raw: false,
        };
        let position = Position { offset: 5, line: 2 };
        let file = Progress { path: path.to_owned(), bytes, ends: "00".to_owned(), position, done: false };
        State { import, timestamp: 17, files: vec![file], counts: Counts::default(), rejects_bytes: 0 }
    }

    #[tokio::test]
    async fn a_state_is_continued_by_the_same_import_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("import.state");
        let input = Path::new("a.csv");
        let (mut checkpoints, mut first) = Checkpoints::open(&path, state(input, 9)).await.expect("new");
        assert!(terrane_env::fs::exists(&path).await.expect("asked"), "written before the first row");
        first.files[0].position = Position { offset: 8, line: 3 };
        first.counts.imported = 4;
        checkpoints.save(&first).await.expect("saved");
        let later = State { timestamp: 99, ..state(input, 9) };
        let (_, continued) = Checkpoints::open(&path, later).await.expect("continued");
        assert_eq!(continued, first);

        let changed = |change: &dyn Fn(&mut State)| {
            let mut changed = state(input, 9);
            change(&mut changed);
            changed
        };
        let cases: [(State, &str); 6] = [
            (state(input, 10), "a.csv has changed since it was imported up to line 3"),
            (changed(&|state| state.import.table = "u".to_owned()), "another table, t"),
            (changed(&|state| state.import.table_id = 8), "dropped and created again"),
            (changed(&|state| state.import.raw = true), "--raw"),
            (changed(&|state| state.import.no_escapes = true), "--no-escapes"),
            (changed(&|state| state.files[0].path = "b.csv".into()), "other files"),
        ];
        for (other, said) in cases {
            let failure = Checkpoints::open(&path, other).await.err().expect(said).to_string();
            assert!(failure.contains(said), "{failure}");
        }
        terrane_env::fs::write_durable(&path, b"notes").await.expect("written");
        let failure = Checkpoints::open(&path, state(input, 9)).await.err().expect("no state").to_string();
        assert!(failure.contains("is not the state of an import"), "{failure}");
    }

    #[tokio::test]
    async fn either_end_and_the_length_of_an_input_are_compared() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("input");
        let mut bytes = vec![b'x'; 200_000];
        let mut seen = std::collections::BTreeSet::new();
        for change in [None, Some(0), Some(199_999)] {
            if let Some(at) = change {
                bytes[at] = b'y';
            }
            terrane_env::fs::write_durable(&path, &bytes).await.expect("written");
            assert!(seen.insert(compared(&path).await.expect("compared")), "{change:?}");
        }
        terrane_env::fs::write_durable(&path, b"").await.expect("written");
        assert_eq!(compared(&path).await.expect("compared").0, 0);
    }
}
