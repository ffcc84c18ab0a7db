//! What the master says while faults occur: a client asks it again and again.
//!
//! Silence is no violation here, because the master may be down or unreachable. A wrong answer is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use terrane_client::{Client, ClusterStatus, Error, IssueKind, Place, RegionInfo};
use terrane_types::states::{RegionState, ServerState};

use super::{Host, Watch, chronicle, now};
use crate::context::Context;
use crate::nodes::{REPORT_EVERY, address};

use crate::verdict::Failure;

/// How often it asks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// It asks for events and loads less often.
const LOOKS_PER_CHRONICLE: u32 = 2;
/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_millis(800);
/// A server down or cut off for longer must be named: six reports are missing, which the master sees within half a second, and the
/// answer takes its time.
const NAMED_WITHIN: Duration = Duration::from_millis(6 * REPORT_EVERY.as_millis() as u64 + 500 + 500);
/// A master that has run for this long has missed the reports of such a server. It counts from when it has read its files.
const MASTER_KNOWS_WITHIN: Duration = Duration::from_secs(6);
/// States of regions of a table that does not have all of them.
const PARTIAL: [RegionState; 2] = [RegionState::Creating, RegionState::Dropping];

/// Asks until the faults are over.
pub async fn watch_status(context: Context) -> Result<(), Error> {
    let client = context.connect(PATIENCE).await?;
    let mut looks = 0_u32;
    while !context.state.is_over() {
        look(&client, &context).await;
        if looks.is_multiple_of(LOOKS_PER_CHRONICLE) {
            chronicle::look(&client, &context).await;
        }
        looks += 1;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn look(client: &Client, context: &Context) {
    let began = now();
    let away = context.watch.away();
    // A master that knows no leader says so, and that what it shows may be outdated.
    let is_led = |status: &ClusterStatus| status.issues.iter().all(|issue| issue.kind != IssueKind::NoLeadingMaster);
    if let Some(status) = client.admin().status().await.ok().filter(is_led) {
        let still = context.watch.away();
        for away in away.into_iter().filter(|away| still.contains(away)) {
            // A new leader counts missing reports from when it leads.
            let leads_since = context.watch.leads_since(context).unwrap_or_default();
            if leads_since.max(away.since) + NAMED_WITHIN <= began {
                context.watch.check_named(&away, &status, context);
            }
        }
    }
    if let Ok(regions) = client.admin().regions(None).await {
        context.watch.check_map(&regions, context);
    }
}

/// A server that the master cannot hear.
#[derive(PartialEq)]
struct UnreachableServer {
    host: Host,
    since: Duration,
    why: &'static str,
}

const DOWN: &str = "is down";
const CUT_OFF: &str = "is cut off from the master";

impl Watch {
    fn away(&self) -> Vec<UnreachableServer> {
        let (down, cut_off) = (self.inner.down.borrow(), self.inner.cut_off.borrow());
        let away = |hosts: &BTreeMap<Host, Duration>, why| -> Vec<UnreachableServer> {
            hosts.iter().map(|(host, since)| UnreachableServer { host, since: *since, why }).collect()
        };
        away(&down, DOWN).into_iter().chain(away(&cut_off, CUT_OFF)).collect()
    }

    fn check_named(&self, away: &UnreachableServer, status: &ClusterStatus, context: &Context) {
        let UnreachableServer { host, since, why } = away;
        let address = address(host);
        let Some(server) = status.servers.iter().find(|server| server.address == address) else { return };
        let fail = |what: String| {
            let since = since.as_secs_f64();
            context
                .state
                .fail(Failure { what: format!("{host} {why} since {since:.3}: {what}"), about: vec![address.clone()] });
        };
        if server.state == ServerState::Live {
            fail("the master says that it is live".to_owned());
        }
        self.count(if *why == DOWN { "down and not live" } else { "cut off and not live" });
        // A master that started lately has not missed it for long enough.
        if self.leads_since(context).is_some_and(|since| since + MASTER_KNOWS_WITHIN <= now()) {
            self.count(if *why == DOWN { "down and named" } else { "cut off and named" });
            if !status.issues.iter().any(|issue| issue.place == Some(Place::Server(server.server))) {
                fail(format!("the issues in the status do not name it: {:?}", status.issues));
            }
        }
    }

    /// Since when the leading master runs and leads.
    fn leads_since(&self, context: &Context) -> Option<Duration> {
        let (leading, since) = context.state.leading_master()?;
        Some(since.max(*self.inner.up.borrow().get(leading)?))
    }

    pub(super) fn check_map(&self, regions: &[RegionInfo], context: &Context) {
        let descriptors: Vec<_> = regions.iter().map(|region| region.descriptor.clone()).collect();
        let is_partial = |region: &&RegionInfo| PARTIAL.contains(&region.state);
        let partial: BTreeSet<_> = regions.iter().filter(is_partial).map(|region| region.descriptor.region).collect();
        if let Err(wrong) = self.inner.map.borrow_mut().look(&descriptors, &partial) {
            let about = vec![format!("region {}", wrong.region), format!("region={}", wrong.region)];
            context.state.fail(Failure { what: wrong.what, about });
        }
        self.count("looks at the map");
    }
}
