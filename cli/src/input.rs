//! Lines of files and of standard input, plain or gzipped.
//!
//! Compression is recognised by the first two bytes, not by the file name. [`LineReader::fill`] reads and decompresses
//! one chunk, [`LineReader::line`] returns the complete lines in it, so that only `fill` waits.
//!
//! Invariants: memory is bounded by one line of [`LINE_BYTES_MAX`] plus one decompressed chunk; a longer line is
//! returned once as [`Line::TooLong`] and skipped; damaged or truncated compression is an error, never a silent end.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::write::MultiGzDecoder;

/// Longest line: the largest row mutation with every byte escaped twice, plus its JSON syntax.
const LINE_BYTES_MAX: usize = 96 << 20;
/// Size of one read.
const CHUNK_BYTES: usize = 256 * 1024;
/// The first bytes of every gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Means standard input on the command line.
const STANDARD_INPUT: &str = "-";

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// It is longer than any record.
    TooLong,
}

/// Reads an input line by line.
pub struct LineReader {
    source: Source,
    decoder: Decoder,
    lines: LineBuffer,
    /// Bytes read from the source, before decompression.
    bytes_read: u64,
}

enum Source {
    File { file: terrane_env::fs::File, bytes: u64 },
    StandardInput,
}

enum Decoder {
    /// Fewer than two bytes have been read.
    Undecided(Vec<u8>),
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl LineReader {
    /// Opens the file, or standard input for `-`.
    pub async fn open(path: &Path) -> io::Result<LineReader> {
        let source = if path == Path::new(STANDARD_INPUT) {
            Source::StandardInput
        } else {
            let file = terrane_env::fs::File::open_read(path).await?;
            let bytes = file.len().await?;
            Source::File { file, bytes }
        };
        let decoder = Decoder::Undecided(Vec::new());
        Ok(LineReader { source, decoder, lines: LineBuffer::default(), bytes_read: 0 })
    }

    /// Bytes read so far, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Reads more. Returns false at the end of the input; [`LineReader::line`] then returns what is left.
    pub async fn fill(&mut self) -> io::Result<bool> {
        if self.lines.ended {
            return Ok(false);
        }
        let chunk = self.source.read(self.bytes_read).await?;
        if chunk.is_empty() {
            self.decoder.finish(&mut self.lines.bytes)?;
            self.lines.ended = true;
            return Ok(false);
        }
        self.bytes_read += u64::try_from(chunk.len()).expect("a chunk's length fits 64 bits");
        self.decoder.feed(&chunk, &mut self.lines.bytes)?;
        Ok(true)
    }

    /// The next complete line and its number, counted from 1; `None` if [`LineReader::fill`] has to read more.
    pub fn line(&mut self) -> Option<(u64, Line<'_>)> {
        self.lines.next()
    }
}

/// The total size of the inputs if all are files, for the progress bar.
pub async fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    let mut total = 0;
    for path in paths {
        if path == Path::new(STANDARD_INPUT) {
            return None;
        }
        total += terrane_env::fs::File::open_read(path).await.ok()?.len().await.ok()?;
    }
    Some(total)
}

impl Source {
    async fn read(&mut self, offset: u64) -> io::Result<Vec<u8>> {
        match self {
            Source::File { file, bytes } => {
                let left = usize::try_from(bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
                let mut chunk = vec![0; left.min(CHUNK_BYTES)];
                file.read_exact_at(&mut chunk, offset).await?;
                Ok(chunk)
            }
            // The read may wait for the user to type, which must not block a thread of the runtime.
            Source::StandardInput => {
                terrane_env::task::run_blocking(|| {
                    let mut chunk = vec![0; CHUNK_BYTES];
                    let length = io::stdin().lock().read(&mut chunk)?;
                    chunk.truncate(length);
                    Ok(chunk)
                })
                .await
            }
        }
    }
}

impl Decoder {
    fn feed(&mut self, chunk: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        if let Decoder::Undecided(seen) = self {
            seen.extend_from_slice(chunk);
            if seen.len() < GZIP_MAGIC.len() {
                return Ok(());
            }
            let seen = std::mem::take(seen);
            *self = if seen.starts_with(&GZIP_MAGIC) {
                Decoder::Gzip(Box::new(MultiGzDecoder::new(Vec::new())))
            } else {
                Decoder::Plain
            };
            return self.feed(&seen, plain);
        }
        match self {
            Decoder::Gzip(decoder) => {
                decoder.write_all(chunk).map_err(damaged)?;
                plain.append(decoder.get_mut());
            }
            Decoder::Undecided(_) | Decoder::Plain => plain.extend_from_slice(chunk),
        }
        Ok(())
    }

    fn finish(&mut self, plain: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Decoder::Undecided(seen) => plain.append(seen),
            Decoder::Plain => {}
            Decoder::Gzip(decoder) => {
                decoder.try_finish().map_err(damaged)?;
                plain.append(decoder.get_mut());
            }
        }
        Ok(())
    }
}

