//! What a scenario consists of, and what its clients share: connecting, opening tables, and telling transient errors from
//! others.

use std::pin::Pin;
use std::time::Duration;

use terrane_client::{Client, Error, Table, TableSpec};

use crate::context::Context;
use crate::trace::{self, chain};

/// What a client host does.
pub type Play = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// The clients of a run.
pub trait Scenario {
    /// The clients that work while faults occur, with their hosts (some of [`HOSTS`]). Each ends soon after
    /// [`RunState::is_over`](crate::run_state::RunState::is_over).
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)>;

    /// A client that reads and checks everything after all faults are healed, and again after a power cut of all nodes.
    fn last_reading(&self, host: &'static str, context: &Context) -> Play;

    /// What the run should have exercised and did not.
    fn shortfall(&self, context: &Context) -> Option<String>;
}

/// Client hosts by role. [`CAPTIVE`] is the one that reaches an isolated server.
pub const HOSTS: [&str; 5] = ["w1", "w2", "r1", "r2", CAPTIVE];
/// The host of the client that reaches an isolated server, and only it.
pub const CAPTIVE: &str = "captive";

impl Context {
    /// Connects, however long it takes: a run that never connects is stuck.
    pub async fn connect(&self, timeout: Duration) -> Result<Client, Error> {
        loop {
            let built = Client::builder().masters(&self.plan.masters().join(",")).timeout(timeout).build().await;
            match built {
                Err(error) if passes(&error) => {}
                done => return done,
            }
        }
    }
}

/// Opens a table, however long it takes.
pub async fn open_table(client: &Client, name: &str) -> Result<Table, Error> {
    loop {
        match client.table(name).await {
            Err(error) if passes(&error) => {}
            done => return done,
        }
    }
}

/// Creates a table, however long it takes.
pub async fn create_table(client: &Client, spec: &TableSpec) -> Result<(), Error> {
    loop {
        match client.admin().create_table(spec.clone()).await {
            Err(error) if passes(&error) => trace::note(format_args!("table not created yet: {}", chain(&error))),
            Ok(_) | Err(Error::AlreadyExists { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Whether an error may be transient. Any other error fails the run.
///
/// A server whose disk was damaged says so, and goes on; it stays down after the first phase.
pub fn passes(error: &Error) -> bool {
    error.is_retry_safe() || error.is_uncertain() || (matches!(error, Error::Corruption { .. }) && disks_are_damaged())
}

/// Whether a server's disk was damaged in this run.
pub fn disks_are_damaged() -> bool {
    let counts = terrane_env::sim::counts();
    DAMAGES.iter().any(|damage| counts.contains_key(damage))
}

/// What `terrane_env::sim` counts as damage.
const DAMAGES: [&str; 3] = ["a bit of a file is damaged", "a write is lost", "a write is misdirected"];

/// Retries after transient errors: if the cluster never recovers, the run is stuck.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match ask().await {
            Err(error) if passes(&error) => trace::note(format_args!("no answer yet: {}", chain(&error))),
            done => return done,
        }
    }
}

/// A number below `bound`.
pub fn below(bound: usize) -> usize {
    let drawn = terrane_env::rand::range(0..bound as u64);
    usize::try_from(drawn).expect("below a length")
}

/// A pause of up to so many milliseconds.
pub async fn pause(up_to_ms: u64) {
    tokio::time::sleep(Duration::from_millis(terrane_env::rand::range(0..up_to_ms))).await;
}
