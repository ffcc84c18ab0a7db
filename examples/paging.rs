//! User actions, newest first, shown page by page: by offset, and by token.
//!
//! The key is the classic `user id | Long.MAX_VALUE - time | action id`. Pages by offset are right for page numbers and
//! get slower with each page; pages by token go on exactly behind the last row shown, whatever was written meanwhile.
//! Start a cluster (`terrane dev`), then `cargo run -p terrane-examples --example paging`.

use anyhow::Context as _;
use terrane_client::{
    Client, Desc, Error, KeyRange, Page, PageToken, Put, RowKey, Scan, Table, TableSpec, WriterOptions,
};

/// What a user did, when.
#[derive(Debug, RowKey)]
struct Action {
    user: u64,
    time: Desc<i64>,
    action: u32,
}

const USERS: u64 = 3;
const ACTIONS: u32 = 25;
const PAGE_ROWS: u64 = 7;
/// 2026-01-01T00:00:00Z, in milliseconds since 1970.
const FIRST_MS: i64 = 1_767_225_600_000;
const KINDS: [&str; 5] = ["login", "search", "view", "comment", "logout"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let masters = std::env::var("TERRANE_MASTERS").unwrap_or_else(|_| "127.0.0.1:7600".to_owned());
    let client = Client::connect(&masters).await.context("connect to the cluster (is `terrane dev` running?)")?;
    let actions = table(&client).await?;
    write(&actions).await?;

    let user = 2;
    let newest_first = Action::prefix_1(&user);
    println!("user {user}: page 3 by offset");
    show(&by_offset(&actions, newest_first.clone(), 3).await?)?;

    println!("\nuser {user}: all pages by token");
    let (mut number, mut after) = (1, None);
    loop {
        let page = by_token(&actions, newest_first.clone(), after.as_deref()).await?;
        println!("page {number}");
        show(&page)?;
        // What a web page would put into its link to the next one.
        after = page.next.map(|token| token.to_string());
        let Some(token) = &after else { break };
        println!("  next page: ?after={token}");
        number += 1;
    }
    Ok(())
}

async fn table(client: &Client) -> Result<Table, Error> {
    let spec = TableSpec::new("example.actions")?.family("a", &[])?.key("user:u64, time:desc i64, action:u32")?;
    match client.admin().create_table(spec).await {
        Ok(_) | Err(Error::AlreadyExists { .. }) => client.table("example.actions").await,
        Err(error) => Err(error),
    }
}

async fn write(actions: &Table) -> anyhow::Result<()> {
    let writer = actions.writer(WriterOptions::default());
    for user in 1..=USERS {
        for action in 0..ACTIONS {
            let time = FIRST_MS + i64::from(action) * 60_000;
            let key = Action { user, time: Desc(time), action };
            let kind = KINDS[action as usize % KINDS.len()];
            writer.put(Put::new(key.encode()?).set("a", "kind", kind)).await?;
        }
    }
    writer.close().await?;
    println!("wrote {ACTIONS} actions of each of {USERS} users\n");
    Ok(())
}

/// Pages count from 1.
async fn by_offset(actions: &Table, range: KeyRange, page: u64) -> Result<Page, Error> {
    actions.page(Scan::range(range).offset((page - 1) * PAGE_ROWS).limit(PAGE_ROWS)).await
}

async fn by_token(actions: &Table, range: KeyRange, after: Option<&str>) -> Result<Page, Error> {
    let scan = Scan::range(range).limit(PAGE_ROWS);
    match after {
        Some(token) => actions.page(scan.after(token.parse::<PageToken>()?)).await,
        None => actions.page(scan).await,
    }
}

fn show(page: &Page) -> anyhow::Result<()> {
    for row in &page.rows {
        let key = Action::decode(row.row())?;
        let kind = String::from_utf8_lossy(row.value("a", "kind").unwrap_or_default()).into_owned();
        let minute = (key.time.0 - FIRST_MS) / 60_000;
        println!("  00:{minute:02}  action {:>2}  {kind}", key.action);
    }
    Ok(())
}
