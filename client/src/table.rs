//! One table: its rows are written and read here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use terrane_types::{CellKind, CellRef, Invalid, TableId, TableName, TableSchema, cell, escape};
use tokio::time::Instant;

use crate::batch::{BatchWriter, WriterOptions};
use crate::client::Core;
use crate::deadline::Progress;
use crate::error::{Error, RowError};
use crate::operations::{Delete, Put, RowMutation};
use crate::retry::{Failure, OnUncertain, Risk};
use crate::scatter::{self, Part};

/// Rows written by one request; their bytes are bounded besides.
const WRITE_ROWS_MAX: usize = 4096;

/// A schema is asked for again at most this often: when it does not know a family, or when all families matter.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);
/// How long a delete of a whole row waits for the present schema before it takes the one it knows.
const REFRESH_PATIENCE: Duration = Duration::from_secs(2);

/// A table that is open. Cheap to clone; clones share everything.
///
/// Every call has a deadline, the client's unless [`Table::with_timeout`] set another. Within it the client follows
/// redirects, waits out what passes (a busy server, a region on the move, an election) and tries again. When the time is
/// over, the last obstacle is found inside [`Error::Timeout`].
#[derive(Clone)]
pub struct Table {
    pub(crate) core: Arc<Core>,
    pub(crate) target: Arc<Target>,
    pub(crate) timeout: Duration,
    on_uncertain: OnUncertain,
}

/// What a table is, as far as the client knows.
pub(crate) struct Target {
    pub(crate) table: TableId,
    schema: RwLock<Arc<TableSchema>>,
    /// The newest version of the schema that was heard of.
    newest: AtomicU64,
    /// When the schema was last asked for, successfully or not.
    asked: Mutex<Asked>,
}

struct Asked {
    at: Instant,
    /// Only since the table was opened: what was fetched then may be asked for again at once.
    again: bool,
}

impl Target {
    pub(crate) fn new(schema: TableSchema) -> Self {
        Self {
            table: schema.table,
            newest: AtomicU64::new(schema.version),
            schema: RwLock::new(Arc::new(schema)),
            asked: Mutex::new(Asked { at: Instant::now(), again: false }),
        }
    }

    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema.read())
    }

    pub(crate) fn schema_version(&self) -> u64 {
        self.schema.read().version
    }

    pub(crate) fn saw_schema_version(&self, version: u64) {
        self.newest.fetch_max(version, Ordering::Relaxed);
    }

    fn is_outdated(&self) -> bool {
        self.newest.load(Ordering::Relaxed) > self.schema_version()
    }

    /// Whether it is worth asking again: not more than once in a while, unless a newer one was heard of.
    fn may_refresh(&self) -> bool {
        let mut asked = self.asked.lock();
        let due = !asked.again || asked.at.elapsed() >= REFRESH_PAUSE || self.is_outdated();
        if due {
            *asked = Asked { at: Instant::now(), again: true };
        }
        due
    }

    /// Whether it is time to ask again because something depends on all families being known.
    fn is_due(&self) -> bool {
        self.asked.lock().at.elapsed() >= REFRESH_PAUSE || self.is_outdated()
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name().to_string()).field("id", &self.target.table).finish()
    }
}

impl Table {
    pub(crate) fn new(core: Arc<Core>, schema: TableSchema) -> Self {
        let (timeout, on_uncertain) = (core.timeout, core.on_uncertain);
        Self { core, target: Arc::new(Target::new(schema)), timeout, on_uncertain }
    }

    /// The same table with another deadline for each call made through this handle.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same table with another answer to lost replies of writes made through this handle.
    #[must_use]
    pub fn with_on_uncertain(mut self, on_uncertain: OnUncertain) -> Self {
        self.on_uncertain = on_uncertain;
        self
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> TableName {
        self.target.schema().name.clone()
    }

    /// The table's id. A table that was dropped and made again under its name has another.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.target.table
    }

