//! Keys, values and tables of the mixes.
//!
//! Records have YCSB's keys: `user` and the hash of the record's number, as 20 digits, so that inserts spread over the
//! table and split points can be computed. Numbered rows have their number, as 40 digits, so that they sort by it. Points have
//! a series and a time, the newest first. Values are windows of a buffer of random bytes that is made once: they do not
//! compress, and cost no more than a copy.

use std::sync::Arc;

use terrane_client::{KeyRange, TableSpec};
use terrane_types::TableSchema;

use super::distribution::hashed;
use super::spec::{Kind, Shape, Spec};
use crate::failure::Failure;
use crate::random::Random;

/// The only family.
pub const FAMILY: &str = "f";
/// The column of the values of numbered rows.
pub const QUALIFIER: &str = "q";
/// The columns of counters, of the states that `cas` compares and sets, and of a row's number, an `i64`.
pub const COUNT: &str = "count";
pub const STATE: &str = "state";
pub const NUMBER: &str = "n";
/// The free metadata of the family that says how the table was filled, and that this ended.
const META_SHAPE: &str = "meta.bench";
pub const META_FILLED: &str = "meta.bench-filled";

/// Length of the longest key: 40 digits.
const KEY_BYTES_MAX: usize = 40;
/// Length of a prefix that 1,000 numbered rows share: a key without its last three digits.
pub const PREFIX_BYTES: usize = KEY_BYTES_MAX - 3;
/// Length of a point's key: a `u64` and an `i64`.
const POINT_KEY_BYTES: usize = 16;
/// The parts of a point's key. The time is in microseconds.
pub const POINT_KEY: &str = "series:u64, time:desc i64";
/// The time of the first point that a new table is filled with: 2026-01-01, in microseconds. Points of a series are a
/// second apart, and those written later have the time at which they are written.
const FILLED_FROM_US: i64 = 1_767_225_600_000_000;
const FILLED_EVERY_US: i64 = 1_000_000;
/// Bytes of the buffer that values are taken from.
const POOL_BYTES: usize = 1 << 20;

/// The key of a row, without an allocation.
#[derive(Clone, Copy)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl Key {
    /// The key of a row by its number.
    pub fn new(kind: Kind, number: u64) -> Key {
        if kind == Kind::Numbered { Key::digits("", KEY_BYTES_MAX, number) } else { Key::of_hash(hashed(number)) }
    }

    fn of_hash(hash: u64) -> Key {
        Key::digits("user", 20, hash)
    }

    fn digits(prefix: &str, digits: usize, number: u64) -> Key {
        let (mut bytes, length) = ([b'0'; KEY_BYTES_MAX], prefix.len() + digits);
        bytes[..prefix.len()].copy_from_slice(prefix.as_bytes());
        let mut rest = number;
        for digit in bytes[prefix.len()..length].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + u8::try_from(rest % 10).expect("a digit is below ten");
            rest /= 10;
        }
        Key { bytes, length }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The key of a point.
pub fn point_key(series: u64, time_us: i64) -> [u8; POINT_KEY_BYTES] {
    let mut key = [0; POINT_KEY_BYTES];
    key[..8].copy_from_slice(&series.to_be_bytes());
    // `desc i64`: in order with the sign bit flipped, and inverted.
    key[8..].copy_from_slice(&(!(time_us.cast_unsigned() ^ (1 << 63))).to_be_bytes());
    key
}

/// The time of the `index`th point of a series in a new table.
pub fn filled_time_us(index: u64) -> i64 {
    FILLED_FROM_US.saturating_add_unsigned(index.saturating_mul(FILLED_EVERY_US.unsigned_abs()))
}

/// The points of `count` series from this one on; those of the last series end with the table.
pub fn series_range(first: u64, count: u64) -> KeyRange {
    let end = first.checked_add(count).map_or_else(Vec::new, |end| end.to_be_bytes().to_vec());
    KeyRange { start: first.to_be_bytes().to_vec().into(), end: end.into() }
}

/// The key of the `row`th row of a new table.
pub fn filled_key(spec: &Spec, row: u64) -> Key {
    match spec.kind {
        Kind::Records | Kind::Counters | Kind::Numbered => Key::new(spec.kind, row),
        Kind::Series { .. } => {
            // Rows of one call spread over the series, as they do when they are measured.
            let series = spec.series();
            let point = point_key(row % series, filled_time_us(row / series));
            let mut bytes = [0; KEY_BYTES_MAX];
            bytes[..POINT_KEY_BYTES].copy_from_slice(&point);
            Key { bytes, length: POINT_KEY_BYTES }
        }
    }
}

