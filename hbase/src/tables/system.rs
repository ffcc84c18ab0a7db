//! The system tables: a master renders them instead of storing them, and so serves them itself.

use bytes::Bytes;
use terrane_types::escape;
use tokio::time::Instant;

use super::descriptors::{FOREVER, pair};
use super::{Master, TableCalls};
use crate::exception::{Exception, NOT_SERVING_REGION};
use crate::meta::{REGION_FAMILY, TABLE_FAMILY, View};
use crate::proto;
use crate::region_name::{
    NAMESPACE_REGION, is_meta, meta_region_info, named, namespace_table, region_name, table_name,
};

/// A system table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemTable {
    /// `hbase:meta`: the regions and the states of tables.
    Meta,
    /// `hbase:namespace`: the namespaces.
    Namespace,
}

impl SystemTable {
    pub(super) const ALL: [Self; 2] = [Self::Meta, Self::Namespace];

    pub(super) fn name(self) -> proto::TableName {
        match self {
            Self::Meta => meta_region_info().table_name,
            Self::Namespace => table_name(&namespace_table()),
        }
    }

    pub(super) fn of_name(name: &proto::TableName) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == *name)
    }

    /// The table of this region.
    pub(super) fn of_region(region: &proto::RegionSpecifier) -> Result<Self, Exception> {
        if is_meta(region) {
            return Ok(Self::Meta);
        }
        if named(region, NAMESPACE_REGION, || region_name(&namespace_table(), b"", NAMESPACE_REGION)) {
            return Ok(Self::Namespace);
        }
        let text = format!("region {} is not served by a master", escape(&region.value));
        Err(Exception::new(NOT_SERVING_REGION, text))
    }

    pub(super) const fn families(self) -> &'static [&'static [u8]] {
        match self {
            Self::Meta => &[REGION_FAMILY, TABLE_FAMILY],
            Self::Namespace => &[REGION_FAMILY],
        }
    }

    /// Its descriptor for clients.
    pub(super) fn show(self) -> proto::TableSchema {
        let family = |name: &&'static [u8]| proto::ColumnFamilySchema {
            name: Bytes::from_static(name),
            attributes: [("VERSIONS", "1"), ("TTL", FOREVER), ("IN_MEMORY", "true")]
                .map(|(name, value)| pair(name, value.to_owned()))
                .to_vec(),
            configuration: Vec::new(),
        };
        let is_meta = (self == Self::Meta).to_string();
        proto::TableSchema {
            table_name: Some(self.name()),
            attributes: vec![pair("IS_META", is_meta), pair("READONLY", "true".to_owned())],
            column_families: self.families().iter().map(family).collect(),
            configuration: Vec::new(),
        }
    }
}

impl Master {
    /// Some clients read up to now, without now itself; so cells are as old as this process.
    pub(super) fn began(&self) -> i64 {
        i64::try_from(self.own.start_code).unwrap_or(0)
    }
}

impl TableCalls {
    /// The rows of a table now.
    pub(super) async fn view(&self, table: SystemTable, until: Instant) -> Result<View, Exception> {
        match table {
            SystemTable::Meta => self.master.view(until).await,
            SystemTable::Namespace => {
                Ok(View::of_namespaces(self.namespace_descriptors(until).await?, self.master.began()))
            }
        }
    }
}
