//! An operator who replaces one of three masters by a fourth process, again and again, while faults occur. Some changes are
//! cancelled. The process that was removed is emptied and waits to be added again.
//!
//! When all is healed, the processes that the status names as masters are those that believe to be masters.

use std::collections::BTreeSet;
use std::time::Duration;

use terrane_client::{Admin, ClusterStatus, Error};

use crate::context::Context;
use crate::plan::master_address;
use crate::scenario::{below, passes, pause};
use crate::trace;

/// Longest pause between two changes.
const PAUSE_MS: u64 = 3_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(2);

/// Changes the masters until the faults are over.
pub async fn change_repeatedly(context: Context) -> Result<(), Error> {
    let client = context.connect(PATIENCE).await?;
    let admin = client.admin().with_timeout(CALL_MAX);
    context.state.until_ready().await;
    while !context.state.is_over() {
        pause(PAUSE_MS).await;
        match change(&admin, &context).await {
            // They change already, a process is away, or the change has ended meanwhile.
            Err(error) if !(passes(&error) || error.is_invalid() || error.is_not_found()) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

async fn change(admin: &Admin, context: &Context) -> Result<(), Error> {
    let mut masters = addresses(&admin.status().await?);
    let waiting = context.plan.master_hosts().iter().map(|host| master_address(host));
    let Some(waiting) = waiting.into_iter().find(|address| !masters.contains(address)) else { return Ok(()) };
    let removed = masters.iter().nth(below(masters.len())).cloned().unwrap_or_default();
    masters.remove(&removed);
    masters.insert(waiting.clone());
    let masters: Vec<String> = masters.into_iter().collect();
    let described = admin.describe_masters(&masters).await?;
    let outcome = admin.set_masters(&masters, &described).await;
    trace::note(format_args!("the operator replaces {removed} by {waiting}: {}", outcome.is_ok()));
    outcome?;
    context.watch.count("changes of the masters that began");
    if below(4) == 0 {
        pause(PAUSE_MS / 4).await;
        let outcome = admin.cancel("masters").await;
        trace::note(format_args!("the operator cancels that: {}", outcome.is_ok()));
        outcome?;
    }
    Ok(())
}

fn addresses(status: &ClusterStatus) -> BTreeSet<String> {
    status.masters.iter().map(|master| master.address.clone()).collect()
}

/// Which processes take themselves for masters and are none, or the other way round.
pub fn complaint(status: &ClusterStatus, context: &Context) -> Option<String> {
    if !context.plan.changes_masters {
        return None;
    }
    let (named, believed) = (addresses(status), context.state.masters());
    let believed: BTreeSet<String> = believed.into_iter().map(master_address).collect();
    context.watch.count("looks at all masters");
    (named != believed)
        .then(|| format!("the masters are {named:?}, and these take themselves for masters: {believed:?}"))
}
