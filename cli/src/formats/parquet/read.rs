//! Reads Parquet files: batches of columns from the disk, and records from batches.
//!
//! Reading a batch decompresses and decodes, and must not run on a thread of the runtime; parsing one is separate, so that
//! several are parsed at once.

use std::io::{self, Read};
use std::sync::Arc;

use ::parquet::basic::Type as PhysicalType;
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::{ByteArray, FixedLenByteArray};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, FileReader, Length};
use ::parquet::file::serialized_reader::SerializedFileReader;
use ::parquet::schema::types::ColumnDescriptor;
use bytes::Bytes;
use terrane_types::limits::{QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, VALUE_BYTES_MAX};

use super::super::field::Field;
use super::super::mapping::{Columns, Mapping, Names, Use};
use super::super::{Item, LineError, Parsed, Record, RecordCell, check_timestamp};
use super::types::{Meaning, check_codec, integer_of_decimal, meaning_of, note_of};
use super::{CELLS, KEY_PREFIX, Kind};

/// Records of a batch,
const BATCH_RECORDS: usize = 8192;
/// and about how many decompressed bytes it may have if records are large.
const BATCH_BYTES: usize = 4 << 20;
/// Size of one read of a file that is read in order.
const READ_BYTES: usize = 256 << 10;

/// A file as the crate reads it: at positions, from any thread that may block.
#[derive(Clone, Debug)]
pub struct FileBytes {
    file: Arc<terrane_env::fs::File>,
    length: u64,
}

