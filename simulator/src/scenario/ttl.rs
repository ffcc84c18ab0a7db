//! Times to live: rows whose columns expire, under clocks that are wrong.
//!
//! Each write puts one number into three families with one timestamp: one with a `ttl`, one with a `ttl` that does not hide
//! the newest version (`min_versions`), and one without. The last says which write a read shows and when it was stamped, so
//! every single read tells whether the others must be there ([`expiry`](terrane_oracle::expiry)). Each row has one writer, and
//! a write with an unknown outcome is its last.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{join_all, try_join};
use terrane_client::{Consistency, Error, Get, KeyRange, Put, RowData, Scan, Table, TableSpec};
use terrane_oracle::Verdict;
use terrane_oracle::expiry::{Lifetime, Window};
use terrane_oracle::rows::{Change, Reading, Rows};

use super::cluster_clock::ClusterClock;
use super::maintenance::maintain;
use super::places::{Places, Row};
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, IMPATIENCE, OPERATOR, PATIENCE, Play, READER, Scenario, TABLE, WORKER_HOSTS,
    below, open_table, passed, passes, patiently, rows_by_key, sized,
};
use crate::context::Context;
use crate::plan::Plan;
use crate::trace::{self, chain};

const PLACES: usize = 120;
const WRITERS_PER_HOST: usize = 3;
const READERS: usize = 3;

/// Families by what expires: everything, everything but the newest version, nothing.
const FLEETING: &str = "t";
const LASTING: &str = "m";
const KEPT: &str = "p";
const QUALIFIER: &str = "n";

/// How long the cells live. A server reads and stamps by a clock within 500 ms of the median; the rest of the tolerance is
/// for what it cannot know of the others' clocks while links are slow.
const LIFETIME: Lifetime = Lifetime { ttl_ms: 2_500, tolerance_ms: 750 };

/// Longest pauses between two calls.
const WRITER_PAUSE_MS: u64 = 160;
const READER_PAUSE_MS: u64 = 160;
const SCAN_LIMIT: u64 = 12;
/// Writes of a row before another takes its place.
const WRITES_MAX: usize = 1_000;

/// Less shows little.
const WRITES_MIN: u64 = 150;
const READS_MIN: u64 = 60;

/// The scenario.
#[derive(Clone)]
pub struct Ttl {
    book: Rc<RefCell<Book>>,
    clock: ClusterClock,
    /// Reads that saw a cell with a time to live, and those that did not because it had expired.
    seen: Rc<Cell<u64>>,
    expired: Rc<Cell<u64>>,
}

struct Book {
    rows: Rows,
    places: Places,
    /// The newest timestamp of each row that some client knows.
    stamps: BTreeMap<Row, i64>,
}

impl Default for Ttl {
    fn default() -> Ttl {
        let places = Places::new(PLACES, key, WRITES_MAX, 1);
        let book = Book { rows: Rows::default(), places, stamps: BTreeMap::new() };
        Ttl {
            book: Rc::new(RefCell::new(book)),
            clock: ClusterClock::default(),
            seen: Rc::default(),
            expired: Rc::default(),
        }
    }
}

impl Book {
    fn stamp(&self, row: Row) -> i64 {
        self.stamps.get(&row).copied().unwrap_or_default()
    }
}

fn key(place: usize, earlier: usize) -> Vec<u8> {
    format!("row-{place:03}-{earlier:03}").into_bytes()
}

impl Scenario for Ttl {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in WORKER_HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(write(host, index, shared.clone()))));
        }
        clients.push((READER, Box::pin(read(shared.clone()))));
        let some_row = || key(below(PLACES), below(2));
        clients.push((OPERATOR, Box::pin(maintain(TABLE, some_row, context.clone()))));
        clients.push((CAPTIVE, Box::pin(be_captive(shared))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let acknowledged = context.state.acknowledged();
        if acknowledged < WRITES_MIN {
            return Some(format!("only {acknowledged} writes were acknowledged"));
        }
        let (seen, expired) = (self.seen.get(), self.expired.get());
        let few = seen < READS_MIN || expired < READS_MIN;
        few.then(|| format!("only {seen} reads saw a cell with a time to live, and {expired} an expired one"))
    }
}

