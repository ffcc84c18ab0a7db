//! `admin`: lists servers, regions and groups; splits, merges, moves, flushes and compacts by hand. The JSON output is part of the
//! grammar.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use terrane_client::{Client, GroupInfo, Maintained, RegionDescriptor, RegionId, RegionInfo, RegionState, ServerInfo};
use terrane_types::{KeyDeclaration, TableId, escape};
use tokio::time::Instant;

use super::{
    comparisons, connect, diagnostics, fleet, hbase_site, hot, masters, recover_group, repair, running_settings,
};
use crate::args::client::{Admin, Raw};
use crate::args::values::TableWord;
use crate::failure::{During, Failure};
use crate::output::{Output, bytes_rounded, duration_text};
use crate::progress::Progress;
use crate::table_text::TableText;

pub async fn run(command: Admin) -> Result<(), Failure> {
    match command {
        Admin::Servers { connection } => {
            let servers = connect(&connection).await?.admin().servers().await.during("list the servers")?;
            let mut output = Output::new(connection.json);
            print_servers(&mut output, &servers)?;
            output.flush()
        }
        Admin::Regions { table, connection } => {
            let name = table.map(|table| table.to_string());
            let admin = connect(&connection).await?.admin();
            let regions = admin.regions(name.as_deref()).await.during("list the regions")?;
            let keys = keys_of(&admin).await;
            let mut output = Output::new(connection.json);
            print_regions(&mut output, &regions, &keys)?;
            output.flush()
        }
        Admin::Groups { connection } => {
            let groups = connect(&connection).await?.admin().groups().await.during("list the groups")?;
            let mut output = Output::new(connection.json);
            print_groups(&mut output, &groups)?;
            output.flush()
        }
        Admin::Flush { table, connection } => {
            let table = table.to_string();
            let admin = connect(&connection).await?.admin();
            let mut work = Work::begin(&format!("flushing {table}"));
            let done = admin.flush_table(&table, |maintained| work.update(maintained)).await;
            let done = done.during(format!("flush table {table}"))?;
            work.end("flushed", &table, &done, Output::new(connection.json))
        }
        Admin::Compact { table, connection } => {
            let table = table.to_string();
            let admin = connect(&connection).await?.admin();
            let mut work = Work::begin(&format!("compacting {table}"));
            let done = admin.compact_table(&table, |maintained| work.update(maintained)).await;
            let done = done.during(format!("compact table {table}"))?;
            work.end("compacted", &table, &done, Output::new(connection.json))
        }
        Admin::Procedures { ended: true, connection } => fleet::ended_procedures(&connection).await,
        Admin::Procedures { ended: false, connection } => fleet::procedures(&connection).await,
        Admin::Cancel { procedure, connection } => fleet::cancel(&procedure, &connection).await,
        Admin::Drain { server, no_wait, connection } => fleet::drain(&server, no_wait, &connection).await,
        Admin::Undrain { server, connection } => fleet::undrain(&server, &connection).await,
        Admin::Decommission { server, connection } => fleet::decommission(&server, &connection).await,
        Admin::RestartCheck { server, wait, connection } => {
            fleet::restart_check(server.as_deref(), wait, &connection).await
        }
        Admin::Balance { mode, dry_run, connection } => fleet::balance(mode, dry_run, &connection).await,
        Admin::Replication { replicas, connection } => fleet::replication(replicas, &connection).await,
        Admin::Masters { connection } => masters::list(&connection).await,
        Admin::HbaseSite { connection } => hbase_site::run(&connection).await,
        Admin::SetMasters { list, yes, connection } => masters::set(&list.0, yes, &connection).await,
        Admin::RecoverGroup { group: Some(group), yes, connection, .. } => {
            recover_group::run(group, yes, &connection).await
        }
        Admin::RecoverGroup { group: None, yes, connection, .. } => recover_group::run_all(yes, &connection).await,
        Admin::Check { connection } => fleet::check(&connection).await,
        Admin::Slow { limit, connection } => diagnostics::slow(limit, &connection).await,
        Admin::Hot { table, limit, connection } => hot::run(&table.to_string(), limit, &connection).await,
        Admin::Set { name, value, server, connection } => {
            running_settings::run(name, value.as_deref(), server.as_deref(), &connection).await
        }
        Admin::Repair { wait, connection } => repair::run(wait, &connection).await,
        Admin::Log { filter, server, connection } => {
            diagnostics::log(filter.as_deref(), server.as_deref(), &connection).await
        }
        Admin::Split { region, at, raw, connection } => {
            let client = connect(&connection).await?;
            let at = match &at {
                Some(word) => Some(boundary_in(&client, region, word, raw).await?),
                None => None,
            };
            let admin = client.admin();
            let daughters =
                admin.split(RegionId(region), at.as_deref()).await.during(format!("split region {region}"))?;
            let keys = keys_of(&admin).await;
            let mut output = Output::new(connection.json);
            print_changed(&mut output, &daughters, &keys)?;
            output.flush()
        }
        Admin::Move { region, to, connection } => fleet::move_region(region, &to, &connection).await,
        Admin::Merge { region, other, connection } => {
            let admin = connect(&connection).await?.admin();
            let merged = admin.merge(RegionId(region), RegionId(other)).await;
            let merged = merged.during(format!("merge regions {region} and {other}"))?;
            let keys = keys_of(&admin).await;
            let mut output = Output::new(connection.json);
            print_changed(&mut output, &[merged], &keys)?;
            output.flush()
        }
    }
}

