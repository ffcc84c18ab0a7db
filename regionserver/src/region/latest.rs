//! The latest rows of each prefix: which prefix a row has, how many of its rows were returned, and where the next prefix
//! begins.
//!
//! Rows with the same prefix are adjacent. Once a scan has returned the requested number of them, it seeks to the next
//! prefix, so the other rows of the prefix cost nothing. A key that the declaration cannot cut, or that is shorter than the
//! requested bytes, is a prefix by itself.
//!
//! Invariant: [`PrefixProgress::prefix`] is the prefix of the last row returned, in whichever region that was. It travels in
//! the resume token, and in the request to the next region.

use bytes::Bytes;
use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{Error, Invalid, KeyDeclaration, KeyRange, TableSchema};

/// A request for the latest rows of each prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    pub cut: Cut,
    /// The number of rows per prefix, at least 1.
    pub rows: u32,
}

/// How the prefix of a row is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// This many leading parts of the declared key.
    Parts(u32),
    /// This many leading bytes.
    Bytes(u32),
}

/// How many rows of the current prefix a scan has returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixProgress {
    /// The prefix of the last row returned; empty: none was.
    pub prefix: Bytes,
    /// The number of its rows that were returned.
    pub returned: u32,
}

impl Latest {
    /// Validates a request, as far as that is possible without the table.
    ///
    /// # Errors
    /// [`Invalid`] for an empty prefix, or one longer than a row.
    pub fn checked(self) -> Result<Self, Invalid> {
        match self.cut {
            Cut::Parts(0) | Cut::Bytes(0) => Err(Invalid::new(
                "a scan for the latest rows of each prefix must name the prefix: leading parts of the key, or leading bytes",
            )),
            Cut::Bytes(bytes) if bytes as usize > ROW_BYTES_MAX => Err(Invalid::new(format!(
                "a prefix of {bytes} bytes is longer than a row may be, {ROW_BYTES_MAX} bytes"
            ))),
            _ => Ok(Self { rows: self.rows.max(1), ..self }),
        }
    }
}

/// Cuts the prefixes of a table's rows.
pub struct Cutter {
    cut: Cut,
    key: Option<KeyDeclaration>,
}

impl Cutter {
    /// A cutter for rows of this table.
    ///
    /// # Errors
    /// [`Invalid`] if parts are requested and the table declares no key, or one with fewer parts.
    pub fn new(cut: Cut, schema: &TableSchema) -> Result<Self, Error> {
        let Cut::Parts(parts) = cut else { return Ok(Self { cut, key: None }) };
        let Some(key) = &schema.key else {
            let what =
                format!("table {} declares no key, so its rows have no parts; name a number of bytes", schema.name);
            return Err(Invalid::new(what).into());
        };
        let known = key.parts().len();
        if parts as usize > known {
            return Err(Invalid::new(format!("the key of table {} has {known} parts, not {parts}", schema.name)).into());
        }
        Ok(Self { cut, key: Some(key.clone()) })
    }

    /// The prefix of a row.
    #[must_use]
    pub fn prefix<'r>(&self, row: &'r [u8]) -> &'r [u8] {
        self.length(row).and_then(|length| row.get(..length)).unwrap_or(row)
    }

    fn length(&self, row: &[u8]) -> Option<usize> {
        match self.cut {
            Cut::Parts(parts) => self.key.as_ref()?.prefix_len(row, parts),
            Cut::Bytes(bytes) => Some(bytes as usize).filter(|bytes| *bytes <= row.len()),
        }
    }

    /// The bound after all rows of this prefix, in the direction of the scan: forward the first row that sorts after them, in
    /// reverse the prefix itself, which sorts before or with the first of them. Empty: there is none.
    #[must_use]
    pub fn beyond(&self, prefix: &[u8], reverse: bool) -> Bytes {
        if reverse {
            return Bytes::copy_from_slice(prefix);
        }
        // Where the prefix runs to the end of the row, longer rows do not share it.
        let goes_on = |byte: u8| self.length(&[prefix, &[byte]].concat()) == Some(prefix.len());
        if goes_on(0) && goes_on(0xFF) { KeyRange::prefix(prefix).end } else { KeyRange::row(prefix).end }
    }

    /// The part of a range that is left once enough rows of this prefix were returned.
    #[must_use]
    pub fn rest(&self, range: KeyRange, prefix: &[u8], reverse: bool) -> Option<KeyRange> {
        let beyond = self.beyond(prefix, reverse);
        if beyond.is_empty() {
            return None;
        }
        let rest = if reverse {
            KeyRange { start: Bytes::new(), end: beyond }
        } else {
            KeyRange { start: beyond, end: Bytes::new() }
        };
        range.intersect(&rest)
    }
}

