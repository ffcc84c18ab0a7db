//! Pages: a bounded number of rows, and a token to continue after them later.
//!
//! A token is a position, not a cursor: no server keeps state for it, and it stays valid when regions split or move, leaders
//! change and servers restart. A server creates it, sealed for one table, range, direction and filter; it opens only for
//! these. It can be shown to a browser: it cannot be forged or changed, and contains only the last row of its page, which its
//! holder has seen. The sealing keys change; a token is valid for at least 30 days.
//!
//! The client reads one row more than the page shows, to know whether anything follows. The token names the last row shown,
//! so a row written right after the end of one page is on the next.

use bytes::Bytes;
use terrane_types::{KeyRange, TableId};

use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency, older};
use crate::error::Error;
use crate::read::key_after::key_after;
use crate::read::page_token::PageToken;
use crate::read::request::{ReadOptions, reading_request};
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;
use crate::read::scan::Scan;
use crate::read::scan_requests::scan_methods;
use crate::read::selection::selection_methods;
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::RowRead;
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::message::{Reply, Request};
use crate::wire::page::{self, PageBinding, PagePosition};

/// Rows of a page whose scan has no limit.
pub const PAGE_ROWS_DEFAULT: u64 = 100;

/// The rows of one page, and where the next one starts.
#[derive(Clone, Debug)]
pub struct Page {
    /// The rows, in the order of the scan.
    pub rows: Vec<RowData>,
    /// The token for [`PageRequest::after`], which reads the following rows. `None`: no row followed.
    pub next: Option<PageToken>,
}

/// What a token is bound to, and where it can be sealed and opened.
pub(crate) struct Binding<'a> {
    pub(crate) table: &'a Table,
    /// The range that is paged through.
    pub(crate) range: KeyRange,
    pub(crate) reverse: bool,
    pub(crate) filter: &'a str,
    /// A row; the server of its region seals and opens the token. Any row would do.
    pub(crate) near: Bytes,
    pub(crate) options: ReadOptions,
}

impl Binding<'_> {
    fn bound_to(&self) -> PageBinding {
        PageBinding {
            table: self.table.id(),
            range: self.range.clone(),
            reverse: self.reverse,
            filter: self.filter.to_owned(),
        }
    }

    /// Has a server seal a token of this position.
    pub(crate) async fn seal(&self, position: PagePosition) -> Result<PageToken, Error> {
        let sealed = self.ask(page::seal(&self.bound_to(), &[position]), page::sealed).await?;
        Ok(PageToken { sealed })
    }

    /// Has a server open a token; returns its positions.
    pub(crate) async fn open(&self, token: &PageToken) -> Result<Vec<PagePosition>, Error> {
        self.ask(page::open(&self.bound_to(), &token.sealed), page::opened).await
    }

    async fn ask<T>(
        &self,
        request: Request,
        finish: impl Fn(Reply) -> Result<T, Failure> + Send + Sync,
    ) -> Result<T, Error> {
        let table = self.table;
        let progress = Progress::new(Risk::READ, self.options.timeout_of(table));
        let router = &table.core.router;
        // No row is read, so any server would do; the cache knows leaders best.
        let consistency = Consistency::Linearizable;
        if table.target.table == TableId::META {
            let listed = self.listed().await?;
            let read = RowRead { row: &[], consistency, request, finish };
            return router.read_row(&listed, CallKind::Page, read, progress).await;
        }
        let read = RowRead { row: &self.near, consistency, request, finish };
        router.read_row(&table.target, CallKind::Page, read, progress).await
    }

    /// A table that is listed in table meta. Masters serve meta but seal no tokens; any region server seals a token of any table.
    async fn listed(&self) -> Result<Target, Error> {
        let (table, one) = (self.table, Scan::all().limit(1));
        let mut rows = RowStream::new(table.scanner(&one, KeyRange::all(), self.options).await?);
        let row = rows.next().await.transpose()?;
        let name = row.as_ref().and_then(|row| row.value("info", "table")).map(String::from_utf8_lossy);
        let Some(name) = name else {
            return Err(Error::invalid("the page token is of table meta, which has no rows now: there are no tables"));
        };
        Ok(Target::new(table.core.describe(&name, self.options.timeout_of(table)).await?))
    }
}

/// The part of `range` after the last row shown.
pub(crate) fn rest_of(range: &KeyRange, reverse: bool, last: &Bytes) -> KeyRange {
    match (last.is_empty(), reverse) {
        (true, _) => range.clone(),
        (false, true) => KeyRange { start: range.start.clone(), end: last.clone() },
        (false, false) => KeyRange { start: key_after(last), end: range.end.clone() },
    }
}

