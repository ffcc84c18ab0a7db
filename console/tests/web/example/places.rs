//! Servers, tables, regions and groups of the invented cluster.

use terrane_console::source::{
    Attribute, Failure, Family, Group, GroupDetail, Issue, IssueKind, Key, KeyPart, Master, Member, Overview, Place,
    Region, RegionDetail, RegionLoad, RegionSelection, Server, Severity, Table, TableDetail,
};
use terrane_types::{GroupId, RegionId, ServerId};

use super::history::events_about;
use super::load::history;
use super::{NOW_MS, noise};

/// Name, regions, key, families of a table.
type Declared = (&'static str, usize, Option<&'static str>, &'static [&'static str]);
const TABLES: [Declared; 4] = [
    ("actions", 48, Some("user:u64, time:desc i64, action:u32"), &["d"]),
    ("telemetry", 1_000, Some("bucket16, device:u64, time:i64"), &["m", "raw"]),
    ("weather", 12, Some("station:bytes12, time:desc i64"), &["data"]),
    ("webtable", 3, None, &["anchor", "contents", "language"]),
];
const SERVERS: u64 = 4;
const GROUPS: u64 = 8;
const SILENT: u64 = 3;

pub fn user_key(user: u64) -> Key {
    Key::decoded(user.to_be_bytes(), format!("user={user}"))
}

fn load(seed: u64, tenths: u64) -> RegionLoad {
    let noise = noise(seed, 77) * tenths / 10;
    RegionLoad { rows_read: noise * 3, rows_written: noise, bytes: noise * 1_350 }
}

fn address(server: u64) -> String {
    format!("10.0.0.1{server}:7700")
}

pub fn overview() -> Overview {
    let regions = all_regions();
    Overview {
        cluster: "orders-eu".to_owned(),
        seen_from: "server 2 at 10.0.0.12:7700".to_owned(),
        version: "0.1.0".to_owned(),
        time_ms: NOW_MS,
        masters: (1..=3)
            .map(|id| Master { address: format!("10.0.0.{id}:7600"), leader: id == 2, reachable: Some(id != 3) })
            .collect(),
        servers: (1..=SERVERS).map(server).collect(),
        tables: TABLES.len() as u64,
        regions: regions.len() as u64,
        groups: GROUPS,
        bytes: regions.iter().map(|region| region.bytes).sum(),
        load: RegionLoad { rows_read: 18_412, rows_written: 7_209, bytes: 9_120_400 },
        history: history(1),
        problems: vec![
            problem(
                (IssueKind::ServerSilent, Severity::Critical),
                "Server 3 has been silent for 41 s; 6 groups have two of three members.",
                "Start it again, or wait: its replicas are replaced after 5 min. `terrane admin replication` shows the progress.",
                Place::Server(ServerId(3)),
            ),
            problem(
                (IssueKind::HotRow, Severity::Warning),
                "Region 30 of actions takes 41 % of the table's writes.",
                "The heat map names the hottest keys and what to do.",
                Place::Region(RegionId(30)),
            ),
            problem(
                (IssueKind::Other, Severity::Note),
                "The compaction rate is limited to 64 MiB/s.",
                "Set it back to its default when the disks are idle.",
                Place::Setting("server.compaction_rate".to_owned()),
            ),
        ],
    }
}

fn problem((kind, severity): (IssueKind, Severity), what: &str, next: &str, place: Place) -> Issue {
    Issue { severity, ..kind.issue(what).at(place).then(next) }
}

fn server(id: u64) -> Server {
    let silent = id == SILENT;
    Server {
        id,
        address: address(id),
        console: (!silent).then(|| format!("10.0.0.1{id}:7710")),
        zone: Some(format!("fra-{}", ["a", "b", "c", "a"][id as usize - 1])),
        state: if silent { "silent" } else { "live" }.to_owned(),
        healthy: !silent,
        leaders: if silent { 0 } else { 3 - id % 2 },
        replicas: 6,
        regions: if silent { 0 } else { 354 },
        bytes: Some((180 + id * 7) << 30),
        disk_free_bytes: (!silent).then_some((600 - id * 31) << 30),
        load: if silent { RegionLoad::default() } else { load(id, 90) },
    }
}

