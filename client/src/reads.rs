//! A table's reading side: gets, scans, pages, the ends of ranges and counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use terrane_types::{KeyRange, PackedRows, Projection, Row, TableId, TableSchema};

use crate::deadline::Progress;
use crate::error::Error;
use crate::page::{Page, PageToken};
use crate::reading::{Get, RowData, Scan};
use crate::retry::{Failure, Risk};
use crate::scan::RowStream;
use crate::scatter::{self, Part};
use crate::table::{Table, broken_reply, unknown_family};

/// Rows read by one request: what comes back is known to the servers only, so there are few.
const READ_ROWS_MAX: usize = 128;

/// Rows of a page whose scan names no limit.
pub const PAGE_ROWS_DEFAULT: u64 = 100;

impl Table {
    /// Reads one row; `None` if it has no cell that the get asks for. Linearizable: sees every write that was acknowledged
    /// before the call. Safe to repeat, and repeated by itself until the deadline.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rows and families outside the limits; see [`Error`].
    pub async fn get(&self, get: Get) -> Result<Option<RowData>, Error> {
        terrane_types::row::check_row(&get.row)?;
        let projection = get.selection.projection()?;
        self.check_projection(&projection).await?;
        if self.target.table == TableId::META {
            return self
                .first_of(Scan { range: KeyRange::row(&get.row), selection: get.selection, ..Scan::all() })
                .await;
        }
        let wire = v1::Projection::from(&projection);
        let progress = Progress::new(Risk::READ, self.timeout);
        let body = || {
            let projection = Some(wire.clone());
            request::Body::Get(v1::Get { rows: vec![get.row.clone()], projection, ..v1::Get::default() })
        };
        let mut rows = self.core.router.call_row(&self.target, &get.row, progress, body, decode_rows).await?;
        Ok(rows.pop())
    }

    /// Reads many rows, grouped by the servers that host them. The answers come in the order of the gets, `None` for
    /// those without a visible cell. Each row is read linearizably; all together are not one snapshot.
    ///
    /// # Errors
    /// As for [`Table::get`]; an error of one row is an error of the call.
    pub async fn get_many(&self, gets: Vec<Get>) -> Result<Vec<Option<RowData>>, Error> {
        let mut found = vec![None; gets.len()];
        if self.target.table == TableId::META {
            for (slot, get) in found.iter_mut().zip(gets) {
                *slot = self.get(get).await?;
            }
            return Ok(found);
        }
        let mut projections: Vec<(Projection, Vec<usize>)> = Vec::new();
        for (index, get) in gets.iter().enumerate() {
            terrane_types::row::check_row(&get.row)?;
            let projection = get.selection.projection()?;
            match projections.iter_mut().find(|(known, _)| *known == projection) {
                Some((_, indices)) => indices.push(index),
                None => projections.push((projection, vec![index])),
            }
        }
        for (projection, indices) in projections {
            self.check_projection(&projection).await?;
            let rows: Vec<Bytes> = indices.iter().map(|index| gets[*index].row.clone()).collect();
            let read = self.get_rows(&rows, &projection).await?;
            for (index, row) in indices.into_iter().zip(read) {
                found[index] = row;
            }
        }
        Ok(found)
    }

    async fn get_rows(&self, rows: &[Bytes], projection: &Projection) -> Result<Vec<Option<RowData>>, Error> {
        let job = ReadMany { rows, projection: projection.into(), found: Mutex::new(BTreeMap::new()) };
        let failed = scatter::run(&self.core.router, &self.target, &job, Risk::READ, self.timeout).await?;
        if let Some((_, error)) = failed.into_iter().next() {
            return Err(error);
        }
        let found = job.found.into_inner();
        Ok(rows.iter().map(|row| found.get(&row[..]).cloned()).collect())
    }

    /// Reads the rows of a range one after another, over as many regions as it spans, forwards or backwards.
    ///
    /// Splits, moves and failovers on the way are followed: no row is skipped or repeated. Every row is read at one moment;
    /// the scan as a whole is not one snapshot. The deadline holds for each wait for rows, not for the whole scan.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything is sent. Other errors come from the stream.
    pub async fn scan(&self, scan: Scan) -> Result<RowStream, Error> {
        let projection = scan.selection.projection()?;
        self.check_projection(&projection).await?;
        let range = self.range_of(&scan)?;
        Ok(RowStream::new(Arc::clone(&self.core), Arc::clone(&self.target), &scan, range, &projection, self.timeout))
    }

