//! Rebuilds a lost catalog: asks the region servers what they have, and makes the data directories of new masters.
//!
//! The servers run meanwhile and serve. The new masters have the cluster's id, so the servers accept them, and know of each
//! other as if they had founded the cluster. The leader that they elect first records the rebuilt catalog where the leader of
//! a new cluster records that it exists (`leading`).
//!
//! What only the catalog had is lost: empty namespaces, properties of namespaces, drains, unfinished procedures, recorded requests, and whether
//! balancing was switched off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use terrane_env::fs;
use terrane_proto::hello;
use terrane_proto::v1::{self, region_server_client::RegionServerClient};
use terrane_proto::{MESSAGE_BYTES_MAX, error};
use terrane_types::{ClusterId, Error, GroupId, RegionDescriptor, ReplicaId, ServerId, TableSchema};

use crate::catalog::groups::{GroupEntry, GroupState};
use crate::catalog::rebuilt::Found;
use crate::catalog::servers::Registration;
use crate::catalog::{Bootstrap, Catalog};
use crate::masters::numbers::numbered;
use crate::server::identity::{Founder, Identity};

/// The file of a rebuilt catalog that no leader has recorded yet, in the catalog's directory.
pub(crate) const NAME: &str = "rebuilt";
/// Deadline of one call.
const ASK_MAX: Duration = Duration::from_secs(10);
/// The bits of an id below its incarnation.
const INCARNATION_SHIFT: u32 = 48;

/// What to rebuild.
#[derive(Clone, Debug)]
pub struct Rebuild {
    /// The addresses of the region servers.
    pub servers: Vec<String>,
    /// The addresses of the new masters.
    pub peers: Vec<String>,
    /// Tables to drop, because regions of them are lost.
    pub drop: BTreeSet<String>,
    /// Where the data directories are made, one for each master.
    pub out: PathBuf,
}

/// What was rebuilt.
#[derive(Clone, Debug)]
pub struct Rebuilt {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its servers.
    pub servers: usize,
    /// Its groups.
    pub groups: usize,
    /// Its tables.
    pub tables: usize,
    /// Their regions.
    pub regions: usize,
    /// The data directory of each master, by address.
    pub directories: Vec<(String, PathBuf)>,
}

/// Rebuilds a catalog.
///
/// # Errors
/// What is missing or does not fit together, a sentence each. Nothing was written then, or not everything.
pub async fn rebuild(order: &Rebuild) -> Result<Rebuilt, Vec<String>> {
    let mut peers = order.peers.clone();
    peers.sort();
    peers.dedup();
    if ![1, 3, 5].contains(&peers.len()) {
        return Err(vec![format!("there can be 1, 3 or 5 masters, not {}", peers.len())]);
    }
    let answers = futures::future::join_all(order.servers.iter().map(|address| describe(address))).await;
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (address, answer) in order.servers.iter().zip(answers) {
        match answer {
            Ok(reply) => found.push(reply),
            Err(error) => silent.push(format!("the server at {address} does not answer: {error}")),
        }
    }
    if !silent.is_empty() {
        return Err(silent);
    }
    let recorded = if peers.len() == 1 { Vec::new() } else { peers.clone() };
    let catalog = Catalog::rebuilt(gather(&found, recorded, &order.drop).map_err(|what| vec![what])?)?;
    let directories = write(&catalog, &peers, &order.out).await.map_err(|what| vec![what])?;
    Ok(Rebuilt {
        cluster: catalog.cluster(),
        servers: catalog.servers().iter().len(),
        groups: catalog.groups().len(),
        tables: catalog.tables().len(),
        regions: catalog.regions().len(),
        directories,
    })
}

async fn describe(address: &str) -> Result<v1::DescribeServerReply, Error> {
    let channel = terrane_env::net::channel(address).map_err(|error| Error::Internal { message: error.to_string() })?;
    let mut client = RegionServerClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let hello = Some(hello::ours(None, ServerId(0), ServerId(0), 1));
    let call = client.describe_server(v1::DescribeServerRequest { hello });
    match tokio::time::timeout(ASK_MAX, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(error::from_status(&status)),
        Err(_) => Err(Error::DeadlineExceeded),
    }
}

