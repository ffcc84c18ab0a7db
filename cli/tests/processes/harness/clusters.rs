//! Whole clusters for the tests of the binary: in one process, or a master and region servers as processes of their own.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use tempfile::TempDir;
use terrane_lab::{DevCluster, Size};

use super::*;

/// A whole cluster in one process, `terrane dev`, in a directory that has room for files of the test.
pub struct Dev {
    pub process: Process,
    pub client: Client,
    pub directory: TempDir,
}

/// Where a cluster in such a directory has its files.
pub fn data_in(directory: &TempDir) -> PathBuf {
    directory.path().join("terrane-data")
}

impl Dev {
    pub fn start(engine: &str) -> Dev {
        Dev::start_with(engine, &[])
    }

    pub fn start_with(engine: &str, flags: &[&str]) -> Dev {
        Dev::start_in(tempfile::tempdir().expect("a directory"), engine, flags)
    }

    /// Starts in the directory of a test or of a cluster that was stopped.
    pub fn start_in(directory: TempDir, engine: &str, flags: &[&str]) -> Dev {
        let started =
            DevCluster::start_in(BINARY.as_ref(), &data_in(&directory), &[&["--engine", engine], flags].concat());
        let DevCluster { process, master, .. } = started.unwrap_or_else(|error| panic!("{error:#}"));
        Dev { process, client: Client { masters: master }, directory }
    }

    /// Stops it and leaves its directory.
    pub fn stop(self) -> TempDir {
        self.process.stop().expect("it stops");
        self.directory
    }

    /// A file of the test.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        write_file(self.path(name).as_ref(), text.as_bytes());
        self.path(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("text")
    }
}

/// A master and one region server with a single copy of the data, which is enough where nothing fails.
pub struct Pair {
    pub master: Process,
    pub server: Process,
    pub client: Client,
}

impl Pair {
    /// Starts both at these ports, each with further arguments: the master's, and the server's.
    pub fn start(data: &Path, [master, server]: [u16; 2], engine: &str, more: [&[&str]; 2]) -> Pair {
        let [first_console, second_console] = free_ports();
        let [master_more, server_more] = more.map(|words| words.iter().map(|word| (*word).to_owned()));
        let mut arguments = single_master(&data.join("master"), master, first_console);
        arguments.extend(master_more);
        let (master, client) = (started(&arguments), Client { masters: local(master) });
        assert!(master.ready.contains(&format!("master={}", client.masters)), "{}", master.ready);
        let mut arguments = server_arguments(&data.join("server"), server, second_console, &client.masters, engine);
        arguments.extend(server_more);
        let pair = Pair { master, server: started(&arguments), client };
        pair.client.wait_until_well();
        pair
    }
}

pub fn single_master(data: &Path, listen: u16, console: u16) -> Vec<String> {
    let mut arguments = master_arguments(data, listen, console);
    arguments.extend(["--replication".to_owned(), "1".to_owned()]);
    arguments
}

/// A master and region servers, three unless a test wants more, as separate processes.
pub struct Cluster {
    pub client: Client,
    /// The address of the master's console.
    pub console: String,
    processes: terrane_lab::Cluster,
}

impl Deref for Cluster {
    type Target = terrane_lab::Cluster;

    fn deref(&self) -> &terrane_lab::Cluster {
        &self.processes
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut terrane_lab::Cluster {
        &mut self.processes
    }
}

pub fn master_arguments(data: &Path, listen: u16, console: u16) -> Vec<String> {
    let (listen, console) = (local(listen), local(console));
    let data = data.display().to_string();
    ["master", "--data", &data, "--listen", &listen, "--console", &console].map(str::to_owned).to_vec()
}

pub fn server_arguments(data: &Path, listen: u16, console: u16, masters: &str, engine: &str) -> Vec<String> {
    let (listen, console) = (local(listen), local(console));
    let data = data.display().to_string();
    let words = [
        "server",
        "--data",
        &data,
        "--listen",
        &listen,
        "--console",
        &console,
        "--masters",
        masters,
        "--engine",
        engine,
    ];
    words.map(str::to_owned).to_vec()
}

impl Cluster {
    /// Starts a new cluster; every server gets `flags`.
    pub fn start(engine: &str, flags: &[&str]) -> Cluster {
        Cluster::start_with(engine, flags, |_| Vec::new())
    }

    /// Starts a new cluster; each server gets additional flags made from its address.
    pub fn start_with(engine: &str, flags: &[&str], mut own_flags: impl FnMut(&str) -> Vec<String>) -> Cluster {
        Cluster::start_changed(engine, Size::SMALL, flags, |cluster| {
            for (server, address) in cluster.servers.iter_mut().zip(&cluster.addresses) {
                server.arguments.extend(own_flags(address));
            }
        })
    }

    /// Starts a new cluster of so many processes.
    pub fn start_of(masters: u16, servers: u16) -> Cluster {
        Cluster::start_changed("lsm", Size { masters, servers }, &[], |_| {})
    }

    /// Starts a new cluster; every server and the master get `flags`.
    pub fn start_everywhere_with(engine: &str, flags: &[&str]) -> Cluster {
        Cluster::start_changed(engine, Size::SMALL, flags, |cluster| cluster.add_master_flags(flags))
    }

    fn start_changed(
        engine: &str,
        size: Size,
        flags: &[&str],
        mut change: impl FnMut(&mut terrane_lab::Cluster),
    ) -> Cluster {
        let flags = [&["--engine", engine], flags].concat();
        let started = terrane_lab::Cluster::start_new(|| {
            let mut planned = terrane_lab::Cluster::planned(BINARY.as_ref(), size, &flags)?;
            change(&mut planned);
            Ok(planned)
        });
        let processes = started.unwrap_or_else(|error| panic!("{error:#}"));
        let console = processes.masters[0].flag("--console").expect("it has one").to_owned();
        Cluster { client: Client { masters: processes.master_list() }, console, processes }
    }

    /// Starts all processes that do not run, and waits until they are healthy.
    pub fn start_all(&mut self) {
        self.processes.start_all().unwrap_or_else(|error| panic!("{error:#}"));
    }

    pub fn kill_master(&mut self) {
        self.masters[0].kill();
    }

    pub fn start_master(&mut self) {
        self.masters[0].start().unwrap_or_else(|error| panic!("{error:#}"));
    }

    pub fn kill_server(&mut self, index: usize) {
        self.servers[index].kill();
    }

    /// Sends a signal to a running server.
    pub fn signal_server(&self, index: usize, name: &str) {
        self.servers[index].signal(name).expect("it runs");
    }

    pub fn start_server(&mut self, index: usize) {
        self.servers[index].start().unwrap_or_else(|error| panic!("{error:#}"));
    }
}
