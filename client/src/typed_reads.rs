//! Reading typed tables: by spans of keys, in the order of keys, salted or not.
//!
//! The rows of a salted key lie in as many ranges as it has buckets. They are read at once and merged into the order that the
//! keys have without their buckets, which is the one order that callers see: limits, offsets and page tokens hold in it.
//! A page token of a salted table is one position in that order; every bucket goes on behind it.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use futures::future::try_join_all;
use terrane_types::keycodec::{behind_bucket, buckets, leading_bytes};
use terrane_types::{IntoSpan, KeyRange, KeySpan, RowKey, TableRow};

use crate::error::Error;
use crate::keyed::TypedRow;
use crate::merge::Merge;
use crate::page::{Binding, PageToken, position_behind, rest_of, rows_wanted};
use crate::reading::{Consistency, Get, LatestPer, RowData, Scan, behind};
use crate::requests::How;
use crate::scan::RowStream;
use crate::table::Table;

/// What a row is read as: a struct that derives `Row`, or a [`TypedRow`] of a key.
pub trait FromRow: Sized + Send + 'static {
    /// The key of the table.
    type Key: RowKey;

    /// The row as it is wanted.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the row's key or columns are no such row.
    fn from_row(row: RowData) -> Result<Self, Error>;

    /// Names the columns that it is made of; none for all.
    fn select(scan: Scan) -> Scan {
        scan
    }
}

impl<K: RowKey + Send + 'static> FromRow for TypedRow<K> {
    type Key = K;

    fn from_row(data: RowData) -> Result<Self, Error> {
        Ok(Self { key: K::decode(data.row())?, data })
    }
}

impl<R: TableRow + Send + 'static> FromRow for R {
    type Key = R::Key;

    fn from_row(row: RowData) -> Result<Self, Error> {
        let mut values: Vec<Option<&[u8]>> = vec![None; R::COLUMNS.len()];
        for cell in row.cells() {
            let column = |(family, qualifier): &(&str, &str)| {
                family.as_bytes() == cell.family && qualifier.as_bytes() == cell.qualifier
            };
            // The newest version comes first.
            if let Some(at) = R::COLUMNS.iter().position(column) {
                values[at].get_or_insert(cell.value);
            }
        }
        let named = |mut invalid: terrane_types::Invalid| {
            invalid.what = format!("row {}: {}", row.row(), invalid.what);
            Error::Invalid(invalid)
        };
        let key = R::Key::decode(row.row()).map_err(named)?;
        R::from_columns(key, &values).map_err(named)
    }

    fn select(scan: Scan) -> Scan {
        R::COLUMNS.iter().fold(scan, |scan, (family, qualifier)| scan.column(family, qualifier))
    }
}

/// The options that all typed requests have.
macro_rules! typed_options {
    ($request:ident) => {
        impl<T: FromRow> $request<'_, T> {
            /// How fresh the answer is; [`Consistency::Leased`] if not set.
            pub fn consistency(mut self, consistency: Consistency) -> Self {
                self.how.consistency = consistency;
                self
            }

            /// How long it may take, retries included; the table's timeout if not set. Of scans, how long each wait for
            /// rows may take.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.how.timeout(timeout);
                self
            }

            /// Shows only rows that pass the filter; `docs/filters.md` has the language.
            pub fn filter(mut self, filter: impl std::fmt::Display) -> Self {
                self.scan = self.scan.filter(filter);
                self
            }

            /// Any other option of a scan: columns, versions, times, blocks. Range, direction, limit and offset are set by
            /// the request's own methods.
            pub fn with(mut self, options: impl FnOnce(Scan) -> Scan) -> Self {
                self.scan = options(self.scan);
                self
            }
        }
    };
}

/// A scan of typed rows that begins when it is awaited, and gives its rows as [`TypedRows`].
#[must_use = "a request is sent when it is awaited"]
pub struct TypedScan<'t, T: FromRow> {
    table: &'t Table,
    span: KeySpan<T::Key>,
    scan: Scan,
    /// Of the rows that share so many leading parts, so many only.
    latest: Option<(usize, u32)>,
    how: How,
}

