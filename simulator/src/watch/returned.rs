//! When all is healed, requests end, and each returns what it took from the budgets of its server.
//!
//! Readers still work meanwhile, so every resource has to be unused at one of several looks, not all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Host, now};
use crate::check::resources::{RETURNED, used};
use crate::context::Context;

/// Calls of clients that are gone end with their deadlines; a connection that says nothing is closed after ten seconds.
const RETURNED_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The resources of each host that no look has found unused.
#[derive(Default)]
pub struct Held {
    hosts: BTreeMap<Host, BTreeSet<&'static str>>,
}

impl Held {
    /// Looks at the numbers of a host.
    pub fn look(&mut self, host: Host, numbers: &BTreeMap<String, f64>) {
        if let Some(held) = self.hosts.get_mut(host) {
            held.retain(|resource| used(numbers, resource) > 0.0);
        }
    }
}

/// Waits until every server has returned everything.
pub async fn everything(context: &Context) -> Result<(), String> {
    let held = &context.watch.inner.held;
    let servers = context.plan.server_hosts().iter().filter(|server| context.state.degraded() != Some(server));
    held.borrow_mut().hosts = servers.map(|server| (*server, RETURNED.into())).collect();
    let began = now();
    loop {
        let holding = held.borrow().hosts.iter().find(|(_, held)| !held.is_empty()).map(|(host, _)| *host);
        let Some(host) = holding else { break };
        if now() > began + RETURNED_WITHIN {
            let (held, seconds) = (&held.borrow().hosts[host], RETURNED_WITHIN.as_secs());
            return Err(format!("{host} has used some of {held:?} at every look for {seconds} s"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    context.watch.count("everything was returned");
    Ok(())
}