/// Puts together what servers have. Of the replicas of a group, the one with the longest log says who its members are, and
/// the one that has applied most says what it has: its regions and tables are those as applied.
fn gather(found: &[v1::DescribeServerReply], peers: Vec<String>, drop: &BTreeSet<String>) -> Result<Found, String> {
    let cluster = one_cluster(found)?;
    let mut by_group: BTreeMap<GroupId, &v1::ReplicaContents> = BTreeMap::new();
    let mut by_content: BTreeMap<GroupId, &v1::ReplicaContents> = BTreeMap::new();
    for replica in found.iter().flat_map(|server| &server.replicas).filter(|replica| is_member(replica)) {
        let known = by_group.entry(GroupId(replica.group)).or_insert(replica);
        if length(replica) > length(known) {
            *known = replica;
        }
        let known = by_content.entry(GroupId(replica.group)).or_insert(replica);
        if (log(replica).applied, length(replica)) > (log(known).applied, length(known)) {
            *known = replica;
        }
    }
    let groups: BTreeMap<GroupId, GroupEntry> =
        by_group.iter().map(|(group, contents)| (*group, entry(contents))).collect();
    let (mut schemas, mut claims) = (Vec::new(), Vec::new());
    for contents in by_content.values() {
        for schema in &contents.schemas {
            schemas.push(TableSchema::try_from(schema.clone()).map_err(|error| error.to_string())?);
        }
        for region in &contents.regions {
            claims.push(RegionDescriptor::try_from(region.clone()).map_err(|error| error.to_string())?);
        }
    }
    let servers = registrations(found, &groups)?;
    let replication = groups.values().map(|entry| entry.members.len()).max().unwrap_or(0);
    let replication = match replication {
        0..=1 => 1,
        2..=3 => 3,
        _ => 5,
    };
    let incarnation = match terrane_env::planted!("a rebuilt catalog gives ids out again") {
        true => highest(found, &claims),
        false => highest(found, &claims) + 1,
    };
    let bootstrap = Bootstrap { cluster, peers, replication };
    Ok(Found { bootstrap, incarnation, servers, groups, schemas, claims, drop: drop.clone() })
}

fn one_cluster(found: &[v1::DescribeServerReply]) -> Result<ClusterId, String> {
    let mut clusters: Vec<_> = found.iter().map(|server| &server.cluster_id).collect();
    clusters.sort();
    clusters.dedup();
    let [only] = clusters.as_slice() else { return Err("the servers belong to different clusters".to_owned()) };
    let known = hello::cluster_of(only).map_err(|error| error.to_string())?;
    known.ok_or_else(|| "a server does not know its cluster".to_owned())
}

fn log(replica: &v1::ReplicaContents) -> v1::InspectReplicaReply {
    replica.log.clone().unwrap_or_default()
}

fn length(replica: &v1::ReplicaContents) -> (u64, u64) {
    let log = log(replica);
    (log.last_term, log.last_index)
}

/// The voters of a replica's newest configuration.
fn voters(replica: &v1::ReplicaContents) -> Vec<u64> {
    log(replica).voters.pop().map(|voters| voters.replicas).unwrap_or_default()
}

/// A replica that was removed from its group does not speak for it.
fn is_member(replica: &v1::ReplicaContents) -> bool {
    let own = log(replica).replica;
    replica.group != GroupId::MASTER.0 && replica.members.iter().any(|member| member.replica == own)
}

fn entry(contents: &v1::ReplicaContents) -> GroupEntry {
    let voters = voters(contents);
    let votes = |member: &&v1::GroupMember| voters.contains(&member.replica);
    let members = contents.members.iter().filter(votes);
    let members: BTreeMap<ReplicaId, ServerId> =
        members.map(|member| (ReplicaId(member.replica), ServerId(member.server))).collect();
    let leader = members.values().next().copied().unwrap_or_default();
    GroupEntry { state: GroupState::Open, ..GroupEntry::creating(leader, members) }
}

/// The servers that answered, and the members of groups that are away.
fn registrations(
    found: &[v1::DescribeServerReply],
    groups: &BTreeMap<GroupId, GroupEntry>,
) -> Result<BTreeMap<ServerId, Registration>, String> {
    let registration = |server: &v1::DescribeServerReply| Registration {
        address: server.address.clone(),
        console: server.console.clone(),
        engine: server.engine.clone(),
        zone: server.zone.clone(),
    };
    let mut servers: BTreeMap<ServerId, Registration> =
        found.iter().map(|server| (ServerId(server.server), registration(server))).collect();
    let engine = found.first().map(|server| server.engine.clone()).unwrap_or_default();
    for server in groups.values().flat_map(|entry| entry.members.values()) {
        if !servers.contains_key(server) {
            let known = found.iter().flat_map(|other| &other.servers).find(|known| known.server == server.0);
            let address = known.map(|known| known.address.clone());
            let address = address.ok_or_else(|| format!("server {server} has replicas; name its address, too"))?;
            let (console, engine, zone) = (String::new(), engine.clone(), String::new());
            servers.insert(*server, Registration { address, console, engine, zone });
        }
    }
    Ok(servers)
}

