//! `admin hbase-site`: the configuration with which HBase's clients find the cluster. The JSON output is part of the grammar.
//!
//! Clients ask a ZooKeeper unless they are told otherwise, so its addresses are there if masters have any. Those of the RPC
//! registry are there, too: they have an effect only if a program selects it.

use std::collections::BTreeMap;

use terrane_hbase::{PROTOCOL, zookeeper};
use terrane_types::Endpoint;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::output::Output;

/// The registry that needs no ZooKeeper.
const RPC_REGISTRY: &str = "org.apache.hadoop.hbase.client.RpcConnectionRegistry";

/// Where a master serves HBase's RPC, and where it answers as a ZooKeeper.
type Addresses = (String, Option<String>);

pub async fn run(connection: &Connection) -> Result<(), Failure> {
    let status = connect(connection).await?.admin().status().await.during("look for the masters")?;
    let address = |endpoints: &[Endpoint], protocol: &str| {
        endpoints.iter().find(|endpoint| endpoint.protocol == protocol).map(|endpoint| endpoint.address.clone())
    };
    let served = status.masters.iter().filter_map(|master| {
        Some((address(&master.endpoints, PROTOCOL)?, address(&master.endpoints, zookeeper::PROTOCOL)))
    });
    let masters: Vec<Addresses> = served.collect();
    if masters.is_empty() {
        let refused = Failure::new("no master that answers serves HBase's clients");
        return Err(refused.advise("start masters and servers with --hbase HOST:PORT, or `terrane dev --hbase`"));
    }
    let properties = properties(&masters);
    let mut output = Output::new(connection.json);
    if output.is_json() {
        output.object(&properties)?;
    } else {
        output.bytes(site(&properties).as_bytes())?;
    }
    output.flush()
}

/// The properties, by name.
fn properties(masters: &[Addresses]) -> BTreeMap<&'static str, String> {
    let rpc: Vec<&str> = masters.iter().map(|master| master.0.as_str()).collect();
    let zookeepers: Vec<&str> = masters.iter().filter_map(|master| master.1.as_deref()).collect();
    let mut properties = BTreeMap::new();
    match zookeepers.first() {
        Some(first) => {
            // Of old clients, some take the port from here alone.
            let port = first.rsplit_once(':').map_or("", |(_, port)| port);
            properties.insert("hbase.zookeeper.property.clientPort", port.to_owned());
            properties.insert("hbase.zookeeper.quorum", zookeepers.join(","));
        }
        None => drop(properties.insert("hbase.client.registry.impl", RPC_REGISTRY.to_owned())),
    }
    properties.insert("hbase.client.bootstrap.servers", rpc.join(","));
    properties.insert("hbase.masters", rpc.join(","));
    properties
}

/// The properties as Hadoop's configuration files have them.
fn site(properties: &BTreeMap<&str, String>) -> String {
    let mut text = "<?xml version=\"1.0\"?>\n<configuration>\n".to_owned();
    for (name, value) in properties {
        text += &format!("  <property><name>{name}</name><value>{}</value></property>\n", escaped(value));
    }
    text + "</configuration>\n"
}

fn escaped(value: &str) -> String {
    value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_names_the_zookeepers_if_there_are_any_and_selects_the_rpc_registry_otherwise() {
        let with = |zookeeper: bool| {
            let port = |base: u16, index: u16| format!("127.0.0.1:{}", base + index);
            let entry = |index| (port(16_000, index), zookeeper.then(|| port(2_181, index)));
            properties(&[entry(0), entry(1)])
        };
        let text = site(&with(true));
        assert_eq!(
            text,
            "<?xml version=\"1.0\"?>\n<configuration>\n\
             \x20 <property><name>hbase.client.bootstrap.servers</name><value>127.0.0.1:16000,127.0.0.1:16001</value></property>\n\
             \x20 <property><name>hbase.masters</name><value>127.0.0.1:16000,127.0.0.1:16001</value></property>\n\
             \x20 <property><name>hbase.zookeeper.property.clientPort</name><value>2181</value></property>\n\
             \x20 <property><name>hbase.zookeeper.quorum</name><value>127.0.0.1:2181,127.0.0.1:2182</value></property>\n\
             </configuration>\n"
        );
        assert_eq!(with(false)["hbase.client.registry.impl"], RPC_REGISTRY);
        assert_eq!(escaped("a<&>b"), "a&lt;&amp;&gt;b");
    }
}
