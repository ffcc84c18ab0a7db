//! What happened in the invented cluster: two days of events, a failover, procedures and slow requests.

use terrane_console::source::{
    Bucket, EventInfo, EventKind, EventQuery, Failover, Failovers, Key, Place, Procedure, SlowQuery, SlowRequest,
    SlowRequests, Stage,
};
use terrane_types::{GroupId, RegionId, ServerId};

use super::places::user_key;
use super::{NOW_MS, noise};

fn event(ago_s: u64, kind: EventKind, what: &str, reason: &str, places: &[Place]) -> EventInfo {
    let (time_ms, what, reason) = (NOW_MS - ago_s * 1_000, what.to_owned(), reason.to_owned());
    EventInfo { number: 2_000_000 - ago_s, time_ms, kind, what, reason, places: places.to_vec() }
}

fn all() -> Vec<EventInfo> {
    use EventKind::{Election, Failover, Merge, Move, Server, Setting, Split, Table};
    let mut events = vec![
        event(
            12,
            Split,
            "region 30 splits at user=6145833",
            "41 % of the table's writes, limit 25 %",
            &[Place::Region(RegionId(30)), Place::Table("actions".to_owned())],
        ),
        event(
            39,
            Failover,
            "group 2 is led by server 1",
            "server 3 is silent",
            &[Place::Group(GroupId(2)), Place::Server(ServerId(3))],
        ),
        event(40, Election, "group 5 elected server 4 in term 12", "server 3 is silent", &[Place::Group(GroupId(5))]),
        event(41, Server, "server 3 is silent", "no report for 3 s", &[Place::Server(ServerId(3))]),
        event(
            1_860,
            Setting,
            "server.compaction_rate is 64MiB",
            "set by an operator",
            &[Place::Setting("server.compaction_rate".to_owned())],
        ),
        event(
            5_400,
            Move,
            "region 17 moved from group 4 to group 2",
            "server 4 had 12 % more requests than the others",
            &[Place::Region(RegionId(17)), Place::Group(GroupId(2))],
        ),
        event(9_000, Merge, "regions 8 and 9 became region 8", "together 12 MiB", &[Place::Region(RegionId(8))]),
        event(
            70_000,
            Table,
            "table webtable is disabled",
            "asked by an operator",
            &[Place::Table("webtable".to_owned())],
        ),
    ];
    for at in 0..150 {
        let region = 1 + noise(at, 9);
        events.push(event(
            90_000 + at * 700,
            Split,
            &format!("region {region} split into {region} and {}", region + 1),
            "300 MiB, limit 256 MiB",
            &[Place::Region(RegionId(region))],
        ));
    }
    events
}

pub fn events(query: &EventQuery) -> Vec<EventInfo> {
    let matches = |event: &EventInfo| {
        query.kind.is_none_or(|kind| kind == event.kind) && query.before_ms.is_none_or(|before| event.time_ms < before)
    };
    all().into_iter().filter(matches).take(query.limit).collect()
}

pub fn events_about(place: &Place) -> Vec<EventInfo> {
    all().into_iter().filter(|event| event.places.contains(place)).take(20).collect()
}

pub fn procedures() -> Vec<Procedure> {
    let procedure =
        |id: &str, what: &str, state: &str, started_s: u64, took_s: Option<u64>, reason: &str, place| Procedure {
            id: id.to_owned(),
            what: what.to_owned(),
            state: state.to_owned(),
            done: took_s.is_some(),
            failed: state.starts_with("failed"),
            started_ms: Some(NOW_MS - started_s * 1_000),
            ended_ms: took_s.map(|took| NOW_MS - (started_s - took) * 1_000),
            reason: reason.to_owned(),
            places: vec![place],
        };
    vec![
        procedure(
            "split-219",
            "split region 30",
            "daughters are being opened",
            12,
            None,
            "41 % of the table's writes",
            Place::Region(RegionId(30)),
        ),
        procedure(
            "members-2-1",
            "replace server 3 in group 2",
            "waits for 5 min of silence",
            38,
            None,
            "server 3 is silent",
            Place::Group(GroupId(2)),
        ),
        procedure(
            "move-217",
            "move region 17 to group 2",
            "done",
            5_402,
            Some(2),
            "balance",
            Place::Region(RegionId(17)),
        ),
        procedure(
            "drain-4",
            "drain server 4",
            "failed: server 3 is silent, too few servers remain",
            8_000,
            Some(60),
            "asked by an operator",
            Place::Server(ServerId(4)),
        ),
    ]
}

