//! Metrics of a master.

use super::descriptions;
use crate::Description;
use crate::Kind::{Counter, Gauge};
use crate::Unit::{Bytes, None};

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
        "Log groups", "It follows the number of servers.");
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
    HEALTH_ISSUES = Description::new(Gauge, "terrane_master_health_issues", None,
        "Health issues of this master by kind and, while it leads, those of the cluster that no server reports itself",
        "Above 0: `terrane status` says what it is. [Health issues](#health-issues) lists the kinds.").labels(&["kind"]);
    CHECK_FINDINGS = Description::new(Gauge, "terrane_master_check_findings", None,
        "Findings of `terrane admin check` that have stood for two minutes, by kind; 0 on masters that do not lead",
        "`terrane admin check` lists them.").labels(&["kind"]);
    GROUPS_SHORT_OF_COPIES = Description::new(Gauge, "terrane_master_groups_short_of_copies", None,
        "Open groups with fewer copies than the cluster keeps, by the copies that they have: 0, 1, 2 or more",
        "A copy counts if its server is there, it votes, and nothing in it is damaged or missing. Bring servers back, or add some: at one copy, the loss of one more disk loses data.").labels(&["copies"]);
    DISK_FREE = Description::new(Gauge, "terrane_master_disk_free_bytes", Bytes,
        "Free bytes of the disk of the data directory",
        "At 0 the master ends, and the cluster cannot be changed once a majority has. Free space.");
    DISK_SIZE = Description::new(Gauge, "terrane_master_disk_size_bytes", Bytes,
        "Size of the disk of the data directory", "Nothing; it is what the free bytes are compared with.");
}
