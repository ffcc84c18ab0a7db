//! What the master says while faults occur: a client asks it again and again.
//!
//! Silence is no violation here, because the master may be down or unreachable. A wrong answer is.

use std::collections::BTreeSet;
use std::time::Duration;

use terrane_client::{Client, ClusterStatus, Error, RegionInfo};

use super::{Host, Watch, now};
use crate::context::Context;
use crate::nodes::{MASTER_HOST, REPORT_EVERY, address};
use crate::scenario::connect;
use crate::verdict::Failure;

/// How often it asks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_millis(800);
/// A server down for longer must be named: six reports are missing, which the master sees within half a second, and the
/// answer takes its time.
const NAMED_WITHIN: Duration = Duration::from_millis(6 * REPORT_EVERY.as_millis() as u64 + 500 + 500);
/// A master that has run for this long has missed the reports of such a server. It counts from when it has read its files.
const MASTER_KNOWS_WITHIN: Duration = Duration::from_secs(6);
/// States of regions of a table that does not have all of them.
const PARTIAL: [&str; 2] = ["creating", "dropping"];

/// Asks until the faults are over.
pub async fn look_on(context: Context) -> Result<(), Error> {
    let client = connect(PATIENCE).await?;
    while !context.state.is_over() {
        look(&client, &context).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn look(client: &Client, context: &Context) {
    let began = now();
    let down = context.watch.down_since();
    if let Ok(status) = client.admin().status().await {
        let still = context.watch.down_since();
        for (host, since) in down.into_iter().filter(|down| still.contains(down)) {
            if since + NAMED_WITHIN <= began {
                context.watch.check_named(host, since, &status, context);
            }
        }
    }
    if let Ok(regions) = client.admin().regions(None).await {
        context.watch.check_map(&regions, context);
    }
}

impl Watch {
    /// Hosts that do not run, and since when.
    fn down_since(&self) -> Vec<(Host, Duration)> {
        self.inner.down.borrow().iter().map(|(host, since)| (*host, *since)).collect()
    }

    fn check_named(&self, host: Host, since: Duration, status: &ClusterStatus, context: &Context) {
        let address = address(host);
        let Some(server) = status.servers.iter().find(|server| server.address == address) else { return };
        let fail = |what: String| {
            let since = since.as_secs_f64();
            context.state.fail(Failure {
                what: format!("{host} is down since {since:.3}: {what}"),
                about: vec![address.clone()],
            });
        };
        if server.state == "live" {
            fail("the master says that it is live".to_owned());
        }
        self.count("down and not live");
        // A master that started lately has not missed it for long enough.
        let master_up = self.inner.up.borrow().get(MASTER_HOST).copied();
        if master_up.is_some_and(|up| up + MASTER_KNOWS_WITHIN <= now()) {
            self.count("down and named");
            if !status.troubles.iter().any(|trouble| trouble.contains(&address)) {
                fail(format!("the troubles in the status do not name it: {:?}", status.troubles));
            }
        }
    }

    pub(super) fn check_map(&self, regions: &[RegionInfo], context: &Context) {
        let descriptors: Vec<_> = regions.iter().map(|region| region.descriptor.clone()).collect();
        let is_partial = |region: &&RegionInfo| PARTIAL.contains(&region.state.as_str());
        let partial: BTreeSet<_> = regions.iter().filter(is_partial).map(|region| region.descriptor.region).collect();
        if let Err(wrong) = self.inner.map.borrow_mut().look(&descriptors, &partial) {
            let about = vec![format!("region {}", wrong.region), format!("region={}", wrong.region)];
            context.state.fail(Failure { what: wrong.what, about });
        }
        self.count("looks at the map");
    }
}
