//! Metrics of a master.

use super::descriptions;
use crate::Description;
use crate::Kind::{Counter, Gauge};
use crate::Unit::None;

descriptions! {
    SERVERS = Description::new(Gauge, "terrane_master_servers", None,
        "Registered region servers by state: live, silent, stopped or unreachable",
        "A silent server is cut off or has failed: look at its process and its log. An unreachable one reports, and its `--advertise` does not lead to it. Replicas of both are replaced after `replace-after`.").labels(&["state"]);
    TABLES = Description::new(Gauge, "terrane_master_tables", None,
        "Tables in the catalog", "Nothing; it shows who creates or drops tables.");
    REGIONS = Description::new(Gauge, "terrane_master_regions", None,
        "Regions of all tables",
        "Fast growth is many splits. Far more than a few thousand per server cost memory and start time: raise the split size of the tables.");
    GROUPS = Description::new(Gauge, "terrane_master_groups", None,
        "Log groups", "It changes when servers join only.");
    GROUPS_WITHOUT_LEADER = Description::new(Gauge, "terrane_master_groups_without_leader", None,
        "Open groups without a live leader; their regions are unavailable",
        "Above 0 for more than a few seconds: a quorum of members is down. `terrane status` names the groups, `terrane admin servers` the servers to bring back.");
    CATALOG_INDEX = Description::new(Gauge, "terrane_master_catalog_index", None,
        "Applied index of the catalog's log; only changes of tables, groups, regions and servers increase it",
        "Masters that differ for long: the one behind is cut off or its disk is slow.");
    LEADS = Description::new(Gauge, "terrane_master_leads", None,
        "Whether this master leads: 1 or 0",
        "The sum over all masters must be 1. At 0, a majority of masters is down or cut off, and nothing can be changed.");
    FEATURE_LEVEL = Description::new(Gauge, "terrane_master_feature_level", None,
        "Feature level of the cluster", "It rises when an upgrade is completed.");
    CALLS = Description::new(Counter, "terrane_master_calls", None,
        "Calls received, by name",
        "Many `locate` calls per second: clients are short-lived programs, or the map changes fast. Keep one client per process.").labels(&["call"]);
    RESOURCE_USED = Description::new(Gauge, "terrane_master_resource_used", None,
        "Present usage of a limited resource, in bytes or units",
        "Near its limit for long: [design/bounds.md](design/bounds.md) says what the resource is and what happens at the limit.").labels(&["resource"]);
    RESOURCE_PEAK = Description::new(Gauge, "terrane_master_resource_peak", None,
        "Highest usage of a limited resource since the start", "As for the present usage.").labels(&["resource"]);
    RESOURCE_LIMIT = Description::new(Gauge, "terrane_master_resource_limit", None,
        "Limit of a resource", "It changes with settings only.").labels(&["resource"]);
    RESOURCE_REJECTIONS = Description::new(Counter, "terrane_master_resource_rejections", None,
        "Requests rejected because a resource was at its limit",
        "Clients retry them. A steady rate: the master has more clients than it serves.").labels(&["resource"]);
}
