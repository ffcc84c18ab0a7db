//! The inputs of an import: what their records are, and their records, block by block.
//!
//! All inputs are examined before the first row is written, so that a wrong header or a missing file writes nothing. Then one
//! task per open input reads, and further ones parse what it read; blocks arrive in the order of the input.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::task::{run_blocking, spawn_named};
use terrane_types::TableSchema;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::args::transfer::Import;
use crate::failure::Failure;
use crate::formats::csv::{COMMA, RecordEnds};
use crate::formats::mapping::{Columns, Mapping, Names};
use crate::formats::parquet::{FileBytes, ParquetReader, Shape};
use crate::formats::{Backslashes, Csv, Delimited, Format, Item, Objects, Parsed, TextFormat};
use crate::input::{Block, BlockReader, Ends, Position, is_stream};

/// Blocks of an input that are read and parsed ahead of the writer.
const BLOCKS_AHEAD: usize = 4;

/// An input, before it is read.
pub struct Input {
    /// Its path as given.
    pub path: PathBuf,
    /// Where its records begin.
    pub start: Position,
    /// Its header line, if it has one.
    pub header: Option<Vec<u8>>,
    contents: Contents,
    /// A stream, which cannot be opened twice.
    opened: Option<BlockReader>,
}

#[derive(Clone)]
enum Contents {
    Text(Arc<TextFormat>, Ends),
    Parquet(Arc<Shape>),
}

/// Records that were read and parsed.
pub struct ParsedBlock {
    /// The records.
    pub items: Vec<Item>,
    /// The bytes that they were parsed from.
    pub bytes: Vec<u8>,
    /// Where the next block begins.
    pub end: Position,
    /// Bytes of the input read so far.
    pub bytes_read: u64,
}

/// The blocks of an input, in order.
pub struct Blocks {
    parsing: mpsc::Receiver<Result<JoinHandle<ParsedBlock>, Failure>>,
}

impl Blocks {
    /// The next block; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<ParsedBlock, Failure>> {
        let parsing = match self.parsing.recv().await? {
            Ok(parsing) => parsing,
            Err(failure) => return Some(Err(failure)),
        };
        match parsing.await {
            Ok(block) => Some(Ok(block)),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }
}

/// Finds out what the records of all inputs are.
pub async fn examine(args: &Import, schema: &TableSchema) -> Result<Vec<Input>, Failure> {
    let columns = args.columns.as_deref().map(Columns::parse).transpose().map_err(Failure::usage)?;
    let names = Names::new(schema, args.raw);
    let mut inputs = Vec::new();
    let mut notes = BTreeSet::new();
    for path in &args.files {
        let input = examine_one(args, path, columns.as_ref(), &names).await?;
        let of_input = match &input.contents {
            Contents::Text(format, _) => format.notes(),
            Contents::Parquet(shape) => shape.notes(),
        };
        notes.extend(of_input.iter().cloned());
        inputs.push(input);
    }
    for note in notes {
        eprintln!("note: {note}");
    }
    Ok(inputs)
}

async fn examine_one(
    args: &Import,
    path: &Path,
    columns: Option<&Columns>,
    names: &Names<'_>,
) -> Result<Input, Failure> {
    let lines = |format| Contents::Text(Arc::new(format), Ends::Lines);
    let in_order = |columns: &Columns| match columns {
        Columns::Ordered(words) => {
            Mapping::ordered(words, names).map_err(|error| Failure::usage(format!("--columns: {error}")))
        }
        Columns::Named(_) => {
            Err(Failure::usage("--columns names fields, but the file has no names: list what its fields are in order"))
        }
    };
    let contents = match (args.format, columns) {
        (Format::Ncdc, _) => lines(TextFormat::Ncdc),
        (Format::Stations, _) => lines(TextFormat::Stations),
        (Format::Jsonl, None) => lines(TextFormat::Jsonl(names.declared())),
        (Format::Jsonl, Some(columns)) => {
            let objects = Objects::new(columns, names);
            lines(TextFormat::Objects(objects.map_err(|error| Failure::usage(format!("--columns: {error}")))?))
        }
        (Format::Tsv, None) => lines(TextFormat::Tsv),
        (Format::Tsv, Some(columns)) => {
            let separator = args.separator.unwrap_or(b'\t');
            lines(TextFormat::Delimited(Delimited::new(in_order(columns)?, separator, backslashes(args))))
        }
        (Format::Csv, _) => return examine_csv(args, path, columns, names, in_order).await,
        (Format::Parquet, _) => {
            let reader = open_parquet(path).await?;
            let shape = reader.shape(columns, names).map_err(|error| wrong(path, &error))?;
            Contents::Parquet(Arc::new(shape))
        }
    };
    if !is_stream(path).await {
        // A missing file is known before anything is written. A stream may have nothing to read yet, and does not hold up the
        // files; opened and closed again, a pipe would lose its writer.
        terrane_env::fs::File::open_read(path).await.map_err(|error| unreadable(path, &error))?;
    }
    Ok(Input { path: path.to_owned(), start: Position::START, header: None, contents, opened: None })
}

