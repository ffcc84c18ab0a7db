//! What is refused, and what an evaluator does over several rows.

use bytes::Bytes;
use prost::Message;
use terrane_regionserver::edge::RowJudge;
use terrane_types::cell::{CellRef, pack};
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellKind, KeyRange, PackedRows};

use super::evaluator::{Evaluator, StoreLimits};
use crate::limits::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_ENTRIES_MAX, FILTERS_MAX, PATTERNS_MAX};
use crate::proto;

fn named(name: &str, message: &impl Message) -> proto::Filter {
    let name = format!("org.apache.hadoop.hbase.filter.{name}");
    proto::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }
}

fn page(page_size: i64) -> proto::Filter {
    named("PageFilter", &proto::PageFilter { page_size })
}

fn prefix(prefix: &'static [u8]) -> proto::Filter {
    named("PrefixFilter", &proto::PrefixFilter { prefix: Some(Bytes::from_static(prefix)) })
}

fn list(filters: Vec<proto::Filter>) -> proto::Filter {
    let operator = proto::filter_list::Operator::MustPassAll.into();
    named("FilterList", &proto::FilterList { operator, filters })
}

fn wrapped(name: &str, filter: proto::Filter) -> proto::Filter {
    named(name, &proto::WrappingFilter { filter })
}

fn value(comparator: &str, message: &impl Message) -> proto::Filter {
    let proto::Filter { name, serialized_filter } = named(comparator, message);
    let comparator = Some(proto::Comparator { name, serialized_comparator: serialized_filter });
    let compare_filter = proto::CompareFilter { compare_op: proto::CompareType::Equal.into(), comparator };
    named("ValueFilter", &proto::ComparingFilter { compare_filter })
}

fn pattern(pattern: &str) -> proto::Filter {
    let (pattern, charset) = (pattern.to_owned(), "UTF-8".to_owned());
    value("RegexStringComparator", &proto::RegexStringComparator { pattern, pattern_flags: 32, charset, engine: None })
}

fn evaluator(filter: &proto::Filter) -> Evaluator {
    Evaluator::new(Some(filter), 1, StoreLimits::default()).unwrap_or_else(|refused| panic!("{refused}"))
}

#[track_caller]
fn refused(filter: &proto::Filter) -> String {
    match Evaluator::new(Some(filter), 1, StoreLimits::default()) {
        Ok(_) => panic!("it is taken"),
        Err(refused) => refused.what,
    }
}

/// The rows that pass, each with one cell, until the evaluator is done.
fn passing(judge: &mut Evaluator, rows: &[&str]) -> Vec<String> {
    let mut passing = Vec::new();
    for row in rows {
        if RowJudge::is_done(judge) {
            break;
        }
        let mut block = Vec::new();
        let start = begin_row(&mut block, row.as_bytes());
        pack(&mut block, CellRef::put(b"f", b"q", 1, b"v"));
        end_row(&mut block, start);
        if judge.judge(&mut block, 0).unwrap() {
            passing.push((*row).to_owned());
        }
    }
    passing
}

#[test]
fn unknown_and_malformed_filters_are_refused_by_name() {
    let other = proto::Filter { name: "com.example.MyFilter".to_owned(), serialized_filter: None };
    assert!(refused(&other).contains("com.example.MyFilter"));
    assert!(refused(&list(vec![page(1), other])).contains("com.example.MyFilter"));
    let unknown = named("NoFilter", &proto::PageFilter { page_size: 1 });
    assert!(refused(&unknown).contains("NoFilter is unknown"));
    let malformed = proto::Filter { serialized_filter: Some(Bytes::from_static(&[0xFF])), ..page(1) };
    assert!(refused(&malformed).contains("PageFilter is malformed"));
    assert!(refused(&value("NoComparator", &proto::PageFilter { page_size: 1 })).contains("NoComparator is unknown"));
    let short = proto::ByteArrayComparable { value: Some(Bytes::from_static(b"short")) };
    let short = proto::BinaryComparator { comparable: short };
    assert!(refused(&value("LongComparator", &short)).contains("5 bytes"));
    assert!(refused(&page(-1)).contains("size -1"));
    assert!(refused(&pattern("\\p{L}")).contains("properties of Unicode"));
}

