//! The heat map of a table, from the load history of the leading master, and its hottest keys, which the leaders of its regions
//! sample.

use std::sync::Arc;
use std::time::Duration;

use terrane_client::{
    Client, HotRegion, HotRow, KeyRange, LoadMeasure, LoadQuery, RegionInfo, RegionLoad, TableLoad, TableSchema,
};
use terrane_console::source::{Failure, Heat, HeatQuery, HeatRow, Hotspot, LoadMinute, Region};
use terrane_types::states::RegionState;

use super::advice::{self, RangeLoad, Situation, SplitAt};
use super::refusal::refused;
use super::{keys, lookup};
use crate::hot_keys::{self, HotKey};
use crate::table_text::TableText;

/// Hot ranges and keys that a map names.
const HOTTEST_MAX: usize = 10;
/// A single key with less of the table's load is not named.
const KEY_SHARE_MIN: f64 = 0.05;
/// A row with so much of its region's load is the reason why no split spreads it.
const ONE_ROW_SHARE_MIN: f64 = 0.4;
/// What servers sampled is of about the last minute.
const SAMPLED_WITHIN_MS: u64 = 60_000;
/// How long a map waits for it.
const SAMPLES_PATIENCE: Duration = Duration::from_secs(2);
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
        measure: query.measure,
        from_ms,
        to_ms,
        range: range.clone(),
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
    // Servers know what is hot now. A map of the past has no single keys.
    let is_now = to_ms.saturating_add(SAMPLED_WITHIN_MS) >= terrane_env::time::wall_ms();
    let sampled = if is_now { sampled(client, &query.table).await } else { Vec::new() };
    let map = Map {
        table: &query.table,
        measure: query.measure,
        schema: &described.schema,
        load: &load,
        rows: &rows,
        regions: &regions,
    };
    Ok(Heat {
        hottest: map.hottest(&sampled, &range),
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

/// What servers sampled. Without it a map names only ranges: the absence of a server must not hide the rest.
async fn sampled(client: &Client, table: &str) -> Vec<HotRegion> {
    let admin = client.admin().with_timeout(SAMPLES_PATIENCE);
    match tokio::time::timeout(SAMPLES_PATIENCE, admin.hot_rows(Some(table), HOTTEST_MAX)).await {
        Ok(Ok(found)) => found.regions,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// A heat map before it is shown.
struct Map<'a> {
    table: &'a str,
    measure: LoadMeasure,
    schema: &'a TableSchema,
    load: &'a TableLoad,
    rows: &'a [HeatRow],
    regions: &'a [RegionInfo],
}

impl Map<'_> {
    /// The hottest ranges of the map and single keys of `range`, by their load per second.
    fn hottest(&self, sampled: &[HotRegion], range: &KeyRange) -> Vec<Hotspot> {
        let mut hottest = self.ranges(sampled);
        hottest.extend(self.keys(sampled, range));
        hottest.sort_by(|one, other| other.per_second.total_cmp(&one.per_second));
        hottest.truncate(HOTTEST_MAX);
        hottest
    }

    #[allow(clippy::cast_precision_loss, reason = "shares and rates for people")]
    fn ranges(&self, sampled: &[HotRegion]) -> Vec<Hotspot> {
        let load = self.load;
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
            let region = self.rows[at].region;
            let known = self.regions.iter().find(|known| Some(known.descriptor.region.0) == region);
            let sampled = sampled.iter().find(|sampled| Some(sampled.region.0) == region);
            let situation = Situation {
                table: self.table,
                measure: self.measure,
                key: self.schema.key.as_ref(),
                ranges: &ranges,
                at,
                share,
                per_second,
                region,
                splittable: known.is_some_and(|known| known.state == RegionState::Open),
                split: sampled.and_then(|sampled| self.split_at(sampled)),
                is_one_row: sampled.is_some_and(|sampled| self.is_one_row(sampled)),
                grows: sampled.is_some_and(|sampled| sampled.grows),
                salted: crate::salted::create_command(self.schema),
            };
            Hotspot {
                start: self.rows[at].start.clone(),
                end: Some(self.rows[at].end.clone()),
                region,
                share,
                per_second,
                advice: advice::advise(&situation),
            }
        };
        hot.into_iter().map(spot).collect()
    }

    fn split_at(&self, sampled: &HotRegion) -> Option<SplitAt> {
        let text = TableText::new(Arc::new(self.schema.clone()), false);
        let flags = text.boundary_flags(sampled.split_at.as_ref()?);
        Some(SplitAt { flags, heavier_percent: sampled.heavier_percent })
    }

    /// Whether no split is known to spread the region's load because of one row.
    fn is_one_row(&self, sampled: &HotRegion) -> bool {
        let is_hot = |rows: &[HotRow]| rows.first().is_some_and(|hot| hot.share >= ONE_ROW_SHARE_MIN);
        let is_one_row = match self.measure {
            LoadMeasure::Reads => is_hot(&sampled.reads),
            LoadMeasure::Writes => is_hot(&sampled.writes),
            LoadMeasure::Bytes => is_hot(&sampled.reads) || is_hot(&sampled.writes),
        };
        is_one_row && sampled.split_at.is_none()
    }

    /// Single keys with a considerable share of the table's load. Bytes are not counted by key.
    fn keys(&self, sampled: &[HotRegion], range: &KeyRange) -> Vec<Hotspot> {
        let is_write = match self.measure {
            LoadMeasure::Reads => false,
            LoadMeasure::Writes => true,
            LoadMeasure::Bytes => return Vec::new(),
        };
        let loads: Vec<RegionLoad> = self.regions.iter().map(|region| region.load).collect();
        let found = hot_keys::of_table(sampled, &loads).into_iter();
        let found = found
            .filter(|hot| hot.is_write == is_write && hot.table_share >= KEY_SHARE_MIN && range.contains(&hot.row));
        let spot = |hot: HotKey| {
            let start = keys::shown(self.schema.key.as_ref(), &hot.row);
            Hotspot {
                advice: advice::advise_row(self.table, &start.text, is_write, hot.table_share, hot.per_second),
                start,
                end: None,
                region: Some(hot.region.0),
                share: hot.table_share,
                per_second: hot.per_second,
            }
        };
        found.map(spot).collect()
    }
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
                LoadMeasure::Bytes => minutes[at].bytes = count,
            }
        }
    }
    minutes.sort_by_key(|minute| minute.minute_ms);
    Ok(minutes)
}
