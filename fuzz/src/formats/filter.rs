//! Filters: their text, which is also their form on the wire, and their evaluation on rows.

use bytes::Bytes;
use terrane_filter::{
    BitOperator, ColumnSubject, Filter, FuzzyKey, Operand as _, Pattern, Relation, RowFilter, Subject,
};
use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, round_trip};
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellKind, FamilyName, KeyRange, PackedRows, Projection, ValueType};

/// The formats of this module.
pub const FORMATS: &[Format] = &[TEXT, EVALUATION];

/// The text of a filter.
const TEXT: Format = Format {
    name: "filter-text",
    damage: Damage::Undetected,
    read: |bytes| again(Filter::from_text(std::str::from_utf8(bytes).ok()?), |filter| filter.to_string().into_bytes()),
    draw: |dice| checked(&filter(dice)),
    limits: || {
        let prefix = vec![b'p'; terrane_filter::limits::TEXT_BYTES_MAX - "prefix(row, '')".len()];
        let entries = Filter::Timestamps(vec![i64::MAX; terrane_filter::limits::ENTRIES_MAX]);
        vec![checked(&Filter::row_prefix(prefix)), checked(&entries)]
    },
};

/// The text of a filter, a zero byte, and packed rows that it judges.
const EVALUATION: Format = Format {
    name: "filter-rows",
    damage: Damage::Undetected,
    read: |bytes| {
        let at = bytes.iter().position(|byte| *byte == 0)?;
        let filter = Filter::from_text(std::str::from_utf8(&bytes[..at]).ok()?).map_err(|error| error.to_string());
        let mut filter = RowFilter::new(&Projection::all(), &filter.ok()?);
        assert!(filter.clip(&KeyRange::all()).is_none_or(|range| KeyRange::all().covers(&range)));
        for row in PackedRows::new(Bytes::copy_from_slice(&bytes[at + 1..])) {
            let row = row.map_err(|error| error.to_string()).ok()?;
            // Readers resolve tombstones before they filter.
            if row.cells.iter().all(|cell| cell.kind == CellKind::Put) {
                judge(&mut filter, row.row.as_bytes(), row.cells.as_bytes());
            }
        }
        Some(bytes.to_vec())
    },
    draw: |dice| {
        let families = ["f", "g"].map(|name| FamilyName::new(name).expect("a valid name"));
        let mut out = [checked(&filter(dice)), vec![0]].concat();
        for _ in 0..dice.below(4) {
            let (row, cells) = (draw::row(dice), draw::cells(dice, &families, 4));
            terrane_types::pack_row(&mut out, &row, &cells);
        }
        out
    },
    limits: Vec::new,
};

/// What passes is a row with some of its cells, and the same for a second filter of the same text.
fn judge(filter: &mut RowFilter, row: &[u8], cells: &[u8]) {
    let may_pass = filter.may_pass(row);
    if filter.may_seek() {
        for reverse in [false, true] {
            assert!(!format!("{:?}", filter.seek(row, reverse)).is_empty());
        }
    }
    let judged = |filter: &mut RowFilter| {
        let mut block = b"before".to_vec();
        let start = begin_row(&mut block, row);
        block.extend_from_slice(cells);
        end_row(&mut block, start);
        let verdict = format!("{:?}", filter.judge(&mut block, 6));
        (verdict, block)
    };
    let (verdict, block) = judged(filter);
    let again = judged(filter);
    assert_eq!(again, (verdict.clone(), block.clone()), "a filter judges a row differently the second time");
    assert!(block.starts_with(b"before"), "a filter changed what is before the row");
    assert!(may_pass || verdict == "Hidden", "a row passes although its key cannot");
    for passed in PackedRows::new(Bytes::copy_from_slice(&block[6..])) {
        assert_eq!(passed.expect("a judged row is a row").row.as_bytes(), row);
    }
}

