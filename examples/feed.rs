//! A social network's feeds: the latest posts of each author in one call, and all posts ordered by time.
//!
//! The first table sorts posts by author, newest first. The home page shows the latest two of every author. In other stores
//! this is one scan per author; here the servers seek from one author to the next and read nothing in between.
//!
//! The second table has the same posts by time alone. A key that starts with the time would send every new row to one region, so
//! it starts with a `Bucket`: the client computes it, rows spread over eight ranges, and reads merge them into one order, pages
//! included.
//!
//! `cargo run -p terrane-examples --example feed [MASTER]`

use anyhow::{Context as _, ensure};
use futures::TryStreamExt as _;
use terrane_client::{Bucket, Client, Desc, Json, Row, RowKey, TableSpec, TypedTable, WriterOptions};

#[derive(Clone, Debug, PartialEq, RowKey)]
struct PostKey {
    author: String,
    time: Desc<i64>,
}

#[derive(Clone, Debug, PartialEq, Row)]
#[row(family = "p")]
struct Post {
    #[row(key)]
    key: PostKey,
    text: String,
    /// Any serde type can be a value.
    tags: Json<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, RowKey)]
struct TimelineKey {
    bucket: Bucket<8>,
    time: Desc<i64>,
    author: String,
}

#[derive(Clone, Debug, PartialEq, Row)]
#[row(key = TimelineKey, family = "t")]
struct Entry {
    #[row(part)]
    bucket: Bucket<8>,
    #[row(part)]
    time: Desc<i64>,
    #[row(part)]
    author: String,
    text: String,
}

const AUTHORS: [&str; 4] = ["ada", "barbara", "grace", "hedy"];
const POSTS: i64 = 30;
/// 2026-01-01T00:00:00Z, in milliseconds since 1970.
const FIRST_MS: i64 = 1_767_225_600_000;
const MINUTE_MS: i64 = 60_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    let posts = client.open_or_create(TableSpec::of_rows::<Post>("example.posts")?).await?;
    let posts: TypedTable<Post> = TypedTable::new(posts)?;
    let timeline = client.open_or_create(TableSpec::of_rows::<Entry>("example.timeline")?).await?;
    let timeline: TypedTable<Entry> = TypedTable::new(timeline)?;
    write(&posts, &timeline).await?;

    println!("the latest two of each author");
    let latest: Vec<Post> = posts.latest_of_each(1).rows(2).await?.try_collect().await?;
    for post in &latest {
        println!("  {:<8} {}  {:?}", post.key.author, post.text, post.tags.0);
    }
    let expected = AUTHORS.iter().enumerate().flat_map(|(at, _)| [post(at, POSTS - 1), post(at, POSTS - 2)]);
    ensure!(latest == expected.collect::<Vec<_>>(), "two of each, newest first");

    let newest = posts.latest("grace").await?.context("she has posts")?;
    let before = posts.higher(&newest.key).within("grace").await?.context("she has more")?;
    println!("\ngrace: {:?}, and before it {:?}", newest.text, before.text);
    ensure!((newest.text.as_str(), before.text.as_str()) == ("post 29", "post 28"));
    let about_compilers = posts.scan("grace").filter("contains(p:tags, 'compilers')").await?;
    let about_compilers: Vec<Post> = about_compilers.try_collect().await?;
    ensure!(about_compilers.len() == 10, "every third post of hers, not {}", about_compilers.len());

    println!("\nall posts, by time");
    let first = timeline.page(..).limit(6).await?;
    for entry in &first.rows {
        println!("  {:<8} {}", entry.author, entry.text);
    }
    // Eight ranges are read and merged; the token is one position in the merged order.
    let second = timeline.page(..).after(first.next).limit(6).await?;
    let both: Vec<i64> = first.rows.iter().chain(&second.rows).map(|entry| entry.time.0).collect();
    let in_order: Vec<i64> = (0..12).map(|back| time(3 - back % 4, POSTS - 1 - back as i64 / 4).0).collect();
    ensure!(both == in_order, "newest first over all buckets: {both:?}");
    client.close().await;
    Ok(())
}

/// Each author posts at another second of the minute.
fn time(author: usize, number: i64) -> Desc<i64> {
    Desc(FIRST_MS + number * MINUTE_MS + i64::try_from(author).expect("few authors") * 1_000)
}

fn post(author: usize, number: i64) -> Post {
    let key = PostKey { author: AUTHORS[author].to_owned(), time: time(author, number) };
    let tag = ["compilers", "radio", "engines"][(number % 3) as usize];
    Post { key, text: format!("post {number}"), tags: Json(vec![tag.to_owned()]) }
}

async fn write(posts: &TypedTable<Post>, timeline: &TypedTable<Entry>) -> anyhow::Result<()> {
    let (by_author, by_time) =
        (posts.table().writer(WriterOptions::default()), timeline.table().writer(WriterOptions::default()));
    for number in 0..POSTS {
        for author in 0..AUTHORS.len() {
            let post = post(author, number);
            by_author.mutate(TypedTable::mutation(&post)?).await?;
            let Post { key: PostKey { author, time }, text, .. } = post;
            by_time.mutate(TypedTable::mutation(&Entry { bucket: Bucket, time, author, text })?).await?;
        }
    }
    by_author.close().await?;
    by_time.close().await?;
    Ok(())
}
