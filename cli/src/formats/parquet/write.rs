//! Writes Parquet files: records are collected by columns, and written as a row group when there are enough.
//!
//! The bytes of the file come out as they are ready, for the caller to put where it likes.

use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use bytes::Bytes;
use terrane_types::{KeyDeclaration, Value, ValueType, escape, unescape};

use super::super::{LineError, Record, column_text};
use super::{CELLS, KEY_PREFIX, Kind};

/// Records of a row group,
const GROUP_RECORDS: usize = 1 << 17;
/// and about how many bytes it may have.
const GROUP_BYTES: usize = 32 << 20;

/// A value on its way into a column.
enum Datum {
    Integer(i128),
    Float(f64),
    Bool(bool),
    Bytes(Bytes),
}

/// A column of the row group that is being collected.
struct Collected {
    optional: bool,
    present: Vec<i16>,
    values: Collection,
}

enum Collection {
    I32(Vec<i32>),
    I64(Vec<i64>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Bytes(Vec<ByteArray>),
}

/// A file that is being written.
pub struct ParquetWriter {
    writer: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Collected>,
    records: usize,
    bytes: usize,
}

impl ParquetWriter {
    fn new(columns: Vec<(String, Kind, bool)>) -> Result<ParquetWriter, String> {
        let fields = columns.iter().map(|(name, kind, optional)| field(name, *kind, *optional));
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("terrane").with_fields(fields).build().map_err(failed)?;
        // Snappy is what every reader of Parquet knows.
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        let columns = columns.into_iter().map(|(_, kind, optional)| Collected::new(kind, optional)).collect();
        Ok(ParquetWriter { writer, columns, records: 0, bytes: 0 })
    }

    fn push(&mut self, record: Vec<Option<Datum>>) {
        for (column, datum) in self.columns.iter_mut().zip(record) {
            self.bytes += column.push(datum);
        }
        self.records += 1;
    }

    /// The bytes of the file that are ready; writes a row group if enough is collected.
    pub fn take(&mut self) -> Result<Vec<u8>, String> {
        if self.records >= GROUP_RECORDS || self.bytes >= GROUP_BYTES {
            self.write_group().map_err(failed)?;
        }
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Writes what is collected, and the footer; returns the rest of the file.
    pub fn finish(mut self) -> Result<Vec<u8>, String> {
        if self.records > 0 {
            self.write_group().map_err(failed)?;
        }
        self.writer.into_inner().map_err(failed)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            column.write(&mut group)?;
        }
        group.close()?;
        self.records = 0;
        self.bytes = 0;
        Ok(())
    }
}

fn failed(error: ParquetError) -> String {
    error.to_string()
}

fn field(name: &str, kind: Kind, optional: bool) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match kind {
        Kind::I32 => (PhysicalType::INT32, None),
        Kind::U32 => (PhysicalType::INT32, Some(LogicalType::integer(32, false))),
        Kind::I64 => (PhysicalType::INT64, None),
        Kind::U64 => (PhysicalType::INT64, Some(LogicalType::integer(64, false))),
        Kind::F64 => (PhysicalType::DOUBLE, None),
        Kind::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        Kind::Bool => (PhysicalType::BOOLEAN, None),
        Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Bytes => (PhysicalType::BYTE_ARRAY, None),
    };
    let repetition = if optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let built = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    Ok(Arc::new(built.with_logical_type(logical).build()?))
}

impl Collected {
    fn new(kind: Kind, optional: bool) -> Collected {
        let values = match kind {
            Kind::I32 | Kind::U32 => Collection::I32(Vec::new()),
            Kind::I64 | Kind::U64 | Kind::Time => Collection::I64(Vec::new()),
            Kind::F64 => Collection::F64(Vec::new()),
            Kind::Bool => Collection::Bool(Vec::new()),
            Kind::Text | Kind::Bytes => Collection::Bytes(Vec::new()),
        };
        Collected { optional, present: Vec::new(), values }
    }

    /// Adds a value of the column's kind, or none; returns its bytes.
    fn push(&mut self, datum: Option<Datum>) -> usize {
        let mut bytes = 8;
        let pushed = match (&mut self.values, datum) {
            (Collection::I32(values), Some(Datum::Integer(integer))) => {
                // The bits of an unsigned number are stored as a signed one.
                values.push(integer as i32);
                true
            }
            (Collection::I64(values), Some(Datum::Integer(integer))) => {
                values.push(integer as i64);
                true
            }
            (Collection::F64(values), Some(Datum::Float(float))) => {
                values.push(float);
                true
            }
            (Collection::Bool(values), Some(Datum::Bool(truth))) => {
                values.push(truth);
                true
            }
            (Collection::Bytes(values), Some(Datum::Bytes(value))) => {
                bytes += value.len();
                values.push(ByteArray::from(value));
                true
            }
            _ => false,
        };
        if self.optional {
            self.present.push(i16::from(pushed));
        }
        bytes
    }

    fn write(&mut self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        fn put<T: DataType>(
            values: &mut Vec<T::T>,
            present: Option<&[i16]>,
            group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        ) -> Result<(), ParquetError> {
            let column = group.next_column()?;
            let mut column = column.ok_or_else(|| ParquetError::General("the schema has fewer columns".to_owned()))?;
            column.typed::<T>().write_batch(values, present, None)?;
            column.close()?;
            values.clear();
            Ok(())
        }
        let present = self.optional.then_some(&self.present[..]);
        match &mut self.values {
            Collection::I32(values) => put::<Int32Type>(values, present, group)?,
            Collection::I64(values) => put::<Int64Type>(values, present, group)?,
            Collection::F64(values) => put::<DoubleType>(values, present, group)?,
            Collection::Bool(values) => put::<BoolType>(values, present, group)?,
            Collection::Bytes(values) => put::<ByteArrayType>(values, present, group)?,
        }
        self.present.clear();
        Ok(())
    }
}

