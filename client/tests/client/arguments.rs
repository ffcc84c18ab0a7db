//! What calls accept, against a fake cluster: typed values, ranges in every form, and rows collected in one call.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::ops::Bound;

use terrane_client::{Error, Filter, KeyRange, Put, RowData, RowMutation, Scan, TableSpec, ValueType, column};

use crate::fake::{Fake, name};

const SPLITS: [&str; 2] = ["r0010", "r0030"];

fn names(rows: &[RowData]) -> Vec<String> {
    rows.iter().map(|row| row.row().to_string()).collect()
}

#[tokio::test]
async fn typed_values_are_written_and_read_back() {
    let (_cluster, table) = Fake::filled(&SPLITS, 0).await;
    let put = Put::new("r")
        .set("f", "i32", -5_i32)
        .set("f", "i64", 5_i64)
        .set("f", "u32", u32::MAX)
        .set("f", "u64", u64::MAX)
        .set("f", "f64", -0.25)
        .set("f", "bool", true)
        .set("f", "text", "Zürich")
        .set("f", "owned", String::from("text"))
        .set_at("f", "bytes", 7, vec![0, 255]);
    table.put(put).await.unwrap();
    let row = table.get("r").await.unwrap().unwrap();
    assert_eq!(row.read("f", "i32").unwrap(), Some(-5_i32));
    assert_eq!(row.read("f", "i64").unwrap(), Some(5_i64));
    assert_eq!(row.read("f", "u32").unwrap(), Some(u32::MAX));
    assert_eq!(row.read("f", "u64").unwrap(), Some(u64::MAX));
    assert_eq!(row.read("f", "f64").unwrap(), Some(-0.25));
    assert_eq!(row.read("f", "bool").unwrap(), Some(true));
    assert_eq!(row.read::<String>("f", "text").unwrap().as_deref(), Some("Zürich"));
    assert_eq!(row.value("f", "owned"), Some(&b"text"[..]));
    assert_eq!(row.value("f", "bytes"), Some(&[0, 255][..]));
    // What was written as an i64 is a counter.
    assert_eq!(table.increment("r", "f", "i64", 2).await.unwrap(), 7);
}

#[tokio::test]
async fn conditions_compare_typed_values() {
    let (_cluster, table) = Fake::filled(&SPLITS, 0).await;
    table.put(Put::new("r").set("f", "n", -5_i64).set("f", "state", "open")).await.unwrap();
    let done = || RowMutation::new("r").set("f", "state", "done");
    assert!(!table.check_and_mutate(column("f", "n").greater_than(0_i64), done()).await.unwrap());
    let wrong = table.check_and_mutate(column("f", "n").less_than(0_i32), done()).await.unwrap_err();
    assert!(wrong.is_invalid() && wrong.to_string().contains("i32 values have 4 bytes"), "{wrong}");
    let both = column("f", "n").equals(-5_i64).and(column("f", "state").one_of(["open", "waiting"]));
    assert!(table.check_and_mutate(both, done()).await.unwrap());
}

#[tokio::test]
async fn every_call_takes_ranges_in_every_form() {
    let (_cluster, table) = Fake::filled(&SPLITS, 40).await;
    let (low, high) = (name(9), name(31));
    let (low, high) = (std::str::from_utf8(&low).unwrap(), std::str::from_utf8(&high).unwrap());
    assert_eq!(table.count(..).await.unwrap(), 40);
    assert_eq!(table.count(low..high).await.unwrap(), 22);
    assert_eq!(table.count(low..=high).await.unwrap(), 23);
    assert_eq!(table.count(high..).await.unwrap(), 9);
    assert_eq!(table.count(..high).await.unwrap(), 31);
    assert_eq!(table.count((Bound::Excluded(low), Bound::Unbounded)).await.unwrap(), 30);
    assert_eq!(table.count("r003").await.unwrap(), 10);
    assert_eq!(table.count(KeyRange::row(low.as_bytes())).await.unwrap(), 1);

    assert_eq!(names(&table.scan(low..=high).limit(2).await.unwrap().collect().await.unwrap()), ["r0009", "r0010"]);
    assert_eq!(names(&table.page("r003").limit(1).await.unwrap().rows), ["r0030"]);
    let first = table.first("r002").await.unwrap().unwrap();
    let last = table.last(..high).await.unwrap().unwrap();
    assert_eq!(names(&[first, last]), ["r0020", "r0030"]);
    let floor = table.floor(high).within("r002").await.unwrap().unwrap();
    assert_eq!(names(&[floor]), ["r0029"]);
    let sums = table.aggregate("f", "q", ValueType::I64).range("x"..).await.unwrap();
    assert_eq!(sums.count(), 0);
}

