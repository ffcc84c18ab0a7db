//! Bigtable's webtable: web pages by reversed domain, with versions of their contents and the pages that link to them.
//!
//! - The row key reverses the domain, so the pages of a domain and its subdomains are neighbours.
//! - Family `contents` keeps three versions of each page; older ones are removed automatically. The crawler sets their
//!   timestamps.
//! - Family `anchor` has a column for each page that links here, named after that page: columns need no declaration.
//! - A crawler replaces a page only if no other crawler has done so meanwhile: compare-and-set on the version it read.
//!
//! `cargo run -p terrane-examples --example webtable [MASTER]`

use anyhow::{Context as _, ensure};
use terrane_client::{Client, Delete, Put, Scan, Table, TableSpec, column};

/// The first crawl: 2026-01-01T00:00:00Z, in milliseconds since 1970.
const FIRST_MS: i64 = 1_767_225_600_000;
const DAY_MS: i64 = 24 * 3_600_000;
const PAGES: [&str; 5] =
    ["www.example.com/", "www.example.com/news", "maps.example.com/", "example.org/", "news.example.net/"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    let spec = TableSpec::new("example.webtable")?
        .family("contents", &[("versions", "3"), ("compression", "zstd")])?
        .family("anchor", &[])?;
    let web = client.open_or_create(spec).await?;
    for page in PAGES {
        web.delete(Delete::new(row(page))).await?;
    }
    crawl(&web).await?;

    println!("the pages of example.com and its subdomains");
    let mut pages = web.scan(Scan::prefix("com.example.")).keys_only().await?;
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        found.push(String::from_utf8_lossy(page?.row()).into_owned());
    }
    println!("  {}", found.join("\n  "));
    ensure!(found == ["com.example.maps/", "com.example.www/", "com.example.www/news"]);

    let front = row("www.example.com/");
    println!("\nversions of {front}");
    let page = web.get(&front).column("contents", "html").versions(10).await?.context("it was crawled")?;
    let versions: Vec<(i64, String)> = page
        .versions("contents", b"html")
        .map(|(time, html)| ((time - FIRST_MS) / DAY_MS, String::from_utf8_lossy(html).into_owned()))
        .collect();
    for (day, html) in &versions {
        println!("  day {day}: {html}");
    }
    let days: Vec<i64> = versions.iter().map(|(day, _)| *day).collect();
    ensure!(days == [4, 3, 2], "of five crawls three are kept: {days:?}");

    // The page on the third day: the newest version before a time.
    let then =
        web.get(&front).family("contents").time_range(0, FIRST_MS + 3 * DAY_MS).await?.context("it was there")?;
    ensure!(then.read::<String>("contents", "html")?.as_deref() == Some("<h1>edition 2</h1>"));

    println!("\npages that link to it");
    let links = web.get(&front).family("anchor").await?.context("it has links")?;
    for cell in links.cells() {
        println!("  {}: {:?}", String::from_utf8_lossy(cell.qualifier), String::from_utf8_lossy(cell.value));
    }
    let from_com = web.get(&front).column_prefix("anchor", "com.").await?.context("one of them is near")?;
    ensure!((links.cells().count(), from_com.cells().count()) == (3, 1));

    // Two crawlers read the version of day 4. One of them writes; the other learns that its version is outdated.
    let seen = FIRST_MS + 4 * DAY_MS;
    let write = |html: &str| {
        let put = Put::new(&front).set_at("contents", "html", FIRST_MS + 5 * DAY_MS, html);
        web.check_and_put(column("contents", "html").version_is(seen), put)
    };
    let (first, second) = (write("<h1>edition 5</h1>").await?, write("<h1>too late</h1>").await?);
    println!("\nfirst crawler: {first}, second: {second}");
    ensure!(first && !second);

    // A takedown request: one version is deleted, and the one before it is visible again.
    web.delete(Delete::new(&front).version("contents", "html", FIRST_MS + 5 * DAY_MS)).await?;
    let page = web.get(&front).await?.context("it has more versions")?;
    ensure!(page.read::<String>("contents", "html")?.as_deref() == Some("<h1>edition 4</h1>"));
    client.close().await;
    Ok(())
}

/// `www.example.com/news` is `com.example.www/news`.
fn row(url: &str) -> String {
    let (domain, path) = url.split_once('/').unwrap_or((url, ""));
    let mut parts: Vec<&str> = domain.split('.').collect();
    parts.reverse();
    format!("{}/{path}", parts.join("."))
}

async fn crawl(web: &Table) -> Result<(), terrane_client::Error> {
    for day in 0..5 {
        for page in PAGES {
            let html = format!("<h1>edition {day}</h1>");
            web.put(Put::new(row(page)).set_at("contents", "html", FIRST_MS + day * DAY_MS, html)).await?;
        }
    }
    // All links to a page are cells of its row, written atomically.
    let links = Put::new(row("www.example.com/"))
        .set("anchor", row("maps.example.com/"), "home")
        .set("anchor", row("example.org/"), "our friends")
        .set("anchor", row("news.example.net/"), "source");
    web.put(links).await
}
