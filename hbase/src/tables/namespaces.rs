//! Namespaces. Their properties are kept by the catalog as they are given. Those that HBase itself obeys are limits and rules
//! that we lack: they are refused.
//!
//! `hbase` always exists: it holds the system tables, and nothing else.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_master::edge::Properties;
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
/// Properties that HBase obeys, and why they are refused.
const OBEYED: [(&str, &str); 3] = [
    ("hbase.namespace.quota.maxtables", "quota support disabled: the tables of a namespace are not limited"),
    ("hbase.namespace.quota.maxregions", "quota support disabled: the regions of a namespace are not limited"),
    ("hbase.rsgroup.name", "RSGroup does not exist: there are no groups of region servers"),
];

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
        let (names, properties) = (self.namespaces(until).await?, self.properties(until).await?);
        Ok(names.into_iter().map(|name| show(name, &properties)).collect())
    }

    async fn properties(&self, until: Instant) -> Result<BTreeMap<NamespaceName, Properties>, Exception> {
        self.master.edge.properties(until).await.map_err(|error| exception(&error))
    }

    pub(super) async fn check_exists(&self, name: &str, until: Instant) -> Result<(), Exception> {
        if self.namespaces(until).await?.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(Exception::new(NAMESPACE_NOT_FOUND, name))
    }

    pub(super) async fn create_namespace(&self, request: &proto::NamespaceRequest, until: Instant) -> Outcome {
        let (name, properties) = read(&request.namespace_descriptor)?;
        let nonce = nonce(request.nonce_group(), request.nonce());
        if !self.master.procedures.knows(nonce) && self.namespaces(until).await?.contains(&name) {
            return Err(Exception::new(NAMESPACE_EXISTS, name));
        }
        let name = checked(&name)?;
        let (master, order) = (self.master.clone(), self.order(nonce));
        let created = async move {
            master.edge.create_namespace(&name, properties, &order).await.map_err(|error| refused(&error))
        };
        Ok(Answer::of(&begin(&self.master, nonce, "CreateNamespaceProcedure", created)?))
    }

    /// Replaces the properties, which are all that can be modified.
    pub(super) async fn modify_namespace(&self, request: &proto::NamespaceRequest, until: Instant) -> Outcome {
        let (name, properties) = read(&request.namespace_descriptor)?;
        let nonce = nonce(request.nonce_group(), request.nonce());
        if name == SYSTEM {
            return Err(Exception::new(CONSTRAINT, "the namespace hbase is reserved and cannot be modified"));
        }
        if !self.master.procedures.knows(nonce) {
            self.check_exists(&name, until).await?;
        }
        let name = checked(&name)?;
        let (master, order) = (self.master.clone(), self.order(nonce));
        let modified = async move {
            master.edge.set_properties(&name, properties, &order).await.map_err(|error| match error {
                Error::NotFound { .. } => Exception::new(NAMESPACE_NOT_FOUND, name.to_string()),
                error => refused(&error),
            })
        };
        Ok(Answer::of(&begin(&self.master, nonce, "ModifyNamespaceProcedure", modified)?))
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
        let dropped = async move { master.edge.drop_namespace(&name, &order).await.map_err(|error| refused(&error)) };
        Ok(Answer::of(&begin(&self.master, nonce, "DeleteNamespaceProcedure", dropped)?))
    }

    pub(super) async fn describe_one_namespace(
        &self,
        request: &proto::NamespaceNameRequest,
        until: Instant,
    ) -> Outcome {
        self.check_exists(&request.namespace_name, until).await?;
        let properties = self.properties(until).await?;
        let namespace_descriptor = show(request.namespace_name.clone(), &properties);
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

fn show(name: String, properties: &BTreeMap<NamespaceName, Properties>) -> proto::NamespaceDescriptor {
    let properties = properties.get(name.as_str()).into_iter().flatten();
    let configuration =
        properties.map(|(name, value)| proto::NameStringPair { name: name.clone(), value: value.clone() }).collect();
    proto::NamespaceDescriptor { name: Bytes::from(name), configuration }
}

/// The name and the properties in a descriptor.
fn read(descriptor: &proto::NamespaceDescriptor) -> Result<(String, Properties), Exception> {
    for property in &descriptor.configuration {
        if let Some((name, why)) = OBEYED.iter().find(|(name, _)| *name == property.name) {
            return Err(Exception::new(CONSTRAINT, format!("{why}; leave {name} out")));
        }
    }
    let pairs = descriptor.configuration.iter().map(|property| (property.name.clone(), property.value.clone()));
    Ok((String::from_utf8_lossy(&descriptor.name).into_owned(), pairs.collect()))
}

fn checked(name: &str) -> Result<NamespaceName, Exception> {
    NamespaceName::new(name).map_err(|refused| Exception::bad_request(&refused.what))
}

/// What breaks a rule of namespaces has a class of its own in HBase.
fn refused(error: &Error) -> Exception {
    match error {
        Error::Invalid(refused) => Exception::new(CONSTRAINT, refused.what.clone()),
        error => exception(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(name: &str, value: &str) -> proto::NamespaceDescriptor {
        let configuration = vec![proto::NameStringPair { name: name.to_owned(), value: value.to_owned() }];
        proto::NamespaceDescriptor { name: Bytes::from_static(b"n"), configuration }
    }

    #[test]
    fn properties_that_hbase_obeys_are_refused_and_not_ignored() {
        for name in ["hbase.namespace.quota.maxtables", "hbase.namespace.quota.maxregions", "hbase.rsgroup.name"] {
            let refused = read(&descriptor(name, "5")).unwrap_err();
            assert!(refused.class.ends_with("ConstraintException") && refused.text.contains(name), "{}", refused.text);
        }
        assert!(checked("a:b").is_err());
    }

    #[test]
    fn other_properties_are_shown_as_they_were_given() {
        let given = descriptor("owner \u{e4}", "\0 =\n");
        let (name, properties) = read(&given).unwrap();
        let kept = BTreeMap::from([(checked(&name).unwrap(), properties)]);
        assert_eq!(show(name, &kept), given);
        assert_eq!(show("m".to_owned(), &kept).configuration, []);
    }
}
