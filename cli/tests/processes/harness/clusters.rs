//! Whole clusters for the tests of the binary: in one process, or a master and region servers as processes of their own.

use std::path::PathBuf;

use super::*;

/// How often a start is retried if one of its ports is taken.
const START_ATTEMPTS: usize = 10;
/// Region servers of a cluster.
const SERVERS: usize = 3;

/// A whole cluster in one process, `terrane dev`.
pub struct Dev {
    pub process: Process,
    pub client: Client,
}

impl Dev {
    pub fn start(data: &Path, engine: &str) -> Dev {
        Dev::start_with(data, engine, &[])
    }

    pub fn start_with(data: &Path, engine: &str, flags: &[&str]) -> Dev {
        for _ in 0..START_ATTEMPTS {
            let [base] = free_ports();
            // Its ports are within 120 of the first.
            PORT_NEXT.fetch_add(120, Ordering::Relaxed);
            let arguments = ["dev", "--engine", engine, "--listen-base", &base.to_string(), "--data"];
            let mut arguments = arguments.map(str::to_owned).to_vec();
            arguments.push(data.display().to_string());
            arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
            match Process::start(&arguments) {
                Ok(process) => return Dev { process, client: Client { masters: local(base) } },
                Err(ended) => assert!(ended.stderr.contains("in use"), "{ended:?}"),
            }
        }
        panic!("no free ports were found");
    }
}

/// One role of a [`Cluster`], running or not.
pub struct Role {
    pub arguments: Vec<String>,
    pub process: Option<Process>,
}

impl Role {
    fn start(&mut self) {
        self.process = Some(Process::started(&self.arguments));
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }
}

/// A master and region servers, three unless a test wants more, as separate processes.
pub struct Cluster {
    pub client: Client,
    /// The address of the master's console.
    pub console: String,
    pub master: Role,
    pub servers: Vec<Role>,
    pub addresses: Vec<String>,
    /// Last, so that it is dropped after the processes.
    pub data: tempfile::TempDir,
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
        for _ in 0..START_ATTEMPTS {
            let mut cluster = Cluster::planned(engine, SERVERS, flags);
            for (server, address) in cluster.servers.iter_mut().zip(&cluster.addresses) {
                server.arguments.extend(own_flags(address));
            }
            match cluster.try_start_all() {
                Ok(()) => return cluster,
                Err(ended) => assert!(ended.stderr.contains("in use"), "{ended:?}"),
            }
        }
        panic!("no free ports were found");
    }

    /// Starts a new cluster of so many servers.
    pub fn start_of(servers: usize, engine: &str) -> Cluster {
        for _ in 0..START_ATTEMPTS {
            let mut cluster = Cluster::planned(engine, servers, &[]);
            match cluster.try_start_all() {
                Ok(()) => return cluster,
                Err(ended) => assert!(ended.stderr.contains("in use"), "{ended:?}"),
            }
        }
        panic!("no free ports were found");
    }

    /// Starts a new cluster; every server and the master get `flags`.
    pub fn start_everywhere_with(engine: &str, flags: &[&str]) -> Cluster {
        for _ in 0..START_ATTEMPTS {
            let mut cluster = Cluster::planned(engine, SERVERS, flags);
            cluster.master.arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
            match cluster.try_start_all() {
                Ok(()) => return cluster,
                Err(ended) => assert!(ended.stderr.contains("in use"), "{ended:?}"),
            }
        }
        panic!("no free ports were found");
    }

    fn planned(engine: &str, servers: usize, flags: &[&str]) -> Cluster {
        let data = tempfile::tempdir().expect("a directory");
        let [master, console] = free_ports();
        let mut cluster = Cluster {
            client: Client { masters: local(master) },
            console: local(console),
            master: Role { arguments: master_arguments(&data.path().join("master"), master, console), process: None },
            servers: Vec::new(),
            addresses: Vec::new(),
            data,
        };
        for index in 0..servers {
            let port = free_ports::<2>();
            let directory = cluster.server_directory(index);
            let mut arguments = server_arguments(&directory, port[0], port[1], &cluster.client.masters, engine);
            arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
            cluster.addresses.push(local(port[0]));
            cluster.servers.push(Role { arguments, process: None });
        }
        cluster
    }

    pub fn server_directory(&self, index: usize) -> PathBuf {
        self.data.path().join(format!("server-{index}"))
    }

    /// Starts all processes and waits until they are healthy.
    pub fn start_all(&mut self) {
        self.try_start_all().unwrap_or_else(|ended| panic!("a part did not start: {ended:?}"));
    }

    fn try_start_all(&mut self) -> Result<(), Ended> {
        self.master.process = Some(Process::start(&self.master.arguments)?);
        for server in &mut self.servers {
            server.process = Some(Process::start(&server.arguments)?);
        }
        self.client.wait_until_well();
        Ok(())
    }

    pub fn kill_all(&mut self) {
        // At once, so that no process sees another die first and cleans up.
        let roles = || std::iter::once(&self.master).chain(&self.servers);
        let pids: Vec<String> = roles().filter_map(|role| Some(role.process.as_ref()?.pid().to_string())).collect();
        assert!(Command::new("kill").arg("-KILL").args(&pids).status().expect("kill runs").success());
        self.master.process = None;
        for server in &mut self.servers {
            server.process = None;
        }
    }

    pub fn kill_server(&mut self, index: usize) {
        self.servers[index].kill();
    }

    /// Sends a signal to a running server.
    pub fn signal_server(&self, index: usize, name: &str) {
        signal(self.servers[index].process.as_ref().expect("it runs").pid(), name);
    }

    pub fn start_server(&mut self, index: usize) {
        self.servers[index].start();
    }
}