/// The table of a workload.
pub fn table_spec(spec: &Spec, name: &str) -> Result<TableSpec, Failure> {
    let shape = spec.shape().to_string();
    let filled_with: &[(&str, &str)] = if spec.kind == Kind::Numbered { &[] } else { &[(META_SHAPE, &shape)] };
    let mut table = TableSpec::new(name)?.family(FAMILY, filled_with)?;
    if matches!(spec.kind, Kind::Series { .. }) {
        table = table.key(POINT_KEY)?;
    }
    for row in split_points(spec) {
        table = table.split_at(&row);
    }
    Ok(table)
}

/// Split points that give every region as many rows.
fn split_points(spec: &Spec) -> Vec<Vec<u8>> {
    let parts = |all: u128| {
        let part = move |region: u32| all * u128::from(region) / u128::from(spec.regions);
        let point = |part: u128| u64::try_from(part).expect("a part of 64 bits has 64 bits");
        (1..spec.regions).map(part).map(point).filter(|point| *point > 0)
    };
    let mut points: Vec<Vec<u8>> = match spec.kind {
        // Hashes are positive numbers of 64 bits with a sign.
        Kind::Records | Kind::Counters => parts(1 << 63).map(|hash| Key::of_hash(hash).as_ref().to_vec()).collect(),
        Kind::Series { .. } => parts(spec.series().into()).map(|first| first.to_be_bytes().to_vec()).collect(),
        Kind::Numbered => parts(spec.rows.into()).map(|row| Key::new(spec.kind, row).as_ref().to_vec()).collect(),
    };
    points.dedup();
    points
}

/// What an existing table was filled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The rows of this workload, and all of them.
    Filled,
    /// The table of this workload, but filling it did not end.
    Unfilled,
    /// Another table; why.
    Other(String),
}

/// Compares a table with the one that a workload creates. Attributes may differ: they are what one may want to measure.
pub fn found(schema: &TableSchema, shape: Shape, key: Option<&str>) -> Found {
    let Some(family) = schema.family(FAMILY.as_bytes()) else {
        return Found::Other(format!("has no family {FAMILY}, so `bench run` did not create it"));
    };
    let attributes = family.attributes();
    let declared = schema.key.as_ref().map(ToString::to_string);
    match attributes.get(META_SHAPE) {
        None => Found::Other("was not created by `bench run`".to_owned()),
        Some(there) if *there != shape.to_string() => Found::Other(format!("holds {there}, not {shape}")),
        Some(_) if declared.as_deref() != key => {
            let words = |key: Option<&str>| key.map_or_else(|| "no key".to_owned(), |key| format!("the key '{key}'"));
            Found::Other(format!("declares {}, not {}", words(declared.as_deref()), words(key)))
        }
        Some(_) if attributes.contains_key(META_FILLED) => Found::Filled,
        Some(_) => Found::Unfilled,
    }
}

/// Random values of one length.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Arc<[u8]>,
    bytes: usize,
}

impl Values {
    pub fn new(seed: u64, bytes: usize) -> Values {
        let mut pool = vec![0; POOL_BYTES + bytes];
        Random::new(seed).fill(&mut pool);
        Values { pool: pool.into(), bytes }
    }

