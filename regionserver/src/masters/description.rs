//! What a lost catalog is rebuilt from: this server's registration, and what its replicas have.
//!
//! The region's own log is the truth about a region, so everything but the registration comes from the replicas' states.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_proto::convert::server_address;
use terrane_proto::hello::Identity;
use terrane_proto::v1;

use crate::edge::Edge;
use crate::group::proposal::Group;
use crate::masters::region_ids::RegionIdStock;
use crate::replicas::membership;

/// What this server is registered with.
pub struct Description {
    pub address: String,
    pub console: String,
    pub engine: String,
    pub zone: String,
}

impl Description {
    pub fn describe(&self, here: Identity, edge: &Edge, region_ids: &RegionIdStock) -> v1::DescribeServerReply {
        let servers = edge.addresses.all();
        v1::DescribeServerReply {
            cluster_id: Bytes::copy_from_slice(&here.cluster.0),
            server: here.server.0,
            address: self.address.clone(),
            console: self.console.clone(),
            engine: self.engine.clone(),
            zone: self.zone.clone(),
            servers: servers.iter().map(|(server, address)| server_address(*server, address)).collect(),
            replicas: edge.host.groups().iter().map(|group| contents(edge, group)).collect(),
            region_ids_end: region_ids.end(),
        }
    }
}

fn contents(edge: &Edge, group: &Group) -> v1::ReplicaContents {
    let members = group.status().members.into_iter();
    let hosted = edge.replicas.machine(group.id()).map(|machine| machine.hosted()).unwrap_or_default();
    let mut schemas = BTreeMap::new();
    let mut regions = Vec::new();
    for state in hosted.iter().map(|region| region.state()) {
        regions.push((&state.descriptor).into());
        schemas.entry((state.schema.table, state.schema.version)).or_insert_with(|| (&*state.schema).into());
    }
    v1::ReplicaContents {
        group: group.id().0,
        log: Some(membership::inspection(group.inspect())),
        members: members
            .map(|(replica, server)| v1::GroupMember { replica: replica.0, server: server.0, address: String::new() })
            .collect(),
        regions,
        schemas: schemas.into_values().collect(),
    }
}