typed_options!(TypedScan);

impl<'t, T: FromRow> TypedScan<'t, T> {
    pub(crate) fn new(table: &'t Table, span: impl IntoSpan<T::Key>) -> Self {
        Self {
            table,
            span: span.into_span(),
            scan: T::select(Scan::all()),
            latest: None,
            how: How::new(Consistency::Leased),
        }
    }

    pub(crate) fn latest(mut self, parts: usize) -> Self {
        self.latest = Some((parts, 1));
        self
    }

    /// From the last key of the span to the first.
    pub fn reverse(mut self) -> Self {
        self.scan = self.scan.reverse();
        self
    }

    /// Ends after so many rows; if not set, with the span.
    pub fn limit(mut self, rows: u64) -> Self {
        self.scan = self.scan.limit(rows);
        self
    }

    /// Skips so many rows first. On the servers, unless the key is salted: then rows of all buckets are read to skip them.
    pub fn offset(mut self, rows: u64) -> Self {
        self.scan = self.scan.offset(rows);
        self
    }

    /// Of a request for the latest rows: so many of each; 1 if not set. Others are not changed by it.
    pub fn rows(mut self, rows: u32) -> Self {
        self.latest = self.latest.map(|(parts, _)| (parts, rows));
        self
    }

    async fn run(self) -> Result<TypedRows<T>, Error> {
        let Self { table, span, scan, latest, how } = self;
        if latest.is_some_and(|(parts, rows)| parts == 0 || rows == 0) {
            return Err(Error::invalid("the latest rows are at least one row, of at least one part of the key"));
        }
        let (offset, limit) = (scan.offset, scan.limit);
        let rows = merged(table, &span, scan, latest, how).await?;
        // In a salted table a prefix has its latest rows in every bucket; the first of them in order count.
        let thin = latest.filter(|_| buckets::<T::Key>().is_some()).map(|(parts, most)| Thin {
            parts,
            most,
            prefix: Bytes::new(),
            shown: 0,
            offset,
            limit,
        });
        Ok(TypedRows { rows, thin, row: PhantomData })
    }
}

