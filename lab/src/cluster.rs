//! Masters and region servers as processes, and commands against them.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::dev::START_ATTEMPTS;
use crate::ports::{free, local};
use crate::process::{self, Process};
use crate::running::{Load, last_json};
use crate::wait::{WAIT_MAX, eventually, eventually_within};

/// One master or region server, running or not.
pub struct Role {
    program: PathBuf,
    pub arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    pub process: Option<Process>,
}

impl Role {
    /// Starts it and waits until it serves.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.spawn()?;
        self.await_ready()
    }

    /// Starts it. Its log continues.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).read(true).open(&self.log).context("opening a log")?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        self.process = Some(Process::spawn(&mut command, log)?);
        Ok(())
    }

    fn await_ready(&mut self) -> anyhow::Result<()> {
        let serves = self.process.as_mut().is_some_and(Process::await_ready);
        ensure!(serves, "{} is not ready: {}", self.arguments.join(" "), self.messages());
        Ok(())
    }

    /// Kills it without warning, like a lost machine.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Stops it like a supervisor, with SIGTERM, and waits until it has ended.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.process.take().context("the process does not run")?.stop().map(drop)
    }

    fn running(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("the process does not run")
    }

    pub fn signal(&self, name: &str) -> anyhow::Result<()> {
        self.running()?.signal(name)
    }

    /// Whether it has ended on its own, or was not started.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(Process::has_ended)
    }

    /// The value of one of its flags.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == name)?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// Adds flags for the next starts.
    pub fn add_flags(&mut self, flags: &[&str]) {
        self.arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// Sets an environment variable for the next starts.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// The last lines of its log.
    pub fn messages(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
    }

    /// Memory in bytes: current, and the peak since [`Role::reset_peak`].
    pub fn memory(&self) -> anyhow::Result<(u64, u64)> {
        process::memory(self.running()?.pid())
    }

    pub fn reset_peak(&self) -> anyhow::Result<()> {
        process::reset_peak(self.running()?.pid())
    }

    /// Processor time so far.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        process::cpu(self.running()?.pid())
    }
}

/// The numbers of processes.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub masters: u16,
    pub servers: u16,
}

impl Size {
    /// What most checks need.
    pub const SMALL: Self = Self { masters: 1, servers: 3 };
}

/// Where a process runs.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where it listens.
    pub address: String,
    /// A network namespace other than this process's.
    pub namespace: Option<String>,
}

impl Host {
    const LOOPBACK: &str = "127.0.0.1";

    pub fn loopback() -> Self {
        Self { address: Self::LOOPBACK.to_owned(), namespace: None }
    }
}

/// Ports of each process: gRPC, its console, and two for what it serves besides.
const PORTS_EACH: usize = 4;

/// Masters and region servers.
pub struct Cluster {
    pub masters: Vec<Role>,
    pub master_addresses: Vec<String>,
    pub servers: Vec<Role>,
    pub addresses: Vec<String>,
    /// Ports for what a process serves besides.
    spare_ports: Vec<u16>,
    terrane: PathBuf,
    /// Last, so that it is removed after the processes end.
    pub data: tempfile::TempDir,
}

impl Cluster {
    /// Starts a master and three servers; `flags` apply to every server.
    pub fn start(terrane: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        Self::start_new(|| Self::planned(terrane, Size::SMALL, flags))
    }

    /// Starts a new cluster, and plans others while one of its ports turns out to be taken.
    pub fn start_new(mut plan: impl FnMut() -> anyhow::Result<Self>) -> anyhow::Result<Self> {
        for _ in 0..START_ATTEMPTS {
            let mut cluster = plan()?;
            match cluster.start_all() {
                Ok(()) => return Ok(cluster),
                Err(error) if format!("{error:#}").contains("in use") => {}
                Err(error) => return Err(error),
            }
        }
        bail!("no free ports for a cluster")
    }

    /// A cluster that is not running yet, on loopback.
    pub fn planned(terrane: &Path, size: Size, flags: &[&str]) -> anyhow::Result<Self> {
        let hosts = vec![Host::loopback(); usize::from(size.servers)];
        Self::planned_on(terrane, size.masters, &Host::loopback(), &hosts, flags)
    }