    /// Reads one page: up to the scan's limit of rows (100 if it has none), and a token for what follows.
    ///
    /// # Errors
    /// As for [`Table::scan`] and its stream.
    pub async fn page(&self, scan: Scan) -> Result<Page, Error> {
        let limit = scan.limit.unwrap_or(PAGE_ROWS_DEFAULT);
        let wanted = usize::try_from(limit).map_err(|_| Error::invalid("a page cannot have that many rows"))?;
        let reverse = scan.reverse;
        // One row more tells whether anything follows.
        let mut stream = self.scan(Scan { limit: Some(limit.saturating_add(1)), ..scan }).await?;
        let mut rows = Vec::new();
        while let Some(row) = stream.next().await {
            rows.push(row?);
        }
        let more = rows.len() > wanted;
        rows.truncate(wanted);
        let last = rows.last().filter(|_| more).map(|row| row.row().clone());
        let next = last.map(|last| PageToken::behind(self.target.table, reverse, last));
        Ok(Page { rows, next })
    }

    /// The first row of a range.
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub async fn first(&self, range: KeyRange) -> Result<Option<RowData>, Error> {
        self.first_of(Scan::range(range)).await
    }

    /// The last row of a range.
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub async fn last(&self, range: KeyRange) -> Result<Option<RowData>, Error> {
        self.first_of(Scan::range(range).reverse()).await
    }

    async fn first_of(&self, scan: Scan) -> Result<Option<RowData>, Error> {
        self.scan(scan.limit(1)).await?.next().await.transpose()
    }

    /// How many rows a range has. The servers count; only numbers travel.
    ///
    /// # Errors
    /// As for [`Table::scan`] and its stream.
    pub async fn count(&self, range: KeyRange) -> Result<u64, Error> {
        self.scan(Scan::range(range)).await?.count().await
    }

    fn range_of(&self, scan: &Scan) -> Result<KeyRange, Error> {
        // Checked anew: its fields are public.
        let range = KeyRange::new(scan.range.start.clone(), scan.range.stop.clone())?;
        match &scan.after {
            Some(token) => Ok(token.rest_of(&range, self.target.table, scan.reverse)?),
            None => Ok(range),
        }
    }

    async fn check_projection(&self, projection: &Projection) -> Result<(), Error> {
        let unknown = |schema: &TableSchema| {
            let missing = projection.families.iter().find(|(family, _)| schema.family(family.as_bytes()).is_none());
            missing.map(|(family, _)| unknown_family(schema, family.as_bytes()))
        };
        let Some(invalid) = unknown(&self.target.schema()) else { return Ok(()) };
        if self.target.table == TableId::META || !self.target.may_refresh() {
            return Err(invalid.into());
        }
        self.refresh_schema(self.timeout).await?;
        unknown(&self.target.schema()).map_or(Ok(()), |invalid| Err(invalid.into()))
    }
}

fn decode_rows(answer: reply::Body) -> Result<Vec<RowData>, Failure> {
    let reply::Body::Get(reply) = answer else {
        return Err(broken_reply("the server answered a get with something else"));
    };
    PackedRows::new(reply.rows)
        .map(|row| row.map(|row| RowData::new(row.row, row.cells)))
        .collect::<Result<_, _>>()
        .map_err(|invalid| broken_reply(format!("the server sent rows that cannot be read: {invalid}")))
}

struct ReadMany<'a> {
    rows: &'a [Bytes],
    projection: v1::Projection,
    /// Filled by the answers of several servers, one at a time.
    found: Mutex<BTreeMap<Row, RowData>>,
}

impl Part for ReadMany<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request_rows_max(&self) -> usize {
        READ_ROWS_MAX
    }

    fn row(&self, index: usize) -> &[u8] {
        &self.rows[index]
    }

    fn bytes(&self, index: usize) -> usize {
        self.rows[index].len()
    }

    fn body(&self, indices: &[usize], _now_ms: u64) -> request::Body {
        request::Body::Get(v1::Get {
            rows: indices.iter().map(|index| self.rows[*index].clone()).collect(),
            projection: Some(self.projection.clone()),
            ..v1::Get::default()
        })
    }

    fn finish(&self, _indices: &[usize], answer: reply::Body) -> Result<Vec<(usize, Failure)>, Failure> {
        let rows = decode_rows(answer)?;
        self.found.lock().extend(rows.into_iter().map(|row| (row.row().clone(), row)));
        Ok(Vec::new())
    }
}
