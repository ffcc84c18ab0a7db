//! The kinds of health issues: what `terrane status` and the console can show as not healthy, and the metrics and the alert rule
//! that say the same.
//!
//! A kind is declared once, with all of that, so none can be added without. The tests compare the list with the alert rules under
//! `deploy/`, and `docs/metrics.md` shows it.
//!
//! A server reports its own issues to the masters and counts them in `terrane_server_health_issues`. A master counts its own, and
//! those of the cluster while it leads, in `terrane_master_health_issues`. `status` lists both.

use crate::Description;
use crate::list::{master, raft, server};

/// How bad an issue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Requests fail, or data is at risk: act now.
    Critical,
    /// The cluster works, with less margin than it should have: act today.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The label `severity` of its alert.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Note => "info",
        }
    }
}

/// What is said of a kind.
#[derive(Debug)]
pub struct KindOfIssue {
    /// Its name on the wire, in labels and in `status --json`.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The alert rule of `deploy/prometheus/alerts.yml` that fires.
    pub alert: &'static str,
    /// The metrics that the rule reads.
    pub metrics: &'static [&'static Description],
    /// The kind of finding with which `terrane admin check` shows the same; empty: it compares other things.
    pub finding: &'static str,
    /// What it means, in a sentence without a full stop.
    pub help: &'static str,
    /// What to do, as a sentence; an issue that says more itself follows it with its own.
    pub action: &'static str,
}

/// Declares the kinds, and the list of them.
macro_rules! kinds {
    ($($kind:ident = $known:expr;)*) => {
        /// A kind of health issue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum IssueKind {
            $(
                #[doc = concat!("See [`IssueKind::about`] of `", stringify!($kind), "`.")]
                $kind,
            )*
        }

        impl IssueKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// What is said of it.
            #[must_use]
            pub fn about(self) -> &'static KindOfIssue {
                match self {
                    $(Self::$kind => { static KNOWN: KindOfIssue = $known; &KNOWN })*
                }
            }
        }
    };
}

const fn kind(
    name: &'static str,
    severity: Severity,
    alert: &'static str,
    metrics: &'static [&'static Description],
    help: &'static str,
    action: &'static str,
) -> KindOfIssue {
    KindOfIssue { name, severity, alert, metrics, finding: "", help, action }
}

impl KindOfIssue {
    const fn found_as(self, finding: &'static str) -> Self {
        Self { finding, ..self }
    }
}

use Severity::{Critical, Note, Warning};

/// Issues that servers and masters count by kind.
static BOTH: &[&Description] = &[&server::HEALTH_ISSUES, &master::HEALTH_ISSUES];
static SERVER: &[&Description] = &[&server::HEALTH_ISSUES];
static MASTER: &[&Description] = &[&master::HEALTH_ISSUES];