impl<'t, T: FromRow> IntoFuture for TypedScan<'t, T> {
    type Output = Result<TypedRows<T>, Error>;
    type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Opens the scans of all ranges of the span.
async fn merged<K: RowKey>(
    table: &Table,
    span: &KeySpan<K>,
    scan: Scan,
    latest: Option<(usize, u32)>,
    how: How,
) -> Result<Merge, Error> {
    let salted = buckets::<K>().is_some();
    let skip_bytes = usize::from(salted);
    let (offset, limit) = (scan.offset, scan.limit);
    let mut scan = scan;
    if let Some((parts, rows)) = latest {
        let parts = u32::try_from(parts + skip_bytes).map_err(|_| Error::invalid("a key has not so many parts"))?;
        scan = scan.latest(LatestPer::parts(parts), rows);
    }
    if salted {
        // What is skipped may lie in any bucket.
        scan.offset = 0;
        scan.limit = if latest.is_some() { None } else { limit.map(|limit| limit.saturating_add(offset)) };
    }
    let mut sources = Vec::new();
    for range in span.ranges().into_iter().filter(|range| !range.is_empty()) {
        sources.push(RowStream::new(table.scanner(&scan, range, how).await?));
    }
    // Of one range the server counts; thinned rows are counted where they are thinned out.
    let (offset, limit) = if salted && latest.is_none() { (offset, limit) } else { (0, None) };
    Ok(Merge::new(sources, skip_bytes, scan.reverse, offset, limit))
}

/// The rows of a typed scan, one after another: a [`Stream`], or a loop over [`TypedRows::next`]. As
/// [`RowStream`].
///
/// A row whose key or columns are no `T` is an error; the scan can go on behind it.
pub struct TypedRows<T: FromRow> {
    rows: Merge,
    thin: Option<Thin>,
    row: PhantomData<fn() -> T>,
}

/// Leaves of merged rows that share their leading parts the first ones.
struct Thin {
    parts: usize,
    most: u32,
    /// That of the last row, and how many rows had it.
    prefix: Bytes,
    shown: u32,
    offset: u64,
    limit: Option<u64>,
}

impl Thin {
    /// Whether the row is shown; `None`: it was the limit before it.
    fn shows<K: RowKey>(&mut self, row: &RowData) -> Result<Option<bool>, Error> {
        if self.limit == Some(0) {
            return Ok(None);
        }
        let key = behind_bucket::<K>(row.row())?;
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
    /// The next row; `None` at the end. A call that is dropped loses nothing.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
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
            match self.thin.as_mut().map_or(Ok(Some(true)), |thin| thin.shows::<T::Key>(&row)) {
                Ok(Some(true)) => return Poll::Ready(Some(T::from_row(row))),
                Ok(Some(false)) => {}
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

/// One typed row, by its key; read when it is awaited, `None` if there is none.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedGet<'t, T: FromRow> {
    table: &'t Table,
    row: Result<terrane_types::Row, terrane_types::Invalid>,
    scan: Scan,
    how: How,
    read_as: PhantomData<fn() -> T>,
}

typed_options!(TypedGet);

impl<'t, T: FromRow> TypedGet<'t, T> {
    pub(crate) fn new(table: &'t Table, key: &T::Key) -> Self {
        let how = How::new(Consistency::Leased);
        Self { table, row: key.encode(), scan: T::select(Scan::all()), how, read_as: PhantomData }
    }
}

impl<'t, T: FromRow> IntoFuture for TypedGet<'t, T> {
    type Output = Result<Option<T>, Error>;
    type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let get = Get { row: self.row?.into_bytes(), selection: self.scan.selection };
            let (consistency, timeout) = (self.how.consistency, self.how.timeout_of(self.table));
            let row = self.table.get(get).consistency(consistency).timeout(timeout).await?;
            row.map(T::from_row).transpose()
        })
    }
}

/// The row at an end of a span or next to a key; read when it is awaited, `None` if there is none.
///
/// It costs about what a get does; of salted keys, as much for each bucket, all at once.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedEnd<'t, T: FromRow> {
    table: &'t Table,
    span: Result<KeySpan<T::Key>, Error>,
    within: Option<KeySpan<T::Key>>,
    scan: Scan,
    how: How,
}

typed_options!(TypedEnd);

/// On which side of a key.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Floor,
    Ceiling,
    Lower,
    Higher,
}

impl<'t, T: FromRow> TypedEnd<'t, T> {
    pub(crate) fn of(table: &'t Table, span: impl IntoSpan<T::Key>, reverse: bool) -> Self {
        let scan = T::select(Scan::all()).limit(1);
        let scan = if reverse { scan.reverse() } else { scan };
        Self { table, span: Ok(span.into_span()), within: None, scan, how: How::new(Consistency::Leased) }
    }

    pub(crate) fn beside(table: &'t Table, key: &T::Key, side: Side) -> Self {
        let mut end = Self::of(table, .., matches!(side, Side::Floor | Side::Lower));
        end.span = beside(key, side);
        end
    }

    /// Looks at keys of this span only.
    pub fn within(mut self, span: impl IntoSpan<T::Key>) -> Self {
        self.within = Some(span.into_span());
        self
    }

    async fn run(self) -> Result<Option<T>, Error> {
        let mut span = self.span?;
        if let Some(within) = &self.within {
            match span.inner().intersect(within.inner()) {
                Some(both) => span = KeySpan::new(both),
                None => return Ok(None),
            }
        }
        let mut rows = merged(self.table, &span, self.scan, None, self.how).await?;
        let row = std::future::poll_fn(|context| Pin::new(&mut rows).poll_next(context)).await.transpose()?;
        row.map(T::from_row).transpose()
    }
}

