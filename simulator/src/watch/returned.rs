//! When all is healed, requests end, and each returns what it took from the budgets of its server.

use std::time::Duration;

use super::now;
use crate::context::Context;

/// Calls of clients that are gone end with their deadlines; a connection that says nothing is closed after ten seconds.
const RETURNED_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until every server has returned everything.
pub async fn everything(context: &Context) -> Result<(), String> {
    let held = &context.watch.inner.held;
    let servers = context.plan.server_hosts().iter().copied();
    held.borrow_mut().begin(servers.filter(|server| context.state.degraded() != Some(*server)));
    let began = now();
    loop {
        let some = held.borrow().some();
        let Some(some) = some else { break };
        if now() > began + RETURNED_WITHIN {
            return Err(format!("{some} for {} s", RETURNED_WITHIN.as_secs()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    context.watch.count("everything was returned");
    Ok(())
}
