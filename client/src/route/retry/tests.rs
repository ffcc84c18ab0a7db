//! Golden scripts of the retry decision. One command line is one failure:
//!
//! `FAILURE [MS]` is a server's refusal (with the wait it asks for) or the client's own failure. The output is a line per
//! kind of call: what it does after the first and after the tenth failure of this kind. The wait is the shortest that jitter
//! allows, in milliseconds. `write, doubt` is a write that an earlier try may have applied; `cost` says that the retry budget
//! pays, `doubt` that a write may have been applied in spite of the failure.

use std::fmt::Write as _;

use terrane_testscript::check_scripts;
use terrane_types::{GroupId, Invalid, RegionId};

use super::*;

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/route/retry/testdata");
    check_scripts(directory, || |line: &str, out: &mut String| show(&failure(line), out));
}

fn show(failure: &Failure, out: &mut String) {
    let calls = [("read", Risk::READ, false), ("write", Risk::WRITE, false), ("write, doubt", Risk::WRITE, true)];
    for (name, risk, applied_maybe) in calls {
        let after = |tries| word(decide(failure, risk, applied_maybe, tries, 0));
        writeln!(out, "{name}: {}; tenth: {}", after(1), after(10)).unwrap();
    }
    let doubt = if failure.is_uncertain() { "doubt" } else { "no doubt" };
    writeln!(out, "{doubt}, {}", if failure.costs_a_retry() { "cost" } else { "free" }).unwrap();
}

fn word(action: RetryAction) -> String {
    let name = match action {
        RetryAction::Redirect { .. } => "look again in the cache",
        RetryAction::AskAnother { .. } => "another member",
        RetryAction::Search { .. } => "search the leader",
        RetryAction::Relocate { .. } => "ask a master",
        RetryAction::Again { .. } => "same server",
        RetryAction::GiveUp => return "give up".to_owned(),
    };
    format!("{name} in {} ms", action.wait().as_millis())
}

fn failure(line: &str) -> Failure {
    let (name, wait) = line.split_once(' ').unwrap_or((line, "0"));
    let retry_after = ms(wait.parse().expect("milliseconds"));
    let refusal = match name {
        "stale_epoch" => Wire::StaleEpoch { region: RegionId(1), current: Vec::new() },
        "not_leader" => not_leader(),
        "moving" => Wire::Moving { region: RegionId(1), retry_after },
        "busy" => Wire::Busy { retry_after },
        "log_full" => Wire::LogFull { held_by: "s".into(), retry_after },
        "unavailable" => Wire::Unavailable { message: "m".into(), retry_after },
        "uncertain" => Wire::Uncertain { not_tried: false },
        "forgotten" => Wire::Uncertain { not_tried: true },
        "deadline" => Wire::DeadlineExceeded,
        "not_found" => Wire::NotFound { what: "region".into() },
        "schema_changed" => Wire::SchemaChanged { table: terrane_types::TableId(1), version: 2 },
        "snapshot_too_old" => Wire::SnapshotTooOld { oldest: 1 },
        "already_applied" => Wire::AlreadyApplied,
        "invalid" => Wire::Invalid(Invalid::new("w")),
        "read_only" => Wire::ReadOnly { what: "t".into() },
        "corruption" => Wire::Corruption { file: "f".into(), offset: 1 },
        "internal" => Wire::Internal { message: "m".into() },
        "decided" => return Failure::Decided(Wire::Invalid(Invalid::new("w"))),
        "not_sent" => return Failure::NotSent("refused".into()),
        "lost" => return Failure::Lost("reset".into()),
        "no_place" => return Failure::NoPlace,
        "leaderless" => return Failure::Leaderless,
        "queued" => return Failure::Queued,
        _ => panic!("no such failure: {line}"),
    };
    Failure::Refused(refusal)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn not_leader() -> Wire {
    Wire::NotLeader { group: GroupId(1), term: 1, leader: None, address: None, members: Vec::new() }
}

#[test]
fn a_foreign_cluster_is_never_tried_again() {
    let refused = Failure::Refused(Wire::WrongCluster {
        expected: terrane_types::ClusterId([1; 16]),
        actual: terrane_types::ClusterId([2; 16]),
        server: terrane_types::ServerId(1),
    });
    assert_eq!(decide(&refused, Risk::READ, false, 1, 0), RetryAction::GiveUp);
    assert!(!refused.is_uncertain());
}

#[test]
fn waits_are_bounded_and_spread() {
    for tries in 1..100 {
        for jitter in [0, 1, u64::MAX / 3, u64::MAX] {
            let wait = backoff(tries, jitter);
            assert!(wait >= WAIT_MIN / 2 && wait < WAIT_MAX, "{tries} {wait:?}");
        }
    }
    assert_ne!(backoff(5, 1), backoff(5, 20_000_000));
    let asked = requested(Duration::from_secs(3600), 1, u64::MAX);
    assert!(asked <= RETRY_AFTER_MAX + RETRY_AFTER_MAX / 4, "{asked:?}");
}

#[test]
fn redirects_and_unsent_requests_are_retried_for_free() {
    assert!(!Failure::Refused(not_leader()).costs_a_retry());
    assert!(!Failure::NotSent("refused".into()).costs_a_retry());
    assert!(Failure::Lost("reset".into()).costs_a_retry());
    assert!(!Failure::Refused(Wire::Busy { retry_after: ms(1) }).costs_a_retry(), "the lanes bound it");
    assert!(Failure::Refused(Wire::DeadlineExceeded).costs_a_retry());
}

#[test]
fn only_a_sent_write_is_uncertain() {
    assert!(Failure::Lost("reset".into()).is_uncertain());
    assert!(!Failure::NotSent("refused".into()).is_uncertain());
    assert!(!Failure::Refused(not_leader()).is_uncertain());
    assert!(Failure::Refused(Wire::Uncertain { not_tried: false }).is_uncertain());
    let late = Failure::Refused(Wire::DeadlineExceeded);
    assert!(!late.is_uncertain() && late.into_error(true).is_retry_safe(), "the server did not start it");
    assert!(Failure::Lost("reset".into()).into_error(true).is_uncertain());
    assert!(Failure::Lost("reset".into()).into_error(false).is_retry_safe());
    assert!(Failure::NotSent("refused".into()).into_error(true).is_retry_safe());
}
