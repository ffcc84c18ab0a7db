//! Filters compared with a naive evaluation of their definition, on random rows over a small alphabet.

use proptest::prelude::*;

use bytes::Bytes;
use terrane_types::cell::{Cells, pack};
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellRef, FamilyName, KeyRange, Onward, Projection, ValueType};

use crate::*;

/// A cell as the model has it: family, qualifier, timestamp, value.
type ModelCell = (String, Vec<u8>, i64, Vec<u8>);

#[derive(Clone, Debug)]
struct ModelRow {
    key: Vec<u8>,
    /// In reading order.
    cells: Vec<ModelCell>,
}

fn letters(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(vec![0x00, 0x41, 0x61, 0xFF]), length)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        letters(0..4),
        (-2..3i32).prop_map(|number| number.to_be_bytes().to_vec()),
        (-2..3i64).prop_map(|number| number.to_be_bytes().to_vec()),
        proptest::sample::select(vec![-1.5f64, 0.0, 2.0]).prop_map(|number| number.to_be_bytes().to_vec()),
    ]
}

fn row() -> impl Strategy<Value = ModelRow> {
    let cell = (proptest::sample::select(vec!["f", "g"]), letters(0..2), 1..4i64, value());
    (letters(1..4), proptest::collection::vec(cell, 1..9)).prop_map(|(key, cells)| {
        let mut cells: Vec<ModelCell> = cells.into_iter().map(|(f, q, t, v)| (f.to_owned(), q, t, v)).collect();
        cells.sort_by(|a, b| (&a.0, &a.1, -a.2).cmp(&(&b.0, &b.1, -b.2)));
        cells.dedup_by(|a, b| (&a.0, &a.1, a.2) == (&b.0, &b.1, b.2));
        ModelRow { key, cells }
    })
}

fn subject() -> impl Strategy<Value = Subject> {
    let column = (proptest::sample::select(vec!["f", "g"]), letters(0..2), any::<bool>(), any::<bool>());
    prop_oneof![
        Just(Subject::Row),
        Just(Subject::Family),
        Just(Subject::Qualifier),
        Just(Subject::Value),
        column.prop_map(|(family, qualifier, pass_missing, any_version)| {
            let family = FamilyName::new(family).unwrap();
            Subject::Column(ColumnSubject { family, qualifier: qualifier.into(), pass_missing, any_version })
        }),
    ]
}

fn operand() -> impl Strategy<Value = (ValueType, Bytes)> {
    prop_oneof![
        letters(0..3).prop_map(|bytes| (ValueType::Bytes, bytes.into())),
        Just((ValueType::Bytes, Bytes::from_static(b"g"))),
        Just((ValueType::Text, Bytes::from_static(b"A"))),
        (-2..3i32).prop_map(|number| (ValueType::I32, number.to_operand())),
        (-2..3i64).prop_map(|number| (ValueType::I64, number.to_operand())),
        (0..3u32).prop_map(|number| (ValueType::U32, number.to_operand())),
        (0..3u64).prop_map(|number| (ValueType::U64, number.to_operand())),
        proptest::sample::select(vec![-1.5f64, 0.0, 2.0]).prop_map(|number| (ValueType::F64, number.to_operand())),
    ]
}

fn range() -> impl Strategy<Value = (Bytes, Bytes)> {
    (letters(0..3), letters(0..3)).prop_map(|(a, b)| {
        let (start, end) = if b.is_empty() || a <= b { (a, b) } else { (b, a) };
        (start.into(), end.into())
    })
}