kinds! {
    DiskFull = kind("disk_full", Critical, "TerraneDiskFull", BOTH,
        "The disk of a server is filled up to its reserve, so that it rejects writes, or that of a master is full",
        "Free space on the disk, or add servers and let regions move.");
    DiskLow = kind("disk_low", Warning, "TerraneDiskNearlyFull", BOTH,
        "The disk of a server or master will soon be full",
        "Free space, or add servers, before writes are rejected.");
    DiskSlow = kind("disk_slow", Warning, "TerraneDiskSlow", BOTH,
        "Every sync of the log of a server or master takes long, or one does not return",
        "Give the log a faster disk, or find what else uses this one.");
    DiskFailing = kind("disk_failing", Critical, "TerraneDiskFailing", SERVER,
        "The disk of a server has damaged so many replicas that it gets no more",
        "Drain the server and replace its disk.");
    CompactionSpace = kind("compaction_space", Warning, "TerraneCompactionsWaitForDisk", SERVER,
        "A compaction waits for disk space",
        "Free space on the disk: reads become slower, and writes will be held back.");
    Flush = kind("flush", Critical, "TerraneFlushesFail", SERVER,
        "A region cannot be flushed, or the state of a group cannot be recorded",
        "Look at the server's disk and log: its log grows until writes are rejected.");
    Compaction = kind("compaction", Warning, "TerraneCompactionsFail", SERVER,
        "The files of a region cannot be compacted",
        "Look at the server's disk and log.");
    Damage = kind("damage", Critical, "TerraneReplicaDamaged", &[&server::HEALTH_ISSUES, &server::DAMAGED_REPLICAS],
        "The disk of a server has returned wrong bytes: a replica is damaged until another one takes its place",
        "Check the disk, and replace the server if it repeats.").found_as("damage");
    ReplicasDiffer = kind("replicas_differ", Critical, "TerraneReplicasDiffer",
        &[&server::HEALTH_ISSUES, &server::COMPARISONS_DIFFERING],
        "The replicas of a region hold different cells, and no majority says which are right",
        "Nothing is replaced. Compare the table with its source or a backup; once the leader is right, drain the other servers in turn.");
    ReplicaFailed = kind("replica_failed", Critical, "TerraneReplicaFailed", &[&raft::FAILED_REPLICAS],
        "A replica has failed and stopped",
        "Restart the process; if it fails again, replace the server.");
    ReplicaStuck = kind("replica_stuck", Warning, "TerraneReplicaStuck", &[&raft::STUCK_REPLICAS],
        "A replica applies nothing although entries are committed",
        "One that lacks files gets a copy of its group; otherwise look at the server's disk.");
    CopyFails = kind("copy_fails", Warning, "TerraneCopiesFail", SERVER,
        "A member needs a copy of its group and does not get one",
        "Look at the network between the two servers, and at the disk of the one that receives.");
    ClockWrong = kind("clock_wrong", Warning, "TerraneClockWrong", BOTH,
        "The clock of a server or master is wrong; a server leads nothing until it is corrected",
        "Correct the clock and see that NTP runs.");
    LogFull = kind("log_full", Critical, "TerraneLogFull", SERVER,
        "A group rejects writes because its share of a server's log is full",
        "Bring back the absent member that holds the log back, or let the region be flushed that does.");
    LogHeld = kind("log_held", Warning, "TerraneLogNearLimit", &[&master::HEALTH_ISSUES, &server::RESOURCE_USED, &server::RESOURCE_LIMIT],
        "The log of a server is over half full and held back",
        "Bring back the absent member, or let the region be flushed, that the issue names.");
    LogCopying = kind("log_copying", Warning, "TerraneLogCannotBeCopied", BOTH,
        "Entries of the log that are still needed cannot be copied out of old segments",
        "Look at the disk: the log grows until that succeeds.");
    WritesHeldBack = kind("writes_held_back", Warning, "TerraneWritesHeldBack", &[&server::WRITE_PRESSURE],
        "A server holds writes back because flushes or compactions lag behind",
        "Look at the disk; more servers, or fewer writes, are the cure.");
    Rejections = kind("rejections", Warning, "TerraneRequestsRejected", &[&server::RESOURCE_REJECTIONS, &master::RESOURCE_REJECTIONS],
        "A server or master rejects requests or connections because a resource is at its limit",
        "Clients retry them. docs/design/bounds.md says what the resource is.");
    ResourceNearLimit = kind("resource_near_limit", Warning, "TerraneResourceNearLimit",
        &[&server::RESOURCE_USED, &server::RESOURCE_LIMIT, &master::RESOURCE_USED, &master::RESOURCE_LIMIT],
        "A limited resource of a server or master has been nearly used up for a while",
        "docs/design/bounds.md says what the resource is; find who uses it before requests are rejected.");
    HotRow = kind("hot_row", Note, "TerraneHotRow", SERVER,
        "One row has so much of the load that no split spreads it",
        "Write it less often, or under several keys; cache what is read.");
    Unsplittable = kind("unsplittable", Note, "TerraneRegionTooLarge", MASTER,
        "A region exceeds its size and has no row to split at",
        "One row is as large as the region: spread it over several rows.");
    LostMajority = kind("lost_majority", Critical, "TerraneGroupsWithoutLeader", &[&master::GROUPS_WITHOUT_LEADER],
        "A group has lost the majority of its members",
        "Bring back one of the servers that the issue names.").found_as("majority");
    Leaderless = kind("leaderless", Critical, "TerraneGroupsWithoutLeader", &[&master::GROUPS_WITHOUT_LEADER],
        "A group has no leader; its regions are unavailable",
        "It elects one within seconds unless the members cannot reach each other, or their disks are slow.").found_as("leader");
    LastCopy = kind("last_copy", Critical, "TerraneGroupsWithOneCopy", &[&master::GROUPS_SHORT_OF_COPIES],
        "Groups have one copy left, or none",
        "Bring back the servers with the other copies, or add servers: the loss of one more disk loses data.").found_as("copies");
    FewCopies = kind("few_copies", Warning, "TerraneGroupsShortOfCopies", &[&master::GROUPS_SHORT_OF_COPIES],
        "Groups have fewer copies than the cluster keeps",
        "Missing copies are made again once a server can take them; `terrane admin procedures` shows that.").found_as("copies");
    CopyBehind = kind("copy_behind", Warning, "TerraneCopyBehind", MASTER,
        "A copy has been behind its leader for a while",
        "Look at the disk and the network of its server: it does not count if another one fails.");
    Placement = kind("placement", Warning, "TerraneReplicasCannotBePlaced", MASTER,
        "A replica has to be replaced or added, and no server can take it",
        "Start another server.");
    ServerSilent = kind("server_silent", Warning, "TerraneServerSilent", &[&master::SERVERS],
        "A server has stopped reporting",
        "Start it again; if it does not come back, its replicas are replaced after the grace time.").found_as("server");
    ServerUnreachable = kind("server_unreachable", Warning, "TerraneServerUnreachable", &[&master::SERVERS],
        "A server reports, and calls to its address fail",
        "Start it with `--advertise HOST:PORT` that leads to it, or open the way to it.").found_as("server");
    ServerStopped = kind("server_stopped", Warning, "TerraneServerStopped", &[&master::SERVERS],
        "A server was stopped and has not come back",
        "Start it again, or remove it; its replicas are replaced after the grace time.").found_as("server");
    MasterUnreachable = kind("master_unreachable", Warning, "TerraneMasterUnreachable", MASTER,
        "A master does not answer the others",
        "Start it again, or replace it.");
    NoLeadingMaster = kind("no_leading_master", Critical, "TerraneNoLeadingMaster", &[&master::LEADS],
        "No master leads: data is served, and nothing can be changed",
        "Bring masters back until a majority runs.");
    Checkpoint = kind("checkpoint", Warning, "TerraneCheckpointsFail", MASTER,
        "A master cannot write the checkpoint of its catalog",
        "Look at the disk of the master; nothing is lost while its log is kept.");
    Waiting = kind("waiting", Note, "TerraneProceduresWait", MASTER,
        "A table or a procedure of the masters waits for something",
        "The issue says for what; `terrane admin procedures` lists the procedures.");
    Check = kind("check", Warning, "TerraneCheckFindings", &[&master::CHECK_FINDINGS],
        "Catalog, groups and servers have disagreed for minutes",
        "`terrane admin check` lists what it finds; report it if nothing in the cluster explains it.").found_as("others");
    Other = kind("other", Warning, "TerraneOtherIssue", BOTH,
        "A server of another build reports an issue of a kind that this one does not know",
        "The issue says what it is.");
}

