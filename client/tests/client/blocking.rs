//! The blocking client, against a fake cluster on another thread's runtime.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use terrane_client::blocking::Client;
use terrane_client::{Put, RowMutation, Scan, WriterOptions, column};

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
    assert!(table.put(Put::new("")).unwrap_err().is_invalid());
    assert!(table.mutate_many(vec![RowMutation::new("c").append("f", "q", "x")]).unwrap()[0].is_ok());
    client.close();
    assert!(table.get("a").is_err());
}