/// The declared keys of tables, by whose parts boundaries are shown.
type Keys = BTreeMap<TableId, KeyDeclaration>;

/// Without an answer there are none: boundaries are then shown as bytes.
async fn keys_of(admin: &terrane_client::Admin) -> Keys {
    let tables = admin.list_tables().await.unwrap_or_default();
    tables.into_iter().filter_map(|table| Some((table.schema.table, table.schema.key?))).collect()
}

/// The start and the end of a region, by the parts of the table's key; `None`: it declares none.
fn parts_of(region: &RegionDescriptor, keys: &Keys) -> Option<(String, String)> {
    let key = keys.get(&region.table)?;
    Some((key.shown(&region.range.start), key.shown(&region.range.end)))
}

/// The boundary that a word names in the table of a region.
async fn boundary_in(client: &Client, region: u64, word: &TableWord, raw: Raw) -> Result<Bytes, Failure> {
    let during = || format!("split region {region}");
    let regions = client.admin().regions(None).await.during(during())?;
    let of = regions.into_iter().find(|info| info.descriptor.region == RegionId(region));
    let of = of.ok_or_else(|| {
        Failure::new(format!("region {region} does not exist"))
            .during(during())
            .advise("`terrane admin regions` lists the regions")
    })?;
    let table = client.table(&of.table.to_string()).await.during(during())?;
    TableText::of(&table, raw).boundary(word)
}

/// A flush or compaction of a table: progress on standard error, then the result.
struct Work {
    progress: Progress,
    started: Instant,
}

#[derive(Serialize)]
struct WorkLine<'a> {
    table: &'a str,
    servers: u32,
    replicas: u32,
    bytes: u64,
    seconds: f64,
    failures: &'a [String],
}

impl Work {
    fn begin(label: &str) -> Self {
        Self { progress: Progress::with_unknown_total(label), started: Instant::now() }
    }

    fn update(&mut self, now: &Maintained) {
        let message = format!(
            "{} of {} replicas, {} of {}",
            now.replicas_done,
            now.replicas,
            bytes_rounded(now.bytes_done),
            bytes_rounded(now.bytes)
        );
        self.progress.work(now.bytes_done, now.bytes, &message);
    }

    fn end(self, what: &str, table: &str, done: &Maintained, mut output: Output) -> Result<(), Failure> {
        self.progress.finish();
        let elapsed = self.started.elapsed();
        if output.is_json() {
            output.object(&WorkLine {
                table,
                servers: done.servers,
                replicas: done.replicas,
                bytes: done.bytes_done,
                seconds: elapsed.as_secs_f64(),
                failures: &done.failures,
            })?;
        } else {
            let (bytes, time) = (bytes_rounded(done.bytes_done), duration_text(elapsed));
            output
                .line(&format!("{what} {} replicas on {} servers, {bytes} in {time}", done.replicas, done.servers))?;
        }
        output.flush()?;
        match &done.failures[..] {
            [] => Ok(()),
            failures => Err(Failure::new(failures.join("; ")).during(format!("table {table} was only partly {what}"))),
        }
    }
}

