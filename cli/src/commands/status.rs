//! `status`: an overview of the cluster and its health issues.

use serde::Serialize;
use terrane_client::{ClusterStatus, MasterInfo, ProcessVersions, RepairProgress, ResourceUsage, ServerInfo};
use terrane_types::states::ServerState;
use terrane_types::versions::range_text;
use terrane_types::{Issue, Place};

use super::admin::print_servers;
use super::masters::print_masters;
use super::{comparisons, connect, repair};
use crate::args::client::Status;
use crate::args::values::Time;
use crate::failure::{During, Failure};
use crate::output::{Output, bytes_rounded};

pub async fn run(args: Status) -> Result<(), Failure> {
    let client = connect(&args.connection).await?;
    let status = client.admin().status().await.during("get the status")?;
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&StatusLine::from(&status))?;
    } else {
        // The rest is worth showing without it.
        let groups = client.admin().groups().await.unwrap_or_default();
        let compared = comparisons::of_all(&groups, terrane_env::time::wall_ms());
        print(&mut output, &status, compared.as_deref(), args.resources)?;
    }
    output.flush()?;
    match status.health_issues().len() {
        0 => Ok(()),
        _ if !args.check => Ok(()),
        1 => Err(Failure::new("the cluster has a health issue")),
        issues => Err(Failure::new(format!("the cluster has {issues} health issues"))),
    }
}

#[derive(Serialize)]
struct StatusLine<'a> {
    cluster: String,
    healthy: bool,
    replication: u32,
    servers: usize,
    live: usize,
    tables: u32,
    regions: u32,
    groups: u32,
    groups_without_leader: u32,
    waiting_for: String,
    troubles: Vec<String>,
    issues: Vec<IssueLine>,
    resources: Vec<ResourceLine<'a>>,
    masters: &'a [MasterInfo],
    feature_level: u32,
    level_waits_for: Vec<String>,
    replace_after_seconds: u64,
    repair: Option<&'a RepairProgress>,
    processes: Vec<ProcessLine<'a>>,
    region_servers: &'a [ServerInfo],
}

/// A health issue. The sentence ends with what to do where the issue itself says it.
#[derive(Serialize)]
struct IssueLine {
    kind: &'static str,
    severity: &'static str,
    what: String,
    place: Option<Place>,
    next: String,
}

/// The versions of a process, which has not said them if they are missing.
#[derive(Serialize)]
struct ProcessLine<'a> {
    process: String,
    address: &'a str,
    #[serde(flatten)]
    versions: Option<&'a ProcessVersions>,
}

#[derive(Serialize)]
struct ResourceLine<'a> {
    /// One of these two.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    master: Option<&'a str>,
    #[serde(flatten)]
    usage: &'a ResourceUsage,
}

impl<'a> From<&'a ClusterStatus> for StatusLine<'a> {
    fn from(status: &'a ClusterStatus) -> StatusLine<'a> {
        let issues = status.health_issues();
        let line = |issue: &Issue| IssueLine {
            kind: issue.kind.name(),
            severity: issue.severity.label(),
            what: issue.text(),
            place: issue.place.clone(),
            next: issue.action(),
        };
        StatusLine {
            cluster: status.cluster.to_string(),
            healthy: issues.is_empty(),
            replication: status.replication,
            servers: status.servers.len(),
            live: status.servers.iter().filter(|server| is_live(server)).count(),
            tables: status.tables,
            regions: status.regions,
            groups: status.groups,
            groups_without_leader: status.groups_without_leader,
            waiting_for: status.waiting_for.clone(),
            troubles: issues.iter().map(Issue::text).collect(),
            issues: issues.iter().map(line).collect(),
            resources: resource_lines(status).collect(),
            masters: &status.masters,
            feature_level: status.feature_level,
            level_waits_for: status.level_waits_for.clone(),
            replace_after_seconds: status.replace_after.as_secs(),
            repair: status.repair.as_ref(),
            processes: processes(status)
                .map(|(process, address, versions)| ProcessLine { process, address, versions })
                .collect(),
            region_servers: &status.servers,
        }
    }
}

/// A process: what it is, its address, and its versions.
type Process<'a> = (String, &'a str, Option<&'a ProcessVersions>);

fn processes(status: &ClusterStatus) -> impl Iterator<Item = Process<'_>> {
    let masters = status.masters.iter();
    let masters = masters.map(|master| ("master".to_owned(), master.address.as_str(), master.versions.as_ref()));
    let servers = status.servers.iter();
    let server = |server: &ServerInfo| format!("server {}", server.server);
    masters.chain(servers.map(move |known| (server(known), known.address.as_str(), known.versions.as_ref())))
}

/// The level of the cluster; while builds are mixed, also what each process runs and which hold the next level back.
fn print_versions(output: &mut Output, status: &ClusterStatus) -> Result<(), Failure> {
    let said: Vec<&ProcessVersions> = processes(status).filter_map(|(_, _, versions)| versions).collect();
    let is_mixed = said.windows(2).any(|pair| (&pair[0].build, pair[0].level) != (&pair[1].build, pair[1].level));
    output.line(&format!("feature level {}", status.feature_level))?;
    if status.level_waits_for.is_empty() && !is_mixed {
        return Ok(());
    }
    for why in &status.level_waits_for {
        output.line(&format!("- level {} waits: {why}", status.feature_level + 1))?;
    }
    output.line("")?;
    let row = |(process, address, versions): Process<'_>| {
        let known = |text: &dyn Fn(&ProcessVersions) -> String| {
            versions.map(text).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
        };
        let build = known(&|said| said.build.clone());
        vec![
            process,
            address.to_owned(),
            build,
            known(&|said| said.level.to_string()),
            known(&|said| range_text(&said.protocol)),
        ]
    };
    output.table(&["process", "address", "build", "level", "protocol"], processes(status).map(row).collect())
}

