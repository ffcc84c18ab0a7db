//! Gets and scans as reads of the data path: which columns, versions and times, of which rows. What our reads cannot express
//! is refused.

use std::sync::Arc;

use bytes::Bytes;
use terrane_regionserver::edge::{GetRequest, Lookup, ScanRequest};
use terrane_types::limits::{ROW_BYTES_MAX, VERSIONS_MAX};
use terrane_types::{FamilyName, KeyRange, Projection};

use super::region::Region;
use crate::exception::{DO_NOT_RETRY, Exception, NO_CLOSEST_ROW, UNKNOWN_PROTOCOL};
use crate::filter::{Evaluator, StoreLimits};
use crate::proto;
use crate::time_range::bounds;

/// Bytes of a block of a scan, whatever more the client would take at once.
const BLOCK_BYTES_MAX: usize = 2 << 20;

/// What a get asks for.
pub(super) fn get(region: &Region, get: proto::Get) -> Result<GetRequest, Exception> {
    if get.closest_row_before() {
        return Err(Exception::new(UNKNOWN_PROTOCOL, NO_CLOSEST_ROW));
    }
    region.check_row(&get.row)?;
    refuse_attributes(&get.attribute)?;
    let times = Times { all: get.time_range.as_ref(), of_families: &get.cf_time_range };
    let projection = projection(region, &get.column, get.max_versions(), times)?;
    let exists_only = get.existence_only();
    let judging = EvaluatorInputs {
        filter: get.filter.as_ref(),
        limits: StoreLimits { limit: get.store_limit, offset: get.store_offset() },
        defers: get.load_column_families_on_demand.unwrap_or(true),
        reverse: false,
    };
    let lookup = match judging.evaluator(region, &projection)? {
        Some(evaluator) => judged(projection, evaluator),
        None if exists_only => Lookup::exists(projection, None),
        None => Lookup::new(projection, None),
    };
    Ok(GetRequest { rows: vec![get.row], lookup, exists_only })
}

/// The newest versions of some columns of a row.
pub(super) fn columns(row: Bytes, columns: Vec<(FamilyName, Bytes)>) -> GetRequest {
    let add = |projection: Projection, (family, qualifier)| projection.with_column(family, qualifier);
    let projection = columns.into_iter().fold(Projection::all(), add);
    GetRequest { rows: vec![row], lookup: Lookup::new(projection, None), exists_only: false }
}

/// What a scan asks of one region.
pub(super) fn scan(region: &Region, scan: &proto::Scan) -> Result<Arc<ScanRequest>, Exception> {
    refuse_attributes(&scan.attribute)?;
    let times = Times { all: scan.time_range.as_ref(), of_families: &scan.cf_time_range };
    let mut projection = projection(region, &scan.column, scan.max_versions(), times)?;
    projection.raw = is_raw(&scan.attribute);
    if projection.raw && projection.families.iter().any(|(_, columns)| !columns.is_whole_family()) {
        return Err(Exception::bad_request("Cannot specify any column for a raw scan"));
    }
    let judging = EvaluatorInputs {
        filter: scan.filter.as_ref(),
        limits: StoreLimits { limit: scan.store_limit, offset: scan.store_offset() },
        defers: scan.load_column_families_on_demand.unwrap_or(true),
        reverse: scan.reversed(),
    };
    let lookup = match judging.evaluator(region, &projection)? {
        Some(evaluator) => judged(projection, evaluator),
        None => Lookup::new(projection, None),
    };
    let wanted = range(scan)?;
    // An empty range, not the whole region.
    let nothing = || KeyRange { start: Bytes::from_static(&[0]), end: Bytes::from_static(&[0]) };
    let block_bytes = scan.max_result_size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    Ok(Arc::new(ScanRequest {
        range: wanted.intersect(&region.descriptor.range).unwrap_or_else(nothing),
        reverse: scan.reversed(),
        lookup,
        block_bytes: block_bytes.unwrap_or(BLOCK_BYTES_MAX).min(BLOCK_BYTES_MAX),
        count_only: false,
        aggregate: None,
        latest: None,
        fills_cache: scan.cache_blocks(),
        // As in HBase, a scanner sees its region as of when it was opened.
        snapshot: true,
    }))
}

/// What of a read needs an evaluator.
struct EvaluatorInputs<'a> {
    filter: Option<&'a proto::Filter>,
    limits: StoreLimits,
    /// Families that the filter does not need are read for rows that pass.
    defers: bool,
    reverse: bool,
}

impl EvaluatorInputs<'_> {
    fn evaluator(self, region: &Region, projection: &Projection) -> Result<Option<Evaluator>, Exception> {
        if self.filter.is_none() && self.limits == StoreLimits::default() {
            return Ok(None);
        }
        let evaluator = Evaluator::new(self.filter, projection.versions, self.limits);
        let evaluator = evaluator.map_err(|refused| Exception::bad_request(&refused.what))?;
        let named = projection.families.iter().map(|(family, columns)| (family, !columns.is_whole_family()));
        let is_all = projection.families.is_empty();
        let all = region.schema.families.iter().filter(|_| is_all).map(|family| (&family.name, false));
        let families = named.chain(all).map(|(family, is_explicit)| (family.as_bytes().to_vec(), is_explicit));
        Ok(Some(evaluator.deferring(self.defers).reversed(self.reverse).reading(families)))
    }
}

