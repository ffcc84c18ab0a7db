//! The text of filters: what is written parses back into the same filter, and errors show the place.

use proptest::prelude::*;

use bytes::Bytes;
use terrane_types::*;

use crate::limits::*;
use crate::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        "[a-z0-9 '?\\\\.:-]{0,6}".prop_map(Bytes::from),
        proptest::collection::vec(any::<u8>(), 0..5).prop_map(Bytes::from),
    ]
}

fn family() -> impl Strategy<Value = FamilyName> {
    "[a-zA-Z0-9_.-]{1,4}|row|and|not|in|\\.\\.x|a b|é'|f,=\\(|\u{202e}".prop_map(|name| FamilyName::new(&name).unwrap())
}

pub(crate) fn subject() -> impl Strategy<Value = Subject> {
    prop_oneof![
        Just(Subject::Row),
        Just(Subject::Family),
        Just(Subject::Qualifier),
        Just(Subject::Value),
        (family(), bytes(), any::<bool>(), any::<bool>()).prop_map(|(family, qualifier, pass_missing, any_version)| {
            Subject::Column(ColumnSubject { family, qualifier, pass_missing, any_version })
        }),
    ]
}

fn operand() -> impl Strategy<Value = (ValueType, Bytes)> {
    prop_oneof![
        bytes().prop_map(|bytes| (ValueType::Bytes, bytes)),
        ".{0,5}".prop_map(|text| (ValueType::Text, Bytes::from(text))),
        any::<i32>().prop_map(|number| (ValueType::I32, number.to_operand())),
        any::<i64>().prop_map(|number| (ValueType::I64, number.to_operand())),
        any::<i64>().prop_map(|number| (ValueType::Time, Time::from_millis(number).to_operand())),
        any::<u32>().prop_map(|number| (ValueType::U32, number.to_operand())),
        any::<u64>().prop_map(|number| (ValueType::U64, number.to_operand())),
        any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(|n| (ValueType::F64, n.to_operand())),
    ]
}

fn relation() -> impl Strategy<Value = Relation> {
    proptest::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Less,
        Relation::LessOrEqual,
        Relation::Greater,
        Relation::GreaterOrEqual,
    ])
}

fn range() -> impl Strategy<Value = KeyRange> {
    (bytes(), bytes()).prop_map(|(a, b)| {
        if b.is_empty() || a <= b { KeyRange { start: a, end: b } } else { KeyRange { start: b, end: a } }
    })
}

fn test() -> impl Strategy<Value = Filter> {
    prop_oneof![
        (subject(), operand(), relation()).prop_map(|(subject, (read_as, operand), relation)| Filter::Compare {
            subject,
            read_as,
            relation,
            operand
        }),
        (subject(), proptest::collection::vec(any::<i64>(), 1..4)).prop_map(|(subject, n)| subject.is_one_of(n)),
        (subject(), bytes()).prop_map(|(subject, prefix)| subject.has_prefix(prefix)),
        (subject(), bytes(), any::<bool>()).prop_map(|(subject, part, ignore_case)| Filter::Contains {
            subject,
            part,
            ignore_case
        }),
        (subject(), "[a-z'\\^.?+]{0,5}")
            .prop_filter_map("a pattern", |(subject, text)| { Some(subject.matches(Pattern::new(&text).ok()?)) }),
        (subject(), proptest::collection::vec(any::<u8>(), 1..4)).prop_map(|(subject, mask)| Filter::Bits {
            subject,
            operator: BitOperator::Xor,
            mask: mask.into()
        }),
        (family(), bytes()).prop_map(|(family, qualifier)| Filter::Exists { family, qualifier }),
        proptest::collection::vec(range(), 1..4).prop_map(Filter::Rows),
        proptest::collection::vec(proptest::option::of(any::<u8>()), 1..6)
            .prop_map(|places| Filter::Fuzzy(vec![FuzzyKey::new(places).unwrap()])),
        range().prop_map(|KeyRange { start, end }| Filter::Qualifiers { start, end }),
        proptest::collection::vec(any::<i64>(), 1..4).prop_map(Filter::Timestamps),
        (1..u32::MAX, any::<u32>()).prop_map(|(limit, offset)| Filter::Columns { limit, offset }),
        Just(Filter::FirstKeyOnly),
        (0..=1_000_000u32, any::<u64>()).prop_map(|(millionths, seed)| Filter::Random { millionths, seed }),
    ]
}