async fn examine_csv(
    args: &Import,
    path: &Path,
    columns: Option<&Columns>,
    names: &Names<'_>,
    in_order: impl Fn(&Columns) -> Result<Mapping, Failure>,
) -> Result<Input, Failure> {
    let separator = args.separator.unwrap_or(COMMA);
    let ends = Ends::Csv(RecordEnds::new(separator));
    let mut reader = open(path, ends.clone(), Position::START).await?;
    let (csv, header) = match columns.filter(|_| args.no_header) {
        Some(columns) => (Csv::without_header(in_order(columns)?, separator, backslashes(args)), None),
        None => {
            let header = reader.first_record().await.map_err(|error| unreadable(path, &error))?;
            let bytes = header.as_ref().map_or(&[][..], |header| &header.bytes);
            let csv = Csv::of_header(bytes, separator, backslashes(args), columns, names);
            (csv.map_err(|error| wrong(path, &error))?, header)
        }
    };
    let start = header.as_ref().map_or(reader.position(), |header| header.end);
    let opened = if is_stream(path).await { Some(reader) } else { None };
    let contents = Contents::Text(Arc::new(TextFormat::Csv(csv)), ends);
    Ok(Input { path: path.to_owned(), start, header: header.map(|header| header.bytes), contents, opened })
}

fn backslashes(args: &Import) -> Backslashes {
    if args.no_escapes { Backslashes::Literal } else { Backslashes::Escape }
}

fn wrong(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("{}: {why}", path.display()))
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot read {}: {why}", path.display()))
}

async fn open(path: &Path, ends: Ends, from: Position) -> Result<BlockReader, Failure> {
    BlockReader::open(path, ends, from).await.map_err(|error| unreadable(path, &error))
}

async fn open_parquet(path: &Path) -> Result<ParquetReader, Failure> {
    let file = terrane_env::fs::File::open_read(path).await.map_err(|error| unreadable(path, &error))?;
    let length = file.len().await.map_err(|error| unreadable(path, &error))?;
    let opened = run_blocking(move || ParquetReader::open(FileBytes::new(file, length))).await;
    opened.map_err(|error| unreadable(path, &error))
}

impl Input {
    /// Starts to read and parse from a place on. Cells without a timestamp get `stamp`, or leave it to the server.
    pub fn start(self, from: Position, stamp: Option<i64>) -> Blocks {
        let (sender, parsing) = mpsc::channel(BLOCKS_AHEAD);
        spawn_named("import reader", async move {
            let failed = match self.contents.clone() {
                Contents::Text(format, ends) => self.read_text(format, ends, from, stamp, &sender).await.err(),
                Contents::Parquet(shape) => self.read_parquet(shape, from, stamp, &sender).await.err(),
            };
            if let Some(failure) = failed {
                // The import may have ended.
                sender.send(Err(failure)).await.ok();
            }
        });
        Blocks { parsing }
    }

    async fn read_text(
        self,
        format: Arc<TextFormat>,
        ends: Ends,
        from: Position,
        stamp: Option<i64>,
        sender: &mpsc::Sender<Result<JoinHandle<ParsedBlock>, Failure>>,
    ) -> Result<(), Failure> {
        let mut reader = match self.opened {
            Some(reader) => reader,
            None => open(&self.path, ends, from).await?,
        };
        while let Some(block) = reader.next().await.map_err(|error| unreadable(&self.path, &error))? {
            let format = Arc::clone(&format);
            let parsing = spawn_named("import parser", run_blocking(move || parse(&format, block, stamp)));
            if sender.send(Ok(parsing)).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    async fn read_parquet(
        self,
        shape: Arc<Shape>,
        from: Position,
        stamp: Option<i64>,
        sender: &mpsc::Sender<Result<JoinHandle<ParsedBlock>, Failure>>,
    ) -> Result<(), Failure> {
        let mut reader = open_parquet(&self.path).await?;
        let file_bytes = terrane_env::fs::file_len(&self.path).await.unwrap_or(0);
        let records = reader.records().max(1);
        let skipping = Arc::clone(&shape);
        let skipped = run_blocking(move || reader.skip(&skipping, from.offset).map(|()| reader)).await;
        let mut reader = skipped.map_err(|error| unreadable(&self.path, &error))?;
        loop {
            let reading = Arc::clone(&shape);
            let (returned, batch) = run_blocking(move || {
                let batch = reader.next_batch(&reading);
                (reader, batch)
            })
            .await;
            reader = returned;
            let Some(batch) = batch.map_err(|error| unreadable(&self.path, &error))? else { return Ok(()) };
            let shape = Arc::clone(&shape);
            let parse = move || {
                let items = stamped(shape.parse(&batch), stamp);
                let end = Position { offset: batch.end, line: batch.end + 1 };
                let bytes_read = (file_bytes as f64 * (batch.end as f64 / records as f64)) as u64;
                ParsedBlock { items, bytes: Vec::new(), end, bytes_read }
            };
            if sender.send(Ok(spawn_named("import parser", run_blocking(parse)))).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn parse(format: &TextFormat, block: Block, stamp: Option<i64>) -> ParsedBlock {
    let Block { bytes, line, too_long, end, bytes_read } = block;
    let items = if too_long { vec![Item::too_long(line)] } else { stamped(format.parse_block(&bytes, line), stamp) };
    ParsedBlock { items, bytes, end, bytes_read }
}

/// One timestamp for all cells without one, so that a row that is written twice is the same cells.
fn stamped(mut items: Vec<Item>, stamp: Option<i64>) -> Vec<Item> {
    if stamp.is_some() {
        for item in &mut items {
            if let Ok(Parsed::Record(record)) = &mut item.parsed {
                record.cells.iter_mut().for_each(|cell| cell.timestamp = cell.timestamp.or(stamp));
            }
        }
    }
    items
}