impl Table {
    /// Reads one page: up to the scan's limit of rows ([`PAGE_ROWS_DEFAULT`] without one), and a token if any row follows.
    /// Offsets suit page numbers: the servers skip the rows, and each page costs more than the one before. Tokens continue
    /// exactly after the last row shown, whatever was written meanwhile. Safe to repeat.
    ///
    /// ```no_run
    /// use terrane_client::Scan;
    /// # async fn run(users: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// let first = users.page(Scan::prefix("user-")).limit(10).await?;
    /// if let Some(token) = first.next {
    ///     // What a web page puts into its link to the next one.
    ///     let text = token.to_string();
    ///     let second = users.page(Scan::prefix("user-")).limit(10).after(text.parse::<terrane_client::PageToken>()?).await?;
    /// }
    /// let eleventh = users.page(Scan::prefix("user-")).limit(10).offset(100).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Table::scan`] and its stream. [`Error::Invalid`] for a token that is damaged, too old, or for another table,
    /// range, direction or filter: start with the first page.
    pub fn page(&self, scan: impl Into<Scan>) -> PageRequest<'_> {
        let scan = scan.into();
        PageRequest { table: self, options: ReadOptions::new(scan.consistency), scan }
    }
}

/// A page; it is read when it is awaited. Created by [`Table::page`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct PageRequest<'t> {
    table: &'t Table,
    scan: Scan,
    options: ReadOptions,
}

reading_request!(PageRequest, Page);

impl PageRequest<'_> {
    selection_methods!(scan.selection);
    scan_methods!();

    /// Continues after the page that returned this token. Range, direction and filter must be those of that page; limit,
    /// offset and columns may differ.
    pub fn after(mut self, token: impl Into<Option<PageToken>>) -> Self {
        self.scan.after = token.into();
        self
    }

    async fn run(self) -> Result<AsOf<Page>, Error> {
        let Self { table, scan, options } = self;
        if scan.latest.is_some() {
            return Err(Error::invalid(
                "the latest rows of prefixes cannot be paged; set a limit and start after a row",
            ));
        }
        let range = scan.checked_range()?;
        let wanted = rows_wanted(scan.limit)?;
        let near = range.start.clone();
        let filter = scan.selection.filter_text();
        let binding = Binding { table, range: range.clone(), reverse: scan.reverse, filter, near, options };
        let rest = match &scan.after {
            Some(token) => match &binding.open(token).await?[..] {
                [position] if position.finished => {
                    return Ok(AsOf { value: Page { rows: Vec::new(), next: None }, as_of_ms: None });
                }
                [position] => rest_of(&range, scan.reverse, &position.last),
                positions => {
                    return Err(Error::invalid(format!(
                        "the page token is of a table with {} buckets; use it with the typed table that created it",
                        positions.len()
                    )));
                }
            },
            None => range,
        };
        // One row more, to know whether any follows.
        let scan_more = Scan { limit: Some(wanted as u64 + 1), ..scan.clone() };
        let mut stream = RowStream::new(table.scanner(&scan_more, rest, options).await?);
        let mut rows = Vec::new();
        while let Some(row) = stream.next().await {
            rows.push(row?);
        }
        let more = rows.len() > wanted;
        rows.truncate(wanted);
        let next = match rows.last().filter(|_| more) {
            Some(last) => Some(binding.seal(position_after(0, last.row())).await?),
            None => None,
        };
        Ok(AsOf { value: Page { rows, next }, as_of_ms: older(None, stream.as_of_ms()) })
    }
}

/// The number of rows of a page.
pub(crate) fn rows_wanted(limit: Option<u64>) -> Result<usize, Error> {
    match limit.unwrap_or(PAGE_ROWS_DEFAULT) {
        0 => Err(Error::invalid("a page has at least one row")),
        // One more row is read.
        u64::MAX => Err(Error::invalid("a page cannot have that many rows")),
        rows => usize::try_from(rows).map_err(|_| Error::invalid("a page cannot have that many rows")),
    }
}

pub(crate) fn position_after(bucket: u32, last: &[u8]) -> PagePosition {
    PagePosition { bucket, last: Bytes::copy_from_slice(last), finished: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_range_starts_right_after_the_last_row() {
        let range = KeyRange::prefix(b"u");
        let last = Bytes::from_static(b"u5");
        let forward = rest_of(&range, false, &last);
        assert!(!forward.contains(b"u5") && forward.contains(b"u5\0") && !forward.contains(b"v"));
        let back = rest_of(&range, true, &last);
        assert!(!back.contains(b"u5") && back.contains(b"u4\xff") && back.contains(b"u"));
        assert_eq!(rest_of(&range, true, &Bytes::new()), range);
    }
}