fn checked(filter: &Filter) -> Vec<u8> {
    round_trip(filter, filter.to_string().into_bytes(), |bytes| Filter::from_text(&String::from_utf8_lossy(bytes)))
}

/// A filter that passes its check.
fn filter(dice: &mut Dice) -> Filter {
    let inner = expression(dice, 3);
    match dice.below(6) {
        0 => Filter::And(vec![Filter::While(Box::new(inner)), Filter::Page(1 + dice.number() / 2)]),
        1 => Filter::And(vec![inner, Filter::KeysOnly { lengths: dice.flag() }]),
        _ => inner,
    }
}

fn expression(dice: &mut Dice, depth: usize) -> Filter {
    if depth == 0 || dice.flag() {
        return test(dice);
    }
    let two = |dice: &mut Dice| vec![expression(dice, depth - 1), expression(dice, depth - 1)];
    match dice.below(5) {
        0 => Filter::And(two(dice)),
        1 => Filter::Or(two(dice)),
        2 => Filter::Not(Box::new(expression(dice, depth - 1))),
        3 => Filter::Skip(Box::new(expression(dice, depth - 1))),
        _ => Filter::Any(Box::new(expression(dice, depth - 1))),
    }
}

fn subject(dice: &mut Dice) -> Subject {
    match dice.below(5) {
        0 => Subject::Row,
        1 => Subject::Family,
        2 => Subject::Qualifier,
        3 => Subject::Value,
        _ => Subject::Column(ColumnSubject {
            family: dice.pick(&["f", "g"]).parse().expect("a valid name"),
            qualifier: dice.bytes(10).into(),
            pass_missing: dice.flag(),
            any_version: dice.flag(),
        }),
    }
}

fn test(dice: &mut Dice) -> Filter {
    let subject = subject(dice);
    match dice.below(13) {
        0 | 1 => {
            let relation = dice.pick(&[Relation::Equal, Relation::NotEqual, Relation::Less, Relation::GreaterOrEqual]);
            let (read_as, operand) = match dice.below(4) {
                0 => (ValueType::I64, dice.signed().to_operand()),
                1 => (ValueType::U32, dice.number32().to_operand()),
                2 => (ValueType::F64, dice.pick(&[0.5, -1e300, 0.0]).to_operand()),
                _ => (ValueType::Bytes, dice.bytes(12).into()),
            };
            Filter::Compare { subject, read_as, relation, operand }
        }
        2 => subject.is_one_of([dice.signed(), dice.signed()]),
        3 => subject.has_prefix(dice.bytes(10)),
        4 => Filter::Contains { subject, part: dice.bytes(6).into(), ignore_case: dice.flag() },
        5 => {
            let pattern = dice.pick(&["^a", "[0-9]+$", "(?-u:\\xFF)", "it's", "a|b\\\\"]);
            subject.matches(Pattern::new(pattern).expect("a valid expression"))
        }
        6 => {
            let operator = dice.pick(&[BitOperator::And, BitOperator::Or, BitOperator::Xor]);
            Filter::Bits { subject, operator, mask: dice.array::<3>().to_vec().into() }
        }
        7 => Filter::Exists { family: "f".parse().expect("a valid name"), qualifier: dice.bytes(10).into() },
        8 => Filter::Rows(vec![draw::range(dice), draw::range(dice)]),
        9 => {
            let places = [Some(dice.array::<1>()[0]), None, Some(b'?')];
            Filter::Fuzzy(vec![FuzzyKey::new(places.to_vec()).expect("three places")])
        }
        10 => {
            let KeyRange { start, end } = draw::range(dice);
            Filter::Qualifiers { start, end }
        }
        11 => Filter::Timestamps(vec![dice.signed(), 0]),
        _ => dice.pick(&[
            Filter::FirstKeyOnly,
            Filter::Random { millionths: 100_001, seed: u64::MAX },
            Filter::Columns { limit: 3, offset: u32::MAX },
        ]),
    }
}
