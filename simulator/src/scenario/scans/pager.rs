//! A reader that pages with tokens: each page on another client than the one before, with pauses in between in which
//! regions split, leaders change and servers restart.

use std::time::Duration;

use bytes::Bytes;
use terrane_client::{Error, PageToken};
use terrane_oracle::rows::Asked;
use terrane_types::KeyRange;

use super::scanner::{Question, Reader};
use super::{Shared, count};
use crate::scenario::play::{PATIENCE, TABLE, open_table, passes, pause};
use crate::trace::{self, chain};

/// Rows of a page.
const ROWS_MIN: u64 = 2;
const ROWS_MAX: u64 = 30;
/// Longest pause between two pages.
const PAUSE: Duration = Duration::from_millis(300);

/// Pages through ranges until the faults are over.
pub async fn page_all_the_time(host: &'static str, shared: Shared) -> Result<(), Error> {
    let (one, other) = (shared.context.connect(PATIENCE).await?, shared.context.connect(PATIENCE).await?);
    shared.context.state.until_ready().await;
    let reader = |who: &str, table| Reader { who: format!("{host}.{who}"), table, shared: shared.clone() };
    let one = reader("one", open_table(&one, TABLE).await?);
    let other = reader("other", open_table(&other, TABLE).await?);
    while !shared.is_over() {
        page_through(&[&one, &other], &Question::random(), PAUSE).await?;
    }
    Ok(())
}

/// Pages through a range with alternating readers, and has every page checked. Stops early when the faults are over and
/// the readers pause.
pub async fn page_through(readers: &[&Reader], question: &Question, pauses: Duration) -> Result<(), Error> {
    let range = question.asked.range.clone();
    let reverse = question.asked.reverse;
    let mut rest = range.clone();
    let mut token: Option<PageToken> = None;
    for reader in readers.iter().cycle() {
        let limit = terrane_env::rand::range(ROWS_MIN..ROWS_MAX);
        let asked = Asked { range: rest.clone(), reverse, offset: 0, limit: Some(limit) };
        let begun = question.begin(&reader.shared, asked);
        let scan = question.page_of(limit).scan();
        let page = match reader.table.page(scan).after(token.clone()).await {
            Ok(page) => page,
            Err(error) if passes(&error) || matches!(error, Error::SnapshotTooOld) => {
                trace::note(format_args!("{} got no page of {rest} of {question:?}: {}", reader.who, chain(&error)));
                if pauses > Duration::ZERO && reader.shared.is_over() {
                    return Ok(());
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let shown: Vec<_> = page.rows.iter().map(|row| (row.row().to_vec(), reader.number_in(row))).collect();
        let ends = page.next.is_none();
        trace::note(format_args!("{} read a page of {} rows, the last: {ends}", reader.who, shown.len()));
        reader.judge(begun, &shown, ends);
        let Some((last, _)) = shown.last().filter(|_| !ends) else { return Ok(()) };
        count(&reader.shared.done.pages);
        rest = after(&range, reverse, last);
        token = page.next.map(as_text).transpose()?;
        if pauses > Duration::ZERO {
            pause(u64::try_from(pauses.as_millis()).expect("short")).await;
        }
    }
    Ok(())
}

/// A token as it arrives from a web page.
fn as_text(token: PageToken) -> Result<PageToken, Error> {
    Ok(token.to_string().parse::<PageToken>()?)
}

/// What is left of a range after a row.
fn after(range: &KeyRange, reverse: bool, row: &[u8]) -> KeyRange {
    if reverse {
        return KeyRange { start: range.start.clone(), end: Bytes::copy_from_slice(row) };
    }
    KeyRange { start: [row, &[0]].concat().into(), end: range.end.clone() }
}