fn test() -> impl Strategy<Value = Filter> {
    let relation = proptest::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Less,
        Relation::LessOrEqual,
        Relation::Greater,
        Relation::GreaterOrEqual,
    ]);
    let bits = proptest::sample::select(vec![BitOperator::And, BitOperator::Or, BitOperator::Xor]);
    let places = proptest::option::of(proptest::sample::select(vec![0x00u8, 0x41, 0x61, 0xFF]));
    prop_oneof![
        4 => (subject(), operand(), relation).prop_map(|(subject, (read_as, operand), relation)| Filter::Compare {
            subject, read_as, relation, operand
        }),
        1 => (subject(), proptest::collection::vec(letters(0..3), 1..4)).prop_map(|(subject, some)| {
            subject.is_one_of(some.into_iter().map(Bytes::from))
        }),
        1 => (subject(), letters(0..2)).prop_map(|(subject, prefix)| subject.has_prefix(prefix)),
        1 => (subject(), letters(0..2), any::<bool>()).prop_map(|(subject, part, ignore_case)| Filter::Contains {
            subject, part: part.into(), ignore_case
        }),
        1 => (subject(), proptest::sample::select(vec!["^A", "a$", "(?-u:\\xFF)", "[Aa]{2}", "g"])).prop_map(
            |(subject, text)| subject.matches(Pattern::new(text).unwrap())),
        1 => (subject(), bits, letters(1..4)).prop_map(|(subject, operator, mask)| Filter::Bits {
            subject, operator, mask: mask.into()
        }),
        1 => (proptest::sample::select(vec!["f", "g"]), letters(0..2)).prop_map(|(family, qualifier)| Filter::Exists {
            family: FamilyName::new(family).unwrap(), qualifier: qualifier.into()
        }),
        1 => proptest::collection::vec(range(), 1..4).prop_map(|ranges| {
            Filter::Rows(ranges.into_iter().map(|(start, end)| KeyRange { start, end }).collect())
        }),
        1 => proptest::collection::vec(proptest::collection::vec(places, 1..4), 1..3).prop_map(|keys| {
            Filter::Fuzzy(keys.into_iter().map(|places| FuzzyKey::new(places).unwrap()).collect())
        }),
        1 => range().prop_map(|(start, end)| Filter::Qualifiers { start, end }),
        1 => proptest::collection::vec(1..4i64, 1..3).prop_map(Filter::Timestamps),
        1 => (1..3u32, 0..3u32).prop_map(|(limit, offset)| Filter::Columns { limit, offset }),
        1 => Just(Filter::FirstKeyOnly),
        1 => (0..4u64).prop_map(|seed| Filter::Random { millionths: 500_000, seed }),
    ]
}

fn expression() -> impl Strategy<Value = Filter> {
    test().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Filter::And),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Filter::Or),
            inner.clone().prop_map(|inner| Filter::Not(Box::new(inner))),
            inner.clone().prop_map(|inner| Filter::Skip(Box::new(inner))),
            inner.prop_map(|inner| Filter::Any(Box::new(inner))),
        ]
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![
        4 => expression(),
        1 => (expression(), expression()).prop_map(|(a, b)| Filter::And(vec![a, Filter::While(Box::new(b))])),
        1 => (expression(), any::<bool>()).prop_map(|(a, lengths)| Filter::And(vec![a, Filter::KeysOnly { lengths }])),
        1 => (expression(), 1..5u64).prop_map(|(a, rows)| Filter::And(vec![Filter::FirstKeyOnly, a, Filter::Page(rows)])),
    ]
}

fn projection() -> impl Strategy<Value = Projection> {
    (0..6u8, letters(0..2), 0..3u32, 0..3u32, any::<bool>(), 0..6u8).prop_map(
        |(columns, qualifier, offset, limit, keys_only, first)| {
            let family = |name: &str| FamilyName::new(name).unwrap();
            let projection = match columns {
                0 => Projection::all().with_family(family("f")),
                1 => Projection::all().with_column(family("f"), qualifier).with_family(family("g")),
                2 => Projection::all().with_qualifier_range(family("g"), qualifier, ""),
                3 => Projection::all().with_column(family("g"), qualifier),
                _ => Projection::all(),
            };
            let projection = projection.with_cells(offset, limit).with_versions(9);
            let projection = if keys_only { projection.with_keys_only() } else { projection };
            if first == 0 { projection.with_first_cell_only() } else { projection }
        },
    )
}