fn beside<K: RowKey>(key: &K, side: Side) -> Result<KeySpan<K>, Error> {
    let row = key.encode()?;
    let key = Bytes::copy_from_slice(behind_bucket::<K>(&row)?);
    let (start, stop) = match side {
        Side::Floor => (Bytes::new(), behind(&key)),
        Side::Ceiling => (key, Bytes::new()),
        Side::Lower => (Bytes::new(), key),
        Side::Higher => (behind(&key), Bytes::new()),
    };
    Ok(KeySpan::new(KeyRange { start, stop }))
}

impl<'t, T: FromRow> IntoFuture for TypedEnd<'t, T> {
    type Output = Result<Option<T>, Error>;
    type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Typed rows of one page, and where the next begins.
#[derive(Clone, Debug)]
pub struct TypedPage<T> {
    /// The rows, in the order of keys.
    pub rows: Vec<T>,
    /// Give it to [`TypedPageRequest::after`] for the rows that follow. `None`: nothing followed.
    pub next: Option<PageToken>,
}

/// A page of typed rows; read when it is awaited.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedPageRequest<'t, T: FromRow> {
    table: &'t Table,
    span: KeySpan<T::Key>,
    scan: Scan,
    how: How,
}

typed_options!(TypedPageRequest);

impl<'t, T: FromRow> TypedPageRequest<'t, T> {
    pub(crate) fn new(table: &'t Table, span: impl IntoSpan<T::Key>) -> Self {
        Self { table, span: span.into_span(), scan: T::select(Scan::all()), how: How::new(Consistency::Leased) }
    }

    /// Goes on behind the page that gave this token. Span, direction and filter must be those of that page.
    pub fn after(mut self, token: impl Into<Option<PageToken>>) -> Self {
        self.scan.after = token.into();
        self
    }

    /// So many rows; [`PAGE_ROWS_DEFAULT`](crate::PAGE_ROWS_DEFAULT) if not set.
    pub fn limit(mut self, rows: u64) -> Self {
        self.scan = self.scan.limit(rows);
        self
    }

    /// Skips so many rows first, as [`TypedScan::offset`] does.
    pub fn offset(mut self, rows: u64) -> Self {
        self.scan = self.scan.offset(rows);
        self
    }

    /// From the last key of the span to the first.
    pub fn reverse(mut self) -> Self {
        self.scan = self.scan.reverse();
        self
    }

    async fn run(self) -> Result<TypedPage<T>, Error> {
        let Self { table, span, mut scan, how } = self;
        let wanted = rows_wanted(scan.limit)?;
        let range = span.inner().clone();
        let near = span.ranges().into_iter().next().map(|range| range.start).unwrap_or_default();
        let after = scan.after.take();
        let filter = scan.selection.filter_text().to_owned();
        let binding = Binding { table, range: range.clone(), reverse: scan.reverse, filter: &filter, near, how };
        let rest = match &after {
            None => range,
            Some(token) => {
                let positions = binding.open(token).await?;
                match positions.first() {
                    Some(position) if !position.finished => rest_of(&range, scan.reverse, &position.last),
                    _ => return Ok(TypedPage { rows: Vec::new(), next: None }),
                }
            }
        };
        // One row more tells whether anything follows.
        scan.limit = Some(wanted as u64 + 1);
        let mut stream = merged(table, &KeySpan::<T::Key>::new(rest), scan, None, how).await?;
        let mut rows = Vec::new();
        while let Some(row) = std::future::poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
            rows.push(row?);
        }
        let more = rows.len() > wanted;
        rows.truncate(wanted);
        let next = match rows.last().filter(|_| more) {
            Some(last) => {
                let key = behind_bucket::<T::Key>(last.row())?;
                Some(binding.seal(vec![position_behind(0, key)]).await?)
            }
            None => None,
        };
        Ok(TypedPage { rows: rows.into_iter().map(T::from_row).collect::<Result<_, _>>()?, next })
    }
}

