//! An operator beside the clients: splits, merges and moves regions, flushes and compacts the table, and drains servers now and
//! then.

use std::time::Duration;

use futures::future::join;
use terrane_client::{Admin, Error, RegionInfo, ServerChange};

use super::play::{below, passes, pause};
use crate::context::Context;
use crate::nodes::address;
use crate::plan::{REPLICATION, Work};
use crate::trace;

/// Longest pause between two works.
const PAUSE_MS: u64 = 1_500;
/// Number of regions at which splitting stops.
const REGIONS_MAX: usize = 16;
/// Longest time that a server is drained.
const DRAIN_MS: u64 = 6_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a call, or a server that flushes or compacts, may take.
const CALL_MAX: Duration = Duration::from_secs(2);

/// Maintains a table until the faults are over. `some_row` gives a row at which a region may be split.
pub async fn maintain(table: &'static str, some_row: impl Fn() -> Vec<u8>, context: Context) -> Result<(), Error> {
    let client = context.connect(PATIENCE).await?;
    let admin = client.admin().with_timeout(CALL_MAX);
    context.state.until_ready().await;
    while !context.state.is_over() {
        let done = match context.plan.work {
            Work::Mixed => {
                pause(PAUSE_MS).await;
                mixed(&admin, table, &some_row(), &context).await
            }
            Work::Moves => {
                pause(PAUSE_MS / 3).await;
                moves(&admin, table, &some_row(), &context).await
            }
            Work::Merges => {
                pause(PAUSE_MS / 3).await;
                merges(&admin, table, &some_row()).await
            }
        };
        match done {
            Err(error) if !passes(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

async fn mixed(admin: &Admin, table: &str, at: &[u8], context: &Context) -> Result<(), Error> {
    match below(14) {
        0 => admin.flush_table(table, |_| {}).await.map(drop),
        1 => admin.compact_table(table, |_| {}).await.map(drop),
        2..=4 => merge(admin, table, at).await,
        5 => drain(admin, context).await,
        6..=7 => move_region(admin, table, at, context).await,
        _ => split(admin, table, at).await,
    }
}

async fn moves(admin: &Admin, table: &str, at: &[u8], context: &Context) -> Result<(), Error> {
    match below(12) {
        0 => admin.flush_table(table, |_| {}).await.map(drop),
        1 => merge(admin, table, at).await,
        2..=3 => split(admin, table, at).await,
        4..=6 => {
            // As two operators who do not know of each other.
            let (one, other) =
                join(move_region(admin, table, at, context), move_region(admin, table, at, context)).await;
            one.and(other)
        }
        _ => move_region(admin, table, at, context).await,
    }
}

async fn merges(admin: &Admin, table: &str, at: &[u8]) -> Result<(), Error> {
    match below(12) {
        0 => admin.flush_table(table, |_| {}).await.map(drop),
        1..=6 => merge(admin, table, at).await,
        _ => split(admin, table, at).await,
    }
}

async fn split(admin: &Admin, table: &str, at: &[u8]) -> Result<(), Error> {
    let regions = admin.regions(Some(table)).await?;
    let holds = |region: &&RegionInfo| {
        let range = &region.descriptor.range;
        range.contains(at) && range.start != at
    };
    let Some(region) = regions.iter().find(holds).filter(|_| regions.len() < REGIONS_MAX) else { return Ok(()) };
    let outcome = admin.split(region.descriptor.region, Some(at)).await;
    trace::note(format_args!("the operator splits at {}: {}", at.escape_ascii(), outcome.is_ok()));
    match outcome {
        // It was split meanwhile, or the master's map is outdated.
        Err(error) if !(error.is_invalid() || error.is_not_found()) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Merges the region of a row with the one after it; of two groups, one moves first.
async fn merge(admin: &Admin, table: &str, at: &[u8]) -> Result<(), Error> {
    let regions = admin.regions(Some(table)).await?;
    let Some(left) = regions.iter().find(|region| region.descriptor.range.contains(at)) else { return Ok(()) };
    let end = &left.descriptor.range.end;
    let right = regions.iter().find(|region| !end.is_empty() && region.descriptor.range.start == *end);
    let Some(right) = right else { return Ok(()) };
    let outcome = admin.merge(left.descriptor.region, right.descriptor.region).await;
    trace::note(format_args!("the operator merges at {}: {}", end.escape_ascii(), outcome.is_ok()));
    match outcome {
        // They were split or merged meanwhile, or the master's map is outdated.
        Err(error) if !(error.is_invalid() || error.is_not_found()) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Begins to move the region of a row to one of the servers. What follows happens meanwhile; one move in four is cancelled.
async fn move_region(admin: &Admin, table: &str, at: &[u8], context: &Context) -> Result<(), Error> {
    let regions = admin.regions(Some(table)).await?;
    let Some(region) = regions.iter().find(|region| region.descriptor.range.contains(at)) else { return Ok(()) };
    let hosts = context.plan.server_hosts();
    let server = address(hosts[below(hosts.len())]);
    let outcome = admin.begin_move(region.descriptor.region, &server).await;
    trace::note(format_args!("the operator moves {} to {server}: {}", at.escape_ascii(), outcome.is_ok()));
    let outcome = match outcome {
        Ok(begun) if below(4) == 0 => {
            pause(PAUSE_MS).await;
            admin.cancel(&format!("move-{}", begun.id)).await
        }
        outcome => outcome.map(drop),
    };
    match outcome {
        // It changes already, the server cannot take it, or the move has ended.
        Err(error) if !(error.is_invalid() || error.is_not_found()) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Drains one of the servers for a while, where there are more of them than replicas.
async fn drain(admin: &Admin, context: &Context) -> Result<(), Error> {
    let hosts = context.plan.server_hosts();
    if hosts.len() <= REPLICATION {
        return Ok(());
    }
    let host = hosts[below(hosts.len())];
    let server = address(host);
    change(admin, &server, ServerChange::Drain).await?;
    pause(DRAIN_MS).await;
    change(admin, &server, ServerChange::Undrain).await
}

async fn change(admin: &Admin, server: &str, change: ServerChange) -> Result<(), Error> {
    let outcome = admin.change_server(server, change).await;
    trace::note(format_args!("the operator orders {change:?} of {server}: {}", outcome.is_ok()));
    match outcome {
        // It is not registered yet, or too few others are live.
        Err(error) if !(error.is_invalid() || error.is_not_found()) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
