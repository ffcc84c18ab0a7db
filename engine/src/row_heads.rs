//! The common beginning of rows, and the eight bytes after it, which decide most comparisons.
//!
//! Rows of one region often begin alike (a table's key prefix, a bucket). A [`Prefix`] is that common beginning; the
//! *head* of a row is the number that its next eight bytes spell. Heads are monotone in rows, for **every** row and not
//! only those that begin with the prefix: a lower head means a lower row, and equal heads decide nothing. A search that
//! compares heads first, and rows only where heads are equal, is therefore correct whatever the prefix is; the prefix
//! only determines how often the rows themselves are touched.

/// The common beginning of some rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix(Box<[u8]>);

impl Prefix {
    /// What two rows have in common, and with them every row between them.
    pub(crate) fn of(first: &[u8], last: &[u8]) -> Self {
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        Self(first[..common].into())
    }

    /// What this prefix and another have in common.
    pub(crate) fn common_with(&self, other: &Self) -> Self {
        Self::of(&self.0, &other.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The head of any row.
    #[inline]
    pub(crate) fn head(&self, row: &[u8]) -> u64 {
        head_after(&self.0, row)
    }

    /// The head of a row that begins with the prefix.
    #[inline]
    pub(crate) fn head_inside(&self, row: &[u8]) -> u64 {
        head_of(&row[self.0.len()..])
    }
}

/// The head of any row under this prefix.
#[inline]
pub(crate) fn head_after(prefix: &[u8], row: &[u8]) -> u64 {
    match row.strip_prefix(prefix) {
        Some(rest) => head_of(rest),
        None if row < prefix => 0,
        None => u64::MAX,
    }
}

/// The first eight bytes, missing ones as zero.
#[inline]
pub(crate) fn head_of(rest: &[u8]) -> u64 {
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_never_disagree_with_rows_inside_and_outside_of_the_prefix() {
        let prefix = Prefix::of(b"user1zzz", b"user2");
        assert_eq!(prefix.len(), 4);
        let rows: [&[u8]; 12] = [
            b"",
            b"a",
            b"us",
            b"user",
            b"user\0",
            b"user\0\0\0\0\0\0\0\0\0",
            b"user1",
            b"user12345678",
            b"user123456789",
            b"user\xff\xff\xff\xff\xff\xff\xff\xff",
            b"uses",
            b"\xff",
        ];
        for pair in rows.windows(2) {
            assert!(pair[0] < pair[1] && prefix.head(pair[0]) <= prefix.head(pair[1]), "{pair:?}");
        }
    }
}