impl<'t, T: FromRow> IntoFuture for TypedPageRequest<'t, T> {
    type Output = Result<TypedPage<T>, Error>;
    type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// How many rows a span has, over all its ranges at once.
pub(crate) async fn count<K: RowKey>(table: &Table, span: KeySpan<K>) -> Result<u64, Error> {
    let ranges = span.ranges().into_iter().filter(|range| !range.is_empty());
    let counts = try_join_all(ranges.map(|range| table.count(range).into_future())).await?;
    Ok(counts.into_iter().sum())
}

/// The reading methods of typed tables: `$row` is what their rows are read as.
macro_rules! typed_reads {
    ($row:ty, $key:ty) => {
        /// Reads one row.
        ///
        /// # Errors
        /// As for [`Table::get`]; [`Error::Invalid`] also for a row that is none of this type.
        pub fn get(&self, key: &$key) -> TypedGet<'_, $row> {
            TypedGet::new(&self.table, key)
        }

        /// Reads the rows of a span in the order of keys: `..`, the first part of the key by itself, or what `prefix()` of
        /// the key gives. Salted keys come in the order they have without their buckets.
        ///
        /// # Errors
        /// As for [`Table::scan`].
        pub fn scan(&self, span: impl IntoSpan<$key>) -> TypedScan<'_, $row> {
            TypedScan::new(&self.table, span)
        }

        /// Reads one page of a span: `table.page(user).after(token).limit(10)`. As [`Table::page`].
        ///
        /// # Errors
        /// As for [`Table::page`].
        pub fn page(&self, span: impl IntoSpan<$key>) -> TypedPageRequest<'_, $row> {
            TypedPageRequest::new(&self.table, span)
        }

        /// The first row of a span: where a key sorts times from high to low, `table.latest(user)` is the user's newest.
        ///
        /// # Errors
        /// As for [`Table::first`].
        pub fn latest(&self, span: impl IntoSpan<$key>) -> TypedEnd<'_, $row> {
            self.first(span)
        }

        /// The first row, or the first few ([`TypedScan::rows`]), of the rows that share `parts` leading parts of the key,
        /// a bucket not counted: `table.latest_of_each(1)` is the newest of every user. As [`Table::latest`]; the table
        /// must declare its key.
        ///
        /// # Errors
        /// As for [`Table::latest`].
        pub fn latest_of_each(&self, parts: usize) -> TypedScan<'_, $row> {
            TypedScan::new(&self.table, ..).latest(parts)
        }

        /// The first row of a span.
        ///
        /// # Errors
        /// As for [`Table::first`].
        pub fn first(&self, span: impl IntoSpan<$key>) -> TypedEnd<'_, $row> {
            TypedEnd::of(&self.table, span, false)
        }

        /// The last row of a span.
        ///
        /// # Errors
        /// As for [`Table::last`].
        pub fn last(&self, span: impl IntoSpan<$key>) -> TypedEnd<'_, $row> {
            TypedEnd::of(&self.table, span, true)
        }

        /// The row with this key, else the last before it.
        ///
        /// # Errors
        /// As for [`Table::floor`].
        pub fn floor(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::beside(&self.table, key, Side::Floor)
        }

        /// The row with this key, else the first behind it.
        ///
        /// # Errors
        /// As for [`Table::ceiling`].
        pub fn ceiling(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::beside(&self.table, key, Side::Ceiling)
        }

        /// The last row before this key.
        ///
        /// # Errors
        /// As for [`Table::lower`].
        pub fn lower(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::beside(&self.table, key, Side::Lower)
        }

        /// The first row behind this key.
        ///
        /// # Errors
        /// As for [`Table::higher`].
        pub fn higher(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::beside(&self.table, key, Side::Higher)
        }

        /// How many rows a span has; the servers count. As [`Table::count`].
        ///
        /// # Errors
        /// As for [`Table::count`].
        pub async fn count(&self, span: impl IntoSpan<$key>) -> Result<u64, Error> {
            count(&self.table, span.into_span()).await
        }

        /// The table beneath.
        #[must_use]
        pub fn table(&self) -> &Table {
            &self.table
        }
    };
}

pub(crate) use typed_reads;