    /// A cluster that is not running yet, with all masters on one host, and a server on each of the others.
    pub fn planned_on(
        terrane: &Path,
        masters: u16,
        master_host: &Host,
        server_hosts: &[Host],
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let keeps = std::env::var_os("TERRANE_KEEP_DATA").is_some();
        let data = tempfile::Builder::new().disable_cleanup(keeps).tempdir().context("creating a directory")?;
        let masters = usize::from(masters);
        let mut ports = free(PORTS_EACH * (masters + server_hosts.len()))?.into_iter();
        let mut plan = Plan { terrane, data: data.path(), ports: &mut ports };
        let mut master_addresses = Vec::new();
        let mut roles = Vec::new();
        for index in 0..masters {
            let (role, address) = plan.role("master", index, master_host)?;
            roles.push(role);
            master_addresses.push(address);
        }
        let list = master_addresses.join(",");
        if masters > 1 {
            roles.iter_mut().for_each(|role| role.add_flags(&["--peers", &list]));
        }
        let (mut servers, mut addresses) = (Vec::new(), Vec::new());
        for (index, host) in server_hosts.iter().enumerate() {
            let (mut role, address) = plan.role("server", index, host)?;
            role.add_flags(&["--masters", &list]);
            role.add_flags(flags);
            servers.push(role);
            addresses.push(address);
        }
        let (spare_ports, terrane) = (ports.collect(), terrane.to_owned());
        Ok(Self { masters: roles, master_addresses, servers, addresses, spare_ports, terrane, data })
    }

    /// Has every process serve HBase's clients once it starts. Returns their `hbase.zookeeper.quorum`.
    pub fn serve_hbase(&mut self) -> anyhow::Result<String> {
        let mut address = || self.spare_ports.pop().map(local).context("a spare port");
        let mut quorum = Vec::new();
        for master in &mut self.masters {
            let zookeeper = address()?;
            master.add_flags(&["--hbase", &address()?, "--hbase-zookeeper", &zookeeper]);
            quorum.push(zookeeper);
        }
        for server in &mut self.servers {
            server.add_flags(&["--hbase", &address()?]);
        }
        Ok(quorum.join(","))
    }

    /// Adds flags to all masters before they start.
    pub fn add_master_flags(&mut self, flags: &[&str]) {
        self.masters.iter_mut().for_each(|master| master.add_flags(flags));
    }

    pub fn server_directory(&self, server: usize) -> PathBuf {
        self.data.path().join(format!("server-{server}"))
    }

    /// Starts all processes that do not run, and waits until nothing is wrong.
    pub fn start_all(&mut self) -> anyhow::Result<()> {
        self.start_processes()?;
        self.wait_until_well()
    }

    /// Starts all processes that do not run, at once, since masters wait for each other, and waits until each serves.
    pub fn start_processes(&mut self) -> anyhow::Result<()> {
        start_together(self.masters.iter_mut().chain(&mut self.servers).filter(|role| role.process.is_none()))
    }

    /// Starts the masters and some servers.
    pub fn start_masters_and(&mut self, servers: Range<usize>) -> anyhow::Result<()> {
        start_together(self.masters.iter_mut().chain(&mut self.servers[servers]))
    }

    /// Starts some servers.
    pub fn start_servers(&mut self, servers: Range<usize>) -> anyhow::Result<()> {
        start_together(self.servers[servers].iter_mut())
    }

    /// Kills all processes at once, so that none sees another one die and cleans up.
    pub fn kill_all(&mut self) {
        let running = self.servers.iter().chain(&self.masters).filter_map(|role| role.process.as_ref());
        // It fails if one has already ended; each is killed below all the same.
        process::signal_all(&running.map(Process::pid).collect::<Vec<_>>(), "KILL").ok();
        self.servers.iter_mut().chain(&mut self.masters).for_each(Role::kill);
    }