    /// The schema as this client knows it; refreshed when servers speak of a newer one.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        self.target.schema()
    }

    /// Writes cells of one row, all or none.
    ///
    /// **Durability**: when it returns `Ok`, a quorum of servers has the write on disk.
    /// **Retry safety**: refusals are retried safely. If a reply is lost (a server dies, a connection breaks), the put is
    /// sent again and may be applied twice, the second time with a later server timestamp, unless
    /// [`OnUncertain::Report`] is set; then [`Error::Uncertain`] is answered.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything is sent, for rows, families and values outside the limits; see [`Error`].
    pub async fn put(&self, put: Put) -> Result<(), Error> {
        self.mutate(put.into()).await
    }

    /// Deletes cells of one row, all or none; the whole row if the delete names nothing. The whole row is every family the
    /// table has; one that somebody else added within the last second may be missed.
    ///
    /// **Durability**: when it returns `Ok`, a quorum of servers has the delete on disk.
    /// **Retry safety**: as for [`Table::put`]. A delete that is applied twice also hides what was written to its columns
    /// between the two times.
    ///
    /// # Errors
    /// As for [`Table::put`].
    pub async fn delete(&self, delete: Delete) -> Result<(), Error> {
        self.mutate(delete.into()).await
    }

    /// Applies a mixture of puts and deletes to one row, all or none.
    ///
    /// **Durability**: when it returns `Ok`, a quorum of servers has the mutation on disk.
    /// **Retry safety**: as for [`Table::put`].
    ///
    /// # Errors
    /// As for [`Table::put`].
    pub async fn mutate(&self, mutation: RowMutation) -> Result<(), Error> {
        let (row, cells) = self.prepare(mutation).await?;
        let progress = Progress::new(self.write_risk(), self.timeout);
        let wire = self.wire_mutation(row.clone(), cells);
        let body = || request::Body::Mutate(v1::Mutate { rows: vec![wire.clone()], atomic: false });
        self.core.router.call_row(&self.target, &row, progress, body, mutated).await
    }

    /// Applies many mutations, grouped by the servers that host their rows. Each is atomic by itself, all together are
    /// not: the answer names the rows that failed. Mutations of one row are applied in the order given, as long as none
    /// of them fails.
    ///
    /// **Durability**: a quorum of servers has each mutation on disk that is not named in the answer.
    /// **Retry safety**: as for [`Table::put`], for each row by itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] when any of them is outside the limits: then nothing was sent.
    pub async fn mutate_many(&self, mutations: Vec<RowMutation>) -> Result<Vec<RowError>, Error> {
        let mut rows = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            let (row, cells) = self.prepare(mutation).await?;
            rows.push(self.wire_mutation(row, cells));
        }
        Ok(self.send_many(&rows).await)
    }

    /// Sends mutations that were checked.
    pub(crate) async fn send_many(&self, rows: &[v1::RowMutation]) -> Vec<RowError> {
        let job = WriteMany { rows };
        let failed = scatter::run(&self.core.router, &self.target, &job, self.write_risk(), self.timeout).await;
        failed.into_iter().map(|(index, error)| RowError { row: rows[index].row.clone(), error }).collect()
    }

    /// A writer that gathers mutations into batches and sends them while more are given to it.
    #[must_use]
    pub fn writer(&self, options: WriterOptions) -> BatchWriter {
        BatchWriter::new(self.clone(), options)
    }

    const fn write_risk(&self) -> Risk {
        Risk { write: true, on_uncertain: self.on_uncertain }
    }

    pub(crate) fn wire_mutation(&self, row: Bytes, cells: Bytes) -> v1::RowMutation {
        v1::RowMutation {
            row,
            cells,
            operation: self.core.next_operation(),
            first_try_ms: terrane_env::time::wall_ms(),
            ..v1::RowMutation::default()
        }
    }

    /// Checks a mutation against the limits and the schema and gives it its final bytes.
    pub(crate) async fn prepare(&self, mutation: RowMutation) -> Result<(Bytes, Bytes), Error> {
        if self.target.table == TableId::META {
            return Err(Error::ReadOnly { what: "table meta".to_owned() });
        }
        mutation.check()?;
        if mutation.whole_row && self.target.is_due() && self.target.may_refresh() {
            self.look_for_new_families().await?;
        }
        let mut schema = self.target.schema();
        if let Err(unknown) = check_families(&schema, &mutation) {
            if !self.target.may_refresh() {
                return Err(unknown.into());
            }
            self.refresh_schema(self.timeout).await?;
            schema = self.target.schema();
            check_families(&schema, &mutation)?;
        }
        let mut cells = mutation.cells;
        if mutation.whole_row {
            delete_families(&schema, &mut cells);
        }
        Ok((mutation.row, cells.into()))
    }

    /// Checks that the table has the families that a read names.
    pub(crate) async fn check_projection(&self, projection: &v1::Projection) -> Result<(), Error> {
        let unknown = |schema: &TableSchema| {
            let missing = projection.families.iter().find(|asked| schema.family(asked.family.as_bytes()).is_none());
            missing.map(|asked| unknown_family(schema, asked.family.as_bytes()))
        };
        let Some(invalid) = unknown(&self.target.schema()) else { return Ok(()) };
        if self.target.table == TableId::META || !self.target.may_refresh() {
            return Err(invalid.into());
        }
        self.refresh_schema(self.timeout).await?;
        unknown(&self.target.schema()).map_or(Ok(()), |invalid| Err(invalid.into()))
    }

    /// Before a delete of a whole row. Without a master the families known are deleted: rows can be deleted, as they can be
    /// written, while no master runs.
    async fn look_for_new_families(&self) -> Result<(), Error> {
        match self.refresh_schema(self.timeout.min(REFRESH_PATIENCE)).await {
            Err(Error::Unreachable { .. } | Error::Timeout { .. } | Error::Unavailable { .. }) => Ok(()),
            settled => settled,
        }
    }

    async fn refresh_schema(&self, timeout: Duration) -> Result<(), Error> {
        let schema = self.core.describe(&self.name().to_string(), timeout).await?;
        if schema.table != self.target.table {
            self.core.router.forget_table(&self.target);
            return Err(Error::NotFound {
                what: format!("the table {} that was opened (there is a new one)", schema.name),
            });
        }
        self.target.saw_schema_version(schema.version);
        let mut known = self.target.schema.write();
        if schema.version >= known.version {
            *known = Arc::new(schema);
        }
        Ok(())
    }
}

