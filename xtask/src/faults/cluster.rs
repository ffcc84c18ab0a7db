//! Masters and region servers as processes, and commands against them. Dropping a process kills it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// Time limit for the `ready` line of a role.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time limit for a condition of the cluster.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval between checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The unit of processor times in /proc, which is the same on all Linux systems of today.
const MS_PER_TICK: u64 = 10;
/// Below the range from which the system assigns ports to outgoing connections.
const PORT_FIRST: u16 = 10_000;
const PORTS: u16 = 20_000;

/// A running process.
pub struct Process {
    child: Child,
}

impl Process {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended on its own.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        self.child.wait().map(drop).context("waiting for a process")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. Both calls fail if the process has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// One server process, running or not.
pub struct Role {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    pub process: Option<Process>,
}

impl Role {
    /// Starts it and waits until it serves.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let ready = self.spawn()?;
        self.await_ready(&ready)
    }

    /// Starts it; the channel gets the first line that it prints.
    pub fn spawn(&mut self) -> anyhow::Result<Receiver<String>> {
        let errors = File::options().create(true).append(true).open(&self.log).context("opening a log")?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .env_remove("TERRANE_MASTERS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("starting terrane")?;
        let stdout = child.stdout.take().context("its standard output is a pipe")?;
        self.process = Some(Process { child });
        let (said, line) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // The receiver checks the line; it may have given up.
            BufReader::new(stdout).read_line(&mut line).ok();
            said.send(line).ok();
        });
        Ok(line)
    }

    fn await_ready(&self, ready: &Receiver<String>) -> anyhow::Result<()> {
        let line = ready.recv_timeout(READY_MAX).unwrap_or_default();
        ensure!(line.starts_with("ready"), "{} is not ready: {}", self.arguments.join(" "), self.messages());
        Ok(())
    }

    /// Kills it without warning, like a lost machine.
    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn signal(&self, name: &str) -> anyhow::Result<()> {
        let pid = self.process.as_ref().context("the process does not run")?.pid().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().context("running kill")?;
        ensure!(sent.success(), "kill -{name} {pid} failed");
        Ok(())
    }

    /// The value of one of its flags.
    pub fn flag(&self, name: &str) -> Option<&str> {
        let at = self.arguments.iter().position(|argument| argument == name)?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// Sets an environment variable for the next starts.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub fn messages(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rev().take(5).collect::<Vec<_>>().join(" | ")
    }

    /// Memory of the process in bytes: current, and the peak since [`Role::reset_peak`].
    pub fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let pid = self.process.as_ref().context("the process does not run")?.pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).context("reading /proc")?;
        let field = |name: &str| -> anyhow::Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line in /proc")?;
            let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().context("a number in /proc")?;
            Ok(kib << 10)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// Processor time of the process so far.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let pid = self.process.as_ref().context("the process does not run")?.pid();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("reading /proc")?;
        // The second field may contain blanks; it ends with the last parenthesis. Fields 14 and 15 are the times.
        let (_, fields) = stat.rsplit_once(')').context("a name in parentheses")?;
        let times: Vec<u64> = fields.split_whitespace().skip(11).take(2).filter_map(|of| of.parse().ok()).collect();
        ensure!(times.len() == 2, "no times in {stat}");
        Ok(Duration::from_millis(times.iter().sum::<u64>() * MS_PER_TICK))
    }

    pub fn reset_peak(&self) -> anyhow::Result<()> {
        let pid = self.process.as_ref().context("the process does not run")?.pid();
        fs::write(format!("/proc/{pid}/clear_refs"), "5").context("resetting the peak in /proc")
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
        let mut cluster = Self::planned(terrane, Size::SMALL, flags)?;
        cluster.start_all()?;
        Ok(cluster)
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
        let mut ports = free_ports(4 * (masters + server_hosts.len()))?.into_iter();
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
            roles.iter_mut().for_each(|role| role.arguments.extend(["--peers".to_owned(), list.clone()]));
        }
        let (mut servers, mut addresses) = (Vec::new(), Vec::new());
        for (index, host) in server_hosts.iter().enumerate() {
            let (mut role, address) = plan.role("server", index, host)?;
            role.arguments.extend(["--masters".to_owned(), list.clone()]);
            role.arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
            servers.push(role);
            addresses.push(address);
        }
        let (spare_ports, terrane) = (ports.collect(), terrane.to_owned());
        Ok(Self { masters: roles, master_addresses, servers, addresses, spare_ports, terrane, data })
    }

    /// Has every process serve HBase's clients once it starts. Returns their `hbase.zookeeper.quorum`.
    pub fn serve_hbase(&mut self) -> anyhow::Result<String> {
        let mut port = || self.spare_ports.pop().context("a spare port");
        let mut quorum = Vec::new();
        for master in &mut self.masters {
            let zookeeper = format!("127.0.0.1:{}", port()?);
            let words = ["--hbase".to_owned(), format!("127.0.0.1:{}", port()?), "--hbase-zookeeper".to_owned()];
            master.arguments.extend(words);
            master.arguments.push(zookeeper.clone());
            quorum.push(zookeeper);
        }
        for server in &mut self.servers {
            server.arguments.extend(["--hbase".to_owned(), format!("127.0.0.1:{}", port()?)]);
        }
        Ok(quorum.join(","))
    }

    /// Changes the data directory or a flag of one server before it starts.
    pub fn add_flags(&mut self, server: usize, flags: &[String]) {
        self.servers[server].arguments.extend(flags.iter().cloned());
    }

    /// Adds flags to all masters before they start.
    pub fn add_master_flags(&mut self, flags: &[&str]) {
        for master in &mut self.masters {
            master.arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        }
    }

    pub fn server_directory(&self, server: usize) -> PathBuf {
        self.data.path().join(format!("server-{server}"))
    }

    pub fn start_all(&mut self) -> anyhow::Result<()> {
        self.start_processes()?;
        self.wait_until_well()
    }

    /// Starts all processes at once, since masters wait for each other, and waits until each serves.
    pub fn start_processes(&mut self) -> anyhow::Result<()> {
        start_together(self.masters.iter_mut().chain(&mut self.servers))
    }

    /// Starts the masters and some servers.
    pub fn start_masters_and(&mut self, servers: Range<usize>) -> anyhow::Result<()> {
        start_together(self.masters.iter_mut().chain(&mut self.servers[servers]))
    }

    /// Starts some servers.
    pub fn start_servers(&mut self, servers: Range<usize>) -> anyhow::Result<()> {
        start_together(self.servers[servers].iter_mut())
    }

    pub fn kill_all(&mut self) {
        self.servers.iter_mut().chain(&mut self.masters).for_each(Role::kill);
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.terrane);
        command.args(arguments).args(["--masters", &self.master_addresses.join(",")]).stdin(Stdio::null());
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

    /// Starts a load; [`Load::finish`] returns its summary.
    pub fn load(&self, arguments: &[&str]) -> anyhow::Result<Load> {
        let mut command = self.command(&[arguments, &["--json"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("starting a load")?;
        let stderr = child.stderr.take().context("its standard error is a pipe")?;
        let (said, messages) = mpsc::channel();
        thread::spawn(move || {
            // The receiver may be gone; the pipe is read nevertheless, so that it does not fill up.
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| _ = said.send(line));
        });
        Ok(Load { child, messages, read: String::new() })
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
    let begin = |role: &'a mut Role| role.spawn().map(|ready| (role, ready));
    let begun = roles.map(begin).collect::<anyhow::Result<Vec<_>>>()?;
    begun.iter().try_for_each(|(role, ready)| role.await_ready(ready))
}

/// A running load generator.
pub struct Load {
    child: Child,
    messages: Receiver<String>,
    /// The messages that were received so far.
    read: String,
}

impl Load {
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until it prints this line on standard error.
    pub fn await_message(&mut self, awaited: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.messages.recv_timeout(left);
            let line = line.with_context(|| format!("the load does not say `{awaited}`: {}", self.read))?;
            if line == awaited {
                return Ok(());
            }
            self.note(&line);
        }
    }

    /// Waits for the end; returns the summary, whether it succeeded, and its messages.
    pub fn finish(mut self) -> anyhow::Result<(Value, bool, String)> {
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().context("its standard output is a pipe")?;
        pipe.read_to_string(&mut stdout).context("reading what a load prints")?;
        let status = self.child.wait().context("waiting for a load")?;
        while let Ok(line) = self.messages.recv() {
            self.note(&line);
        }
        let errors = std::mem::take(&mut self.read);
        let summary = last_json(&stdout);
        Ok((summary.with_context(|| format!("a load without a summary: {errors}"))?, status.success(), errors))
    }

    fn note(&mut self, line: &str) {
        self.read.push_str(line);
        self.read.push('\n');
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Both calls fail if it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn last_json(text: &str) -> anyhow::Result<Value> {
    let line = text.lines().last().context("no output")?;
    serde_json::from_str(line).with_context(|| format!("{line:?} is not JSON"))
}

/// Repeats a check until it holds.
pub fn eventually<T>(what: &str, look: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eventually_within(WAIT_MAX, what, look)
}

/// Repeats a check until it holds, for so long at most.
pub fn eventually_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() >= deadline => bail!("{what}: not within {} s: {error:#}", limit.as_secs()),
            Err(_) => thread::park_timeout(LOOK_EVERY),
        }
    }
}

/// Lets a load run before a fault; there is no condition to wait for.
pub fn let_it_run(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}

fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let begin = std::process::id().wrapping_mul(2_003) % u32::from(PORTS);
    let begin = u16::try_from(begin).context("below the number of ports")?;
    let candidates = (0..PORTS).map(|step| PORT_FIRST + (begin + step) % PORTS);
    let free: Vec<u16> =
        candidates.filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).take(count).collect();
    ensure!(free.len() == count, "no ports are free");
    Ok(free)
}
