//! What the leading master has seen, and tells on the console: events and loads, in every run.
//!
//! While faults occur, the list of events is judged by itself, and the rows that the master counted are compared with those
//! that clients sent ([`look`]). After everything is healed, a known load is put on a table of its own, whose region splits
//! meanwhile and merges afterwards ([`of_a_known_load`]): what was counted must be about what was sent, and each change one
//! event. No other client touches the table.

use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Client, Error, EventKind, LoadQuery, Put, RegionInfo, Table, TableInfo, TableSpec};
use terrane_oracle::events::Boundaries;
use terrane_oracle::load_history::{Known, Look, judge};
use terrane_types::{GroupId, RegionId, escape};

use super::now;
use crate::context::Context;
use crate::kind::Kind;
use crate::scenario::{create_table, open_table, patiently};
use crate::trace::{self, chain};
use crate::verdict::Failure;

/// More events than a run has.
const EVENTS_MAX: u32 = 2_000;
/// What clients count in the simulation.
const SENT: &str = "rows that clients sent to write";

const TABLE: &str = "of-a-known-load";
const FAMILY: &str = "f";
/// Rows that are written at a time, a batch after another, for so long.
const BATCH: usize = 40;
const PACE: Duration = Duration::from_millis(100);
const LASTS: Duration = Duration::from_secs(4);
/// A server computes its rates once per second, and reports them twice a second at least; the master looks twice a second.
const COUNTED_WITHIN: Duration = Duration::from_secs(3);
/// Rates are averaged so that they tell, after a last row, what they say over so many seconds.
const SECONDS_TO_COME: u64 = 5;
/// A change is in the events with the report and the look after it.
const LISTED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looks at the events; which master told them. `None`: no master leads, or none can be asked.
async fn events(client: &Client, context: &Context) -> Result<Option<u64>, String> {
    let Ok(list) = client.admin().events(0, EVENTS_MAX).await else { return Ok(None) };
    let Some(life) = list.known_from_ms else { return Ok(None) };
    let looked = context.watch.inner.events.borrow_mut().look(life, list.events);
    looked.map_err(|what| format!("the events are wrong: {what}"))?;
    context.watch.count("looks at events");
    Ok(Some(life))
}

/// The rows of a table that the master counted as written.
async fn counted(client: &Client, table: &str) -> Result<u64, Error> {
    let load = client.admin().table_load(table, LoadQuery::default()).await?;
    Ok(load.rows.iter().flat_map(|row| &row.counts).sum())
}

/// The rows of all tables, with the number of regions.
async fn counted_in_all(client: &Client) -> Result<(u64, u64), Error> {
    let mut rows = 0;
    for table in client.admin().list_tables().await? {
        rows += counted(client, &table.schema.name.to_string()).await?;
    }
    Ok((rows, client.admin().regions(None).await?.len() as u64))
}

/// Looks at what the master has seen, if one can be asked.
pub async fn look(client: &Client, context: &Context) {
    if let Err(what) = try_to_look(client, context).await {
        context.state.fail(Failure::new(what));
    }
}

async fn try_to_look(client: &Client, context: &Context) -> Result<(), String> {
    let Some(life) = events(client, context).await? else { return Ok(()) };
    let known = context.watch.inner.events.borrow().count();
    let tables = client.admin().list_tables().await;
    let map = client.admin().regions(None).await;
    let seen = counted_in_all(client).await;
    let sent = terrane_env::sim::tally_of(SENT);
    if events(client, context).await? != Some(life) {
        return Ok(());
    }
    // A map from before a table was truncated must not pass for one from after it.
    let is_new = context.watch.inner.events.borrow().count() > known;
    if let (Ok(regions), Ok(tables), false) = (map, tables, is_new)
        && let Some(boundaries) = boundaries(&regions, &tables)
    {
        context.watch.inner.events.borrow_mut().begin_map(life, &boundaries);
    }
    // Raw requests, and those of HBase's clients, are not counted.
    let counts_all = !context.plan.scenario.serves_hbase();
    if let (Ok((counted, regions)), true) = (seen, counts_all) {
        let look = Look { at: now(), life, counted, sent, regions };
        context.watch.inner.counted.borrow_mut().look(look)?;
        context.watch.count("looks at the load history");
    }
    Ok(())
}

/// The boundaries of a map as events show them; `None`: a table was created meanwhile.
fn boundaries(regions: &[RegionInfo], tables: &[TableInfo]) -> Option<Boundaries> {
    let mut boundaries = Boundaries::new();
    for region in regions {
        let table = tables.iter().find(|table| table.schema.table == region.descriptor.table)?;
        let start = &region.descriptor.range.start;
        let start = table.schema.key.as_ref().map_or_else(|| escape(start), |key| key.shown(start));
        boundaries.entry(region.table.clone()).or_default().insert(start);
    }
    Some(boundaries)
}

