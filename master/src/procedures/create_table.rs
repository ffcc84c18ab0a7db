//! Creates a table's regions: one entry in each group that gets some, then the table is enabled.

use std::collections::BTreeMap;

use terrane_types::{Error, TableId};

use super::Desk;
use crate::catalog::CatalogEdit;
use crate::catalog::tables::TableState;
use crate::orders::TableOrder;

/// Drives a journaled create to its end. A group that says it never will (it cannot work under such a schema) turns the
/// create into a drop, so that no half of a table stays.
pub async fn perform(desk: &Desk, table: TableId) -> Result<(), Error> {
    let Some(schema) = desk.schema_in(table, TableState::Creating) else { return Ok(()) };
    let groups = desk.journal.read(|catalog| catalog.regions().groups_of(table));
    let orders: BTreeMap<_, _> = groups
        .into_iter()
        .map(|(group, create)| (group, TableOrder { schema: Some(schema.clone()), create, drop: None }))
        .collect();
    let wanted = || desk.schema_in(table, TableState::Creating).is_some();
    let edit = match desk.order_all(table, orders, wanted).await {
        Ok(true) => CatalogEdit::EnableTable { table },
        Ok(false) => return Ok(()),
        Err(error) => {
            tracing::warn!(%table, %error, "a table cannot be created; what was made of it is dropped");
            desk.fail(table, error);
            CatalogEdit::DropTable { table }
        }
    };
    desk.journal.record(&edit).await.map(|_| ())
}
