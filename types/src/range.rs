//! Ranges of row keys, `[start, end)`.
//!
//! An empty `end` means unbounded, because there is no greatest byte string. An empty `start` needs no such rule: the
//! empty string sorts before every row.

mod bounds;
mod prefix;

use std::fmt;

use bytes::Bytes;

use crate::escape::escape;
use crate::invalid::Invalid;
use crate::limits::ROW_BYTES_MAX;

pub use prefix::IntoPrefix;

/// A contiguous range of row keys, from `start` (inclusive) to `end` (exclusive; empty: unbounded).
///
/// ```
/// use terrane_types::KeyRange;
/// let range = KeyRange::prefix(b"user1");
/// assert!(range.contains(b"user1|x"));
/// assert!(!range.contains(b"user2"));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first row inside.
    pub start: Bytes,
    /// The first row after the range; empty: unbounded.
    pub end: Bytes,
}

impl KeyRange {
    /// A range with these bounds.
    ///
    /// # Errors
    /// [`Invalid`] if `end` lies before `start`, or a bound is longer than the longest row and one byte (the least key
    /// after it).
    pub fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Result<Self, Invalid> {
        let range = Self { start: start.into(), end: end.into() };
        check_bound(&range.start)?;
        check_bound(&range.end)?;
        if !range.end.is_empty() && range.end < range.start {
            return Err(Invalid::new(format!(
                "the range's end {} lies before its start {}",
                escape(&range.end),
                escape(&range.start)
            )));
        }
        Ok(range)
    }

    /// Checks the range of a region: its bounds are rows. A range that is read may have bounds one byte longer.
    ///
    /// # Errors
    /// [`Invalid`] that names the length and the limit.
    pub fn check_region(&self) -> Result<(), Invalid> {
        [&self.start, &self.end].into_iter().filter(|bound| !bound.is_empty()).try_for_each(|at| check_boundary(at))
    }

    /// All rows.
    #[must_use]
    pub const fn all() -> Self {
        Self { start: Bytes::new(), end: Bytes::new() }
    }

    /// The rows with this prefix; all rows for an empty one.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(prefix), end: prefix_end(prefix) }
    }

    /// Only this row.
    #[must_use]
    pub fn row(row: &[u8]) -> Self {
        let mut end = Vec::with_capacity(row.len() + 1);
        end.extend_from_slice(row);
        end.push(0);
        Self { start: Bytes::copy_from_slice(row), end: end.into() }
    }

    /// Whether the row lies inside.
    #[must_use]
    pub fn contains(&self, row: &[u8]) -> bool {
        row >= &self.start[..] && self.is_before_end(row)
    }

    /// Whether the row lies before the end, regardless of the start.
    #[must_use]
    pub fn is_before_end(&self, row: &[u8]) -> bool {
        self.end.is_empty() || row < &self.end[..]
    }

    /// Whether every row of `other` lies inside. An empty range lies inside any range.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.is_empty()
            || (self.start <= other.start && (self.end.is_empty() || (!other.end.is_empty() && other.end <= self.end)))
    }

    /// The rows in both; `None` if there are none.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let start = self.start.clone().max(other.start.clone());
        let end = match (self.end.is_empty(), other.end.is_empty()) {
            (true, _) => other.end.clone(),
            (false, true) => self.end.clone(),
            (false, false) => self.end.clone().min(other.end.clone()),
        };
        let range = Self { start, end };
        (!range.is_empty()).then_some(range)
    }

    /// Whether the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.end.is_empty() && self.end <= self.start
    }

    /// Cuts the range in two at `at`, which becomes the first row of the second.
    ///
    /// # Errors
    /// [`Invalid`] unless `at` lies inside and is not the first row, so that neither half is empty; also if `at` is
    /// longer than a bound can be, because stored halves must be readable.
    pub fn split(&self, at: &[u8]) -> Result<(Self, Self), Invalid> {
        check_bound(at)?;
        if !self.contains(at) || at == &self.start[..] {
            return Err(Invalid::new(format!(
                "the split point {} does not lie inside {self}, or is its first row",
                escape(at)
            )));
        }
        let at = Bytes::copy_from_slice(at);
        let left = Self { start: self.start.clone(), end: at.clone() };
        let right = Self { start: at, end: self.end.clone() };
        Ok((left, right))
    }
}

/// Checks a boundary between two regions before it is recorded: it is a row.
///
/// # Errors
/// [`Invalid`] that names the length and the limit.
pub fn check_boundary(at: &[u8]) -> Result<(), Invalid> {
    if (1..=ROW_BYTES_MAX).contains(&at.len()) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "a boundary of a region is a row, which has 1 to {ROW_BYTES_MAX} bytes; this one has {}",
        at.len()
    )))
}

