//! Files are written, read back from a disk and compared.

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
