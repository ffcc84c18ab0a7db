//! One client that misuses a port must not hurt the others: silent connections, calls that stop half-way, and answers that are
//! not read, on every port of a cluster.
//!
//! Others are a client of HBase's protocol that puts and gets (`hbase`), Terrane's own (`bench`), and new connections to the
//! port that is misused. Each is measured beside the hostile client and without it, in turns.

mod hbase;
mod ports;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Role, Size, let_it_run};

use self::hbase::{Region, call, hello};
use self::ports::{Port, Protocol, every_port};
use super::{Bench, Verdict};

/// Connections that say nothing: as many as a port admits.
const SILENT: usize = 1_024;
/// Connections that stop in a call.
const HALF_SENT: usize = 100;
const HALF_SENT_BYTES: usize = 3 << 20;
/// Connections with unread answers, and gets of a row of a MiB that each call has.
const UNREAD: usize = 120;
const GETS: usize = 63;
const ROW_BYTES: usize = 1 << 20;
/// How long a new connection may take to be answered.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Slower by more than this at the 99th percentile is too slow.
const SLOWER_MAX: f64 = 1.2;
/// How long the leaderships of a new cluster may take to be spread over its servers.
const SPREAD_MAX: Duration = Duration::from_secs(8);
/// Rounds with and without the hostile client, of which the median counts.
const ROUNDS: usize = 5;
const CALLS_PER_ROUND: usize = 1_000;
/// The limit of answers, and what is built and received beside it.
const ANSWERS_MAX: u64 = (512 << 20) + (512 << 20);
/// The limit of bodies, and the buffers of connections.
const BODIES_MAX: u64 = (256 << 20) + (128 << 20);

struct Tried {
    cluster: Cluster,
    region: Region,
    /// The server that leads the region.
    leader: usize,
    ports: Vec<Port>,
}

impl Tried {
    fn start(bench: &Bench) -> anyhow::Result<Self> {
        let mut cluster = Cluster::planned(&bench.terrane, Size::SMALL, &[])?;
        cluster.serve_hbase()?;
        cluster.start_all()?;
        cluster.succeed(&["table", "create", "t", "--family", "f"])?;
        // The clients here do not follow a region that moves, and the server that is misused has to keep it: leaderships are
        // spread first, and then stay.
        let_it_run(SPREAD_MAX);
        cluster.succeed(&["admin", "balance", "off"])?;
        let leader = cluster.leader_of("t")?;
        let region = cluster.json_lines(&["admin", "regions", "t"])?[0]["region"].as_u64().context("a region's id")?;
        let region = Region::new("t", region);
        let ports = every_port(&cluster, leader)?;
        Ok(Self { cluster, region, leader, ports })
    }

    fn role(&self, port: &Port) -> &Role {
        if port.is_of_master { &self.cluster.masters[0] } else { &self.cluster.servers[self.leader] }
    }

    fn hbase(&self) -> anyhow::Result<&str> {
        let port = self.ports.iter().find(|port| port.protocol == Protocol::Hbase && !port.is_of_master);
        port.map(|port| port.address.as_str()).context("the server serves HBase's clients")
    }

    /// The 99th percentile of puts and gets of 100 KiB of one client.
    fn p99(&self) -> anyhow::Result<Duration> {
        let mut times = Vec::with_capacity(CALLS_PER_ROUND);
        let mut client = hbase::Client::connect(self.hbase()?)?;
        for number in 0..CALLS_PER_ROUND {
            let began = Instant::now();
            if number % 10 == 0 {
                client.put(&self.region, b"row", &vec![b'v'; 100 << 10])?;
            } else {
                client.get(&self.region, b"row")?;
            }
            times.push(began.elapsed());
        }
        times.sort();
        Ok(times[times.len() * 99 / 100])
    }
}