#[tokio::test]
async fn a_reversed_range_fails_before_anything_is_sent() {
    let (cluster, table) = Fake::filled(&SPLITS, 3).await;
    let before = cluster.world.lock().requests;
    let errors = [
        table.scan("r2".."r1").await.unwrap_err(),
        table.count("r2".."r1").await.unwrap_err(),
        table.page("r2".."r1").await.unwrap_err(),
        table.first("r2".."r1").await.unwrap_err(),
        table.last("r2".."r1").await.unwrap_err(),
        table.floor("r2").within("r2".."r1").await.unwrap_err(),
        table.aggregate("f", "q", ValueType::I64).range("r2".."r1").await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.to_string(), "the range's end r1 lies before its start r2");
    }
    assert_eq!(cluster.world.lock().requests, before);
}

#[tokio::test]
async fn rows_are_collected_at_once_or_some_at_a_time() {
    let (_cluster, table) = Fake::filled(&SPLITS, 40).await;
    let all = table.scan(..).await.unwrap().collect().await.unwrap();
    assert_eq!(all.len(), 40);
    let mut rows = table.scan(Scan::all().limit(25)).await.unwrap();
    let mut seen = Vec::new();
    for expected in [10, 10, 5, 0] {
        let some = rows.next_many(10).await.unwrap();
        assert_eq!(some.len(), expected);
        seen.extend(some);
    }
    assert_eq!(names(&seen), names(&all[..25]));
}

#[tokio::test]
async fn filters_with_parameters_are_sent_as_text() {
    let (cluster, table) = Fake::filled(&SPLITS, 3).await;
    let name = "x' or exists(f:secret)";
    let filter = Filter::with("f:name = ? and i64(f:n) > ?").bind(name).bind(5_i64);
    table.scan(..).filter(filter).await.unwrap().collect().await.unwrap();
    let sent = cluster.world.lock().projection.filter.clone();
    assert_eq!(sent, r"f:name = 'x\x27 or exists(f:secret)' and i64(f:n) > 5");

    let before = cluster.world.lock().requests;
    let too_few = table.count(..).filter(Filter::with("f:a = ? and f:b = ?").bind("a")).await.unwrap_err();
    assert!(too_few.is_invalid() && too_few.to_string().contains("parameter 2 has no value; 1 is bound"), "{too_few}");
    let wrong = table.get("r").filter(Filter::with("i64(f:a) = ?").bind("a")).await.unwrap_err();
    assert!(wrong.to_string().contains("parameter 1 is text, not a number of type i64"), "{wrong}");
    assert_eq!(cluster.world.lock().requests, before);
}

#[tokio::test]
async fn conditions_are_text_with_parameters_too() {
    let (cluster, table) = Fake::filled(&SPLITS, 0).await;
    let take = |owner: &str| RowMutation::new("job").set("f", "owner", owner).increment("f", "tries", 1);
    let outcome = table.mutate(take("ann").when("not exists(f:owner)")).await.unwrap();
    assert!(outcome.held);
    assert!(!table.mutate(take("bob")).when("not exists(f:owner)").await.unwrap().held);
    let mine = Filter::with("f:owner = ? and i64(f:tries) < ?").bind("ann").bind(5);
    assert!(table.check_and_mutate(mine, take("ann")).await.unwrap());

    let before = cluster.world.lock().requests;
    for wrong in ["prefix(row, 'a')", "f:owner =", "f:owner = ?"] {
        let error = table.mutate(take("ann")).when(wrong).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    assert_eq!(cluster.world.lock().requests, before);
}

#[tokio::test]
async fn a_table_that_differs_from_its_specification_is_refused() {
    let (cluster, table) = Fake::filled(&SPLITS, 0).await;
    let client = cluster.client().await;
    let spec = TableSpec { schema: (*table.schema()).clone(), split_at: Vec::new() };
    client.open_or_create_exact(spec.clone()).await.unwrap();
    cluster.world.lock().schema.families[0].set_attribute("versions", "3").unwrap();
    let error = client.open_or_create_exact(spec.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), "table t differs from its specification: family f: versions is 3, not 1");
    client.open_or_create(spec).await.unwrap();
}
