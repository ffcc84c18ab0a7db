//! User actions, newest first: a composite key, a struct per row, and pages.
//!
//! The key is the classic `user id | Long.MAX_VALUE - time | action id`, declared as a struct: parts sort as their values do,
//! and `Desc` reverses the time. Offsets suit page numbers. Tokens continue exactly after the last row shown, whatever was
//! written meanwhile, and every page costs the same.
//!
//! `cargo run -p terrane-examples --example user_actions [MASTER]`

use anyhow::ensure;
use terrane_client::{Client, Desc, PageToken, Row, RowKey, TableSpec, TypedPage, TypedTable, WriterOptions};

#[derive(Clone, Debug, PartialEq, RowKey)]
struct ActionKey {
    user: u64,
    time: Desc<i64>,
    action: u32,
}

/// Fields marked as parts form the key; the others are columns of family `a`.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(key = ActionKey, family = "a")]
struct Action {
    #[row(part)]
    user: u64,
    #[row(part)]
    time: Desc<i64>,
    #[row(part)]
    action: u32,
    kind: String,
    /// A column that only some rows have.
    search: Option<String>,
}

const USERS: u64 = 3;
const ACTIONS: u32 = 25;
const PAGE_ROWS: u64 = 7;
/// 2026-01-01T00:00:00Z, in milliseconds since 1970.
const FIRST_MS: i64 = 1_767_225_600_000;
const MINUTE_MS: i64 = 60_000;
const KINDS: [&str; 5] = ["login", "search", "view", "comment", "logout"];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    // The table gets its key and families from the struct. `TypedTable` refuses a table with another key.
    let table = client.open_or_create(TableSpec::of_rows::<Action>("example.actions")?).await?;
    let actions: TypedTable<Action> = TypedTable::new(table)?;
    write(&actions).await?;

    let user = 2;
    let newest = actions.latest(user).await?;
    ensure!(newest == Some(action(user, ACTIONS - 1)), "the newest action comes first: {newest:?}");

    // Leading parts of the key select rows; other parts do not compile.
    let (from, to) = (FIRST_MS + 5 * MINUTE_MS, FIRST_MS + 10 * MINUTE_MS);
    let in_five_minutes = actions.count(ActionKey::prefix().user(user).time_between(from..to)).await?;
    let all = actions.count(user).await?;
    println!("user {user} did {all} things, {in_five_minutes} of them between 00:05 and 00:10");
    ensure!((all, in_five_minutes) == (u64::from(ACTIONS), 5));

    println!("\npage 3 by number");
    let third = actions.page(user).offset(2 * PAGE_ROWS).limit(PAGE_ROWS).await?;
    show(&third);

    println!("\nall pages by token");
    let (mut seen, mut link): (Vec<Action>, Option<String>) = (Vec::new(), None);
    loop {
        // The token is text that is safe to show: servers have sealed it, and open it only for these rows.
        let token: Option<PageToken> = link.as_deref().map(str::parse).transpose()?;
        let page = actions.page(user).after(token).limit(PAGE_ROWS).await?;
        show(&page);
        link = page.next.map(|token| token.to_string());
        if seen.len() as u64 == 2 * PAGE_ROWS {
            ensure!(page.rows == third.rows, "page 3 is page 3, by number and by token");
        }
        seen.extend(page.rows);
        let Some(text) = &link else { break };
        println!("  next page: ?after=...{}", &text[text.len() - 16..]);
    }
    let expected: Vec<Action> = (0..ACTIONS).rev().map(|number| action(user, number)).collect();
    ensure!(seen == expected, "all pages together are all actions, newest first");

    // A token of one user's pages does not open another's.
    let foreign = actions.page(user).limit(1).await?.next;
    let refused = actions.page(user + 1).after(foreign).await;
    ensure!(refused.is_err_and(|error| error.is_invalid()), "a token is bound to its rows");
    client.close().await;
    Ok(())
}

fn action(user: u64, number: u32) -> Action {
    let kind = KINDS[number as usize % KINDS.len()];
    let search = (kind == "search").then(|| format!("terrane {number}"));
    let time = Desc(FIRST_MS + i64::from(number) * MINUTE_MS);
    Action { user, time, action: number, kind: kind.to_owned(), search }
}

/// A writer batches rows in the background; when `close` returns, they are on disk.
async fn write(actions: &TypedTable<Action>) -> anyhow::Result<()> {
    let writer = actions.table().writer(WriterOptions::default());
    for user in 1..=USERS {
        for number in 0..ACTIONS {
            writer.mutate(TypedTable::mutation(&action(user, number))?).await?;
        }
    }
    writer.close().await?;
    Ok(())
}

fn show(page: &TypedPage<Action>) {
    for row in &page.rows {
        let minute = (row.time.0 - FIRST_MS) / MINUTE_MS;
        let search = row.search.as_deref().map_or(String::new(), |words| format!(" for {words:?}"));
        println!("  00:{minute:02}  {}{search}", row.kind);
    }
}
