//! What is switched on and off, and questions about it.
//!
//! The balancer and the drain of servers are Terrane's own. What HBase can switch and Terrane always does, or never does, is
//! answered with what holds; only the switch to the other state is refused.

use bytes::Bytes;
use tokio::time::Instant;

use super::{TableCalls, exception};
use crate::exception::Exception;
use crate::frame::decode_parameter;
use crate::place::Place;
use crate::proto;
use crate::proto::security_capabilities_response::Capability;
use crate::serve::Answer;

/// What a switch of HBase's has in Terrane: its name in a refusal, and the one state it has.
const FIXED: &[(&str, &str, bool)] = &[
    ("SetNormalizerRunning", "the normalizer; small neighbours are merged by themselves", false),
    ("EnableCatalogJanitor", "the clean-up of the catalog", true),
    ("SetCleanerChoreRunning", "the clean-up of files", true),
    ("SwitchSnapshotCleanup", "the clean-up of snapshots; there are none", false),
    ("SwitchRpcThrottle", "quotas; there are none", false),
    ("SwitchExceedThrottleQuota", "quotas; there are none", false),
    ("ReplicationPeerModificationSwitch", "replication; there is none", false),
];

/// Questions whose answer never changes.
const ANSWERS: &[(&str, bool)] = &[
    ("IsNormalizerEnabled", false),
    ("IsCatalogJanitorEnabled", true),
    ("IsCleanerChoreEnabled", true),
    ("IsSnapshotCleanupEnabled", false),
    ("IsMasterInMaintenanceMode", false),
    ("IsRpcThrottleEnabled", false),
    ("IsReplicationPeerModificationEnabled", false),
    ("IsSplitOrMergeEnabled", true),
    // Nothing was there to be done.
    ("Normalize", false),
    ("RunCleanerChore", false),
    ("AbortProcedure", false),
];

/// Questions with an answer that has nothing in it.
const EMPTY: &[&str] = &[
    "GetLocks",
    "GetCompletedSnapshots",
    "ListReplicationPeers",
    "GetReplicationPeerModificationProcedures",
    "GetSpaceQuotaRegionSizes",
    "GetQuotaStates",
];

impl TableCalls {
    /// The answer to a switch or a question about one; `None`: it is something else.
    pub(super) async fn switch(
        &self,
        method: &str,
        parameter: Bytes,
        until: Instant,
    ) -> Result<Option<Answer>, Exception> {
        let order = self.order_until(until);
        if let Some((_, what, state)) = FIXED.iter().find(|(name, ..)| *name == method) {
            let request: proto::SwitchRequest = decode_parameter(parameter)?;
            return fixed(what, *state, request.on).map(Some);
        }
        if let Some((_, enabled)) = ANSWERS.iter().find(|(name, _)| *name == method) {
            return Ok(Some(Answer::of(&proto::IsEnabledResponse { enabled: *enabled })));
        }
        if EMPTY.contains(&method) {
            return Ok(Some(Answer::of(&proto::Nothing {})));
        }
        let edge = &self.master.edge;
        Ok(Some(match method {
            "IsBalancerEnabled" => {
                self.master.map(until).await?;
                Answer::of(&proto::IsEnabledResponse { enabled: edge.is_balancing() })
            }
            "SetBalancerRunning" => {
                let request: proto::SwitchRequest = decode_parameter(parameter)?;
                let previous = Some(edge.is_balancing());
                edge.set_balancing(request.on, &order).await.map_err(|error| exception(&error))?;
                Answer::of(&proto::SwitchResponse { previous })
            }
            "Balance" => {
                let request: proto::BalanceRequest = decode_parameter(parameter)?;
                let made = edge.balance(request.dry_run(), &order).await.map_err(|error| exception(&error))?;
                let steps = u32::try_from(made.steps).unwrap_or(u32::MAX);
                Answer::of(&proto::BalanceResponse {
                    balancer_ran: !request.dry_run(),
                    moves_calculated: Some(steps),
                    moves_executed: Some(if request.dry_run() { 0 } else { steps }),
                })
            }
            "SetSplitOrMergeEnabled" => {
                let request: proto::SetSplitOrMergeEnabledRequest = decode_parameter(parameter)?;
                fixed("splits and merges of the whole cluster; set SPLIT_ENABLED of a table", true, request.enabled)?;
                let prev_value = vec![true; request.switch_types.len()];
                Answer::of(&proto::SetSplitOrMergeEnabledResponse { prev_value })
            }
            "RunCatalogScan" => Answer::of(&proto::RunCatalogScanResponse { scan_result: Some(0) }),
            // When a region was last rewritten as a whole is not kept.
            "getLastMajorCompactionTimestamp" | "getLastMajorCompactionTimestampForRegion" => {
                Answer::of(&proto::MajorCompactionTimestampResponse { compaction_timestamp: 0 })
            }
            "getSecurityCapabilities" => {
                let capabilities = vec![Capability::SimpleAuthentication.into()];
                Answer::of(&proto::SecurityCapabilitiesResponse { capabilities })
            }
            "ListDecommissionedRegionServers" => {
                let servers = edge.all_servers(until).await.map_err(|error| exception(&error))?;
                let drained = servers.iter().filter(|server| server.drains);
                let places = drained.filter_map(|server| Place::of(&server.place.endpoint));
                Answer::of(&proto::ServerNames { server_name: places.map(|place| place.to_proto()).collect() })
            }
            "DecommissionRegionServers" => {
                let request: proto::DecommissionRegionServersRequest = decode_parameter(parameter)?;
                for name in &request.server_name {
                    let server = self.server_named(name)?;
                    edge.set_draining(server, true, &order).await.map_err(|error| exception(&error))?;
                }
                Answer::of(&proto::Nothing {})
            }
            "RecommissionRegionServer" => {
                let request: proto::RecommissionRegionServerRequest = decode_parameter(parameter)?;
                let server = self.server_named(&request.server_name)?;
                edge.set_draining(server, false, &order).await.map_err(|error| exception(&error))?;
                Answer::of(&proto::Nothing {})
            }
            // Dead servers stay listed until their replicas have been replaced: none is cleared.
            "ClearDeadServers" => Answer::of(&decode_parameter::<proto::ServerNames>(parameter)?),
            _ => return Ok(None),
        }))
    }
}

fn fixed(what: &str, state: bool, wanted: bool) -> Result<Answer, Exception> {
    if wanted == state {
        return Ok(Answer::of(&proto::SwitchResponse { previous: Some(state) }));
    }
    let (cannot, is) = if state { ("off", "always on") } else { ("on", "always off") };
    Err(Exception::bad_request(&format!("it cannot be switched {cannot}, because it is {is}: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_takes_the_state_that_it_has_and_refuses_the_other() {
        assert!(fixed("x", true, true).is_ok() && fixed("x", false, false).is_ok());
        let refused = fixed("quotas; there are none", false, true).unwrap_err();
        assert!(refused.do_not_retry && refused.text.contains("always off: quotas"), "{}", refused.text);
    }
}
