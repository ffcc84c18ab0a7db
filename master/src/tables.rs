//! Creating, altering and dropping tables: check, journal the intent, wait for its end.
//!
//! The waiting is only for the caller's sake: a caller that gives up leaves an intent that is driven to its end all the
//! same (`crate::procedures`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_types::{Error, Invalid, NamespaceName, TableId, TableName, TableSchema};
use tokio::time::Instant;

use crate::catalog::groups::GroupState;
use crate::catalog::namespaces::missing;
use crate::catalog::requests::RequestId;
use crate::catalog::tables::{TableEntry, TableState};
use crate::catalog::{Catalog, CatalogEdit, NewTable, Outcome};
use crate::context::MasterContext;
use crate::observed::Observations;
use crate::planner::{Candidate, place_regions};
use crate::schemas::{TableChange, altered, new_table};

const RETRY_AFTER: Duration = Duration::from_millis(200);

/// What callers ask of tables.
pub struct TableCalls {
    context: Arc<MasterContext>,
}

impl TableCalls {
    /// Calls that leave their intents at this context.
    pub const fn new(context: Arc<MasterContext>) -> Self {
        Self { context }
    }

    /// Creates a table; every region of it can be used when this returns.
    pub async fn create(
        &self,
        schema: TableSchema,
        split_at: Vec<Bytes>,
        request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<TableId, Error> {
        let schema = new_table(schema, &split_at)?;
        // In this order: the first try of this request may be applied between the two looks.
        let existing = self.refuse_existing(&schema.name);
        if let Some(table) = self.made_by(request) {
            return self.until_created(&schema.name, table, deadline).await;
        }
        existing?;
        self.refuse_missing_namespace(&schema.name)?;
        self.context.admit_change()?;
        let groups = self.groups_for(split_at.len() + 1, deadline).await?;
        let name = schema.name.clone();
        let new = NewTable { schema, split_at, groups, implies_namespace: false };
        let outcome = self.record(request, CatalogEdit::CreateTable(new)).await?;
        let Outcome::Table(table) = outcome else { return Err(unexpected(&outcome)) };
        tracing::info!(%table, %name, "a table is being created");
        self.until_created(&name, table, deadline).await
    }

    async fn until_created(&self, name: &TableName, table: TableId, deadline: Instant) -> Result<TableId, Error> {
        let gone = || self.context.take_failure(table).unwrap_or_else(|| not_found(name));
        self.wait_until_enabled(name, table, deadline, gone).await?;
        Ok(table)
    }

    /// The table that an earlier request of this id has changed.
    fn made_by(&self, request: Option<RequestId>) -> Option<TableId> {
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

    /// Said again when the edit is applied; here it spares the wait for groups.
    fn refuse_missing_namespace(&self, name: &TableName) -> Result<(), Error> {
        let namespace = name.namespace_name();
        let is_there = self.context.journal.read(|catalog| catalog.namespaces().contains(&namespace));
        if is_there { Ok(()) } else { Err(Invalid::new(missing(&namespace)).into()) }
    }

    /// The groups of that many new regions; waits until there are groups at all.
    async fn groups_for(&self, count: usize, deadline: Instant) -> Result<Vec<terrane_types::GroupId>, Error> {
        let context = &self.context;
        let place = || {
            let candidates =
                context.journal.read(|catalog| context.observed.with(|observed| candidates(catalog, observed)));
            Some(place_regions(count, &candidates)).filter(|groups| !groups.is_empty())
        };
        context.journal.wait_until(deadline, place).await.ok_or_else(|| {
            let waiting =
                context.journal.read(|catalog| context.observed.with(|observed| waiting_for(catalog, observed)));
            let message =
                format!("the table was not created: {}", waiting.unwrap_or_else(|| "no group is open".into()));
            Error::Unavailable { message, retry_after: RETRY_AFTER }
        })
    }

    /// Alters a table; every group has the new schema when this returns.
    pub async fn alter(
        &self,
        name: &TableName,
        change: &TableChange,
        request: Option<RequestId>,
        deadline: Instant,
    ) -> Result<(), Error> {
        refuse_meta(name)?;
        if let Some(table) = self.made_by(request) {
            return self.wait_until_enabled(name, table, deadline, || not_found(name)).await;
        }
        let entry = self.settled(name, deadline).await?;
        self.context.admit_change()?;
        let table = entry.schema.table;
        let schema = self.context.journal.read(|catalog| {
            let boundaries = catalog.regions().of_table(table).map(|region| &region.descriptor.range.start);
            altered(&entry.schema, change, boundaries)
        })?;
        self.record(request, CatalogEdit::AlterTable { schema }).await?;
        self.wait_until_enabled(name, table, deadline, || not_found(name)).await
    }

    /// Drops a table; no group has anything of it when this returns.
    pub async fn drop(&self, name: &TableName, request: Option<RequestId>, deadline: Instant) -> Result<(), Error> {
        refuse_meta(name)?;
        let entry = self.context.journal.read(|catalog| catalog.tables().named(&name.to_string()).cloned());
        if let Some(table) = self.made_by(request) {
            return self.until_gone(name, table, deadline).await;
        }
        let entry = entry.ok_or_else(|| not_found(name))?;
        if entry.state == TableState::Enabled {
            // One that is unfinished already counts once, whatever is done to it.
            self.context.admit_change()?;
        }
        let table = entry.schema.table;
        self.record(request, CatalogEdit::DropTable { table }).await?;
        self.until_gone(name, table, deadline).await
    }

    async fn until_gone(&self, name: &TableName, table: TableId, deadline: Instant) -> Result<(), Error> {
        let gone = || self.state(table).is_none().then_some(());
        self.context.journal.wait_until(deadline, gone).await.ok_or_else(|| self.not_yet(name, table))
    }

    /// Makes a namespace; tables can be created in it when this returns.
    pub async fn create_namespace(&self, name: NamespaceName, request: Option<RequestId>) -> Result<(), Error> {
        self.record(request, CatalogEdit::CreateNamespace { name }).await.map(drop)
    }

    /// Drops a namespace that has no table left, not even one that is being dropped.
    pub async fn drop_namespace(&self, name: NamespaceName, request: Option<RequestId>) -> Result<(), Error> {
        self.record(request, CatalogEdit::DropNamespace { name }).await.map(drop)
    }

    /// The table once nothing is being done to it.
    async fn settled(&self, name: &TableName, deadline: Instant) -> Result<TableEntry, Error> {
        let text = name.to_string();
        let look = || match self.context.journal.read(|catalog| catalog.tables().named(&text).cloned()) {
            None => Some(Err(not_found(name))),
            Some(entry) => (entry.state == TableState::Enabled).then_some(Ok(entry)),
        };
        let message = format!("table {name} is being changed by another call");
        let busy = || Err(Error::Unavailable { message, retry_after: RETRY_AFTER });
        self.context.journal.wait_until(deadline, look).await.unwrap_or_else(busy)
    }

    /// Waits until nothing is being done to the table any more; `gone` says why there is none.
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

    fn state(&self, table: TableId) -> Option<TableState> {
        self.context.journal.read(|catalog| catalog.tables().get(table).map(|entry| entry.state))
    }

    /// What a caller hears whose time ran out while its change goes on.
    fn not_yet(&self, name: &TableName, table: TableId) -> Error {
        let state = self.state(table).map_or("changing", TableState::name);
        let wait = self.context.wait_of(table).map_or_else(String::new, |wait| format!(", waiting for {wait}"));
        let message = format!("table {name} is still {state}{wait}; the master goes on with it");
        Error::Unavailable { message, retry_after: RETRY_AFTER }
    }
}

/// The groups that new regions may go to: those whose members all answer, or, when a server is down, all that are open.
fn candidates(catalog: &Catalog, observed: &Observations) -> Vec<Candidate> {
    let counts = catalog.regions_per_group();
    let candidate = |group, leader| Candidate { group, leader, regions: counts.get(&group).copied().unwrap_or(0) };
    let groups = || {
        catalog.groups().iter().map(|(group, entry)| {
            let leader = observed.leader(group).unwrap_or(entry.planned_leader);
            (entry, candidate(group, leader))
        })
    };
    let answering = |entry: &crate::catalog::groups::GroupEntry| {
        entry.members.values().all(|server| observed.liveness.is_live(*server))
    };
    let whole: Vec<Candidate> =
        groups().filter(|(entry, _)| answering(entry)).map(|(_, candidate)| candidate).collect();
    if !whole.is_empty() {
        return whole;
    }
    groups().filter(|(entry, _)| entry.state == GroupState::Open).map(|(_, candidate)| candidate).collect()
}

/// What new tables wait for, in words; `None` when groups are there or on their way.
pub fn waiting_for(catalog: &Catalog, observed: &Observations) -> Option<String> {
    if !catalog.groups().is_empty() {
        return None;
    }
    let wanted = usize::try_from(catalog.replication()).unwrap_or(0);
    let live = catalog.servers().iter().filter(|(server, _)| observed.liveness.is_live(*server)).count();
    (live < wanted).then(|| {
        let missing = wanted - live;
        let servers = if missing == 1 { "server" } else { "servers" };
        format!("waiting for {missing} more region {servers}: {live} of {wanted} are registered and alive")
    })
}

fn refuse_meta(name: &TableName) -> Result<(), Error> {
    if name.is_meta() { Err(Error::ReadOnly { what: "table meta".into() }) } else { Ok(()) }
}

fn not_found(name: &TableName) -> Error {
    Error::NotFound { what: format!("table {name}") }
}

fn unexpected(outcome: &Outcome) -> Error {
    Error::Internal { message: format!("the catalog answered a create with {outcome:?}") }
}