fn expression() -> impl Strategy<Value = Filter> {
    test().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Filter::And),
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Filter::Or),
            inner.clone().prop_map(|inner| Filter::Not(Box::new(inner))),
            inner.clone().prop_map(|inner| Filter::Skip(Box::new(inner))),
            inner.prop_map(|inner| Filter::Any(Box::new(inner))),
        ]
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![
        expression(),
        (expression(), 1..9u64, any::<bool>()).prop_map(|(inner, rows, lengths)| Filter::And(vec![
            Filter::While(Box::new(inner)),
            Filter::Page(rows),
            Filter::KeysOnly { lengths },
        ])),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(filter in filter()) {
        let text = filter.to_string();
        let read: Filter = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
        prop_assert_eq!(read, filter, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9 '\\\\().,:<>=!]{0,40}|.{0,20}") {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn a_text_that_was_cut_or_changed_does_no_harm(filter in filter(), cut: u16, change: u8) {
        let mut text = filter.to_string().into_bytes();
        let at = usize::from(cut) % text.len();
        text[at] = change & 0x7F;
        let _ = String::from_utf8_lossy(&text).parse::<Filter>();
        let _ = String::from_utf8_lossy(&text[..at]).parse::<Filter>();
    }
}

#[test]
fn the_example_of_the_grammar_is_read() {
    let filter = Filter::from_text("i32(data:airtemp) > 100 and prefix(row, '0290')").unwrap();
    let airtemp = Subject::column("data".parse().unwrap(), "airtemp");
    assert_eq!(filter, airtemp.is(Relation::Greater, 100_i32).and(Filter::row_prefix("0290")));
}

#[test]
fn texts_that_mean_the_same_are_one_filter() {
    let same = [
        ("not exists(f:q)", "absent(f:q)"),
        ("rows('a'..'b\\x00')", "rows('a'..='b')"),
        ("f:q = 'x'", "bytes(f:q)=='x'"),
        ("(row < 'a' or row > 'b') and family = 'f'", "((row<'a') or (row>'b')) and (family='f')"),
        ("value != 'x'", "value <> 'x'"),
        ("f:'a b' = ''", "'f':'a b' = ''"),
        ("random(0.1)", "random(0.100000, 0)"),
        ("columns(5)", "columns(5, 0)"),
        ("row = 'a' AND NOT f:q = 'b' OR row In ('c', 'd')", "row = 'a' and not f:q = 'b' or row in ('c', 'd')"),
        ("f:q is null", "not exists(f:q)"),
        ("i64(f:q) IS NOT NULL", "exists(f:q)"),
        ("i64(f:q) between -1 and 5", "i64(f:q) >= -1 and i64(f:q) <= 5"),
        (
            "f:p = 'x' and f:q between 'a' and 'b' and f:r = 'y'",
            "f:p = 'x' and f:q >= 'a' and f:q <= 'b' and f:r = 'y'",
        ),
        ("not row between 'a' and 'b'", "not (row >= 'a' and row <= 'b')"),
        ("i64(f:q) not between 1 and 5", "i64(f:q) < 1 or i64(f:q) > 5"),
        ("f:q not in ('a', 'b')", "f:q != 'a' and f:q != 'b'"),
        ("f:q like 'ab%'", "prefix(f:q, 'ab')"),
        ("f:q not like 'ab%'", "exists(f:q) and not prefix(f:q, 'ab')"),
        ("text(f:q) not like 'ab'", "exists(f:q) and not text(f:q) = 'ab'"),
        ("bytes(f:q, pass_missing) not like '%a%'", "not contains(f:q, 'a')"),
        ("value not ilike '%a%'", "not icontains(value, 'a')"),
        ("key(user) between 1 and 2 or key(user) not in (5)", "key(user) >= 1 and key(user) <= 2 or key(user) != 5"),
        ("bits(row, XOR, '\\x01')", "bits(row, xor, '\\x01')"),
        // Words that are names stay names.
        ("and:like = 'x' and between:is = 'null'", "'and':'like' = 'x' and 'between':'is' = 'null'"),
    ];
    for (one, other) in same {
        assert_eq!(Filter::from_text(one).unwrap(), Filter::from_text(other).unwrap(), "{one}");
        assert_eq!(Filter::from_text(other).unwrap().to_string().parse(), Filter::from_text(one), "{one}");
    }
}

/// A comparison by a keyword and whether a value passes it; `None` is an absent column or one of another type.
#[derive(Clone, Debug)]
enum Words {
    In(Vec<i64>),
    Between(i64, i64),
    Null,
}

impl Words {
    fn text(&self, negated: bool) -> String {
        let not = if negated { "NOT " } else { "" };
        match self {
            Self::In(values) => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                format!("i64(f:q) {not}in ({})", values.join(", "))
            }
            Self::Between(low, high) => format!("i64(f:q) {not}BETWEEN {low} and {high}"),
            Self::Null => format!("i64(f:q) IS {not}NULL"),
        }
    }

    /// As SQL says: what is compared with an absent value is never true, whether it is negated or not.
    fn passes(&self, negated: bool, column: Option<&[u8]>) -> bool {
        let number = column.and_then(|bytes| bytes.try_into().ok()).map(i64::from_be_bytes);
        match self {
            Self::In(values) => number.is_some_and(|number| values.contains(&number) != negated),
            Self::Between(low, high) => number.is_some_and(|number| (*low..=*high).contains(&number) != negated),
            Self::Null => column.is_none() != negated,
        }
    }
}

