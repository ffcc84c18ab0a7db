//! Where an export goes: standard output, or a file that appears when it is complete.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::Output;

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// What the name of a file that is not complete ends with.
const UNFINISHED: &str = "unfinished";

/// The bytes of an export, in order.
pub struct Destination {
    buffer: Vec<u8>,
    written: u64,
    target: Target,
}

enum Target {
    StandardOutput(Output),
    File { file: terrane_env::fs::File, unfinished: PathBuf, path: PathBuf },
}

impl Destination {
    /// The file, or standard output.
    pub async fn open(path: Option<&Path>) -> Result<Destination, Failure> {
        let target = match path {
            // `--json` adds nothing: lines of the format jsonl are JSON already.
            None => Target::StandardOutput(Output::new(false)),
            Some(path) => {
                let failed = |error| unwritable(path, &error);
                let mut unfinished = path.as_os_str().to_owned();
                unfinished.push(".");
                unfinished.push(UNFINISHED);
                let unfinished = PathBuf::from(unfinished);
                let file = terrane_env::fs::File::open_rw(&unfinished).await.map_err(failed)?;
                file.set_len(0).await.map_err(failed)?;
                Target::File { file, unfinished, path: path.to_owned() }
            }
        };
        Ok(Destination { buffer: Vec::with_capacity(BUFFER_BYTES), written: 0, target })
    }

    /// Whether rows appear on a terminal.
    pub fn is_shown(&self) -> bool {
        matches!(self.target, Target::StandardOutput(_)) && std::io::IsTerminal::is_terminal(&std::io::stdout())
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Adds bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Adds a line.
    pub async fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.buffer.extend_from_slice(line.as_bytes());
        self.write(b"\n").await
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.target {
            Target::StandardOutput(output) => output.bytes(&self.buffer)?,
            Target::File { file, unfinished, .. } => {
                let written = file.write_all_at(&self.buffer, self.written).await;
                written.map_err(|error| unwritable(unfinished, &error))?;
            }
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest, and gives a file its name once it is durable.
    pub async fn finish(mut self) -> Result<(), Failure> {
        self.flush().await?;
        match self.target {
            Target::StandardOutput(mut output) => output.flush(),
            Target::File { file, unfinished, path } => {
                let failed = |error| unwritable(&path, &error);
                file.sync_all().await.map_err(failed)?;
                terrane_env::fs::rename(&unfinished, &path).await.map_err(failed)?;
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                terrane_env::fs::sync_dir(folder.unwrap_or(Path::new("."))).await.map_err(failed)
            }
        }
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_has_its_name_when_it_is_complete() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("out.csv");
        terrane_env::fs::write_durable(&path, b"an earlier export").await.expect("written");
        let long = "x".repeat(BUFFER_BYTES);
        let mut out = Destination::open(Some(&path)).await.expect("opened");
        out.line(&long).await.expect("written");
        out.line("end").await.expect("written");
        assert_eq!(out.bytes(), BUFFER_BYTES as u64 + 5);
        assert_eq!(terrane_env::fs::read(&path).await.expect("read"), b"an earlier export");
        out.finish().await.expect("finished");
        assert_eq!(terrane_env::fs::read(&path).await.expect("read"), format!("{long}\nend\n").into_bytes());
        assert_eq!(terrane_env::fs::list(directory.path()).await.expect("listed"), ["out.csv"]);
    }
}
