//! What people watch a cluster with: metrics, dashboard, alert rules, slow requests, hot rows.
//!
//! Prometheus and its `promtool` are used where the machine has them; otherwise the test says on standard error that it
//! left this out.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests run other programs and read their files"
)]

mod audit;
mod deploy;
mod hot;
mod metrics;
mod servers;
mod slow;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use terrane_client::{Get, Put, Scan, TableSpec};
use terrane_console::Console;
use terrane_tests::cluster::{Cluster, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Far longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A cluster in this process with a console for its master and one for each server.
struct Watched {
    cluster: Cluster,
    consoles: Vec<Console>,
}

impl Watched {
    async fn start(settings: Settings) -> Result<Self> {
        let cluster = Cluster::start(settings).await?;
        let mut consoles = Vec::new();
        let registries = (0..cluster.settings.servers).filter_map(|at| Some(cluster.server(at)?.registry()));
        for registry in [cluster.master_registry().context("the master runs")?].into_iter().chain(registries) {
            let console = Console::start("127.0.0.1:0", Arc::new(|| Ok(()))).await?;
            console.publish(registry);
            consoles.push(console);
        }
        Ok(Self { cluster, consoles })
    }

    /// Writes, reads and scans a few rows, so that every metric has a value.
    async fn use_it(&self) -> Result<()> {
        let client = self.cluster.client().await?;
        client.admin().create_table(TableSpec::new("t")?.family("f", &[])?).await?;
        let table = client.table("t").await?;
        for row in 0..50 {
            table.put(Put::new(format!("{row:03}")).set("f", "q", "v")).await?;
        }
        client.admin().flush_table("t", |_| {}).await?;
        ensure!(table.get(Get::new("007")).await?.is_some(), "a row is missing");
        let mut rows = table.scan(Scan::all()).await?;
        while let Some(row) = rows.next().await {
            row?;
        }
        Ok(())
    }

    async fn stop(mut self) {
        for console in self.consoles {
            console.shutdown().await;
        }
        self.cluster.stop_all().await;
    }
}

/// What a console answers: the head and the body.
async fn fetch(console: &Console, path: &str, accept: &str) -> Result<(String, String)> {
    get_from(&console.address().to_string(), path, accept).await
}

async fn get_from(address: &str, path: &str, accept: &str) -> Result<(String, String)> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: console\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok((head.to_owned(), unchunked(body)))
}

/// A body without the sizes of its chunks, if it has any.
fn unchunked(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((size, more)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { return body.to_owned() };
        if size == 0 || more.len() < size {
            break;
        }
        out.push_str(&more[..size]);
        rest = more[size..].trim_start_matches("\r\n");
    }
    if out.is_empty() { body.to_owned() } else { out }
}

/// Whether the machine has a program; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("{program} is not installed: what needs it is left out");
    }
    found
}