    /// The next value.
    pub fn draw(&self, random: &mut Random) -> &[u8] {
        let at = usize::try_from(random.below(POOL_BYTES as u64)).expect("an index of the buffer");
        &self.pool[at..at + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use terrane_client::RowKey;
    use terrane_types::{Desc, FamilySchema, TableName};

    use super::*;
    use crate::args::bench::run::Known;

    #[derive(RowKey)]
    struct Point {
        series: u64,
        time: Desc<i64>,
    }

    fn spec(kind: Kind, rows: u64, regions: u32) -> Spec {
        Spec { kind, rows, regions, fields: 1, field_bytes: 8, ..Spec::of(Known::A) }
    }

    #[test]
    fn keys_of_records_are_those_of_ycsb_with_leading_zeros() {
        let key = |record| Key::new(Kind::Records, record).as_ref().to_vec();
        assert_eq!(key(0), b"user06284781860667377211");
        let keys: std::collections::BTreeSet<_> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn keys_of_numbered_rows_sort_by_number() {
        let key = |row| Key::new(Kind::Numbered, row).as_ref().to_vec();
        assert_eq!(key(0), [b'0'; 40]);
        assert_eq!(&key(1_234)[34..], b"001234");
        assert_eq!(&key(u64::MAX)[20..], b"18446744073709551615");
        let numbers = [0, 1, 9, 10, 99, 100, 12_345, u64::MAX];
        assert!(numbers.map(key).is_sorted());
        let prefix = |row| key(row)[..PREFIX_BYTES].to_vec();
        assert_eq!(prefix(0), prefix(999));
        assert_ne!(prefix(0), prefix(1_000));
    }

    #[test]
    fn keys_of_points_are_those_of_the_declaration() {
        for (series, time) in [(0, 0), (7, 1_767_225_600_000_000), (u64::MAX, i64::MIN), (3, i64::MAX)] {
            let declared = Point { series, time: Desc(time) }.encode().expect("a key");
            assert_eq!(point_key(series, time)[..], declared[..]);
        }
        assert_eq!(Point::declaration().to_string(), POINT_KEY);
        assert!(point_key(5, 2) < point_key(5, 1), "the newest is first");
        let range = series_range(5, 2);
        let holds = |series| range.contains(&point_key(series, 0));
        assert_eq!([4, 5, 6, 7].map(holds), [false, true, true, false]);
        assert!(series_range(u64::MAX, 1).contains(&point_key(u64::MAX, 0)));
    }

    #[test]
    fn regions_get_equal_parts() {
        let rows = 20_000;
        for kind in [Kind::Records, Kind::Series { points: 100 }, Kind::Numbered] {
            let spec = spec(kind, rows, 4);
            let points = split_points(&spec);
            let mut counts = [0; 4];
            for row in 0..rows {
                counts[points.iter().filter(|point| filled_key(&spec, row).as_ref() >= &point[..]).count()] += 1;
            }
            assert!(counts.iter().all(|count| (4_700..=5_300).contains(count)), "{kind:?}: {counts:?}");
        }
        let regions = |kind, rows, regions| split_points(&spec(kind, rows, regions)).len() + 1;
        assert_eq!(regions(Kind::Series { points: 100 }, 200, 10), 2, "two series, no empty region");
        assert_eq!(regions(Kind::Numbered, 3, 10), 3, "no region is empty, none begins at the first row");
        assert_eq!(regions(Kind::Numbered, 100, 1), 1);
        assert!(split_points(&spec(Kind::Numbered, u64::MAX, 3)).is_sorted());
    }

    #[test]
    fn a_table_is_used_only_if_it_holds_what_the_workload_expects() {
        let spec = spec(Kind::Records, 10, 1);
        let created = table_spec(&spec, "t").expect("a table").schema;
        assert_eq!(found(&created, spec.shape(), None), Found::Unfilled);
        let mut filled = created.clone();
        filled.families[0].set_attribute(META_FILLED, "yes").expect("metadata");
        assert_eq!(found(&filled, spec.shape(), None), Found::Filled);
        let other = Spec { rows: 11, ..spec.clone() }.shape();
        let Found::Other(why) = found(&filled, other, None) else { panic!("another number of rows") };
        assert_eq!(why, "holds 10 records of 1 x 8 bytes, not 11 records of 1 x 8 bytes");
        assert!(matches!(found(&filled, spec.shape(), Some(POINT_KEY)), Found::Other(_)));
        let mut foreign = TableSchema::new(TableName::new("t").expect("a name"));
        assert!(matches!(found(&foreign, spec.shape(), None), Found::Other(_)));
        foreign.add_family(FamilySchema::new(FAMILY.parse().expect("a name"))).expect("a family");
        assert!(matches!(found(&foreign, spec.shape(), None), Found::Other(_)));
    }

    #[test]
    fn values_are_random_windows() {
        let seed = 3;
        let (values, mut random) = (Values::new(seed, 100), Random::new(seed));
        let drawn: std::collections::BTreeSet<Vec<u8>> = (0..100).map(|_| values.draw(&mut random).to_vec()).collect();
        assert!(drawn.len() > 95 && drawn.iter().all(|value| value.len() == 100), "seed {seed}");
        assert_eq!(Values::new(seed, 0).draw(&mut random).len(), 0);
    }
}