/// What the definition says of the cell with this index.
fn passes(filter: &Filter, row: &ModelRow, shown: &[ModelCell], at: usize) -> bool {
    match filter {
        Filter::And(parts) => parts.iter().all(|part| passes(part, row, shown, at)),
        Filter::Or(parts) => parts.iter().any(|part| passes(part, row, shown, at)),
        Filter::Not(inner) => !passes(inner, row, shown, at),
        Filter::Skip(inner) => (0..shown.len()).all(|at| passes(inner, row, shown, at)),
        Filter::Any(inner) => (0..shown.len()).any(|at| passes(inner, row, shown, at)),
        Filter::While(_) | Filter::Page(_) | Filter::KeysOnly { .. } => true,
        Filter::Compare { subject, read_as, relation, operand } => of_subject(subject, row, &shown[at], |bytes| {
            read_as.compare(bytes, operand).is_ok_and(|ordering| relation.holds(ordering))
        }),
        Filter::OneOf { subject, read_as, operands } => of_subject(subject, row, &shown[at], |bytes| {
            operands.iter().any(|one| read_as.compare(bytes, one).is_ok_and(std::cmp::Ordering::is_eq))
        }),
        Filter::Prefix { subject, prefix } => {
            of_subject(subject, row, &shown[at], |bytes| bytes.get(..prefix.len()) == Some(&prefix[..]))
        }
        Filter::Contains { subject, part, ignore_case } => of_subject(subject, row, &shown[at], |bytes| {
            let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_lowercase();
            if *ignore_case {
                lower(bytes).contains(&lower(part))
            } else {
                (0..=bytes.len()).any(|at| bytes[at..].starts_with(part))
            }
        }),
        Filter::Matches { subject, pattern } => of_subject(subject, row, &shown[at], |bytes| pattern.is_match(bytes)),
        Filter::Bits { subject, operator, mask } => of_subject(subject, row, &shown[at], |bytes| {
            let joined = |a: u8, b: u8| match operator {
                BitOperator::And => a & b,
                BitOperator::Or => a | b,
                BitOperator::Xor => a ^ b,
            };
            bytes.len() == mask.len() && (0..bytes.len()).any(|at| joined(bytes[at], mask[at]) != 0)
        }),
        Filter::Exists { family, qualifier } => {
            row.cells.iter().any(|cell| cell.0 == family.as_str() && cell.1 == *qualifier)
        }
        Filter::Rows(ranges) => ranges.iter().any(|range| range.contains(&row.key)),
        Filter::Fuzzy(keys) => keys.iter().any(|key| {
            let places = key.places();
            row.key.len() >= places.len()
                && (0..places.len()).all(|at| places[at].is_none_or(|wanted| row.key[at] == wanted))
        }),
        Filter::Qualifiers { start, end } => KeyRange { start: start.clone(), end: end.clone() }.contains(&shown[at].1),
        Filter::Timestamps(times) => times.contains(&shown[at].2),
        Filter::Columns { limit, offset } => {
            let mut columns: Vec<_> = shown.iter().map(|cell| (&cell.0, &cell.1)).collect();
            columns.dedup();
            let column = columns.iter().position(|column| *column == (&shown[at].0, &shown[at].1)).unwrap();
            (*offset as usize..(offset + limit) as usize).contains(&column)
        }
        Filter::FirstKeyOnly => at == 0,
        Filter::Random { seed, .. } => xxhash_rust::xxh3::xxh3_64_with_seed(&row.key, *seed) >> 63 == 0,
    }
}

fn of_subject(subject: &Subject, row: &ModelRow, cell: &ModelCell, test: impl Fn(&[u8]) -> bool) -> bool {
    match subject {
        Subject::Row => test(&row.key),
        Subject::Family => test(cell.0.as_bytes()),
        Subject::Qualifier => test(&cell.1),
        Subject::Value => test(&cell.3),
        Subject::Column(column) => {
            let of_column = |cell: &&ModelCell| cell.0 == column.family.as_str() && cell.1 == column.qualifier;
            let versions: Vec<&ModelCell> = row.cells.iter().filter(of_column).collect();
            match versions.first() {
                None => column.pass_missing,
                Some(newest) if !column.any_version => test(&newest.3),
                Some(_) => versions.iter().any(|cell| test(&cell.3)),
            }
        }
        Subject::KeyPart(_) => unreachable!("key_part/tests.rs has a model of its own"),
    }
}

/// What is shown of the row: `Err` where the scan ends with it.
fn shown(projection: &Projection, filter: &Filter, row: &ModelRow) -> Result<Vec<ModelCell>, ()> {
    let asked = row.cells.iter().filter(|cell| projection.selects(cell.0.as_bytes(), &cell.1));
    let asked: Vec<ModelCell> = asked.cloned().collect();
    let indices = 0..asked.len();
    let passed: Vec<usize> = indices.clone().filter(|at| passes(filter, row, &asked, *at)).collect();
    let conjuncts = filter.conjuncts().iter();
    let mut whiles =
        conjuncts.clone().filter_map(|part| if let Filter::While(inner) = part { Some(inner) } else { None });
    if !passed.is_empty() && !whiles.all(|inner| indices.clone().all(|at| passes(inner, row, &asked, at))) {
        return Err(());
    }
    let keys = conjuncts.filter_map(|part| if let Filter::KeysOnly { lengths } = part { Some(*lengths) } else { None });
    let lengths = keys.last();
    let (offset, limit) = projection.cell_window();
    let cells = passed.into_iter().skip(offset).take(limit).map(|at| {
        let (family, qualifier, timestamp, value) = asked[at].clone();
        let value = match lengths {
            _ if projection.keys_only => Vec::new(),
            Some(true) => u32::try_from(value.len()).unwrap().to_be_bytes().to_vec(),
            Some(false) => Vec::new(),
            None => value,
        };
        (family, qualifier, timestamp, value)
    });
    Ok(cells.collect())
}

