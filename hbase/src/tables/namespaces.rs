//! Namespaces. They have a name and no properties: a property is a limit or a rule, so one that is asked for is refused.
//!
//! `hbase` always exists: it holds the system tables, and nothing else.

use bytes::Bytes;
use terrane_types::{Error, NamespaceName};
use tokio::time::Instant;

use super::descriptors::show_table;
use super::procedures::{begin, nonce};
use super::system::SystemTable;
use super::{TableCalls, exception};
use crate::exception::{CONSTRAINT, Exception, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND};
use crate::proto;
use crate::region_name::table_name;
use crate::serve::{Answer, Outcome};

/// The reserved namespace.
pub(super) const SYSTEM: &str = "hbase";

impl TableCalls {
    /// All names, sorted.
    async fn namespaces(&self, until: Instant) -> Result<Vec<String>, Exception> {
        let mut names: Vec<String> = self.master.map(until).await?.namespaces.iter().map(ToString::to_string).collect();
        names.push(SYSTEM.to_owned());
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// All descriptors, sorted by name.
    pub(super) async fn namespace_descriptors(
        &self,
        until: Instant,
    ) -> Result<Vec<proto::NamespaceDescriptor>, Exception> {
        Ok(self.namespaces(until).await?.into_iter().map(show).collect())
    }

    async fn check_exists(&self, name: &str, until: Instant) -> Result<(), Exception> {
        if self.namespaces(until).await?.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(Exception::new(NAMESPACE_NOT_FOUND, name))
    }

    pub(super) async fn create_namespace(&self, request: &proto::NamespaceRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read(&request.namespace_descriptor)?, nonce(request.nonce_group(), request.nonce()));
        if !self.master.procedures.knows(nonce) && self.namespaces(until).await?.contains(&name) {
            return Err(Exception::new(NAMESPACE_EXISTS, name));
        }
        let name = checked(&name)?;
        let (master, order) = (self.master.clone(), self.order(nonce));
        let created =
            async move { master.edge.create_namespace(&name, &order).await.map_err(|error| exception(&error)) };
        Ok(Answer::of(&begin(&self.master, nonce, "CreateNamespaceProcedure", created)?))
    }

    /// Properties are the only thing that could be modified.
    pub(super) async fn modify_namespace(&self, request: &proto::NamespaceRequest, until: Instant) -> Outcome {
        let name = read(&request.namespace_descriptor)?;
        let nonce = nonce(request.nonce_group(), request.nonce());
        self.check_exists(&name, until).await?;
        Ok(Answer::of(&begin(&self.master, nonce, "ModifyNamespaceProcedure", async { Ok(()) })?))
    }

    pub(super) async fn delete_namespace(&self, request: &proto::NamespaceNameRequest, until: Instant) -> Outcome {
        let (name, nonce) = (request.namespace_name.clone(), nonce(request.nonce_group(), request.nonce()));
        if matches!(name.as_str(), SYSTEM | "default") {
            return Err(Exception::new(CONSTRAINT, format!("the namespace {name} is reserved and cannot be removed")));
        }
        if !self.master.procedures.knows(nonce) {
            self.check_exists(&name, until).await?;
        }
        let name = checked(&name)?;
        let (master, order) = (self.master.clone(), self.order(nonce));
        let dropped = async move {
            master.edge.drop_namespace(&name, &order).await.map_err(|error| match error {
                Error::Invalid(refused) => Exception::new(CONSTRAINT, refused.what),
                error => exception(&error),
            })
        };
        Ok(Answer::of(&begin(&self.master, nonce, "DeleteNamespaceProcedure", dropped)?))
    }

    pub(super) async fn describe_one_namespace(
        &self,
        request: &proto::NamespaceNameRequest,
        until: Instant,
    ) -> Outcome {
        self.check_exists(&request.namespace_name, until).await?;
        let namespace_descriptor = show(request.namespace_name.clone());
        Ok(Answer::of(&proto::GetNamespaceDescriptorResponse { namespace_descriptor }))
    }

    pub(super) async fn list_namespaces(&self, until: Instant) -> Outcome {
        let namespace_name = self.namespaces(until).await?;
        Ok(Answer::of(&proto::ListNamespacesResponse { namespace_name }))
    }

    pub(super) async fn describe_namespaces(&self, until: Instant) -> Outcome {
        let namespace_descriptor = self.namespace_descriptors(until).await?;
        Ok(Answer::of(&proto::ListNamespaceDescriptorsResponse { namespace_descriptor }))
    }

    pub(super) async fn describe_namespace(&self, request: proto::NamespaceNameRequest, until: Instant) -> Outcome {
        self.check_exists(&request.namespace_name, until).await?;
        let tables = self.master.map(until).await?.tables.into_iter();
        let tables = tables.filter(|table| table.schema.name.namespace() == request.namespace_name);
        let mut table_schema: Vec<_> = tables.map(|table| show_table(&table.schema)).collect();
        if request.namespace_name == SYSTEM {
            table_schema.extend(SystemTable::ALL.map(SystemTable::show));
        }
        Ok(Answer::of(&proto::GetTableDescriptorsResponse { table_schema }))
    }

    pub(super) async fn names_of_namespace(&self, request: proto::NamespaceNameRequest, until: Instant) -> Outcome {
        self.check_exists(&request.namespace_name, until).await?;
        let tables = self.master.map(until).await?.tables.into_iter();
        let tables = tables.filter(|table| table.schema.name.namespace() == request.namespace_name);
        let mut table_names: Vec<_> = tables.map(|table| table_name(&table.schema.name)).collect();
        if request.namespace_name == SYSTEM {
            table_names.extend(SystemTable::ALL.map(SystemTable::name));
        }
        Ok(Answer::of(&proto::GetTableNamesResponse { table_names }))
    }
}

fn show(name: String) -> proto::NamespaceDescriptor {
    proto::NamespaceDescriptor { name: Bytes::from(name), configuration: Vec::new() }
}

/// The name in a descriptor.
fn read(descriptor: &proto::NamespaceDescriptor) -> Result<String, Exception> {
    if let Some(property) = descriptor.configuration.first() {
        let text = format!("namespaces have no properties here; leave {} out", property.name);
        return Err(Exception::new(CONSTRAINT, text));
    }
    Ok(String::from_utf8_lossy(&descriptor.name).into_owned())
}

fn checked(name: &str) -> Result<NamespaceName, Exception> {
    NamespaceName::new(name).map_err(|refused| Exception::bad_request(&refused.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_a_namespace_are_refused_and_not_ignored() {
        let mut descriptor = show("n".to_owned());
        assert_eq!(read(&descriptor).unwrap(), "n");
        let (name, value) = ("hbase.namespace.quota.maxtables".to_owned(), "5".to_owned());
        descriptor.configuration.push(proto::NameStringPair { name, value });
        let refused = read(&descriptor).unwrap_err();
        assert!(refused.class.ends_with("ConstraintException") && refused.text.contains("maxtables"));
        assert!(checked("a:b").is_err());
    }
}
