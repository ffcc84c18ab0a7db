//! The overview, servers, regions and log groups.

use std::collections::BTreeMap;

use terrane_client::{Client, ClusterStatus, GroupInfo, LoadMeasure, RegionInfo, TableInfo};
use terrane_console::source::{
    Failure, Group, GroupDetail, HeatQuery, Master, Member, Overview, Place, Region, RegionDetail, RegionSelection,
    Server,
};
use terrane_types::health::sentence;
use terrane_types::states::{DrainState, MasterState, RegionState, ServerState};
use terrane_types::{GroupId, Issue, KeyDeclaration, RegionId};

use super::refusal::refused;
use super::{heat, keys, past};

pub(super) async fn overview(client: &Client, seen_from: &str) -> Result<Overview, Failure> {
    let admin = client.admin();
    let status = admin.status().await.map_err(refused)?;
    // The rest says more about a cluster that works, and its absence must not hide what is wrong.
    let regions = admin.regions(None).await.unwrap_or_default();
    let history = admin.cluster_load().await.map(|load| load.minutes).unwrap_or_default();
    let master = |master: &terrane_client::MasterInfo| Master {
        address: master.address.clone(),
        leader: master.state == MasterState::Leader,
        reachable: Some(master.state != MasterState::Unreachable),
    };
    Ok(Overview {
        cluster: status.cluster.to_string(),
        seen_from: seen_from.to_owned(),
        version: terrane_client::BUILD.to_owned(),
        time_ms: terrane_env::time::wall_ms(),
        masters: status.masters.iter().map(master).collect(),
        servers: status.servers.iter().map(|known| server(known, &regions)).collect(),
        tables: u64::from(status.tables),
        regions: u64::from(status.regions),
        groups: u64::from(status.groups),
        bytes: regions.iter().map(|region| region.bytes).sum(),
        load: regions.iter().map(|region| region.load).sum(),
        history,
        problems: problems(&status),
    })
}

fn server(known: &terrane_client::ServerInfo, regions: &[RegionInfo]) -> Server {
    let drain = known.drain.filter(|_| known.state == ServerState::Live);
    Server {
        id: known.server.0,
        address: known.address.clone(),
        console: Some(known.console.clone()).filter(|console| !console.is_empty()),
        zone: Some(known.zone.clone()).filter(|zone| !zone.is_empty()),
        state: drain.map_or(known.state.name(), DrainState::name).to_owned(),
        healthy: known.state == ServerState::Live,
        leaders: u64::from(known.leaders),
        replicas: u64::from(known.replicas),
        regions: u64::from(known.regions),
        bytes: known.store_bytes.map(|files| files + known.log_bytes),
        disk_free_bytes: known.disk_free_bytes,
        load: regions.iter().filter(|region| region.leader == known.address).map(|region| region.load).sum(),
    }
}

/// The health issues that `terrane status` shows, worst first, in sentences.
fn problems(status: &ClusterStatus) -> Vec<Issue> {
    let shown = |issue: Issue| Issue { what: sentence(&issue.what), next: issue.action(), ..issue };
    let mut problems: Vec<Issue> = status.health_issues().into_iter().map(shown).collect();
    problems.sort_by_key(|problem| problem.severity);
    problems
}

/// The declared keys of all tables, by name.
fn declared(tables: &[TableInfo]) -> BTreeMap<String, KeyDeclaration> {
    let named = |table: &TableInfo| Some((table.schema.name.to_string(), table.schema.key.clone()?));
    tables.iter().filter_map(named).collect()
}

pub(super) async fn regions(client: &Client, selection: &RegionSelection) -> Result<Vec<Region>, Failure> {
    let admin = client.admin();
    if let Some(table) = &selection.table {
        super::lookup::describe(client, table).await?;
    }
    let found = admin.regions(selection.table.as_deref()).await.map_err(refused)?;
    let declared = declared(&admin.list_tables().await.map_err(refused)?);
    let servers: BTreeMap<String, u64> =
        admin.servers().await.map_err(refused)?.into_iter().map(|server| (server.address, server.server.0)).collect();
    let regions = found.iter().map(|known| region_shown(known, declared.get(&known.table), &servers));
    let wanted = |region: &Region| {
        selection.server.is_none_or(|server| region.leader == Some(server))
            && selection.group.is_none_or(|group| region.group == group)
    };
    Ok(regions.filter(wanted).collect())
}

