//! The calls of administrators for programs without async code.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::NamespaceName;
use terrane_types::admin::cluster::{ClusterStatus, RegionInfo, ServerInfo, TableInfo};

use super::Waiter;
use crate::api::admin::spec::{TableChange, TableSpec};
use crate::error::Error;

/// An administrator's calls on tables and namespaces, and what a cluster has. For the others:
/// `client.wait(client.admin().inner().flush_table("users", |_| ()))`.
#[derive(Clone, Debug)]
pub struct Admin {
    admin: crate::Admin,
    waiter: Arc<Waiter>,
}

impl Admin {
    pub(super) const fn new(admin: crate::Admin, waiter: Arc<Waiter>) -> Self {
        Self { admin, waiter }
    }

    /// The underlying async handle, for calls that are not wrapped here.
    #[must_use]
    pub const fn inner(&self) -> &crate::Admin {
        &self.admin
    }

    /// The same handle with another timeout for each call.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.admin = self.admin.with_timeout(timeout);
        self
    }

    /// Creates a table: see [`crate::Admin::create_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::create_table`].
    pub fn create_table(&self, spec: TableSpec) -> Result<TableInfo, Error> {
        self.waiter.wait(self.admin.create_table(spec))
    }

    /// Changes attributes and families of a table, online: see [`crate::Admin::alter_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::alter_table`].
    pub fn alter_table(&self, name: &str, change: TableChange) -> Result<TableInfo, Error> {
        self.waiter.wait(self.admin.alter_table(name, change))
    }

    /// Drops a table and everything in it: see [`crate::Admin::drop_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::drop_table`].
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        self.waiter.wait(self.admin.drop_table(name))
    }

    /// Removes all rows of a table: see [`crate::Admin::truncate_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::truncate_table`].
    pub fn truncate_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.waiter.wait(self.admin.truncate_table(name))
    }

    /// Disables a table: see [`crate::Admin::disable_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::disable_table`].
    pub fn disable_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.waiter.wait(self.admin.disable_table(name))
    }

    /// Enables a table that was disabled: see [`crate::Admin::enable_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::enable_table`].
    pub fn enable_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.waiter.wait(self.admin.enable_table(name))
    }

    /// One table: see [`crate::Admin::describe_table`].
    ///
    /// # Errors
    /// As for [`crate::Admin::describe_table`].
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, Error> {
        self.waiter.wait(self.admin.describe_table(name))
    }

    /// All tables: see [`crate::Admin::list_tables`].
    ///
    /// # Errors
    /// As for [`crate::Admin::list_tables`].
    pub fn list_tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.waiter.wait(self.admin.list_tables())
    }

    /// The tables of one namespace: see [`crate::Admin::list_tables_in`].
    ///
    /// # Errors
    /// As for [`crate::Admin::list_tables_in`].
    pub fn list_tables_in(&self, namespace: &str) -> Result<Vec<TableInfo>, Error> {
        self.waiter.wait(self.admin.list_tables_in(namespace))
    }

    /// Creates a namespace: see [`crate::Admin::create_namespace`].
    ///
    /// # Errors
    /// As for [`crate::Admin::create_namespace`].
    pub fn create_namespace(&self, name: &str) -> Result<(), Error> {
        self.waiter.wait(self.admin.create_namespace(name))
    }

    /// Drops a namespace that has no tables: see [`crate::Admin::drop_namespace`].
    ///
    /// # Errors
    /// As for [`crate::Admin::drop_namespace`].
    pub fn drop_namespace(&self, name: &str) -> Result<(), Error> {
        self.waiter.wait(self.admin.drop_namespace(name))
    }

    /// All namespaces: see [`crate::Admin::list_namespaces`].
    ///
    /// # Errors
    /// As for [`crate::Admin::list_namespaces`].
    pub fn list_namespaces(&self) -> Result<Vec<NamespaceName>, Error> {
        self.waiter.wait(self.admin.list_namespaces())
    }

    /// The regions of one table, or of all tables: see [`crate::Admin::regions`].
    ///
    /// # Errors
    /// As for [`crate::Admin::regions`].
    pub fn regions(&self, table: Option<&str>) -> Result<Vec<RegionInfo>, Error> {
        self.waiter.wait(self.admin.regions(table))
    }

    /// All region servers: see [`crate::Admin::servers`].
    ///
    /// # Errors
    /// As for [`crate::Admin::servers`].
    pub fn servers(&self) -> Result<Vec<ServerInfo>, Error> {
        self.waiter.wait(self.admin.servers())
    }

    /// A summary of the whole cluster: see [`crate::Admin::status`].
    ///
    /// # Errors
    /// As for [`crate::Admin::status`].
    pub fn status(&self) -> Result<ClusterStatus, Error> {
        self.waiter.wait(self.admin.status())
    }
}
