//! Rows of the invented table `actions`: 130 users with an action each.

use terrane_console::source::{Bound, Cell, Failure, Key, Row, RowPage, RowQuery};

use super::places;

const USERS: u64 = 130;

fn row(user: u64, limit: usize) -> Row {
    let time = 1_795_269_600_000 - user * 61_000;
    let mut bytes = user.to_be_bytes().to_vec();
    bytes.extend(time.to_be_bytes());
    let cell = |column: &str, value: &[u8], typed: Option<&str>| Cell {
        column: column.to_owned(),
        timestamp: i64::try_from(time).unwrap(),
        value: value[..value.len().min(limit)].to_vec(),
        typed: typed.map(str::to_owned),
        value_bytes: value.len() as u64,
    };
    let mut cells = vec![
        cell("d:count", &user.to_be_bytes(), Some(&user.to_string())),
        cell("d:kind", [&b"login"[..], b"search", b"buy"][user as usize % 3], None),
    ];
    if user == 2 {
        cells.push(cell("d:note", b"<img src=x onerror=\"document.title='broken'\"><script>alert(1)</script>", None));
    }
    if user == 3 {
        cells.push(cell("d:page", "Zürich \\ \u{1} ".repeat(400).as_bytes(), None));
    }
    let parts = vec![user.to_string(), time.to_string(), (user % 5).to_string()];
    let text = format!("user={user}, time={time}, action={}", user % 5);
    Row { key: Key::decoded(bytes, text), parts, cells }
}

fn user_of(bound: Option<&Bound>) -> Result<Option<u64>, Failure> {
    match bound {
        None => Ok(None),
        Some(Bound::Bytes(bytes)) => {
            let Some(first) = bytes.first_chunk() else {
                return Err(Failure::bad_input("The key ends within the part user.", "A user has 8 bytes."));
            };
            Ok(Some(u64::from_be_bytes(*first)))
        }
        Some(Bound::Typed(text)) => {
            let part = text.split(',').next().unwrap_or_default();
            let value = part.strip_prefix("user=").unwrap_or(part).trim();
            let parsed = value.parse().map_err(|_| {
                Failure::bad_input(
                    format!("Part user (u64): {value:?} is not an integer from 0 to 18446744073709551615."),
                    "The table's key is `user:u64, time:desc i64, action:u32`.",
                )
            });
            parsed.map(Some)
        }
    }
}

pub fn page(query: &RowQuery) -> Result<RowPage, Failure> {
    places::table(&query.table)?;
    let prefix = user_of(query.prefix.as_ref())?;
    let start = user_of(query.start.as_ref())?.unwrap_or(0);
    let start = match &query.after {
        Some(token) => token.parse::<u64>().map_err(|_| {
            Failure::bad_input("The page token is not one of this table.", "Start again from the first page.")
        })?,
        None => start,
    };
    let users = (start..USERS).filter(|user| prefix.is_none_or(|prefix| prefix == *user));
    let mut rows: Vec<Row> = users.take(query.limit + 1).map(|user| row(user, query.value_bytes_max)).collect();
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    let next = rows.last().filter(|_| more).map(|last| (last.parts[0].parse::<u64>().unwrap() + 1).to_string());
    Ok(RowPage {
        table: query.table.clone(),
        key_parts: ["user", "time", "action"].map(str::to_owned).to_vec(),
        rows,
        next,
        duration_us: 2_340,
    })
}
