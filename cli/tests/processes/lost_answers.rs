//! Lost replies: a proxy in front of each server forwards requests and cuts the connection before replies arrive, while
//! servers are killed and regions split. Acknowledged operations still count exactly once.
//!
//! The seed of the proxies is printed; `TERRANE_TEST_SEED` sets it. Runs with the same seed still differ in timing, and
//! every check holds for all of them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_client::{Client, Error, Get, RetryBudget, Returns, RowMutation, Table, column};
use terrane_oracle::Fate;
use terrane_oracle::ledger::{Begun, Ledger, token};

use crate::harness::{COMMAND_MAX, Cluster, eventually};

/// Most bytes of replies before a connection is cut.
const REPLY_BYTES_MAX: u64 = 40_000;
/// How long requests are still forwarded after replies are cut.
const DEAF: Duration = Duration::from_millis(15);

const WORKERS: u64 = 24;
const OPERATIONS: u64 = 2_500;
const ROWS: u64 = 8;
/// Longer than anything here takes, so that no client gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy in front of a server that loses replies.
struct Proxy {
    address: String,
    state: Arc<ProxyState>,
}

struct ProxyState {
    target: String,
    rng: Mutex<StdRng>,
    calm: AtomicBool,
    cuts: AtomicU64,
}

impl Proxy {
    fn before(target: &str, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let state = Arc::new(ProxyState {
            target: target.to_owned(),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            calm: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
        });
        // It ends with the test process, which needs its port until then.
        std::thread::spawn({
            let state = Arc::clone(&state);
            move || listener.incoming().flatten().for_each(|client| state.accept(client))
        });
        Proxy { address, state }
    }
}

impl ProxyState {
    fn accept(self: &Arc<Self>, client: TcpStream) {
        // If the server is down, its connection is refused and ours ends at once.
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        let (Ok(from_client), Ok(to_client)) = (client.try_clone(), client.try_clone()) else { return };
        let Ok(from_server) = server.try_clone() else { return };
        let to_server = server;
        client.set_nodelay(true).ok();
        to_server.set_nodelay(true).ok();
        let state = Arc::clone(self);
        std::thread::spawn(move || forward(from_client, to_server, |_| true));
        std::thread::spawn(move || state.answer(from_server, to_client));
    }

