//! Against a model that counts every row by itself, and by example.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn access(access: Access, row: &[u8]) -> Sampled<'_> {
    Sampled { access, row: Some(row), is_exact: true, weight: 64.0, units: 64.0 }
}

fn write(sketch: &mut HotRows, now_ns: u64, row: &[u8]) {
    sketch.note(now_ns, access(Access::Write, row));
}

proptest! {
    #[test]
    fn shares_are_never_overstated_and_heavy_rows_are_never_missed(
        rows in prop::collection::vec((0_u16..200, 0_u64..2 * SECOND), 50..1_500),
        skew in 1_u16..60,
    ) {
        let mut sketch = HotRows::new(0);
        let mut now_ns = 0;
        let mut model: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for (row, pause) in rows {
            now_ns += pause;
            // The low numbers are more frequent.
            let row = if row < 120 { row % skew } else { row };
            write(&mut sketch, now_ns, &row.to_be_bytes());
            model.entry(row).or_default().push(now_ns);
        }
        let decayed = |at: &u64| (-((now_ns - at) as f64) / nanos(HALF_LIFE) as f64).exp2();
        let counts: BTreeMap<u16, f64> = model.iter().map(|(row, times)| (*row, times.iter().map(decayed).sum())).collect();
        let total: f64 = counts.values().sum();
        for hot in sketch.hottest(Access::Write, now_ns) {
            let row = u16::from_be_bytes(hot.row[..].try_into().unwrap());
            prop_assert!(hot.share <= counts[&row] / total + 1e-9, "{row} {} {}", hot.share, counts[&row] / total);
        }
        for (row, count) in counts.iter().filter(|(_, count)| **count > total / ROWS_MAX as f64 + 1e-9) {
            let held = sketch.writes.rows.iter().find(|counter| counter.row[..] == row.to_be_bytes());
            let growth = sketch.half_lives(now_ns).exp2();
            let held = held.map_or(0.0, |counter| counter.count / growth / 64.0);
            prop_assert!(held >= count - 1e-6, "row {row} has {count} of {total}, and its counter {held}");
        }
        prop_assert!(sketch.writes.rows.len() <= ROWS_MAX && sketch.spread.len() <= SPREAD_MAX);
    }
}

#[test]
fn a_hot_row_is_named_among_many_others() {
    let mut sketch = HotRows::new(0);
    for number in 0..10_000_u64 {
        let row = if number % 5 == 0 { u64::MAX } else { number };
        write(&mut sketch, number * SECOND / 1_000, &row.to_be_bytes());
    }
    let hot = sketch.hottest(Access::Write, 10 * SECOND);
    assert_eq!(hot[0].row[..], u64::MAX.to_be_bytes());
    assert!((0.15..=0.2).contains(&hot[0].share), "{hot:?}");
    assert!(hot.iter().skip(1).all(|other| other.share < 0.02), "{hot:?}");
    assert!(sketch.hottest(Access::Read, 10 * SECOND).is_empty());
}

#[test]
fn what_was_hot_a_while_ago_is_forgotten() {
    let mut sketch = HotRows::new(0);
    for second in 0..120 {
        for _ in 0..20 {
            write(&mut sketch, second * SECOND, if second < 60 { b"before" } else { b"after" });
        }
    }
    let hot = sketch.hottest(Access::Write, 120 * SECOND);
    assert_eq!(&hot[0].row[..], b"after");
    assert!((hot[0].share - 0.8).abs() < 0.02, "two half-lives later: {hot:?}");
    // Nothing more is sampled: soon it is too little to go by.
    assert!(sketch.hottest(Access::Write, 500 * SECOND).is_empty());
    assert!(sketch.spread(500 * SECOND).is_empty() && sketch.is_cold(500 * SECOND));
}

#[test]
fn weights_stay_finite_over_a_long_time() {
    let mut sketch = HotRows::new(0);
    for hour in 0..2_000 {
        for _ in 0..20 {
            write(&mut sketch, hour * 3_600 * SECOND, b"row");
        }
        let hot = sketch.hottest(Access::Write, hour * 3_600 * SECOND);
        assert!((hot[0].share - 1.0).abs() < 1e-6, "{hour}: {hot:?}");
    }
}

