//! Hostile use of the client's own interface: keys and values at and over the limits, absurd limits and offsets, deadlines
//! that have passed, cancelled calls, tampered page tokens, slow readers, and clients that come and go.

use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Client, Error, Get, PageToken, Put, RowData, RowMutation, Scan, Table, column};
use terrane_types::KeyRange;
use terrane_types::limits::{BATCH_ROWS_MAX, QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, VALUE_BYTES_MAX};

use super::{FAMILY, HOSTILE_PAUSE_MS, HOSTILE_PREFIX, Shared, Sizes, hostile_row, normal_row};
use crate::scenario::play::{PATIENCE, TABLE, below, open_table, passes, patiently, pause, rows_by_key};
use crate::trace::chain;

const CLIENTS: usize = 3;
/// How long a slow reader keeps a stream without reading.
const SLOW_MS: u64 = 3_000;
/// A call is cancelled within this time.
const CANCELLED_MS: u64 = 25;
/// A deadline that has passed, or is about to.
const DEADLINE_MS: u64 = 3;
const BATCH: usize = 40;
/// Sizes at a limit, of which one in so many writes has one: each costs as much as a thousand rows.
const LARGE_ONE_IN: usize = 5;
const LARGE_VALUE_BYTES: usize = 70_000;

/// Acts until the faults are over.
pub async fn call_all_the_time(host: &'static str, shared: Shared) -> Result<(), Error> {
    let client = shared.client(PATIENCE).await?;
    let table = open_table(&client, TABLE).await?;
    let callers = (0..CLIENTS).map(|caller| {
        let (client, table, shared) = (client.clone(), table.clone(), shared.clone());
        let caller = Caller { who: format!("{host}.{caller}"), client, table, shared };
        async move { caller.shared.until_over(HOSTILE_PAUSE_MS, async || caller.act().await).await }
    });
    join_all(callers).await.into_iter().collect()
}

struct Caller {
    who: String,
    client: Client,
    table: Table,
    shared: Shared,
}

impl Caller {
    async fn act(&self) -> Result<(), Error> {
        match below(10) {
            0 | 1 => self.write_at_a_limit().await,
            2 => self.write_beyond_a_limit().await,
            3 => self.read_absurdly().await,
            4 => self.tamper_with_a_token().await,
            5 => self.call_too_late().await,
            6 | 7 => self.cancel().await,
            8 => self.read_slowly().await,
            _ => self.come_and_go().await,
        }
    }

    /// Records an outcome: success, or an error that a caller can understand.
    fn judge<T>(&self, act: &'static str, outcome: &Result<T, Error>) {
        match outcome {
            Err(error @ Error::Internal { .. }) => self.shared.fail_act(&self.who, format!("{act}: {}", chain(error))),
            Err(error @ Error::Corruption { .. }) if !self.shared.has_damage() => {
                self.shared.fail_act(&self.who, format!("{act}: {}", chain(error)));
            }
            _ => {}
        }
        self.shared.act(&self.who, act, kind_of(outcome));
    }

    fn must_be_invalid<T>(&self, act: &'static str, outcome: &Result<T, Error>) {
        self.judge(act, outcome);
        if !outcome.as_ref().is_err_and(|error| error.is_invalid() || passes(error)) {
            self.shared.fail_act(&self.who, format!("{act} was not refused: {}", kind_of(outcome)));
        }
    }

