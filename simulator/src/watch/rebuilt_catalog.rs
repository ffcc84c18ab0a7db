//! The only master loses its disk. The operator rebuilds the catalog from what the servers have, and everything goes on.
//!
//! What only the catalog knew is lost, so everything is at rest before. Ids do not repeat: tables are created and regions split
//! afterwards.

use std::time::Duration;

use terrane_client::{Admin, Error};

use super::{liveness, new_table, now};
use crate::context::Context;
use crate::run_state::CatalogState;
use crate::scenario::{passes, patiently};
use crate::verdict::Failure;

/// Within this the new master leads: all servers have told what they have.
const LEADS_WITHIN: Duration = Duration::from_secs(30);
/// A table that is created afterwards.
const TABLE: &str = "after-the-rebuild";
/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for the rebuilt catalog, and checks that everything works with it.
pub async fn goes_on(context: Context) -> Result<(), Error> {
    let began = now();
    while context.state.catalog() != CatalogState::Rebuilt {
        if now() > began + LEADS_WITHIN {
            let what = format!("no catalog is rebuilt {} s after the loss of the master", LEADS_WITHIN.as_secs());
            context.state.fail(Failure::new(what));
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    liveness::until_well(context.clone()).await?;
    let client = context.connect(CALL_MAX).await?;
    new_table::write(&client, TABLE).await?;
    split_all(&client.admin().with_timeout(CALL_MAX), &context).await?;
    new_table::read(&client, TABLE, "the rebuild of the catalog", &context).await?;
    context.watch.count("rebuilt catalogs");
    Ok(())
}

/// Splits what can be split, and looks at the map.
async fn split_all(admin: &Admin, context: &Context) -> Result<(), Error> {
    for region in patiently(async || admin.regions(None).await).await? {
        match admin.split(region.descriptor.region, None).await {
            // It has too few rows, or changes at the moment.
            Err(error) if !(error.is_invalid() || error.is_not_found() || passes(&error)) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let regions = patiently(async || admin.regions(None).await).await?;
    context.watch.check_map(&regions, context);
    Ok(())
}