type Shared = play::Shared<Ttl>;

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let ttl = format!("{}ms", LIFETIME.ttl_ms);
    let spec = TableSpec::new(TABLE)?
        .family(FLEETING, &[("versions", "1"), ("ttl", &ttl)])?
        .family(LASTING, &[("versions", "3"), ("min_versions", "1"), ("ttl", &ttl)])?
        .family(KEPT, &[("versions", "1")])?;
    sized(spec, plan, PLACES, |place| key(place, 0))
}

/// The present time as the clients have it.
fn now_ms() -> i64 {
    i64::try_from(terrane_env::time::wall_ms()).expect("milliseconds since 1970")
}

async fn write(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let table = open_table(&shared.create_table(index, spec).await?, TABLE).await?;
    let writers = WORKER_HOSTS.len() * WRITERS_PER_HOST;
    let tasks = (0..WRITERS_PER_HOST).map(|number| {
        let mine = index * WRITERS_PER_HOST + number;
        let patience = if number == 0 { IMPATIENCE } else { PATIENCE };
        let who = format!("{host}.{number}");
        let table = table.clone().with_timeout(patience);
        let player = Player { who, table, shared: shared.clone() };
        player.write_on((0..PLACES).filter(|place| place % writers == mine).collect())
    });
    join_all(tasks).await.into_iter().collect()
}

async fn read(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let readers = (0..READERS).map(|number| {
        let who = format!("{READER}.{number}");
        Player { who, table: table.clone(), shared: shared.clone() }.read_on()
    });
    join_all(readers).await.into_iter().collect()
}

/// Readers of the isolated leader, each with its own location cache.
async fn be_captive(shared: Shared) -> Result<(), Error> {
    let (one, other) = (shared.context.connect(PATIENCE).await?, shared.context.connect(PATIENCE).await?);
    shared.context.state.until_ready().await;
    let player = async |client, number| {
        let table = open_table(client, TABLE).await?.with_timeout(CAPTIVE_PATIENCE);
        let who = format!("{CAPTIVE}.{number}");
        Ok::<_, Error>(Player { who, table, shared: shared.clone() })
    };
    try_join(player(&one, 0).await?.read_on(), player(&other, 1).await?.read_on()).await.map(drop)
}

/// A read of a row that has started.
struct Begun {
    row: Row,
    key: Vec<u8>,
    read: Reading,
    stamp: i64,
    called_ms: i64,
    is_stale: bool,
}

/// Writes or reads rows, and has every result checked.
struct Player {
    who: String,
    table: Table,
    shared: Shared,
}

impl Player {
    async fn write_on(self, places: Vec<usize>) -> Result<(), Error> {
        self.shared.until_over(WRITER_PAUSE_MS, async || self.write(places[below(places.len())]).await).await
    }

