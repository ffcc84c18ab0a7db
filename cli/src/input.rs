//! Text from files, pipes and standard input, plain or gzipped, in blocks of complete records.
//!
//! Compression is recognised by the first two bytes, not by the file name. A block ends where a record does, so that blocks can
//! be parsed at the same time; its end is a position from which a later run can continue.
//!
//! Invariants: memory is bounded by one record of [`RECORD_BYTES_MAX`] plus one decompressed chunk; a longer line is
//! returned once as [`Block::too_long`] and skipped; damaged or truncated compression is an error, never a silent end. A quote
//! that is never closed holds back at most that many bytes, which are returned up to their last line end.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::write::MultiGzDecoder;
use terrane_env::task::run_blocking;

use crate::formats::csv::RecordEnds;

/// Longest record: the largest row mutation with every byte escaped twice, plus its JSON syntax.
const RECORD_BYTES_MAX: usize = 96 << 20;
/// Size of one read.
const CHUNK_BYTES: usize = 256 * 1024;
/// The first bytes of every gzip file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// What some programs write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Means standard input on the command line.
pub const STANDARD_INPUT: &str = "-";

/// Whether this path means standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
}

/// Whether this input can be read only once, from its start: standard input, a pipe, a terminal or a device.
pub async fn is_stream(path: &Path) -> bool {
    // A path without a file is reported where it is opened.
    is_standard_input(path) || terrane_env::fs::is_stream(path).await.unwrap_or(false)
}

/// A place between two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// Bytes before it, decompressed; records of a Parquet file.
    pub offset: u64,
    /// The number of the line that begins there.
    pub line: u64,
}

impl Position {
    /// Before everything.
    pub const START: Position = Position { offset: 0, line: 1 };
}

/// Complete records.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Their bytes, with line ends.
    pub bytes: Vec<u8>,
    /// The number of the first line.
    pub line: u64,
    /// Whether this stands for a line longer than any record, whose bytes are dropped.
    pub too_long: bool,
    /// Where the next block begins.
    pub end: Position,
    /// Bytes of the input read so far, before decompression.
    pub bytes_read: u64,
}

/// How records end.
#[derive(Clone, Debug)]
pub enum Ends {
    /// At line ends.
    Lines,
    /// At line ends outside of quotes.
    Csv(RecordEnds),
}

/// Reads an input block by block.
pub struct BlockReader {
    source: Source,
    decoder: Decoder,
    ends: Ends,
    /// Decompressed bytes that were not returned yet,
    waiting: Vec<u8>,
    /// how far ends have been searched for in them,
    searched: usize,
    /// and where they begin.
    position: Position,
    /// Decompressed bytes still to be dropped to get to where the caller wants to start.
    to_drop: u64,
    /// Whether the rest of an oversized line is being skipped.
    skipping: bool,
    ended: bool,
    /// Bytes read from the source, before decompression.
    bytes_read: u64,
}

enum Source {
    File { file: terrane_env::fs::File, bytes: u64 },
    Stream(terrane_env::fs::Stream),
    StandardInput,
}

enum Decoder {
    /// Fewer than two bytes have been read.
    Undecided(Vec<u8>),
    Plain,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

impl BlockReader {
    /// Opens the file, or standard input for `-`, at a place between two of its records.
    pub async fn open(path: &Path, ends: Ends, from: Position) -> io::Result<BlockReader> {
        let source = if is_standard_input(path) {
            Source::StandardInput
        } else if is_stream(path).await {
            let path = path.to_owned();
            Source::Stream(run_blocking(move || terrane_env::fs::Stream::open_now(&path)).await?)
        } else {
            let file = terrane_env::fs::File::open_read(path).await?;
            let bytes = file.len().await?;
            Source::File { file, bytes }
        };
        let decoder = Decoder::Undecided(Vec::new());
        let mut reader = BlockReader {
            source,
            decoder,
            ends,
            waiting: Vec::new(),
            searched: 0,
            position: Position::START,
            to_drop: 0,
            skipping: false,
            ended: false,
            bytes_read: 0,
        };
        reader.begin(from).await?;
        Ok(reader)
    }