/// The parts of a row's key, which is given with its times as numbers.
fn parts_of(key: &KeyDeclaration, row: &[u8]) -> Result<Vec<Option<Datum>>, String> {
    let texts = key.decode(row).map_err(|error| error.to_string())?;
    let kinds = key.text_parts().iter().map(|part| Kind::of_part(part.kind.part));
    Ok(kinds.zip(texts).map(|(kind, text)| datum_of_text(kind, &text)).collect())
}

/// A part from its text; `None` cannot occur for a text that a declaration made.
fn datum_of_text(kind: Kind, text: &str) -> Option<Datum> {
    Some(match kind {
        Kind::I32 | Kind::U32 | Kind::I64 | Kind::U64 | Kind::Time => Datum::Integer(text.parse().ok()?),
        Kind::F64 => Datum::Float(match text.strip_prefix("NaN:") {
            Some(bits) => f64::from_bits(u64::from_str_radix(bits, 16).ok()?),
            None => text.parse().ok()?,
        }),
        Kind::Bool => Datum::Bool(text.parse().ok()?),
        Kind::Text | Kind::Bytes => Datum::Bytes(unescape(text).ok()?.into()),
    })
}

/// Writes the layout `cells`.
pub struct CellsWriter {
    pub file: ParquetWriter,
    key: Option<KeyDeclaration>,
}

impl CellsWriter {
    /// A file for the rows of a table with this key.
    pub fn new(key: Option<KeyDeclaration>) -> Result<CellsWriter, String> {
        let mut columns: Vec<(String, Kind, bool)> = Vec::new();
        for (name, kind) in CELLS {
            columns.push((name.to_owned(), kind, false));
            if let (Some(key), "row") = (&key, name) {
                let parts = key.text_parts().iter();
                columns.extend(
                    parts.map(|part| (format!("{KEY_PREFIX}{}", part.name), Kind::of_part(part.kind.part), true)),
                );
            }
        }
        Ok(CellsWriter { file: ParquetWriter::new(columns)?, key: key.map(|key| key.as_stored()) })
    }

    /// Adds the cells of a row. A row that is no key of the table has no parts.
    pub fn push(&mut self, record: &Record) {
        for cell in &record.cells {
            let mut fields = vec![Some(Datum::Bytes(record.row.clone()))];
            if let Some(key) = &self.key {
                let none = || key.text_parts().iter().map(|_| None).collect();
                fields.extend(parts_of(key, &record.row).unwrap_or_else(|_| none()));
            }
            fields.push(Some(Datum::Bytes(cell.family.clone())));
            fields.push(Some(Datum::Bytes(cell.qualifier.clone())));
            fields.push(Some(Datum::Integer(cell.timestamp.unwrap_or(0).into())));
            fields.push(Some(Datum::Bytes(cell.value.clone())));
            self.file.push(fields);
        }
    }
}

/// Writes the layout `rows`.
pub struct RowsWriter {
    pub file: ParquetWriter,
    key: Option<KeyDeclaration>,
    columns: Vec<(Bytes, Bytes, Option<ValueType>)>,
}

impl RowsWriter {
    /// A file with the key and these columns.
    pub fn new(
        key: Option<KeyDeclaration>,
        columns: Vec<(Bytes, Bytes, Option<ValueType>)>,
    ) -> Result<RowsWriter, String> {
        let mut fields: Vec<(String, Kind, bool)> = match &key {
            Some(key) => {
                let parts = key.text_parts().iter();
                parts.map(|part| (part.name.clone(), Kind::of_part(part.kind.part), false)).collect()
            }
            None => vec![("row".to_owned(), Kind::Bytes, false)],
        };
        let column = |(family, qualifier, kind): &(Bytes, Bytes, Option<ValueType>)| {
            (column_text(family, qualifier), Kind::of_value(*kind), true)
        };
        fields.extend(columns.iter().map(column));
        Ok(RowsWriter { file: ParquetWriter::new(fields)?, key: key.map(|key| key.as_stored()), columns })
    }

    /// Adds a row with the first version of each column.
    pub fn push(&mut self, record: &Record) -> Result<(), LineError> {
        let mut fields = match &self.key {
            Some(key) => parts_of(key, &record.row).map_err(|error| {
                LineError::new(format!("row {} is not a key of the table: {error}", escape(&record.row)))
            })?,
            None => vec![Some(Datum::Bytes(record.row.clone()))],
        };
        for (family, qualifier, kind) in &self.columns {
            let cell = record.cells.iter().find(|cell| cell.family == *family && cell.qualifier == *qualifier);
            let datum = cell.map(|cell| {
                datum_of_value(*kind, &cell.value).map_err(|error| {
                    let row = self.key.as_ref().map_or_else(|| escape(&record.row), |key| key.shown(&record.row));
                    let column = column_text(family, qualifier);
                    LineError::new(format!("row {row}, column {column}: {error}"))
                })
            });
            fields.push(datum.transpose()?);
        }
        self.file.push(fields);
        Ok(())
    }
}

fn datum_of_value(kind: Option<ValueType>, value: &Bytes) -> Result<Datum, String> {
    Ok(match kind.unwrap_or_default().read(value).map_err(|error| error.to_string())? {
        Value::Integer(integer) => Datum::Integer(integer),
        Value::Float(float) => Datum::Float(float),
        Value::Text(_) | Value::Bytes(_) => Datum::Bytes(value.clone()),
    })
}
