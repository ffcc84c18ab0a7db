//! Files are written, read back from a disk and compared.

use std::sync::Arc;

use ::parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use ::parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96,
    Int96Type,
};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use bytes::Bytes;
use terrane_types::{KeyDeclaration, TableSchema, ValueType};

use super::super::mapping::{Columns, Names, tests::schema};
use super::super::tests::awkward_record;
use super::super::{Item, Parsed, Record, RecordCell};
use super::write::ParquetWriter;
use super::*;

/// A file with these bytes.
async fn file(bytes: &[u8]) -> (tempfile::TempDir, FileBytes) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("f.parquet");
    terrane_env::fs::write_durable(&path, bytes).await.expect("written");
    let file = terrane_env::fs::File::open_read(&path).await.expect("opened");
    let length = file.len().await.expect("a length");
    (directory, FileBytes::new(file, length))
}

async fn items(bytes: &[u8], schema: &TableSchema, columns: Option<&str>, skipped: u64) -> Result<Vec<Item>, String> {
    let (_directory, bytes) = file(bytes).await;
    let mut reader = ParquetReader::open(bytes)?;
    let columns = columns.map(|columns| Columns::parse(columns).expect("columns"));
    let shape = reader.shape(columns.as_ref(), &Names::new(schema, false))?;
    reader.skip(&shape, skipped)?;
    let mut items = Vec::new();
    while let Some(batch) = reader.next_batch(&shape)? {
        items.extend(shape.parse(&batch));
        assert_eq!(batch.end, items.last().expect("not empty").line);
    }
    Ok(items)
}

fn records(items: Vec<Item>) -> Vec<Record> {
    let record = |item: Item| match item.parsed {
        Ok(Parsed::Record(record)) => record,
        other => panic!("record {}: {other:?}", item.line),
    };
    items.into_iter().map(record).collect()
}

fn written(mut file: ParquetWriter) -> Vec<u8> {
    let mut bytes = file.take().expect("written");
    bytes.extend(file.finish().expect("written"));
    bytes
}

fn row(row: impl Into<Bytes>, cells: &[(&str, i64, &[u8])]) -> Record {
    let cell = |(qualifier, timestamp, value): &(&str, i64, &[u8])| RecordCell {
        family: "d".into(),
        qualifier: Bytes::copy_from_slice(qualifier.as_bytes()),
        timestamp: Some(*timestamp),
        value: Bytes::copy_from_slice(value),
    };
    Record { row: row.into(), cells: cells.iter().map(cell).collect() }
}

#[tokio::test]
async fn the_layout_cells_reads_back_what_it_wrote_from_any_record_on() {
    let mut writer = CellsWriter::new(None).expect("a writer");
    let record = awkward_record();
    let mut expected = Vec::new();
    for number in 0..20_000u32 {
        let mut record = if number % 1_000 == 0 { record.clone() } else { row("r", &[("q", 5, b"v")]) };
        record.row = [&number.to_be_bytes()[..], &record.row].concat().into();
        writer.push(&record);
        for cell in record.cells {
            expected.push(Record { row: record.row.clone(), cells: vec![cell] });
        }
    }
    let bytes = written(writer.file);
    let schema = schema(None);
    for skipped in [0, 1, 8_192, 17_001, expected.len() as u64 - 1, expected.len() as u64] {
        let read = records(items(&bytes, &schema, None, skipped).await.expect("read"));
        assert!(read == expected[skipped as usize..], "after {skipped}");
    }
}

#[tokio::test]
async fn parts_of_the_key_stand_beside_the_row_and_mean_nothing() {
    let key = KeyDeclaration::parse("timestamp:desc i64, name:text").expect("a key");
    let good = key.encode(&["5", "ann"]).expect("a row").into_bytes();
    let mut writer = CellsWriter::new(Some(key)).expect("a writer");
    let all = [row(good, &[("q", 1, b"v")]), row("no key", &[("q", 2, b"w")])];
    all.iter().for_each(|record| writer.push(record));
    let read = items(&written(writer.file), &schema(Some("timestamp:desc i64, name:text")), None, 0).await;
    assert_eq!(records(read.expect("read")), all);
}