#[test]
fn limits_are_checked_before_anything_is_read() {
    let nested = |depth| (0..depth).fold(page(1), |filter, _| wrapped("SkipFilter", filter));
    assert!(Evaluator::new(Some(&nested(FILTER_DEPTH_MAX - 1)), 1, StoreLimits::default()).is_ok());
    assert!(refused(&nested(FILTER_DEPTH_MAX)).contains("nested deeper"));
    assert!(refused(&list(vec![page(1); FILTERS_MAX])).contains("filters"));
    assert!(refused(&list(vec![pattern("a"); PATTERNS_MAX + 1])).contains("regular expressions"));
    let timestamps = (0..).take(FILTER_ENTRIES_MAX + 1).collect();
    let times = proto::TimestampsFilter { timestamps, can_hint: None };
    assert!(refused(&named("TimestampsFilter", &times)).contains("timestamps"));
    let stop = proto::InclusiveStopFilter { stop_row_key: Some(vec![0; FILTER_BYTES_MAX].into()) };
    assert!(refused(&named("InclusiveStopFilter", &stop)).contains("limit"));
}

#[test]
fn a_tombstone_of_a_raw_scan_has_no_length_to_show() {
    let mut judge = evaluator(&named("KeyOnlyFilter", &proto::KeyOnlyFilter { len_as_val: true }));
    let mut block = Vec::new();
    let start = begin_row(&mut block, b"r");
    pack(&mut block, CellRef::delete(CellKind::DeleteColumn, b"f", b"q", 2));
    pack(&mut block, CellRef::put(b"f", b"q", 1, b"value"));
    end_row(&mut block, start);
    assert!(judge.judge(&mut block, 0).unwrap());
    let row = PackedRows::new(block.into()).next().unwrap().expect("what is returned is a row");
    let values: Vec<&[u8]> = row.cells.iter().map(|cell| cell.value).collect();
    assert_eq!(values, [&[][..], &[0, 0, 0, 5]]);
}

#[test]
fn a_page_is_counted_on_in_a_copy() {
    let mut judge = evaluator(&page(3));
    assert_eq!(passing(&mut judge, &["a", "b"]), ["a", "b"]);
    let mut copy = evaluator(&page(3));
    assert!(!RowJudge::is_done(&copy));
    assert_eq!(passing(&mut copy, &["a", "b", "c", "d"]), ["a", "b", "c"]);
    assert!(copy.is_over() && !judge.is_over());
    assert!(judge.copy().judge(&mut packed("c"), 0).unwrap());
    // The copy counted for itself.
    assert_eq!(passing(&mut judge, &["c", "d"]), ["c"]);
}

fn packed(row: &str) -> Vec<u8> {
    let mut block = Vec::new();
    let start = begin_row(&mut block, row.as_bytes());
    pack(&mut block, CellRef::put(b"f", b"q", 1, b"v"));
    end_row(&mut block, start);
    block
}

#[test]
fn the_range_is_narrowed_unless_a_filter_watches_the_rows_outside() {
    let all = || KeyRange { start: Bytes::new(), end: Bytes::new() };
    let clipped = |filter: &proto::Filter| evaluator(filter).clip(all()).unwrap();
    let within = KeyRange { start: "b".into(), end: "c".into() };
    assert_eq!(clipped(&list(vec![page(1), prefix(b"b")])), within);
    assert_eq!(clipped(&list(vec![wrapped("WhileMatchFilter", page(1)), prefix(b"b")])), within);
    let watching = list(vec![wrapped("WhileMatchFilter", prefix(b"b")), prefix(b"b")]);
    assert_eq!(clipped(&watching), all());
    assert_eq!(passing(&mut evaluator(&watching), &["a", "b"]), Vec::<String>::new());
    assert!(evaluator(&list(vec![prefix(b"a"), prefix(b"b")])).clip(all()).is_none());
}

#[test]
fn a_value_that_a_comparator_cannot_read_is_an_error() {
    let number = proto::ByteArrayComparable { value: Some(Bytes::from_static(&[0; 8])) };
    let number = proto::BinaryComparator { comparable: number };
    let refused = evaluator(&value("LongComparator", &number)).judge(&mut packed("a"), 0).unwrap_err();
    assert!(refused.what.contains("1 bytes"), "{refused}");
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(name in "(Page|Fuzzy|MultiRow|Column|SingleColumn|List)[A-Z]{0,2}", bytes: Vec<u8>) {
        for name in ["FilterList", "FuzzyRowFilter", "MultiRowRangeFilter", "SingleColumnValueFilter", &name] {
            let name = format!("org.apache.hadoop.hbase.filter.{name}");
            let filter = proto::Filter { name, serialized_filter: Some(Bytes::from(bytes.clone())) };
            drop(Evaluator::new(Some(&filter), 1, StoreLimits::default()));
        }
    }
}
