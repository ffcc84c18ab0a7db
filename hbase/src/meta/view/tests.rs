//! The scans by which clients locate regions and list tables.

use proptest::prelude::*;
use terrane_types::{KeyRange, RegionId};

use super::super::rows::State;
use super::*;
use crate::region_name::parse;

fn region(table: &str, start: &[u8], end: &[u8], id: u64) -> RegionRow {
    RegionRow {
        table: table.parse().unwrap(),
        region: RegionId(id),
        range: KeyRange::new(start.to_vec(), end.to_vec()).unwrap(),
        place: None,
        order: 0,
        state: State::Opening,
    }
}

fn view() -> View {
    let regions = vec![
        region("t2", b"", b"", 7),
        region("t", b"m,n", b"", 5),
        region("t", b"", b"b", 4),
        region("t", b"b", b"m,n", 6),
    ];
    let state = |table: &str| StateRow { table: table.parse().unwrap(), disabled: false };
    View::of_meta(regions, vec![state("t"), state("t2")], 1)
}

fn ids(view: &View, span: Span, columns: &[&'static [u8]]) -> Vec<u64> {
    let columns = columns.iter().map(|family| (Bytes::from_static(family), Vec::new())).collect();
    view.scan(span, Rows { columns, ..Rows::default() })
        .map(|row| parse(&row.key).map_or(0, |parts| parts.region.0))
        .collect()
}

fn located(view: &View, table: &str, row: &[u8]) -> Option<u64> {
    let start = [table.as_bytes(), b",", row, b",99999999999999"].concat().into();
    let stop = format!("{table},,").into();
    let span = Span { start, include_start: true, stop, include_stop: true, reversed: true };
    ids(view, span, &[b"info"]).first().copied()
}

#[test]
fn a_locating_scan_finds_the_region_of_a_row() {
    let view = view();
    for (row, region) in [(&b""[..], 4), (b"a", 4), (b"b", 6), (b"b,", 6), (b"m,", 6), (b"m,n", 5), (b"z", 5)] {
        assert_eq!(located(&view, "t", row), Some(region), "{row:?}");
    }
    assert_eq!(located(&view, "t2", b"q"), Some(7));
    assert_eq!(located(&view, "s", b"q"), None, "a table that does not exist has no row");
}

#[test]
fn the_locating_scan_of_gohbase_finds_the_region_too() {
    let span = Span {
        start: Bytes::from_static(b"t,b,:"),
        include_start: true,
        stop: Bytes::from_static(b"t"),
        reversed: true,
        ..Span::default()
    };
    assert_eq!(ids(&view(), span, &[b"info"]).first(), Some(&6));
}

#[test]
fn a_listing_of_a_table_has_its_regions_in_order_and_no_others() {
    let span = Span {
        start: Bytes::from_static(b"t,,"),
        include_start: true,
        stop: Bytes::from_static(b"t ,,"),
        ..Span::default()
    };
    assert_eq!(ids(&view(), span, &[b"info"]), [4, 6, 5]);
}

#[test]
fn the_whole_table_is_read_in_both_directions() {
    let all = Span { include_start: true, ..Span::default() };
    assert_eq!(ids(&view(), all.clone(), &[]), [0, 4, 6, 5, 0, 7]);
    assert_eq!(ids(&view(), Span { reversed: true, ..all.clone() }, &[]), [7, 0, 5, 6, 4, 0]);
    assert_eq!(ids(&view(), all, &[b"table"]), [0, 0]);
}

#[test]
fn a_get_of_a_state_returns_the_wanted_column_only() {
    let get = |qualifier: &'static [u8]| {
        let columns = vec![(Bytes::from_static(b"table"), vec![Bytes::from_static(qualifier)])];
        view().scan(Span::row(Bytes::from_static(b"t")), Rows { columns, ..Rows::default() }).collect::<Vec<_>>()
    };
    assert_eq!(get(b"state").len(), 1);
    assert_eq!(get(b"other"), []);
    let of_later = Rows { times: (2, i64::MAX), ..Rows::default() };
    assert_eq!(view().scan(Span::row(Bytes::from_static(b"t")), of_later).count(), 0);
}

#[test]
fn times_of_a_family_replace_those_of_all() {
    let view = view();
    let count = |rows: Rows| view.scan(Span { include_start: true, ..Span::default() }, rows).count();
    let of = |family: &'static [u8], times| vec![(Bytes::from_static(family), times)];
    assert_eq!(count(Rows { family_times: of(b"table", (2, 3)), ..Rows::default() }), 4, "regions only");
    assert_eq!(count(Rows { times: (2, 3), family_times: of(b"table", (1, 2)), ..Rows::default() }), 2, "states only");
}

#[test]
fn namespaces_are_in_the_order_of_bytes() {
    let namespace =
        |name: &'static [u8]| proto::NamespaceDescriptor { name: Bytes::from_static(name), ..Default::default() };
    // In hbase:meta a comma would end the name of a table.
    let view = View::of_namespaces([&b"n_b"[..], b"n,c", b"n"].map(namespace).to_vec(), 1);
    let keys = view.scan(Span { include_start: true, ..Span::default() }, Rows::default()).map(|row| row.key);
    assert_eq!(keys.collect::<Vec<_>>(), ["n", "n,c", "n_b"]);
}

proptest! {
    #[test]
    fn every_row_of_a_table_is_located(
        cuts in prop::collection::btree_set(prop::collection::vec(prop::sample::select(b"a,\x00\xff.".to_vec()), 1..4), 0..6),
        row in prop::collection::vec(prop::sample::select(b"a,\x00\xff.".to_vec()), 0..5),
        descending: bool,
    ) {
        let mut bounds = vec![Vec::new()];
        bounds.extend(cuts);
        bounds.push(Vec::new());
        let count = bounds.len() as u64;
        let regions: Vec<RegionRow> = bounds.windows(2).zip(1..).map(|(pair, at)| {
            // Ids need not rise with the rows.
            region("t", &pair[0], &pair[1], if descending { count - at } else { at })
        }).collect();
        let expected = regions.iter().find(|region| region.range.contains(&row)).map(|region| region.region.0);
        let view = View::of_meta(regions, Vec::new(), 1);
        prop_assert_eq!(located(&view, "t", &row), expected);
    }

    #[test]
    fn a_span_is_one_stretch_of_rows(
        start in prop::collection::vec(prop::sample::select(b"t2,\x00b".to_vec()), 0..6),
        stop in prop::collection::vec(prop::sample::select(b"t2,\x00b".to_vec()), 0..6),
        flags in any::<(bool, bool, bool)>(),
    ) {
        let (include_start, include_stop, reversed) = flags;
        let view = view();
        let span = Span { start: start.into(), include_start, stop: stop.into(), include_stop, reversed };
        let mut expected: Vec<&Bytes> =
            view.entries.iter().map(|(key, _)| key).filter(|key| span.contains(key, MetaRow::compare)).collect();
        if reversed {
            expected.reverse();
        }
        let found: Vec<Bytes> = view.scan(span.clone(), Rows::default()).map(|row| row.key).collect();
        prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
}
