//! Health issues, as data: the kind of each, how bad it is, what it is about, what has happened and what to do next.
//!
//! Servers and masters find them, the wire carries them, and `terrane status`, the console and the metrics show them. Programs
//! look at the kind and the place; the sentences are for people alone.
//!
//! A kind is declared once, with the metrics and the alert rule that say the same, so none can be added without. The tests of
//! `terrane-metrics` compare the list with the alert rules under `deploy/`, and `docs/metrics.md` shows it.
//!
//! A server reports its own issues to the masters and counts them in `terrane_server_health_issues`. A master counts its own, and
//! those of the cluster while it leads, in `terrane_master_health_issues`. `status` lists both.

use crate::Place;

/// How bad an issue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Severity {
    /// Requests fail, or data is at risk: act now.
    Critical,
    /// The cluster works, with less margin than it should have: act today.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    const ALL: [Self; 3] = [Self::Critical, Self::Warning, Self::Note];

    /// The severity of this label, if there is one.
    #[must_use]
    pub fn labelled(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.label() == label)
    }

    /// The label `severity` of its alert, and its name on the wire.
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
    /// The names of the metrics that the rule reads.
    pub metrics: &'static [&'static str],
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
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
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
    metrics: &'static [&'static str],
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
const BOTH: &[&str] = &["terrane_server_health_issues", "terrane_master_health_issues"];
const SERVER: &[&str] = &["terrane_server_health_issues"];
const MASTER: &[&str] = &["terrane_master_health_issues"];

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
    Damage = kind("damage", Critical, "TerraneReplicaDamaged", &["terrane_server_health_issues", "terrane_server_damaged_replicas"],
        "The disk of a server has returned wrong bytes: a replica is damaged until another one takes its place",
        "Check the disk, and replace the server if it repeats.").found_as("damage");
    ReplicasDiffer = kind("replicas_differ", Critical, "TerraneReplicasDiffer",
        &["terrane_server_health_issues", "terrane_server_comparisons_differing"],
        "The replicas of a region hold different cells, and no majority says which are right",
        "Nothing is replaced. Compare the table with its source or a backup; once the leader is right, drain the other servers in turn.");
    ReplicaFailed = kind("replica_failed", Critical, "TerraneReplicaFailed", &["terrane_raft_failed_replicas"],
        "A replica has failed and stopped",
        "Restart the process; if it fails again, replace the server.");
    ReplicaStuck = kind("replica_stuck", Warning, "TerraneReplicaStuck", &["terrane_raft_stuck_replicas"],
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
    LogHeld = kind("log_held", Warning, "TerraneLogNearLimit", &["terrane_master_health_issues", "terrane_server_resource_used", "terrane_server_resource_limit"],
        "The log of a server is over half full and held back",
        "Bring back the absent member, or let the region be flushed, that the issue names.");
    LogCopying = kind("log_copying", Warning, "TerraneLogCannotBeCopied", BOTH,
        "Entries of the log that are still needed cannot be copied out of old segments",
        "Look at the disk: the log grows until that succeeds.");
    WritesHeldBack = kind("writes_held_back", Warning, "TerraneWritesHeldBack", &["terrane_server_write_pressure_ratio"],
        "A server holds writes back because flushes or compactions lag behind",
        "Look at the disk; more servers, or fewer writes, are the cure.");
    Rejections = kind("rejections", Warning, "TerraneRequestsRejected", &["terrane_server_resource_rejections", "terrane_master_resource_rejections"],
        "A server or master rejects requests or connections because a resource is at its limit",
        "Clients retry them. docs/design/bounds.md says what the resource is.");
    ResourceNearLimit = kind("resource_near_limit", Warning, "TerraneResourceNearLimit",
        &["terrane_server_resource_used", "terrane_server_resource_limit", "terrane_master_resource_used", "terrane_master_resource_limit"],
        "A limited resource of a server or master has been nearly used up for a while",
        "docs/design/bounds.md says what the resource is; find who uses it before requests are rejected.");
    HotRow = kind("hot_row", Note, "TerraneHotRow", SERVER,
        "One row has so much of the load that no split spreads it",
        "Write it less often, or under several keys; cache what is read.");
    Unsplittable = kind("unsplittable", Note, "TerraneRegionTooLarge", MASTER,
        "A region exceeds its size and has no row to split at",
        "One row is as large as the region: spread it over several rows.");
    LostMajority = kind("lost_majority", Critical, "TerraneGroupsWithoutLeader", &["terrane_master_groups_without_leader"],
        "A group has lost the majority of its members",
        "Bring back one of the servers that the issue names.").found_as("majority");
    Leaderless = kind("leaderless", Critical, "TerraneGroupsWithoutLeader", &["terrane_master_groups_without_leader"],
        "A group has no leader; its regions are unavailable",
        "It elects one within seconds unless the members cannot reach each other, or their disks are slow.").found_as("leader");
    LastCopy = kind("last_copy", Critical, "TerraneGroupsWithOneCopy", &["terrane_master_groups_short_of_copies"],
        "Groups have one copy left, or none",
        "Bring back the servers with the other copies, or add servers: the loss of one more disk loses data.").found_as("copies");
    FewCopies = kind("few_copies", Warning, "TerraneGroupsShortOfCopies", &["terrane_master_groups_short_of_copies"],
        "Groups have fewer copies than the cluster keeps",
        "Missing copies are made again once a server can take them; `terrane admin procedures` shows that.").found_as("copies");
    CopyBehind = kind("copy_behind", Warning, "TerraneCopyBehind", MASTER,
        "A copy has been behind its leader for a while",
        "Look at the disk and the network of its server: it does not count if another one fails.");
    Placement = kind("placement", Warning, "TerraneReplicasCannotBePlaced", MASTER,
        "A replica has to be replaced or added, and no server can take it",
        "Start another server.");
    ServerSilent = kind("server_silent", Warning, "TerraneServerSilent", &["terrane_master_servers"],
        "A server has stopped reporting",
        "Start it again; if it does not come back, its replicas are replaced after the grace time.").found_as("server");
    ServerUnreachable = kind("server_unreachable", Warning, "TerraneServerUnreachable", &["terrane_master_servers"],
        "A server reports, and calls to its address fail",
        "Start it with `--advertise HOST:PORT` that leads to it, or open the way to it.").found_as("server");
    ServerStopped = kind("server_stopped", Warning, "TerraneServerStopped", &["terrane_master_servers"],
        "A server was stopped and has not come back",
        "Start it again, or remove it; its replicas are replaced after the grace time.").found_as("server");
    MasterUnreachable = kind("master_unreachable", Warning, "TerraneMasterUnreachable", MASTER,
        "A master does not answer the others",
        "Start it again, or replace it.");
    NoLeadingMaster = kind("no_leading_master", Critical, "TerraneNoLeadingMaster", &["terrane_master_leads"],
        "No master leads: data is served, and nothing can be changed",
        "Bring masters back until a majority runs.");
    Checkpoint = kind("checkpoint", Warning, "TerraneCheckpointsFail", MASTER,
        "A master cannot write the checkpoint of its catalog",
        "Look at the disk of the master; nothing is lost while its log is kept.");
    Waiting = kind("waiting", Note, "TerraneProceduresWait", MASTER,
        "A table or a procedure of the masters waits for something",
        "The issue says for what; `terrane admin procedures` lists the procedures.");
    Check = kind("check", Warning, "TerraneCheckFindings", &["terrane_master_check_findings"],
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

    /// An issue of this kind: what has happened, as a clause.
    #[must_use]
    pub fn issue(self, what: impl Into<String>) -> Issue {
        Issue { kind: self, severity: self.about().severity, place: None, what: what.into(), next: String::new() }
    }
}

/// A health issue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Issue {
    /// What kind of issue it is.
    pub kind: IssueKind,
    /// How bad it is: what its kind says, unless a later build sent it whose kind this one does not know.
    pub severity: Severity,
    /// What it is about; `None`: the whole cluster.
    pub place: Option<Place>,
    /// What has happened, without a full stop.
    pub what: String,
    /// What to do next, where the issue says more than its kind does; otherwise empty.
    pub next: String,
}

