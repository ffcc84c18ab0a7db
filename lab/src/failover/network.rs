//! A network in which packets of one server, or to it, can be lost while those of the other direction arrive.
//!
//! Each server runs in a network namespace with an address of its own; a bridge connects them with the masters and clients
//! on the host. A server whose neighbours' hardware addresses are replaced by one that no interface has sends into the
//! void, and still receives. This needs root.

use std::process::Command;

use terrane_lab::Host;
use terrane_lab::process::quietly;

/// An address that no interface has.
const NO_INTERFACE: &str = "02:00:00:00:00:fe";
/// The host's address in the subnet, and that of the first server.
const HOST: u16 = 1;
const SERVER_FIRST: u16 = 10;

/// Namespaces on a bridge, removed when dropped.
pub struct Network {
    id: u32,
    servers: u16,
}

impl Network {
    /// A network for this many servers; `None` where that is not permitted.
    pub fn create(servers: u16) -> Option<Self> {
        // The value comes first, so that a failure removes what was made.
        let network = Self { id: std::process::id(), servers };
        let bridge = network.bridge();
        let host = format!("{}/24", network.address(HOST));
        let mut made = ip(&["link", "add", &bridge, "type", "bridge"])
            && ip(&["addr", "add", &host, "dev", &bridge])
            && ip(&["link", "set", &bridge, "up"]);
        for server in 0..servers {
            made = made && network.add_server(server);
        }
        made.then_some(network)
    }

    fn add_server(&self, server: u16) -> bool {
        let (namespace, link) = (self.namespace(server), self.link(server));
        let address = format!("{}/24", self.address(SERVER_FIRST + server));
        ip(&["netns", "add", &namespace])
            && ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &namespace])
            && ip(&["link", "set", &link, "master", &self.bridge(), "up"])
            && ip(&["-n", &namespace, "addr", "add", &address, "dev", "eth0"])
            && ip(&["-n", &namespace, "link", "set", "eth0", "up"])
            && ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// Where masters and clients run.
    pub fn host(&self) -> Host {
        Host { address: self.address(HOST), namespace: None }
    }

    /// Where the servers run.
    pub fn server_hosts(&self) -> Vec<Host> {
        let host =
            |server| Host { address: self.address(SERVER_FIRST + server), namespace: Some(self.namespace(server)) };
        (0..self.servers).map(host).collect()
    }

    /// Loses every packet that this server sends.
    pub fn lose_from(&self, server: u16) -> anyhow::Result<()> {
        self.each_pair(server, |one, other| lose(&self.device(one), &self.address_of(other)))
    }

    /// Loses every packet to this server.
    pub fn lose_to(&self, server: u16) -> anyhow::Result<()> {
        self.each_pair(server, |one, other| lose(&self.device(other), &self.address_of(one)))
    }

    /// Lets packets through again.
    pub fn repair(&self, server: u16) -> anyhow::Result<()> {
        self.each_pair(server, |one, other| {
            // One of the two was not lost.
            forget(&self.device(one), &self.address_of(other));
            forget(&self.device(other), &self.address_of(one));
            true
        })
    }

    /// Calls for this server with each other server, and the host (`None`).
    fn each_pair(&self, server: u16, mut call: impl FnMut(Option<u16>, Option<u16>) -> bool) -> anyhow::Result<()> {
        let others = (0..self.servers).filter(|other| *other != server).map(Some).chain([None]);
        for other in others {
            anyhow::ensure!(call(Some(server), other), "cannot change the neighbours of server {server}");
        }
        Ok(())
    }

    /// The arguments of `ip` that select a device.
    fn device(&self, of: Option<u16>) -> (Vec<String>, String) {
        match of {
            Some(server) => (vec!["-n".to_owned(), self.namespace(server)], "eth0".to_owned()),
            None => (Vec::new(), self.bridge()),
        }
    }

    fn address_of(&self, of: Option<u16>) -> String {
        self.address(of.map_or(HOST, |server| SERVER_FIRST + server))
    }

    /// The subnet depends on the process, so that two of them can run.
    fn address(&self, host: u16) -> String {
        format!("10.231.{}.{host}", self.id % 250)
    }

    fn namespace(&self, server: u16) -> String {
        format!("terrane-{}-{server}", self.id)
    }

    fn bridge(&self) -> String {
        format!("tb{}", self.id)
    }

    fn link(&self, server: u16) -> String {
        format!("tv{}-{server}", self.id)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for server in 0..self.servers {
            // The link first: the namespace, and its end of the link, live as long as a process in it.
            ip(&["link", "del", &self.link(server)]);
            ip(&["netns", "del", &self.namespace(server)]);
        }
        ip(&["link", "del", &self.bridge()]);
    }
}

fn lose((namespace, device): &(Vec<String>, String), address: &str) -> bool {
    let words = ["neigh", "replace", address, "lladdr", NO_INTERFACE, "dev", device, "nud", "permanent"];
    in_namespace(namespace, &words)
}

fn forget((namespace, device): &(Vec<String>, String), address: &str) -> bool {
    in_namespace(namespace, &["neigh", "del", address, "dev", device])
}

fn in_namespace(namespace: &[String], words: &[&str]) -> bool {
    let words: Vec<&str> = namespace.iter().map(String::as_str).chain(words.iter().copied()).collect();
    ip(&words)
}

fn ip(words: &[&str]) -> bool {
    quietly(Command::new("ip").args(words))
}