fn region_shown(known: &RegionInfo, key: Option<&KeyDeclaration>, servers: &BTreeMap<String, u64>) -> Region {
    Region {
        id: known.descriptor.region.0,
        table: known.table.clone(),
        start: keys::shown(key, &known.descriptor.range.start),
        end: keys::shown(key, &known.descriptor.range.end),
        epoch: known.descriptor.epoch.0,
        group: known.descriptor.group.0,
        leader: servers.get(&known.leader).copied(),
        leader_address: Some(known.leader.clone()).filter(|leader| !leader.is_empty()),
        state: known.state.name().to_owned(),
        healthy: known.state == RegionState::Open && !known.leader.is_empty(),
        bytes: known.bytes,
        load: known.load,
    }
}

async fn region_of(client: &Client, id: u64) -> Result<Region, Failure> {
    let regions = regions(client, &RegionSelection::default()).await?;
    let missing = || {
        Failure::not_found(
            format!("There is no region {id}."),
            "It may have been split or merged: the events say so. The page of all regions lists those there are.",
        )
    };
    regions.into_iter().find(|region| region.id == id).ok_or_else(missing)
}

pub(super) async fn region(client: &Client, id: u64) -> Result<RegionDetail, Failure> {
    let region = region_of(client, id).await?;
    let group = group_of(client, region.group).await?;
    let history = heat::minutes(client, &region).await?;
    let query = HeatQuery {
        table: region.table.clone(),
        measure: LoadMeasure::Writes,
        from_ms: None,
        to_ms: None,
        span_ms: 3_600_000,
        start: Vec::new(),
        end: Vec::new(),
        columns_max: 60,
        rows_max: 1_000,
    };
    let heat = heat::map(client, query).await?;
    let hot = heat.hottest.into_iter().filter(|hot| hot.region == Some(id));
    Ok(RegionDetail {
        members: group.members,
        facts: vec![("group".to_owned(), region.group.to_string()), ("epoch".to_owned(), region.epoch.to_string())],
        history,
        events: past::events_of(client, &Place::Region(RegionId(id))).await?,
        advice: hot.filter_map(|hot| hot.advice).collect(),
        region,
    })
}

pub(super) async fn groups(client: &Client) -> Result<Vec<Group>, Failure> {
    let groups = client.admin().groups().await.map_err(refused)?;
    let regions = client.admin().regions(None).await.map_err(refused)?;
    Ok(groups.iter().map(|known| group_shown(known, &regions)).collect())
}

async fn group_of(client: &Client, id: u64) -> Result<Group, Failure> {
    let missing =
        || Failure::not_found(format!("There is no group {id}."), "The page of all groups lists those there are.");
    groups(client).await?.into_iter().find(|group| group.id == id).ok_or_else(missing)
}

fn group_shown(known: &GroupInfo, regions: &[RegionInfo]) -> Group {
    let own = || regions.iter().filter(|region| region.descriptor.group == known.group);
    let members = known.members.iter().zip(known.replicas.iter().map(Some).chain(std::iter::repeat(None)));
    let member = |((server, address), replica): (&(terrane_client::ServerId, String), Option<&u64>)| Member {
        replica: replica.copied().unwrap_or(0),
        server: server.0,
        address: address.clone(),
        role: if known.leader == Some(*server) { "leader" } else { "follower" }.to_owned(),
        healthy: true,
        behind: None,
    };
    let leader = known.leader.and_then(|leader| known.members.iter().find(|(server, _)| *server == leader));
    Group {
        id: known.group.0,
        term: Some(known.term),
        leader: known.leader.map(|server| server.0),
        leader_address: leader.map(|(_, address)| address.clone()),
        members: members.map(member).collect(),
        regions: u64::from(known.regions),
        bytes: own().map(|region| region.bytes).sum(),
        state: known.leader.map_or("no leader", |_| known.state.name()).to_owned(),
        healthy: known.leader.is_some(),
        load: own().map(|region| region.load).sum(),
    }
}

pub(super) async fn group(client: &Client, id: u64) -> Result<GroupDetail, Failure> {
    let selection = RegionSelection { group: Some(id), ..RegionSelection::default() };
    let known = client.admin().groups().await.map_err(refused)?;
    let applied = known.iter().find(|group| group.group.0 == id).map_or(0, |group| group.applied);
    Ok(GroupDetail {
        group: group_of(client, id).await?,
        facts: vec![("applied index".to_owned(), applied.to_string())],
        regions: regions(client, &selection).await?,
        events: past::events_of(client, &Place::Group(GroupId(id))).await?,
    })
}
