//! What an event, a procedure or a health issue is about.

use crate::{GroupId, RegionId, ServerId};

/// A thing of a cluster, to look it up by; in JSON, `{"table":"actions"}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Place {
    /// A region server.
    Server(ServerId),
    /// A table, by its name.
    Table(String),
    /// A region.
    Region(RegionId),
    /// A log group.
    Group(GroupId),
    /// A master, by its address.
    Master(String),
    /// A setting, by its name.
    Setting(String),
}