impl PrefixProgress {
    /// Counts a row that is returned.
    pub fn count(&mut self, prefix: &[u8]) {
        if self.returned > 0 && self.prefix == prefix {
            self.returned = self.returned.saturating_add(1);
        } else {
            *self = Self { prefix: Bytes::copy_from_slice(prefix), returned: 1 };
        }
    }

    /// Whether enough rows of the prefix were returned.
    #[must_use]
    pub fn is_full(&self, latest: &Latest) -> bool {
        self.returned >= latest.rows
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::TableName;

    use super::*;

    fn schema(key: &str) -> TableSchema {
        let mut schema = TableSchema::new(TableName::new("t").unwrap());
        schema.key = (!key.is_empty()).then(|| KeyDeclaration::parse(key).unwrap());
        schema
    }

    #[test]
    fn rows_of_a_prefix_lie_before_the_bound_after_it() {
        let (numbers, texts, tails) = (schema("a:u32, b:u32"), schema("a:text, b:u32"), schema("a:u32, b:tail"));
        let rows: [&[u8]; 9] = [
            b"\0",
            b"\0\0\0\x01",
            b"\0\0\0\x01\0\0\0\x07",
            b"\0\0\0\x01\xff",
            b"\0\0\0\x02",
            b"ab\0\x01",
            b"ab\0\x01\0\0\0\x01",
            b"ab\0\x01\xff\xff",
            b"\xff\xff\xff\xff\xff",
        ];
        for (cut, schema) in [
            (Cut::Bytes(1), &numbers),
            (Cut::Bytes(4), &numbers),
            (Cut::Bytes(8), &numbers),
            (Cut::Parts(1), &numbers),
            (Cut::Parts(1), &texts),
            (Cut::Parts(2), &tails),
        ] {
            let cutter = Cutter::new(cut, schema).unwrap();
            for row in rows {
                let prefix = cutter.prefix(row);
                let after = cutter.beyond(prefix, false);
                for other in rows {
                    let shares = cutter.prefix(other) == prefix;
                    let before = after.is_empty() || other < &after[..];
                    assert_eq!(shares, other >= prefix && before, "{cut:?}: {row:?} and {other:?}");
                    assert!(!shares || other >= &cutter.beyond(prefix, true)[..]);
                }
            }
        }
    }

    #[test]
    fn a_table_without_a_key_has_no_parts() {
        let refused = Cutter::new(Cut::Parts(1), &schema("")).err().unwrap();
        assert!(refused.to_string().contains("declares no key"), "{refused}");
        assert!(Cutter::new(Cut::Parts(3), &schema("a:u32, b:u32")).is_err());
        assert!(Cutter::new(Cut::Bytes(3), &schema("")).is_ok());
    }

    #[test]
    fn rows_are_counted_per_prefix() {
        let mut group = PrefixProgress::default();
        let latest = Latest { cut: Cut::Bytes(1), rows: 2 };
        group.count(b"a");
        assert!(!group.is_full(&latest));
        group.count(b"a");
        assert!(group.is_full(&latest));
        group.count(b"b");
        assert_eq!(group, PrefixProgress { prefix: "b".into(), returned: 1 });
    }
}
