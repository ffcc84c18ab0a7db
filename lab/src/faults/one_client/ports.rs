//! The ports of a cluster, how a call at each begins, and how a new connection is answered.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use terrane_lab::Cluster;

use super::super::http2::begun_call;
use super::{hbase, read_some};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    Hbase,
    ZooKeeper,
    Console,
}

/// A port.
pub struct Port {
    pub protocol: Protocol,
    pub address: String,
    pub is_of_master: bool,
}

/// Every port of the master and of one server.
pub fn every_port(cluster: &Cluster, server: usize) -> anyhow::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for (is_of_master, role) in [(true, &cluster.masters[0]), (false, &cluster.servers[server])] {
        let flags = [
            (Protocol::Grpc, "--listen"),
            (Protocol::Hbase, "--hbase"),
            (Protocol::ZooKeeper, "--hbase-zookeeper"),
            (Protocol::Console, "--console"),
        ];
        for (protocol, flag) in flags {
            if let Some(address) = role.flag(flag) {
                ports.push(Port { protocol, address: address.to_owned(), is_of_master });
            }
        }
    }
    ensure!(ports.len() == 7, "a master has four ports and a server three");
    Ok(ports)
}

impl Port {
    pub fn name(&self) -> String {
        format!("{:?} of the {}", self.protocol, if self.is_of_master { "master" } else { "server" })
    }

    /// A call of about so many bytes, of which the second half is missing.
    pub fn half_a_call(&self, bytes: usize) -> Vec<u8> {
        let half = vec![b'x'; bytes / 2];
        match self.protocol {
            Protocol::Grpc => {
                let path = if self.is_of_master { "/terrane.v1.Master/Locate" } else { "/terrane.v1.Data/Mutate" };
                begun_call(&self.address, path, bytes, &half)
            }
            Protocol::Hbase => {
                let mut call = [hbase::hello(), hbase::call(1, "Mutate", &vec![b'x'; bytes])].concat();
                call.truncate(bytes / 2);
                call
            }
            Protocol::ZooKeeper => [&(1u32 << 20).to_be_bytes()[..], &half[..half.len().min(512 << 10)]].concat(),
            Protocol::Console => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: ".to_vec(),
        }
    }

    /// How long it takes until a new connection is answered.
    pub fn new_connection(&self, limit: Duration) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(&self.address).context("connecting")?;
        stream.set_read_timeout(Some(limit)).context("a time limit")?;
        let (question, bytes) = match self.protocol {
            // The server's own settings come at once.
            Protocol::Grpc => (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], 9),
            Protocol::Hbase => (&b"Regist"[..], 4),
            Protocol::ZooKeeper => (&b"ruok"[..], 4),
            Protocol::Console => (&b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], 12),
        };
        stream.write_all(question).context("asking")?;
        read_some(&mut stream, bytes).with_context(|| format!("a new connection to {} is answered", self.name()))?;
        let took = began.elapsed();
        ensure!(took <= limit, "a new connection to {} was answered after {took:?}", self.name());
        Ok(took)
    }
}