    /// Reads the first bytes, and gets to where the caller wants to start: behind a byte-order mark, in every format.
    async fn begin(&mut self, from: Position) -> io::Result<()> {
        // No further than needed: a user who types one character and a line end waits for no more.
        while !self.ended && BYTE_ORDER_MARK.starts_with(&self.waiting) && self.waiting.len() < BYTE_ORDER_MARK.len() {
            self.fill().await?;
        }
        if from != Position::START {
            self.position = from;
            if let (Decoder::Plain, Source::File { bytes, .. }) = (&self.decoder, &self.source) {
                self.waiting.clear();
                self.bytes_read = from.offset.min(*bytes);
                self.ended = false;
            } else {
                self.to_drop = from.offset;
                self.drop_passed();
            }
        } else if self.waiting.starts_with(BYTE_ORDER_MARK) {
            self.waiting.drain(..BYTE_ORDER_MARK.len());
            self.position.offset = BYTE_ORDER_MARK.len() as u64;
        }
        Ok(())
    }

    fn drop_passed(&mut self) {
        let count = usize::try_from(self.to_drop).unwrap_or(usize::MAX).min(self.waiting.len());
        self.waiting.drain(..count);
        self.to_drop -= count as u64;
    }

    /// Where the next block begins.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The first record, as a block of its own.
    pub async fn first_record(&mut self) -> io::Result<Option<Block>> {
        self.next_block(true).await
    }

    /// The next records; `None` at the end of the input.
    pub async fn next(&mut self) -> io::Result<Option<Block>> {
        self.next_block(false).await
    }

    async fn next_block(&mut self, first_only: bool) -> io::Result<Option<Block>> {
        loop {
            let end = self.search(first_only);
            if self.skipping {
                if let Some(end) = end {
                    self.skipping = false;
                    let line = self.position.line;
                    self.take(end);
                    self.position.line = line;
                    continue;
                }
                self.position.offset += self.waiting.len() as u64;
                self.waiting.clear();
                self.searched = 0;
            } else if let Some(end) = end {
                return Ok(Some(self.take(end)));
            } else if self.ended && !self.waiting.is_empty() {
                return Ok(Some(self.take(self.waiting.len())));
            } else if self.waiting.len() > RECORD_BYTES_MAX {
                return Ok(Some(self.give_up()));
            }
            if self.ended {
                return Ok(None);
            }
            self.fill().await?;
        }
    }

    /// Where the last record that has arrived ends, or the first one.
    fn search(&mut self, first_only: bool) -> Option<usize> {
        let start = self.searched;
        let new = &self.waiting[start..];
        let found = match &mut self.ends {
            // Of a line that is skipped only the end is wanted.
            _ if self.skipping => memchr::memchr(b'\n', new).map(|at| at + 1),
            Ends::Lines if first_only => memchr::memchr(b'\n', new).map(|at| at + 1),
            Ends::Lines => memchr::memrchr(b'\n', new).map(|at| at + 1),
            Ends::Csv(ends) => ends.scan(new, first_only),
        };
        let found = found.map(|end| start + end);
        let stops = first_only || self.skipping;
        self.searched = found.filter(|_| stops).unwrap_or(self.waiting.len());
        found
    }

    /// The waiting bytes up to `end` as a block.
    fn take(&mut self, end: usize) -> Block {
        let rest = self.waiting.split_off(end);
        self.searched = self.searched.saturating_sub(end);
        let bytes = std::mem::replace(&mut self.waiting, rest);
        let line = self.position.line;
        let lines = memchr::memchr_iter(b'\n', &bytes).count() + usize::from(!bytes.ends_with(b"\n"));
        self.position.offset += bytes.len() as u64;
        self.position.line += lines as u64;
        Block { bytes, line, too_long: false, end: self.position, bytes_read: self.bytes_read }
    }

    /// The waiting bytes are longer than any record. A line is skipped. A quote that is not closed is left to the parser, with
    /// the lines after it, and records end at line ends again.
    fn give_up(&mut self) -> Block {
        if let Ends::Csv(ends) = &mut self.ends {
            ends.restart();
            if let Some(last) = memchr::memrchr(b'\n', &self.waiting) {
                self.searched = 0;
                return self.take(last + 1);
            }
        }
        let line = self.position.line;
        // A later run must not start inside of the line.
        let end = self.position;
        self.position = Position { offset: end.offset + self.waiting.len() as u64, line: line + 1 };
        self.waiting.clear();
        self.searched = 0;
        self.skipping = true;
        Block { bytes: Vec::new(), line, too_long: true, end, bytes_read: self.bytes_read }
    }

