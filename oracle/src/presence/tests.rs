//! Scans that show what they may, and scans that skip, repeat or resurrect rows.

use super::*;

const ROWS: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];

/// Rows `a` to `e` that exist for certain with number 1.
fn five() -> Presence {
    let mut model = Presence::default();
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

fn judged(model: &mut Presence, asked: Asked, rows: &str, complete: bool) -> Result<(), String> {
    let begun = model.begin(asked, |_| true);
    model.end(&begun, &shown(rows), complete).map_err(|violation| violation.to_string())
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
        let begun = model.begin(everything(), |_| true);
        let number = model.attempt(b"c", Change::Delete);
        model.acknowledge(b"c", number);
        assert_eq!(model.end(&begun, &shown(rows), true).is_ok(), right, "{rows}");
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
    let begun = model.begin(Asked::all(KeyRange::prefix(b"a")), |_| true);
    let again = model.attempt(b"a", Change::Put);
    for (number, right) in [(1, false), (2, false), (again, true), (4, false)] {
        assert_eq!(model.end(&begun, &[(b"a".to_vec(), number)], true).is_ok(), right, "{number}");
    }
    // It was shown, so it cannot vanish.
    let begun = model.begin(Asked::all(KeyRange::prefix(b"a")), |_| true);
    model.end(&begun, &[], true).unwrap_err();
}

#[test]
fn a_filter_and_a_range_select_rows() {
    let mut model = five();
    let begun = model.begin(everything(), |row| row != b"b");
    model.end(&begun, &shown("acde"), true).unwrap();
    assert!(model.end(&begun, &shown("abcde"), true).unwrap_err().to_string().contains("not among"));
    let range = KeyRange { start: b"b"[..].into(), end: b"d"[..].into() };
    judged(&mut model, Asked::all(range.clone()), "bc", true).unwrap();
    judged(&mut model, Asked::all(range), "bcd", true).unwrap_err();
}

#[test]
fn counts_and_sums_lie_between_what_must_and_what_may_exist() {
    let mut model = five();
    let begun = model.begin(everything(), |_| true);
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