fn check_families(schema: &TableSchema, mutation: &RowMutation) -> Result<(), Invalid> {
    let mut rest = &mutation.cells[..];
    // Most mutations are of one family: it is looked up once.
    let mut last: &[u8] = &[];
    while let Some((cell, length)) = cell::unpack(rest) {
        if cell.family != last {
            if schema.family(cell.family).is_none() {
                return Err(unknown_family(schema, cell.family));
            }
            last = cell.family;
        }
        rest = &rest[length..];
    }
    Ok(())
}

fn unknown_family(schema: &TableSchema, family: &[u8]) -> Invalid {
    let known: Vec<String> = schema.families.iter().map(|family| family.name.to_string()).collect();
    Invalid::new(format!("table {} has no family {}; it has {}", schema.name, escape(family), known.join(", ")))
}

fn delete_families(schema: &TableSchema, cells: &mut Vec<u8>) {
    for family in &schema.families {
        cell::pack(cells, CellRef::delete(CellKind::DeleteFamily, family.name.as_bytes(), &[], terrane_types::LATEST));
    }
}

/// The row's own error in the reply to a mutation of one row counts like an error in place of the reply.
fn mutated(answer: reply::Body) -> Result<(), Failure> {
    let reply::Body::Mutate(reply) = answer else {
        return Err(broken_reply("the server answered a mutation with something else"));
    };
    match reply.errors.into_iter().next() {
        Some(row) => Err(Failure::Refused(terrane_proto::error::from_detail(row.error.unwrap_or_default()))),
        None => Ok(()),
    }
}

pub(crate) fn broken_reply(message: impl Into<String>) -> Failure {
    Failure::Refused(terrane_types::Error::Internal { message: message.into() })
}

struct WriteMany<'a> {
    rows: &'a [v1::RowMutation],
}

impl Part for WriteMany<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn request_rows_max(&self) -> usize {
        WRITE_ROWS_MAX
    }

    fn row(&self, index: usize) -> &[u8] {
        &self.rows[index].row
    }

    fn bytes(&self, index: usize) -> usize {
        self.rows[index].row.len() + self.rows[index].cells.len()
    }

    fn body(&self, indices: &[usize]) -> request::Body {
        request::Body::Mutate(v1::Mutate {
            rows: indices.iter().map(|index| self.rows[*index].clone()).collect(),
            atomic: false,
        })
    }

    fn finish(&self, indices: &[usize], answer: reply::Body) -> Result<Vec<(usize, Failure)>, Failure> {
        let reply::Body::Mutate(reply) = answer else {
            return Err(broken_reply("the server answered a mutation with something else"));
        };
        let failed = reply.errors.into_iter().filter_map(|row| {
            let index = indices.get(row.row as usize)?;
            Some((*index, Failure::Refused(terrane_proto::error::from_detail(row.error.unwrap_or_default()))))
        });
        Ok(failed.collect())
    }
}