pub fn tables() -> Vec<Table> {
    let table = |(at, (name, regions, key, families)): (usize, &Declared)| Table {
        name: (*name).to_owned(),
        families: families.iter().map(|family| (*family).to_owned()).collect(),
        key: key.map(str::to_owned),
        regions: *regions as u64,
        bytes: (*regions as u64 * 190) << 20,
        disabled: *name == "webtable",
        load: load(at as u64 + 5, if *name == "webtable" { 0 } else { 60 }),
    };
    TABLES.iter().enumerate().map(table).collect()
}

pub fn table(name: &str) -> Result<TableDetail, Failure> {
    let tables = tables();
    let Some(table) = tables.iter().find(|table| table.name == name) else {
        return Err(Failure::unknown("table", name, tables.iter().map(|table| table.name.as_str())));
    };
    let parts = table.key.as_deref().unwrap_or_default().split(", ").filter(|part| !part.is_empty());
    let key_parts = parts.map(|part| {
        let (name, kind) = part.split_once(':').unwrap_or(("", part));
        KeyPart { name: name.to_owned(), kind: kind.to_owned() }
    });
    let attribute =
        |name: &str, value: &str, default| Attribute { name: name.to_owned(), value: value.to_owned(), default };
    let family = |name: &String| Family {
        name: name.clone(),
        attributes: vec![
            attribute("versions", if name == "d" { "3" } else { "1" }, name != "d"),
            attribute("ttl", "forever", true),
            attribute("compression", "zstd", name == "m"),
            attribute("bloom", "row", true),
        ],
        columns: if name == "d" {
            vec![("count".to_owned(), "i64".to_owned()), ("ok".to_owned(), "bool".to_owned())]
        } else {
            Vec::new()
        },
    };
    Ok(TableDetail {
        key_parts: key_parts.collect(),
        attributes: vec![
            attribute("region_size", "256MiB", table.name != "actions"),
            attribute("replication", "3", true),
            attribute("read_only", "false", true),
        ],
        family_details: table.families.iter().map(family).collect(),
        create_command: table
            .key
            .as_ref()
            .map(|key| format!("terrane table create {name} --family {} --key '{key}'", table.families.join(" "))),
        regions: all_regions().into_iter().filter(|region| region.table == name).collect(),
        table: table.clone(),
    })
}

fn boundary(table: &str, at: usize, total: usize) -> Key {
    if at == 0 || at == total {
        return Key::default();
    }
    match table {
        "actions" => user_key(at as u64 * 10_000_000 / total as u64),
        "telemetry" => {
            let (bucket, device) = (at * 16 / total, at * 7_919 % 100_000);
            let mut bytes = vec![u8::try_from(bucket).unwrap()];
            bytes.extend((at as u64 * 1_000).to_be_bytes());
            Key::decoded(bytes, format!("bucket {bucket}, device={}", device + at * 100_000))
        }
        "weather" => {
            let station = format!("{:06}-99999", at * 82_000);
            Key::decoded(station.as_bytes(), format!("station={station}"))
        }
        _ => Key::of_bytes(["com.cnn", "org.wiki\\pedia\x00"][at - 1].as_bytes()),
    }
}

pub fn all_regions() -> Vec<Region> {
    let mut regions = Vec::new();
    for (table, total, _, _) in &TABLES {
        for at in 0..*total {
            let id = regions.len() as u64 + 1;
            let group = id % GROUPS + 1;
            let leader = [1, 2, 4][(group % 3) as usize];
            let splitting = id == 30;
            regions.push(Region {
                id,
                table: (*table).to_owned(),
                start: boundary(table, at, *total),
                end: boundary(table, at + 1, *total),
                epoch: 1 + noise(id, 1) % 9,
                group,
                leader: (id != 41).then_some(leader),
                leader_address: (id != 41).then(|| address(leader)),
                state: if id == 41 {
                    "no leader"
                } else if splitting {
                    "splitting"
                } else {
                    "open"
                }
                .to_owned(),
                healthy: id != 41,
                bytes: (60 << 20) + noise(id, 2) * 200_000,
                load: load(id, if splitting { 40 } else { 1 }),
            });
        }
    }
    regions
}