/// What a filter judges a row by, whether the first cell of the row as well, and its evaluator: the newest versions within some
/// times of the columns that decide, or of all.
pub(super) fn judged_row(
    region: &Region,
    filter: &proto::Filter,
    times: Option<&proto::TimeRange>,
) -> Result<(Projection, bool, Evaluator), Exception> {
    let projection = projection(region, &[], 1, Times { all: times, of_families: &[] })?;
    let judging =
        EvaluatorInputs { filter: Some(filter), limits: StoreLimits::default(), defers: true, reverse: false };
    let evaluator = judging.evaluator(region, &projection)?;
    let evaluator = evaluator.ok_or_else(|| Exception::bad_request("the condition has no filter"))?;
    let mut named = projection.clone();
    for (family, qualifier) in evaluator.decided_by().unwrap_or_default() {
        let Some(family) = region.schema.family(&family) else {
            // It has no cells, and without any column named all would be read.
            return Ok((needed(projection, &evaluator), false, evaluator));
        };
        named = named.with_column(family.name.clone(), qualifier);
    }
    let named = named.checked().map_err(|refused| Exception::bad_request(&refused.what))?;
    let is_narrowed = !named.families.is_empty();
    Ok((needed(named, &evaluator), is_narrowed, evaluator))
}

/// A lookup that reads what an evaluator needs.
fn judged(projection: Projection, evaluator: Evaluator) -> Lookup {
    Lookup::judged(needed(projection, &evaluator), Box::new(evaluator))
}

fn needed(mut projection: Projection, evaluator: &Evaluator) -> Projection {
    if evaluator.needs_all_versions() {
        projection.versions = VERSIONS_MAX;
    }
    projection.first_cell_only = evaluator.needs_first_cell_only();
    projection.keys_only = evaluator.needs_keys_only();
    projection.with_only(evaluator.columns())
}

/// The rows of a scan, which names them in its direction.
fn range(scan: &proto::Scan) -> Result<KeyRange, Exception> {
    let (start, stop) = (scan.start_row.clone().unwrap_or_default(), scan.stop_row.clone().unwrap_or_default());
    // A scan from a row to the same row is a read of that row, unless it says otherwise.
    let is_row = scan.include_stop_row.is_none() && !start.is_empty() && start == stop;
    let include_stop = is_row || scan.include_stop_row();
    let at_or_after = |row: Bytes, inclusive: bool| {
        if row.is_empty() || inclusive { Ok(row) } else { next_row(&row) }
    };
    let up_to = |row: Bytes, inclusive: bool| {
        if row.is_empty() || !inclusive { Ok(row) } else { next_row(&row) }
    };
    let (first, end) = if scan.reversed() {
        (at_or_after(stop, include_stop)?, up_to(start, scan.include_start_row())?)
    } else {
        (at_or_after(start, scan.include_start_row())?, up_to(stop, include_stop)?)
    };
    if !end.is_empty() && end < first {
        return Ok(KeyRange { start: first.clone(), end: first });
    }
    KeyRange::new(first, end).map_err(|invalid| Exception::bad_request(&invalid.what))
}

fn next_row(row: &[u8]) -> Result<Bytes, Exception> {
    if row.len() > ROW_BYTES_MAX {
        return Err(Exception::bad_request(&format!("a row has {} bytes; the limit is {ROW_BYTES_MAX}", row.len())));
    }
    Ok([row, &[0]].concat().into())
}

/// The times that a read asks for.
#[derive(Clone, Copy)]
struct Times<'a> {
    all: Option<&'a proto::TimeRange>,
    /// Instead of those of all.
    of_families: &'a [proto::ColumnFamilyTimeRange],
}

/// Whether a scan asks for what is stored, tombstones included.
fn is_raw(attributes: &[proto::NameBytesPair]) -> bool {
    let raw = attributes.iter().find(|attribute| attribute.name == "_raw_");
    // As for the client, one byte, and true unless it is 0.
    raw.and_then(|attribute| attribute.value.as_deref()).is_some_and(|value| value.len() == 1 && value[0] != 0)
}

fn projection(
    region: &Region,
    columns: &[proto::Column],
    versions: u32,
    times: Times<'_>,
) -> Result<Projection, Exception> {
    let mut projection = Projection::all().with_versions(versions.clamp(1, VERSIONS_MAX));
    projection.with_ttl = region.with_ttl;
    for column in columns {
        region.check_family(&column.family)?;
        let family = FamilyName::try_from(&column.family[..]).map_err(|bad| Exception::bad_request(&bad.what))?;
        if column.qualifier.is_empty() {
            projection = projection.with_family(family);
            continue;
        }
        for qualifier in &column.qualifier {
            projection = projection.with_column(family.clone(), qualifier.clone());
        }
    }
    (projection.time_min, projection.time_max) = bounds(times.all);
    for of_family in times.of_families {
        region.check_family(&of_family.column_family)?;
        let family = FamilyName::try_from(&of_family.column_family[..]);
        let family = family.map_err(|bad| Exception::bad_request(&bad.what))?;
        let (time_min, time_max) = bounds(Some(&of_family.time_range));
        projection = projection.with_family_times(family, time_min, time_max);
    }
    projection.checked().map_err(|bad| Exception::bad_request(&bad.what))
}

pub(super) fn refuse(asked: bool, what: &str) -> Result<(), Exception> {
    if !asked {
        return Ok(());
    }
    Err(Exception::new(DO_NOT_RETRY, format!("{what} are not supported yet; leave them out")))
}

/// Attributes that change what an operation means. Others are the program's own, or hints.
pub(super) fn refuse_attributes(attributes: &[proto::NameBytesPair]) -> Result<(), Exception> {
    const MEANINGFUL: [&str; 2] = ["VISIBILITY", "acl"];
    for attribute in attributes {
        refuse(MEANINGFUL.contains(&attribute.name.as_str()), &format!("attributes {}", attribute.name))?;
    }
    Ok(())
}
