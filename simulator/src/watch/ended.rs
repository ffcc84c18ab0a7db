//! After everything is healed, every procedure ends: none waits for something that does not come.

use std::collections::BTreeSet;
use std::time::Duration;

use terrane_client::{Client, ProcedureInfo};

use super::now;
use crate::context::Context;
use crate::trace::chain;

/// A change of members copies a group, and gives a new replica that makes no progress this long.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Waits until the procedures of this moment have ended. Others may begin meanwhile.
pub async fn procedures(client: &Client, context: &Context) -> Result<(), String> {
    // Without a server, its replicas wait to be replaced.
    if context.state.degraded().is_some() {
        return Ok(());
    }
    let began = now();
    let mut waited_for: Option<BTreeSet<String>> = None;
    loop {
        let seen = client.admin().procedures().await;
        let under_way = match &seen {
            Ok(all) => {
                let ids = all.iter().map(|procedure| procedure.id.clone()).collect();
                let still = match waited_for.take() {
                    None => ids,
                    Some(before) => before.intersection(&ids).cloned().collect(),
                };
                let under_way: Vec<String> = all.iter().filter(|one| still.contains(&one.id)).map(described).collect();
                waited_for = Some(still);
                under_way
            }
            Err(error) => vec![chain(error)],
        };
        if under_way.is_empty() {
            context.watch.count("procedures that ended");
            return Ok(());
        }
        if now() > began + ENDED_WITHIN {
            return Err(format!("{} s later these do not end: {under_way:?}", ENDED_WITHIN.as_secs()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn described(procedure: &ProcedureInfo) -> String {
    let ProcedureInfo { id, kind, subject, state, waits_for, .. } = procedure;
    format!("{id}: {kind} of {subject}, {state}, waits for: {waits_for}")
}
