//! A cell that changes on one replica, in memory, where no checksum tells: the comparison of replicas finds it, and the replica
//! is replaced.

use std::time::Duration;

use terrane_client::{Client, Error, Put, TableSpec};

use super::now;
use crate::context::Context;
use crate::nodes::address;
use crate::scenario::{create_table, open_table, passes, patiently};
use crate::trace;
use crate::verdict::Failure;

const TABLE: &str = "compared";
const FAMILY: &str = "f";
/// The row whose cell changes (`terrane-regionserver`, `group::machine::apply`).
const ROW: &str = "a row that one replica changes";
const CHANGE: &str = "a cell of a replica changes";
const DAMAGED: &str = "terrane_server_damaged_replicas_total";
/// Within this the replica has left: two comparisons in a row, and an order of the master.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// Within this another one has taken its place.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// Within this a replica that has left because it differs is counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);
const CALL_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Changes a cell on one replica and waits until it is replaced.
pub async fn is_found(context: Context) -> Result<(), Error> {
    let client = context.connect(CALL_MAX).await?;
    create_table(&client, &TableSpec::new(TABLE)?.family(FAMILY, &[])?).await?;
    let table = open_table(&client, TABLE).await?;
    loop {
        let follower = follower(&client, &context).await?;
        trace::note(format_args!("a cell changes on {follower}"));
        let before = context.state.number(follower, DAMAGED);
        terrane_env::sim::order(follower, CHANGE);
        patiently(async || table.put(Put::new(ROW).set(FAMILY, "q", "as it was written")).await).await?;
        let began = now();
        let mut left = None;
        let has_left = loop {
            if context.state.number(follower, DAMAGED) > before {
                break false;
            }
            // Replicas are also spread, and then it has left with its cell before it was compared.
            if !holds(&client, follower).await? && now() > *left.get_or_insert(now()) + COUNTED_WITHIN {
                break true;
            }
            if now() > began + FOUND_WITHIN {
                let what = format!("{follower} holds another cell than the others, and its replica was not replaced");
                context.state.fail(Failure { what, about: vec![follower.to_owned()] });
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        if !has_left {
            trace::note(format_args!("the replica that differs was found after {} ms", (now() - began).as_millis()));
            context.watch.count("replicas that differ were found");
            return until_whole(&client, &context).await;
        }
        trace::note(format_args!("the replica on {follower} has left before it was compared"));
    }
}

/// A server that follows in the group of the table's region.
async fn follower(client: &Client, context: &Context) -> Result<&'static str, Error> {
    loop {
        let regions = match client.admin().regions(Some(TABLE)).await {
            Ok(regions) => regions,
            Err(error) if passes(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let follows = |host: &&&str| {
            let address = address(host);
            regions.iter().any(|region| {
                !region.leader.is_empty() && region.leader != address && region.servers.contains(&address)
            })
        };
        if let Some(host) = context.plan.server_hosts().iter().find(follows) {
            return Ok(host);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether a server has a replica of the table's region, as far as the master says.
async fn holds(client: &Client, host: &str) -> Result<bool, Error> {
    match client.admin().regions(Some(TABLE)).await {
        Ok(regions) => Ok(regions.iter().any(|region| region.servers.contains(&address(host)))),
        Err(error) if passes(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn until_whole(client: &Client, context: &Context) -> Result<(), Error> {
    let began = now();
    loop {
        let admin = client.admin();
        let unfinished = match (admin.procedures().await, admin.check().await) {
            (Ok(procedures), Ok(check)) => format!("{procedures:?} {:?}", check.findings),
            (Err(error), _) | (_, Err(error)) if !passes(&error) => return Err(error),
            _ => "the master does not answer".to_owned(),
        };
        if unfinished == "[] []" {
            return Ok(());
        }
        if now() > began + WHOLE_WITHIN {
            context.state.fail(Failure::new(format!("after a replica that differed was replaced: {unfinished}")));
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