pub fn slow(query: &SlowQuery) -> SlowRequests {
    let stage = |name: &str, duration_us| Stage { name: name.to_owned(), duration_us };
    let request = |ago_s: u64,
                   table: &str,
                   operation: &str,
                   (start, end): (Key, Option<Key>),
                   rows,
                   duration_us,
                   stages,
                   cause: &str| SlowRequest {
        time_ms: NOW_MS - ago_s * 1_000,
        table: table.to_owned(),
        operation: operation.to_owned(),
        region: Some(30),
        server: Some(2),
        start,
        end,
        rows: Some(rows),
        bytes: Some(rows * 310),
        duration_us,
        stages,
        cause: cause.to_owned(),
        trace: (rows > 1).then(|| "4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
    };
    let mut requests = vec![
        request(
            8,
            "actions",
            "put",
            (user_key(6_207_113), None),
            1,
            412_000,
            vec![stage("edge", 900), stage("queue", 301_000), stage("commit", 96_000), stage("apply", 14_000)],
            "It waited 301 ms in the queue of region 30, which takes 41 % of the table's writes.",
        ),
        request(
            37,
            "actions",
            "batch",
            (user_key(6_145_000), Some(user_key(6_209_000))),
            800,
            1_240_000,
            vec![stage("edge", 4_000), stage("queue", 22_000), stage("commit", 1_190_000), stage("apply", 24_000)],
            "The log of server 2 took 1.19 s to sync: its disk was busy with compactions.",
        ),
        request(
            260,
            "weather",
            "scan",
            (
                Key::decoded(*b"010010-99999", "station=010010-99999"),
                Some(Key::decoded(*b"020020-99999", "station=020020-99999")),
            ),
            91_400,
            3_810_000,
            vec![stage("edge", 2_000), stage("read", 3_780_000)],
            "It read 1.2 GiB to answer 91,400 rows: the filter passes 1 row in 60. A narrower range or `--columns` reads less.",
        ),
    ];
    requests.retain(|request| query.table.as_ref().is_none_or(|table| *table == request.table));
    if query.slowest_first {
        requests.sort_by_key(|request| std::cmp::Reverse(request.duration_us));
    }
    requests.truncate(query.limit);
    SlowRequests { threshold_us: 250_000, total: 1_204, requests }
}

pub fn failovers() -> Failovers {
    let failover = |ago_s: u64, group: u32, from, to: Option<u64>, reason: &str, blackout_ms| Failover {
        time_ms: NOW_MS - ago_s * 1_000,
        group: GroupId(group.into()),
        regions: 130 + group,
        from: ServerId(from),
        to: to.map(ServerId),
        reason: reason.to_owned(),
        blackout_ms,
    };
    let mut failovers = vec![
        failover(2, 7, 3, None, "server 3 is silent", None),
        failover(39, 2, 3, Some(1), "server 3 is silent", Some(640)),
        failover(40, 5, 3, Some(4), "server 3 is silent", Some(412)),
        failover(80_000, 4, 4, Some(2), "the disk of server 4 stalled for 1.2 s", Some(1_310)),
    ];
    for at in 0..20 {
        failovers.push(failover(
            100_000 + at * 90,
            u32::try_from(at % 8 + 1).expect("at most 8"),
            1,
            Some(2),
            "server 1 was drained by an operator",
            Some(30 + noise(at, 5) / 9),
        ));
    }
    let bounds = [25, 50, 100, 200, 400, 800, 1_600, 3_200];
    let counts = [0, 7, 11, 2, 0, 2, 1, 0];
    let mut histogram: Vec<Bucket> =
        bounds.iter().zip(counts).map(|(bound, count)| Bucket { up_to_ms: Some(*bound), count }).collect();
    histogram.push(Bucket { up_to_ms: None, count: 0 });
    Failovers {
        known_from_ms: Some(NOW_MS - 200_000_000),
        failovers,
        histogram,
        p50_ms: Some(71),
        p99_ms: Some(1_310),
        max_ms: Some(1_310),
    }
}
