//! Counting typed rows.

use futures::future::try_join_all;
use terrane_types::{IntoSpan, KeySpan};

use super::rows::check_buckets;
use super::{FromRow, typed_request};
use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency, older};
use crate::error::Error;
use crate::read::request::ReadOptions;
use crate::read::scan::Scan;

/// The number of rows in a span. The servers count when it is awaited, in all ranges of the span at once.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedCount<'t, T: FromRow> {
    table: &'t Table,
    span: KeySpan<T::Key>,
    scan: Scan,
    options: ReadOptions,
}

typed_request!(TypedCount, u64);

impl<'t, T: FromRow> TypedCount<'t, T> {
    /// All rows count, whatever columns they have.
    pub(crate) fn new(table: &'t Table, span: impl IntoSpan<T::Key>) -> Self {
        Self { table, span: span.into_span(), scan: Scan::all(), options: ReadOptions::new(Consistency::Linearizable) }
    }

    async fn run(self) -> Result<AsOf<u64>, Error> {
        let Self { table, span, scan, options } = self;
        check_buckets::<T::Key>(&scan)?;
        let counts = span.ranges().into_iter().filter(|range| !range.is_empty()).map(|range| {
            let (consistency, timeout) = (options.consistency, options.timeout_of(table));
            let scan = Scan { range, ..scan.clone() };
            table.count(scan).consistency(consistency).timeout(timeout).with_as_of().into_future()
        });
        let mut all = AsOf { value: 0, as_of_ms: None };
        for count in try_join_all(counts).await? {
            all.value += count.value;
            all.as_of_ms = older(all.as_of_ms, count.as_of_ms);
        }
        Ok(all)
    }
}
