//! Reading rows in order: scans, the latest rows of each prefix, and the ends and neighbours of a range.

use std::sync::Arc;

use terrane_types::KeyRange;

use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency};
use crate::error::Error;
use crate::read::count::CountRequest;
use crate::read::key_after::key_after;
use crate::read::request::{ReadOptions, reading_request};
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;
use crate::read::scan::{LatestPer, Scan};
use crate::read::scanner::Scanner;
use crate::read::selection::selection_methods;

/// The methods of requests with a scan in a field `scan`.
macro_rules! scan_methods {
    () => {
        /// Reads from the last row of the range to the first.
        pub fn reverse(mut self) -> Self {
            self.scan = self.scan.reverse();
            self
        }

        /// Skips this many rows first, on the servers; see [`Scan::offset`].
        pub fn offset(mut self, rows: u64) -> Self {
            self.scan = self.scan.offset(rows);
            self
        }

        /// Ends after this many rows; see [`Scan::limit`].
        pub fn limit(mut self, rows: u64) -> Self {
            self.scan = self.scan.limit(rows);
            self
        }

        /// Only rows of this range: `..`, `"a".."c"`, a prefix, or any other [`KeyRange`](crate::KeyRange).
        pub fn range(mut self, range: impl Into<terrane_types::KeyRange>) -> Self {
            self.scan.range = range.into();
            self
        }

        /// Only rows with this prefix: bytes, text, or the leading parts of a typed key.
        pub fn prefix(mut self, prefix: impl terrane_types::IntoPrefix) -> Self {
            self.scan.range = prefix.prefixed_rows();
            self
        }

        /// The size of the blocks that servers send, in bytes; 256 KiB by default.
        pub fn block_bytes(mut self, bytes: u32) -> Self {
            self.scan = self.scan.block_bytes(bytes);
            self
        }

        /// Reads each region as of one moment; see [`Scan::snapshot`].
        pub fn snapshot(mut self) -> Self {
            self.scan = self.scan.snapshot();
            self
        }

        /// Whether the blocks that servers read for this stay in their cache; see [`Scan::fill_cache`].
        pub fn fill_cache(mut self, fill: bool) -> Self {
            self.scan = self.scan.fill_cache(fill);
            self
        }
    };
}

pub(crate) use scan_methods;

/// The ways to take the rows of a request that gives a stream when it is awaited.
macro_rules! stream_methods {
    ($lifetime:lifetime [$($row_type:ident $($bounds:tt)*)?] $request:ty, $row:ty, $stream:literal) => {
        impl<$lifetime $(, $row_type $($bounds)*)?> $request {
            /// All rows at once: the same as `.await?.collect().await`. They are held in memory together, so give the request a
            /// limit unless the range is known to be small.
            ///
            /// # Errors
            /// Those of the request and of its stream; the rows read before are lost.
            pub async fn collect(self) -> Result<Vec<$row>, crate::error::Error> {
                self.await?.collect().await
            }

            #[doc = concat!("The rows as a [`Stream`](futures::Stream) that starts when it is first polled; ", $stream,
                ". Errors of the start come as its first item.")]
            pub fn stream(
                self,
            ) -> impl futures::Stream<Item = Result<$row, crate::error::Error>> + Send + Unpin + use<$lifetime $(, $row_type)?> {
                use futures::{StreamExt as _, TryStreamExt as _};
                futures::stream::once(self.into_future()).try_flatten().boxed()
            }
        }
    };
}

pub(crate) use stream_methods;

impl Table {
    /// Reads the rows of a range one after another, over as many regions as it spans, forwards or in reverse.
    ///
    /// The scan follows splits, moves and failovers: no row is skipped or repeated. Every row is read as of one moment; the
    /// scan as a whole is not one snapshot (see [`Scan::snapshot`]). The timeout applies to each wait for rows, not to the
    /// whole scan. Safe to repeat.
    ///
    /// # Errors
    /// [`Error::Invalid`] before any request is sent. Other errors come from the stream.
    #[doc(alias = "getScanner")]
    pub fn scan(&self, scan: impl Into<Scan>) -> ScanRequest<'_> {
        let scan = scan.into();
        ScanRequest { table: self, options: ReadOptions::new(scan.consistency), scan }
    }

    /// Reads the first row, or the first few, of each prefix that rows share: with a key of user and descending time, the
    /// latest row of every user. One call; the servers seek from one prefix to the next and read nothing in between.
    ///
    /// ```no_run
    /// use terrane_client::LatestPer;
    /// # async fn run(actions: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// let newest_of_each_user = actions.latest(LatestPer::parts(1)).collect().await?;
    /// let mut newest_three_of_each_user = actions.latest(LatestPer::parts(1)).rows(3).await?;
    /// while let Some(row) = newest_three_of_each_user.next().await {
    ///     println!("{:?}", row?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Table::scan`]; the stream fails with [`Error::Invalid`] when the table declares no key with that many parts.
    #[doc(alias = "latest_of_each")]
    pub fn latest(&self, per: LatestPer) -> LatestRequest<'_> {
        LatestRequest {
            table: self,
            scan: Scan::all(),
            per,
            rows: 1,
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }

    /// The first row of a range. One request to the region where the range starts; further requests while regions have no
    /// row of it.
    ///
    /// ```no_run
    /// # async fn run(readings: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// let earliest = readings.first("station-7|").await?;
    /// let latest = readings.last("station-7|").column("data", "airtemp").await?;
    /// let at_noon = readings.floor("station-7|1200").within("station-7|").await?;
    /// let first_of_all = readings.first(..).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn first(&self, range: impl Into<KeyRange>) -> EndRequest<'_> {
        self.end(Scan::range(range))
    }

    /// The last row of a range. As [`Table::first`].
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn last(&self, range: impl Into<KeyRange>) -> EndRequest<'_> {
        self.end(Scan::range(range).reverse())
    }

    /// The row with this key, else the last before it; of the whole table or [within](EndRequest::within) a range. As
    /// [`Table::first`].
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn floor(&self, row: impl AsRef<[u8]>) -> EndRequest<'_> {
        self.end(Scan::all().end_inclusive(row).reverse())
    }

    /// The row with this key, else the first after it; of the whole table or [within](EndRequest::within) a range. As
    /// [`Table::first`].
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn ceiling(&self, row: impl AsRef<[u8]>) -> EndRequest<'_> {
        self.end(Scan::all().start(row))
    }

    /// The last row before this key; of the whole table or [within](EndRequest::within) a range. As [`Table::first`].
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn lower(&self, row: impl AsRef<[u8]>) -> EndRequest<'_> {
        let row = row.as_ref();
        // No row comes before the empty key, and an empty end would mean no bound.
        let nothing = KeyRange { start: key_after(&[]), end: key_after(&[]) };
        let range = if row.is_empty() { nothing } else { Scan::all().end(row).range };
        self.end(Scan::range(range).reverse())
    }

    /// The first row after this key; of the whole table or [within](EndRequest::within) a range. As [`Table::first`].
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn higher(&self, row: impl AsRef<[u8]>) -> EndRequest<'_> {
        self.end(Scan::all().start_after(row))
    }

    fn end(&self, scan: Scan) -> EndRequest<'_> {
        EndRequest {
            table: self,
            scan: scan.limit(1),
            within: None,
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }

    /// A checked scan, ready to start.
    pub(crate) async fn scanner(&self, scan: &Scan, range: KeyRange, options: ReadOptions) -> Result<Scanner, Error> {
        let schema = self.schema();
        let spec = Arc::new(scan.selection.spec(&schema)?);
        self.check_projection(&spec.projection).await?;
        let range = scan.selection.clipped(&schema, range)?;
        Ok(Scanner::new(self, scan, range, spec, options))
    }
}

