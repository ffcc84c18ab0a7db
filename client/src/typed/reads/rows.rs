//! Scans of typed rows: one stream for each range of the span, merged into one order.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use terrane_types::row_key::{after_bucket, buckets, leading_bytes};
use terrane_types::{IntoSpan, KeySpan, RowKey};

use super::{FromRow, TypedCount, check_buckets, typed_options};
use crate::api::table::Table;
use crate::consistency::Consistency;
use crate::error::Error;
use crate::read::request::ReadOptions;
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;
use crate::read::scan::{LatestPer, Scan};
use crate::read::scan_requests::stream_methods;
use crate::typed::bucket_merge::BucketMerge;

/// A scan of typed rows; awaiting it starts it and gives its rows as [`TypedRows`].
#[must_use = "a request is sent when it is awaited"]
pub struct TypedScan<'t, T: FromRow> {
    table: &'t Table,
    span: KeySpan<T::Key>,
    scan: Scan,
    /// Of each group of rows that share this many leading parts, only this many rows.
    latest: Option<(usize, u32)>,
    options: ReadOptions,
}

typed_options!(TypedScan);

stream_methods!('t [T: FromRow + Unpin] TypedScan<'t, T>, T, "awaiting the request gives [`TypedRows`], which have more methods");

impl<'t, T: FromRow> TypedScan<'t, T> {
    pub(crate) fn new(table: &'t Table, span: impl IntoSpan<T::Key>) -> Self {
        Self {
            table,
            span: span.into_span(),
            scan: T::select(Scan::all()),
            latest: None,
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }

    pub(crate) fn latest(mut self, parts: usize) -> Self {
        self.latest = Some((parts, 1));
        self
    }

    /// Reads from the last key of the span to the first.
    pub fn reverse(mut self) -> Self {
        self.scan = self.scan.reverse();
        self
    }

    /// Ends after this many rows; by default at the end of the span.
    pub fn limit(mut self, rows: u64) -> Self {
        self.scan = self.scan.limit(rows);
        self
    }

    /// Skips this many rows first: on the servers, unless the key is salted. Then the client reads the rows of all buckets to
    /// skip them.
    pub fn offset(mut self, rows: u64) -> Self {
        self.scan = self.scan.offset(rows);
        self
    }

    /// For `latest_of_each`: this many rows of each group; 1 by default. Other scans ignore it.
    pub fn rows(mut self, rows: u32) -> Self {
        self.latest = self.latest.map(|(parts, _)| (parts, rows));
        self
    }

    /// The number of rows that the scan would return; the servers count. Of a struct, those are the rows that have one of its
    /// columns. The latest rows of salted keys cannot be counted: no server sees all buckets.
    pub fn count(self) -> TypedCount<'t, T> {
        let Self { table, span, scan, latest, options } = self;
        TypedCount::of(table, span, scan, latest, options)
    }

    async fn run(self) -> Result<TypedRows<T>, Error> {
        let Self { table, span, scan, latest, options } = self;
        if latest.is_some_and(|(parts, rows)| parts == 0 || rows == 0) {
            return Err(Error::invalid(
                "the latest rows need at least one part of the key and at least one row of each",
            ));
        }
        let (offset, limit) = (scan.offset, scan.limit);
        let rows = merged(table, &span, scan, latest, options).await?;
        // In a salted table a prefix has latest rows in every bucket; the first of them in order count.
        let group_limit = latest.filter(|_| buckets::<T::Key>().is_some()).map(|(parts, most)| GroupLimit {
            parts,
            most,
            prefix: Bytes::new(),
            shown: 0,
            offset,
            limit,
        });
        Ok(TypedRows { rows, group_limit, row: PhantomData })
    }
}