proptest! {
    #[test]
    fn words_mean_what_they_mean_in_sql(
        words in prop_oneof![
            proptest::collection::vec(-3..3_i64, 1..24).prop_map(Words::In),
            (-3..3_i64, -3..3_i64).prop_map(|(low, high)| Words::Between(low, high)),
            Just(Words::Null),
        ],
        negated: bool,
        column in proptest::option::of(prop_oneof![
            (-3..3_i64).prop_map(|number| number.to_be_bytes().to_vec()),
            Just(b"five".to_vec()),
        ]),
    ) {
        let text = words.text(negated);
        let filter = Filter::from_text(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter.clone()), "{}", &text);
        let mut block = Vec::new();
        let start = rows::begin_row(&mut block, b"r");
        if let Some(value) = &column {
            cell::pack(&mut block, CellRef::put(b"f", b"q", 1, value));
        }
        cell::pack(&mut block, CellRef::put(b"f", b"z", 1, b""));
        rows::end_row(&mut block, start);
        let shown = RowFilter::new(&Projection::all(), &filter).judge(&mut block, 0) == Verdict::Shown;
        prop_assert_eq!(shown, words.passes(negated, column.as_deref()), "{} of {:?}", text, column);
    }
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    let read = |text: &str| format!("{:?}", Filter::from_text(text).unwrap());
    assert_eq!(read("page(1)"), "Page(1)");
    assert_eq!(
        read("not first_key_only() and columns(1) or timestamps(1)"),
        "Or([And([Not(FirstKeyOnly), Columns { limit: 1, offset: 0 }]), Timestamps([1])])"
    );
}

/// Each text of the file with what is answered to it. A difference is shown with the whole file as it would be now.
#[test]
fn errors_show_the_place_and_what_was_expected() {
    let golden = include_str!("testdata/errors.txt");
    let mut rewritten = String::new();
    for block in golden.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let text = block.lines().next().unwrap().trim_start_matches("> ");
        let answer = match Filter::from_text(text) {
            Ok(filter) => format!("read as: {filter}"),
            Err(error) => error.to_string(),
        };
        rewritten.push_str(&format!("> {text}\n{answer}\n\n"));
    }
    assert_eq!(golden.trim(), rewritten.trim(), "\n{rewritten}");
}

#[test]
fn limits_are_kept_whether_read_or_built() {
    let deep = (0..20).fold(Filter::FirstKeyOnly, |inner, _| Filter::Not(Box::new(inner)));
    assert_eq!(deep.check(), Err(FilterError::TooDeep { depth: 17, limit: 16 }));
    assert!(matches!(Filter::from_text(&deep.to_string()), Err(FilterError::TooDeep { .. })));
    let open = "(".repeat(100_000);
    assert!(matches!(Filter::from_text(&open), Err(FilterError::TooLong { .. })));
    assert!(matches!(Filter::from_text(&open[..60_000]), Err(FilterError::TooDeep { .. })));
    let nots = "not ".repeat(10_000);
    assert!(matches!(Filter::from_text(&nots), Err(FilterError::TooDeep { .. })));
    let wide = Filter::Or(vec![Filter::FirstKeyOnly; NODES_MAX]);
    assert!(matches!(wide.check(), Err(FilterError::TooMany { what: "tests and connectives", .. })));
    let entries = Filter::Timestamps(vec![1; ENTRIES_MAX + 1]);
    assert!(matches!(entries.check(), Err(FilterError::TooMany { what: "entries in its lists", .. })));
    let patterns = Filter::Or(vec![Subject::Row.matches(Pattern::new("a").unwrap()); PATTERNS_MAX + 1]);
    assert!(matches!(patterns.check(), Err(FilterError::TooMany { what: "regular expressions", .. })));
    let long = Filter::row_prefix(vec![0xFF; TEXT_BYTES_MAX / 2]);
    assert!(matches!(long.check(), Err(FilterError::TooLong { .. })), "its text has four bytes for each");
    assert!(matches!(Pattern::new("(((a{100}){100}){100})"), Err(FilterError::Pattern { .. })));
    assert!(matches!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1)), Err(FilterError::Pattern { .. })));
    let inner = Filter::Not(Box::new(Filter::Page(3)));
    assert_eq!(inner.check(), Err(FilterError::Misplaced { name: "page" }));
    let odd = Filter::Compare {
        subject: Subject::Value,
        read_as: ValueType::I32,
        relation: Relation::Equal,
        operand: Bytes::from_static(b"abc"),
    };
    assert!(matches!(odd.check(), Err(FilterError::BadOperand { .. })));
    assert!(Invalid::from(odd.check().unwrap_err()).what.contains("4 bytes"));
}
