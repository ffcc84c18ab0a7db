//! The administrator's calls: tables, namespaces, servers, regions and groups.
//!
//! Masters answer all of them but flushes and compactions ([`maintenance`]) and questions to single processes ([`diagnostics`]). Reads go to every master until one answers or
//! the deadline passes; so do changes of tables and namespaces, each under an id by which masters recognise a repeated one.
//! A change whose answer is lost for good is [`Error::Uncertain`]: look at the present state before you repeat it. So is one
//! that a master has accepted and not completed in time: it completes the change ([`Error::is_uncertain`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_types::admin::cluster::{ClusterStatus, GroupInfo, RegionInfo, ServerInfo, TableInfo};
use terrane_types::{NamespaceName, RegionDescriptor, RegionId};

use crate::api::core::Core;
use crate::error::Error;
use crate::wire::masters::Masters;

pub(crate) mod diagnostics;
pub(crate) mod fleet;
pub(crate) mod hot;
pub(crate) mod maintenance;
pub(crate) mod past;
pub(crate) mod slow;
pub(crate) mod spec;

use spec::{TableChange, TableSpec};

/// An administrator's calls. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    core: Arc<Core>,
    timeout: Duration,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("cluster", &self.core.router.cluster).finish()
    }
}

impl Admin {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { timeout: core.timeout, core }
    }

    fn masters(&self) -> &Masters {
        self.core.masters()
    }

    /// The same handle with another timeout for each call.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Creates a table. The table is usable when the call returns; while the cluster has too few servers, the call waits.
    /// The table's namespace must exist ([`Admin::create_namespace`]).
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::AlreadyExists`]; [`Error::Uncertain`] when the answer was lost: check whether the table
    /// exists.
    pub async fn create_table(&self, spec: TableSpec) -> Result<TableInfo, Error> {
        spec.schema.check()?;
        self.masters().create_table(spec, self.timeout).await
    }

    /// Changes attributes and families of a table. The change is in force in every region when the call returns. If the
    /// time runs out first (a group has no leader, for example), the master still completes the change, and the error says
    /// what it is waiting for.
    ///
    /// ```no_run
    /// use terrane_client::TableChange;
    /// # async fn run(admin: terrane_client::Admin) -> Result<(), terrane_client::Error> {
    /// let change = TableChange::new().set("read_only", "true").family("info", &[("ttl", "30d")]);
    /// admin.alter_table("users", change).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotFound`]; [`Error::Uncertain`] when the answer was lost: describe the table.
    pub async fn alter_table(&self, name: &str, change: TableChange) -> Result<TableInfo, Error> {
        self.masters().alter_table(name, change, self.timeout).await
    }

    /// Drops a table and everything in it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Uncertain`] when the answer was lost.
    pub async fn drop_table(&self, name: &str) -> Result<(), Error> {
        self.masters().drop_table(name, self.timeout).await
    }

    /// Removes all rows of a table, which keeps its schema and the boundaries of its regions. A table of the same name takes
    /// its place at once, and is usable when the call returns: open it again ([`Client::table`](crate::Client::table)), since
    /// handles that were opened before answer [`Error::NotFound`].
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Uncertain`] when the answer was lost.
    pub async fn truncate_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.masters().truncate_table(name, self.timeout).await
    }

    /// Disables a table: reads and writes fail with [`Error::Disabled`] until it is enabled. Its data stays.
    ///
    /// # Errors
    /// As for [`Admin::alter_table`].
    pub async fn disable_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.alter_table(name, TableChange::new().set("disabled", "true")).await
    }

    /// Enables a table that was disabled.
    ///
    /// # Errors
    /// As for [`Admin::alter_table`].
    pub async fn enable_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.alter_table(name, TableChange::new().set("disabled", "false")).await
    }

    /// All tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.masters().list_tables(String::new(), self.timeout).await
    }

    /// The tables of one namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such namespace, [`Error::Invalid`] when the name is malformed.
    pub async fn list_tables_in(&self, namespace: &str) -> Result<Vec<TableInfo>, Error> {
        let namespace = NamespaceName::new(namespace)?.to_string();
        self.masters().list_tables(namespace, self.timeout).await
    }

    /// Creates a namespace. When the call returns, tables can be created in it as `namespace:table`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the name is malformed, [`Error::AlreadyExists`]; [`Error::Uncertain`] when the answer was
    /// lost: check whether the namespace exists.
    pub async fn create_namespace(&self, name: &str) -> Result<(), Error> {
        let name = NamespaceName::new(name)?;
        self.masters().create_namespace(name, self.timeout).await
    }

    /// Drops a namespace that has no tables.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the namespace still has tables, some of which the message names, and for `default`;
    /// [`Error::NotFound`]; [`Error::Uncertain`] when the answer was lost.
    pub async fn drop_namespace(&self, name: &str) -> Result<(), Error> {
        let name = NamespaceName::new(name)?;
        self.masters().drop_namespace(name, self.timeout).await
    }

    /// All namespaces, sorted; `default` is always among them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_namespaces(&self) -> Result<Vec<NamespaceName>, Error> {
        self.masters().list_namespaces(self.timeout).await
    }

    /// One table.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no table of that name.
    pub async fn describe_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.masters().describe_table(name, self.timeout).await
    }

    /// All region servers.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn servers(&self) -> Result<Vec<ServerInfo>, Error> {
        self.masters().servers(self.timeout).await
    }

    /// All log groups.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn groups(&self) -> Result<Vec<GroupInfo>, Error> {
        self.masters().groups(self.timeout).await
    }

    /// The regions of one table, or of all tables.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table.
    pub async fn regions(&self, table: Option<&str>) -> Result<Vec<RegionInfo>, Error> {
        self.masters().regions(table.unwrap_or_default().to_owned(), self.timeout).await
    }

    /// A summary of the whole cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        self.masters().status(self.timeout).await
    }

    /// Splits a region at a row, or near its middle. Returns the two daughters.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] when the region cannot be split there; [`Error::Uncertain`] when the answer
    /// was lost.
    pub async fn split(&self, region: RegionId, at: Option<&[u8]>) -> Result<Vec<RegionDescriptor>, Error> {
        let at = at.map(Bytes::copy_from_slice).unwrap_or_default();
        self.masters().split(region, at, self.timeout).await
    }

    /// Merges two neighbouring regions, named in either order. Returns the merged region. If they are in two groups, the
    /// smaller one moves into the group of the other first, which takes as long as the copy of its files: use a handle with a
    /// longer timeout, or repeat the call.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] when the two cannot be merged, with the reason; [`Error::Uncertain`] when the
    /// answer was lost.
    pub async fn merge(&self, one: RegionId, other: RegionId) -> Result<RegionDescriptor, Error> {
        self.masters().merge(one, other, self.timeout).await
    }
}
