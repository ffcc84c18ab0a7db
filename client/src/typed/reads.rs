//! Reading typed tables: by spans of keys, in key order, salted or not.
//!
//! The rows of a salted key lie in one range per bucket. All ranges are read at once and merged into the order of the keys
//! without their buckets. Callers see only this order, and limits, offsets and page tokens refer to it.
//!
//! `rows` has scans, `ends` single rows, `page` pages, `count` counts. This module has what they share, and the methods that
//! typed tables get from them.

use terrane_types::row_key::buckets;
use terrane_types::{RowKey, TableRow};

use crate::error::Error;
use crate::read::row_data::RowData;
use crate::read::scan::Scan;
use crate::typed::typed_row::TypedRow;

mod count;
mod ends;
mod page;
mod rows;

pub use count::TypedCount;
pub(crate) use ends::Side;
pub use ends::{TypedEnd, TypedGet};
pub use page::{TypedPage, TypedPageRequest};
pub use rows::{TypedRows, TypedScan};

/// What a row is read as: a struct that derives `Row`, or a [`TypedRow`].
pub trait FromRow: Sized + Send + 'static {
    /// The key of the table.
    type Key: RowKey;

    /// Converts a row.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the row's key or columns do not have this type.
    fn from_row(row: RowData) -> Result<Self, Error>;

    /// Adds the columns to read; none means all.
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

/// The options of all typed requests, and awaiting those with an `async fn run(self) -> Result<AsOf<$value>, Error>`.
macro_rules! typed_request {
    ($request:ident, $value:ty) => {
        crate::typed::reads::typed_options!($request);

        impl<T: FromRow> $request<'_, T> {
            /// Also returns as of when the answer is complete: useful with
            /// [`Consistency::Stale`](crate::Consistency::Stale).
            pub const fn with_as_of(self) -> crate::read::request::WithAsOf<Self> {
                crate::read::request::WithAsOf(self)
            }
        }

        impl<'t, T: FromRow> IntoFuture for $request<'t, T> {
            type Output = Result<$value, Error>;
            type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(async move { Ok(self.run().await?.value) })
            }
        }

        impl<'t, T: FromRow> IntoFuture for crate::read::request::WithAsOf<$request<'t, T>> {
            type Output = Result<crate::consistency::AsOf<$value>, Error>;
            type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(self.0.run())
            }
        }
    };
}

/// The options of all typed requests.
macro_rules! typed_options {
    ($request:ident) => {
        impl<T: FromRow> $request<'_, T> {
            /// Which writes the read sees; [`Consistency::Linearizable`] by default.
            pub fn consistency(mut self, consistency: Consistency) -> Self {
                self.options.consistency = consistency;
                self
            }

            /// The timeout of this call, retries included; the table's by default. In a scan it applies to each wait for
            /// rows.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.options.timeout(timeout);
                self
            }

            /// Only rows that pass the filter; docs/filters.md describes the language.
            pub fn filter(mut self, filter: impl terrane_filter::IntoFilter) -> Self {
                self.scan = self.scan.filter(filter);
                self
            }

            /// Any other option of a scan: columns, versions, times, blocks. Set range, direction, limit and offset with the
            /// request's own methods.
            pub fn with(mut self, options: impl FnOnce(Scan) -> Scan) -> Self {
                self.scan = options(self.scan);
                self
            }
        }
    };
}

use {typed_options, typed_request};

/// The read methods of typed tables; `$row` is the type of their rows.
macro_rules! typed_reads {
    ($row:ty, $key:ty) => {
        /// Reads one row.
        ///
        /// # Errors
        /// As for [`Table::get`]; [`Error::Invalid`] also for a row that does not have this type.
        pub fn get(&self, key: &$key) -> TypedGet<'_, $row> {
            TypedGet::new(&self.table, key)
        }

        /// Reads the rows of a span in key order. A span is `..`, the first part of the key, or built with the key's
        /// `prefix()`. Salted keys come in the order of the keys without buckets.
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

        /// The first row of a span. If the key sorts times in descending order, `table.latest(user)` is the user's newest row.
        ///
        /// # Errors
        /// As for [`Table::first`].
        pub fn latest(&self, span: impl IntoSpan<$key>) -> TypedEnd<'_, $row> {
            self.first(span)
        }

        /// The first row, or the first few ([`TypedScan::rows`]), of each group of rows that share `parts` leading parts of
        /// the key, not counting a bucket: `table.latest_of_each(1)` is the newest row of every user. As [`Table::latest`];
        /// the table must declare its key.
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
            TypedEnd::next_to(&self.table, key, Side::Floor)
        }

        /// The row with this key, else the first after it.
        ///
        /// # Errors
        /// As for [`Table::ceiling`].
        pub fn ceiling(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::next_to(&self.table, key, Side::Ceiling)
        }

        /// The last row before this key.
        ///
        /// # Errors
        /// As for [`Table::lower`].
        pub fn lower(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::next_to(&self.table, key, Side::Lower)
        }

        /// The first row after this key.
        ///
        /// # Errors
        /// As for [`Table::higher`].
        pub fn higher(&self, key: &$key) -> TypedEnd<'_, $row> {
            TypedEnd::next_to(&self.table, key, Side::Higher)
        }

        /// The number of rows in a span; the servers count. As [`Table::count`].
        ///
        /// # Errors
        /// As for [`Table::count`].
        pub fn count(&self, span: impl IntoSpan<$key>) -> TypedCount<'_, $row> {
            TypedCount::new(&self.table, span)
        }

        /// The underlying table.
        #[must_use]
        pub fn table(&self) -> &Table {
            &self.table
        }
    };
}

pub(crate) use typed_reads;

/// A filter that ends the scan has no meaning when all buckets are read at once.
fn check_buckets<K: RowKey>(scan: &Scan) -> Result<(), Error> {
    match scan.selection.ends_the_scan()?.filter(|_| buckets::<K>().is_some()) {
        None => Ok(()),
        Some(what) => Err(Error::invalid(format!(
            "`{what}` in a filter ends a scan in the order of its rows, but a salted key is read from all buckets at once: \
             use `limit`, or stop reading"
        ))),
    }
}
