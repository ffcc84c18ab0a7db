//! Reading rows by key: one or many, their cells or only whether they exist.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::TableId;

use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency};
use crate::error::Error;
use crate::read::get::Get;
use crate::read::get_many::Gather;
use crate::read::request::{ReadOptions, reading_request};
use crate::read::row_data::RowData;
use crate::read::scan::Scan;
use crate::read::selection::{Selection, selection_methods};
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::RowRead;
use crate::wire::get::{self, ReadSpec};

impl Table {
    /// Reads one row; `None` if it has no matching cell.
    ///
    /// Linearizable by default: it sees every write acknowledged before the call. Safe to repeat; the client itself repeats
    /// it until the deadline.
    ///
    /// ```no_run
    /// use terrane_client::{Consistency, Get};
    /// # async fn run(users: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// let whole = users.get("user-17").await?;
    /// let some = users.get("user-17").column("info", "name").column_prefix("seen", "2026-").versions(3).await?;
    /// let prepared = users.get(Get::new("user-17").family("info")).await?;
    ///
    /// let near = users.get("user-17").consistency(Consistency::Stale).with_as_of().await?;
    /// println!("{:?}, complete as of {:?}", near.value, near.as_of_ms);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed row, family or filter; see [`Error`].
    pub fn get(&self, get: impl Into<Get>) -> GetRequest<'_> {
        GetRequest {
            table: self,
            get: get.into(),
            exists_only: false,
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }

    /// Whether a row has a matching cell. The servers look it up and send no cells.
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub fn exists(&self, get: impl Into<Get>) -> ExistsRequest<'_> {
        ExistsRequest { get: get.into(), table: self, options: ReadOptions::new(Consistency::Linearizable) }
    }

    /// Reads many rows. The answers come in the order of the gets, `None` for rows without a matching cell. Each row is read
    /// linearizably by default; the rows together are not one snapshot.
    ///
    /// Rows are grouped by server, and all servers are called at once: one round trip, however many regions the rows are in.
    /// (With many rows, a server gets several requests in a row, without waiting in between.) Safe to repeat; the client
    /// itself repeats it for the rows that failed.
    ///
    /// # Errors
    /// As for [`Table::get`]; an error of one row is an error of the call.
    pub fn get_many<G: Into<Get>>(&self, gets: impl IntoIterator<Item = G>) -> GetManyRequest<'_> {
        let gets = gets.into_iter().map(Into::into).collect();
        GetManyRequest { table: self, gets, exists_only: false, options: ReadOptions::new(Consistency::Linearizable) }
    }

    /// Whether each of many rows has a matching cell. As [`Table::get_many`], without cells.
    ///
    /// # Errors
    /// As for [`Table::get_many`].
    pub fn exists_many<G: Into<Get>>(&self, gets: impl IntoIterator<Item = G>) -> ExistsManyRequest<'_> {
        let gets = gets.into_iter().map(Into::into).collect();
        ExistsManyRequest { table: self, gets, options: ReadOptions::new(Consistency::Linearizable) }
    }
}

/// A get; it is sent when it is awaited. Created by [`Table::get`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct GetRequest<'t> {
    table: &'t Table,
    get: Get,
    exists_only: bool,
    options: ReadOptions,
}

reading_request!(GetRequest, Option<RowData>);

impl GetRequest<'_> {
    selection_methods!(get.selection);

    async fn run(self) -> Result<AsOf<Option<RowData>>, Error> {
        let Self { table, get, exists_only, options } = self;
        terrane_types::row::check_row(&get.row)?;
        let spec = get.selection.spec(&table.schema())?;
        table.check_projection(&spec.projection).await?;
        let timeout = options.timeout_of(table);
        if table.target.table == TableId::META {
            return table.get_meta(&get, options).await;
        }
        let progress = Progress::new(Risk::READ, timeout);
        let read = RowRead {
            row: &get.row,
            consistency: options.consistency,
            request: get::request(vec![get.row.clone()], &spec, exists_only),
            finish: |reply| get::rows(reply, RowData::from),
        };
        let answer = table.core.router.read_row(&table.target, CallKind::Read, read, progress).await?;
        Ok(AsOf { value: answer.value.into_iter().next(), as_of_ms: answer.as_of_ms })
    }
}

/// Whether a row exists; sent when it is awaited. Created by [`Table::exists`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct ExistsRequest<'t> {
    table: &'t Table,
    get: Get,
    options: ReadOptions,
}

reading_request!(ExistsRequest, bool);

impl ExistsRequest<'_> {
    selection_methods!(get.selection);

    async fn run(self) -> Result<AsOf<bool>, Error> {
        let Self { table, get, options } = self;
        let found = GetRequest { table, get, exists_only: true, options }.run().await?;
        Ok(AsOf { value: found.value.is_some(), as_of_ms: found.as_of_ms })
    }
}

/// Gets of many rows; sent together when awaited. Created by [`Table::get_many`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct GetManyRequest<'t> {
    table: &'t Table,
    gets: Vec<Get>,
    exists_only: bool,
    options: ReadOptions,
}

reading_request!(GetManyRequest, Vec<Option<RowData>>);

impl GetManyRequest<'_> {
    async fn run(self) -> Result<AsOf<Vec<Option<RowData>>>, Error> {
        let Self { table, gets, exists_only, options } = self;
        if table.target.table == TableId::META {
            let mut found = Vec::with_capacity(gets.len());
            for get in &gets {
                terrane_types::row::check_row(&get.row)?;
                found.push(table.get_meta(get, options).await?.value);
            }
            return Ok(AsOf { value: found, as_of_ms: None });
        }
        let mut rows: Vec<(Bytes, usize)> = Vec::with_capacity(gets.len());
        let mut specs: Vec<Arc<ReadSpec>> = Vec::new();
        for get in &gets {
            terrane_types::row::check_row(&get.row)?;
            let spec = get.selection.spec(&table.schema())?;
            // Most gets read the same columns: the last spec is compared first.
            let known = specs.iter().rposition(|known| **known == spec);
            let at = match known {
                Some(at) => at,
                None => {
                    table.check_projection(&spec.projection).await?;
                    specs.push(Arc::new(spec));
                    specs.len() - 1
                }
            };
            rows.push((get.row.clone(), at));
        }
        let gather = Gather { rows: &rows, specs: &specs, exists_only, consistency: options.consistency };
        gather.run(&table.core.router, &table.target, options.timeout_of(table)).await
    }
}

/// Whether many rows exist; sent together when awaited. Created by [`Table::exists_many`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct ExistsManyRequest<'t> {
    table: &'t Table,
    gets: Vec<Get>,
    options: ReadOptions,
}

reading_request!(ExistsManyRequest, Vec<bool>);

impl ExistsManyRequest<'_> {
    async fn run(self) -> Result<AsOf<Vec<bool>>, Error> {
        let Self { table, gets, options } = self;
        let found = GetManyRequest { table, gets, exists_only: true, options }.run().await?;
        Ok(AsOf { value: found.value.iter().map(Option::is_some).collect(), as_of_ms: found.as_of_ms })
    }
}

impl Table {
    /// The meta table can only be scanned.
    async fn get_meta(&self, get: &Get, options: ReadOptions) -> Result<AsOf<Option<RowData>>, Error> {
        let range = terrane_types::KeyRange::row(&get.row);
        let selection: Selection = get.selection.clone();
        let scan = Scan { selection, ..Scan::range(range) }.limit(1);
        let row = self.scan(scan).timeout(options.timeout_of(self)).await?.next().await.transpose()?;
        Ok(AsOf { value: row, as_of_ms: None })
    }
}