/// The state of a server with its drain, and when its replicas are replaced.
fn state_text(server: &ServerInfo) -> String {
    let drain = server.drain.map(|drain| format!(", {drain}")).unwrap_or_default();
    let replaced = match server.replaced_in.map(|left| left.as_secs()) {
        None => String::new(),
        Some(0) => ", being replaced".to_owned(),
        Some(left) if left < 60 => format!(", replaced in {left} s"),
        Some(left) => format!(", replaced in {} min {} s", left / 60, left % 60),
    };
    format!("{}{drain}{replaced}", server.state)
}

fn known_bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_owned(), bytes_rounded)
}

pub fn print_servers(output: &mut Output, servers: &[ServerInfo]) -> Result<(), Failure> {
    if output.is_json() {
        return servers.iter().try_for_each(|server| output.object(server));
    }
    let rows = servers.iter().map(|server| {
        vec![
            server.server.to_string(),
            server.address.clone(),
            state_text(server),
            server.leaders.to_string(),
            server.replicas.to_string(),
            server.regions.to_string(),
            server.engine.clone(),
            bytes_rounded(server.memtable_bytes),
            bytes_rounded(server.log_bytes),
            known_bytes(server.store_bytes),
            known_bytes(server.disk_free_bytes),
        ]
    });
    let heading = [
        "server",
        "address",
        "state",
        "leaders",
        "replicas",
        "regions",
        "engine",
        "memtables",
        "log",
        "files",
        "disk free",
    ];
    output.table(&heading, rows.collect())
}

/// A region in the format of the grammar, which has no load.
#[derive(Serialize)]
struct RegionLine<'a> {
    table: &'a str,
    #[serde(flatten)]
    range: RangeLine,
    leader: &'a str,
    bytes: u64,
    state: RegionState,
}

/// A region and its range, also by the parts of the declared key.
#[derive(Serialize)]
struct RangeLine {
    region: u64,
    start: String,
    stop: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_key: Option<String>,
    epoch: u64,
    group: u64,
}

impl RangeLine {
    fn new(region: &RegionDescriptor, keys: &Keys) -> Self {
        let (start_key, stop_key) = parts_of(region, keys).unzip();
        Self {
            region: region.region.0,
            start: escape(&region.range.start),
            stop: escape(&region.range.end),
            start_key,
            stop_key,
            epoch: region.epoch.0,
            group: region.group.0,
        }
    }

    /// Its start and its stop, for people.
    fn bounds(self) -> (String, String) {
        (self.start_key.unwrap_or(self.start), self.stop_key.unwrap_or(self.stop))
    }
}