/// The highest incarnation of an id.
fn highest(found: &[v1::DescribeServerReply], claims: &[RegionDescriptor]) -> u16 {
    let of_servers = found.iter().flat_map(|server| [server.server, server.region_ids_end]);
    let replicas = found.iter().flat_map(|server| &server.replicas);
    let of_replicas = replicas.flat_map(|replica| {
        let members = replica.members.iter().flat_map(|member| [member.replica, member.server]);
        members.chain([replica.group, log(replica).replica])
    });
    let of_regions = claims.iter().flat_map(|claim| [claim.region.0, claim.table.0]);
    let ids = of_servers.chain(of_replicas).chain(of_regions);
    ids.map(|id| u16::try_from(id >> INCARNATION_SHIFT).expect("16 bits are left")).max().unwrap_or(0)
}

/// Makes the directories. One that exists is refused.
pub(crate) async fn write(catalog: &Catalog, peers: &[String], out: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |path: &Path, error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let (cluster, checkpoint) = (catalog.cluster(), catalog.as_edit());
    let nonces = nonces(cluster, peers.len());
    let mut directories = Vec::new();
    for (place, address) in peers.iter().enumerate() {
        let directory = out.join(address.replace([':', '/', '[', ']'], "_"));
        if fs::exists(&directory).await.map_err(|error| failed(&directory, error))? {
            return Err(format!("{} exists; choose another --out", directory.display()));
        }
        let inside = directory.join("catalog");
        fs::create_dir_durable(&inside).await.map_err(|error| failed(&inside, error))?;
        let file = inside.join(NAME);
        fs::write_durable(&file, &checkpoint).await.map_err(|error| failed(&file, error))?;
        let founder = (peers.len() > 1)
            .then(|| Founder { peers: peers.to_vec(), nonces: nonces.iter().copied().map(Some).collect() });
        let identity = Identity { cluster, number: numbered(place, 0), boot: 0, founder, met: Vec::new() };
        identity.store(&directory).await.map_err(|error| error.to_string())?;
        directories.push((address.clone(), directory));
    }
    Ok(directories)
}

/// Contributions to the cluster's id, as if the masters had founded it.
fn nonces(cluster: ClusterId, count: usize) -> Vec<[u8; 16]> {
    let mut nonces: Vec<[u8; 16]> = (1..count).map(|_| terrane_env::rand::bytes()).collect();
    let sum = nonces
        .iter()
        .map(|nonce| u128::from_be_bytes(*nonce))
        .fold(u128::from_be_bytes(cluster.0), |sum, one| sum ^ one);
    nonces.push(sum.to_be_bytes());
    nonces
}

/// The rebuilt catalog in a catalog's directory, if there is one.
pub(crate) async fn load(catalog_dir: &Path) -> std::io::Result<Option<bytes::Bytes>> {
    match fs::read(&catalog_dir.join(NAME)).await {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::{ClusterId, KeyRange, RegionEpoch, RegionId, TableId};

    use super::*;

    /// What a server has of group 2: its replica's log and applied entry, its group's voters, and a region with an epoch.
    fn described(replica: u64, (last, applied): (u64, u64), voters: &[u64], epoch: u64) -> v1::DescribeServerReply {
        let region = RegionDescriptor {
            region: RegionId(5),
            epoch: RegionEpoch(epoch),
            table: TableId(3),
            group: GroupId(2),
            range: KeyRange::all(),
            schema_version: 1,
        };
        let member = |number: &u64| v1::GroupMember { replica: *number, server: *number, ..Default::default() };
        let log = v1::InspectReplicaReply {
            replica,
            last_term: 1,
            last_index: last,
            applied,
            voters: vec![v1::ReplicaSet { replicas: voters.to_vec() }],
            ..Default::default()
        };
        let contents = v1::ReplicaContents {
            group: 2,
            log: Some(log),
            members: voters.iter().map(member).collect(),
            regions: vec![(&region).into()],
            ..Default::default()
        };
        v1::DescribeServerReply {
            cluster_id: ClusterId([7; 16]).0.to_vec().into(),
            server: replica,
            replicas: vec![contents],
            servers: (1..=3).map(|server| v1::ServerAddress { server, address: format!("s{server}:1") }).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_longest_log_names_the_members_and_the_replica_that_has_applied_most_the_regions() {
        let found = [described(1, (90, 40), &[1, 2, 3], 1), described(2, (80, 80), &[1, 2], 2)];
        let gathered = gather(&found, Vec::new(), &BTreeSet::new()).unwrap();
        assert_eq!(gathered.groups[&GroupId(2)].members.len(), 3);
        let epochs: Vec<u64> = gathered.claims.iter().map(|region| region.epoch.0).collect();
        assert_eq!(epochs, [2], "what is in a log and not applied is in no region");
    }
}
