//! `demo`: shows in less than a minute what Terrane does, on a temporary cluster.
//!
//! The demo starts a cluster in a temporary directory on free ports and imports generated weather with the code of
//! `import`, into a table whose regions are small enough to split meanwhile. It then reads as an application does and
//! pages through user actions by a composite key. Every step is timed, and everything is removed at the end.

use std::sync::Arc;
use std::time::Duration;

use terrane_client::{
    Client, Desc, KeyRange, KeyedTable, Put, RowData, RowKey, Scan, Table, TableSpec, Time, WriterOptions,
};
use terrane_engine::BackendKind;
use terrane_env::task::shutdown_signal;
use terrane_hbase::data::SCANNER_LEASE_DEFAULT;
use terrane_regionserver::ServerConfig;
use tokio::time::Instant;

use super::import::{Counts, Importer};
use crate::args::roles::Demo;
use crate::cluster::{Cluster, ClusterPlan, Ports};
use crate::failure::{During, Failure};
use crate::formats::{Item, TextFormat, ncdc};
use crate::output::{Output, bytes_rounded, bytes_text, duration_text, grouped};
use crate::progress::Progress;
use crate::weather::Weather;

const SERVERS: u32 = 3;
/// The default engine, as for a new cluster.
const ENGINE: BackendKind = BackendKind::Lsm;
const OBSERVATIONS: &str = "observations";
const ACTIONS: &str = "actions";
/// The region size follows the number of records, within bounds, so that every demo shows a few splits.
const REGION_BYTES_PER_RECORD: u64 = 6;
const REGION_BYTES_MIN: u64 = 32 << 10;
const REGION_BYTES_MAX: u64 = 4 << 20;
/// Rows per page.
const PAGE_ROWS: u64 = 10;
/// How often the import checks for new regions.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long to wait for the last splits.
const SPLITS_WAIT_MAX: Duration = Duration::from_secs(3);
/// The example of user actions.
const USERS: u64 = 50;
const ACTIONS_PER_USER: u32 = 40;
const ACTION_PAGE_ROWS: u64 = 5;
const ACTION_KINDS: [&str; 5] = ["viewed a page", "wrote a comment", "liked a post", "signed in", "shared a link"];
/// Width of the report.
const WIDTH: usize = 92;

/// The key of a weather reading: the readings of a station are adjacent, newest first.
#[derive(Clone, Debug, PartialEq, Eq, RowKey)]
struct Reading {
    station: [u8; 12],
    time: Desc<Time>,
}

/// The key of a user's action.
#[derive(Clone, Debug, PartialEq, Eq, RowKey)]
struct Action {
    user: u64,
    time: Desc<Time>,
    action: u32,
}

pub async fn run(args: Demo) -> Result<(), Failure> {
    let engine = args
        .engine
        .as_deref()
        .map_or(Ok(ENGINE), |name| name.parse().map_err(|error| Failure::usage(format!("--engine: {error}"))))?;
    let directory = tempfile::Builder::new().prefix("terrane-demo-").tempdir();
    let directory = directory.map_err(|error| Failure::new(format!("cannot create a temporary directory: {error}")))?;
    let plan = ClusterPlan {
        data: directory.path().to_owned(),
        masters: 1,
        servers: SERVERS,
        ports: Ports::Free,
        server: ServerConfig { engine, ..ServerConfig::default() },
        settings: Arc::default(),
        hbase: false,
        scanner_lease: SCANNER_LEASE_DEFAULT,
    };
    let shown = tokio::select! {
        biased;
        () = shutdown_signal() => Err(Failure::new("stopped by a signal; removed the temporary directory")),
        shown = show(&args, &plan) => shown,
    };
    let removed = directory.close();
    removed.map_err(|error| Failure::new(format!("cannot remove {}: {error}", plan.data.display())))?;
    shown
}

async fn show(args: &Demo, plan: &ClusterPlan) -> Result<(), Failure> {
    let started = Instant::now();
    let mut report = Report::new();
    report.say(&format!(
        "Terrane, a sorted wide-column store: a demo on a temporary cluster (engine {}).",
        plan.server.engine
    ))?;
    let cluster = Cluster::start(plan).await?;
    report.step("A cluster: a master and three region servers", started.elapsed())?;
    report.say(&format!("master {}, servers {}", cluster.masters(), cluster.server_addresses().join(" ")))?;
    report.say(&format!("data in {}; every write is fsynced on two of three servers", plan.data.display()))?;
    let client = Client::connect(&cluster.masters()).await?;

    let counts = weather(&mut report, &client, args).await?;
    let observations = client.table(OBSERVATIONS).await?;
    readings(&mut report, &observations, args).await?;
    actions(&mut report, &client).await?;

    let regions = client.admin().regions(None).await?.len();
    let stopping = Instant::now();
    cluster.shutdown().await;
    report.step("Flushed, stopped and removed", stopping.elapsed())?;
    let lookups = client.counters().master_lookups;
    report.say("")?;
    report.say(&format!(
        "Done in {}: {} rows imported at {} rows/s into {regions} regions; {lookups} lookups at the master.",
        duration_text(started.elapsed()),
        grouped(counts.imported),
        grouped(counts.rows_rate as u64)
    ))?;
    report.say("Next: `terrane dev` runs a cluster to work with; `terrane --help` lists the commands.")
}

