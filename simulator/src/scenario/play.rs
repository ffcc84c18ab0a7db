//! What a scenario consists of, and what its clients share: founding and opening its table, working until the faults are
//! over, judging, and telling transient errors from others.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::{Arguments, Display};
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use terrane_client::{Client, Error, RowData, Scan, Table, TableSpec};
use terrane_oracle::linearizability::History;
use terrane_oracle::{Fate, Verdict, Violation};

use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};
use crate::verdict::Failure;

/// The table of a scenario.
pub const TABLE: &str = "t";

/// The timeout of most clients.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// That of one worker of each host, which gives up during faults and continues with another operation.
pub const IMPATIENCE: Duration = Duration::from_millis(700);
/// Short, so that the captive calls often instead of waiting until everything is repaired.
pub const CAPTIVE_PATIENCE: Duration = Duration::from_millis(300);
/// That of the last reading.
pub const LAST_PATIENCE: Duration = Duration::from_secs(20);

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

    /// The scenario in its run.
    fn shared(&self, context: &Context) -> Shared<Self>
    where
        Self: Clone + Sized,
    {
        Shared { scenario: self.clone(), context: context.clone() }
    }
}

/// A scenario in its run, which all its clients share.
#[derive(Clone)]
pub struct Shared<S> {
    scenario: S,
    pub context: Context,
}

impl<S> Deref for Shared<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.scenario
    }
}

impl<S> Shared<S> {
    /// Whether clients should stop.
    pub fn is_over(&self) -> bool {
        self.context.state.is_over()
    }

    /// Acts until the faults are over, with pauses of up to so many milliseconds.
    pub async fn until_over(
        &self,
        pause_ms: u64,
        mut act: impl AsyncFnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        while !self.is_over() {
            act().await?;
            pause(pause_ms).await;
        }
        Ok(())
    }

    /// A client, once the table exists. The first one creates it.
    pub async fn create_table(
        &self,
        index: usize,
        spec: impl FnOnce(&Plan) -> Result<TableSpec, Error>,
    ) -> Result<Client, Error> {
        let client = self.context.connect(PATIENCE).await?;
        if index == 0 {
            create_table(&client, &spec(&self.context.plan)?).await?;
            self.context.state.ready();
        }
        self.context.state.until_ready().await;
        Ok(client)
    }

    /// A client with this timeout, once the table exists.
    pub async fn client(&self, patience: Duration) -> Result<Client, Error> {
        let client = self.context.connect(patience).await?;
        self.context.state.until_ready().await;
        Ok(client)
    }

    /// The table, by a client of its own with this timeout.
    pub async fn table(&self, patience: Duration) -> Result<Table, Error> {
        open_table(&self.client(patience).await?, TABLE).await
    }

    /// Takes note of how a call ended.
    pub fn ended<T>(&self, who: &str, what: impl Display, outcome: Result<T, Error>) -> Result<Result<T, Fate>, Error> {
        match &outcome {
            Ok(_) => self.context.state.acknowledge(),
            Err(error) => trace::note(format_args!("{who} got no answer for {what}: {}", chain(error))),
        }
        ended(outcome)
    }

    /// Fails the run.
    pub fn fail(&self, who: &str, key: &[u8], what: impl Display) {
        let key = key.escape_ascii().to_string();
        self.context.state.fail(Failure { what: format!("{who}: {key} {what}"), about: vec![key] });
    }

    /// Records a check; a violation fails the run.
    pub fn judge(&self, who: &str, key: &[u8], verdict: Verdict) {
        self.context.state.checked();
        if let Err(what) = verdict {
            self.fail(who, key, what);
        }
    }

    /// Records a check that says which key it concerns.
    pub fn judge_read(&self, who: &str, verdict: Verdict<Violation>) {
        self.context.state.checked();
        if let Err(Violation { key, what }) = verdict {
            self.fail(who, &key, what);
        }
    }

    /// Judges the histories of all registers. Takes note of one whose search gave up.
    pub fn judge_history(&self, who: &str, history: &History, gave_up: &Cell<bool>) {
        match history.check() {
            Ok(None) => {}
            Ok(Some(key)) => {
                trace::note(format_args!("{who} cannot judge {}", key.escape_ascii()));
                gave_up.set(true);
            }
            Err(Violation { key, what }) => self.fail(who, &key, what),
        }
    }
}

/// A table of the plan's sizes. Its several initial regions begin at these of so many keys: they are in several groups with
/// several leaders, while daughters stay in their parent's group.
pub fn sized(spec: TableSpec, plan: &Plan, keys: usize, key: impl Fn(usize) -> Vec<u8>) -> Result<TableSpec, Error> {
    let spec = spec.region_size(plan.region_size).set("flush_size", &format!("{}B", plan.flush_size))?;
    let first_regions = 1..plan.first_regions;
    Ok(first_regions.fold(spec, |spec, region| spec.split_at(&key(region * keys / plan.first_regions))))
}

/// The first key of a region, if the regions have equal shares of all numbers of eight bytes.
pub fn share_of_numbers(region: usize, plan: &Plan) -> Vec<u8> {
    (u64::MAX / plan.first_regions as u64 * region as u64).to_be_bytes().to_vec()
}

/// The answer of a call, or what is known of the call without one. An error that is not transient fails the run.
pub fn ended<T>(outcome: Result<T, Error>) -> Result<Result<T, Fate>, Error> {
    match outcome {
        Ok(answer) => Ok(Ok(answer)),
        Err(Error::ResultLost) => Ok(Err(Fate::Applied)),
        Err(error) if error.is_uncertain() => Ok(Err(Fate::Unknown)),
        Err(error) if passes(&error) => Ok(Err(Fate::Refused)),
        Err(error) => Err(error),
    }
}

/// Client hosts.
pub const HOSTS: [&str; 5] = ["w1", "w2", READER, OPERATOR, CAPTIVE];
/// The hosts of clients that write, or do everything.
pub const WORKER_HOSTS: [&str; 2] = ["w1", "w2"];
/// The host of clients that read.
pub const READER: &str = "r1";
/// The host of the operator of regions, and in some scenarios of more readers.
pub const OPERATOR: &str = "r2";
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

/// Takes note of a transient error.
pub fn passed(what: Arguments<'_>, done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error) if passes(&error) => {
            trace::note(format_args!("{what}: {}", chain(&error)));
            Ok(())
        }
        done => done,
    }
}

/// The rows of a scan.
pub async fn all_rows(table: &Table, scan: Scan) -> Result<Vec<RowData>, Error> {
    let mut stream = table.scan(scan).await?;
    let mut rows = Vec::new();
    while let Some(row) = stream.next().await {
        rows.push(row?);
    }
    Ok(rows)
}

/// The rows of a scan, by their keys.
pub async fn rows_by_key(table: &Table, scan: Scan) -> Result<BTreeMap<Vec<u8>, RowData>, Error> {
    Ok(all_rows(table, scan).await?.into_iter().map(|row| (row.row().to_vec(), row)).collect())
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
