//! Events, procedures and failovers.

use terrane_client::{Client, EndedProcedure, EventInfo, ProcedureInfo, ProcedureKind};
use terrane_console::source::{Bucket, EventKind, EventQuery, Failover, Failovers, Failure, Place, Procedure};

use super::refusal::refused;

/// Upper bounds of the histogram of blackouts, in milliseconds.
const BOUNDS_MS: [u64; 9] = [250, 500, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 30_000];
/// All events that a master keeps.
const EVENTS_MAX: u32 = 2_000;

pub(super) async fn events(client: &Client, query: EventQuery) -> Result<Vec<EventInfo>, Failure> {
    let listed = client.admin().events(0, EVENTS_MAX).await.map_err(refused)?;
    let wanted = |event: &EventInfo| {
        query.kind.is_none_or(|kind| kind == event.kind) && query.before_ms.is_none_or(|before| event.time_ms < before)
    };
    Ok(listed.events.into_iter().map(shown).filter(wanted).take(query.limit).collect())
}

/// The events about one thing, newest first.
pub(super) async fn events_of(client: &Client, place: &Place) -> Result<Vec<EventInfo>, Failure> {
    let listed = client.admin().events(0, EVENTS_MAX).await.map_err(refused)?;
    let of_place = listed.events.into_iter().filter(|event| event.places.contains(place));
    Ok(of_place.map(shown).take(50).collect())
}

/// A drain is an event of its server.
fn shown(event: EventInfo) -> EventInfo {
    let kind = if event.kind == EventKind::Drain { EventKind::Server } else { event.kind };
    EventInfo { kind, ..event }
}

pub(super) async fn procedures(client: &Client) -> Result<Vec<Procedure>, Failure> {
    let now_ms = terrane_env::time::wall_ms();
    let running = client.admin().procedures().await.map_err(refused)?;
    let ended = client.admin().ended_procedures().await.map_err(refused)?;
    Ok(running.iter().map(|known| procedure(known, now_ms)).chain(ended.iter().map(ended_procedure)).collect())
}

/// `create table` and `table t` as `create table t`, `replace replica` and `group 3 …` as `replace replica of group 3 …`.
fn what(kind: ProcedureKind, subject: &str) -> String {
    match kind.name().rsplit_once(' ') {
        Some((verb, noun)) if subject.starts_with(&format!("{noun} ")) => format!("{verb} {subject}"),
        _ if subject.starts_with("group ") => format!("{kind} of {subject}"),
        _ => format!("{kind} {subject}"),
    }
}

/// Why a procedure was begun. Masters give no reason for what a caller asked, and for the groups that they create themselves.
fn reason(kind: ProcedureKind, given: &str) -> String {
    match (given, kind) {
        ("", ProcedureKind::CreateGroup) => "servers joined".to_owned(),
        ("", _) => "asked by an administrator".to_owned(),
        (given, _) => given.to_owned(),
    }
}

fn ended_procedure(ended: &EndedProcedure) -> Procedure {
    Procedure {
        id: ended.id.clone(),
        what: what(ended.kind, &ended.subject),
        state: ended.outcome.clone(),
        done: true,
        failed: ended.failed,
        started_ms: Some(ended.started_ms),
        ended_ms: Some(ended.ended_ms),
        reason: reason(ended.kind, &ended.reason),
        places: ended.places.clone(),
    }
}

fn procedure(known: &ProcedureInfo, now_ms: u64) -> Procedure {
    let parts = [known.state.name(), known.detail.as_str(), known.waits_for.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let since = u64::try_from(known.since.as_millis()).unwrap_or(u64::MAX);
    Procedure {
        id: known.id.clone(),
        what: what(known.kind, &known.subject),
        state: parts.join("; "),
        done: false,
        failed: false,
        started_ms: Some(now_ms.saturating_sub(since)),
        ended_ms: None,
        reason: reason(known.kind, &known.reason),
        places: Vec::new(),
    }
}

pub(super) async fn failovers(client: &Client) -> Result<Failovers, Failure> {
    let listed = client.admin().failovers().await.map_err(refused)?;
    Ok(summary(listed.known_from_ms, listed.failovers))
}

fn summary(known_from_ms: Option<u64>, listed: Vec<Failover>) -> Failovers {
    let mut lasted: Vec<u64> = listed.iter().filter_map(|failover| failover.blackout_ms).collect();
    lasted.sort_unstable();
    let rank = |percent: usize| lasted.get((lasted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    Failovers {
        known_from_ms,
        failovers: listed,
        histogram: histogram(&lasted),
        p50_ms: rank(50),
        p99_ms: rank(99),
        max_ms: lasted.last().copied(),
    }
}

fn histogram(lasted: &[u64]) -> Vec<Bucket> {
    let bounds = BOUNDS_MS.into_iter().map(Some).chain([None]);
    let mut below = 0;
    let bucket = |up_to_ms: Option<u64>| {
        let end = up_to_ms.map_or(lasted.len(), |bound| lasted.partition_point(|ms| *ms < bound));
        let count = (end - below) as u64;
        below = end;
        Bucket { up_to_ms, count }
    };
    bounds.map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_is_named_without_repetition() {
        assert_eq!(what(ProcedureKind::CreateTable, "table t"), "create table t");
        assert_eq!(what(ProcedureKind::MoveRegion, "region 7 from group 1 to 2"), "move region 7 from group 1 to 2");
        assert_eq!(
            what(ProcedureKind::ReplaceReplica, "group 3 to server 4"),
            "replace replica of group 3 to server 4"
        );
        assert_eq!(what(ProcedureKind::ChangeMasters, "from a to b"), "change masters from a to b");
    }

    #[test]
    fn every_blackout_is_in_one_bucket() {
        let lasted = [100, 250, 260, 999, 1_000, 90_000];
        let counts: Vec<u64> = histogram(&lasted).iter().map(|bucket| bucket.count).collect();
        assert_eq!(counts, [1, 2, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert!(histogram(&[]).iter().all(|bucket| bucket.count == 0));
    }
}