pub fn regions(selection: &RegionSelection) -> Result<Vec<Region>, Failure> {
    if let Some(name) = &selection.table {
        table(name)?;
    }
    let matches = |region: &Region| {
        selection.table.as_ref().is_none_or(|table| *table == region.table)
            && selection.server.is_none_or(|server| region.leader == Some(server))
            && selection.group.is_none_or(|group| region.group == group)
    };
    Ok(all_regions().into_iter().filter(matches).collect())
}

fn members(group: u64) -> Vec<Member> {
    let leader = [1, 2, 4][(group % 3) as usize];
    let second = if group.is_multiple_of(4) { 1 + leader % 2 } else { SILENT };
    let third = (1..=SERVERS).rev().find(|server| ![leader, second, SILENT].contains(server)).unwrap();
    let servers = [leader, second, third];
    let member = |(at, server): (usize, u64)| Member {
        replica: group * 10 + at as u64,
        server,
        address: address(server),
        role: if at == 0 { "leader" } else { "follower" }.to_owned(),
        healthy: server != SILENT,
        behind: Some(if server == SILENT { 12_407 } else { at as u64 }),
    };
    servers.into_iter().enumerate().map(member).collect()
}

pub fn region(id: u64) -> Result<RegionDetail, Failure> {
    let Some(region) = all_regions().into_iter().find(|region| region.id == id) else {
        return Err(Failure::unknown("region", &id.to_string(), []));
    };
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Ok(RegionDetail {
        members: members(region.group),
        facts: vec![
            fact("Memtable", "31 MiB"),
            fact("Store files", "14 in 4 levels"),
            fact("Compaction debt", "212 MiB"),
            fact("Durable point", "log index 88,120,441"),
        ],
        history: history(id),
        events: events_about(&Place::Region(RegionId(30))),
        advice: super::load::heat(&terrane_console::source::HeatQuery {
            table: region.table.clone(),
            measure: terrane_console::source::LoadMeasure::Writes,
            from_ms: None,
            to_ms: None,
            span_ms: 3_600_000,
            start: region.start.bytes.clone(),
            end: region.end.bytes.clone(),
            columns_max: 60,
            rows_max: 1,
        })?
        .hottest
        .into_iter()
        .filter_map(|spot| spot.advice)
        .take(1)
        .collect(),
        region,
    })
}

pub fn groups() -> Vec<Group> {
    (1..=GROUPS).map(summary).collect()
}

fn summary(id: u64) -> Group {
    let regions: Vec<Region> = all_regions().into_iter().filter(|region| region.group == id).collect();
    let members = members(id);
    let healthy = members.iter().all(|member| member.healthy);
    Group {
        id,
        term: Some(7 + id),
        leader: Some(members[0].server),
        leader_address: Some(members[0].address.clone()),
        regions: regions.len() as u64,
        bytes: regions.iter().map(|region| region.bytes).sum(),
        state: if healthy { "ok" } else { "2 of 3 members" }.to_owned(),
        healthy,
        load: load(id, 20),
        members,
    }
}

pub fn group(id: u64) -> Result<GroupDetail, Failure> {
    if !(1..=GROUPS).contains(&id) {
        return Err(Failure::unknown("group", &id.to_string(), []));
    }
    Ok(GroupDetail {
        group: summary(id),
        facts: vec![
            ("Commit index".to_owned(), "88,120,447".to_owned()),
            ("Applied index".to_owned(), "88,120,447".to_owned()),
            ("Log kept".to_owned(), "96 MiB".to_owned()),
        ],
        regions: regions(&RegionSelection { group: Some(id), ..RegionSelection::default() })?,
        events: events_about(&Place::Group(GroupId(2))),
    })
}