/// A scan; awaiting it starts it and gives its rows as a [`RowStream`]. Created by [`Table::scan`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct ScanRequest<'t> {
    table: &'t Table,
    scan: Scan,
    options: ReadOptions,
}

reading_request!(only ScanRequest, RowStream);

stream_methods!('t [] ScanRequest<'t>, RowData, "awaiting the request gives a [`RowStream`], which has more methods");

impl<'t> ScanRequest<'t> {
    /// The number of rows that the scan would return; the servers count. The same as [`Table::count`] of the scan.
    pub fn count(self) -> CountRequest<'t> {
        CountRequest { table: self.table, scan: self.scan, options: self.options }
    }
}

impl ScanRequest<'_> {
    selection_methods!(scan.selection);
    scan_methods!();

    async fn run(self) -> Result<AsOf<RowStream>, Error> {
        if self.scan.after.is_some() {
            return Err(Error::invalid("a page token is for Table::page; a scan starts at a row"));
        }
        let range = self.scan.checked_range()?;
        let scanner = self.table.scanner(&self.scan, range, self.options).await?;
        Ok(AsOf { value: RowStream::new(scanner), as_of_ms: None })
    }
}

/// The latest rows of each prefix, as a [`RowStream`]; it starts when it is awaited. Created by [`Table::latest`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct LatestRequest<'t> {
    table: &'t Table,
    scan: Scan,
    per: LatestPer,
    rows: u32,
    options: ReadOptions,
}

reading_request!(only LatestRequest, RowStream);

stream_methods!('t [] LatestRequest<'t>, RowData, "awaiting the request gives a [`RowStream`], which has more methods");

impl LatestRequest<'_> {
    selection_methods!(scan.selection);
    scan_methods!();

    /// This many rows of each prefix; 1 by default.
    pub fn rows(mut self, rows: u32) -> Self {
        self.rows = rows;
        self
    }

    async fn run(self) -> Result<AsOf<RowStream>, Error> {
        if self.rows == 0 {
            return Err(Error::invalid("0 rows of each prefix are requested; request 1 or more"));
        }
        let Self { table, scan, per, rows, options } = self;
        ScanRequest { table, scan: scan.latest(per, rows), options }.run().await
    }
}

/// The row at an end of a range or next to a key; read when it is awaited, `None` if there is none. Created by
/// [`Table::first`], [`Table::last`], [`Table::floor`], [`Table::ceiling`], [`Table::lower`] and [`Table::higher`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct EndRequest<'t> {
    table: &'t Table,
    scan: Scan,
    within: Option<KeyRange>,
    options: ReadOptions,
}

reading_request!(EndRequest, Option<RowData>);

impl EndRequest<'_> {
    selection_methods!(scan.selection);

    /// Considers only rows of this range: `..`, `"a".."c"`, a prefix, or any other [`KeyRange`].
    pub fn within(mut self, range: impl Into<KeyRange>) -> Self {
        self.within = Some(range.into());
        self
    }

    async fn run(self) -> Result<AsOf<Option<RowData>>, Error> {
        let mut range = self.scan.checked_range()?;
        if let Some(within) = self.within {
            let within = KeyRange::new(within.start, within.end)?;
            match range.intersect(&within) {
                Some(both) => range = both,
                None => return Ok(AsOf { value: None, as_of_ms: None }),
            }
        }
        let mut rows = RowStream::new(self.table.scanner(&self.scan, range, self.options).await?);
        let value = rows.next().await.transpose()?;
        Ok(AsOf { value, as_of_ms: rows.as_of_ms() })
    }
}