    /// What the limits allow is accepted, and can be read.
    async fn write_at_a_limit(&self) -> Result<(), Error> {
        let row = hostile_row(one_of(&[HOSTILE_PREFIX.len() + 8, 300], ROW_BYTES_MAX));
        let sizes = (one_of(&[0, 1], QUALIFIER_BYTES_MAX), one_of(&[0, 1], LARGE_VALUE_BYTES));
        let put = Put::new(&row).set(FAMILY, vec![b'q'; sizes.0], vec![b'v'; sizes.1]);
        let outcome = self.table.put(put).await;
        self.judge("a write at a limit", &outcome);
        match outcome {
            Ok(()) => drop(self.shared.accepted.borrow_mut().insert(row, sizes)),
            Err(error) if passes(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        let Some((row, sizes)) = self.some_accepted() else { return Ok(()) };
        match self.table.get(Get::new(&row)).await {
            Ok(found) => must_have(&self.who, &row, sizes, found.as_ref(), &self.shared),
            Err(error) if passes(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn some_accepted(&self) -> Option<(Vec<u8>, Sizes)> {
        let accepted = self.shared.accepted.borrow();
        accepted.iter().nth(below(accepted.len().max(1))).map(|(row, sizes)| (row.clone(), *sizes))
    }

    async fn write_beyond_a_limit(&self) -> Result<(), Error> {
        let row = hostile_row(20);
        let put = match below(7) {
            0 => Put::new(b"").set(FAMILY, "q", "v"),
            1 => Put::new(hostile_row(ROW_BYTES_MAX + 1)).set(FAMILY, "q", "v"),
            2 => Put::new(&row).set(FAMILY, vec![b'q'; QUALIFIER_BYTES_MAX + 1], "v"),
            3 => Put::new(&row).set(FAMILY, "q", vec![b'v'; VALUE_BYTES_MAX + 1]),
            4 => Put::new(&row).set("no such family", "q", "v"),
            5 => Put::new(&row).set("", "q", "v"),
            _ => Put::new(&row).set_at(FAMILY, "q", i64::MIN, "v"),
        };
        self.must_be_invalid("a write beyond a limit", &self.table.put(put).await);
        let condition = (0..below(60)).fold(column(FAMILY, "q").is_absent(), |inner, at| {
            let other = column(FAMILY, "q").exists();
            if at % 2 == 0 { other.and(inner) } else { other.or(inner) }
        });
        let outcome = self.table.mutate(RowMutation::new(&row).set(FAMILY, "q", "v").when(condition)).await;
        self.judge("a deep condition", &outcome);
        let many = vec![RowMutation::new(&row); if below(16) == 0 { BATCH_ROWS_MAX + 1 } else { 2 }];
        self.must_be_invalid("an atomic batch without a key", &self.table.atomic(many).await);
        Ok(())
    }

    /// Numbers and filters that make no sense, or much work.
    async fn read_absurdly(&self) -> Result<(), Error> {
        // Mostly one of them is absurd, so that the others do not hide it.
        let absurd = |right: u64| if below(4) == 0 { [0, 1, u64::from(u32::MAX), u64::MAX][below(4)] } else { right };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let filter = match below(5) {
            0 => format!("{}exists(f:q){}", "(".repeat(200), ")".repeat(200)),
            1 => format!("{}exists(f:q)", "not ".repeat(below(40))),
            2 => "matches(value, '(v*)*w')".to_owned(),
            3 => format!("row in ({})", vec!["'x'"; 500].join(", ")),
            _ => "page(0) and".to_owned(),
        };
        let scan = Scan::all()
            .offset(absurd(0))
            .limit(absurd(5))
            .block_bytes(small(absurd(1_000)))
            .versions(small(absurd(1)))
            .cells(small(absurd(0)), small(absurd(10)));
        let scan = if below(4) == 0 { scan.filter(filter) } else { scan };
        let outcome = match self.table.scan(scan).await {
            Ok(mut rows) => rows.next().await.transpose(),
            Err(error) => Err(error),
        };
        self.judge("an absurd scan", &outcome);
        let outcome = self.table.scan(Scan::all().start("b").end("a")).await;
        self.must_be_invalid("a reversed range", &outcome);
        Ok(())
    }

    async fn tamper_with_a_token(&self) -> Result<(), Error> {
        let range = KeyRange::prefix(b"row-");
        let page = self.table.page(range.clone()).limit(1).await;
        self.judge("a page", &page);
        let Some(token) = page.ok().and_then(|page| page.next) else { return Ok(()) };
        let mut text = token.to_string().into_bytes();
        let at = below(text.len() - 1);
        text[at] = if text[at] == b'A' { b'B' } else { b'A' };
        if let Ok(tampered) = String::from_utf8(text).unwrap_or_default().parse::<PageToken>() {
            let outcome = self.table.page(range).limit(1).after(tampered).await;
            self.must_be_invalid("a tampered token", &outcome);
        }
        let outcome = self.table.page(KeyRange::all()).limit(1).after(token).await;
        self.must_be_invalid("a token of another range", &outcome);
        Ok(())
    }

    /// Calls whose deadline has passed when they are sent.
    async fn call_too_late(&self) -> Result<(), Error> {
        let table = self.table.clone().with_timeout(Duration::from_millis(terrane_env::rand::range(0..DEADLINE_MS)));
        let outcome = table.put(Put::new(hostile_row(20)).set(FAMILY, "q", "v")).await;
        self.judge("a late put", &outcome);
        self.judge("a late get", &table.get(normal_row(0)).await);
        self.judge("a late count", &table.count(KeyRange::all()).await);
        Ok(())
    }

    /// Calls that are cancelled in the middle.
    async fn cancel(&self) -> Result<(), Error> {
        let within = Duration::from_millis(terrane_env::rand::range(0..CANCELLED_MS));
        let row = || hostile_row(20);
        let put = || RowMutation::new(row()).set(FAMILY, "q", "v");
        let outcome = match below(4) {
            0 => {
                tokio::time::timeout(within, async { self.table.put(Put::new(row()).set(FAMILY, "q", "v")).await })
                    .await
            }
            1 => {
                let puts = (0..BATCH).map(|_| put()).collect();
                tokio::time::timeout(within, async { self.table.mutate_many(puts).await.map(drop) }).await
            }
            2 => tokio::time::timeout(within, async { self.table.count(KeyRange::all()).await.map(drop) }).await,
            _ => {
                let rows = tokio::time::timeout(within, async {
                    let mut rows = self.table.scan(Scan::all().block_bytes(1)).await?;
                    while rows.next().await.transpose()?.is_some() {}
                    Ok(())
                });
                rows.await
            }
        };
        match outcome {
            Ok(outcome) => self.judge("a call that ended before it was cancelled", &outcome),
            Err(_) => self.shared.act(&self.who, "a cancelled call", "cancelled".to_owned()),
        }
        Ok(())
    }

    /// Opens a stream, takes a row, and reads no more for a while.
    async fn read_slowly(&self) -> Result<(), Error> {
        let mut rows = match self.table.scan(Scan::all().block_bytes(1).snapshot()).await {
            Ok(rows) => rows,
            Err(error) => return if passes(&error) { Ok(()) } else { Err(error) },
        };
        let first = rows.next().await.transpose();
        self.judge("a slow reader's first row", &first);
        pause(SLOW_MS).await;
        let second = rows.next().await.transpose();
        self.judge("a slow reader's second row", &second);
        Ok(())
    }

    /// Clients that connect, make a call and vanish.
    async fn come_and_go(&self) -> Result<(), Error> {
        for _ in 0..=below(2) {
            let client = self.shared.context.connect(PATIENCE).await?;
            let outcome = match client.table(TABLE).await {
                Ok(table) => table.get(normal_row(0)).await.map(drop),
                Err(error) => Err(error),
            };
            self.judge("a short session", &outcome);
        }
        let outcome = self.client.table("no such table").await;
        self.judge("a table that does not exist", &outcome);
        Ok(())
    }
}

/// One of several small sizes, or now and then the large one.
fn one_of(small: &[usize], large: usize) -> usize {
    if below(LARGE_ONE_IN) == 0 { large } else { small[below(small.len())] }
}

fn must_have(who: &str, row: &[u8], (qualifier, value): Sizes, found: Option<&RowData>, shared: &Shared) {
    let has =
        |found: &RowData| found.cells().any(|cell| cell.qualifier.len() == qualifier && cell.value.len() == value);
    shared.context.state.checked();
    if !found.is_some_and(has) {
        let start = row[..10].escape_ascii();
        shared.fail_act(who, format!("a row {start}... of {} bytes was written, and is not there", row.len()));
    }
}

/// The kind of an outcome, for counting.
fn kind_of<T>(outcome: &Result<T, Error>) -> String {
    match outcome {
        Ok(_) => "ok".to_owned(),
        Err(error) => format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect(),
    }
}

/// Reads what hostile clients left: every row is readable, and everything accepted is there.
pub async fn read_own_rows(host: &str, table: &Table, shared: &Shared) -> Result<(), Error> {
    let read = patiently(async || rows_by_key(table, Scan::prefix(HOSTILE_PREFIX)).await).await?;
    for (row, sizes) in &*shared.accepted.borrow() {
        must_have(host, row, *sizes, read.get(row), shared);
    }
    let counted = patiently(async || table.count(Scan::prefix(HOSTILE_PREFIX)).await).await?;
    shared.act(host, "rows left by hostile clients", read.len().to_string());
    // A write that was cancelled or too late may still arrive, but only add a row.
    if counted < read.len() as u64 {
        shared.fail_act(host, format!("{} rows of hostile clients were read, and then {counted} counted", read.len()));
    }
    Ok(())
}