/// Creates the table of readings, fills it, and shows its regions.
async fn weather(report: &mut Report, client: &Client, args: &Demo) -> Result<Counts, Failure> {
    let wanted = args.records.saturating_mul(REGION_BYTES_PER_RECORD).clamp(REGION_BYTES_MIN, REGION_BYTES_MAX);
    let region_size = 1 << wanted.ilog2();
    let started = Instant::now();
    let mut spec = TableSpec::new(OBSERVATIONS)?
        .family(ncdc::FAMILY, &[])?
        .key(ncdc::KEY_PARTS)?
        .set("region_size", &bytes_text(region_size))?;
    for station in split_stations(args) {
        spec = spec.split_at(station.as_bytes());
    }
    client.admin().create_table(spec).await.during("create the table of readings")?;
    report.step(&format!("A table `{OBSERVATIONS}` of weather readings"), started.elapsed())?;
    report.say(&format!("family {}, key ({})", ncdc::FAMILY, ncdc::KEY_PARTS))?;
    report.say(&format!("one region per server at first; a region splits at {}", bytes_text(region_size)))?;

    let table = client.table(OBSERVATIONS).await?;
    let started = Instant::now();
    let (counts, growth) = import(client, &table, args).await?;
    let title = format!("{} records of {} stations, in NCDC format", grouped(args.records), args.stations);
    report.step(&title, started.elapsed())?;
    report.say(&counts.text())?;
    report.say(&format!("regions during the import: {growth}"))?;
    wait_for_splits(client, region_size).await?;
    show_regions(report, client).await?;
    Ok(counts)
}

/// The stations at which the table is split from the start, so that every server has a region.
fn split_stations(args: &Demo) -> Vec<String> {
    let weather = Weather::new(args.seed, args.stations);
    let servers = usize::try_from(SERVERS).expect("32 bits fit a length");
    let stations = usize::try_from(args.stations).expect("32 bits fit a length");
    let mut names: Vec<String> = (1..servers).map(|part| weather.station_name(stations * part / servers)).collect();
    names.dedup();
    names.retain(|name| *name != weather.station_name(0));
    names
}

/// Imports the generated lines as `terrane import` does with a file, and watches the regions meanwhile.
async fn import(client: &Client, table: &Table, args: &Demo) -> Result<(Counts, String), Failure> {
    let mut importer = Importer::new(table, true);
    let mut progress = Progress::over_rows("   import", args.records);
    let records = usize::try_from(args.records).unwrap_or(usize::MAX);
    let mut growth = Growth::default();
    let mut looked = Instant::now();
    for (number, line) in (1..).zip(Weather::new(args.seed, args.stations).take(records)) {
        let item = Item { line: number, raw: 0..0, parsed: TextFormat::Ncdc.parse(line.as_bytes()) };
        importer.item("weather", item, &progress).await?;
        progress.update(number, importer.rows());
        if looked.elapsed() >= LOOK_EVERY {
            growth.saw(client.admin().regions(Some(OBSERVATIONS)).await?.len(), importer.rows());
            looked = Instant::now();
        }
    }
    let counts = importer.finish(&progress).await?;
    progress.finish();
    if counts.malformed + counts.refused > 0 {
        return Err(Failure::new(format!("not all of the weather was imported: {}", counts.text())));
    }
    growth.saw(client.admin().regions(Some(OBSERVATIONS)).await?.len(), counts.imported);
    Ok((counts, growth.text()))
}

/// The growing number of regions, with the rows imported when each number was first seen.
#[derive(Default)]
struct Growth {
    steps: Vec<(usize, u64)>,
}

impl Growth {
    /// Steps that fit on a line.
    const STEPS_SHOWN_MAX: usize = 6;

    fn saw(&mut self, regions: usize, rows: u64) {
        if self.steps.last().is_none_or(|(last, _)| *last != regions) {
            self.steps.push((regions, rows));
        }
    }

    fn text(&self) -> String {
        let every = self.steps.len().div_ceil(Self::STEPS_SHOWN_MAX).max(1);
        let last = self.steps.len().saturating_sub(1);
        let shown = self.steps.iter().enumerate().filter(|(index, _)| (last - index).is_multiple_of(every));
        let texts: Vec<String> = shown.map(|(_, (regions, rows))| format!("{regions} at {}k", rows / 1000)).collect();
        texts.join(", ")
    }
}

