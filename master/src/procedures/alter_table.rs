//! Brings a table's new schema to every group that has regions of it.

use terrane_types::{Error, TableId};

use super::Desk;
use crate::catalog::CatalogEdit;
use crate::catalog::tables::TableState;
use crate::orders::TableOrder;

/// Drives a journaled alter to its end. Regions stay in their groups, so the groups are those of the moment it began.
pub async fn perform(desk: &Desk, table: TableId) -> Result<(), Error> {
    let Some(schema) = desk.schema_in(table, TableState::Altering) else { return Ok(()) };
    let version = schema.version;
    let groups = desk.journal.read(|catalog| catalog.regions().groups_of(table));
    let order = TableOrder { schema: Some(schema), ..TableOrder::default() };
    let orders = groups.into_keys().map(|group| (group, order.clone())).collect();
    let wanted = || desk.schema_in(table, TableState::Altering).is_some_and(|schema| schema.version == version);
    if desk.order_all(table, orders, wanted).await? {
        desk.journal.record(&CatalogEdit::FinishAlter { table, version }).await?;
    }
    Ok(())
}