#[tokio::test]
async fn rows_are_typed_and_come_back() {
    let declared = "user:u64, time:desc i64, name:text, share:f64, ok:bool, id:uuid, raw:bytes3, small:u32, signed:i32";
    let schema = schema(Some(declared));
    let key = schema.key.clone().expect("a key");
    let column = |qualifier: &str, kind| (Bytes::from("d"), Bytes::copy_from_slice(qualifier.as_bytes()), kind);
    let columns = vec![
        column("count", Some(ValueType::I64)),
        column("share", Some(ValueType::F64)),
        column("name", Some(ValueType::Text)),
        column("other", None),
    ];
    let mut writer = RowsWriter::new(Some(key.clone()), columns).expect("a writer");
    let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let mut all = Vec::new();
    for (user, share) in [("18446744073709551615", "-0.5"), ("0", "NaN:7ff8000000000001")] {
        let texts = [user, "-7", r"é,\x00", share, "true", id, r"\xFF\x00a", "4294967295", "-1"];
        let bytes = key.encode(&texts).expect("a row").into_bytes();
        all.push(row(
            bytes,
            &[("count", 9, &(-5i64).to_be_bytes()), ("name", 9, "a\\b".as_bytes()), ("other", 9, b"\xff\\")],
        ));
    }
    let texts = ["1", "1", "", "1", "false", id, "abc", "1", "1"];
    let nan = f64::from_bits(0x7ff8_0000_0000_0002).to_be_bytes();
    all.push(row(key.encode(&texts).expect("a row").into_bytes(), &[("share", 9, &nan)]));
    for record in &all {
        writer.push(record).expect("typed");
    }
    let read = records(items(&written(writer.file), &schema, None, 0).await.expect("read"));
    for record in &mut all {
        record.cells.iter_mut().for_each(|cell| cell.timestamp = None);
    }
    assert_eq!(read, all);
}

#[tokio::test]
async fn a_value_or_row_of_another_type_is_named() {
    let column = (Bytes::from("d"), Bytes::from("count"), Some(ValueType::I64));
    let mut writer = RowsWriter::new(None, vec![column.clone()]).expect("a writer");
    let error = writer.push(&row("r1", &[("count", 1, b"abc")])).expect_err("three bytes").to_string();
    assert!(error.contains("row r1, column d:count") && error.contains("8 bytes"), "{error}");
    let key = KeyDeclaration::parse("user:u64").expect("a key");
    let mut writer = RowsWriter::new(Some(key), vec![column]).expect("a writer");
    let error = writer.push(&row("r1", &[])).expect_err("no key").to_string();
    assert!(error.contains("row r1 is not a key"), "{error}");
}

#[tokio::test]
async fn foreign_files_need_a_mapping_and_wrong_values_are_malformed() {
    let id = (Bytes::from("d"), Bytes::from("n"), Some(ValueType::I64));
    let mut writer = RowsWriter::new(None, vec![id]).expect("a writer");
    for (row_key, number) in [("a", 5i64), ("b", -1), ("c", 1 << 40)] {
        writer.push(&row(row_key, &[("n", 1, &number.to_be_bytes())])).expect("typed");
    }
    let bytes = written(writer.file);
    let schema = schema(Some("user:text"));
    let error = items(&bytes, &schema, Some("row=user,d:m=d:count"), 0).await.expect_err("no such field");
    assert!(error.contains("the file has no field \"d:m\"") && error.contains("did you mean \"d:n\"?"), "{error}");
    let read = items(&bytes, &schema, Some("row=user,d:n=TIMESTAMP"), 0).await.expect_err("no column");
    assert!(read.contains("no field is a column"), "{read}");
    let mapped = items(&bytes, &schema, Some("row=user,d:n=d:count"), 0).await.expect("read");
    assert_eq!(records(mapped).len(), 3);
    let stamped = items(&bytes, &schema, Some("d:n=TIMESTAMP,row=user"), 0).await;
    assert!(stamped.is_err());
    let shares = items(&bytes, &schema, Some("row=user,d:n=d:share"), 0).await.expect("read");
    assert_eq!(records(shares)[0].cells[0].value, 5f64.to_be_bytes().to_vec());
}

