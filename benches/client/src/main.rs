//! `terrane-bench-client`: the cost of the client library itself. One client process writes to a server, in a separate
//! process, that only acknowledges. So the figures are of the client: validation, numbering, routing, batching, the wire,
//! and completing calls.
//!
//! - `puts`: single puts, a fixed number in flight, each its own call;
//! - `writer`: the batching writer, fed by one task;
//! - `look-up`: from a row to its region, leader and session in a warm cache of 64 regions.

mod null;

use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use terrane_client::{Client, Put, Table, WriterOptions};
use terrane_env::time;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Puts in flight; one line of the report each.
const IN_FLIGHT: [usize; 3] = [256, 1024, 4096];
const LOOK_UPS: u64 = 2_000_000;

#[derive(Parser)]
struct Options {
    /// Duration of each workload.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Threads of the client's runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Run only workloads whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Write to a null server that runs elsewhere (see `--serve`).
    #[arg(long)]
    at: Option<String>,
    /// Run the null server on this address.
    #[arg(long)]
    serve: Option<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(address) = &options.serve {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(null::serve(address, |address| println!("{address}")));
    }
    let server = if options.at.is_some() { None } else { Some(Server::start()?) };
    let address = match (&options.at, &server) {
        (Some(address), _) => address.clone(),
        (None, Some(server)) => server.address.clone(),
        (None, None) => anyhow::bail!("no server"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    runtime.block_on(measure(&address, options))
}

/// The null server in a separate process, killed when this one ends.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the null server")?;
        let mut address = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().context("the null server has no output")?);
        std::io::BufRead::read_line(&mut said, &mut address)?;
        Ok(Self { child, address: address.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may already have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn measure(address: &str, options: &Options) -> anyhow::Result<()> {
    let client = Client::connect(address).await?;
    let table = client.table("null").await?;
    table.put(put(0, 1)).await?;
    println!("{:<24} {:>14} {:>18} {:>14}", "workload", "rows/s", "client CPU, ns/row", "CPUs");
    for in_flight in IN_FLIGHT {
        let name = format!("puts, {in_flight} in flight");
        if name.contains(&options.only) {
            report(&name, puts(&table, in_flight, options).await);
        }
    }
    if "writer".contains(&options.only) {
        report("writer", write(&table, options).await?);
    }
    if "look-up".contains(&options.only) {
        let began = (time::now_ns(), time::process_cpu_ns());
        let mut known = 0;
        for number in 0..LOOK_UPS {
            known += u64::from(table.is_located(&key(number)));
        }
        anyhow::ensure!(known == LOOK_UPS, "{known} of {LOOK_UPS} rows are in the cache");
        report("look-up", Measured::since(began, LOOK_UPS));
    }
    client.close().await;
    Ok(())
}

struct Measured {
    rows: u64,
    ns: u64,
    cpu_ns: u64,
}

impl Measured {
    fn since((ns, cpu_ns): (u64, u64), rows: u64) -> Self {
        Self { rows, ns: time::now_ns() - ns, cpu_ns: time::process_cpu_ns() - cpu_ns }
    }
}

fn report(name: &str, measured: Measured) {
    let Measured { rows, ns, cpu_ns } = measured;
    let (rows, ns, cpu_ns) = (rows as f64, ns as f64, cpu_ns as f64);
    println!("{name:<24} {:>14.0} {:>18.0} {:>14.2}", rows * 1e9 / ns, cpu_ns / rows, cpu_ns / ns);
}

/// Spread over all regions of the null table, which start at consecutive two-byte prefixes.
fn key(number: u64) -> [u8; 16] {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = [0; 16];
    key[..2].copy_from_slice(&((spread >> 32) as u16 % null::REGIONS).to_be_bytes());
    key[2..10].copy_from_slice(&spread.to_be_bytes());
    key
}

fn put(number: u64, value_bytes: usize) -> Put {
    Put::new(key(number)).set("f", "q", &[7; 4096][..value_bytes.min(4096)])
}

/// Runs tasks that each keep one put in flight.
async fn puts(table: &Table, in_flight: usize, options: &Options) -> Measured {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = (time::now_ns(), time::process_cpu_ns());
    let writers: Vec<_> = (0..in_flight as u64)
        .map(|writer| {
            let (table, stop, done, value_bytes) = (table.clone(), stop.clone(), done.clone(), options.value_bytes);
            tokio::spawn(async move {
                let mut number = writer << 40;
                while !stop.load(Ordering::Relaxed) {
                    table.put(put(number, value_bytes)).await?;
                    number += 1;
                }
                done.fetch_add(number - (writer << 40), Ordering::Relaxed);
                Ok::<_, terrane_client::Error>(())
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        match writer.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("a put failed: {error}"),
            Err(panic) => eprintln!("a writer panicked: {panic}"),
        }
    }
    Measured::since(began, done.load(Ordering::Relaxed))
}

async fn write(table: &Table, options: &Options) -> anyhow::Result<Measured> {
    let began = (time::now_ns(), time::process_cpu_ns());
    let until = began.0 + options.seconds * 1_000_000_000;
    let writer = table.writer(WriterOptions::default());
    let mut number = 0;
    while time::now_ns() < until {
        for _ in 0..1_000 {
            writer.put(put(number, options.value_bytes)).await?;
            number += 1;
        }
    }
    writer.close().await?;
    Ok(Measured::since(began, number))
}
