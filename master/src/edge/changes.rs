//! Orders: changes of tables, namespaces, regions and servers.

use std::time::Duration;

use bytes::Bytes;
use terrane_proto::v1;
use terrane_types::{Error, Invalid, NamespaceName, RegionDescriptor, RegionId, ServerId, TableName, TableSchema};
use tokio::time::Instant;

use super::Edge;
use crate::catalog::moves::{MoveEnd, MoveId};
use crate::catalog::namespaces::Properties;
use crate::catalog::requests::RequestId;
use crate::fleet::{intents, region_moves};
use crate::tables::schemas::TableChange;

/// How long a caller waits before it repeats a change that another master continues.
const REPEAT_AFTER: Duration = Duration::from_millis(50);

/// A change: who asks, until when, and the number that makes a repetition harmless.
#[derive(Clone, Debug)]
pub struct Order {
    /// The same in every attempt; `None`: the change is made once per attempt.
    pub id: Option<[u8; 16]>,
    /// When the caller gives up. The master continues with what it has accepted.
    pub deadline: Instant,
    /// The caller, for the audit stream.
    pub peer: String,
}

impl Order {
    fn id(&self) -> Option<RequestId> {
        self.id.map(RequestId)
    }

    /// The number of an order's second change.
    fn second_id(&self) -> Option<RequestId> {
        self.id.map(|id| RequestId(id.map(|byte| !byte)))
    }
}

impl Edge {
    /// Whether an order has changed a table already: its effect may be complete.
    pub fn has_made(&self, order: &Order) -> bool {
        order.id().is_some_and(|id| self.context.journal.read(|catalog| catalog.requests().get(id).is_some()))
    }

    /// Creates a table; its regions are usable when this returns.
    ///
    /// # Errors
    /// Why it was not created, or that the master continues with it.
    pub async fn create_table(&self, schema: TableSchema, split_at: Vec<Bytes>, order: &Order) -> Result<(), Error> {
        let name = schema.name.clone();
        let created = self.tables.create(schema, split_at, order.id(), order.deadline);
        self.lead("create table", &name, order, async { created.await.map(drop) }).await
    }

    /// Drops a table; all groups have removed it when this returns.
    ///
    /// # Errors
    /// Why it was not dropped, or that the master continues with it.
    pub async fn drop_table(&self, name: &TableName, order: &Order) -> Result<(), Error> {
        let dropped = self.tables.drop(name, order.id(), order.deadline);
        self.lead("drop table", name, order, dropped).await
    }

    /// Disables a table, so that it takes neither reads nor writes, or enables it again.
    ///
    /// # Errors
    /// Why it was not changed, or that the master continues with it.
    pub async fn set_disabled(&self, name: &TableName, disabled: bool, order: &Order) -> Result<(), Error> {
        let change = disabling(disabled);
        let altered = self.tables.alter(name, &change, order.id(), order.deadline);
        self.lead(if disabled { "disable table" } else { "enable table" }, name, order, altered).await
    }

    /// Gives a table another schema as a whole, made from the version that it names.
    ///
    /// # Errors
    /// [`Error::SchemaChanged`] if there is a newer version, why it was not changed, or that the master continues with it.
    pub async fn modify_table(&self, wanted: &TableSchema, order: &Order) -> Result<(), Error> {
        let altered = self.tables.modify(&wanted.name, wanted, order.id(), order.deadline);
        self.lead("alter table", &wanted.name, order, altered).await
    }

    /// Empties a table and enables it. It keeps its regions, or has a single one.
    ///
    /// # Errors
    /// Why it was not emptied, or that the master continues with it.
    pub async fn truncate_table(&self, name: &TableName, keep_splits: bool, order: &Order) -> Result<(), Error> {
        let truncated = async {
            self.tables.truncate(name, keep_splits, order.id(), order.deadline).await?;
            let text = name.to_string();
            let known =
                self.context.journal.read(|catalog| catalog.tables().named(&text).map(|entry| entry.schema.disabled));
            match known {
                Some(true) => self.tables.alter(name, &disabling(false), order.second_id(), order.deadline).await,
                _ => Ok(()),
            }
        };
        self.lead("truncate table", name, order, truncated).await
    }

    /// Writes the memtables of a table to files, on every live server.
    ///
    /// # Errors
    /// Which server did not, and why.
    pub async fn flush_table(&self, name: &TableName, order: &Order) -> Result<(), Error> {
        let flushed = async {
            let text = name.to_string();
            let table =
                self.context.journal.read(|catalog| catalog.tables().named(&text).map(|entry| entry.schema.table));
            let table = table.ok_or_else(|| Error::NotFound { what: format!("table {name}") })?;
            let servers = self.context.journal.read(|catalog| {
                let known = catalog.servers().iter().map(|(server, _)| server);
                let live = |observed: &mut crate::servers::observed::Observations| {
                    known.filter(|server| observed.liveness.is_live(*server)).collect::<Vec<_>>()
                };
                self.context.observed.with(live)
            });
            let flushes =
                servers.into_iter().map(|server| self.context.orders.flush_table(server, table, order.deadline));
            futures::future::try_join_all(flushes).await.map(drop)
        };
        self.lead("flush table", name, order, flushed).await
    }

