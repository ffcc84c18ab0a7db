//! Keys of which some bytes are given and others may be anything, with the next key that looks like one.
//!
//! A row looks like a fuzzy key when it is at least as long and its first bytes are those given. For keys whose leading part is
//! open (`fuzzy('????2024')`) no range of rows says what passes; but from any row the next one that can pass is easily
//! told, so a scan hops from one to the next instead of reading everything between.

use std::fmt;

use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{Invalid, KeyRange, escape};

/// A key with open places.
#[derive(Clone, PartialEq, Eq)]
pub struct FuzzyKey {
    /// A byte for each place, `None` where any will do; never empty.
    places: Vec<Option<u8>>,
}

impl FuzzyKey {
    /// A key from its places: the byte that must be there, or `None` for any.
    ///
    /// # Errors
    /// [`Invalid`] when there is no place, or more than a row has bytes.
    pub fn new(places: Vec<Option<u8>>) -> Result<Self, Invalid> {
        if places.is_empty() || places.len() > ROW_BYTES_MAX {
            return Err(Invalid::new(format!("a fuzzy key has 1 to {ROW_BYTES_MAX} places, not {}", places.len())));
        }
        Ok(Self { places })
    }

    /// A key as HBase gives it: bytes, and beside each 0 where it must be there and anything else where any will do.
    ///
    /// # Errors
    /// [`Invalid`] when the two differ in length, are empty, or longer than a row.
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

    /// The places.
    #[must_use]
    pub fn places(&self) -> &[Option<u8>] {
        &self.places
    }

    /// Whether the row looks like the key.
    #[must_use]
    pub fn matches(&self, row: &[u8]) -> bool {
        row.len() >= self.places.len()
            && self.places.iter().zip(row).all(|(place, byte)| place.is_none_or(|wanted| wanted == *byte))
    }

    /// The rows that begin as the key does up to its first open place.
    pub(crate) fn range(&self) -> KeyRange {
        let fixed: Vec<u8> = self.places.iter().map_while(|place| *place).collect();
        KeyRange::prefix(&fixed)
    }

    /// The least row at or after `row` that looks like the key.
    pub(crate) fn at_or_after(&self, row: &[u8]) -> Option<Vec<u8>> {
        if self.matches(row) {
            return Some(row.to_vec());
        }
        // The places before `at` are as in `row`. At the first that cannot be, or where the row ends, the rest takes its least
        // value; where the row is already beyond, the last open place before is raised.
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
        // The row is a beginning of what looks like the key.
        Some(self.filled(&row[..at], 0))
    }

    /// The least bound known of all rows at or before `row` that look like the key; `None` when there is no such row. Longer rows
    /// look like the key as well and have no greatest one, so the bound is mostly the first row behind them.
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
                // All rows that go on from here with the wanted byte lie below.
                Some(wanted) if *wanted < byte => return Some(successor(&self.filled(&row[..at], 0xFF))),
                Some(_) => return self.lower(row, lowered),
            }
            at += 1;
        }
        // The row ends inside of the key: what looks like the key from here on is longer, and so lies above.
        self.lower(row, lowered)
    }

    fn lower(&self, row: &[u8], lowered: Option<usize>) -> Option<Vec<u8>> {
        let lowered = lowered?;
        let mut head = row[..=lowered].to_vec();
        head[lowered] -= 1;
        Some(successor(&self.filled(&head, 0xFF)))
    }

    /// The key with these first bytes and `open` in its open places behind them.
    fn filled(&self, head: &[u8], open: u8) -> Vec<u8> {
        let rest = self.places[head.len()..].iter().map(|place| place.unwrap_or(open));
        head.iter().copied().chain(rest).collect()
    }
}

/// The first row after all that begin with `head`, of which at least one byte is below 0xFF: the one that was lowered, or that
/// is below a row's own.
fn successor(head: &[u8]) -> Vec<u8> {
    terrane_types::range::prefix_end(head).to_vec()
}

impl fmt::Display for FuzzyKey {
    /// The key as a filter's text has it: `?` for an open place, `\x3F` for a question mark.
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
    fn a_mask_is_read_as_hbase_writes_it() {
        let key = FuzzyKey::with_mask(b"ab?x", &[0, 0, 0, 1]).unwrap();
        assert_eq!(key.to_string(), "ab\\x3F?");
        assert!(key.matches(b"ab?z") && key.matches(b"ab?zlonger") && !key.matches(b"ab?") && !key.matches(b"abcz"));
        assert!(FuzzyKey::with_mask(b"ab", &[0]).is_err() && FuzzyKey::new(vec![]).is_err());
    }
}
