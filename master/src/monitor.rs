//! Looks every few seconds at what is wrong with this master and, while it leads, with the cluster, and keeps it in
//! `crate::health`, where `status`, the other masters and the metrics find it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_metrics::ResourceUse;
use terrane_raft::GroupStatus;
use terrane_types::{Issue, IssueKind};

use crate::context::MasterContext;
use crate::fleet::copies::{self, Behind};
use crate::fleet::{self, check, planner};
use crate::health::{DiskSize, Seen, StandingFindings, disk_issue, finding_issues};
use crate::issues::{Reported, health_issues, leaderless};
use crate::journal::GroupHost;
use crate::masters_view;
use crate::servers::observed::now;
use crate::tables::waiting_for;

/// How often it looks. The check reads the whole map.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is remembered from look to look.
#[derive(Default)]
struct Watched {
    findings: StandingFindings,
    behind: Behind,
}

/// Keeps watch until dropped.
pub async fn run(context: Arc<MasterContext>, host: Arc<GroupHost>, directory: PathBuf) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut watched = Watched::default();
    loop {
        looks.tick().await;
        let disk = disk_size(&directory).await;
        let own = own_issues(&context, &host, disk.and_then(|disk| disk_issue(&directory, disk)));
        context.health.set_own(own.clone());
        let mut seen = Seen { kinds: own.iter().map(|issue| issue.kind).collect(), disk, ..Seen::default() };
        if context.leadership.holds() {
            of_cluster(&context, &mut watched, &mut seen).await;
        } else {
            // What it knows of the cluster may be outdated by the time it leads.
            watched = Watched::default();
            context.health.set_standing(Vec::new());
        }
        context.health.set_seen(seen);
    }
}

/// `None` if the sizes cannot be read: the disk fails the log by itself.
async fn disk_size(directory: &std::path::Path) -> Option<DiskSize> {
    let directory = directory.to_owned();
    let read = run_io(async move {
        let (free, size) = (fs::free_space(&directory).await?, fs::total_space(&directory).await?);
        Ok(DiskSize { free, size })
    });
    read.await
        .inspect_err(|error: &std::io::Error| tracing::debug!(%error, "cannot read the free space of the disk"))
        .ok()
}

fn own_issues(context: &MasterContext, host: &GroupHost, disk: Option<Issue>) -> Vec<Issue> {
    let lacks_space = host.log_lacks_space().map(|what| IssueKind::DiskFull.issue(what));
    let mut issues: Vec<Issue> = lacks_space.or(disk).into_iter().collect();
    issues.extend(host.log_status().trouble);
    issues.extend(host.clock_trouble().map(|what| IssueKind::ClockWrong.issue(what)));
    issues.extend(context.journal.checkpoint_issue().map(|what| IssueKind::Checkpoint.issue(what)));
    issues.extend(replica_issue(&context.journal.group_status()));
    let usages: Vec<ResourceUse> = context.budgets.usage().iter().map(crate::metrics::resource_use).collect();
    issues.extend(context.health.resources(now(), &usages));
    issues
}

/// What is wrong with this master's replica of group 0.
fn replica_issue(status: &GroupStatus) -> Option<Issue> {
    if let Some(why) = &status.failed {
        let failed = IssueKind::ReplicaFailed.issue(format!("its replica of the catalog stopped permanently: {why}"));
        return Some(failed.then("restart this master"));
    }
    let why = status.stuck.as_ref()?;
    Some(IssueKind::ReplicaStuck.issue(format!("its replica of the catalog is behind: {why}")))
}

/// Adds what is wrong with the cluster.
async fn of_cluster(context: &MasterContext, watched: &mut Watched, seen: &mut Seen) {
    let masters = masters_view::look(context).await;
    let obstacles = planner::obstacles(&fleet::world(context)).len();
    let (standing, kinds, waiting) = context.journal.read(|catalog| {
        let replace_after = context.fleet.replace_after(catalog);
        context.observed.with(|observed| {
            let now = now();
            let found = watched.findings.look(check::check(catalog, observed, now).findings, now);
            for finding in &found {
                *seen.findings.entry(finding.kind.clone()).or_default() += 1;
            }
            let mut standing = finding_issues(&found);
            standing.extend(watched.behind.look(catalog, observed, now));
            let short = copies::short(catalog, observed, now);
            seen.short = short.into_iter().map(|(have, groups)| (have, groups.len())).collect();
            let leaderless = leaderless(catalog, observed, now);
            let issues = health_issues(catalog, observed, &leaderless, now, replace_after, Reported::LeftOut);
            let kinds: Vec<IssueKind> = issues.iter().map(|issue| issue.kind).collect();
            (standing, kinds, usize::from(waiting_for(catalog, observed).is_some()))
        })
    });
    let of_masters = |issue: &&Issue| {
        // What another master reports of itself, it counts itself.
        matches!(issue.kind, IssueKind::MasterUnreachable | IssueKind::NoLeadingMaster)
    };
    seen.kinds.extend(masters.issues.iter().filter(of_masters).map(|issue| issue.kind));
    seen.kinds.extend(std::iter::repeat_n(IssueKind::Placement, obstacles));
    seen.kinds.extend(std::iter::repeat_n(IssueKind::Waiting, waiting + masters.waits.len()));
    seen.kinds.extend(kinds);
    seen.kinds.extend(standing.iter().map(|issue| issue.kind));
    context.health.set_standing(standing);
}
