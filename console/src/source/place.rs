//! What an event, a procedure or a problem is about, so that the pages can link to it.

use serde::{Deserialize, Serialize};

/// A thing that has a page, or a place on one; in JSON, `{"table":"actions"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A region server.
    Server(u64),
    /// A table.
    Table(String),
    /// A region.
    Region(u64),
    /// A log group.
    Group(u64),
    /// A setting.
    Setting(String),
}