#[test]
fn few_samples_name_no_row() {
    let mut sketch = HotRows::new(0);
    for _ in 0..7 {
        write(&mut sketch, 0, b"row");
    }
    assert!(sketch.hottest(Access::Write, 0).is_empty());
    write(&mut sketch, 0, b"row");
    assert_eq!(sketch.hottest(Access::Write, 0).len(), 1);
}

#[test]
fn long_rows_and_rows_that_are_not_known_are_counted_and_not_named() {
    let mut sketch = HotRows::new(0);
    let long = vec![7; ROW_BYTES_MAX + 1];
    for _ in 0..10 {
        write(&mut sketch, 0, &long);
        write(&mut sketch, 0, b"row");
        sketch.note(0, Sampled { is_exact: false, ..access(Access::Write, b"end of a scan") });
        sketch.note(0, Sampled { row: None, ..access(Access::Write, b"") });
    }
    let hot = sketch.hottest(Access::Write, 0);
    assert_eq!((hot.len(), hot[0].share), (1, 0.25), "{hot:?}");
    let spread = sketch.spread(0);
    assert_eq!(spread.len(), 30);
    assert!(spread.iter().all(|sample| sample.row.len() <= ROW_BYTES_MAX));
}

#[test]
fn the_spread_follows_recent_load_by_what_it_costs() {
    let mut sketch = HotRows::new(0);
    // Long ago all load was at the end.
    for number in 0..5_000_u64 {
        write(&mut sketch, number * SECOND / 100, b"z");
    }
    // Now `a` is asked for as often as `m`, which costs three times as much.
    for number in 0..20_000_u64 {
        let now_ns = 200 * SECOND + number * SECOND / 1_000;
        sketch.note(now_ns, Sampled { units: 64.0, ..access(Access::Read, b"a") });
        sketch.note(now_ns, Sampled { units: 192.0, ..access(Access::Read, b"m") });
    }
    let spread = sketch.spread(220 * SECOND);
    let count = |row: &[u8]| spread.iter().filter(|sample| sample.row[..] == *row).count();
    assert_eq!(spread.len(), SPREAD_MAX);
    assert!((20..=45).contains(&count(b"a")) && count(b"z") <= 4, "{} {}", count(b"a"), count(b"z"));
}

#[test]
fn gaps_have_the_stride_as_their_mean() {
    let mut sketch = HotRows::new(0);
    let gaps: Vec<u64> = (0..10_000).map(|_| sketch.gap(64)).collect();
    let sum: u64 = gaps.iter().sum();
    assert!((620_000..660_000).contains(&sum), "{sum}");
    assert!(gaps.iter().all(|gap| (1..128).contains(gap)));
    assert_eq!(sketch.gap(1), 1);
}

#[test]
fn keys_that_grow_are_told_from_keys_that_are_anywhere() {
    let sketch = |row: &dyn Fn(u64) -> u64, access_of: &dyn Fn(u64) -> Access| {
        let mut sketch = HotRows::new(0);
        for number in 0..2_000 {
            let row = row(number).to_be_bytes();
            sketch.note(number * SECOND / 100, access(access_of(number), &row));
        }
        sketch.grows(20 * SECOND)
    };
    let writes = |_| Access::Write;
    let anywhere = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    assert!(sketch(&|number| number, &writes));
    assert!(sketch(&|number| u64::MAX - number, &writes), "a key in descending order grows at its start");
    assert!(sketch(&|number| (number ^ 7) + 5, &writes), "writers that overtake one another");
    assert!(!sketch(&anywhere, &writes));
    assert!(!sketch(&|number| ((number % 16) << 32) | number, &writes), "a bucket first");
    assert!(!sketch(&|_| 7, &writes), "one row");
    assert!(
        !sketch(&|number| number, &|_| Access::Read),
        "a scan goes along the keys, and a split divides the next one"
    );
    assert!(!sketch(&|number| number, &|number| if number % 4 == 0 { Access::Write } else { Access::Read }));
    assert!(!HotRows::new(0).grows(1));
}