/// The limited resources of masters and servers, each with the address of its master or the number of its server.
fn resources(status: &ClusterStatus) -> impl Iterator<Item = (Result<u64, &str>, &ResourceUsage)> {
    let of_masters = status.masters.iter().flat_map(|master| {
        let address = master.address.as_str();
        master.resources.iter().map(move |usage| (Err(address), usage))
    });
    let of_servers =
        status.servers.iter().flat_map(|server| server.resources.iter().map(move |usage| (Ok(server.server.0), usage)));
    of_masters.chain(of_servers)
}

fn resource_lines(status: &ClusterStatus) -> impl Iterator<Item = ResourceLine<'_>> {
    resources(status).map(|(process, usage)| ResourceLine { server: process.ok(), master: process.err(), usage })
}

fn is_live(server: &ServerInfo) -> bool {
    server.state == ServerState::Live
}

/// Whether a resource is listed without --resources: it is more than half full, or rejected requests.
fn is_notable(usage: &ResourceUsage) -> bool {
    usage.refused > 0 || usage.used > usage.limit / 2
}

fn print_resources(output: &mut Output, status: &ClusterStatus, all: bool) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = resources(status)
        .filter(|(_, usage)| all || is_notable(usage))
        .map(|(process, usage)| {
            let amount = |number: u64| if usage.is_bytes { bytes_rounded(number) } else { number.to_string() };
            vec![
                process.map_or_else(|master| format!("master {master}"), |server| server.to_string()),
                usage.name.clone(),
                amount(usage.used),
                amount(usage.peak),
                amount(usage.limit),
                usage.refused.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    output.table(&["server", "resource", "used", "peak", "limit", "refused"], rows)?;
    output.line("")
}

fn print(
    output: &mut Output,
    status: &ClusterStatus,
    compared: Option<&str>,
    all_resources: bool,
) -> Result<(), Failure> {
    output.line(&format!("cluster {}, replication {}", status.cluster, status.replication))?;
    let led = status.groups - status.groups_without_leader.min(status.groups);
    let count = |number: u32, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let (tables, regions) = (count(status.tables, "table"), count(status.regions, "region"));
    output.line(&format!("{tables}, {regions}, {} ({led} with a leader)", count(status.groups, "group")))?;
    if let Some(repair) = &status.repair {
        output.line(&repair::text(repair))?;
    }
    if status.replace_after_is_set {
        output.line(&format!(
            "servers are replaced {} after they went away (`terrane admin set`)",
            Time(status.replace_after)
        ))?;
    }
    if let Some(compared) = compared {
        output.line(compared)?;
    }
    print_versions(output, status)?;
    output.line("")?;
    print_masters(output, &status.masters)?;
    output.line("")?;
    print_servers(output, &status.servers)?;
    output.line("")?;
    print_resources(output, status, all_resources)?;
    let issues = status.health_issues();
    if issues.is_empty() {
        return output.line("healthy: no issues");
    }
    output.line("health issues:")?;
    issues.iter().try_for_each(|issue| output.line(&format!("- {}", issue.text())))
}

#[cfg(test)]
mod tests {
    use terrane_client::ServerId;

    use super::*;
    use terrane_types::IssueKind;

    fn server(state: ServerState) -> ServerInfo {
        ServerInfo { server: ServerId(2), address: "h:1".to_owned(), state, ..ServerInfo::default() }
    }

    fn status(servers: Vec<ServerInfo>) -> ClusterStatus {
        ClusterStatus { servers, ..ClusterStatus::default() }
    }

    #[test]
    fn a_live_cluster_has_no_issues() {
        assert_eq!(status(vec![server(ServerState::Live)]).health_issues(), Vec::<Issue>::new());
    }

    #[test]
    fn issues_come_from_the_master() {
        let mut bad = status(vec![server(ServerState::Silent), server(ServerState::Live)]);
        bad.waiting_for = "waiting for 1 more region server".to_owned();
        let silent = IssueKind::ServerSilent.issue("server 2 (h:1) is silent for 7 s").at(Place::Server(ServerId(2)));
        bad.issues = vec![silent.clone()];
        let waiting = IssueKind::Waiting.issue("waiting for 1 more region server");
        assert_eq!(bad.health_issues(), [waiting, silent]);
        let line = StatusLine::from(&bad);
        let issue = serde_json::to_string(&line.issues[1]).expect("JSON");
        let expected = concat!(
            r#"{"kind":"server_silent","severity":"warning","what":"server 2 (h:1) is silent for 7 s","place":{"server":2},"#,
            r#""next":"Start it again; if it does not come back, its replicas are replaced after the grace time."}"#
        );
        assert_eq!(issue, expected);
        assert_eq!((line.healthy, line.servers, line.live, line.region_servers.len()), (false, 2, 1, 2));
    }
}