#[tokio::test]
async fn what_is_no_parquet_file_is_refused() {
    let schema = schema(None);
    let mut writer = CellsWriter::new(None).expect("a writer");
    writer.push(&row("r", &[("q", 5, b"v")]));
    let whole = written(writer.file);
    let error = items(b"", &schema, None, 0).await.expect_err("empty");
    assert!(error.contains("the file is empty"), "{error}");
    for bytes in [&b"row,d:a\nk,v\n"[..], &whole[..whole.len() - 3], &whole[..20]] {
        let error = items(bytes, &schema, None, 0).await.expect_err("damaged");
        assert!(error.contains("not a Parquet file"), "{error}");
    }
    let mut damaged = whole;
    damaged[6] ^= 0xff;
    // The page header is behind the magic bytes; a flipped byte there is an error or a malformed record, never a panic.
    let _ = items(&damaged, &schema, None, 0).await;
}

/// The values of a column of another program's file.
enum Data<'a> {
    Bool(&'a [bool]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    I96,
    F32(&'a [f32]),
    F64(&'a [f64]),
    Bytes(&'a [&'static [u8]]),
    Fixed(&'a [&'static [u8]]),
}

/// A file as another program writes it: these columns, all required, in one row group.
fn foreign(columns: &[(&str, Data<'_>)]) -> Vec<u8> {
    compressed(Compression::UNCOMPRESSED, columns)
}

fn compressed(codec: Compression, columns: &[(&str, Data<'_>)]) -> Vec<u8> {
    fn put<T: DataType>(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, values: &[T::T]) {
        let mut column = group.next_column().expect("a group").expect("a column");
        column.typed::<T>().write_batch(values, None, None).expect("written");
        column.close().expect("closed");
    }
    let fields: String = columns.iter().map(|(field, _)| format!("required {field};\n")).collect();
    let schema = Arc::new(parse_message_type(&format!("message m {{ {fields} }}")).expect("a schema"));
    let properties = WriterProperties::builder().set_compression(codec).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).expect("a writer");
    let mut group = writer.next_row_group().expect("a group");
    for (_, data) in columns {
        let bytes = |values: &[&'static [u8]]| values.iter().map(|value| Bytes::from_static(value).into()).collect();
        match data {
            Data::Bool(values) => put::<BoolType>(&mut group, values),
            Data::I32(values) => put::<Int32Type>(&mut group, values),
            Data::I64(values) => put::<Int64Type>(&mut group, values),
            Data::I96 => put::<Int96Type>(&mut group, &[Int96::new()]),
            Data::F32(values) => put::<FloatType>(&mut group, values),
            Data::F64(values) => put::<DoubleType>(&mut group, values),
            Data::Bytes(values) => {
                let values: Vec<::parquet::data_type::ByteArray> = bytes(values);
                put::<ByteArrayType>(&mut group, &values);
            }
            Data::Fixed(values) => {
                let values: Vec<::parquet::data_type::ByteArray> = bytes(values);
                let values: Vec<_> = values.into_iter().map(Into::into).collect();
                put::<FixedLenByteArrayType>(&mut group, &values);
            }
        }
    }
    group.close().expect("closed");
    writer.into_inner().expect("written")
}

/// One column of a type beside the row and a value.
fn beside(field: &str, data: Data<'_>) -> Vec<u8> {
    foreign(&[("binary row (STRING)", Data::Bytes(&[b"r"])), ("binary v", Data::Bytes(&[b"v"])), (field, data)])
}

async fn value(bytes: &[u8], column: &str) -> String {
    let read = items(bytes, &schema(None), Some(&format!("row=ROW,x={column}")), 0).await.expect("read");
    terrane_types::escape(&records(read).remove(0).cells.remove(0).value)
}

#[tokio::test]
async fn each_type_becomes_the_value_that_the_page_lists() {
    let minute_us = 60_000_999;
    for (field, data, text) in [
        ("boolean x", Data::Bool(&[true]), "true"),
        ("int32 x", Data::I32(&[-7]), "-7"),
        ("int32 x (INTEGER(8,true))", Data::I32(&[-7]), "-7"),
        ("int32 x (INTEGER(32,false))", Data::I32(&[-1]), "4294967295"),
        ("int64 x (INTEGER(64,false))", Data::I64(&[-1]), "18446744073709551615"),
        ("int32 x (UINT_32)", Data::I32(&[-1]), "4294967295"),
        ("float x", Data::F32(&[0.1]), "0.1"),
        ("float x", Data::F32(&[3.3]), "3.3"),
        ("double x", Data::F64(&[0.1]), "0.1"),
        ("int32 x (DECIMAL(9,0))", Data::I32(&[-12]), "-12"),
        ("int64 x (DECIMAL(18,0))", Data::I64(&[12]), "12"),
        ("fixed_len_byte_array(5) x (DECIMAL(10,0))", Data::Fixed(&[b"\xff\xff\xff\xff\x38"]), "-200"),
        ("binary x (DECIMAL(38,0))", Data::Bytes(&[b"\x01\x00"]), "256"),
        ("int32 x (DATE)", Data::I32(&[19_723]), "19723"),
        ("int32 x (TIME(MILLIS,true))", Data::I32(&[60_000]), "60000"),
        ("int64 x (TIME(MICROS,true))", Data::I64(&[minute_us]), "60000"),
        ("int64 x (TIME(NANOS,true))", Data::I64(&[minute_us * 1_000]), "60000"),
        ("int64 x (TIMESTAMP(MILLIS,true))", Data::I64(&[60_000]), "60000"),
        ("int64 x (TIMESTAMP(MICROS,false))", Data::I64(&[minute_us]), "60000"),
        ("int64 x (TIMESTAMP(NANOS,true))", Data::I64(&[-1]), "-1"),
        ("int64 x (TIMESTAMP_MICROS)", Data::I64(&[minute_us]), "60000"),
        ("binary x (STRING)", Data::Bytes(&[b"a\\x41"]), "a\\\\x41"),
        ("binary x (JSON)", Data::Bytes(&[b"{}"]), "{}"),
        ("binary x", Data::Bytes(&[b"\xff"]), "\\xFF"),
        ("fixed_len_byte_array(2) x", Data::Fixed(&[b"ab"]), "ab"),
    ] {
        assert_eq!(value(&beside(field, data), "d:x").await, text, "{field}");
    }
    // Where a type is declared, a FLOAT is the same number with more digits.
    let float = beside("float x", Data::F32(&[0.1]));
    assert_eq!(value(&float, "d:name").await, "0.1");
    let read = items(&float, &schema(None), Some("row=ROW,x=d:share"), 0).await.expect("read");
    assert_eq!(records(read)[0].cells[0].value, f64::from(0.1f32).to_be_bytes().to_vec());
}

#[tokio::test]
async fn a_timestamp_is_in_milliseconds_whatever_the_file_counts() {
    for (field, data, timestamp) in [
        ("int64 x", Data::I64(&[1_704_067_200_000]), 1_704_067_200_000),
        ("int32 x", Data::I32(&[5]), 5),
        ("int32 x (DATE)", Data::I32(&[19_723]), 1_704_067_200_000),
        ("int64 x (TIMESTAMP(MILLIS,true))", Data::I64(&[5]), 5),
        ("int64 x (TIMESTAMP(MICROS,true))", Data::I64(&[5_999]), 5),
        ("int64 x (TIMESTAMP(NANOS,true))", Data::I64(&[5_999_999]), 5),
        ("int64 x (TIMESTAMP_MICROS)", Data::I64(&[5_999]), 5),
        ("fixed_len_byte_array(5) x (DECIMAL(10,0))", Data::Fixed(&[b"\0\0\0\0\x07"]), 7),
        ("binary x (STRING)", Data::Bytes(&[b"8"]), 8),
    ] {
        let read = items(&beside(field, data), &schema(None), Some("row=ROW,v=d:v,x=TIMESTAMP"), 0).await;
        assert_eq!(records(read.expect("read"))[0].cells[0].timestamp, Some(timestamp), "{field}");
    }
    let cells = foreign(&[
        ("binary row", Data::Bytes(&[b"r"])),
        ("binary family", Data::Bytes(&[b"d"])),
        ("binary qualifier", Data::Bytes(&[b"q"])),
        ("int64 timestamp (TIMESTAMP(MICROS,true))", Data::I64(&[5_999])),
        ("binary value", Data::Bytes(&[b"v"])),
    ]);
    let read = items(&cells, &schema(None), None, 0).await.expect("read");
    assert_eq!(records(read)[0].cells[0].timestamp, Some(5), "also in the exact layout");
}

#[tokio::test]
async fn times_in_keys_are_in_milliseconds_and_said_before_the_first_row() {
    let schema = schema(Some("time:i64"));
    let key = schema.key.clone().expect("a key");
    for (field, data, part, said) in [
        ("int64 x (TIMESTAMP(MICROS,true))", Data::I64(&[5_999]), "5", Some("in microseconds")),
        ("int64 x (TIMESTAMP(NANOS,true))", Data::I64(&[5_999_999]), "5", Some("fractions of them are dropped")),
        ("int64 x (TIMESTAMP(MILLIS,true))", Data::I64(&[5]), "5", None),
        ("int64 x (TIME(MICROS,true))", Data::I64(&[5_999]), "5", Some("milliseconds since midnight")),
        ("int32 x (DATE)", Data::I32(&[5]), "5", Some("days since 1970-01-01")),
    ] {
        let bytes = beside(field, data);
        let columns = Columns::parse("x=time,v=d:v").expect("columns");
        let (_directory, opened) = file(&bytes).await;
        let shape = ParquetReader::open(opened).expect("a file").shape(Some(&columns), &Names::new(&schema, false));
        let notes = shape.expect("a shape").notes().join("\n");
        assert!(
            said.map_or(notes.is_empty(), |said| notes.contains("column \"x\"") && notes.contains(said)),
            "{notes}"
        );
        let read = records(items(&bytes, &schema, Some("x=time,v=d:v"), 0).await.expect("read"));
        assert_eq!(key.decode(&read[0].row).expect("a key"), [part], "{field}");
    }
}

#[tokio::test]
async fn a_declared_time_is_in_milliseconds_whatever_the_file_counts() {
    let schema = schema(Some("time:desc time"));
    let key = schema.key.clone().expect("a key");
    for (field, data, part, said) in [
        ("int64 x (TIMESTAMP(MILLIS,true))", Data::I64(&[5]), "1970-01-01T00:00:00.005Z", None),
        ("int64 x", Data::I64(&[5]), "1970-01-01T00:00:00.005Z", None),
        ("int32 x (DATE)", Data::I32(&[19_723]), "2024-01-01T00:00:00Z", None),
        ("binary x (STRING)", Data::Bytes(&[b"2024-01-01T01:00+01:00"]), "2024-01-01T00:00:00Z", None),
        (
            "int64 x (TIMESTAMP(MICROS,true))",
            Data::I64(&[5_999]),
            "1970-01-01T00:00:00.005Z",
            Some("the keys of two rows equal"),
        ),
    ] {
        let bytes = beside(field, data);
        let columns = Columns::parse("x=time,v=d:v").expect("columns");
        let (_directory, opened) = file(&bytes).await;
        let shape = ParquetReader::open(opened).expect("a file").shape(Some(&columns), &Names::new(&schema, false));
        let notes = shape.expect("a shape").notes().join("\n");
        assert!(said.map_or(notes.is_empty(), |said| notes.contains(said)), "{field}: {notes}");
        let read = records(items(&bytes, &schema, Some("x=time,v=d:v"), 0).await.expect("read"));
        assert_eq!(key.decode(&read[0].row).expect("a key"), [part], "{field}");
    }
    let days = beside("int32 x (DATE)", Data::I32(&[1]));
    let read = records(items(&days, &self::schema(None), Some("row=ROW,x=d:seen"), 0).await.expect("read"));
    assert_eq!(read[0].cells[0].value, 86_400_000_i64.to_be_bytes().to_vec(), "also in values");
    let of_day = items(&beside("int64 x (TIME(MICROS,true))", Data::I64(&[1])), &schema, Some("x=time,v=d:v"), 0).await;
    assert!(of_day.expect_err("no day").contains("a TIME of day"));
}

#[tokio::test]
async fn times_are_written_as_timestamps_and_come_back() {
    let schema = schema(Some("user:u64, time:desc time"));
    let key = schema.key.clone().expect("a key");
    let columns = vec![(Bytes::from("d"), Bytes::from("seen"), Some(ValueType::Time))];
    let mut writer = RowsWriter::new(Some(key.clone()), columns).expect("a writer");
    let mut all = Vec::new();
    for time in ["2026-01-31T12:00:00.250Z", "1969-12-31", "9223372036854775807"] {
        let bytes = key.encode(&["7", time]).expect("a row").into_bytes();
        let seen = ValueType::Time.parse_text(time).expect("a time");
        all.push(row(bytes, &[("seen", 9, &seen)]));
        writer.push(&all[all.len() - 1]).expect("typed");
    }
    let bytes = written(writer.file);
    let read = records(items(&bytes, &schema, None, 0).await.expect("read"));
    for (read, written) in read.iter().zip(&all) {
        assert_eq!((&read.row, &read.cells[0].value), (&written.row, &written.cells[0].value));
    }
    assert_eq!(read.len(), all.len());
    let (_directory, opened) = file(&bytes).await;
    let shape = ParquetReader::open(opened)
        .expect("a file")
        .shape(None, &Names::new(&self::schema(Some("user:u64, time:i64")), false));
    assert!(shape.expect("a shape").notes().is_empty(), "they are in milliseconds");
}

#[tokio::test]
async fn types_that_are_not_on_the_list_are_refused_by_column_and_type() {
    let time = || Data::I64(&[1]);
    for (field, data, target, said) in [
        ("int64 x (TIME(MICROS,true))", time(), "TIMESTAMP", "a TIME of day"),
        ("int32 x (TIME_MILLIS)", Data::I32(&[1]), "TIMESTAMP", "a TIME of day"),
        ("boolean x", Data::Bool(&[true]), "TIMESTAMP", "a BOOLEAN"),
        ("float x", Data::F32(&[1.0]), "TIMESTAMP", "a FLOAT"),
        ("double x", Data::F64(&[1.0]), "TIMESTAMP", "a DOUBLE"),
        ("fixed_len_byte_array(2) x", Data::Fixed(&[b"12"]), "TIMESTAMP", "a FIXED_LEN_BYTE_ARRAY"),
        ("int96 x", Data::I96, "d:x", "an INT96"),
        ("fixed_len_byte_array(2) x (FLOAT16)", Data::Fixed(&[b"12"]), "d:x", "a FLOAT16"),
        ("fixed_len_byte_array(12) x (INTERVAL)", Data::Fixed(&[b"123456789012"]), "d:x", "of type INTERVAL"),
        ("int32 x (DECIMAL(9,2))", Data::I32(&[1]), "d:x", "DECIMAL(9,2)"),
        ("fixed_len_byte_array(20) x (DECIMAL(40,0))", Data::Fixed(&[&[0; 20]]), "d:x", "a decimal of 40 digits"),
    ] {
        let read = items(&beside(field, data), &schema(None), Some(&format!("row=ROW,v=d:v,x={target}")), 0).await;
        let error = read.expect_err(field);
        assert!(error.contains("column \"x\"") && error.contains(said), "{field}: {error}");
    }
}

#[tokio::test]
async fn a_codec_that_is_not_read_is_refused_by_name_before_the_first_row() {
    let mut bytes = beside("int32 x", Data::I32(&[1]));
    // The codec follows the column's path in the footer.
    let place = b"\x18\x01x\x15\x00";
    let at = bytes.windows(place.len()).rposition(|bytes| bytes == place).expect("a codec") + place.len() - 1;
    let lzo = 3;
    bytes[at] = lzo * 2;
    let error = items(&bytes, &schema(None), Some("row=ROW,x=d:x"), 0).await.expect_err("LZO");
    assert!(error.contains("column \"x\"") && error.contains("compressed with LZO"), "{error}");
    // A column that is skipped does not matter.
    let read = items(&bytes, &schema(None), Some("row=ROW,v=d:v"), 0).await.expect("read");
    assert_eq!(records(read).len(), 1);
}

#[tokio::test]
async fn every_other_codec_is_read() {
    let long: &'static [u8] = &[b'v'; 4000];
    for codec in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let bytes =
            compressed(codec, &[("binary row (STRING)", Data::Bytes(&[b"r"])), ("binary v", Data::Bytes(&[long]))]);
        assert!(codec == Compression::UNCOMPRESSED || bytes.len() < long.len(), "{codec:?} compresses");
        let read = items(&bytes, &schema(None), Some("row=ROW,v=d:v"), 0)
            .await
            .unwrap_or_else(|error| panic!("{codec:?}: {error}"));
        assert_eq!(records(read).remove(0).cells[0].value, long, "{codec:?}");
    }
}