impl FileBytes {
    /// An open file of this length.
    pub fn new(file: terrane_env::fs::File, length: u64) -> FileBytes {
        FileBytes { file: Arc::new(file), length }
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for FileBytes {
    type T = io::BufReader<FromPlace>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(io::BufReader::with_capacity(READ_BYTES, FromPlace { bytes: self.clone(), place: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are not in the file")));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at_now(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

/// Reads a file from a place on.
pub struct FromPlace {
    bytes: FileBytes,
    place: u64,
}

impl Read for FromPlace {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.length.saturating_sub(self.place)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        self.bytes.file.read_exact_at_now(&mut buffer[..count], self.place)?;
        self.place += count as u64;
        Ok(count)
    }
}

/// What the records of a file are.
#[derive(Clone, Debug)]
pub struct Shape {
    layout: Layout,
    /// The places of the columns that are read, and what their numbers mean.
    columns: Vec<(usize, Meaning)>,
    /// What a user may want to know before rows are written.
    notes: Vec<String>,
}

#[derive(Clone, Debug)]
enum Layout {
    Cells,
    Rows(Mapping),
}

impl Shape {
    /// What a user may want to know before rows are written.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The records of a file, in order.
pub struct ParquetReader {
    file: SerializedFileReader<FileBytes>,
    /// The next row group.
    group: usize,
    /// The readers of the current row group, and its records left.
    columns: Vec<ColumnReader>,
    left: usize,
    batch_records: usize,
    /// Records read so far.
    position: u64,
}

/// Some records, column by column.
pub struct Batch {
    records: usize,
    columns: Vec<Column>,
    /// The number of the first record, counted from 1,
    pub first: u64,
    /// and the records up to the end of the batch.
    pub end: u64,
}

struct Column {
    /// Whether each record has a value; empty if all have.
    present: Vec<i16>,
    values: Values,
}

enum Values {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

impl ParquetReader {
    /// Reads the footer. The messages of the crate are its own.
    pub fn open(bytes: FileBytes) -> std::result::Result<ParquetReader, String> {
        if bytes.length == 0 {
            return Err("the file is empty, which no Parquet file is".to_owned());
        }
        let file = SerializedFileReader::new(bytes).map_err(|error| format!("not a Parquet file: {error}"))?;
        Ok(ParquetReader { file, group: 0, columns: Vec::new(), left: 0, batch_records: 0, position: 0 })
    }

    /// The number of records.
    pub fn records(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// What the records are.
    pub fn shape(&self, columns: Option<&Columns>, names: &Names<'_>) -> std::result::Result<Shape, String> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        let found = schema.columns();
        if columns.is_none()
            && let Some(columns) = cells_columns(found)?
        {
            self.check_codecs(&columns)?;
            return Ok(Shape { layout: Layout::Cells, columns, notes: Vec::new() });
        }
        let fields: Vec<String> = found.iter().map(|column| column.path().string()).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let mapping = Mapping::named(&fields, columns, names)?;
        let mut columns = Vec::new();
        let mut notes = mapping.notes().to_vec();
        for (at, column) in found.iter().enumerate() {
            let Some(used) = mapping.use_of(at) else { continue };
            columns.push((at, meaning_of(column, used)?));
            notes.extend(note_of(column, used));
        }
        self.check_codecs(&columns)?;
        Ok(Shape { layout: Layout::Rows(mapping), columns, notes })
    }

    /// Refuses columns that could not be decompressed, before a row is written.
    fn check_codecs(&self, columns: &[(usize, Meaning)]) -> std::result::Result<(), String> {
        for group in self.file.metadata().row_groups() {
            for (at, _) in columns {
                let column = group.column(*at);
                check_codec(&column.column_descr().path().string(), column.compression())?;
            }
        }
        Ok(())
    }

    /// Skips records that were read before.
    pub fn skip(&mut self, shape: &Shape, records: u64) -> std::result::Result<(), String> {
        let mut left = records;
        while left > 0 && self.group < self.file.num_row_groups() {
            let in_group = self.file.metadata().row_group(self.group).num_rows();
            let in_group = u64::try_from(in_group).unwrap_or(0);
            if in_group <= left {
                self.group += 1;
                left -= in_group;
                continue;
            }
            self.open_group(shape).map_err(|error| error.to_string())?;
            let skipped = usize::try_from(left).expect("less than the records of a row group");
            for column in &mut self.columns {
                skip_in(column, skipped).map_err(|error| error.to_string())?;
            }
            self.left -= skipped;
            left = 0;
        }
        self.position = records - left;
        Ok(())
    }

    /// The next records; `None` at the end. Blocks.
    pub fn next_batch(&mut self, shape: &Shape) -> std::result::Result<Option<Batch>, String> {
        let position = self.position;
        while self.left == 0 {
            if self.group == self.file.num_row_groups() {
                return Ok(None);
            }
            let group = self.group;
            self.open_group(shape).map_err(|error| format!("row group {group}: {error}"))?;
        }
        let records = self.batch_records.min(self.left);
        let columns = self.columns.iter_mut().map(|column| read_column(column, records)).collect::<Result<Vec<_>>>();
        let columns = columns.map_err(|error| format!("after record {position}: {error}"))?;
        self.left -= records;
        let first = self.position + 1;
        self.position += records as u64;
        Ok(Some(Batch { records, columns, first, end: self.position }))
    }

    fn open_group(&mut self, shape: &Shape) -> Result<()> {
        let group = self.file.get_row_group(self.group)?;
        self.columns = shape.columns.iter().map(|(at, _)| group.get_column_reader(*at)).collect::<Result<_>>()?;
        self.left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let bytes = usize::try_from(group.metadata().total_byte_size()).unwrap_or(0);
        let record_bytes = (bytes / self.left.max(1)).max(1);
        self.batch_records = (BATCH_BYTES / record_bytes).clamp(1, BATCH_RECORDS);
        self.group += 1;
        Ok(())
    }
}

/// The columns of the layout `cells`, if these are.
fn cells_columns(found: &[Arc<ColumnDescriptor>]) -> std::result::Result<Option<Vec<(usize, Meaning)>>, String> {
    let mut columns = Vec::new();
    for (name, kind) in CELLS {
        let Some(at) = found.iter().position(|column| column.path().string() == name) else { return Ok(None) };
        let physical = if kind == Kind::I64 { PhysicalType::INT64 } else { PhysicalType::BYTE_ARRAY };
        if found[at].physical_type() != physical || found[at].max_rep_level() > 0 || found[at].max_def_level() > 1 {
            return Ok(None);
        }
        columns.push((at, if kind == Kind::I64 { Use::Timestamp } else { Use::Value }));
    }
    let others = found.iter().map(|column| column.path().string()).filter(|name| !name.starts_with(KEY_PREFIX));
    if others.count() != CELLS.len() {
        return Ok(None);
    }
    let meanings = columns.into_iter().map(|(at, used)| Ok((at, meaning_of(&found[at], used)?)));
    meanings.collect::<std::result::Result<_, String>>().map(Some)
}

macro_rules! every_reader {
    ($column:expr, $reader:ident => $done:expr, $other:expr) => {
        match $column {
            ColumnReader::BoolColumnReader($reader) => $done,
            ColumnReader::Int32ColumnReader($reader) => $done,
            ColumnReader::Int64ColumnReader($reader) => $done,
            ColumnReader::FloatColumnReader($reader) => $done,
            ColumnReader::DoubleColumnReader($reader) => $done,
            ColumnReader::ByteArrayColumnReader($reader) => $done,
            ColumnReader::FixedLenByteArrayColumnReader($reader) => $done,
            ColumnReader::Int96ColumnReader(_) => $other,
        }
    };
}

fn skip_in(column: &mut ColumnReader, records: usize) -> Result<usize> {
    every_reader!(column, reader => reader.skip_records(records), Err(refused_type()))
}

fn refused_type() -> ParquetError {
    ParquetError::General("an INT96 column".to_owned())
}

fn read_column(column: &mut ColumnReader, records: usize) -> Result<Column> {
    macro_rules! read {
        ($reader:expr, $values:path) => {{
            let (mut present, mut values) = (Vec::new(), Vec::new());
            let mut read = 0;
            // A call may end at the end of a page.
            while read < records {
                let (count, _, _) = $reader.read_records(records - read, Some(&mut present), None, &mut values)?;
                if count == 0 {
                    return Err(ParquetError::EOF(format!("a column ends {} records too early", records - read)));
                }
                read += count;
            }
            Column { present, values: $values(values) }
        }};
    }
    Ok(match column {
        ColumnReader::BoolColumnReader(reader) => read!(reader, Values::Bool),
        ColumnReader::Int32ColumnReader(reader) => read!(reader, Values::I32),
        ColumnReader::Int64ColumnReader(reader) => read!(reader, Values::I64),
        ColumnReader::FloatColumnReader(reader) => read!(reader, Values::F32),
        ColumnReader::DoubleColumnReader(reader) => read!(reader, Values::F64),
        ColumnReader::ByteArrayColumnReader(reader) => read!(reader, Values::Bytes),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => read!(reader, Values::Fixed),
        ColumnReader::Int96ColumnReader(_) => return Err(refused_type()),
    })
}

/// Walks a column record by record.
struct Cursor<'b> {
    column: &'b Column,
    meaning: Meaning,
    record: usize,
    value: usize,
}

impl<'b> Cursor<'b> {
    /// The field of the next record. The cursor is past it also if the field is no value of its type.
    fn next(&mut self) -> std::result::Result<Field<'b>, LineError> {
        let present = self.column.present.get(self.record).is_none_or(|level| *level > 0);
        self.record += 1;
        if !present {
            return Ok(Field::Null);
        }
        let at = self.value;
        self.value += 1;
        let field = match &self.column.values {
            Values::Bool(values) => values.get(at).map(|value| Field::Bool(*value)),
            Values::I32(values) => values.get(at).map(|value| {
                Field::Integer(match self.meaning {
                    // The bits of an unsigned number are stored as a signed one.
                    Meaning::Unsigned => i128::from(value.cast_unsigned()),
                    meaning => meaning.integer(i64::from(*value)),
                })
            }),
            Values::I64(values) => values.get(at).map(|value| {
                Field::Integer(match self.meaning {
                    Meaning::Unsigned => i128::from(value.cast_unsigned()),
                    meaning => meaning.integer(*value),
                })
            }),
            Values::F32(values) => values.get(at).map(|value| Field::Single(*value)),
            Values::F64(values) => values.get(at).map(|value| Field::Float(*value)),
            Values::Bytes(values) => return values.get(at).map_or(Ok(Field::Null), |value| self.bytes(value.data())),
            Values::Fixed(values) => return values.get(at).map_or(Ok(Field::Null), |value| self.bytes(value.data())),
        };
        Ok(field.unwrap_or(Field::Null))
    }

    fn bytes(&self, bytes: &'b [u8]) -> std::result::Result<Field<'b>, LineError> {
        if self.meaning != Meaning::Decimal {
            return Ok(Field::Bytes(bytes));
        }
        let integer = integer_of_decimal(bytes);
        integer.map(Field::Integer).ok_or_else(|| LineError::new("a decimal is empty or has more than 128 bits"))
    }
}

impl Shape {
    /// Parses the records of a batch.
    pub fn parse(&self, batch: &Batch) -> Vec<Item> {
        let columns = batch.columns.iter().zip(&self.columns);
        let mut cursors: Vec<Cursor<'_>> =
            columns.map(|(column, (_, meaning))| Cursor { column, meaning: *meaning, record: 0, value: 0 }).collect();
        (batch.first..)
            .take(batch.records)
            .map(|line| Item { line, raw: 0..0, parsed: self.record(&mut cursors) })
            .collect()
    }

    fn record(&self, cursors: &mut [Cursor<'_>]) -> std::result::Result<Parsed, LineError> {
        match &self.layout {
            Layout::Rows(mapping) => {
                // Only the columns in use are read; a skipped field is never looked at. All cursors go on, so that those of
                // later records are in place if a field is wrong.
                let mut wrong = None;
                let mut used = cursors.iter_mut();
                let mut fields: Vec<Field<'_>> = Vec::with_capacity(mapping.len());
                for at in 0..mapping.len() {
                    let next = if mapping.use_of(at).is_some() { used.next().map(Cursor::next) } else { None };
                    fields.push(next.unwrap_or(Ok(Field::Null)).unwrap_or_else(|error| {
                        wrong.get_or_insert(error);
                        Field::Null
                    }));
                }
                match wrong {
                    Some(error) => Err(error),
                    None => mapping.record(fields.into_iter()),
                }
            }
            Layout::Cells => {
                let fields: Vec<_> = cursors.iter_mut().map(Cursor::next).collect();
                cell_of(&fields.into_iter().collect::<std::result::Result<Vec<_>, _>>()?)
            }
        }
    }
}

fn cell_of(fields: &[Field<'_>]) -> std::result::Result<Parsed, LineError> {
    let [
        Field::Bytes(row),
        Field::Bytes(family),
        Field::Bytes(qualifier),
        Field::Integer(timestamp),
        Field::Bytes(value),
    ] = *fields
    else {
        let null = fields.iter().zip(CELLS).find(|(field, _)| matches!(field, Field::Null));
        return Err(LineError::new(format!("{} is null", null.map_or("a field", |(_, (name, _))| name))));
    };
    if !(1..=ROW_BYTES_MAX).contains(&row.len()) {
        return Err(LineError::new(format!("the row key has {} bytes; rows have 1 to {ROW_BYTES_MAX}", row.len())));
    }
    for (what, bytes, most) in [("qualifier", qualifier, QUALIFIER_BYTES_MAX), ("value", value, VALUE_BYTES_MAX)] {
        if bytes.len() > most {
            return Err(LineError::new(format!("the {what} has {} bytes; at most {most} are allowed", bytes.len())));
        }
    }
    terrane_types::FamilyName::try_from(family).map_err(|error| LineError::new(error.to_string()))?;
    let timestamp = i64::try_from(timestamp).expect("it was an INT64");
    check_timestamp(timestamp)?;
    let copied = Bytes::copy_from_slice;
    let (family, qualifier, value) = (copied(family), copied(qualifier), copied(value));
    let cell = RecordCell { family, qualifier, timestamp: Some(timestamp), value };
    Ok(Parsed::Record(Record { row: copied(row), cells: vec![cell] }))
}
