//! Tests of key parts hold against a model that decodes each key, and the rows they give contain every row that passes.

use proptest::prelude::*;
use terrane_types::{KeyRange, Projection};

use super::*;
use crate::RowFilter;

const KEYS: [&str; 3] = [
    "user:u32, time:desc i64, name:text",
    "bucket3, user:u32, time:desc i64, name:text",
    "user:u32, time:desc i64, name:tail",
];

fn key(at: usize) -> KeyDeclaration {
    KeyDeclaration::parse(KEYS[at]).expect("a key")
}

fn filter(key: &KeyDeclaration, text: &str) -> RowFilter {
    let filter = Filter::from_text(text).and_then(|filter| filter.with_key(Some(key)));
    RowFilter::new(&Projection::all(), &filter.unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// Whether the row passes, by its packed form without cells: only tests of the key are here.
fn passes(filter: &RowFilter, row: &[u8]) -> bool {
    let mut block = Vec::new();
    let start = terrane_types::rows::begin_row(&mut block, row);
    terrane_types::rows::end_row(&mut block, start);
    filter.clone().judge(&mut block, 0) == crate::Verdict::Shown
}

/// A part, a relation and a value or two, as text and as what it means for a row.
#[derive(Clone, Debug)]
struct Drawn {
    part: usize,
    /// One of [`RELATIONS`], or one of [`WORDS`] behind them.
    relation: usize,
    value: i64,
    other: i64,
}

const WORDS: [&str; 4] = ["in", "not in", "between", "not between"];

type Holds = fn(std::cmp::Ordering) -> bool;

const RELATIONS: [(&str, Holds); 6] = [
    ("=", std::cmp::Ordering::is_eq),
    ("!=", std::cmp::Ordering::is_ne),
    ("<", std::cmp::Ordering::is_lt),
    ("<=", std::cmp::Ordering::is_le),
    (">", std::cmp::Ordering::is_gt),
    (">=", std::cmp::Ordering::is_ge),
];

fn name_of(value: i64) -> String {
    ["", "a", "ab", "b"][usize::try_from(value).expect("small")].to_owned()
}

impl Drawn {
    fn text(&self) -> String {
        let literal = |value: i64| if self.part == 2 { format!("'{}'", name_of(value)) } else { value.to_string() };
        let (value, other) = (literal(self.value), literal(self.other));
        let part = ["user", "time", "name"][self.part];
        match self.relation.checked_sub(RELATIONS.len()).map(|word| WORDS[word]) {
            None => format!("key({part}) {} {value}", RELATIONS[self.relation].0),
            Some(word) if word.ends_with("in") => format!("key({part}) {word} ({value}, {other})"),
            Some(word) => format!("key({part}) {word} {value} and {other}"),
        }
    }

    fn holds(&self, row: &(i64, i64, i64)) -> bool {
        // The names sort as their numbers do.
        let (found, value, other) = ([row.0, row.1, row.2][self.part], self.value, self.other);
        match self.relation.checked_sub(RELATIONS.len()) {
            None => RELATIONS[self.relation].1(found.cmp(&value)),
            Some(0) => found == value || found == other,
            Some(1) => found != value && found != other,
            Some(2) => (value..=other).contains(&found),
            Some(_) => !(value..=other).contains(&found),
        }
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (0..3_usize, 0..RELATIONS.len() + WORDS.len(), 0..4_i64, 0..4_i64)
        .prop_map(|(part, relation, value, other)| Drawn { part, relation, value, other })
}

proptest! {
    #[test]
    fn parts_are_compared_by_value_and_no_passing_row_is_clipped(
        at in 0..KEYS.len(),
        tests in proptest::collection::vec(drawn(), 1..5),
        any in any::<bool>(),
        row in (0..4_i64, 0..4_i64, 0..4_i64),
    ) {
        let key = key(at);
        let texts: Vec<String> = tests.iter().map(Drawn::text).collect();
        let filter = filter(&key, &texts.join(if any { " or " } else { " and " }));
        let expected =
            if any { tests.iter().any(|test| test.holds(&row)) } else { tests.iter().all(|test| test.holds(&row)) };
        let bytes = key.encode(&[row.0.to_string(), row.1.to_string(), name_of(row.2)]).expect("a row");
        prop_assert_eq!(passes(&filter, bytes.as_bytes()), expected, "{}", texts.join(", "));
        if expected {
            prop_assert!(filter.may_pass(bytes.as_bytes()), "its rows hold it");
            let clipped = filter.clip(&KeyRange::all()).expect("a row passes");
            prop_assert!(clipped.contains(bytes.as_bytes()), "{}", clipped);
        }
    }
}

#[test]
fn equal_leading_parts_and_bounds_of_the_next_are_one_range() {
    let key = key(0);
    let clipped = |text: &str| filter(&key, text).clip(&KeyRange::all());
    let prefix = |parts: &[&str]| key.prefix_ranges(parts).expect("a prefix").remove(0);
    assert_eq!(clipped("key(user) = 7"), Some(prefix(&["7"])));
    assert_eq!(clipped("key(name) = 'a' and key(time) = 5 and key(user) = 7"), Some(prefix(&["7", "5", "a"])));
    let newer = clipped("key(user) = 7 and key(time) >= 5").expect("rows");
    assert_eq!((newer.start, newer.end), (prefix(&["7"]).start, prefix(&["7", "5"]).end), "newer rows sort first");
    assert_eq!(clipped("key(time) = 5"), Some(KeyRange::all()), "any user can have it");
    assert_eq!(clipped("key(user) = 7 and key(user) = 8"), None);
}

#[test]
fn values_of_several_parts_are_one_range_for_each_combination() {
    let key = key(0);
    let ranges = |text: &str| {
        let filter = Filter::from_text(text).and_then(|filter| filter.with_key(Some(&key))).expect(text);
        crate::row_set::RowSet::of(&filter)
    };
    let prefix = |parts: &[&str]| key.prefix_ranges(parts).expect("a prefix").remove(0);
    let users = ranges("key(user) in (7, 9) and key(time) = 5");
    assert_eq!(users, crate::row_set::RowSet::new(vec![prefix(&["7", "5"]), prefix(&["9", "5"])]));
    let between = ranges("key(user) = 7 and key(time) between 5 and 8");
    let range = KeyRange { start: prefix(&["7", "8"]).start, end: prefix(&["7", "5"]).end };
    assert_eq!(between, crate::row_set::RowSet::new(vec![range]), "the newest comes first");
    assert_eq!(ranges("(key(user) = 7 and key(time) >= 5) and key(time) <= 8"), between, "nested as well");
    let many: Vec<String> = (0..2_000).map(|user| user.to_string()).collect();
    let many = ranges(&format!("key(user) in ({}) and key(time) = 5", many.join(", ")));
    assert!(many.contains(&key.encode(&["1999", "5", "a"]).expect("a row").into_bytes()));
}

#[test]
fn a_bucket_is_computed_and_each_has_its_range() {
    let filter = filter(&key(1), "key(user) = 7");
    assert!(filter.may_seek(), "from bucket to bucket");
    assert!(!filter.may_pass(&[0, 0, 0, 0, 8]));
    let refused = Filter::from_text("key(bucket) = 1").and_then(|filter| filter.with_key(Some(&key(1))));
    assert!(refused.expect_err("computed").to_string().contains("no part \"bucket\""));
}

#[test]
fn a_row_that_is_no_such_key_passes_nothing() {
    let key = key(0);
    for text in ["key(user) != 7", "not key(user) = 7 and key(user) >= 0", "key(time) < 9"] {
        assert!(!passes(&filter(&key, text), b"abc"), "{text}");
    }
}

#[test]
fn the_text_that_travels_carries_the_key() {
    let sent =
        |text: &str| Filter::from_text(text).and_then(|filter| filter.with_key(Some(&key(0)))).map(|f| f.to_string());
    let text = sent(r"key(user) in (7, 8) and key(name) = 'O\x27Brien' or key(time) < -5").expect("a filter");
    assert_eq!(
        text,
        "(key('user:u32, time:desc i64, name:text', user) in (7, 8) and \
         key('user:u32, time:desc i64, name:text', name) = 'O\\x27Brien') or \
         key('user:u32, time:desc i64, name:text', time) < -5"
    );
    let parsed = Filter::from_text(&text).expect("it parses");
    assert_eq!(parsed.part_without_key(), None);
    assert_eq!(parsed.to_string(), text);
    let bound = Filter::with("key(user) = ? and key(name) = ?").bind(7_i64).bind("O'Brien").build().expect("a filter");
    assert_eq!(bound.to_string(), r"key(user) = 7 and key(name) = 'O\x27Brien'");
    assert_eq!(bound.part_without_key(), Some("user"));
}

#[test]
fn mistakes_name_the_part_and_what_it_takes() {
    let refused = |text: &str, key: Option<&KeyDeclaration>| {
        let filter = Filter::from_text(text).and_then(|filter| filter.with_key(key));
        filter.expect_err(text).to_string()
    };
    let key = key(0);
    for (text, parts) in [
        ("key(usr) = 7", ["no part \"usr\"", "did you mean user?"]),
        ("key(user) = x", ["part user (u32)", "not an integer from 0 to 4294967295"]),
        ("key(user) in (1, -1)", ["part user (u32)", "\"-1\""]),
        ("prefix(key(name), 'a')", ["compared with = != < <= > >= in or between", "test the row"]),
        ("i64(key(user)) = 7", ["the type that the table declares", "^"]),
        ("key() = 7", ["the name of a part", "^"]),
    ] {
        let error = refused(text, Some(&key));
        assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
    }
    assert!(refused("key(user) = 7", None).contains("declares no key"));
}