    /// Forwards replies up to a random number of bytes. After that, requests are forwarded for a moment, but replies
    /// are lost.
    fn answer(&self, server: TcpStream, client: TcpStream) {
        let mut left = self.rng.lock().random_range(0..REPLY_BYTES_MAX);
        let (Ok(server_too), Ok(client_too)) = (server.try_clone(), client.try_clone()) else { return };
        let cut = forward(server, client, |bytes| {
            left = left.saturating_sub(bytes as u64);
            left > 0 || self.calm.load(Ordering::Relaxed)
        });
        if cut {
            std::thread::park_timeout(DEAF);
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
        server_too.shutdown(Shutdown::Both).ok();
        client_too.shutdown(Shutdown::Both).ok();
    }
}

/// Copies until one side ends or `pass` returns false; returns whether it was `pass`. That data is not copied.
fn forward(mut from: TcpStream, mut to: TcpStream, mut pass: impl FnMut(usize) -> bool) -> bool {
    let mut buffer = vec![0; 16 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(read) if read > 0 => {
                if !pass(read) {
                    return true;
                }
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            Ok(_) | Err(_) => break,
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
    false
}

fn row(number: u64) -> String {
    // Spread over the whole key range, so that every region and server gets some.
    format!("{:02x}row", number * 256 / ROWS)
}

/// The ledger's name of a column of a row.
fn object(row: &str, column: &str) -> Vec<u8> {
    format!("{row}/{column}").into_bytes()
}

struct Worker {
    table: Table,
    ledger: Arc<Mutex<Ledger>>,
    done: Arc<AtomicU64>,
    rng: StdRng,
}

impl Worker {
    async fn run(mut self) -> Result<(), Error> {
        while self.done.load(Ordering::Relaxed) < OPERATIONS {
            let row = row(self.rng.random_range(0..ROWS));
            let outcome = match self.rng.random_range(0..4) {
                0 | 1 => self.increment(&row).await,
                2 => self.append(&row).await,
                _ => self.replace(&row).await,
            };
            match outcome {
                Ok(()) => _ = self.done.fetch_add(1, Ordering::Relaxed),
                Err(error) if error.is_uncertain() || error.is_retry_safe() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The answer of an operation; without one, what is known of it is recorded.
    fn answer<T>(&self, begun: &Begun, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            let fate = match error {
                Error::ResultLost => Fate::Applied,
                error if error.is_uncertain() => Fate::Unknown,
                _ => Fate::Refused,
            };
            self.ledger.lock().end(begun, fate).expect("it was not shown");
        }
        outcome
    }

    async fn increment(&self, row: &str) -> Result<(), Error> {
        let begun = self.ledger.lock().begin(&object(row, "n"));
        let value = self.answer(&begun, self.table.increment(row, "f", "n", 1).await)?;
        self.ledger.lock().incremented(&begun, u64::try_from(value).expect("it grows")).expect(row);
        Ok(())
    }

    async fn append(&self, row: &str) -> Result<(), Error> {
        let begun = self.ledger.lock().begin(&object(row, "l"));
        let mutation = RowMutation::new(row).append("f", "l", token(begun.operation)).returning(Returns::New);
        match self.answer(&begun, self.table.mutate(mutation).await) {
            Ok(outcome) => {
                let list = outcome.row.as_ref().and_then(|row| row.value("f", "l")).unwrap_or_default();
                self.ledger.lock().appended(&begun, list).expect(row);
                Ok(())
            }
            // Servers do not keep results above 4 KiB.
            Err(Error::ResultLost) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the present operation by this one unless it has changed.
    async fn replace(&self, row: &str) -> Result<(), Error> {
        let found = self.table.get(Get::new(row).column("f", "v")).await?;
        let before = number_in(found.as_ref().and_then(|row| row.value("f", "v")));
        let begun = self.ledger.lock().begin_replacing(&object(row, "v"), before);
        let there = column("f", "v");
        let condition = if before == 0 { there.is_absent() } else { there.equals(token(before)) };
        let mutation = RowMutation::new(row).set("f", "v", token(begun.operation));
        let held = self.answer(&begun, self.table.check_and_mutate(condition, mutation).await)?;
        let mut ledger = self.ledger.lock();
        let verdict = if held { ledger.replaced(&begun) } else { ledger.end(&begun, Fate::Refused) };
        verdict.expect(row);
        Ok(())
    }
}

fn number_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("eight bytes")))
}

#[test]
fn acknowledged_operations_count_once_despite_lost_replies_and_a_killed_server() {
    let seed = std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("TERRANE_TEST_SEED={seed}");
    let mut proxies = Vec::new();
    let mut cluster = Cluster::start_with("lsm", &[], |address| {
        let proxy = Proxy::before(address, seed.wrapping_add(proxies.len() as u64));
        let flags = vec!["--advertise".to_owned(), proxy.address.clone()];
        proxies.push(proxy);
        flags
    });
    cluster.client.succeed(&["table", "create", "t", "--family", "f", "--split-at", "60", "a0"]);

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let budget = RetryBudget::default().percent(1_000).per_second(100_000).saved_max(1_000_000);
    let masters = cluster.client.masters.clone();
    let connecting = Client::builder().masters(&masters).timeout(PATIENCE).retry_budget(budget).build();
    let client = runtime.block_on(connecting).expect("a client");
    let table = runtime.block_on(client.table("t")).expect("the table");
    let (ledger, done) = (Arc::new(Mutex::new(Ledger::default())), Arc::new(AtomicU64::new(0)));
    let working = runtime.spawn(join_all((0..WORKERS).map(|worker| {
        let rng = StdRng::seed_from_u64(seed ^ (worker << 32));
        Worker { table: table.clone(), ledger: Arc::clone(&ledger), done: Arc::clone(&done), rng }.run()
    })));

    let wait_for = |share: u64| {
        eventually(COMMAND_MAX, "operations", || {
            let done = done.load(Ordering::Relaxed);
            if done >= OPERATIONS * share / 10 || working.is_finished() { Ok(()) } else { Err(format!("{done} done")) }
        });
    };
    wait_for(2);
    cluster.kill_server(1);
    wait_for(4);
    for region in runtime.block_on(client.admin().regions(Some("t"))).expect("regions").into_iter().take(2) {
        // Within the first row's key, and further up. The region may have no leader at the moment.
        let at = if region.descriptor.range.start.is_empty() { "20" } else { "80" };
        runtime.block_on(client.admin().split(region.descriptor.region, Some(at.as_bytes()))).ok();
    }
    wait_for(5);
    cluster.start_server(1);
    wait_for(7);
    cluster.kill_server(2);
    for outcome in runtime.block_on(working).expect("no worker panics") {
        outcome.expect("nothing but lost answers");
    }
    cluster.start_server(2);
    proxies.iter().for_each(|proxy| proxy.state.calm.store(true, Ordering::Relaxed));
    cluster.client.wait_until_well();

    let cuts: u64 = proxies.iter().map(|proxy| proxy.state.cuts.load(Ordering::Relaxed)).sum();
    let mut ledger = ledger.lock();
    println!("{cuts} connections cut, applied, refused and unknown: {:?}, {:?}", ledger.counts(), client.counters());
    assert!(cuts > 20, "{cuts} connections were cut: too few for this to mean much");
    for row in (0..ROWS).map(row) {
        let found = runtime.block_on(async { table.get(Get::new(&row)).await }).expect("read").expect("there");
        ledger.final_counter(&object(&row, "n"), number_in(found.value("f", "n"))).expect(&row);
        ledger.final_list(&object(&row, "l"), found.value("f", "l").unwrap_or_default()).expect(&row);
        ledger.final_register(&object(&row, "v"), number_in(found.value("f", "v"))).expect(&row);
    }
}