/// Waits for the splits that the last rows caused, so that the regions shown next are final.
async fn wait_for_splits(client: &Client, region_size: u64) -> Result<(), Failure> {
    let deadline = Instant::now() + SPLITS_WAIT_MAX;
    loop {
        let regions = client.admin().regions(Some(OBSERVATIONS)).await?;
        // After the deadline the demo continues: a late split is not an error.
        if regions.iter().all(|region| region.bytes <= region_size) || Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn show_regions(report: &mut Report, client: &Client) -> Result<(), Failure> {
    /// Regions to list; further ones are only counted.
    const SHOWN_MAX: usize = 8;
    let regions = client.admin().regions(Some(OBSERVATIONS)).await?;
    let rows = regions.iter().take(SHOWN_MAX).map(|region| {
        vec![
            format!("region {}", region.descriptor.region),
            format!("from {}", reading_text(&region.descriptor.range.start)),
            bytes_rounded(region.bytes),
            format!("led by {}", region.leader),
        ]
    });
    report.table(rows.collect())?;
    if regions.len() > SHOWN_MAX {
        report.say(&format!("and {} more", regions.len() - SHOWN_MAX))?;
    }
    Ok(())
}

/// A reading's key as text; the start of a region may be the prefix of one.
fn reading_text(row: &[u8]) -> String {
    match Reading::decode(row) {
        Ok(key) => format!("{} {}", String::from_utf8_lossy(&key.station), key.time.0),
        Err(_) if row.is_empty() => "the first row".to_owned(),
        Err(_) => terrane_types::escape(row),
    }
}

/// Reads as an application would.
async fn readings(report: &mut Report, table: &Table, args: &Demo) -> Result<(), Failure> {
    let station = Weather::new(args.seed, args.stations).station_name(7);
    let prefix = Reading::prefix_1(&station.as_bytes().try_into().expect("station names have 12 bytes"));
    let newest = || Scan::range(prefix.clone());

    let started = Instant::now();
    let latest = table.page(newest().limit(PAGE_ROWS)).await.during("read the latest readings")?;
    report.step(&format!("The latest ten readings of station {station}"), started.elapsed())?;
    show_readings(report, &latest.rows)?;

    let started = Instant::now();
    let by_offset = table.page(newest().offset(2 * PAGE_ROWS).limit(PAGE_ROWS)).await.during("read page 3")?;
    let offset_time = started.elapsed();
    let mut page = latest;
    let mut token_time = Duration::ZERO;
    for _ in 2..=3 {
        let Some(token) = page.next.take() else { break };
        let started = Instant::now();
        page = table.page(newest().after(token).limit(PAGE_ROWS)).await.during("read the next page")?;
        token_time = started.elapsed();
    }
    report.step("Page 3 of its readings, by offset and by token", offset_time + token_time)?;
    report.say(&format!("offset 20, skipped by the server: {}", duration_text(offset_time)))?;
    let same = if page.rows == by_offset.rows { "the same rows" } else { "DIFFERENT ROWS" };
    report.say(&format!("after the token of page 2: {}, {same}", duration_text(token_time)))?;
    show_readings(report, &by_offset.rows)?;
    if page.rows != by_offset.rows {
        return Err(Failure::new("page 3 by offset and by token returned different rows"));
    }

    let started = Instant::now();
    let first = table.first(KeyRange::all()).await.during("read the first row")?;
    let last = table.last(KeyRange::all()).await.during("read the last row")?;
    report.step("The first and the last row of the table", started.elapsed())?;
    show_readings(report, &[first, last].into_iter().flatten().collect::<Vec<_>>())
}

fn show_readings(report: &mut Report, rows: &[RowData]) -> Result<(), Failure> {
    let texts: Vec<String> =
        rows.iter().map(|row| format!("{} {}", reading_text(row.row()), temperature(row))).collect();
    // Two columns: the first half, then the second.
    let half = texts.len().div_ceil(2);
    let rows = (0..half).map(|line| vec![texts[line].clone(), texts.get(half + line).cloned().unwrap_or_default()]);
    report.table(rows.collect())
}

fn temperature(row: &RowData) -> String {
    let value = row.value(ncdc::FAMILY, ncdc::QUALIFIER).and_then(|value| value.try_into().ok());
    value.map_or_else(String::new, |bytes| format!("{:>6.1} °C", f64::from(i32::from_be_bytes(bytes)) / 10.0))
}

/// Pages through user actions under a composite key, newest first.
async fn actions(report: &mut Report, client: &Client) -> Result<(), Failure> {
    let started = Instant::now();
    let spec = TableSpec::new(ACTIONS)?.family("a", &[])?.key(&Action::declaration().to_string())?;
    client.admin().create_table(spec).await.during("create the table of actions")?;
    let table = client.table(ACTIONS).await?;
    write_actions(&table).await?;
    let written = USERS * u64::from(ACTIONS_PER_USER);
    let title = format!("User actions: {} rows with key ({})", grouped(written), Action::declaration());
    report.step(&title, started.elapsed())?;

    let actions: KeyedTable<Action> = KeyedTable::new(table)?;
    let user = 17;
    let newest = || Scan::range(Action::prefix_1(&user)).limit(ACTION_PAGE_ROWS);
    let mut page = actions.table().page(newest()).await?;
    for number in 1..=2 {
        report.say(&format!("user {user}, newest first, page {number}:"))?;
        show_actions(report, &page.rows)?;
        let Some(token) = page.next.take() else { break };
        page = actions.table().page(newest().after(token)).await?;
    }
    let by_offset = actions.table().page(newest().offset(2 * ACTION_PAGE_ROWS)).await?;
    let same = by_offset.rows == page.rows;
    report.say(&format!(
        "page 3 by offset {} and by token: {}",
        2 * ACTION_PAGE_ROWS,
        if same { "the same rows" } else { "DIFFERENT ROWS" }
    ))?;
    if same {
        Ok(())
    } else {
        Err(Failure::new("page 3 of the actions by offset and by token returned different rows"))
    }
}

async fn write_actions(table: &Table) -> Result<(), Failure> {
    /// 2024-01-01, UTC.
    const FIRST_TIME_MS: i64 = 1_704_067_200_000;
    const STEP_MS: i64 = 37 * 60_000;
    let writer = table.writer(WriterOptions::default());
    for action in 0..ACTIONS_PER_USER {
        for user in 0..USERS {
            let key =
                Action { user, time: Desc(Time::from_millis(FIRST_TIME_MS + i64::from(action) * STEP_MS)), action };
            let kind = ACTION_KINDS[(usize::try_from(user).unwrap_or(0) + action as usize) % ACTION_KINDS.len()];
            writer.put(Put::new(key.encode()?).set("a", "kind", kind)).await?;
        }
    }
    writer.close().await.map_err(|error| Failure::new(error.to_string())).during("write the actions")
}

fn show_actions(report: &mut Report, rows: &[RowData]) -> Result<(), Failure> {
    let rows = rows.iter().map(|row| {
        let kind = String::from_utf8_lossy(row.value("a", "kind").unwrap_or_default()).into_owned();
        match Action::decode(row.row()) {
            Ok(key) => vec![key.time.0.to_string(), format!("action {}", key.action), kind],
            Err(_) => vec![terrane_types::escape(row.row()), String::new(), kind],
        }
    });
    report.table(rows.collect())
}

/// The printed report: numbered steps with the time each took, and indented details.
struct Report {
    output: Output,
    steps: u32,
}

impl Report {
    fn new() -> Report {
        Report { output: Output::new(false), steps: 0 }
    }

    fn step(&mut self, title: &str, took: Duration) -> Result<(), Failure> {
        self.steps += 1;
        let title = format!("{}. {title} ", self.steps);
        let took = format!(" {}", duration_text(took));
        let dots = WIDTH.saturating_sub(title.chars().count() + took.chars().count());
        self.output.line("")?;
        self.output.line(&format!("{title}{}{took}", "·".repeat(dots)))?;
        self.output.flush()
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        let indent = if self.steps == 0 || line.is_empty() { "" } else { "   " };
        self.output.line(&format!("{indent}{line}"))?;
        self.output.flush()
    }

    fn table(&mut self, rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let text = crate::output::table_text(&[], &rows, None);
        text.lines().try_for_each(|line| self.say(&format!(" {}", line.trim_end())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_types_declare_what_the_tables_do() {
        assert_eq!(Reading::declaration(), ncdc::KEY_PARTS.parse().expect("parts"));
        let key = Reading { station: *b"010010-99999", time: Desc(Time::from_millis(-5)) };
        let row = ncdc::row_key(b"010010-99999".to_vec(), -5);
        assert_eq!(&key.encode().expect("a row")[..], &row[..]);
    }

    #[test]
    fn growth_keeps_its_last_step_and_fits_a_line() {
        let mut growth = Growth::default();
        for regions in 1..=20 {
            growth.saw(regions, regions as u64 * 10_000);
            growth.saw(regions, regions as u64 * 10_500);
        }
        let text = growth.text();
        assert!(text.ends_with("20 at 200k"), "{text}");
        assert!(text.len() < WIDTH, "{text}");
        assert_eq!(Growth::default().text(), "");
    }
}