fn damaged(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the gzip data is damaged or cut short ({error})"))
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// Start of the next line in `bytes`.
    start: usize,
    /// How far its end has been searched for.
    searched: usize,
    line_number: u64,
    /// Whether the rest of an oversized line is being skipped.
    skipping: bool,
    ended: bool,
}

impl LineBuffer {
    fn next(&mut self) -> Option<(u64, Line<'_>)> {
        loop {
            let end = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n').map(|at| self.searched + at);
            let Some(range) = self.take(end) else { return self.compact() };
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            self.line_number += 1;
            let line = &self.bytes[range];
            return Some((self.line_number, Line::Bytes(line.strip_suffix(b"\r").unwrap_or(line))));
        }
    }

    /// Takes the line that ends at `end`, or at the end of the input.
    fn take(&mut self, end: Option<usize>) -> Option<std::ops::Range<usize>> {
        let start = self.start;
        let (end, next) = match end {
            Some(end) => (end, end + 1),
            None if self.ended && start < self.bytes.len() => (self.bytes.len(), self.bytes.len()),
            None => return None,
        };
        self.start = next;
        self.searched = next;
        Some(start..end)
    }

    /// No complete line is left: drops the bytes that were returned, and gives up on a line that grows too long.
    fn compact(&mut self) -> Option<(u64, Line<'_>)> {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.searched = self.bytes.len();
        if self.bytes.len() <= LINE_BYTES_MAX && !self.skipping {
            return None;
        }
        self.bytes.clear();
        self.searched = 0;
        if std::mem::replace(&mut self.skipping, true) {
            return None;
        }
        self.line_number += 1;
        Some((self.line_number, Line::TooLong))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    async fn lines_of(bytes: &[u8]) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("input");
        terrane_env::fs::write_durable(&path, bytes).await.expect("written");
        let mut reader = LineReader::open(&path).await?;
        let mut lines = Vec::new();
        loop {
            let more = reader.fill().await?;
            while let Some((number, line)) = reader.line() {
                let Line::Bytes(line) = line else { panic!("line {number} is too long") };
                lines.push((number, line.to_vec()));
            }
            if !more {
                return Ok(lines);
            }
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn numbered(lines: &[&str]) -> Vec<(u64, Vec<u8>)> {
        (1..).zip(lines.iter().map(|line| line.as_bytes().to_vec())).collect()
    }

    #[tokio::test]
    async fn lines_are_cut_at_either_line_end_and_the_last_needs_none() {
        assert_eq!(lines_of(b"").await.expect("read"), []);
        assert_eq!(lines_of(b"a").await.expect("read"), numbered(&["a"]));
        assert_eq!(lines_of(b"a\r\n\nb\n").await.expect("read"), numbered(&["a", "", "b"]));
        assert_eq!(lines_of(b"a\n\nb").await.expect("read"), numbered(&["a", "", "b"]));
    }

    #[tokio::test]
    async fn gzip_is_known_by_its_first_bytes_and_may_have_several_members() {
        let text: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
        let plain = lines_of(text.as_bytes()).await.expect("read");
        assert_eq!(plain.len(), 200_000);
        assert_eq!(lines_of(&gzip(text.as_bytes())).await.expect("read"), plain);
        let (first, second) = text.as_bytes().split_at(700_001);
        assert_eq!(lines_of(&[gzip(first), gzip(second)].concat()).await.expect("read"), plain);
    }

    #[tokio::test]
    async fn damaged_gzip_is_an_error() {
        let whole = gzip(&b"some lines\n".repeat(10_000));
        for cut in [3, 20, whole.len() / 2, whole.len() - 1] {
            let error = lines_of(&whole[..cut]).await.expect_err("cut short");
            assert!(error.to_string().contains("gzip"), "{cut}: {error}");
        }
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x55;
        lines_of(&flipped).await.expect_err("damaged");
    }

    #[test]
    fn an_oversized_line_is_skipped_in_bounded_memory() {
        let mut lines = LineBuffer::default();
        lines.bytes.extend_from_slice(b"first\n");
        assert_eq!(lines.next(), Some((1, Line::Bytes(b"first"))));
        for _ in 0..3 {
            lines.bytes.resize(lines.bytes.len() + LINE_BYTES_MAX / 2 + 1, b'x');
            let found = lines.next().map(|(number, line)| (number, line == Line::TooLong));
            assert!(matches!(found, None | Some((2, true))), "{found:?}");
        }
        assert!(lines.bytes.is_empty() && lines.skipping);
        lines.bytes.extend_from_slice(b"tail\nthird\n");
        assert_eq!(lines.next(), Some((3, Line::Bytes(b"third"))));
        assert_eq!(lines.next(), None);
    }
}
