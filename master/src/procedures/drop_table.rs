//! Drops a table from every group that has regions of it.

use terrane_types::{Error, TableId};

use super::Desk;
use crate::catalog::CatalogEdit;
use crate::catalog::tables::TableState;
use crate::orders::TableOrder;

/// Drives a journaled drop to its end; nothing takes it back.
pub async fn perform(desk: &Desk, table: TableId) -> Result<(), Error> {
    let groups = desk.journal.read(|catalog| catalog.regions().groups_of(table));
    let order = TableOrder { drop: Some(table), ..TableOrder::default() };
    let orders = groups.into_keys().map(|group| (group, order.clone())).collect();
    let wanted = || desk.schema_in(table, TableState::Dropping).is_some();
    if desk.order_all(table, orders, wanted).await? {
        desk.journal.record(&CatalogEdit::ForgetTable { table }).await?;
    }
    Ok(())
}
