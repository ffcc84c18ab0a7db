//! Pages of typed rows.
//!
//! A token holds one position in the order without buckets; every bucket continues after it.

use std::pin::Pin;

use futures::Stream;
use terrane_types::row_key::after_bucket;
use terrane_types::{IntoSpan, KeySpan};

use super::rows::merged;
use super::{FromRow, typed_request};
use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency};
use crate::error::Error;
use crate::read::page::{Binding, position_after, rest_of, rows_wanted};
use crate::read::page_token::PageToken;
use crate::read::request::ReadOptions;
use crate::read::scan::Scan;

/// The typed rows of one page, and where the next one starts.
#[derive(Clone, Debug)]
pub struct TypedPage<T> {
    /// The rows, in the order of keys.
    pub rows: Vec<T>,
    /// The token for [`TypedPageRequest::after`], which reads the following rows. `None`: no row followed.
    pub next: Option<PageToken>,
}

/// A page of typed rows; read when it is awaited.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedPageRequest<'t, T: FromRow> {
    table: &'t Table,
    span: KeySpan<T::Key>,
    scan: Scan,
    options: ReadOptions,
}

typed_request!(TypedPageRequest, TypedPage<T>);

impl<'t, T: FromRow> TypedPageRequest<'t, T> {
    pub(crate) fn new(table: &'t Table, span: impl IntoSpan<T::Key>) -> Self {
        Self {
            table,
            span: span.into_span(),
            scan: T::select(Scan::all()),
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }

    /// Continues after the page that returned this token. Span, direction and filter must be those of that page.
    pub fn after(mut self, token: impl Into<Option<PageToken>>) -> Self {
        self.scan.after = token.into();
        self
    }

    /// At most this many rows; [`PAGE_ROWS_DEFAULT`](crate::PAGE_ROWS_DEFAULT) by default.
    pub fn limit(mut self, rows: u64) -> Self {
        self.scan = self.scan.limit(rows);
        self
    }

    /// Skips this many rows first, as [`TypedScan::offset`](crate::TypedScan::offset) does.
    pub fn offset(mut self, rows: u64) -> Self {
        self.scan = self.scan.offset(rows);
        self
    }

    /// Reads from the last key of the span to the first.
    pub fn reverse(mut self) -> Self {
        self.scan = self.scan.reverse();
        self
    }

    async fn run(self) -> Result<AsOf<TypedPage<T>>, Error> {
        let Self { table, span, mut scan, options } = self;
        let wanted = rows_wanted(scan.limit)?;
        let range = span.inner().clone();
        let near = span.ranges().into_iter().next().map(|range| range.start).unwrap_or_default();
        let after = scan.after.take();
        let filter = scan.selection.filter_text().to_owned();
        let binding = Binding { table, range: range.clone(), reverse: scan.reverse, filter: &filter, near, options };
        let rest = match &after {
            None => range,
            Some(token) => {
                let positions = binding.open(token).await?;
                match positions.first() {
                    Some(position) if !position.finished => rest_of(&range, scan.reverse, &position.last),
                    _ => return Ok(AsOf { value: TypedPage { rows: Vec::new(), next: None }, as_of_ms: None }),
                }
            }
        };
        // One row more, to know whether any follows.
        scan.limit = Some(wanted as u64 + 1);
        let mut stream = merged(table, &KeySpan::<T::Key>::new(rest), scan, None, options).await?;
        let mut rows = Vec::new();
        while let Some(row) = std::future::poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            rows.push(row?);
        }
        let more = rows.len() > wanted;
        rows.truncate(wanted);
        let next = match rows.last().filter(|_| more) {
            Some(last) => {
                let key = after_bucket::<T::Key>(last.row())?;
                Some(binding.seal(position_after(0, key)).await?)
            }
            None => None,
        };
        let rows = rows.into_iter().map(T::from_row).collect::<Result<_, _>>()?;
        Ok(AsOf { value: TypedPage { rows, next }, as_of_ms: stream.as_of_ms() })
    }
}