    async fn write(&self, place: usize) -> Result<(), Error> {
        let (row, key, number, before) = {
            let mut book = self.shared.book.borrow_mut();
            let row = book.places.row_at(place);
            let key = book.places.key(row).to_vec();
            let number = book.rows.attempt(&key, Change::Put);
            (row, key, number, book.stamp(row))
        };
        let called_ms = now_ms();
        let families = [FLEETING, LASTING, KEPT].into_iter();
        let put = families.fold(Put::new(&key), |put, family| put.set(family, QUALIFIER, number.to_be_bytes()));
        let put = put.set(FLEETING, "padding", vec![b'p'; self.shared.context.plan.value_bytes]);
        match self.table.mutate(put).await {
            Ok(outcome) => {
                let stamp = i64::try_from(outcome.stamp_ms).expect("milliseconds since 1970");
                trace::note(format_args!("{} wrote {}={number} at {stamp}", self.who, key.escape_ascii()));
                self.shared.context.state.acknowledge();
                self.shared.book.borrow_mut().rows.acknowledge(&key, number);
                self.shared.book.borrow_mut().places.count(row, false);
                // 0: no longer known.
                if stamp != 0 {
                    let window = Window { called_ms, returned_ms: now_ms() };
                    self.judge(&key, judge_order(stamp, before));
                    self.judge_early(&key, judge_stamp_ahead(stamp, window));
                    self.judge_late(&key, judge_stamp_behind(stamp, window));
                    self.learn(row, stamp);
                }
            }
            Err(error) if passes(&error) => {
                trace::note(format_args!("{} did not write {}: {}", self.who, key.escape_ascii(), chain(&error)));
                // Refused writes have a number too, which nothing may show; but the checks allow for it.
                self.shared.book.borrow_mut().places.count(row, error.is_uncertain());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn learn(&self, row: Row, stamp: i64) {
        let mut book = self.shared.book.borrow_mut();
        let newest = book.stamps.entry(row).or_default();
        *newest = stamp.max(*newest);
    }

    async fn read_on(self) -> Result<(), Error> {
        let act = async || {
            let row = self.shared.book.borrow().places.row_at(below(PLACES));
            let done = match below(8) {
                0 => self.scan().await,
                1 => self.get(row, Consistency::Stale).await,
                _ => self.get(row, Consistency::Linearizable).await,
            };
            passed(format_args!("{} did not read", self.who), done)
        };
        self.shared.until_over(READER_PAUSE_MS, act).await
    }

    fn begin(&self, row: Row) -> Begun {
        let book = self.shared.book.borrow();
        let key = book.places.key(row).to_vec();
        let (read, stamp) = (book.rows.begin_read(&key), book.stamp(row));
        Begun { row, key, read, stamp, called_ms: now_ms(), is_stale: false }
    }

    async fn get(&self, row: Row, level: Consistency) -> Result<(), Error> {
        let begun = Begun { is_stale: level == Consistency::Stale, ..self.begin(row) };
        let found = self.table.get(Get::new(&begun.key).versions(3)).consistency(level).await?;
        self.end(begun, found.as_ref());
        Ok(())
    }

    /// Reads all rows that were ever used.
    async fn get_all(&self, rows: usize) -> Result<(), Error> {
        let begun: Vec<Begun> = (0..rows).map(|row| self.begin(row)).collect();
        let gets = begun.iter().map(|begun| Get::new(&begun.key).versions(3));
        let found = self.table.get_many(gets).await?;
        for (begun, row) in begun.into_iter().zip(&found) {
            self.end(begun, row.as_ref());
        }
        Ok(())
    }

    async fn scan(&self) -> Result<(), Error> {
        let start = key(below(PLACES), 0);
        let in_use = self.shared.book.borrow().places.in_use();
        let begun: Vec<Begun> = in_use.into_iter().map(|row| self.begin(row)).collect();
        let scan = Scan::range(KeyRange { start: start.into(), end: Default::default() }).versions(3);
        let rows = rows_by_key(&self.table, scan.limit(SCAN_LIMIT)).await?;
        // Only rows that were found are judged: the others may lie outside.
        for begun in begun {
            if let Some(row) = rows.get(&begun.key) {
                self.end(begun, Some(row));
            }
        }
        Ok(())
    }

    /// Judges what a row shows.
    fn end(&self, begun: Begun, row: Option<&RowData>) {
        self.shared.context.state.checked();
        let Begun { row: place, key, read, stamp: before, called_ms, is_stale } = begun;
        let window = Window { called_ms, returned_ms: now_ms() };
        let newest = |family| row.and_then(|row| row.versions(family, QUALIFIER.as_bytes()).next());
        let kept = newest(KEPT);
        let number = kept.map_or(0, |(_, value)| value.try_into().map_or(u64::MAX, u64::from_be_bytes));
        trace::note(format_args!("{} read {}: {row:?}", self.who, key.escape_ascii()));
        let verdict = match is_stale {
            true => self.shared.book.borrow().rows.judge_stale(&key, number),
            false => self.shared.book.borrow_mut().rows.end_read(&read, number),
        };
        self.judge(&key, verdict.map_err(|violation| violation.what));
        let Some((stamp, value)) = kept else {
            self.judge(&key, row.map_or(Ok(()), |row| Err(format!("shows a part of a row: {row:?}"))));
            return;
        };
        if !is_stale {
            self.judge(&key, judge_order(stamp, before));
            self.learn(place, stamp);
        }
        let lasts = newest(LASTING) == Some((stamp, value));
        self.judge(&key, if lasts { Ok(()) } else { Err(format!("lacks its newest version: {row:?}")) });
        self.judge(&key, same_write((stamp, value), newest(FLEETING)));
        if newest(FLEETING).is_some() {
            self.shared.seen.set(self.shared.seen.get() + 1);
            self.judge_late(&key, LIFETIME.judge_seen(stamp, window));
        } else {
            self.shared.expired.set(self.shared.expired.get() + 1);
            self.judge_early(&key, LIFETIME.judge_missing(stamp, window));
        }
        // Older versions expire, whatever `min_versions` says of the newest.
        let older = row.into_iter().flat_map(|row| row.versions(LASTING, QUALIFIER.as_bytes()).skip(1));
        older.for_each(|(stamp, _)| self.judge_late(&key, LIFETIME.judge_seen(stamp, window)));
    }

    /// Records whether something came too early; without a clock that means nothing.
    fn judge_early(&self, key: &[u8], verdict: Verdict) {
        if self.shared.clock.latest_ms(&self.shared.context).is_some() {
            self.judge(key, verdict);
        }
    }

    /// Records whether something came too late.
    fn judge_late(&self, key: &[u8], verdict: Verdict) {
        if self.shared.clock.latest_ms(&self.shared.context).is_some() && !self.shared.clock.may_lag() {
            self.judge(key, verdict);
        }
    }

    fn judge(&self, key: &[u8], verdict: Verdict) {
        if let Err(what) = verdict {
            self.shared.fail(&self.who, key, what);
        }
    }
}

/// Timestamps of a row never go back, whichever server leads.
fn judge_order(stamp: i64, before: i64) -> Verdict {
    if stamp < before { Err(format!("is stamped {stamp} after {before}")) } else { Ok(()) }
}

fn judge_stamp_ahead(stamp: i64, window: Window) -> Verdict {
    let ahead = stamp > window.returned_ms + LIFETIME.tolerance_ms;
    if ahead { Err(format!("is stamped {stamp} by a write during {window:?}")) } else { Ok(()) }
}

fn judge_stamp_behind(stamp: i64, window: Window) -> Verdict {
    let behind = stamp < window.called_ms - LIFETIME.tolerance_ms;
    if behind { Err(format!("is stamped {stamp} by a write during {window:?}")) } else { Ok(()) }
}

fn same_write(kept: (i64, &[u8]), fleeting: Option<(i64, &[u8])>) -> Verdict {
    match fleeting {
        Some(cell) if cell != kept => Err(format!("shows parts of two writes: {kept:?} and {cell:?}")),
        _ => Ok(()),
    }
}

/// Reads every row after all writes, and once more when everything has expired.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let player = Player { who: host.to_owned(), table: shared.table(PATIENCE).await?, shared };
    let rows = player.shared.book.borrow().places.rows();
    let lifetime = u64::try_from(LIFETIME.ttl_ms + LIFETIME.tolerance_ms).expect("positive");
    for wait in [Duration::ZERO, Duration::from_millis(lifetime)] {
        tokio::time::sleep(wait).await;
        patiently(async || player.get_all(rows).await).await?;
    }
    trace::note(format_args!("{host} read {rows} rows"));
    Ok(())
}
