//! Scans that show what they may, and scans that skip, repeat or resurrect rows.

use super::*;

const ROWS: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

/// Rows `a` to `e` that exist for certain with number 1.
fn five() -> Rows {
    let mut model = Rows::default();
    for row in ROWS {
        let number = model.attempt(row, Change::Put);
        model.acknowledge(row, number);
    }
    model
}

fn everything() -> Asked {
    Asked::all(KeyRange::all())
}

fn shown(rows: &str) -> Vec<(Vec<u8>, u64)> {
    rows.bytes().map(|row| (vec![row], 1)).collect()
}

fn judged(model: &mut Rows, asked: Asked, rows: &str, complete: bool) -> Result<(), String> {
    let begun = model.begin_scan(asked, |_| true);
    model.judge_scan(begun.clone(), &shown(rows), complete).map_err(|violation| violation.to_string())
}

#[test]
fn a_scan_shows_every_row_once_in_order() {
    let mut model = five();
    judged(&mut model, everything(), "abcde", true).unwrap();
    judged(&mut model, Asked { reverse: true, ..everything() }, "edcba", true).unwrap();
    for wrong in ["acde", "abcd", "bcde", "abbcde", "abdce", "", "abcdef"] {
        judged(&mut model, everything(), wrong, true).unwrap_err();
    }
    judged(&mut model, Asked { reverse: true, ..everything() }, "edba", true).unwrap_err();
}

#[test]
fn a_scan_that_did_not_end_may_lack_only_what_follows() {
    let mut model = five();
    judged(&mut model, everything(), "ab", false).unwrap();
    judged(&mut model, everything(), "", false).unwrap();
    assert!(judged(&mut model, everything(), "ac", false).unwrap_err().contains("b is missing"));
}

#[test]
fn an_offset_skips_exactly_so_many_rows() {
    let mut model = five();
    let skipping = |offset| Asked { offset, ..everything() };
    judged(&mut model, skipping(2), "cde", true).unwrap();
    judged(&mut model, skipping(2), "de", true).unwrap_err();
    judged(&mut model, skipping(2), "bcde", true).unwrap_err();
    judged(&mut model, skipping(7), "", true).unwrap();
    judged(&mut model, skipping(4), "", true).unwrap_err();
    let two = Asked { limit: Some(2), ..everything() };
    judged(&mut model, two.clone(), "ab", false).unwrap();
    assert!(judged(&mut model, two, "abc", false).unwrap_err().contains("beyond the limit"));
}

#[test]
fn a_row_whose_change_overlaps_the_scan_may_be_there_or_not() {
    for (rows, right) in [("abcde", true), ("abde", true), ("abce", false)] {
        let mut model = five();
        let begun = model.begin_scan(everything(), |_| true);
        let number = model.attempt(b"c", Change::Delete);
        model.acknowledge(b"c", number);
        assert_eq!(model.judge_scan(begun.clone(), &shown(rows), true).is_ok(), right, "{rows}");
    }
    let mut model = five();
    let number = model.attempt(b"c", Change::Delete);
    judged(&mut model, everything(), "abcde", true).unwrap();
    model.acknowledge(b"c", number);
    assert!(judged(&mut model, everything(), "abcde", true).unwrap_err().contains("change 2 was certain"));
    judged(&mut model, everything(), "abde", true).unwrap();
}

#[test]
fn a_row_that_was_put_again_shows_a_number_of_the_time_of_the_scan() {
    let mut model = five();
    let deleted = model.attempt(b"a", Change::Delete);
    model.acknowledge(b"a", deleted);
    let begun = model.begin_scan(Asked::all(KeyRange::prefix(b"a")), |_| true);
    let again = model.attempt(b"a", Change::Put);
    for (number, right) in [(1, false), (2, false), (again, true), (4, false)] {
        assert_eq!(model.judge_scan(begun.clone(), &[(b"a".to_vec(), number)], true).is_ok(), right, "{number}");
    }
    // It was shown, so it cannot vanish.
    let begun = model.begin_scan(Asked::all(KeyRange::prefix(b"a")), |_| true);
    model.judge_scan(begun.clone(), &[], true).unwrap_err();
}

#[test]
fn a_filter_and_a_range_select_rows() {
    let mut model = five();
    let begun = model.begin_scan(everything(), |row| row != b"b");
    model.judge_scan(begun.clone(), &shown("acde"), true).unwrap();
    assert!(model.judge_scan(begun.clone(), &shown("abcde"), true).unwrap_err().to_string().contains("not among"));
    let range = KeyRange { start: b"b"[..].into(), end: b"d"[..].into() };
    judged(&mut model, Asked::all(range.clone()), "bc", true).unwrap();
    judged(&mut model, Asked::all(range), "bcd", true).unwrap_err();
}

#[test]
fn counts_and_sums_lie_between_what_must_and_what_may_exist() {
    let mut model = five();
    let begun = model.begin_scan(everything(), |_| true);
    model.end_count(&begun, 5, Some(5)).unwrap();
    model.end_count(&begun, 4, None).unwrap_err();
    model.end_count(&begun, 5, Some(6)).unwrap_err();
    model.attempt(b"a", Change::Put);
    model.attempt(b"b", Change::Delete);
    for (counted, sum, right) in [(5, 5, true), (4, 4, true), (5, 6, true), (4, 5, true), (3, 4, false), (5, 7, false)]
    {
        assert_eq!(model.end_count(&begun, counted, Some(sum)).is_ok(), right, "{counted} {sum}");
    }
}

