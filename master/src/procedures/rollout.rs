//! The rollout of a table's change to its groups, as a state machine without I/O.
//!
//! A rollout is derived from the catalog only, so a restarted master resumes it by deriving it again: orders are
//! idempotent, and a group that has already followed one confirms it at once.

use std::collections::BTreeMap;

use terrane_types::{Error, GroupId, TableId};

use crate::catalog::tables::TableState;
use crate::catalog::{Catalog, CatalogEdit};
use crate::orders::{TableOrder, is_final};

/// An unfinished create, alter or drop of one table.
#[derive(Debug)]
pub struct Rollout {
    table: TableId,
    /// What is being done to the table.
    state: TableState,
    /// The schema version that is rolled out.
    version: u64,
    /// The groups that have not followed their order yet.
    pending: BTreeMap<GroupId, TableOrder>,
}

impl Rollout {
    /// The rollout that a table's state in the catalog asks for; `None` if the table is enabled or gone. Regions stay
    /// in their groups, so the groups are those that have regions of the table now.
    pub fn resume(catalog: &Catalog, table: TableId) -> Option<Self> {
        let entry = catalog.tables().get(table)?;
        let schema = Some(entry.schema.clone());
        let blank = match entry.state {
            TableState::Creating | TableState::Altering => TableOrder { schema, ..TableOrder::default() },
            TableState::Dropping => TableOrder { drop: Some(table), ..TableOrder::default() },
            TableState::Enabled => return None,
        };
        let order = |regions| match entry.state {
            TableState::Creating => TableOrder { create: regions, ..blank.clone() },
            _ => blank.clone(),
        };
        let groups = catalog.regions().groups_of(table).into_iter();
        let pending = groups.map(|(group, regions)| (group, order(regions))).collect();
        Some(Self { table, state: entry.state, version: entry.schema.version, pending })
    }

    /// Whether the catalog still asks for this change; a drop supersedes a create and an alter.
    pub fn is_current(&self, catalog: &Catalog) -> bool {
        let entry = catalog.tables().get(self.table);
        entry.is_some_and(|entry| entry.state == self.state && entry.schema.version == self.version)
    }

    /// The groups that have not followed their order yet, with the order.
    pub fn pending(&self) -> &BTreeMap<GroupId, TableOrder> {
        &self.pending
    }

    /// A group has answered its order. Returns what to wait for if it has to be ordered again.
    ///
    /// # Errors
    /// The group's refusal, if no repetition can help.
    pub fn answered(&mut self, group: GroupId, answer: Result<(), Error>) -> Result<Option<String>, Error> {
        match answer {
            Ok(()) => {
                let order = self.pending.remove(&group);
                assert!(order.is_some(), "group {group} answered an order for table {} twice", self.table);
                Ok(None)
            }
            Err(error) if is_final(&error) => Err(error),
            Err(error) => Ok(Some(format!("group {group}: {error}"))),
        }
    }

    /// The edit that completes the change, once every group has followed its order.
    pub fn completion(&self) -> Option<CatalogEdit> {
        let (table, version) = (self.table, self.version);
        let left = usize::from(
            self.state == TableState::Altering && terrane_env::planted!("an alter ends before its last group"),
        );
        (self.pending.len() <= left).then(|| match self.state {
            TableState::Altering => CatalogEdit::FinishAlter { table, version },
            TableState::Dropping => CatalogEdit::RemoveTable { table },
            TableState::Creating | TableState::Enabled => CatalogEdit::EnableTable { table },
        })
    }

    /// The edit that follows a refusal. A create is turned into a drop, so that no partial table stays; an alter and a
    /// drop have none and are retried.
    pub fn undo(&self) -> Option<CatalogEdit> {
        (self.state == TableState::Creating).then_some(CatalogEdit::DropTable { table: self.table })
    }
}