impl IssueKind {
    /// Its name on the wire, in labels and in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// The kind of this name; [`IssueKind::Other`] if this build does not know it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).unwrap_or(Self::Other)
    }

    /// An issue of this kind.
    #[must_use]
    pub fn issue(self, what: impl Into<String>) -> Issue {
        Issue { kind: self, what: what.into() }
    }
}

/// A health issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// What kind of issue it is.
    pub kind: IssueKind,
    /// What is wrong and, after a semicolon, what to do: a sentence without a full stop.
    pub what: String,
}

/// Pairs sentences with the names of their kinds, as they are sent. A sender of another build may not name them.
pub fn paired(sentences: Vec<String>, kinds: &[String]) -> Vec<Issue> {
    let kinds = kinds.iter().map(|name| IssueKind::named(name)).chain(std::iter::repeat(IssueKind::Other));
    sentences.into_iter().zip(kinds).map(|(what, kind)| Issue { kind, what }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::list;

    const RULES: &str = include_str!("../../deploy/prometheus/alerts.yml");

    /// The alert rules by name: expression and severity.
    fn rules() -> BTreeMap<&'static str, (&'static str, &'static str)> {
        let after = |rule: &'static str, key: &str| {
            let line = rule.lines().find_map(|line| line.trim().strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in {rule}")).trim()
        };
        let rules = RULES.split("- alert: ").skip(1);
        let known = rules.map(|rule| {
            for part in ["summary: ", "description: "] {
                assert!(!after(rule, part).is_empty(), "{rule}");
            }
            (rule.lines().next().unwrap_or_default().trim(), (after(rule, "expr: "), after(rule, "severity: ")))
        });
        known.collect()
    }

    #[test]
    fn every_kind_of_issue_has_a_metric_and_an_alert() {
        let (rules, listed): (_, BTreeSet<&str>) = (rules(), list::all().map(|metric| metric.name).collect());
        for kind in IssueKind::ALL {
            let about = kind.about();
            let (expr, severity) = rules.get(about.alert).unwrap_or_else(|| panic!("{kind:?} has no {}", about.alert));
            assert_eq!(*severity, about.severity.label(), "{kind:?} and its alert {}", about.alert);
            assert!(!about.metrics.is_empty(), "{kind:?} has no metric");
            for metric in about.metrics {
                assert!(listed.contains(metric.name), "{kind:?}: {} is not listed", metric.name);
                let by_kind = format!("{}{{kind=\"{}\"}}", metric.name, about.name);
                let named = metric.samples().iter().any(|sample| expr.contains(sample.as_str()));
                let is_generic = metric.labels.contains(&"kind") && metric.name != master::CHECK_FINDINGS.name;
                assert!(
                    if is_generic { expr.contains(&by_kind) } else { named },
                    "{kind:?}: {} in {expr}",
                    metric.name
                );
            }
        }
    }

    #[test]
    fn alerts_read_metrics_that_exist_and_kinds_that_exist() {
        let listed: BTreeSet<String> = list::all().flat_map(Description::samples).collect();
        for (alert, (expr, _)) in rules() {
            let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for metric in words.filter(|word| word.starts_with("terrane_")) {
                assert!(listed.contains(metric), "{alert}: {metric} is not listed");
            }
            for kind in expr.split("kind=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(IssueKind::ALL.iter().any(|known| known.name() == kind), "{alert}: no issue is a {kind}");
            }
        }
    }

    #[test]
    fn kinds_have_names_of_their_own_and_say_what_to_do() {
        let mut names = BTreeSet::new();
        for kind in IssueKind::ALL {
            let about = kind.about();
            assert!(names.insert(about.name), "{} is taken", about.name);
            assert!(about.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", about.name);
            assert_eq!(IssueKind::named(about.name), *kind);
            assert!(!about.help.ends_with('.') && about.action.ends_with('.'), "{kind:?}");
        }
        assert_eq!(IssueKind::named("of a later build"), IssueKind::Other);
    }

    #[test]
    fn what_an_earlier_build_reports_has_no_kind() {
        let issues = paired(vec!["one".to_owned(), "two".to_owned()], &["flush".to_owned()]);
        assert_eq!(issues, [IssueKind::Flush.issue("one"), IssueKind::Other.issue("two")]);
    }
}
