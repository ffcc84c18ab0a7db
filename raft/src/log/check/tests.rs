//! Flipped bits anywhere, torn writes, and several damages at once, as the check reports them.

use std::path::Path;

use terrane_types::inspection::Severity;

use super::super::tests::{batches, killed, last_segment, long, segments};
use super::*;

/// Severity and offset of each finding.
async fn findings(directory: &Path) -> Vec<(Severity, u64)> {
    let mut inspection = Inspection::default();
    let groups = check_log(directory, &mut inspection).await;
    assert_eq!(groups.is_some(), inspection.damages() == 0);
    inspection.findings().iter().map(|finding| (finding.severity, finding.offset)).collect()
}

#[tokio::test]
async fn a_good_log_is_clean_and_reports_what_its_groups_hold() {
    let directory = long().await;
    let mut inspection = Inspection::default();
    let groups = check_log(directory.path(), &mut inspection).await.unwrap();
    assert!(inspection.findings().is_empty(), "{inspection:?}");
    let held = LoggedGroup { purged: None, last: Some(19) };
    assert_eq!(groups, [(GroupId(1), held), (GroupId(2), held)].into());
    assert_eq!(inspection.totals()[KIND].files, segments(directory.path()).len() as u64);
}

#[tokio::test]
async fn every_flipped_bit_of_a_closed_log_is_damage() {
    let directory = long().await;
    for path in segments(directory.path()) {
        let bytes = std::fs::read(&path).unwrap();
        // All bits of the last segment with its unused rest would take too long.
        for at in (0..bytes.len()).filter(|at| at % 37 == 0 || at % SECTOR_BYTES < 2) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            std::fs::write(&path, &flipped).unwrap();
            let found = findings(directory.path()).await;
            assert!(found.iter().any(|(severity, _)| *severity == Severity::Damage), "{path:?} at {at}: {found:?}");
            assert!(found.iter().all(|(_, offset)| *offset <= at as u64), "{path:?} at {at}: {found:?}");
        }
        std::fs::write(&path, &bytes).unwrap();
    }
}

#[tokio::test]
async fn after_a_kill_a_flipped_bit_in_the_last_batch_is_damage_although_recovery_would_cut_it() {
    let directory = killed().await;
    let (path, bytes, starts) = last_segment(directory.path());
    assert!(findings(directory.path()).await.is_empty());
    for at in starts[starts.len() - 2]..starts[starts.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        assert_eq!(findings(directory.path()).await.len(), 1, "at {at}");
    }
}

#[tokio::test]
async fn the_lost_end_of_a_segment_with_a_successor_is_one_damage_at_its_place() {
    let directory = long().await;
    for path in segments(directory.path()).into_iter().rev().skip(1) {
        let (bytes, starts) = (std::fs::read(&path).unwrap(), batches(&path));
        for start in [0, starts[1], starts[starts.len() - 2]] {
            let mut zeroed = bytes.clone();
            zeroed[start..].fill(0);
            std::fs::write(&path, &zeroed).unwrap();
            assert_eq!(findings(directory.path()).await, [(Severity::Damage, start as u64)], "{path:?}");
        }
        std::fs::write(&path, &bytes).unwrap();
    }
}

#[tokio::test]
async fn a_tail_whose_sectors_did_not_all_reach_the_disk_is_only_a_warning() {
    let directory = killed().await;
    let (path, bytes, starts) = last_segment(directory.path());
    let (last, end) = (starts[starts.len() - 2], starts[starts.len() - 1]);
    let boundary = last.next_multiple_of(SECTOR_BYTES);
    for torn in [last..boundary.min(end), boundary.min(end)..end] {
        let mut cut = bytes.clone();
        cut[torn.clone()].fill(0);
        std::fs::write(&path, &cut).unwrap();
        let found = findings(directory.path()).await;
        assert!(found.iter().all(|(severity, _)| *severity == Severity::Warning), "{torn:?}: {found:?}");
    }
    // A file that was not allocated ahead ends where the write stopped.
    for length in last + 1..end {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let found = findings(directory.path()).await;
        assert!(found.iter().all(|(severity, _)| *severity == Severity::Warning), "{length}: {found:?}");
    }
}

#[tokio::test]
async fn all_damage_is_reported_not_only_the_first() {
    let directory = long().await;
    let paths = segments(directory.path());
    for path in &paths[..2] {
        let starts = batches(path);
        let mut bytes = std::fs::read(path).unwrap();
        bytes[starts[1] + 10] ^= 1;
        bytes[starts[3] + HEADER_BYTES + 20] ^= 1;
        std::fs::write(path, &bytes).unwrap();
    }
    let found = findings(directory.path()).await;
    assert_eq!(found.len(), 4, "{found:?}");
    std::fs::remove_file(&paths[2]).unwrap();
    assert_eq!(findings(directory.path()).await.len(), 5);
}