    /// Creates a namespace.
    ///
    /// # Errors
    /// Why it was not created.
    pub async fn create_namespace(
        &self,
        name: &NamespaceName,
        properties: Properties,
        order: &Order,
    ) -> Result<(), Error> {
        let created = self.tables.create_namespace(name.clone(), properties, order.id());
        self.lead("create namespace", name, order, created).await
    }

    /// Replaces the properties of a namespace.
    ///
    /// # Errors
    /// Why they were not replaced.
    pub async fn set_properties(
        &self,
        name: &NamespaceName,
        properties: Properties,
        order: &Order,
    ) -> Result<(), Error> {
        let changed = self.tables.set_properties(name.clone(), properties, order.id());
        self.lead("modify namespace", name, order, changed).await
    }

    /// Drops a namespace without tables.
    ///
    /// # Errors
    /// Why it was not dropped.
    pub async fn drop_namespace(&self, name: &NamespaceName, order: &Order) -> Result<(), Error> {
        let dropped = self.tables.drop_namespace(name.clone(), order.id());
        self.lead("drop namespace", name, order, dropped).await
    }

    /// Splits a region, near its middle if `at` is empty; returns the daughters.
    ///
    /// # Errors
    /// Why it was not split. If another master leads meanwhile, the outcome is unknown.
    pub async fn split(&self, region: RegionId, at: Bytes, order: &Order) -> Result<Vec<RegionDescriptor>, Error> {
        self.lead("split region", region, order, self.regions.split(region, at)).await
    }

    /// Merges two neighbours, in either order; returns the merged region.
    ///
    /// # Errors
    /// Why they were not merged. If another master leads meanwhile, the outcome is unknown.
    pub async fn merge(&self, one: RegionId, other: RegionId, order: &Order) -> Result<RegionDescriptor, Error> {
        let subject = format!("{one} and {other}");
        self.lead("merge regions", subject, order, self.regions.merge(one, other, order.deadline)).await
    }

    /// Moves a region to a server; it is there when this returns.
    ///
    /// # Errors
    /// Why it does not move there, or that it is still moving.
    pub async fn move_region(&self, region: RegionId, to: ServerId, order: &Order) -> Result<(), Error> {
        let subject = format!("{region} to {to}");
        let moved = async {
            let begun = region_moves::begin(&self.context, region, &to.to_string()).await?;
            let id = MoveId(begun.r#move);
            let context = &self.context;
            let ended = || context.journal.read(|catalog| catalog.moves().end_of(id).map(|ended| ended.end.clone()));
            match context.journal.wait_until(order.deadline, ended).await {
                Some(MoveEnd::Moved(_)) => Ok(()),
                Some(MoveEnd::Undone(why)) => Err(Error::Invalid(Invalid::new(format!("the move was undone: {why}")))),
                None => {
                    let message = format!("region {region} is still moving (move-{id})");
                    Err(Error::InProgress { message, retry_after: REPEAT_AFTER })
                }
            }
        };
        self.lead("move region", subject, order, moved).await
    }

    /// Begins or ends the drain of a server.
    ///
    /// # Errors
    /// Why it is not drained, or was not being drained.
    pub async fn set_draining(&self, server: ServerId, drains: bool, order: &Order) -> Result<(), Error> {
        let change = if drains { v1::ServerChange::Drain } else { v1::ServerChange::Undrain };
        let name = server.to_string();
        let changed = async { intents::change_server(&self.context, &name, change).await.map(drop) };
        self.lead(if drains { "drain server" } else { "undrain server" }, server, order, changed).await
    }

    /// A change that only the leader makes, with its line in the audit stream. If this master loses the leadership meanwhile,
    /// the next one continues.
    pub(super) async fn lead<T>(
        &self,
        action: &'static str,
        subject: impl std::fmt::Display + Send,
        order: &Order,
        change: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        self.context.leadership.admit(order.deadline).await?;
        let result = tokio::select! {
            biased;
            result = change => result,
            () = self.context.leadership.lost() => {
                let message = "another master leads now; it continues with what was accepted".to_owned();
                Err(Error::InProgress { message, retry_after: REPEAT_AFTER })
            }
        };
        let outcome = result.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        tracing::info!(target: "audit", action, %subject, peer = order.peer, outcome);
        result
    }
}

fn disabling(disabled: bool) -> TableChange {
    TableChange { set: [("disabled".to_owned(), disabled.to_string())].into(), ..TableChange::default() }
}
