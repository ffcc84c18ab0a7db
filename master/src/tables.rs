//! Creates, alters and drops tables: checks the request, journals the intent and waits for its completion.
//!
//! Waiting only serves the caller: if it gives up, the journaled intent is completed all the same
//! (`crate::procedures`).

pub(crate) mod regions;
pub(crate) mod schemas;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_types::{Error, Invalid, NamespaceName, TableId, TableName, TableSchema};
use tokio::time::Instant;

use crate::catalog::namespaces::{Properties, missing};
use crate::catalog::requests::RequestId;
use crate::catalog::tables::{TableEntry, TableState};
use crate::catalog::{Catalog, CatalogEdit, NewTable, Outcome};
use crate::context::MasterContext;
use crate::planner::{Candidate, place_regions};
use crate::servers::observed::Observations;
use crate::tables::schemas::{TableChange, altered, modified, new_table};

const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long a new table waits for groups that are being created, while there are others.
const GROUPS_WAIT_MAX: Duration = Duration::from_secs(3);

/// The calls that change tables and namespaces.
pub struct TableCalls {
    context: Arc<MasterContext>,
}

impl TableCalls {
    /// The calls on this context.
    pub const fn new(context: Arc<MasterContext>) -> Self {
        Self { context }
    }

    /// Creates a table; all its regions are usable when this returns.
    pub async fn create(
        &self,
        schema: TableSchema,
        split_at: Vec<Bytes>,
        request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<TableId, Error> {
        let schema = new_table(schema, &split_at)?;
        // In this order: an earlier try of this request may be applied between the two reads.
        let existing = self.refuse_existing(&schema.name);
        if let Some(table) = self.changed_by(request) {
            return self.until_created(&schema.name, table, deadline).await;
        }
        existing?;
        self.refuse_missing_namespace(&schema.name)?;
        self.context.admit_change()?;
        let groups = self.groups_for(split_at.len() + 1, deadline).await?;
        let name = schema.name.clone();
        let new = NewTable { schema, split_at, groups };
        let outcome = self.record(request, CatalogEdit::CreateTable(new)).await?;
        let Outcome::Table(table) = outcome else { return Err(unexpected(&outcome)) };
        tracing::info!(%table, %name, "creating table");
        self.answer(&name, table, request)?;
        self.until_created(&name, table, deadline).await
    }

    async fn until_created(&self, name: &TableName, table: TableId, deadline: Instant) -> Result<TableId, Error> {
        let gone = || self.context.take_failure(table).unwrap_or_else(|| not_found(name));
        self.wait_until_enabled(name, table, deadline, gone).await?;
        Ok(table)
    }

    /// The table that an earlier try of this request has changed.
    fn changed_by(&self, request: Option<RequestId>) -> Option<TableId> {
        self.context.journal.read(|catalog| catalog.requests().get(request?))
    }

    async fn record(&self, request: Option<RequestId>, edit: CatalogEdit) -> Result<Outcome, Error> {
        let edit = match request {
            Some(id) => CatalogEdit::Requested { id, edit: Box::new(edit) },
            None => edit,
        };
        self.context.journal.record(&edit).await
    }

    fn refuse_existing(&self, name: &TableName) -> Result<(), Error> {
        let exists = self.context.journal.read(|catalog| catalog.tables().named(&name.to_string()).is_some());
        if exists { Err(Error::AlreadyExists { what: format!("table {name}") }) } else { Ok(()) }
    }

    /// The edit checks this again; checking here avoids waiting for groups.
    fn refuse_missing_namespace(&self, name: &TableName) -> Result<(), Error> {
        let namespace = name.namespace_name();
        let is_there = self.context.journal.read(|catalog| catalog.namespaces().contains(&namespace));
        if is_there { Ok(()) } else { Err(Invalid::new(missing(&namespace)).into()) }
    }

    /// The groups of this many new regions; waits until groups exist.
    async fn groups_for(&self, count: usize, deadline: Instant) -> Result<Vec<terrane_types::GroupId>, Error> {
        let context = &self.context;
        let place = |all: bool| {
            let leaving = context.surplus.lock().retiring().map(|retiring| retiring.group);
            let look =
                |catalog: &Catalog| context.observed.with(|observed| candidates(catalog, observed, all, leaving));
            let candidates = context.journal.read(look);
            Some(place_regions(count, &candidates)).filter(|groups| !groups.is_empty())
        };
        let patience = deadline.min(Instant::now() + GROUPS_WAIT_MAX);
        if let Some(groups) = context.journal.wait_until(patience, || place(true)).await {
            return Ok(groups);
        }
        context.journal.wait_until(deadline, || place(false)).await.ok_or_else(|| {
            let waiting =
                context.journal.read(|catalog| context.observed.with(|observed| waiting_for(catalog, observed)));
            let message =
                format!("the table was not created: {}", waiting.unwrap_or_else(|| "no group is open yet".into()));
            Error::Unavailable { message, retry_after: RETRY_AFTER }
        })
    }

    /// Alters a table; every group of it has the new schema when this returns.
    pub async fn alter(
        &self,
        name: &TableName,
        change: &TableChange,
        request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<(), Error> {
        self.change(name, request, deadline, |schema, boundaries| altered(schema, change, boundaries)).await
    }

    /// Gives a table another schema as a whole. It names the version that it was made from, and is refused once there is a newer
    /// one.
    pub async fn modify(
        &self,
        name: &TableName,
        wanted: &TableSchema,
        request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<(), Error> {
        self.change(name, request, deadline, |schema, boundaries| modified(schema, wanted, boundaries)).await
    }

    async fn change(
        &self,
        name: &TableName,
        request: Option<RequestId>,
        deadline: Instant,
        next: impl FnOnce(&TableSchema, &mut dyn Iterator<Item = &Bytes>) -> Result<TableSchema, Error>,
    ) -> Result<(), Error> {
        refuse_meta(name)?;
        if let Some(table) = self.changed_by(request) {
            return self.wait_until_enabled(name, table, deadline, || not_found(name)).await;
        }
        let entry = self.once_enabled(name, deadline).await?;
        self.context.admit_change()?;
        let table = entry.schema.table;
        let schema = self.context.journal.read(|catalog| {
            let mut boundaries = catalog.regions().of_table(table).map(|region| &region.descriptor.range.start);
            next(&entry.schema, &mut boundaries)
        })?;
        self.record(request, CatalogEdit::AlterTable { schema }).await?;
        self.answer(name, table, request)?;
        self.wait_until_enabled(name, table, deadline, || not_found(name)).await
    }

    /// Drops a table; all groups have removed it when this returns.
    pub async fn drop(&self, name: &TableName, request: Option<RequestId>, deadline: Instant) -> Result<(), Error> {
        refuse_meta(name)?;
        let entry = self.context.journal.read(|catalog| catalog.tables().named(&name.to_string()).cloned());
        if let Some(table) = self.changed_by(request) {
            return self.until_gone(name, table, deadline).await;
        }
        let entry = entry.ok_or_else(|| not_found(name))?;
        if entry.state == TableState::Enabled {
            // An unfinished change of the table already counts.
            self.context.admit_change()?;
        }
        let table = entry.schema.table;
        self.record(request, CatalogEdit::DropTable { table }).await?;
        self.answer(name, table, request)?;
        self.until_gone(name, table, deadline).await
    }

    /// Empties a table: one of the same name and schema takes its place, and is usable when this returns. It has the same
    /// regions, or a single one. Handles of clients that opened the table before find that it does not exist.
    pub async fn truncate(
        &self,
        name: &TableName,
        keep_splits: bool,
        request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<(), Error> {
        refuse_meta(name)?;
        if let Some(table) = self.changed_by(request) {
            return self.until_created(name, table, deadline).await.map(drop);
        }
        let entry = self.once_enabled(name, deadline).await?;
        self.context.admit_change()?;
        if terrane_env::planted!("a truncated table keeps its rows") {
            return Ok(());
        }
        let table = entry.schema.table;
        let mut split_at: Vec<Bytes> = self.context.journal.read(|catalog| {
            let regions = catalog.regions().of_table(table);
            let starts = regions.map(|region| region.descriptor.range.start.clone());
            starts.filter(|start| keep_splits && !start.is_empty()).collect()
        });
        split_at.sort();
        let groups = self.groups_for(split_at.len() + 1, deadline).await?;
        let outcome = self.record(request, CatalogEdit::TruncateTable { table, split_at, groups }).await?;
        let Outcome::Table(next) = outcome else { return Err(unexpected(&outcome)) };
        tracing::info!(%table, %next, %name, "truncating table");
        self.answer(name, next, request)?;
        self.until_created(name, next, deadline).await.map(drop)
    }

    async fn until_gone(&self, name: &TableName, table: TableId, deadline: Instant) -> Result<(), Error> {
        let text = name.to_string();
        // With those that it took the place of when they were truncated: they have its name until they are gone, too.
        let gone = || self.context.journal.read(|catalog| !catalog.tables().has_up_to(&text, table)).then_some(());
        self.context.journal.wait_until(deadline, gone).await.ok_or_else(|| self.not_yet(name, table))
    }

    /// Creates a namespace.
    pub async fn create_namespace(
        &self,
        name: NamespaceName,
        properties: Properties,
        request: Option<RequestId>,
    ) -> Result<(), Error> {
        self.record(request, CatalogEdit::CreateNamespace { name, properties }).await.map(drop)
    }

    /// Replaces the properties of a namespace.
    pub async fn set_properties(
        &self,
        name: NamespaceName,
        properties: Properties,
        request: Option<RequestId>,
    ) -> Result<(), Error> {
        self.record(request, CatalogEdit::SetProperties { name, properties }).await.map(drop)
    }

    /// Drops a namespace without tables; a table that is being dropped counts, too.
    pub async fn drop_namespace(&self, name: NamespaceName, request: Option<RequestId>) -> Result<(), Error> {
        self.record(request, CatalogEdit::DropNamespace { name }).await.map(drop)
    }

    /// The table, once it is enabled.
    async fn once_enabled(&self, name: &TableName, deadline: Instant) -> Result<TableEntry, Error> {
        let text = name.to_string();
        let look = || match self.context.journal.read(|catalog| catalog.tables().named(&text).cloned()) {
            None => Some(Err(not_found(name))),
            Some(entry) => (entry.state == TableState::Enabled).then_some(Ok(entry)),
        };
        let message = format!("another change of table {name} is in progress");
        let busy = || Err(Error::Unavailable { message, retry_after: RETRY_AFTER });
        self.context.journal.wait_until(deadline, look).await.unwrap_or_else(busy)
    }

    /// Waits until the table is enabled; `gone` is the error if it does not exist.
    async fn wait_until_enabled(
        &self,
        name: &TableName,
        table: TableId,
        deadline: Instant,
        gone: impl Fn() -> Error,
    ) -> Result<(), Error> {
        let look = || match self.state(table) {
            None => Some(Err(gone())),
            Some(state) => (state == TableState::Enabled).then_some(Ok(())),
        };
        let waited = self.context.journal.wait_until(deadline, look).await;
        waited.unwrap_or_else(|| Err(self.not_yet(name, table)))
    }

    /// A fault point: the caller, who will repeat its request, is not answered when the change is complete.
    fn answer(&self, name: &TableName, table: TableId, request: Option<RequestId>) -> Result<(), Error> {
        let is_lost = request.is_some() && terrane_env::buggify!("the answer to a change of a table is lost");
        if is_lost { Err(self.not_yet(name, table)) } else { Ok(()) }
    }

    fn state(&self, table: TableId) -> Option<TableState> {
        self.context.journal.read(|catalog| catalog.tables().get(table).map(|entry| entry.state))
    }

    /// The error of a caller whose deadline passed while its change continues.
    fn not_yet(&self, name: &TableName, table: TableId) -> Error {
        let state = self.state(table).map_or("changing", TableState::name);
        let wait = self.context.wait_of(table).map_or_else(String::new, |wait| format!(", waiting for {wait}"));
        let message = format!("table {name} is still {state}{wait}; the master continues with it");
        Error::InProgress { message, retry_after: RETRY_AFTER }
    }
}

/// The candidates for new regions: open groups whose members are all live or, if there are none, all open groups. With `all`, there
/// are none while groups are being created by live members: they will be open in a moment, and the regions spread over them too. A
/// group that is not open gets no region, since it may be abandoned, and none that is `leaving`.
fn candidates(
    catalog: &Catalog,
    observed: &Observations,
    all: bool,
    leaving: Option<terrane_types::GroupId>,
) -> Vec<Candidate> {
    let counts = catalog.regions_per_group();
    let candidate = |group, leader| Candidate { group, leader, regions: counts.get(&group).copied().unwrap_or(0) };
    let groups = || {
        catalog.groups().iter().map(|(group, entry)| {
            let leader = observed.leader(group).unwrap_or(entry.planned_leader);
            (entry, candidate(group, leader))
        })
    };
    let is_whole = |entry: &crate::catalog::groups::GroupEntry| {
        entry.members.values().all(|server| observed.liveness.is_live(*server))
    };
    if all && groups().any(|(entry, _)| is_whole(entry) && !entry.is_open()) {
        return Vec::new();
    }
    let open = || groups().filter(|(entry, candidate)| entry.is_open() && Some(candidate.group) != leaving);
    let whole: Vec<Candidate> = open().filter(|(entry, _)| is_whole(entry)).map(|(_, candidate)| candidate).collect();
    if !whole.is_empty() {
        return whole;
    }
    open().map(|(_, candidate)| candidate).collect()
}

/// What new tables wait for; `None` if groups exist.
pub fn waiting_for(catalog: &Catalog, observed: &Observations) -> Option<String> {
    if !catalog.groups().is_empty() {
        return None;
    }
    let wanted = usize::try_from(catalog.replication()).unwrap_or(0);
    let live = catalog.servers().iter().filter(|(server, _)| observed.liveness.is_live(*server)).count();
    (live < wanted).then(|| {
        let missing = wanted - live;
        let servers = if missing == 1 { "server" } else { "servers" };
        format!("waiting for {missing} more region {servers}: {live} of {wanted} are registered and live")
    })
}

fn refuse_meta(name: &TableName) -> Result<(), Error> {
    if name.is_meta() { Err(Error::ReadOnly { what: "table meta".into() }) } else { Ok(()) }
}

fn not_found(name: &TableName) -> Error {
    Error::NotFound { what: format!("table {name}") }
}

fn unexpected(outcome: &Outcome) -> Error {
    Error::Internal { message: format!("creating a table returned {outcome:?}") }
}
