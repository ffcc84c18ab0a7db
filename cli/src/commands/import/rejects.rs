//! The file that `--rejects` names: malformed lines, byte for byte.
//!
//! Before the first line of a CSV file its header stands, so that the corrected file can be imported by the same command. The
//! lines of a block are written when all of it was accepted; a later run that continues before them cuts them off.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Rejected lines.
pub struct Rejects {
    path: PathBuf,
    file: terrane_env::fs::File,
    written: u64,
    waiting: Vec<u8>,
    /// The header last written.
    header: Option<Vec<u8>>,
}

impl Rejects {
    /// Opens the file with what an earlier run of the same import wrote, or empty.
    pub async fn open(path: &Path, keep: u64) -> Result<Rejects, Failure> {
        let failed = |error| unwritable(path, error);
        let file = terrane_env::fs::File::open_rw(path).await.map_err(failed)?;
        // The earlier run may have had another file.
        let keep = keep.min(file.len().await.map_err(failed)?);
        file.set_len(keep).await.map_err(failed)?;
        Ok(Rejects { path: path.to_owned(), file, written: keep, waiting: Vec::new(), header: None })
    }

    /// Adds a line.
    pub fn add(&mut self, header: Option<&Vec<u8>>, line: &[u8]) {
        if let Some(header) = header.filter(|header| self.header.as_ref() != Some(*header)) {
            // A run that continues has the header in the file already.
            if self.header.is_some() || self.written == 0 {
                self.push(header);
            }
            self.header = Some(header.clone());
        }
        self.push(line);
    }

    fn push(&mut self, line: &[u8]) {
        self.waiting.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            self.waiting.push(b'\n');
        }
    }

    /// Writes what was added; returns the length of the file.
    pub async fn write(&mut self) -> Result<u64, Failure> {
        if !self.waiting.is_empty() {
            let written = self.file.write_all_at(&self.waiting, self.written).await;
            written.map_err(|error| unwritable(&self.path, error))?;
            self.written += self.waiting.len() as u64;
            self.waiting.clear();
        }
        Ok(self.written)
    }

    /// Makes the file durable.
    pub async fn sync(&self) -> Result<(), Failure> {
        self.file.sync_all().await.map_err(|error| unwritable(&self.path, error))
    }
}

fn unwritable(path: &Path, error: std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_follow_their_header_and_a_later_run_cuts_off_what_it_repeats() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("bad.csv");
        let header = b"row,d:a\n".to_vec();
        let mut rejects = Rejects::open(&path, 0).await.expect("opened");
        rejects.add(Some(&header), b"x\r\n");
        let kept = rejects.write().await.expect("written");
        rejects.add(Some(&header), b"y");
        rejects.write().await.expect("written");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        assert_eq!(text(terrane_env::fs::read(&path).await.expect("read")), "row,d:a\nx\r\ny\n");
        let mut rejects = Rejects::open(&path, kept).await.expect("opened");
        rejects.add(Some(&header), b"z");
        rejects.write().await.expect("written");
        assert_eq!(text(terrane_env::fs::read(&path).await.expect("read")), "row,d:a\nx\r\nz\n");
        let other = directory.path().join("other.csv");
        let mut rejects = Rejects::open(&other, kept).await.expect("opened");
        rejects.add(Some(&header), b"z");
        rejects.write().await.expect("written");
        assert_eq!(text(terrane_env::fs::read(&other).await.expect("read")), "row,d:a\nz\n");
    }
}
