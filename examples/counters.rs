//! Counters: many writers on the same rows, and every increment counts once.
//!
//! A counter is a column of 8 bytes, a big-endian `i64`, as in HBase. An increment has an operation number under which the
//! servers apply it once, however often its answer is lost and it is sent again. So counts are exact without any work of the
//! caller. Only an error with `is_uncertain()` leaves open whether an increment was applied.
//!
//! `cargo run -p terrane-examples --example counters [MASTER]`

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use terrane_client::{Client, Delete, Increment, KeyRange, RowMutation, Table, TableSpec, ValueType, column};

const PAGES: [&str; 4] = ["/", "/about", "/docs", "/blog"];
const VISITORS: i64 = 40;
const VISITS: i64 = 10;
/// How many downloads one account may make.
const QUOTA: i64 = 5;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    let spec = TableSpec::new("example.counters")?.family("stats", &[])?;
    let counters = client.open_or_create(spec).await?;
    // Start with empty rows: delete the counts of an earlier run.
    for row in PAGES.into_iter().chain(["account-7"]) {
        counters.delete(Delete::new(row)).await?;
    }

    // All visitors at once. One write raises several counters of a row atomically.
    try_join_all((0..VISITORS).map(|visitor| visit(&counters, visitor))).await?;

    // The servers add up and send only the sums.
    let views = counters.aggregate("stats", "views", ValueType::I64).await?;
    let bytes = counters.aggregate("stats", "bytes", ValueType::I64).await?;
    let (pages, views, bytes) = (views.count(), views.sum(), bytes.sum());
    let (views, bytes) = (views.context("there are counters")?, bytes.context("there are counters")?);
    println!("{pages} pages, {views} views, {bytes} bytes");
    ensure!(views.as_i128() == Some(i128::from(VISITORS * VISITS)), "every visit counts once");
    let busy = counters.count(KeyRange::all()).filter("i64(stats:views) >= 100").await?;
    println!("{busy} pages had 100 views or more");
    for page in PAGES {
        let row = counters.get(page).await?.context("it was visited")?;
        let count = row.read::<i64>("stats", "views")?;
        ensure!(count == Some(VISITORS * VISITS / PAGES.len() as i64), "{page} has {count:?} views");
    }
    ensure!(busy == PAGES.len() as u64);

    // A quota: raised only while it is below the limit, whatever other tasks do. The server evaluates the condition in the order
    // of the row's writes.
    let below = || column("stats", "downloads").is_absent().or(column("stats", "downloads").as_i64().less_than(QUOTA));
    let download = || async {
        let raise = RowMutation::new("account-7").increment("stats", "downloads", 1);
        counters.check_and_mutate(below(), raise).await
    };
    let granted = try_join_all((0..4 * QUOTA).map(|_| download())).await?;
    let granted = granted.into_iter().filter(|held| *held).count();
    println!("{granted} of {} downloads were granted", 4 * QUOTA);
    ensure!(granted as i64 == QUOTA, "no two tasks get the last download");

    // Incrementing a column that is not a counter is refused, and nothing of the mutation is applied.
    let notes = RowMutation::new("/").set("stats", "note", "text");
    counters.mutate(notes).await?;
    let both = Increment::new("/").by("stats", "views", 1).by("stats", "note", 1);
    let refused = counters.mutate(both).await.expect_err("four bytes are not a counter");
    println!("refused: {refused}");
    ensure!(refused.is_invalid());
    let views = counters.increment("/", "stats", "views", 0).await?;
    ensure!(views == VISITORS * VISITS / PAGES.len() as i64, "nothing was applied");
    client.close().await;
    Ok(())
}

async fn visit(counters: &Table, visitor: i64) -> Result<(), terrane_client::Error> {
    for visit in 0..VISITS {
        let page = PAGES[usize::try_from(visitor + visit).expect("few visits") % PAGES.len()];
        counters.mutate(Increment::new(page).by("stats", "views", 1).by("stats", "bytes", 5_120)).await?;
    }
    Ok(())
}