impl<'a> RegionLine<'a> {
    fn new(region: &'a RegionInfo, keys: &Keys) -> RegionLine<'a> {
        let RegionInfo { descriptor, table, leader, bytes, state, .. } = region;
        RegionLine { table, range: RangeLine::new(descriptor, keys), leader, bytes: *bytes, state: *state }
    }
}

fn print_regions(output: &mut Output, regions: &[RegionInfo], keys: &Keys) -> Result<(), Failure> {
    if output.is_json() {
        return regions.iter().try_for_each(|region| output.object(&RegionLine::new(region, keys)));
    }
    let rows = regions.iter().map(|region| {
        let (start, stop) = RangeLine::new(&region.descriptor, keys).bounds();
        vec![
            region.table.clone(),
            region.descriptor.region.to_string(),
            start,
            stop,
            region.descriptor.epoch.to_string(),
            region.descriptor.group.to_string(),
            region.leader.clone(),
            bytes_rounded(region.bytes),
            region.state.to_string(),
            region.load.rows_read.to_string(),
            region.load.rows_written.to_string(),
            format!("{}/s", bytes_rounded(region.load.bytes)),
        ]
    });
    let heading = [
        "table", "region", "start", "stop", "epoch", "group", "leader", "size", "state", "reads/s", "writes/s", "load",
    ];
    output.table(&heading, rows.collect())
}

fn print_groups(output: &mut Output, groups: &[GroupInfo]) -> Result<(), Failure> {
    if output.is_json() {
        return groups.iter().try_for_each(|group| output.object(group));
    }
    let now_ms = terrane_env::time::wall_ms();
    let rows = groups.iter().map(|group| {
        let leader = group.leader.and_then(|leader| group.members.iter().find(|(server, _)| *server == leader));
        let others = group.members.iter().filter(|(server, _)| Some(*server) != group.leader);
        vec![
            group.group.to_string(),
            leader.map_or_else(|| "none".to_owned(), |(_, address)| address.clone()),
            group.term.to_string(),
            others.map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(" "),
            group.regions.to_string(),
            group.applied.to_string(),
            group.state.to_string(),
            comparisons::of_group(group, now_ms),
        ]
    });
    let heading = ["group", "leader", "term", "followers", "regions", "applied", "state", "compared"];
    output.table(&heading, rows.collect())
}

/// The regions that a split or merge made.
fn print_changed(output: &mut Output, regions: &[RegionDescriptor], keys: &Keys) -> Result<(), Failure> {
    for daughter in regions {
        let line = RangeLine::new(daughter, keys);
        if output.is_json() {
            output.object(&line)?;
        } else {
            let (start, stop) = line.bounds();
            output.line(&format!("region {} [{start}, {stop}) epoch {}", daughter.region, daughter.epoch))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use terrane_client::{KeyRange, RegionLoad, ServerId, ServerState};
    use terrane_types::{GroupId, RegionEpoch};

    use super::*;

    #[test]
    fn a_region_has_the_documented_format() {
        let info = RegionInfo {
            descriptor: RegionDescriptor {
                region: RegionId(7),
                table: TableId(3),
                range: KeyRange::new("", "k\0").expect("a range"),
                epoch: RegionEpoch(2),
                group: GroupId(3),
                schema_version: 1,
            },
            table: "t".to_owned(),
            leader: "127.0.0.1:7701".to_owned(),
            bytes: 123,
            state: RegionState::Open,
            servers: Vec::new(),
            load: RegionLoad { rows_read: 5, rows_written: 6, bytes: 700 },
        };
        let line = serde_json::to_string(&RegionLine::new(&info, &Keys::new())).expect("JSON");
        let expected = r#"{"table":"t","region":7,"start":"","stop":"k\\x00","epoch":2,"group":3,"leader":"127.0.0.1:7701","bytes":123,"state":"open"}"#;
        assert_eq!(line, expected);
    }

    #[test]
    fn boundaries_are_shown_by_the_parts_of_a_declared_key() {
        let key = KeyDeclaration::parse("user:u32, name:text").expect("a key");
        let region = RegionDescriptor {
            region: RegionId(7),
            table: TableId(3),
            range: KeyRange::new(&b"\0\0\0\x07"[..], key.parse_line("8,ann").expect("a row").into_bytes())
                .expect("a range"),
            epoch: RegionEpoch(2),
            group: GroupId(3),
            schema_version: 1,
        };
        let keys = Keys::from([(TableId(3), key)]);
        assert_eq!(parts_of(&region, &keys), Some(("user=7".to_owned(), "user=8,name=ann".to_owned())));
        assert_eq!(parts_of(&region, &Keys::new()), None);
    }

    #[test]
    fn a_server_has_the_documented_format() {
        let info = ServerInfo {
            server: ServerId(1),
            address: "127.0.0.1:7700".to_owned(),
            state: ServerState::Live,
            leaders: 4,
            replicas: 12,
            regions: 9,
            engine: "sled".to_owned(),
            store_bytes: Some(5),
            ..ServerInfo::default()
        };
        let line = serde_json::to_string(&info).expect("JSON");
        let expected = concat!(
            r#"{"server":1,"address":"127.0.0.1:7700","state":"live","leaders":4,"replicas":12,"regions":9,"#,
            r#""memtable_bytes":0,"log_bytes":0,"store_bytes":5,"disk_free_bytes":null}"#
        );
        assert_eq!(line, expected);
    }
}
