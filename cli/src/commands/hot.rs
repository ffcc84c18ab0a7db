//! `admin hot`: the rows of a table that are read and written most, and where to split the regions that hold them. The JSON
//! output is part of the grammar.

use serde::Serialize;
use terrane_client::HotRegion;
use terrane_types::escape;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::hot_keys::{self, HotKey};
use crate::output::Output;
use crate::salted;
use crate::table_text::{KeyParts, TableText};

#[derive(Serialize)]
struct RowLine<'a> {
    kind: &'static str,
    access: &'static str,
    row: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyParts<'a>>,
    region: u64,
    server: &'a str,
    /// Of the table's rows read, or written.
    share: f64,
    /// Of the region's.
    region_share: f64,
    per_second: f64,
}

#[derive(Serialize)]
struct SplitLine {
    kind: &'static str,
    region: u64,
    split_at: String,
    heavier_percent: u32,
    command: String,
}

/// A region whose keys grow.
#[derive(Serialize)]
struct GrowsLine<'a> {
    kind: &'static str,
    region: u64,
    /// Creates a table whose rows are spread; null if a bucket is there already.
    command: Option<&'a str>,
}

pub async fn run(table: &str, limit: usize, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let during = || format!("ask for the hot rows of table {table}");
    let schema = admin.describe_table(table).await.during(during())?.schema;
    let regions = admin.regions(Some(table)).await.during(during())?;
    let found = admin.hot_rows(Some(table), limit).await.during(during())?;
    let salted = salted::create_command(&schema);
    let text = TableText::new(schema.into(), false);
    let loads: Vec<_> = regions.iter().map(|region| region.load).collect();
    let mut keys = hot_keys::of_table(&found.regions, &loads);
    keys.truncate(limit);
    // Where a hot row is, or where all of the load is, a split may help.
    let splits: Vec<&HotRegion> = found.regions.iter().filter(|region| region.split_at.is_some()).take(limit).collect();
    let growing: Vec<u64> = found.regions.iter().filter(|region| region.grows).map(|region| region.region.0).collect();
    let mut output = Output::new(connection.json);
    if output.is_json() {
        keys.iter().try_for_each(|key| output.object(&row_line(key, &text)))?;
        splits.iter().filter_map(|region| split_line(region, &text)).try_for_each(|line| output.object(&line))?;
        let line = |region: &u64| GrowsLine { kind: "grows", region: *region, command: salted.as_deref() };
        growing.iter().try_for_each(|region| output.object(&line(region)))?;
    } else {
        if keys.is_empty() {
            output.line("no row stands out; rows are named after some hundred requests within the last minute")?;
        } else {
            let rows = keys.iter().map(|key| row_shown(key, &text)).collect();
            output.table(&["share", "per second", "access", "row", "region", "server"], rows)?;
        }
        for line in splits.iter().filter_map(|region| split_line(region, &text)) {
            let SplitLine { region, heavier_percent, command, .. } = line;
            output.line(&format!(
                "`{command}` would leave {heavier_percent} % of the load of region {region} on the heavier side"
            ))?;
        }
        for region in &growing {
            output.line(&format!(
                "the keys of region {region} grow: new rows lie beyond the older ones, and a split does not spread them"
            ))?;
        }
        if let Some(command) = salted.as_ref().filter(|_| !growing.is_empty()) {
            output
                .line(&format!("`{command}` creates a table whose rows are spread by a bucket; then copy the rows"))?;
        }
    }
    output.flush()?;
    // The others' answers are printed, and the command fails.
    if found.failures.is_empty() { Ok(()) } else { Err(Failure::new(found.failures.join("; "))) }
}

fn access(key: &HotKey) -> &'static str {
    if key.is_write { "write" } else { "read" }
}

fn row_line<'a>(key: &'a HotKey, text: &'a TableText) -> RowLine<'a> {
    RowLine {
        kind: "row",
        access: access(key),
        row: escape(&key.row),
        key: text.key_parts(&key.row),
        region: key.region.0,
        server: &key.server,
        share: key.table_share,
        region_share: key.region_share,
        per_second: key.per_second,
    }
}

fn row_shown(key: &HotKey, text: &TableText) -> Vec<String> {
    vec![
        format!("{:.0} %", key.table_share * 100.0),
        format!("{:.0}", key.per_second),
        access(key).to_owned(),
        text.show_row(&key.row),
        key.region.to_string(),
        key.server.clone(),
    ]
}

fn split_line(region: &HotRegion, text: &TableText) -> Option<SplitLine> {
    let at = region.split_at.as_ref()?;
    Some(SplitLine {
        kind: "split",
        region: region.region.0,
        split_at: escape(at),
        heavier_percent: region.heavier_percent,
        command: format!("terrane admin split {} {}", region.region, text.boundary_flags(at)),
    })
}
