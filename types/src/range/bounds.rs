//! What becomes a range of row keys: Rust's ranges, and prefixes.
//!
//! Bounds are compared as bytes. A lone string or byte string is a prefix, because that is what most callers read: one row
//! is [`KeyRange::row`]. An empty end means unbounded, as everywhere in [`KeyRange`], so that programs can pass an end that
//! they were not given. A conversion cannot fail: a range whose end lies before its start is refused by the call that is
//! to read it, with [`Invalid`](crate::Invalid), before any request is sent.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use bytes::Bytes;

use super::KeyRange;

impl KeyRange {
    /// The rows between two bounds, each included or not: `KeyRange::between("a".."c")`. Most calls take the bounds
    /// themselves.
    ///
    /// ```
    /// use terrane_types::KeyRange;
    /// assert!(KeyRange::between("a"..="c").contains(b"c"));
    /// assert!(!KeyRange::between("a".."c").contains(b"c"));
    /// ```
    #[must_use]
    pub fn between<R: AsRef<[u8]>>(bounds: impl RangeBounds<R>) -> Self {
        let copied = |row: &R| Bytes::copy_from_slice(row.as_ref());
        let after = |row: &R| Self::row(row.as_ref()).end;
        let start = match bounds.start_bound() {
            Bound::Included(row) => copied(row),
            Bound::Excluded(row) => after(row),
            Bound::Unbounded => Bytes::new(),
        };
        let end = match bounds.end_bound() {
            Bound::Included(row) => after(row),
            Bound::Excluded(row) => copied(row),
            Bound::Unbounded => Bytes::new(),
        };
        Self { start, end }
    }
}

impl From<RangeFull> for KeyRange {
    fn from(_: RangeFull) -> Self {
        Self::all()
    }
}

macro_rules! from_bounds {
    ($($bounds:ty),*) => {$(
        impl<R: AsRef<[u8]>> From<$bounds> for KeyRange {
            fn from(bounds: $bounds) -> Self {
                Self::between(bounds)
            }
        }
    )*};
}

from_bounds!(Range<R>, RangeFrom<R>, RangeTo<R>, RangeInclusive<R>, RangeToInclusive<R>, (Bound<R>, Bound<R>));

macro_rules! from_prefix {
    ($([$($generic:tt)*] $prefix:ty),*) => {$(
        /// The rows with this prefix.
        impl<$($generic)*> From<$prefix> for KeyRange {
            fn from(prefix: $prefix) -> Self {
                Self::prefix(prefix.as_ref())
            }
        }
    )*};
}

from_prefix!(
    [] &str,
    [] String,
    [] &String,
    [] &[u8],
    [const N: usize] &[u8; N],
    [const N: usize] [u8; N],
    [] Vec<u8>,
    [] &Vec<u8>,
    [] Bytes,
    [] &Bytes
);

impl From<&KeyRange> for KeyRange {
    fn from(range: &KeyRange) -> Self {
        range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(range: impl Into<KeyRange>) -> String {
        range.into().to_string()
    }

    #[test]
    fn bounds_are_included_as_written() {
        assert_eq!(shown(..), "[,)");
        assert_eq!(shown("a".."c"), "[a,c)");
        assert_eq!(shown("a"..="c"), r"[a,c\x00)");
        assert_eq!(shown("a"..), "[a,)");
        assert_eq!(shown(.."c"), "[,c)");
        assert_eq!(shown(..="c"), r"[,c\x00)");
        assert_eq!(shown((Bound::Excluded("a"), Bound::Unbounded)), r"[a\x00,)");
        assert_eq!(shown(b"a".as_slice()..b"c"), "[a,c)");
        assert_eq!(shown(7_u16.to_be_bytes()..8_u16.to_be_bytes()), r"[\x00\x07,\x00\x08)");
        assert_eq!(shown(String::from("a")..String::from("c")), "[a,c)");
    }

    #[test]
    fn a_lone_string_is_a_prefix() {
        assert_eq!(shown("ab"), "[ab,ac)");
        assert_eq!(shown(String::from("ab")), "[ab,ac)");
        assert_eq!(shown(b"a\xff"), r"[a\xFF,b)");
        assert_eq!(shown(vec![0xff]), r"[\xFF,)");
        assert_eq!(shown(Bytes::from_static(b"a")), "[a,b)");
        assert_eq!(shown(""), "[,)");
    }

    #[test]
    fn an_empty_end_is_no_bound_and_a_reversed_range_stays_reversed() {
        assert_eq!(shown("b"..""), "[b,)");
        let reversed = KeyRange::from("b".."a");
        assert!(KeyRange::new(reversed.start, reversed.end).is_err());
    }
}
