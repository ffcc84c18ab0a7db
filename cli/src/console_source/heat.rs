//! The heat map of a table, from the load history of the leading master.

use std::time::Duration;

use terrane_client::{Client, KeyRange, LoadMeasure, LoadQuery, RegionInfo, TableLoad};
use terrane_console::source::{Failure, Heat, HeatQuery, HeatRow, Hotspot, LoadMinute, Measure, Region};

use super::advice::{self, RangeLoad, Situation};
use super::refusal::refused;
use super::{keys, lookup};

/// Hot ranges that a map names.
const HOTTEST_MAX: usize = 10;
/// The history on the page of a region.
const HISTORY: Duration = Duration::from_secs(6 * 3_600);

pub(super) async fn map(client: &Client, query: HeatQuery) -> Result<Heat, Failure> {
    let described = lookup::describe(client, &query.table).await?;
    let key = described.schema.key.as_ref();
    let to_ms = query.to_ms.unwrap_or_else(terrane_env::time::wall_ms);
    let from_ms = query.from_ms.unwrap_or(to_ms.saturating_sub(query.span_ms));
    if from_ms >= to_ms {
        return Err(Failure::bad_input(
            "The map would end before it begins.",
            "Give a time `to` that is later than `from`.",
        ));
    }
    let range = KeyRange::new(query.start, query.end).map_err(|bad| {
        Failure::bad_input(format!("The range of keys is wrong: {bad}."), "Give a start that is less than the end.")
    })?;
    let asked = LoadQuery {
        measure: measure(query.measure),
        from_ms,
        to_ms,
        range,
        columns_max: u32::try_from(query.columns_max).unwrap_or(u32::MAX),
        rows_max: u32::try_from(query.rows_max).unwrap_or(u32::MAX),
    };
    let load = client.admin().table_load(&query.table, asked).await.map_err(refused)?;
    let regions = client.admin().regions(Some(&query.table)).await.map_err(refused)?;
    let rows = load.rows.iter().map(|row| HeatRow {
        start: keys::shown(key, &row.start),
        end: keys::shown(key, &row.end),
        region: row.region.map(|region| region.0),
    });
    let rows: Vec<HeatRow> = rows.collect();
    Ok(Heat {
        hottest: hottest(&query.table, query.measure, key, &load, &rows, &regions),
        table: query.table,
        measure: query.measure,
        from_ms: load.from_ms,
        to_ms: load.from_ms + u64::from(load.columns) * load.step_ms,
        step_ms: load.step_ms,
        known_from_ms: load.known_from_ms,
        counts: load.rows.into_iter().map(|row| row.counts).collect(),
        rows,
    })
}

fn measure(measure: Measure) -> LoadMeasure {
    match measure {
        Measure::Reads => LoadMeasure::Reads,
        Measure::Writes => LoadMeasure::Writes,
        Measure::Bytes => LoadMeasure::Bytes,
    }
}

#[allow(clippy::cast_precision_loss, reason = "shares and rates for people")]
fn hottest(
    table: &str,
    measure: Measure,
    key: Option<&terrane_types::KeyDeclaration>,
    load: &TableLoad,
    rows: &[HeatRow],
    regions: &[RegionInfo],
) -> Vec<Hotspot> {
    let total: u64 = load.rows.iter().flat_map(|row| &row.counts).sum();
    // What was watched of the map.
    let from = load.from_ms.max(load.known_from_ms.unwrap_or(load.from_ms));
    let to = (load.from_ms + u64::from(load.columns) * load.step_ms).min(load.now_ms);
    let seconds = (to.saturating_sub(from) as f64 / 1_000.0).max(1.0);
    let ranges: Vec<RangeLoad<'_>> = load.rows.iter().map(|row| RangeLoad { counts: &row.counts }).collect();
    let mut hot: Vec<(usize, u64)> = ranges.iter().map(|range| range.counts.iter().sum()).enumerate().collect();
    hot.retain(|(_, count)| *count > 0);
    hot.sort_by_key(|(at, count)| (std::cmp::Reverse(*count), *at));
    hot.truncate(HOTTEST_MAX);
    let spot = |(at, count): (usize, u64)| {
        let (share, per_second) = (count as f64 / total.max(1) as f64, count as f64 / seconds);
        let region = rows[at].region;
        let state =
            regions.iter().find(|known| Some(known.descriptor.region.0) == region).map(|known| known.state.as_str());
        let situation = Situation {
            table,
            measure,
            key,
            ranges: &ranges,
            at,
            share,
            per_second,
            region,
            splittable: state == Some("open"),
        };
        Hotspot {
            start: rows[at].start.clone(),
            end: Some(rows[at].end.clone()),
            region,
            share,
            per_second,
            advice: advice::advise(&situation),
        }
    };
    hot.into_iter().map(spot).collect()
}

/// The load of a region's keys per minute.
pub(super) async fn minutes(client: &Client, region: &Region) -> Result<Vec<LoadMinute>, Failure> {
    let now_ms = terrane_env::time::wall_ms();
    let from_ms = now_ms.saturating_sub(u64::try_from(HISTORY.as_millis()).unwrap_or(0));
    let range = KeyRange { start: region.start.bytes.clone().into(), end: region.end.bytes.clone().into() };
    let mut minutes: Vec<LoadMinute> = Vec::new();
    for measure in [LoadMeasure::Reads, LoadMeasure::Writes, LoadMeasure::Bytes] {
        let query = LoadQuery { measure, from_ms, range: range.clone(), ..LoadQuery::default() };
        let load = client.admin().table_load(&region.table, query).await.map_err(refused)?;
        let known = load.known_from_ms.unwrap_or(u64::MAX);
        for column in 0..load.columns {
            let minute_ms = load.from_ms + u64::from(column) * load.step_ms;
            // What was not watched is missing, and so is the minute that is not over.
            if minute_ms + load.step_ms <= known || minute_ms + load.step_ms > load.now_ms {
                continue;
            }
            let place = usize::try_from(column).unwrap_or(usize::MAX);
            let count = load.rows.iter().filter_map(|row| row.counts.get(place)).sum();
            let at = minutes.iter().position(|known| known.minute_ms == minute_ms).unwrap_or_else(|| {
                minutes.push(LoadMinute { minute_ms, ..LoadMinute::default() });
                minutes.len() - 1
            });
            match measure {
                LoadMeasure::Reads => minutes[at].reads = count,
                LoadMeasure::Writes => minutes[at].writes = count,
                _ => minutes[at].bytes = count,
            }
        }
    }
    minutes.sort_by_key(|minute| minute.minute_ms);
    Ok(minutes)
}