    /// Reads and decompresses more.
    async fn fill(&mut self) -> io::Result<()> {
        let chunk = self.source.read(self.bytes_read).await?;
        if chunk.is_empty() {
            self.decoder.finish(&mut self.waiting)?;
            self.ended = true;
        } else {
            self.bytes_read += chunk.len() as u64;
            self.decoder.feed(&chunk, &mut self.waiting)?;
        }
        self.drop_passed();
        Ok(())
    }
}

/// The total size of the inputs if none is a stream, for the progress bar.
pub async fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    let mut total = 0;
    for path in paths {
        if is_stream(path).await {
            return None;
        }
        total += terrane_env::fs::file_len(path).await.ok()?;
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
            // The read may wait for a writer, or for the user to type, which must not block a thread of the runtime.
            Source::Stream(stream) => {
                let stream = stream.clone();
                run_blocking(move || {
                    let mut chunk = vec![0; CHUNK_BYTES];
                    let length = stream.read_now(&mut chunk)?;
                    chunk.truncate(length);
                    Ok(chunk)
                })
                .await
            }
            Source::StandardInput => {
                run_blocking(|| {
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

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::formats::csv::COMMA;

    async fn blocks_of(bytes: &[u8], ends: Ends, from: Position) -> io::Result<Vec<Block>> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("input");
        terrane_env::fs::write_durable(&path, bytes).await.expect("written");
        let mut reader = BlockReader::open(&path, ends, from).await?;
        let mut blocks = Vec::new();
        while let Some(block) = reader.next().await? {
            blocks.push(block);
        }
        Ok(blocks)
    }

    async fn text_of(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let blocks = blocks_of(bytes, Ends::Lines, Position::START).await?;
        let mut line = 1;
        for block in &blocks[..blocks.len().saturating_sub(1)] {
            assert!(block.bytes.ends_with(b"\n"));
            assert_eq!(block.line, line);
            line += block.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            assert_eq!(block.end.line, line);
        }
        Ok(blocks.into_iter().flat_map(|block| block.bytes).collect())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("in memory");
        encoder.finish().expect("in memory")
    }

    #[tokio::test]
    async fn blocks_end_at_line_ends_and_the_last_needs_none() {
        assert_eq!(text_of(b"").await.expect("read"), b"");
        assert_eq!(text_of(b"a").await.expect("read"), b"a");
        assert_eq!(text_of(b"a\r\n\nb").await.expect("read"), b"a\r\n\nb");
        let last = blocks_of(b"a\nb", Ends::Lines, Position::START).await.expect("read").pop().expect("a block");
        assert_eq!((last.bytes, last.line, last.end), (b"b".to_vec(), 2, Position { offset: 3, line: 3 }));
    }

    #[tokio::test]
    async fn gzip_is_known_by_its_first_bytes_and_may_have_several_members() {
        let text: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
        assert_eq!(text_of(text.as_bytes()).await.expect("read"), text.as_bytes());
        assert_eq!(text_of(&gzip(text.as_bytes())).await.expect("read"), text.as_bytes());
        let (first, second) = text.as_bytes().split_at(700_001);
        assert_eq!(text_of(&[gzip(first), gzip(second)].concat()).await.expect("read"), text.as_bytes());
    }

    #[tokio::test]
    async fn damaged_gzip_is_an_error() {
        let whole = gzip(&b"some lines\n".repeat(10_000));
        for cut in [3, 20, whole.len() / 2, whole.len() - 1] {
            let error = text_of(&whole[..cut]).await.expect_err("cut short");
            assert!(error.to_string().contains("gzip"), "{cut}: {error}");
        }
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x55;
        text_of(&flipped).await.expect_err("damaged");
    }

    #[tokio::test]
    async fn reading_continues_at_the_end_of_any_block() {
        let text: String = (0..150_000).map(|number| format!("k{number},\"a\nb\"\n")).collect();
        let ends = || Ends::Csv(RecordEnds::new(COMMA));
        for bytes in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
            let blocks = blocks_of(&bytes, ends(), Position::START).await.expect("read");
            assert!(blocks.len() > 1, "several chunks");
            for (number, block) in blocks.iter().enumerate() {
                let rest = blocks_of(&bytes, ends(), block.end).await.expect("read");
                let rest_text: Vec<u8> = rest.iter().flat_map(|block| block.bytes.clone()).collect();
                let expected: Vec<u8> = blocks[number + 1..].iter().flat_map(|block| block.bytes.clone()).collect();
                assert_eq!(rest_text, expected);
                assert_eq!(rest.first().map(|block| block.line), blocks.get(number + 1).map(|block| block.line));
            }
        }
    }

    #[tokio::test]
    async fn the_header_is_the_first_record_without_a_byte_order_mark() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("input");
        terrane_env::fs::write_durable(&path, b"\xef\xbb\xbfa,\"b\nc\"\nk,v\nl,w\n").await.expect("written");
        let ends = Ends::Csv(RecordEnds::new(COMMA));
        let mut reader = BlockReader::open(&path, ends, Position::START).await.expect("opened");
        let header = reader.first_record().await.expect("read").expect("a record");
        assert_eq!(header.bytes, b"a,\"b\nc\"\n");
        let rest = reader.next().await.expect("read").expect("records");
        assert_eq!((rest.bytes, rest.line), (b"k,v\nl,w\n".to_vec(), 3));
        assert_eq!(rest.end, Position { offset: 19, line: 5 });
        assert_eq!(reader.next().await.expect("read"), None);
    }

    #[tokio::test]
    async fn a_byte_order_mark_belongs_to_no_line() {
        let marked = [BYTE_ORDER_MARK, b"a\t1\nb\t2\n"].concat();
        for bytes in [marked.clone(), gzip(&marked)] {
            for ends in [Ends::Lines, Ends::Csv(RecordEnds::new(COMMA))] {
                let blocks = blocks_of(&bytes, ends.clone(), Position::START).await.expect("read");
                assert_eq!((&blocks[0].bytes[..], blocks[0].line), (&b"a\t1\nb\t2\n"[..], 1));
                assert_eq!(blocks[0].end, Position { offset: 11, line: 3 }, "positions count it");
                let second = blocks_of(&bytes, ends, Position { offset: 7, line: 2 }).await.expect("read");
                assert_eq!((&second[0].bytes[..], second[0].line), (&b"b\t2\n"[..], 2));
            }
        }
        // Only a whole one, and only at the beginning.
        for text in [&b"\xef"[..], b"\xef\xbb", b"\xef\xbba\n", b"a\n\xef\xbb\xbfb\n"] {
            assert_eq!(text_of(text).await.expect("read"), text);
        }
        assert_eq!(text_of(BYTE_ORDER_MARK).await.expect("read"), b"");
    }

    #[tokio::test]
    async fn an_oversized_line_is_skipped_also_inside_of_quotes() {
        let mut text = b"first\n".to_vec();
        text.resize(text.len() + RECORD_BYTES_MAX + CHUNK_BYTES * 3, b'x');
        text.extend_from_slice(b"tail\nthird\n");
        let blocks = blocks_of(&text, Ends::Lines, Position::START).await.expect("read");
        let seen: Vec<(u64, bool, &[u8])> =
            blocks.iter().map(|block| (block.line, block.too_long, &block.bytes[..])).collect();
        assert_eq!(seen, [(1, false, &b"first\n"[..]), (2, true, b""), (3, false, b"third\n")]);
        text[6] = b'"';
        let blocks = blocks_of(&text, Ends::Csv(RecordEnds::new(COMMA)), Position::START).await.expect("read");
        let seen: Vec<(u64, bool, &[u8])> =
            blocks.iter().map(|block| (block.line, block.too_long, &block.bytes[..])).collect();
        assert_eq!(seen, [(1, false, &b"first\n"[..]), (2, true, b""), (3, false, b"third\n")]);
    }

    #[tokio::test]
    async fn lines_after_a_quote_that_is_never_closed_are_returned() {
        let mut text = b"a,\"b\n".to_vec();
        let line = b"0123456789abcdef,x\n";
        let lines = (RECORD_BYTES_MAX + 4 * CHUNK_BYTES) / line.len();
        (0..lines).for_each(|_| text.extend_from_slice(line));
        text.extend_from_slice(b"last,\"y\nz\"\n");
        let blocks = blocks_of(&text, Ends::Csv(RecordEnds::new(COMMA)), Position::START).await.expect("read");
        assert!(blocks.len() > 1 && blocks.iter().all(|block| block.bytes.ends_with(b"\n") && !block.too_long));
        let mut next = Position::START;
        for block in &blocks {
            assert_eq!(block.line, next.line);
            next = block.end;
        }
        assert_eq!(next, Position { offset: text.len() as u64, line: lines as u64 + 4 });
        assert!(blocks.last().is_some_and(|block| block.bytes.ends_with(b"last,\"y\nz\"\n")));
    }

    #[tokio::test]
    async fn a_pipe_is_read_to_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        let mut writer = std::process::Command::new("sh")
            .args(["-c", "yes line | head -n 100000 > \"$0\""])
            .arg(&path)
            .spawn()
            .expect("a writer");
        assert!(is_stream(&path).await);
        let mut reader = BlockReader::open(&path, Ends::Lines, Position::START).await.expect("opened");
        let mut bytes = 0;
        while let Some(block) = reader.next().await.expect("read") {
            bytes += block.bytes.len();
        }
        assert_eq!(bytes, 500_000);
        assert!(writer.wait().expect("ended").success());
    }
}