/// Silent connections and half-sent calls on each port.
pub fn silent(bench: &Bench) -> anyhow::Result<Verdict> {
    let tried = Tried::start(bench)?;
    let (mut figures, mut hurts) = (Vec::new(), false);
    for port in &tried.ports {
        let role = tried.role(port);
        role.reset_peak()?;
        let (before, _) = role.memory()?;
        let (mut with, mut without, mut slowest) = (Vec::new(), Vec::new(), Duration::ZERO);
        for _ in 0..ROUNDS {
            without.push(tried.p99()?);
            let misused = misuse(port)?;
            slowest = slowest.max(port.new_connection(CONNECT_MAX)?);
            with.push(tried.p99()?);
            slowest = slowest.max(port.new_connection(CONNECT_MAX)?);
            drop(misused);
        }
        let (_, peak) = role.memory()?;
        let growth = peak.saturating_sub(before);
        let line = format!(
            "{}: p99 {:?} for {:?}, a new connection {slowest:?}, {} MiB more",
            port.name(),
            median(&mut with),
            median(&mut without),
            growth >> 20
        );
        println!("   {line}");
        hurts |= growth > BODIES_MAX || median(&mut with) > median(&mut without).mul_f64(SLOWER_MAX);
        figures.push(line);
    }
    ensure!(!hurts, "{}", figures.join("; "));
    Ok(Verdict::Held(figures.join("; ")))
}

/// Opens the connections of a hostile client and leaves them as they are.
fn misuse(port: &Port) -> anyhow::Result<Vec<TcpStream>> {
    let mut open = Vec::new();
    for _ in 0..HALF_SENT {
        let mut stream = TcpStream::connect(&port.address).context("connecting")?;
        stream.set_write_timeout(Some(Duration::from_millis(200))).context("a time limit")?;
        // A port that reads no further is what is looked for, not a failure.
        stream.write_all(&port.half_a_call(HALF_SENT_BYTES)).ok();
        open.push(stream);
    }
    for _ in 0..SILENT {
        open.push(TcpStream::connect(&port.address).context("connecting")?);
    }
    Ok(open)
}

/// Answers that are not read.
pub fn unread(bench: &Bench) -> anyhow::Result<Verdict> {
    let tried = Tried::start(bench)?;
    let mut client = hbase::Client::connect(tried.hbase()?)?;
    client.put(&tried.region, b"large", &vec![b'v'; ROW_BYTES])?;
    let role = &tried.cluster.servers[tried.leader];
    let without = tried.p99()?;
    role.reset_peak()?;
    let (before, _) = role.memory()?;
    let large = [hello(), call(1, "Multi", &tried.region.gets(b"large", GETS))].concat();
    let mut open = Vec::new();
    let (mut with, mut most) = (Vec::new(), 0);
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        while open.len() < UNREAD {
            let mut stream = TcpStream::connect(tried.hbase()?).context("connecting")?;
            stream.set_nonblocking(false).context("a blocking socket")?;
            stream.write_all(&large).context("asking")?;
            open.push(stream);
        }
        with.push(tried.p99()?);
        let (now, peak) = role.memory()?;
        most = most.max(now.max(peak).saturating_sub(before));
        // Those that the server has closed are opened again.
        open.retain(|stream| !is_closed(stream));
    }
    let shown = tried.cluster.json(&["status", "--resources"])?;
    let answers = shown["resources"].as_array().and_then(|all| {
        let here = |of: &&serde_json::Value| of["resource"] == "answers" || of["name"] == "answers";
        all.iter().filter(here).filter_map(|of| of["peak"].as_u64()).max()
    });
    let answers = answers.with_context(|| format!("status shows the budget of answers: {}", shown["resources"]))?;
    let line = format!(
        "{UNREAD} connections with {GETS} MiB each: {} MiB more at most, {} MiB counted at most, p99 {:?} for {without:?}",
        most >> 20,
        answers >> 20,
        median(&mut with)
    );
    println!("   {line}");
    ensure!(most <= ANSWERS_MAX && answers > 0, "{line}");
    ensure!(median(&mut with) <= without.mul_f64(SLOWER_MAX).max(without + Duration::from_millis(5)), "{line}");
    let_it_run(Duration::from_secs(1));
    Ok(Verdict::Held(line))
}

/// Whether the server has ended a connection; what has arrived stays unread.
fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).ok();
    let peeked = stream.peek(&mut [0; 1]);
    stream.set_nonblocking(false).ok();
    match peeked {
        Ok(0) => true,
        Ok(_) => stream.take_error().ok().flatten().is_some(),
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Reads until so many bytes have come, or fails.
fn read_some(stream: &mut TcpStream, bytes: usize) -> anyhow::Result<()> {
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).context("an answer")
}
