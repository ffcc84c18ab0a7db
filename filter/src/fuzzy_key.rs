//! Fuzzy keys: some bytes are fixed, others may be anything. A scan can jump to the next row that matches one.
//!
//! A row matches a fuzzy key if it is at least as long and agrees with it in all fixed bytes. If the leading bytes are
//! open (`fuzzy('????2024')`), no range contains just the matching rows. The next row that can match is easily computed
//! from any row, though, so a scan seeks to it instead of reading everything in between.

use std::fmt;

use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{Invalid, KeyRange, escape};

/// A key with open bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct FuzzyKey {
    /// One entry per byte, `None` where any byte matches; never empty.
    places: Vec<Option<u8>>,
}

impl FuzzyKey {
    /// A key from its bytes: a fixed byte, or `None` for any.
    ///
    /// # Errors
    /// [`Invalid`] for no bytes, or more than a row can have.
    pub fn new(places: Vec<Option<u8>>) -> Result<Self, Invalid> {
        if places.is_empty() || places.len() > ROW_BYTES_MAX {
            return Err(Invalid::new(format!("a fuzzy key has 1 to {ROW_BYTES_MAX} places, not {}", places.len())));
        }
        Ok(Self { places })
    }

    /// A key as HBase describes it: bytes, and a mask that is 0 for each fixed byte and anything else for an open one.
    ///
    /// # Errors
    /// [`Invalid`] if the two differ in length, are empty, or are longer than a row.
    pub fn with_mask(key: &[u8], mask: &[u8]) -> Result<Self, Invalid> {
        if key.len() != mask.len() {
            return Err(Invalid::new(format!(
                "the mask of a fuzzy key has {} bytes, the key has {}",
                mask.len(),
                key.len()
            )));
        }
        Self::new(key.iter().zip(mask).map(|(byte, open)| (*open == 0).then_some(*byte)).collect())
    }

    /// The bytes, `None` for an open one.
    #[must_use]
    pub fn places(&self) -> &[Option<u8>] {
        &self.places
    }

    /// Whether the row matches.
    #[must_use]
    pub fn matches(&self, row: &[u8]) -> bool {
        row.len() >= self.places.len()
            && self.places.iter().zip(row).all(|(place, byte)| place.is_none_or(|wanted| wanted == *byte))
    }

    /// The rows that share the key's bytes up to the first open one.
    pub(crate) fn range(&self) -> KeyRange {
        let fixed: Vec<u8> = self.places.iter().map_while(|place| *place).collect();
        KeyRange::prefix(&fixed)
    }

    /// The least row at or after `row` that matches.
    pub(crate) fn at_or_after(&self, row: &[u8]) -> Option<Vec<u8>> {
        if self.matches(row) {
            return Some(row.to_vec());
        }
        // The bytes before `at` are those of `row`. At the first mismatch, or where the row ends, the rest takes its
        // least value; if the row is already greater there, the last open byte before it is raised.
        let mut raised = None;
        let mut at = 0;
        while let (Some(place), Some(&byte)) = (self.places.get(at), row.get(at)) {
            match place {
                None if byte < 0xFF => raised = Some(at),
                None => {}
                Some(wanted) if *wanted == byte => {}
                Some(wanted) if *wanted > byte => return Some(self.filled(&row[..at], 0)),
                Some(_) => {
                    let raised = raised?;
                    let mut head = row[..=raised].to_vec();
                    head[raised] += 1;
                    return Some(self.filled(&head, 0));
                }
            }
            at += 1;
        }
        // The row is a prefix of a match.
        Some(self.filled(&row[..at], 0))
    }

