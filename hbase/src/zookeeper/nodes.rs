//! The nodes that clients read, rendered from what this process knows of the cluster.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;

use crate::discovery::{Discovery, cluster_id_text};
use crate::place::Place;
use crate::proto;

/// The parent of all nodes, `zookeeper.znode.parent`.
const PARENT: &str = "/hbase";
const CLUSTER: &str = "hbaseid";
const MASTER: &str = "master";
const META: &str = "meta-region-server";
/// `RegionState.State.OPEN`.
const OPEN: u32 = 3;

/// What precedes a message in a node: a mark, the writer's name behind its length, and HBase's mark of messages.
const WRITER: &[u8] = b"terrane";

/// The nodes of a cluster at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    cluster: Option<Bytes>,
    master: Option<Bytes>,
    meta: Option<Bytes>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub data: Bytes,
    pub children: Vec<&'static str>,
}

impl Nodes {
    /// The nodes of the cluster as this process knows it. What is not known has no node: clients wait for it.
    #[must_use]
    pub fn new(known: &Discovery) -> Self {
        let cluster = |id| payload(&proto::ClusterId { cluster_id: cluster_id_text(id) });
        let master =
            |place: &Place| payload(&proto::Master { master: place.to_proto(), rpc_version: Some(0), info_port: None });
        let meta = |place: &Place| {
            payload(&proto::MetaRegionServer { server: place.to_proto(), rpc_version: Some(0), state: Some(OPEN) })
        };
        Self {
            cluster: known.cluster.map(cluster),
            master: known.active_master.as_ref().map(master),
            meta: known.meta.as_ref().map(meta),
        }
    }

    pub(super) fn get(&self, path: &str) -> Option<Node> {
        let children = || {
            let all = [(CLUSTER, &self.cluster), (MASTER, &self.master), (META, &self.meta)];
            all.into_iter().filter(|(_, data)| data.is_some()).map(|(name, _)| name).collect()
        };
        match path {
            "/" => Some(Node { data: Bytes::new(), children: vec![PARENT.trim_start_matches('/')] }),
            PARENT => Some(Node { data: Bytes::new(), children: children() }),
            _ => {
                let data = match path.strip_prefix(PARENT)?.strip_prefix('/')? {
                    CLUSTER => &self.cluster,
                    MASTER => &self.master,
                    META => &self.meta,
                    _ => &None,
                };
                data.clone().map(|data| Node { data, children: Vec::new() })
            }
        }
    }
}

fn payload(message: &impl Message) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(0xff);
    out.put_u32(u32::try_from(WRITER.len()).expect("the name is short"));
    out.put_slice(WRITER);
    out.put_slice(b"PBUF");
    out.put_slice(&message.encode_to_vec());
    out.freeze()
}

#[cfg(test)]
mod tests {
    use terrane_types::ClusterId;

    use super::*;

    #[test]
    fn the_place_of_meta_has_the_payload_of_hbase() {
        let place = Place { host: "h1".to_owned(), port: 16_020, start_code: 1_700_000_000_000 };
        let nodes = Nodes::new(&Discovery { meta: Some(place), ..Discovery::default() });
        let data = nodes.get("/hbase/meta-region-server").unwrap().data;
        let expected = b"\xff\x00\x00\x00\x07terranePBUF\x0a\x0e\x0a\x02h1\x10\x94\x7d\x18\x80\xd0\x95\xff\xbc\x31\x10\x00\x18\x03";
        assert_eq!(&data[..], expected);
    }

    #[test]
    fn what_is_not_known_has_no_node() {
        let nodes = Nodes::new(&Discovery { cluster: Some(ClusterId([1; 16])), ..Discovery::default() });
        assert_eq!(nodes.get("/hbase").unwrap().children, ["hbaseid"]);
        assert!(nodes.get("/hbase/hbaseid").is_some());
        for absent in ["/hbase/master", "/hbase/meta-region-server", "/hbase/root-region-server", "/hbase/", "/x", ""] {
            assert_eq!(nodes.get(absent), None, "{absent}");
        }
    }
}