/// A row with so many acknowledged puts of so many attempted ones.
fn written(acknowledged: u64, attempted: u64) -> Rows {
    let mut rows = Rows::default();
    for number in 1..=attempted {
        assert_eq!(rows.attempt(b"k", Change::Put), number);
        if number <= acknowledged {
            rows.acknowledge(b"k", number);
        }
    }
    rows
}

fn read(rows: &mut Rows, number: u64) -> Verdict<Violation> {
    let reading = rows.begin_read(b"k");
    rows.end_read(&reading, number)
}

#[test]
fn a_read_shows_what_was_acknowledged_or_is_under_way() {
    for number in [2, 3] {
        read(&mut written(2, 3), number).unwrap();
    }
    let lost = read(&mut written(2, 3), 1).unwrap_err().to_string();
    assert!(lost.starts_with("k shows 1, but change 2 was certain"), "{lost}");
    read(&mut written(2, 3), 0).unwrap_err();
    assert!(read(&mut written(2, 3), 4).unwrap_err().what.contains("nothing above 3"));
    assert!(read(&mut Rows::default(), 1).unwrap_err().what.contains("never written"));
}

#[test]
fn a_read_may_overlap_the_acknowledgement() {
    let mut rows = written(0, 1);
    let early = rows.begin_read(b"k");
    rows.acknowledge(b"k", 1);
    rows.end_read(&early, 0).unwrap();
    read(&mut rows, 0).unwrap_err();
}

#[test]
fn what_was_read_once_stays() {
    let mut rows = written(0, 1);
    let late = rows.begin_read(b"k");
    read(&mut rows, 1).unwrap();
    read(&mut rows, 0).unwrap_err();
    // It started before the write was visible to anyone.
    rows.end_read(&late, 0).unwrap();
    assert_eq!(rows.certain_rows(), 1);
}

#[test]
fn a_stale_read_shows_what_was_written_and_binds_no_other() {
    let mut rows = written(1, 2);
    rows.judge_stale(b"k", 0).unwrap();
    rows.judge_stale(b"k", 2).unwrap();
    rows.judge_stale(b"k", 3).unwrap_err();
    read(&mut rows, 1).unwrap();
}

#[test]
fn a_refused_change_is_never_shown() {
    let mut rows = written(1, 2);
    rows.end(b"k", 2, Fate::Refused).unwrap();
    assert!(read(&mut rows, 2).unwrap_err().what.contains("was refused"));
    let mut rows = written(1, 2);
    read(&mut rows, 2).unwrap();
    assert!(rows.end(b"k", 2, Fate::Refused).unwrap_err().what.contains("was refused"));
}

#[test]
fn a_change_with_an_unknown_outcome_may_take_effect_at_any_later_time() {
    let mut rows = written(1, 2);
    rows.end(b"k", 2, Fate::Unknown).unwrap();
    let later = rows.attempt(b"k", Change::Delete);
    rows.acknowledge(b"k", later);
    for number in [0, 2, 0] {
        read(&mut rows, number).unwrap();
    }
    read(&mut rows, 1).unwrap_err();
    let mut rows = written(1, 1);
    let unknown = rows.attempt(b"k", Change::Delete);
    rows.end(b"k", unknown, Fate::Unknown).unwrap();
    let later = rows.attempt(b"k", Change::Put);
    rows.acknowledge(b"k", later);
    read(&mut rows, 3).unwrap();
    read(&mut rows, 0).unwrap();
    read(&mut rows, 1).unwrap_err();
}

#[test]
fn a_row_that_is_written_during_a_scan_may_be_shown() {
    let mut rows = written(1, 1);
    let scanning = rows.begin_scan(everything(), |_| true);
    assert!(rows.begin_scan(Asked::all(KeyRange::prefix(b"l")), |_| true).rows().next().is_none());
    rows.attempt(b"l", Change::Put);
    let shown = |rows: &[(&[u8], u64)]| rows.iter().map(|(row, number)| (row.to_vec(), *number)).collect::<Vec<_>>();
    rows.judge_scan(scanning.clone(), &shown(&[(b"k", 1), (b"l", 1)]), true).unwrap();
    rows.judge_scan(scanning.clone(), &shown(&[(b"k", 1), (b"others", 0)]), true).unwrap();
    rows.judge_scan(scanning.clone(), &shown(&[(b"l", 1)]), true).unwrap_err();
    // What a scan shows is judged at once, and binds reads that begin before it ends.
    let mut early = scanning.clone();
    rows.attempt(b"k", Change::Put);
    rows.show(&mut early, b"k", 2).unwrap();
    read(&mut rows, 1).unwrap_err();
}

#[test]
fn a_row_that_was_there_before_begins_with_its_number() {
    let mut row = Row::with(5);
    for (number, right) in [(5, true), (4, false), (0, false), (6, false)] {
        assert_eq!(row.show(row.certain(), number).is_ok(), right, "{number}");
    }
    let early = row.certain();
    assert_eq!(row.attempt(Change::Put), 6);
    row.show(row.certain(), 5).unwrap();
    row.show(row.certain(), 6).unwrap();
    row.show(early, 5).unwrap();
    row.show(row.certain(), 5).unwrap_err();
}