/// Puts a known load on a table, splits and merges its region, and compares what the master has seen.
pub async fn of_a_known_load(client: &Client, context: &Context) -> Result<(), String> {
    // That scenario uses every table that it finds.
    if context.plan.scenario == Kind::Schema || context.watch.inner.load_was_known.replace(true) {
        return Ok(());
    }
    let failed = |error: Error| format!("in a healthy cluster, a known load fails: {}", chain(&error));
    let life = until_listed(client, context, None, |_| true).await?;
    let spec = TableSpec::new(TABLE).and_then(|spec| spec.family(FAMILY, &[])?.set("split_policy", "none"));
    create_table(client, &spec.map_err(failed)?).await.map_err(failed)?;
    let table = open_table(client, TABLE).await.map_err(failed)?;
    let began = now();
    let before = terrane_env::sim::tally_of(SENT);
    let placed = places(client).await.map_err(failed)?;
    let mut acknowledged = write_for(&table, LASTS / 2).await.map_err(failed)?;
    let [(region, group, leader)] = &placed[..] else {
        return Err(format!("a new table has {} regions", placed.len()));
    };
    let elections = context.watch.inner.events.borrow().elections(group.0);
    let at = row(BATCH / 2);
    patiently(async || client.admin().split(*region, Some(at.as_bytes())).await).await.map_err(failed)?;
    acknowledged += write_for(&table, LASTS / 2).await.map_err(failed)?;
    let listed = until_listed(client, context, Some(life), |context| count(context, EventKind::Split) > 0).await?;
    tokio::time::sleep(COUNTED_WITHIN).await;

    let regions = patiently(async || client.admin().regions(Some(TABLE)).await).await.map_err(failed)?;
    let counted = patiently(async || counted(client, TABLE).await).await.map_err(failed)?;
    let ended = until_listed(client, context, None, |_| true).await?;
    let is_one_life = [listed, ended] == [life, life];
    // A leadership that was handed over and came back tells nothing of what was written meanwhile.
    let is_led_by_one = context.watch.inner.events.borrow().elections(group.0) == elections;
    let stays =
        is_led_by_one && regions.iter().all(|region| region.leader == *leader && region.descriptor.group == *group);
    // On a slow disk so few batches fit that the last one before the split, which is not counted to the end, is a large part.
    let is_fast = context.plan.slow_disks.1.is_zero();
    let known = Known {
        acknowledged,
        sent: terrane_env::sim::tally_of(SENT) - before,
        counted,
        to_come: regions.iter().map(|region| region.load.rows_written).sum::<u64>() * SECONDS_TO_COME,
        lasted: now() - began,
        regions: 2,
        undisturbed: is_one_life && stays && is_fast,
    };
    trace::note(format_args!("a known load: {known:?}"));
    judge(known).map_err(|what| format!("of a known load, {what}"))?;
    context.watch.count(if known.undisturbed { "known loads" } else { "known loads that were disturbed" });

    let [left, right] = &regions[..] else { return Err(format!("{} regions after a split", regions.len())) };
    let (left, right) = (left.descriptor.region, right.descriptor.region);
    match patiently(async || client.admin().merge(left, right).await).await {
        Ok(_) => {}
        // One of them moves.
        Err(error) if error.is_invalid() || error.is_not_found() => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    let merged = until_listed(client, context, Some(ended), |context| count(context, EventKind::Merge) > 0).await?;
    if is_one_life && merged == life {
        let seen = (count(context, EventKind::Split), count(context, EventKind::Merge));
        if seen != (1, 1) {
            return Err(format!("a split and a merge are {} and {} events", seen.0, seen.1));
        }
        all_changes_are_listed(client, context).await?;
    }
    patiently(async || client.admin().drop_table(TABLE).await).await.map_err(failed)
}

/// The regions of the table, their groups, and where their leaders are, once they are known.
async fn places(client: &Client) -> Result<Vec<(RegionId, GroupId, String)>, Error> {
    loop {
        let regions = patiently(async || client.admin().regions(Some(TABLE)).await).await?;
        if regions.iter().all(|region| !region.leader.is_empty()) {
            let place = |region: RegionInfo| (region.descriptor.region, region.descriptor.group, region.leader);
            return Ok(regions.into_iter().map(place).collect());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn row(number: usize) -> String {
    format!("row-{number:03}")
}

fn count(context: &Context, kind: EventKind) -> usize {
    context.watch.inner.events.borrow().about(TABLE, kind)
}

/// Writes batches; how many rows were acknowledged.
async fn write_for(table: &Table, long: Duration) -> Result<u64, Error> {
    let (began, mut rows) = (now(), 0);
    while now() < began + long {
        let puts = (0..BATCH)
            .map(|number| patiently(async move || table.put(Put::new(row(number)).set(FAMILY, "a", "load")).await));
        for put in join_all(puts).await {
            put?;
            rows += 1;
        }
        tokio::time::sleep(PACE).await;
    }
    Ok(rows)
}

/// Waits until the events have something, or another master leads than `before` the change, or than at first; which one does. Its
/// list begins with its term, so what happened before that is not in it.
async fn until_listed(
    client: &Client,
    context: &Context,
    before: Option<u64>,
    is_there: impl Fn(&Context) -> bool,
) -> Result<u64, String> {
    let began = now();
    let mut first = before;
    loop {
        if let Some(life) = events(client, context).await? {
            if is_there(context) || *first.get_or_insert(life) != life {
                return Ok(life);
            }
        }
        if now() > began + LISTED_WITHIN {
            return Err(format!("{} s after a change, the events do not list it", LISTED_WITHIN.as_secs()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Every boundary that came or went while this master led has its event. The map may be changing: then it is not judged.
async fn all_changes_are_listed(client: &Client, context: &Context) -> Result<(), String> {
    let look = async || {
        let (regions, tables) = (client.admin().regions(None).await.ok()?, client.admin().list_tables().await.ok()?);
        boundaries(&regions, &tables)
    };
    let before = look().await;
    tokio::time::sleep(COUNTED_WITHIN).await;
    events(client, context).await?;
    if let (Some(before), Some(after)) = (before, look().await)
        && before == after
    {
        context.watch.inner.events.borrow().judge_map(&after)?;
        context.watch.count("maps that the events explain");
    }
    Ok(())
}