    /// The addresses of all masters, as clients are told them.
    pub fn master_list(&self) -> String {
        self.master_addresses.join(",")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.terrane);
        command.args(arguments).args(["--masters", &self.master_list()]).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.command(arguments).output().with_context(|| format!("running {arguments:?}"))
    }

    /// Runs a command that must succeed and returns its standard output.
    pub fn succeed(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(arguments)?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?} ended with {}: {errors}", output.status);
        String::from_utf8(output.stdout).context("output is text")
    }

    /// Runs a command and parses its last line as JSON.
    pub fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        last_json(&self.succeed(&[arguments, &["--json"]].concat())?)
    }

    /// Runs a command and parses its lines as JSON.
    pub fn json_lines(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let text = self.succeed(&[arguments, &["--json"]].concat())?;
        text.lines().map(|line| serde_json::from_str(line).context("a line is JSON")).collect()
    }

    /// The health issue of this kind, as status says it.
    pub fn issue(&self, kind: &str) -> anyhow::Result<String> {
        let issues = self.json(&["status"])?["issues"].take();
        let found = issues.as_array().context("issues")?.iter().find(|issue| issue["kind"] == kind);
        let what = found.and_then(|issue| issue["what"].as_str());
        what.map(str::to_owned).with_context(|| issues.to_string())
    }

    /// Starts a load.
    pub fn load(&self, arguments: &[&str]) -> anyhow::Result<Load> {
        Load::start(&mut self.command(&[arguments, &["--json"]].concat()))
    }

    pub fn wait_until_well(&self) -> anyhow::Result<()> {
        self.wait_until_well_within(WAIT_MAX)
    }

    pub fn wait_until_well_within(&self, limit: Duration) -> anyhow::Result<()> {
        eventually_within(limit, "status finds nothing wrong", || {
            let status = self.json(&["status", "--timeout", "2s"])?;
            ensure!(status["healthy"] == true && status["live"] == status["servers"], "{}", status["issues"]);
            Ok(())
        })
    }

    /// The master that leads.
    pub fn leading_master(&self) -> anyhow::Result<usize> {
        if self.masters.len() == 1 {
            return Ok(0);
        }
        let status = self.json(&["status"])?;
        let masters = status["masters"].as_array().context("status lists the masters")?;
        let leader = masters.iter().find(|master| master["state"] == "leader").context("a master leads")?;
        self.master_addresses.iter().position(|address| leader["address"] == **address).context("it is one of ours")
    }

    /// The server that leads the first region of a table.
    pub fn leader_of(&self, table: &str) -> anyhow::Result<usize> {
        eventually("the region has a leader", || {
            let leader = self.json_lines(&["admin", "regions", table])?[0]["leader"].clone();
            self.addresses.iter().position(|address| leader == **address).context("no server of this cluster")
        })
    }

    /// The server that leads the most groups.
    pub fn busiest_server(&self) -> anyhow::Result<usize> {
        let servers = self.json_lines(&["admin", "servers"])?;
        let leaders = |address: &str| {
            servers.iter().find(|server| server["address"] == address).and_then(|server| server["leaders"].as_u64())
        };
        let counted = self.addresses.iter().enumerate().map(|(index, address)| (leaders(address).unwrap_or(0), index));
        Ok(counted.max().context("there are servers")?.1)
    }
}

/// What the processes of a new cluster share.
struct Plan<'a> {
    terrane: &'a Path,
    data: &'a Path,
    ports: &'a mut std::vec::IntoIter<u16>,
}

impl Plan<'_> {
    /// A process that does not run yet, and its address.
    fn role(&mut self, kind: &str, index: usize, host: &Host) -> anyhow::Result<(Role, String)> {
        let name = format!("{kind}-{index}");
        let mut address = || self.ports.next().map(|port| format!("{}:{port}", host.address)).context("a free port");
        let (listen, console) = (address()?, address()?);
        let directory = self.data.join(&name).display().to_string();
        let mut words: Vec<String> = Vec::new();
        let mut program = self.terrane.to_owned();
        if let Some(namespace) = &host.namespace {
            words.extend(["netns", "exec", namespace].map(str::to_owned));
            words.push(program.display().to_string());
            program = PathBuf::from("ip");
        }
        words.extend([kind, "--data", &directory, "--listen", &listen, "--console", &console].map(str::to_owned));
        if host.address != Host::LOOPBACK {
            words.push("--insecure".to_owned());
        }
        let log = self.data.join(format!("{name}.log"));
        Ok((Role { program, arguments: words, environment: Vec::new(), log, process: None }, listen))
    }
}

/// Starts processes at once, and waits until each serves.
fn start_together<'a>(roles: impl Iterator<Item = &'a mut Role>) -> anyhow::Result<()> {
    let begun = roles.map(|role| role.spawn().map(|()| role)).collect::<anyhow::Result<Vec<_>>>()?;
    begun.into_iter().try_for_each(Role::await_ready)
}
