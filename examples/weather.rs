//! HBase's classic weather application: stations and their observations, newest first.
//!
//! The key of an observation is the station and the reversed time, so the latest readings of a station are the first rows of
//! its prefix. The columns are those of `terrane import`, so this program can read imported data.
//!
//! `cargo run -p terrane-examples --example weather [MASTER]`

use anyhow::{Context as _, ensure};
use terrane_client::{
    Client, Desc, KeyRange, KeyedTable, Put, RowData, RowKey, Table, TableSpec, ValueType, WriterOptions,
};
use tokio::time::Instant;

/// `station | Long.MAX_VALUE - time`, as `terrane import` writes it too.
#[derive(Debug, RowKey)]
struct Observation {
    station: [u8; 12],
    time: Desc<i64>,
}

const HOUR_MS: i64 = 3_600_000;
/// 2026-01-01T00:00:00Z, in milliseconds since 1970.
const FIRST_MS: i64 = 1_767_225_600_000;
const DAYS: i64 = 5;

/// Station, name, and the temperature it swings around in tenths of a degree Celsius.
const STATIONS: [(&[u8; 12], &str, i64); 4] = [
    (b"011060-99999", "BODO, NORWAY", -20),
    (b"029070-99999", "OULU, FINLAND", -95),
    (b"085360-99999", "LISBON, PORTUGAL", 115),
    (b"623660-99999", "CAIRO, EGYPT", 142),
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = terrane_examples::cluster()?;
    let client = Client::connect(&cluster.masters).await?;
    let stations = client.open_or_create(TableSpec::new("example.stations")?.family("info", &[])?).await?;
    let spec = TableSpec::new("example.observations")?.family("data", &[])?.keyed_by::<Observation>();
    let observations: KeyedTable<Observation> = KeyedTable::new(client.open_or_create(spec).await?)?;

    write(&stations, &observations).await?;
    for (station, ..) in &STATIONS[..2] {
        show_latest(&stations, &observations, station).await?;
    }
    show_extremes(&observations).await?;
    client.close().await;
    Ok(())
}

async fn write(stations: &Table, observations: &KeyedTable<Observation>) -> anyhow::Result<()> {
    let began = Instant::now();
    let writer = observations.table().writer(WriterOptions::default());
    for (station, name, mean) in STATIONS {
        stations.put(Put::new(station).set("info", "name", name)).await?;
        for hour in 0..DAYS * 24 {
            let key = Observation { station: *station, time: Desc(FIRST_MS + hour * HOUR_MS) };
            let put = Put::new(key.encode()?).set("data", "airtemp", temperature(mean, hour).to_be_bytes());
            writer.put(put).await?;
        }
    }
    writer.close().await?;
    println!("wrote {} readings of {} stations in {:.0?}\n", DAYS * 24 * 4, STATIONS.len(), began.elapsed());
    Ok(())
}

/// Warm at two in the afternoon, cold at night, a little colder every day. Tenths of a degree.
fn temperature(mean: i64, hour: i64) -> i32 {
    let from_noon = (hour % 24 - 14).abs();
    let swing = 40 - 7 * from_noon.min(24 - from_noon);
    i32::try_from(mean + swing - hour / 24 * 3).expect("temperatures on earth fit")
}

async fn show_latest(
    stations: &Table,
    observations: &KeyedTable<Observation>,
    station: &[u8; 12],
) -> anyhow::Result<()> {
    let row = stations.get(station).await?.context("the station was written")?;
    println!("{}: the latest ten readings", row.read::<String>("info", "name")?.unwrap_or_default());
    let mut rows = observations.scan(*station).limit(10).await?;
    let mut times = Vec::new();
    while let Some(row) = rows.next().await {
        let row = row?;
        println!("  {}  {:>6}", moment(row.key.time.0), degrees(airtemp(&row.data)?));
        times.push(row.key.time.0);
    }
    let expected: Vec<i64> = (DAYS * 24 - 10..DAYS * 24).rev().map(|hour| FIRST_MS + hour * HOUR_MS).collect();
    ensure!(times == expected, "the latest come first: {times:?}");

    // The servers compute the sum.
    let readings = observations.table().aggregate("data", "airtemp", ValueType::I32);
    let readings = readings.range(Observation::prefix().station(*station)).await?;
    let average = readings.average().context("it has readings")?;
    println!("  {:.1} \u{b0}C on average of {} readings\n", average / 10.0, readings.count());
    ensure!(readings.count() == (DAYS * 24) as u64);
    Ok(())
}

async fn show_extremes(observations: &KeyedTable<Observation>) -> anyhow::Result<()> {
    let count = observations.count(..).await?;
    let first = observations.first(..).await?.context("the table has rows")?;
    let last = observations.last(..).await?.context("the table has rows")?;
    for (what, row) in [("first", &first), ("last", &last)] {
        let station = String::from_utf8_lossy(&row.key.station);
        println!("the {what} of {count} rows: {station} {} {}", moment(row.key.time.0), degrees(airtemp(&row.data)?));
    }
    ensure!(&first.key.station == STATIONS[0].0 && &last.key.station == STATIONS[3].0, "stations in order");
    ensure!(last.key.time.0 == FIRST_MS, "the oldest reading of a station is last");

    let cold = observations.table().count(KeyRange::all()).filter("i32(data:airtemp) < 0").await?;
    println!("{cold} of them were below zero");
    let colder = |(_, _, mean): &(_, _, i64)| (0..DAYS * 24).filter(|&hour| temperature(*mean, hour) < 0).count();
    ensure!(cold == STATIONS.iter().map(colder).sum::<usize>() as u64);
    Ok(())
}

/// In tenths of a degree.
fn airtemp(row: &RowData) -> anyhow::Result<i32> {
    row.read("data", "airtemp")?.context("a reading has a temperature")
}

fn degrees(tenths: i32) -> String {
    format!("{:.1} \u{b0}C", f64::from(tenths) / 10.0)
}

/// Date and hour; all readings of this example are in January 2026.
fn moment(time_ms: i64) -> String {
    let hours = (time_ms - FIRST_MS) / HOUR_MS;
    format!("2026-01-{:02} {:02}:00", hours / 24 + 1, hours % 24)
}
