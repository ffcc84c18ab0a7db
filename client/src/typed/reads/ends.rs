//! Single typed rows: by key, at an end of a span, and next to a key.

use std::marker::PhantomData;
use std::pin::Pin;

use bytes::Bytes;
use futures::Stream;
use terrane_types::row_key::after_bucket;
use terrane_types::{IntoSpan, KeyRange, KeySpan, RowKey};

use super::rows::merged;
use super::{FromRow, typed_request};
use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency};
use crate::error::Error;
use crate::read::get::Get;
use crate::read::key_after::key_after;
use crate::read::request::ReadOptions;
use crate::read::scan::Scan;

/// One typed row by its key; read when it is awaited, `None` if there is none.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedGet<'t, T: FromRow> {
    table: &'t Table,
    row: Result<terrane_types::Row, terrane_types::Invalid>,
    scan: Scan,
    options: ReadOptions,
    read_as: PhantomData<fn() -> T>,
}

typed_request!(TypedGet, Option<T>);

impl<'t, T: FromRow> TypedGet<'t, T> {
    pub(crate) fn new(table: &'t Table, key: &T::Key) -> Self {
        let options = ReadOptions::new(Consistency::Linearizable);
        Self { table, row: key.encode(), scan: T::select(Scan::all()), options, read_as: PhantomData }
    }
    async fn run(self) -> Result<AsOf<Option<T>>, Error> {
        let get = Get { row: self.row?.into_bytes(), selection: self.scan.selection };
        let (consistency, timeout) = (self.options.consistency, self.options.timeout_of(self.table));
        let AsOf { value, as_of_ms } =
            self.table.get(get).consistency(consistency).timeout(timeout).with_as_of().await?;
        Ok(AsOf { value: value.map(T::from_row).transpose()?, as_of_ms })
    }
}

/// The row at an end of a span or next to a key; read when it is awaited, `None` if there is none.
///
/// It costs about as much as a get; with salted keys, one per bucket, all at once.
#[must_use = "a request is sent when it is awaited"]
pub struct TypedEnd<'t, T: FromRow> {
    table: &'t Table,
    span: Result<KeySpan<T::Key>, Error>,
    within: Option<KeySpan<T::Key>>,
    scan: Scan,
    options: ReadOptions,
}

typed_request!(TypedEnd, Option<T>);

/// Which side of a key.
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
        Self {
            table,
            span: Ok(span.into_span()),
            within: None,
            scan,
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }

    pub(crate) fn next_to(table: &'t Table, key: &T::Key, side: Side) -> Self {
        let mut end = Self::of(table, .., matches!(side, Side::Floor | Side::Lower));
        end.span = next_to(key, side);
        end
    }

    /// Considers only keys of this span.
    pub fn within(mut self, span: impl IntoSpan<T::Key>) -> Self {
        self.within = Some(span.into_span());
        self
    }

    async fn run(self) -> Result<AsOf<Option<T>>, Error> {
        let mut span = self.span?;
        if let Some(within) = &self.within {
            match span.inner().intersect(within.inner()) {
                Some(both) => span = KeySpan::new(both),
                None => return Ok(AsOf { value: None, as_of_ms: None }),
            }
        }
        let mut rows = merged(self.table, &span, self.scan, None, self.options).await?;
        let row = std::future::poll_fn(|context| Pin::new(&mut rows).poll_next(context)).await.transpose()?;
        Ok(AsOf { value: row.map(T::from_row).transpose()?, as_of_ms: rows.as_of_ms() })
    }
}

fn next_to<K: RowKey>(key: &K, side: Side) -> Result<KeySpan<K>, Error> {
    let row = key.encode()?;
    let key = Bytes::copy_from_slice(after_bucket::<K>(&row)?);
    let (start, end) = match side {
        Side::Floor => (Bytes::new(), key_after(&key)),
        Side::Ceiling => (key, Bytes::new()),
        Side::Lower => (Bytes::new(), key),
        Side::Higher => (key_after(&key), Bytes::new()),
    };
    Ok(KeySpan::new(KeyRange { start, end }))
}
