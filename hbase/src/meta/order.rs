//! The order of rows in `hbase:meta`: by table, then by first row, then by id.
//!
//! A row's key is `TABLE,STARTKEY,ID.HASH.`, and a first row may hold any byte, commas included. Bytewise order would
//! therefore mix regions of different tables and put regions of one table out of order. HBase compares the parts one by
//! one; a key that lacks a part sorts before all keys that have it.

use std::cmp::Ordering;

/// A key of `hbase:meta`, in its parts. The order of the fields is the order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetaRow<'a> {
    table: &'a [u8],
    /// What follows the first comma.
    region: Option<RegionPart<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RegionPart<'a> {
    start: &'a [u8],
    /// What follows the last comma, if it is not the first.
    id: Option<&'a [u8]>,
}

impl<'a> MetaRow<'a> {
    /// Takes a key apart. Every byte string is a key.
    #[must_use]
    pub fn new(key: &'a [u8]) -> Self {
        let comma = |&byte: &u8| byte == b',';
        let Some(first) = key.iter().position(comma) else {
            return Self { table: key, region: None };
        };
        let rest = &key[first + 1..];
        let region = match rest.iter().rposition(comma) {
            Some(last) => RegionPart { start: &rest[..last], id: Some(&rest[last + 1..]) },
            None => RegionPart { start: rest, id: None },
        };
        Self { table: &key[..first], region: Some(region) }
    }

    /// Compares two keys.
    #[must_use]
    pub fn compare(one: &[u8], other: &[u8]) -> Ordering {
        MetaRow::new(one).cmp(&MetaRow::new(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_in_the_order_of_hbase() {
        let rows: &[&[u8]] = &[
            b"",
            b"a",
            b"a,",
            b"a,,",
            b"a,,1.x.",
            b"a,,99999999999999",
            // A comma in a first row, and bytes below a comma.
            b"a,\x00,1.x.",
            b"a,,x,1.x.",
            b"a,b,1.x.",
            b"a,b,2.x.",
            b"a,b,:",
            b"a,b\x00,1.x.",
            b"a,b,c,1.x.",
            b"a\x00",
            b"a ,,",
            b"a!,,1.x.",
            b"ab,,1.x.",
        ];
        for pair in rows.windows(2) {
            assert_eq!(MetaRow::compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(b"ab,,\x00+.".to_vec()), 0..8)
    }

    /// HBase's comparison, written after its own steps instead of as an order of parts.
    fn step_by_step(left: &[u8], right: &[u8]) -> Ordering {
        let first = |key: &[u8]| key.iter().position(|&byte| byte == b',');
        let last = |key: &[u8]| key.iter().rposition(|&byte| byte == b',');
        let (l, r) = (first(left), first(right));
        let tables = left[..l.unwrap_or(left.len())].cmp(&right[..r.unwrap_or(right.len())]);
        let (left, right) = match (tables, l, r) {
            (Ordering::Equal, Some(l), Some(r)) => (&left[l + 1..], &right[r + 1..]),
            (Ordering::Equal, l, r) => return l.is_some().cmp(&r.is_some()),
            (unequal, ..) => return unequal,
        };
        let (l, r) = (last(left), last(right));
        let starts = left[..l.unwrap_or(left.len())].cmp(&right[..r.unwrap_or(right.len())]);
        match (starts, l, r) {
            (Ordering::Equal, Some(l), Some(r)) => left[l + 1..].cmp(&right[r + 1..]),
            (Ordering::Equal, l, r) => l.is_some().cmp(&r.is_some()),
            (unequal, ..) => unequal,
        }
    }

    proptest! {
        #[test]
        fn the_order_of_parts_is_the_comparison_of_hbase(one in key(), other in key()) {
            prop_assert_eq!(MetaRow::compare(&one, &other), step_by_step(&one, &other));
        }

        #[test]
        fn a_region_sorts_by_its_first_row_whatever_bytes_it_has(
            mut starts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 2..6), ids: u64,
        ) {
            starts.sort();
            starts.dedup();
            let key = |start: &[u8]| [b"t,", start, b",", ids.to_string().as_bytes(), b".x."].concat();
            for pair in starts.windows(2) {
                prop_assert_eq!(MetaRow::compare(&key(&pair[0]), &key(&pair[1])), Ordering::Less);
            }
        }
    }
}
