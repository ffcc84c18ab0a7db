//! The load of the invented cluster: a quiet morning, a hot range from noon on, a hot key in it.

use terrane_console::source::{
    Advice, AdviceKind, Failure, Heat, HeatQuery, HeatRow, Hotspot, LoadMeasure, LoadMinute,
};

use super::places::{self, user_key};
use super::{NOW_MS, noise};

const MINUTE_MS: u64 = 60_000;
/// Since when the load is recorded.
const KNOWN_FROM_MS: u64 = NOW_MS - 26 * 60 * MINUTE_MS;

pub fn history(seed: u64) -> Vec<LoadMinute> {
    let minute = |at: u64| {
        let wave = 600 + 400 * u64::from(at % 30 > 15) + noise(seed, at);
        LoadMinute {
            minute_ms: NOW_MS - (90 - at) * MINUTE_MS,
            reads: wave * 900,
            writes: wave * 310 + if at > 70 { 180_000 } else { 0 },
            bytes: wave * 410_000,
        }
    };
    // Two minutes are missing: the process restarted.
    (0..90).filter(|at| !(40..42).contains(at)).map(minute).collect()
}

/// What region number `at` of `total` counted in a minute.
fn count(measure: LoadMeasure, at: usize, total: usize, minute_ms: u64) -> u64 {
    if !(KNOWN_FROM_MS..NOW_MS).contains(&minute_ms) {
        return 0;
    }
    let minute = minute_ms / MINUTE_MS;
    let base = 40 + noise(at as u64, minute) / 10 + 60 * u64::from((minute / 180 + at as u64 / 7).is_multiple_of(5));
    let hot = total * 62 / 100;
    let since_noon = minute_ms > NOW_MS - 150 * MINUTE_MS;
    let near = at.abs_diff(hot);
    // A bulk load that walks through the keys in the night, and the hot range.
    let walk = (minute as usize % 600) * total / 600;
    let sweep = if at.abs_diff(walk) * 60 < total.max(60) && minute_ms < NOW_MS - 360 * MINUTE_MS { 1_400 } else { 0 };
    let heat = if since_noon && near * 40 < total.max(40) { 9_000 / (near as u64 + 1) + noise(minute, 3) } else { 0 };
    match measure {
        LoadMeasure::Writes => base + sweep + heat,
        LoadMeasure::Reads => base * 3 + heat / 5,
        LoadMeasure::Bytes => (base + sweep + heat) * 1_100,
    }
}

pub fn heat(query: &HeatQuery) -> Result<Heat, Failure> {
    let table = places::table(&query.table)?;
    let to_ms = query.to_ms.unwrap_or(NOW_MS).next_multiple_of(MINUTE_MS);
    let from_ms = query.from_ms.unwrap_or(to_ms - query.span_ms) / MINUTE_MS * MINUTE_MS;
    let minutes = usize::try_from((to_ms - from_ms) / MINUTE_MS).unwrap();
    let each = minutes.div_ceil(query.columns_max) as u64;
    let columns = (minutes as u64).div_ceil(each);
    let total = table.regions.len();
    let inside = |start: &[u8], end: &[u8]| {
        (query.end.is_empty() || start < query.end.as_slice()) && (end.is_empty() || end > query.start.as_slice())
    };
    let shown: Vec<usize> =
        (0..total).filter(|at| inside(&table.regions[*at].start.bytes, &table.regions[*at].end.bytes)).collect();
    let rows = shown.iter().map(|at| &table.regions[*at]);
    let rows: Vec<HeatRow> = rows
        .map(|region| HeatRow { start: region.start.clone(), end: region.end.clone(), region: Some(region.id) })
        .collect();
    let column = |at: usize, column: u64| -> u64 {
        let minutes = (0..each).map(|minute| from_ms + (column * each + minute) * MINUTE_MS);
        minutes.map(|minute| count(query.measure, at, total, minute)).sum()
    };
    let counts: Vec<Vec<u64>> = shown.iter().map(|at| (0..columns).map(|of| column(*at, of)).collect()).collect();
    let hot = total * 62 / 100;
    let hottest =
        if shown.contains(&hot) && total > 1 { hottest(&query.table, &rows, hot - shown[0]) } else { Vec::new() };
    Ok(Heat {
        table: query.table.clone(),
        measure: query.measure,
        from_ms,
        to_ms: from_ms + columns * each * MINUTE_MS,
        step_ms: each * MINUTE_MS,
        known_from_ms: Some(KNOWN_FROM_MS),
        rows,
        counts,
        hottest,
    })
}

fn hottest(table: &str, rows: &[HeatRow], at: usize) -> Vec<Hotspot> {
    let row = &rows[at];
    let region = row.region.unwrap();
    vec![
        Hotspot {
            start: row.start.clone(),
            end: Some(row.end.clone()),
            region: row.region,
            share: 0.41,
            per_second: 152.0,
            advice: Some(Advice {
                kind: AdviceKind::ReversePart,
                text: format!(
                    "New rows of one user are neighbours, so that region {region} takes all of them. \
                     Declare the part `time` as `desc i64` behind a bucket, or split the range by hand for now."
                ),
                command: None,
            }),
        },
        Hotspot {
            start: user_key(6_207_113),
            end: None,
            region: row.region,
            share: 0.17,
            per_second: 63.4,
            advice: Some(Advice {
                kind: AdviceKind::Split,
                text: "This key has most of its region's load; behind a split it has a region of its own.".to_owned(),
                command: Some(format!("terrane admin split {region} --at user=6207113")),
            }),
        },
        Hotspot {
            start: rows[at / 2].start.clone(),
            end: Some(rows[at / 2].end.clone()),
            region: rows[at / 2].region,
            share: 0.04,
            per_second: 14.9,
            advice: (table == "actions").then(|| Advice {
                kind: AdviceKind::AddBuckets,
                text: "Counters of one day are neighbours.".to_owned(),
                command: None,
            }),
        },
    ]
}