/// What a reader without filters reads, as the engine would pack it.
fn pack_read(reads: &Projection, row: &ModelRow, block: &mut Vec<u8>) -> bool {
    let (offset, limit) = reads.cell_window();
    let cells = row.cells.iter().filter(|cell| reads.selects(cell.0.as_bytes(), &cell.1)).skip(offset).take(limit);
    let start = begin_row(block, &row.key);
    let mut any = false;
    for (family, qualifier, timestamp, value) in cells {
        let value: &[u8] = if reads.keys_only { &[] } else { value };
        pack(block, CellRef::put(family.as_bytes(), qualifier, *timestamp, value));
        any = true;
    }
    end_row(block, start);
    any
}

fn model_cells(packed: &[u8]) -> Vec<ModelCell> {
    let cell = |cell: CellRef<'_>| {
        let family = String::from_utf8(cell.family.to_vec()).unwrap();
        (family, cell.qualifier.to_vec(), cell.timestamp, cell.value.to_vec())
    };
    Cells::new(packed).map(cell).collect()
}

/// What is shown of a row whose cells are judged as they are read, by a reader that passes over what is not wanted.
fn streamed(judge: &mut RowFilter, row: &ModelRow) -> Result<Vec<ModelCell>, ()> {
    let mut read = Vec::new();
    if !pack_read(judge.reads(), row, &mut read) || !judge.begin_row(&row.key) {
        return Ok(Vec::new());
    }
    let (mut out, mut last) = (Vec::new(), None::<(CellRef<'_>, Onward)>);
    for cell in Cells::new(&read[6 + row.key.len()..]) {
        let is_passed = last.as_ref().is_some_and(|(last, onward)| match onward {
            Onward::Cell => false,
            Onward::Column => (last.family, last.qualifier) == (cell.family, cell.qualifier),
            Onward::From(qualifier) => last.family == cell.family && *cell.qualifier < qualifier[..],
            Onward::Family => last.family == cell.family,
            Onward::Row => true,
        });
        if !is_passed {
            last = Some((cell, judge.cell(&row.key, cell, &mut out)));
        }
    }
    match judge.end_row(&row.key) {
        Verdict::End => Err(()),
        Verdict::Hidden => Ok(Vec::new()),
        Verdict::Shown => Ok(model_cells(&out)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_shown_as_the_definition_says(
        rows in proptest::collection::vec(row(), 1..4), filter in filter(), projection in projection(),
    ) {
        prop_assume!(filter.check().is_ok());
        let projection = projection.checked().unwrap();
        let mut judge = RowFilter::new(&projection, &filter);
        for row in &rows {
            let mut block = b"before".to_vec();
            let verdict = if pack_read(judge.reads(), row, &mut block) {
                judge.judge(&mut block, 6)
            } else {
                Verdict::Hidden
            };
            let seen = match verdict {
                Verdict::End => Err(()),
                Verdict::Hidden => Ok(Vec::new()),
                Verdict::Shown => Ok(model_cells(&block[6 + 6 + row.key.len()..])),
            };
            prop_assert_eq!(&block[..6], b"before");
            prop_assert_eq!(&seen, &shown(&projection, &filter, row), "{:?} {} of {:?}", projection, filter, row);
            if judge.judges_cells() {
                prop_assert_eq!(seen, streamed(&mut judge, row), "cell by cell, {:?} {} of {:?}", projection, filter, row);
            }
        }
    }

    #[test]
    fn nothing_that_passes_is_jumped_over(
        rows in proptest::collection::vec(row(), 1..24), filter in expression(), bounds in range(),
    ) {
        prop_assume!(filter.check().is_ok());
        let projection = Projection::all().with_versions(9).checked().unwrap();
        let judge = RowFilter::new(&projection, &filter);
        let range = KeyRange { start: bounds.0, end: bounds.1 };
        let mut rows = rows;
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows.dedup_by(|a, b| a.key == b.key);
        let passing: Vec<&Vec<u8>> =
            rows.iter().filter(|row| range.contains(&row.key) && !shown(&projection, &filter, row).unwrap().is_empty()).map(|row| &row.key).collect();
        let clipped = judge.clip(&range);
        prop_assert!(passing.iter().all(|row| clipped.as_ref().is_some_and(|range| range.contains(row))));
        if judge.is_range() {
            let clipped = clipped.unwrap_or(KeyRange { start: "x".into(), end: "x".into() });
            let inside = rows.iter().filter(|row| range.contains(&row.key) && clipped.contains(&row.key)).count();
            prop_assert_eq!(inside, passing.len());
        }
        for row in &rows {
            let ahead = passing.iter().find(|key| **key > &row.key);
            match judge.seek(&row.key, false) {
                Seek::Next => {}
                Seek::To(target) => prop_assert!(target > row.key && ahead.is_none_or(|key| **key >= target)),
                Seek::Nothing => prop_assert_eq!(ahead, None),
            }
            let behind = passing.iter().rev().find(|key| **key < &row.key);
            match judge.seek(&row.key, true) {
                Seek::Next => {}
                Seek::To(target) => prop_assert!(target < row.key && behind.is_none_or(|key| **key <= target)),
                Seek::Nothing => prop_assert_eq!(behind, None),
            }
        }
    }
}

#[test]
fn a_column_that_is_not_asked_for_is_read_and_left_out() {
    let projection = Projection::all().with_column("f".parse().unwrap(), "shown").with_keys_only();
    let filter = Filter::from_text("i32(f:tested) > 1").unwrap();
    let judge = RowFilter::new(&projection, &filter);
    assert!(judge.reads().selects(b"f", b"tested") && judge.reads().selects(b"f", b"shown"));
    assert!(!judge.reads().selects(b"f", b"other") && !judge.reads().keys_only);
}

#[test]
fn a_filter_of_the_key_leaves_cells_to_the_reader() {
    let of = |text: &str| RowFilter::new(&Projection::all(), &Filter::from_text(text).unwrap());
    let first = of("prefix(row, 'a') and first_key_only() and keys_only()");
    assert!(first.is_range() && first.is_about_key() && first.reads().first_cell_only && first.reads().keys_only);
    assert_eq!(first.clip(&KeyRange::all()), Some(KeyRange::prefix(b"a")));
    assert!(of("matches(row, 'a')").is_about_key() && !of("matches(row, 'a')").is_range());
    assert!(!of("value = 'a'").is_about_key());
    assert!(of("row = 'a' and row = 'b'").clip(&KeyRange::all()).is_none());
    assert_eq!(of("row in ('a', 'c')").seek(b"a", false), Seek::To(b"c".to_vec()));
    assert_eq!(of("row in ('a', 'c')").seek(b"c", true), Seek::To(b"a\0".to_vec()));
    assert_eq!(of("fuzzy('??x')").seek(b"aby", false), Seek::To(b"acx".to_vec()));
}

#[test]
fn a_filter_of_columns_narrows_what_is_read() {
    let reads = |text: &str| {
        let judge = RowFilter::new(&Projection::all(), &Filter::from_text(text).unwrap());
        ["a", "b", "bb", "c", "age"]
            .into_iter()
            .filter(|name| judge.reads().selects(b"f", name.as_bytes()))
            .collect::<Vec<_>>()
    };
    let all = ["a", "b", "bb", "c", "age"];
    assert_eq!(reads("qualifiers('b'..'c')"), ["b", "bb"]);
    assert_eq!(reads("qualifier in ('a', 'c') and value = 'x'"), ["a", "c"]);
    assert_eq!(reads("prefix(qualifier, 'b') or qualifier >= 'c'"), ["b", "bb", "c"]);
    assert_eq!(reads("qualifier = 'b' or value = 'x'"), all);
    assert_eq!(reads("qualifiers('b'..'c') and i64(f:age) > 5"), ["b", "bb", "age"]);
    assert_eq!(reads("qualifiers('b'..'c') and while(row < 'k')"), ["b", "bb"]);
    // What is counted, or must hold for every cell, is seen whole.
    for text in ["columns(2)", "first_key_only()", "skip(value = 'x')", "any(value = 'x')", "while(value = 'x')"] {
        assert_eq!(reads(&format!("qualifiers('b'..'c') and {text}")), all, "{text}");
    }
}
