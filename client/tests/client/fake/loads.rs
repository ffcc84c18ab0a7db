//! The fake's bulk loads: runs that arrive in parts, and commits that take effect once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use terrane_proto::v1;
use terrane_types::cell::{Cells, LATEST};
use terrane_types::{Error, Invalid, RegionDescriptor};

use super::World;

/// The time that this server names for cells without one, for the first load.
pub const FIRST_TIME_MS: u64 = 1_000;

/// The runs and what was loaded.
#[derive(Default)]
pub struct Loads {
    runs: BTreeMap<(Bytes, Bytes), Run>,
    /// Runs begun so far.
    pub begun: u64,
    /// Client ids and numbers of the loads that took effect.
    done: BTreeSet<(Bytes, u64)>,
    /// The numbers that each commit named, in the order of arrival.
    pub commits: Vec<Vec<u64>>,
    /// Rows in the order in which they were loaded.
    pub log: Vec<Bytes>,
    /// The times of all cells.
    pub times: BTreeSet<i64>,
    /// The next commit takes effect, its answer is lost, and the region is split at this row.
    pub lose_answer_and_split: Option<Bytes>,
    /// The next commit finds that the server has forgotten all runs.
    pub forget_runs: bool,
    /// A commit is answered as pending so many times first.
    pub pending: u32,
}

#[derive(Default)]
struct Run {
    parts: u32,
    timestamp_ms: u64,
    rows: Vec<v1::RowMutation>,
}

pub fn part(
    world: &mut World,
    region: &RegionDescriptor,
    client: &Bytes,
    part: v1::BulkPart,
) -> Result<v1::BulkPartReply, Error> {
    let outside = part.rows.iter().any(|row| !region.range.contains(&row.row));
    let loads = &mut world.loads;
    let id = (client.clone(), part.run.clone());
    if outside {
        return Err(Error::Invalid(Invalid::new("a row is not in the region")));
    }
    if part.part == 0 && !loads.runs.contains_key(&id) {
        loads.begun += 1;
        let timestamp_ms = if part.timestamp_ms == 0 { FIRST_TIME_MS * loads.begun } else { part.timestamp_ms };
        loads.runs.insert(id.clone(), Run { timestamp_ms, ..Run::default() });
    }
    let Some(run) = loads.runs.get_mut(&id) else { return Ok(v1::BulkPartReply::default()) };
    if part.part == run.parts {
        run.parts += 1;
        run.rows.extend(part.rows);
    }
    Ok(v1::BulkPartReply { parts: run.parts, timestamp_ms: run.timestamp_ms })
}

/// `None`: the answer is lost.
pub fn commit(world: &mut World, client: &Bytes, commit: v1::BulkCommit) -> Option<v1::BulkCommitReply> {
    let loads = &mut world.loads;
    if std::mem::take(&mut loads.forget_runs) {
        loads.runs.clear();
    }
    if loads.pending > 0 {
        loads.pending -= 1;
        return Some(v1::BulkCommitReply { pending: true, ..Default::default() });
    }
    loads.commits.push(commit.operations.clone());
    let loaded = Some(v1::BulkCommitReply { loaded: true, ..Default::default() });
    if commit.operations.iter().any(|operation| loads.done.contains(&(client.clone(), *operation))) {
        return loaded;
    }
    let run = loads.runs.get(&(client.clone(), commit.run));
    let Some(run) = run.filter(|run| run.parts == commit.parts) else {
        let parts = run.map_or(0, |run| run.parts);
        return Some(v1::BulkCommitReply { parts, ..Default::default() });
    };
    assert!(run.rows.is_sorted_by(|one, next| one.row < next.row), "a run is sorted");
    for row in &run.rows {
        loads.log.push(row.row.clone());
        let time = |timestamp| if timestamp == LATEST { run.timestamp_ms as i64 } else { timestamp };
        loads.times.extend(Cells::new(&row.cells).map(|cell| time(cell.timestamp)));
    }
    loads.done.extend(commit.operations.last().map(|operation| (client.clone(), *operation)));
    match loads.lose_answer_and_split.take() {
        Some(at) => {
            world.split(&at);
            None
        }
        None => loaded,
    }
}
