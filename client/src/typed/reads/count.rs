//! Counting typed rows.

use futures::future::try_join_all;
use terrane_types::row_key::buckets;
use terrane_types::{IntoSpan, KeySpan, RowKey};

use super::{FromRow, check_buckets, typed_request};
use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency, older};
use crate::error::Error;
use crate::read::request::ReadOptions;
use crate::read::scan::{LatestPer, Scan};

/// The number of rows in a span. The servers count when it is awaited, in all ranges of the span at once.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedCount<'t, T: FromRow> {
    table: &'t Table,
    span: KeySpan<T::Key>,
    scan: Scan,
    /// Of each group of rows that share this many leading parts, only this many rows.
    latest: Option<(usize, u32)>,
    options: ReadOptions,
}

typed_request!(TypedCount, u64);

impl<'t, T: FromRow> TypedCount<'t, T> {
    /// All rows count, whatever columns they have.
    pub(crate) fn new(table: &'t Table, span: impl IntoSpan<T::Key>) -> Self {
        Self::of(table, span.into_span(), Scan::all(), None, ReadOptions::new(Consistency::Linearizable))
    }

    /// Of the rows of a scan.
    pub(super) const fn of(
        table: &'t Table,
        span: KeySpan<T::Key>,
        scan: Scan,
        latest: Option<(usize, u32)>,
        options: ReadOptions,
    ) -> Self {
        Self { table, span, scan, latest, options }
    }

    async fn run(self) -> Result<AsOf<u64>, Error> {
        let Self { table, span, scan, latest, options } = self;
        check_buckets::<T::Key>(&scan)?;
        let mut scan = thinned::<T::Key>(scan, latest)?;
        // Offset and limit count over all ranges together.
        let several = span.ranges().len() > 1;
        let (offset, limit) = if several { (std::mem::take(&mut scan.offset), scan.limit.take()) } else { (0, None) };
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
        all.value = all.value.saturating_sub(offset).min(limit.unwrap_or(u64::MAX));
        Ok(all)
    }
}

/// The scan of the latest rows only. Those of a salted key are in all buckets, so no server can count them.
fn thinned<K: RowKey>(scan: Scan, latest: Option<(usize, u32)>) -> Result<Scan, Error> {
    let Some((parts, rows)) = latest else { return Ok(scan) };
    if buckets::<K>().is_some() {
        return Err(Error::invalid(
            "the latest rows of a salted key are in all buckets, so the servers cannot count them: collect the rows",
        ));
    }
    let parts = u32::try_from(parts).map_err(|_| Error::invalid("a key does not have that many parts"))?;
    Ok(scan.latest(LatestPer::parts(parts), rows))
}
