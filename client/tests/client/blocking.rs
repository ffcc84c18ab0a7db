//! The blocking client, against a fake cluster on another thread's runtime.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use terrane_client::blocking::{Client, Rows};
use terrane_client::{LatestPer, Put, RowMutation, Scan, WriterOptions, column};

use crate::fake::Fake;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_without_async_code_writes_and_reads() {
    let cluster = Fake::start(&["m"]).await;
    let masters = cluster.masters.clone();
    terrane_env::task::run_blocking(move || use_it(&masters)).await;
}

fn use_it(masters: &str) {
    let client = Client::connect(&format!("terrane://{masters}/?timeout=10s")).unwrap();
    let table = client.table("t").unwrap();
    table.put(Put::new("a").set("f", "q", "v")).unwrap();
    assert_eq!(table.increment("z", "f", "n", 3).unwrap(), 3);
    assert!(!table.check_and_mutate(column("f", "q").equals("w"), Put::new("a").set("f", "q", "x")).unwrap());
    let writer = table.writer(WriterOptions::default());
    (0..20).for_each(|row| writer.put(Put::new(format!("b{row:02}")).set("f", "q", "v")).unwrap());
    writer.close().unwrap();
    assert_eq!(table.get("a").unwrap().unwrap().value("f", "q"), Some(&b"v"[..]));
    assert!(!table.exists("missing").unwrap());
    let rows: Vec<String> = table.scan(Scan::prefix("b")).unwrap().map(|row| row.unwrap().row().to_string()).collect();
    assert_eq!((rows.len(), rows[19].as_str()), (20, "b19"));
    let names = |rows: Rows| -> Vec<String> { rows.map(|row| row.unwrap().row().to_string()).collect() };
    assert_eq!(names(table.latest(LatestPer::bytes(1)).unwrap()), ["a", "b00", "z"]);
    assert_eq!(table.floor("b05x").unwrap().unwrap().row().to_string(), "b05");
    assert_eq!(table.higher("b05").unwrap().unwrap().row().to_string(), "b06");
    assert_eq!(table.page(Scan::prefix("b").limit(3)).unwrap().rows.len(), 3);
    assert_eq!(table.count(Scan::prefix("b")).unwrap(), 20);
    assert_eq!(table.exists_many(["a", "missing"]).unwrap(), [true, false]);
    assert!(table.check_and_put("not exists(f:owner)", Put::new("a").set("f", "owner", "me")).unwrap());
    assert_eq!(table.delete_many(["b00", "b01"]).unwrap().len(), 2);
    assert!(table.check_and_delete("f:owner = 'me'", "a").unwrap());
    assert!(table.put_many([Put::new("c").set("f", "q", "v")]).unwrap()[0].is_ok());

    // What has no method of its own: a request with a setting, and any stream.
    assert!(client.wait(table.inner().put(Put::new("d").set("f", "q", "v")).when("not exists(f:q)")).unwrap().held);
    let rows: Vec<String> =
        client.iter(table.inner().scan("b").reverse().limit(2).stream()).map(|row| row.unwrap().to_string()).collect();
    assert!(rows.len() == 2 && rows[0].starts_with("b19 {"), "{rows:?}");
    let writer = table.writer(WriterOptions::default());
    writer.delete("d").unwrap();
    let receipt = writer.submit(Put::new("e").set("f", "q", "v")).unwrap();
    assert!(client.wait(receipt).unwrap().held);
    writer.flush().unwrap();
    assert_eq!(writer.written(), 2);
    assert_eq!(client.admin().describe_table("t").unwrap().schema.name, table.name());

    assert!(table.put(Put::new("")).unwrap_err().is_invalid());
    assert!(table.mutate_many(vec![RowMutation::new("c").append("f", "q", "x")]).unwrap()[0].is_ok());
    client.close();
    assert!(table.get("a").is_err());
}