impl<'t, T: FromRow> IntoFuture for TypedScan<'t, T> {
    type Output = Result<TypedRows<T>, Error>;
    type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The merged scans of all ranges of the span.
pub(super) async fn merged<K: RowKey>(
    table: &Table,
    span: &KeySpan<K>,
    scan: Scan,
    latest: Option<(usize, u32)>,
    options: ReadOptions,
) -> Result<BucketMerge, Error> {
    if scan.latest.is_some() {
        return Err(Error::invalid("for the latest rows of typed keys use `latest_of_each`"));
    }
    let salted = buckets::<K>().is_some();
    check_buckets::<K>(&scan)?;
    let skip_bytes = usize::from(salted);
    let known = K::declaration().parts().len() - skip_bytes;
    if let Some((parts, _)) = latest.filter(|(parts, _)| *parts > known) {
        let after = if salted { " after its bucket" } else { "" };
        return Err(Error::invalid(format!("the key has {known} parts{after}, not {parts}")));
    }
    let (offset, limit) = (scan.offset, scan.limit);
    let mut scan = scan;
    if let Some((parts, rows)) = latest {
        let parts =
            u32::try_from(parts + skip_bytes).map_err(|_| Error::invalid("a key does not have that many parts"))?;
        scan = scan.latest(LatestPer::parts(parts), rows);
    }
    if salted {
        // The rows to skip may be in any bucket.
        scan.offset = 0;
        scan.limit = if latest.is_some() { None } else { limit.map(|limit| limit.saturating_add(offset)) };
    }
    let mut sources = Vec::new();
    for range in span.ranges().into_iter().filter(|range| !range.is_empty()) {
        sources.push(RowStream::new(table.scanner(&scan, range, options).await?));
    }
    // With one range the server counts; thinned rows are counted where they are thinned out.
    let (offset, limit) = if salted && latest.is_none() { (offset, limit) } else { (0, None) };
    Ok(BucketMerge::new(sources, skip_bytes, scan.reverse, offset, limit))
}

/// The rows of a typed scan, one after another: a [`Stream`], or a loop over [`TypedRows::next`]. As
/// [`RowStream`].
///
/// A row that is not a `T` is an error; the scan continues after it.
pub struct TypedRows<T: FromRow> {
    rows: BucketMerge,
    group_limit: Option<GroupLimit>,
    row: PhantomData<fn() -> T>,
}

/// Keeps only the first rows of each group of merged rows that share their leading parts.
struct GroupLimit {
    parts: usize,
    most: u32,
    /// The prefix of the last row, and how many rows had it.
    prefix: Bytes,
    shown: u32,
    offset: u64,
    limit: Option<u64>,
}

impl GroupLimit {
    /// Whether the row is returned; `None`: the limit is reached.
    fn shows<K: RowKey>(&mut self, row: &RowData) -> Result<Option<bool>, Error> {
        if self.limit == Some(0) {
            return Ok(None);
        }
        let key = after_bucket::<K>(row.row())?;
        let length = leading_bytes::<K>(self.parts, key)?;
        if self.prefix != key[..length] {
            (self.prefix, self.shown) = (Bytes::copy_from_slice(&key[..length]), 0);
        }
        self.shown = self.shown.saturating_add(1);
        if self.shown > self.most {
            return Ok(Some(false));
        }
        if self.offset > 0 {
            self.offset -= 1;
            return Ok(Some(false));
        }
        self.limit = self.limit.map(|limit| limit - 1);
        Ok(Some(true))
    }
}

impl<T: FromRow> std::fmt::Debug for TypedRows<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TypedRows").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<T: FromRow + Unpin> TypedRows<T> {
    /// The next row; `None` at the end. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// The next row, `None` at the end. As [`RowStream::try_next`].
    ///
    /// # Errors
    /// The stream's, and a row that is not a `T`.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.next().await.transpose()
    }

    /// The next rows, up to this many. As [`RowStream::next_many`].
    ///
    /// # Errors
    /// The stream's, and a row that is not a `T`.
    pub async fn next_many(&mut self, rows: usize) -> Result<Vec<T>, Error> {
        self.take(rows).try_collect().await
    }

    /// All remaining rows, in memory together. As [`RowStream::collect`].
    ///
    /// # Errors
    /// As for [`TypedRows::next_many`].
    pub async fn collect(mut self) -> Result<Vec<T>, Error> {
        self.next_many(usize::MAX).await
    }

    /// As [`RowStream::as_of_ms`].
    #[must_use]
    pub fn as_of_ms(&self) -> Option<u64> {
        self.rows.as_of_ms()
    }
}

impl<T: FromRow + Unpin> Stream for TypedRows<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(row) = ready!(Pin::new(&mut self.rows).poll_next(context)) else { return Poll::Ready(None) };
            let row = match row {
                Ok(row) => row,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            match self.group_limit.as_mut().map_or(Ok(Some(true)), |limit| limit.shows::<T::Key>(&row)) {
                Ok(Some(true)) => return Poll::Ready(Some(T::from_row(row))),
                Ok(Some(false)) => {}
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
