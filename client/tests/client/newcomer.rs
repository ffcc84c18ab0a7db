//! What a program writes that has read only the guide, against a fake cluster: each form here was tried by such a reader.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use futures::{StreamExt as _, TryStreamExt as _};
use terrane_client::{
    Client, Delete, Desc, Error, Get, Increment, KeyDeclaration, KeyedTable, LatestPer, Put, Returns, Row, RowData,
    RowKey, Scan, TypedTable, WriterOptions,
};

use crate::fake::Fake;

/// No `Debug`: rows print by the parts of their keys.
#[derive(Clone, RowKey)]
struct ActionKey {
    user: u64,
    time: Desc<i64>,
}

#[derive(Debug, PartialEq, Row)]
#[row(key = ActionKey, family = "f")]
struct Action {
    #[row(part)]
    user: u64,
    #[row(part)]
    time: Desc<i64>,
    kind: String,
}

fn action(user: u64, time: i64) -> Action {
    let kind = if time % 2 == 0 { "login" } else { "click" };
    Action { user, time: Desc(time), kind: kind.to_owned() }
}

/// Users 1 to 3, each with the times 1 to 4, in three regions.
async fn actions() -> (Fake, Client, TypedTable<Action>) {
    let cluster = Fake::start(&["\0\0\0\0\0\0\0\x02", "\0\0\0\0\0\0\0\x03"]).await;
    cluster.world.lock().schema.key = Some(KeyDeclaration::parse("user:u64, time:desc i64").unwrap());
    let client = cluster.client().await;
    let actions = TypedTable::new(client.table("t").await.unwrap()).unwrap();
    let writer = actions.writer(WriterOptions::default());
    for user in 1..=3 {
        for time in 1..=4 {
            writer.put(&action(user, time)).await.unwrap();
        }
    }
    let receipt = writer.submit(&action(3, 4)).await.unwrap();
    writer.close().await.unwrap();
    assert!(receipt.await.unwrap().held);
    (cluster, client, actions)
}

fn named(rows: &[Action]) -> Vec<(u64, i64)> {
    rows.iter().map(|row| (row.user, row.time.0)).collect()
}

fn keys(rows: &[RowData]) -> Vec<String> {
    rows.iter().map(|row| row.row().to_string()).collect()
}

#[tokio::test]
async fn the_latest_of_each_come_as_a_list_and_as_a_stream() {
    let (_cluster, _client, actions) = actions().await;
    let newest = actions.latest_of_each(1).collect().await.unwrap();
    assert_eq!(named(&newest), [(1, 4), (2, 4), (3, 4)]);
    let mut stream = actions.latest_of_each(1).rows(2).limit(3).stream();
    let mut seen = Vec::new();
    while let Some(row) = stream.next().await {
        seen.push(row.unwrap());
    }
    assert_eq!(named(&seen), [(1, 4), (1, 3), (2, 4)]);
    let mut rows = actions.latest_of_each(1).await.unwrap();
    assert_eq!(rows.try_next().await.unwrap(), Some(action(1, 4)));
    let untyped = actions.table().latest(LatestPer::parts(1)).collect().await.unwrap();
    assert_eq!(untyped.len(), 3);
    let names: Vec<u64> = actions.table().scan(..).stream().map_ok(|_| 1).try_collect().await.unwrap();
    assert_eq!(names.len(), 12);
}

#[tokio::test]
async fn a_scan_counts_what_it_would_return() {
    let (cluster, _client, actions) = actions().await;
    assert_eq!(actions.scan(2).count().await.unwrap(), 4);
    assert_eq!(actions.scan(..).offset(1).limit(5).count().await.unwrap(), 5);
    assert_eq!(actions.latest_of_each(1).count().await.unwrap(), 3);
    let table = actions.table();
    assert_eq!(table.scan(..).limit(7).count().await.unwrap(), 7);
    assert_eq!(table.scan(Scan::prefix(ActionKey::prefix().user(3))).count().await.unwrap(), 4);
    actions.scan(..).filter("f:kind = 'login'").count().await.unwrap();
    assert_eq!(cluster.world.lock().projection.filter, "f:kind = 'login'", "the servers judge it");
}

#[tokio::test]
async fn typed_prefixes_are_accepted_where_prefixes_are() {
    let (_cluster, _client, actions) = actions().await;
    let table = actions.table();
    let of_two = table.scan(Scan::prefix(ActionKey::prefix().user(2))).collect().await.unwrap();
    assert_eq!(of_two.len(), 4);
    assert_eq!(keys(&table.scan(ActionKey::prefix().user(2)).collect().await.unwrap()), keys(&of_two));
    assert_eq!(keys(&table.scan(..).prefix(ActionKey::prefix().user(2)).collect().await.unwrap()), keys(&of_two));
    assert_eq!(named(&actions.scan((2, 3)).collect().await.unwrap()), [(2, 3)]);
    assert_eq!(named(&actions.scan((2, Desc(3))).collect().await.unwrap()), [(2, 3)]);
}

#[tokio::test]
async fn a_key_alone_is_a_delete_and_many_rows_need_no_conversion() {
    let (_cluster, table) = Fake::with_table(&["m"]).await;
    let puts = ["a", "b", "x", "y"].map(|row| Put::new(row).set("f", "q", "v").set("f", "n", 1_i64));
    assert!(table.put_many(puts).await.unwrap().iter().all(Result::is_ok));
    table.delete("a").await.unwrap();
    table.delete(Delete::new("b").column("f", "q")).await.unwrap();
    assert!(table.check_and_delete("f:q = 'v'", "x").await.unwrap());
    assert_eq!(keys(&table.scan(..).collect().await.unwrap()), ["b", "y"]);
    let visit = Increment::new("y").by("f", "n", 4).by("f", "m", 1);
    let outcome = table.mutate(visit).returning(Returns::New).await.unwrap();
    assert_eq!(outcome.row.unwrap().read::<i64>("f", "n").unwrap(), Some(5));
    assert_eq!(table.delete_many(["b", "y"]).await.unwrap().len(), 2);
    assert_eq!(table.count(..).await.unwrap(), 0);
}

#[tokio::test]
async fn rows_print_their_keys_and_cells() {
    let (_cluster, _client, actions) = actions().await;
    let keyed: KeyedTable<ActionKey> = KeyedTable::new(actions.table().clone()).unwrap();
    let row = keyed.latest(2).await.unwrap().unwrap();
    let shown = row.to_string();
    assert!(shown.starts_with("user=2,time=4 { f:kind@") && shown.ends_with("=login }"), "{shown}");
    assert_eq!(format!("{row:?}"), shown);
    assert_eq!(row.read::<String>("f", "kind").unwrap().as_deref(), Some("login"));
    assert_eq!((row.key.time.to_string(), row.key.line()), ("4".to_owned(), "user=2,time=4".to_owned()));
    let bytes = actions.table().get(Get::new(row.key.encode().unwrap())).await.unwrap().unwrap();
    assert_eq!(bytes.versions("f", "kind").count(), 1);
    assert!(bytes.to_string().contains("f:kind@"), "{bytes}");
}

#[tokio::test]
async fn a_stream_reports_a_wrong_request_as_its_first_item() {
    let (_cluster, table) = Fake::with_table(&[]).await;
    let mut rows = table.scan("b".."a").stream();
    assert!(rows.next().await.unwrap().is_err_and(|error: Error| error.is_invalid()));
    assert!(rows.next().await.is_none());
}