fn check_bound(bound: &[u8]) -> Result<(), Invalid> {
    if bound.len() <= ROW_BYTES_MAX + 1 {
        return Ok(());
    }
    Err(Invalid::new(format!("a bound of the range has {} bytes; rows have at most {ROW_BYTES_MAX}", bound.len())))
}

/// The least key above every key with this prefix: its last byte below 0xFF is raised, and the rest cut off. Empty
/// (unbounded) if every byte is 0xFF.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let Some(last) = prefix.iter().rposition(|&byte| byte != 0xff) else {
        return Bytes::new();
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

impl Default for KeyRange {
    fn default() -> Self {
        Self::all()
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{},{})", escape(&self.start), escape(&self.end))
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: &'static str, end: &'static str) -> KeyRange {
        KeyRange::new(start, end).expect("ordered bounds")
    }

    #[test]
    fn bounds_are_half_open() {
        let range = range("b", "d");
        assert!(!range.contains(b"a") && range.contains(b"b") && range.contains(b"c\xff") && !range.contains(b"d"));
        assert!(KeyRange::all().contains(b"\xff\xff"));
    }

    #[test]
    fn a_range_turned_round_is_refused() {
        assert!(KeyRange::new("b", "a").is_err());
        assert!(KeyRange::new("b", "b").expect("empty, yet ordered").is_empty());
        assert!(KeyRange::new("b", "").is_ok());
        assert!(KeyRange::new(vec![1; ROW_BYTES_MAX + 2], "").is_err());
    }

    #[test]
    fn prefixes_of_high_bytes_have_no_end() {
        assert_eq!(KeyRange::prefix(b"\xff\xff").end, Bytes::new());
        assert_eq!(&KeyRange::prefix(b"a\xff").end[..], b"b");
        assert_eq!(KeyRange::prefix(b""), KeyRange::all());
    }

    #[test]
    fn a_split_gives_two_ranges_that_meet() {
        let (left, right) = range("a", "z").split(b"m").expect("inside");
        assert_eq!(format!("{left} {right}"), "[a,m) [m,z)");
        for at in ["a", "z", "A", "zz"] {
            assert!(range("a", "z").split(at.as_bytes()).is_err(), "{at}");
        }
        assert!(KeyRange::all().split(b"").is_err());
    }

    #[test]
    fn no_split_makes_a_range_that_cannot_be_read_again() {
        for length in [1, ROW_BYTES_MAX, ROW_BYTES_MAX + 1] {
            let (left, right) = KeyRange::all().split(&vec![b'k'; length]).expect("short enough");
            for half in [left, right] {
                assert!(KeyRange::new(half.start, half.end).is_ok(), "{length}");
            }
        }
        for length in [ROW_BYTES_MAX + 2, 40_000, 70_000] {
            assert!(KeyRange::all().split(&vec![b'k'; length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_boundary_of_a_region_is_a_row() {
        assert!(check_boundary(b"k").is_ok() && check_boundary(&[b'k'; ROW_BYTES_MAX]).is_ok());
        for at in [&[][..], &[b'k'; ROW_BYTES_MAX + 1], &[b'k'; 40_000]] {
            assert!(check_boundary(at).expect_err("no row").what.contains("1 to 32767 bytes"));
        }
        assert!(KeyRange::all().check_region().is_ok() && range("a", "m").check_region().is_ok());
        let one_too_long = KeyRange::new(vec![b'k'; ROW_BYTES_MAX + 1], "").expect("a bound of what is read");
        assert!(one_too_long.check_region().is_err());
    }

    #[test]
    fn covers_knows_open_ends() {
        assert!(KeyRange::all().covers(&range("a", "")));
        assert!(!range("a", "z").covers(&range("b", "")));
        assert!(range("a", "z").covers(&range("a", "z")));
        assert!(range("a", "b").covers(&range("x", "x")));
    }

    proptest! {
        #[test]
        fn prefix_holds_exactly_what_begins_with_it(
            prefix in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)], 0..4),
            row in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff)], 0..6),
        ) {
            prop_assert_eq!(KeyRange::prefix(&prefix).contains(&row), row.starts_with(&prefix));
        }

        #[test]
        fn intersection_holds_what_both_hold(
            a in "[a-c]{0,2}", b in "[a-c]{0,2}", c in "[a-c]{0,2}", d in "[a-c]{0,2}", row in "[a-c]{0,3}",
        ) {
            let one = KeyRange { start: a.into(), end: b.into() };
            let two = KeyRange { start: c.into(), end: d.into() };
            let both = one.contains(row.as_bytes()) && two.contains(row.as_bytes());
            let intersection = one.intersect(&two);
            prop_assert_eq!(intersection.is_some_and(|range| range.contains(row.as_bytes())), both);
        }
    }
}
