//! Scans of the player, region by region, in calls of several sizes.

use std::cell::Cell;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use prost::Message as _;
use terrane_hbase::proto;
use terrane_oracle::model::plain::{Rows, Selection};

use super::messages::{get_of, seen_in};
use super::{Player, TRIES_MAX};
use crate::Failed;
use crate::java_scan::reopens;

/// How a scan is cut into calls.
#[derive(Clone, Copy, Debug)]
struct Calls {
    rows: u32,
    bytes: Option<u64>,
    partials: bool,
    /// Rows of the whole scan; 0: all.
    limit: usize,
}

/// A scan, and how it is made.
#[derive(Clone, Debug)]
struct Scan {
    from: Vec<u8>,
    to: Vec<u8>,
    selection: Selection,
    reverse: bool,
    calls: Calls,
}

/// Why a scan begins again.
type Again = String;

impl Player {
    pub(super) async fn scan(&mut self) -> Result<()> {
        let ((from, to), selection, reverse) = (self.draw.range(), self.selection(), self.draw.one_in(2));
        let calls = Calls {
            rows: self.draw.pick(&[1, 2, 100]),
            bytes: self.draw.pick(&[Some(1), Some(200), None]),
            partials: self.draw.one_in(2),
            limit: self.draw.below(8),
        };
        let from = if from.is_empty() { self.bounds.0.clone() } else { from };
        let to = if to.is_empty() { self.bounds.1.clone() } else { to };
        self.check(&Scan { from, to, selection, reverse, calls }).await
    }

    /// Reads and checks all its rows.
    ///
    /// # Errors
    /// What differs from the model.
    pub async fn scan_all(&mut self) -> Result<()> {
        let selection = Selection { versions: 10, ..Selection::default() };
        let calls = Calls { rows: 3, bytes: None, partials: true, limit: 0 };
        let (from, to) = self.bounds.clone();
        self.check(&Scan { from, to, selection, reverse: false, calls }).await
    }

    async fn check(&mut self, scan: &Scan) -> Result<()> {
        let found = self.scanned(scan).await?;
        let limit = Some(scan.calls.limit).filter(|&limit| limit > 0);
        let range = (&scan.from[..], &scan.to[..]);
        let judged = self.model.is_scan(range, &scan.selection, scan.reverse, limit, &found);
        judged.map_err(|differs| anyhow!("{differs}: {scan:?}"))
    }

    /// A scan of all regions, begun again as long as regions change meanwhile: nothing is written.
    async fn scanned(&mut self, scan: &Scan) -> Result<Rows> {
        for _ in 0..TRIES_MAX {
            match self.scan_regions(scan).await? {
                Ok(rows) => return Ok(rows),
                Err(why) => self.note(format_args!("begins a scan again: {why}")),
            }
            self.regions_changed().await;
        }
        bail!("regions change all the time");
    }

    /// The regions that a scan reads, in its order: start keys and names.
    async fn regions_within(&mut self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>, Again> {
        let regions = match self.client.regions().await {
            Ok(regions) => regions.to_vec(),
            Err(Failed::Again(why) | Failed::Refused(why) | Failed::Finally(why)) => return Err(why),
        };
        let ends: Vec<Bytes> = regions.iter().skip(1).map(|(start, _)| start.clone()).chain([Bytes::new()]).collect();
        let reads = |start: &Bytes, end: &Bytes| {
            (scan.to.is_empty() || start[..] < scan.to[..]) && (end.is_empty() || end[..] > scan.from[..])
        };
        let regions = regions.into_iter().zip(ends).filter(|((start, _), end)| reads(start, end));
        let mut within: Vec<(Bytes, Bytes)> = regions.map(|(region, _)| region).collect();
        if scan.reverse {
            within.reverse();
        }
        Ok(within)
    }

    async fn scan_regions(&mut self, scan: &Scan) -> Result<Result<Rows, Again>> {
        let within = match self.regions_within(scan).await {
            Ok(within) => within,
            Err(why) => return Ok(Err(why)),
        };
        let description = scan.description();
        let (mut rows, mut continues) = (Rows::new(), false);
        for (start, name) in within {
            let mut scanner = None;
            loop {
                // A row of which a part is missing does not count yet.
                let left = scan.calls.limit.saturating_sub(rows.len() - usize::from(continues));
                let is_meant = Cell::new(true);
                let encode = |region: proto::RegionSpecifier| {
                    is_meant.set(is_meant.get() && region.value == name);
                    let request = proto::ScanRequest {
                        number_of_rows: Some(scan.calls.rows),
                        client_handles_partials: Some(scan.calls.partials),
                        limit_of_rows: u32::try_from(left).ok(),
                        next_call_seq: scanner.map(|(_, seq)| seq).or(Some(0)),
                        ..proto::ScanRequest::default()
                    };
                    match scanner {
                        None => proto::ScanRequest { region: Some(region), scan: Some(description.clone()), ..request },
                        Some((id, _)) => proto::ScanRequest { scanner_id: Some(id), ..request },
                    }
                    .encode_to_vec()
                };
                let answer = match self.call::<proto::ScanResponse>(&start, "Scan", encode).await {
                    Ok(outcome) => outcome.answer,
                    // The scanner was on a connection that was lost, or its region is gone.
                    Err(error) if scanner.is_some() => return Ok(Err(error.to_string())),
                    // The call that opens it has read a part of a row when its region moves.
                    Err(error) if reopens(&format!("{error:#}")) => return Ok(Err(error.to_string())),
                    Err(error) => return Err(error),
                };
                if !is_meant.get() {
                    return Ok(Err("the region is another".to_owned()));
                }
                for result in answer.results {
                    ensure!(scan.calls.partials || !result.partial(), "a partial result for a client that takes none");
                    continues = result.partial();
                    add(&mut rows, result)?;
                }
                let seq = scanner.map_or(1, |(_, seq)| seq + 1);
                scanner = Some((answer.scanner_id.context("an open scanner has a number")?, seq));
                if answer.more_results == Some(false) {
                    return Ok(Ok(rows));
                }
                if answer.more_results_in_region == Some(false) {
                    break;
                }
            }
        }
        Ok(Ok(rows))
    }
}

impl Scan {
    fn description(&self) -> proto::Scan {
        let bytes = |key: &[u8]| Some(Bytes::copy_from_slice(key));
        let (from, to) = (bytes(&self.from), bytes(&self.to));
        let (start_row, stop_row) = if self.reverse { (to, from) } else { (from, to) };
        let read = get_of(b"", &self.selection);
        proto::Scan {
            column: read.column,
            start_row,
            stop_row,
            include_start_row: Some(!self.reverse),
            include_stop_row: Some(self.reverse),
            filter: read.filter,
            time_range: read.time_range,
            max_versions: read.max_versions,
            store_limit: read.store_limit,
            store_offset: read.store_offset,
            max_result_size: self.calls.bytes,
            reversed: Some(self.reverse),
            ..proto::Scan::default()
        }
    }
}

/// Adds a result: a row, or more of the last one.
fn add(rows: &mut Rows, result: proto::Result) -> Result<()> {
    let row = result.cell.first().and_then(|cell| cell.row.clone()).context("a result without cells")?;
    let cells = seen_in(Some(result));
    match rows.last_mut() {
        Some((last, more)) if last[..] == row[..] => more.extend(cells),
        _ => rows.push((row.to_vec(), cells)),
    }
    Ok(())
}