impl Issue {
    /// It is about this.
    #[must_use]
    pub fn at(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// This is what to do next.
    #[must_use]
    pub fn then(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }

    /// What `reporter` says of it, which names the place `within` where the issue names none.
    #[must_use]
    pub fn reported(self, reporter: &str, within: Place) -> Self {
        Self { what: format!("{reporter}: {}", self.what), place: self.place.or(Some(within)), ..self }
    }

    /// What has happened and, where the issue itself says it, what to do: without a full stop.
    #[must_use]
    pub fn text(&self) -> String {
        if self.next.is_empty() { self.what.clone() } else { format!("{}; {}", self.what, self.next) }
    }

    /// What to do next, as a sentence.
    #[must_use]
    pub fn action(&self) -> String {
        sentence(if self.next.is_empty() { self.kind.about().action } else { &self.next })
    }
}

/// A clause as a sentence: with a capital letter and a full stop.
#[must_use]
pub fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let stop = if clause.ends_with(['.', '?', '!']) || clause.is_empty() { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ServerId;

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
    fn an_issue_says_what_its_kind_does_not() {
        let silent = IssueKind::ServerSilent.issue("it is silent").at(Place::Server(ServerId(2)));
        assert_eq!(
            (silent.text().as_str(), silent.action().as_str()),
            ("it is silent", IssueKind::ServerSilent.about().action)
        );
        let full = IssueKind::DiskFull.issue("it is full").then("add a disk");
        assert_eq!((full.text().as_str(), full.action().as_str()), ("it is full; add a disk", "Add a disk."));
        let told = full.reported("server 2 reports", Place::Server(ServerId(2)));
        assert_eq!((told.text().as_str(), told.place), ("server 2 reports: it is full; add a disk", silent.place));
    }
}
