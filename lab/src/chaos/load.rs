//! The load: clients that write rows, add to counters, use registers and scan, until they are told to stop.
//!
//! Calls are paced and counted, so a run is bounded in time, in rows and in memory. Some calls have a short timeout: their
//! outcome is unknown when a server fails, which the check must cope with. Rows, counters and registers are spread over the
//! key space, so that splits, merges and moves meet all of them.

mod calls;
mod counters;
mod ending;
mod registers;
mod rows;
mod scans;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use terrane_client::{Client, Table, TableSpec};
use terrane_oracle::check::Conclusion;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::calls::with_causes;
use super::history::History;
use crate::dice::Dice;

/// The one family, and the one column of each row.
pub const FAMILY: &str = "f";
pub const COLUMN: &str = "v";
/// Calls of a whole run.
const CALLS_MAX: u64 = 400_000;
/// Clients with their own connections and caches, and the timeout of each.
const TIMEOUTS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(30), Duration::from_secs(2)];
/// Creating the table, which waits for the cluster.
const CREATE_MAX: Duration = Duration::from_secs(120);
const WRITERS: u64 = 4;
const ADDERS: u64 = 2;
const REGISTER_CLIENTS: u64 = 4;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// The table splits by itself at this size, so that a run meets such splits too.
const REGION_SIZE: u64 = 4 << 20;

/// What the clients share.
pub struct Shared {
    pub tables: Vec<Table>,
    pub history: History,
    pub registers: registers::Slots,
    /// Rows that are acknowledged, for readers; each read takes one of them.
    pub written: Mutex<Vec<String>>,
    pub rows: AtomicU64,
    stop: AtomicBool,
}

/// One client: its dice, and a table of one of the connections for each call.
pub struct Worker {
    pub shared: Arc<Shared>,
    pub dice: Dice,
    pub name: String,
}

impl Shared {
    /// Whether the clients stop: they were told to, or have made enough calls.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.history.operations() >= CALLS_MAX
    }
}

impl Worker {
    pub fn table(&mut self) -> Table {
        let at = self.dice.below(self.shared.tables.len());
        self.shared.tables[at].clone()
    }

    pub async fn pause(&mut self, longest_ms: u64) {
        tokio::time::sleep(self.dice.ms(1..=longest_ms)).await;
    }
}

/// Where in the key space a thing is: two hexadecimal digits that spread well.
pub fn place(number: u64) -> String {
    format!("{:02x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56)
}

/// Loads the cluster until it is told to stop; then reads everything, and judges. `begun` is called once the load begins.
pub async fn run(
    masters: &str,
    history: &Path,
    seed: u64,
    begun: impl FnOnce(),
    told: oneshot::Receiver<()>,
) -> anyhow::Result<Conclusion> {
    let shared = Arc::new(Shared {
        tables: open(masters).await?,
        history: History::create(history)?,
        registers: registers::Slots::default(),
        written: Mutex::default(),
        rows: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    begun();
    let mut workers = start(&shared, seed);
    let is_told = until_told(&shared, told).await;
    shared.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = workers.join_next().await {
        ended.context("a client panicked")?;
    }
    ensure!(is_told, "the run is given up: no verdict");
    eprintln!("reading everything");
    ending::read_everything(&shared).await?;
    let shared = Arc::into_inner(shared).context("the clients have ended")?;
    shared.history.conclude()
}

async fn open(masters: &str) -> anyhow::Result<Vec<Table>> {
    let mut tables = Vec::new();
    for timeout in TIMEOUTS {
        let client = Client::builder().masters(masters).timeout(timeout).build().await?;
        if tables.is_empty() {
            let mut spec = TableSpec::new("chaos")?.family(FAMILY, &[])?.region_size(REGION_SIZE);
            for digit in ["2", "4", "6", "8", "a", "c", "e"] {
                spec = spec.split_at(digit.as_bytes());
            }
            client.admin().with_timeout(CREATE_MAX).create_table(spec).await?;
        }
        tables.push(client.table("chaos").await?);
    }
    Ok(tables)
}

fn start(shared: &Arc<Shared>, seed: u64) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    let mut number = 0;
    let mut worker = |name: &str| {
        number += 1;
        let dice = Dice::new(seed.wrapping_mul(1_000).wrapping_add(number));
        Worker { shared: Arc::clone(shared), dice, name: format!("{name}{number}") }
    };
    (0..WRITERS).for_each(|_| _ = workers.spawn(worker("w").write_rows()));
    (0..ADDERS).for_each(|_| _ = workers.spawn(worker("a").add()));
    (0..REGISTER_CLIENTS).for_each(|_| _ = workers.spawn(worker("r").use_registers()));
    workers.spawn(worker("s").scan());
    workers
}

/// Waits until the load is over, and tells how it is doing; false if that is not said.
async fn until_told(shared: &Shared, mut told: oneshot::Receiver<()>) -> bool {
    let mut ticks = tokio::time::interval_at(Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
    loop {
        tokio::select! {
            biased;
            told = &mut told => return told.is_ok(),
            _ = ticks.tick() => eprintln!("           clients: {}", shared.history.progress()),
        }
    }
}
