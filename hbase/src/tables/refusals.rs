//! What HBase's masters do and Terrane does not: refused with the class that HBase uses when the feature is off.

use super::unknown_method;
use crate::exception::{Exception, NO_SUCH_PEER, NO_SUCH_SNAPSHOT, UNKNOWN_PROTOCOL};
use crate::serve::Outcome;

/// Methods, and the feature that they belong to.
const OFF: &[(&[&str], &str)] = &[
    (&["SetQuota"], "quota support disabled: there are no quotas"),
    (&["Snapshot", "IsSnapshotDone", "IsRestoreSnapshotDone"], "snapshots are not supported; export the table instead"),
    (
        &["AddReplicationPeer", "EnableReplicationPeer", "DisableReplicationPeer", "UpdateReplicationPeerConfig"],
        "replication between clusters is not supported",
    ),
    (
        &["Grant", "Revoke", "GetUserPermissions", "HasUserPermissions", "CheckPermissions"],
        "AccessController is not loaded: there are no permissions",
    ),
    (&["UnassignRegion", "OfflineRegion"], "a region is served as long as its table is enabled; disable the table"),
    (&["TruncateRegion"], "single regions are not truncated; delete the rows, or truncate the table"),
    (
        &["ModifyTableStoreFileTracker", "ModifyColumnStoreFileTracker"],
        "store files are tracked in one way only; leave the tracker out",
    ),
    (&["Shutdown", "StopMaster"], "processes are stopped where they run, with SIGTERM"),
    (&["ExecProcedureWithRet"], "The procedure is not registered"),
    (&["FlushMasterStore"], "the catalog has no store of its own"),
];

/// The refusal of a method that is not served.
pub(super) fn refused(method: &str) -> Outcome {
    if let Some((_, why)) = OFF.iter().find(|(methods, _)| methods.contains(&method)) {
        return Err(Exception::bad_request(why));
    }
    Err(match method {
        "ExecMasterService" => Exception::new(UNKNOWN_PROTOCOL, "this master has no coprocessors"),
        "DeleteSnapshot" | "RestoreSnapshot" => Exception::new(NO_SUCH_SNAPSHOT, "there are no snapshots"),
        "RemoveReplicationPeer" | "GetReplicationPeerConfig" | "IsReplicationPeerEnabled" => {
            Exception::new(NO_SUCH_PEER, "there are no replication peers")
        }
        other => unknown_method("MasterService", other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_off_are_refused_for_good_with_the_class_of_hbase() {
        let class = |method: &str| {
            let refused = refused(method).unwrap_err();
            assert!(refused.do_not_retry, "{method}");
            refused.class.rsplit_once('.').unwrap().1
        };
        assert_eq!(class("SetQuota"), "DoNotRetryIOException");
        assert_eq!(class("RestoreSnapshot"), "SnapshotDoesNotExistException");
        assert_eq!(class("RemoveReplicationPeer"), "ReplicationPeerNotFoundException");
        assert_eq!(class("ExecMasterService"), "UnknownProtocolException");
        assert_eq!(class("NoSuchMethod"), "DoNotRetryIOException");
    }
}