    /// An upper bound, as low as possible, of all rows at or before `row` that match; `None` if there is none. Longer
    /// rows match as well and have no greatest one, so the bound is mostly the first row after them.
    pub(crate) fn at_or_before(&self, row: &[u8]) -> Option<Vec<u8>> {
        if self.matches(row) {
            return Some(row.to_vec());
        }
        let mut lowered = None;
        let mut at = 0;
        while let (Some(place), Some(&byte)) = (self.places.get(at), row.get(at)) {
            match place {
                None if byte > 0 => lowered = Some(at),
                None => {}
                Some(wanted) if *wanted == byte => {}
                // All rows that continue with the fixed byte lie below.
                Some(wanted) if *wanted < byte => return Some(successor(&self.filled(&row[..at], 0xFF))),
                Some(_) => return self.lower(row, lowered),
            }
            at += 1;
        }
        // The row ends inside the key: a match with this prefix is longer, so it lies above.
        self.lower(row, lowered)
    }

    fn lower(&self, row: &[u8], lowered: Option<usize>) -> Option<Vec<u8>> {
        let lowered = lowered?;
        let mut head = row[..=lowered].to_vec();
        head[lowered] -= 1;
        Some(successor(&self.filled(&head, 0xFF)))
    }

    /// The key with these first bytes, and with `open` for each open byte after them.
    fn filled(&self, head: &[u8], open: u8) -> Vec<u8> {
        let rest = self.places[head.len()..].iter().map(|place| place.unwrap_or(open));
        head.iter().copied().chain(rest).collect()
    }
}

/// The first row after all rows with the prefix `head`, of which at least one byte is below 0xFF: the lowered one, or
/// one below the row's byte.
fn successor(head: &[u8]) -> Vec<u8> {
    terrane_types::range::prefix_end(head).to_vec()
}

impl fmt::Display for FuzzyKey {
    /// The key in a filter's text: `?` for an open byte, `\x3F` for a question mark.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.places {
            match place {
                None => f.write_str("?")?,
                Some(b'?') => f.write_str("\\x3F")?,
                Some(b'\'') => f.write_str("\\x27")?,
                Some(byte) => f.write_str(&escape(&[*byte]))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FuzzyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All rows of up to four bytes over an alphabet with both ends of a byte.
    fn rows() -> Vec<Vec<u8>> {
        let alphabet = [0x00, 0x41, 0x42, 0xFE, 0xFF];
        let mut rows: Vec<Vec<u8>> = vec![vec![]];
        let mut from = 0;
        for _ in 0..4 {
            let until = rows.len();
            for at in from..until {
                for byte in alphabet {
                    rows.push([rows[at].as_slice(), &[byte]].concat());
                }
            }
            from = until;
        }
        rows.retain(|row| !row.is_empty());
        rows.sort();
        rows
    }

    proptest! {
        #[test]
        fn hops_pass_over_nothing_that_matches(
            places in proptest::collection::vec(
                proptest::option::of(proptest::sample::select(vec![0x00u8, 0x41, 0x42, 0xFE, 0xFF])), 1..4),
            seed: u16,
        ) {
            let rows = rows();
            let row = &rows[usize::from(seed) % rows.len()];
            let key = FuzzyKey::new(places).unwrap();
            let next = rows.iter().find(|other| *other >= row && key.matches(other));
            match key.at_or_after(row) {
                Some(hint) => {
                    prop_assert!(hint >= *row && key.matches(&hint));
                    prop_assert!(next.is_none_or(|next| *next >= hint));
                }
                None => prop_assert_eq!(next, None),
            }
            let previous = rows.iter().rev().find(|other| *other <= row && key.matches(other));
            match key.at_or_before(row) {
                Some(hint) => {
                    prop_assert!(hint <= *row, "{:?} {:?} {:?}", key, row, hint);
                    prop_assert!(previous.is_none_or(|previous| *previous <= hint));
                }
                None => prop_assert_eq!(previous, None),
            }
        }
    }

    #[test]
    fn a_mask_is_zero_where_a_byte_is_fixed() {
        let key = FuzzyKey::with_mask(b"ab?x", &[0, 0, 0, 1]).unwrap();
        assert_eq!(key.to_string(), "ab\\x3F?");
        assert!(key.matches(b"ab?z") && key.matches(b"ab?zlonger") && !key.matches(b"ab?") && !key.matches(b"abcz"));
        assert!(FuzzyKey::with_mask(b"ab", &[0]).is_err() && FuzzyKey::new(vec![]).is_err());
    }
}
