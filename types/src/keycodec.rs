//! The order-preserving row-key codec: typed parts whose bytes sort as their values do.
//!
//! A row key of several parts is the parts' encodings one after another. Each encoding is such that comparing bytes
//! compares values, and that no encoding is a prefix of another of the same type; so the order of whole keys is the
//! order of their parts, and all keys that share their leading parts lie in one range. Fixed-width parts are raw
//! big-endian, so that the layouts of the HBase world come out byte for byte. `docs/formats/key.md` has the table and
//! the reasons.
//!
//! [`RowKey`] is derived for a struct whose fields are parts:
//!
//! ```
//! use terrane_types::{Desc, RowKey};
//!
//! /// Actions of a user, newest first.
//! #[derive(Debug, PartialEq, RowKey)]
//! struct Action {
//!     user: u64,
//!     time: Desc<i64>,
//!     action: u32,
//! }
//!
//! let key = Action { user: 7, time: Desc(1_000), action: 3 };
//! let row = key.encode()?;
//! assert_eq!(row.len(), 20);
//! assert_eq!(Action::decode(&row)?, key);
//! assert!(Action::prefix_1(&7).contains(&row));
//! assert!(!Action::prefix_2(&7, &Desc(999)).contains(&row));
//! assert_eq!(Action::declaration().to_string(), "user:u64, time:desc i64, action:u32");
//! # Ok::<(), terrane_types::Invalid>(())
//! ```
//!
//! A [`Tail`] anywhere but last, or a [`Bucket`] anywhere but first, does not compile:
//!
//! ```compile_fail
//! use terrane_types::{RowKey, Tail};
//! #[derive(RowKey)]
//! struct Wrong { name: Tail<String>, time: i64 }
//! ```
//!
//! ```compile_fail
//! use terrane_types::{Bucket, RowKey};
//! #[derive(RowKey)]
//! struct Wrong { time: i64, bucket: Bucket<16> }
//! ```

mod fixed;
mod kind;
mod reader;
mod span;
mod variable;
mod wrappers;

pub use kind::{PartKind, PartType};
pub use reader::PartReader;
pub use span::{IntoSpan, KeySpan, behind_bucket, between, buckets, leading_bytes};
pub use terrane_types_derive::RowKey;
pub use wrappers::{Bucket, Desc, Tail, TailValue};

use crate::error::Invalid;
use crate::key::KeyDeclaration;
use crate::range::KeyRange;
use crate::row::Row;

/// A type that is one part of a row key.
///
/// Implementations keep two promises: the order of encodings is the order of values, and (but for [`Tail`], which is
/// always last) no encoding is a proper prefix of another.
pub trait KeyPart: Sized {
    /// How the part is declared.
    const KIND: PartKind;

    /// Appends the part's encoding.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Takes the part from the front of what is left of a key.
    ///
    /// # Errors
    /// [`Invalid`] when the bytes are not an encoding of this type.
    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid>;
}

/// A part that [`Desc`] can reverse: its end is found in its own bytes and does not depend on other parts.
pub trait PlainPart: KeyPart {}

/// A struct whose fields are the parts of a row key, in order. Derived; see [the module](self).
///
/// Besides these methods the derive gives the struct `prefix_1(&a)`, `prefix_2(&a, &b)` and so on: the range that holds
/// exactly the keys beginning with those parts. Where the first part is a [`Bucket`], keys of one prefix are spread over
/// all buckets, so these functions leave the bucket out and give one range for each. And it gives `prefix()`, which takes
/// the leading parts one after another, the last of them bounded if wanted: see [`KeySpan`].
pub trait RowKey: Sized {
    /// The names of the parts, which are those of the fields.
    const PARTS: &'static [&'static str];

    /// The kinds of the parts.
    const KINDS: &'static [PartKind];

    /// Appends the encoded key.
    fn encode_into(&self, out: &mut Vec<u8>);

    /// Reads a key back from a row.
    ///
    /// # Errors
    /// [`Invalid`] when the bytes are no such key, or some are left over.
    fn decode(row: &[u8]) -> Result<Self, Invalid>;

    /// The key as a row.
    ///
    /// # Errors
    /// [`Invalid`] when the parts together are longer than a row can be, or (a lone empty [`Tail`]) empty.
    fn encode(&self) -> Result<Row, Invalid> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        Row::new(out)
    }

    /// The parts as a table declares them.
    #[must_use]
    fn declaration() -> KeyDeclaration {
        KeyDeclaration::of(Self::PARTS, Self::KINDS)
    }
}

/// The number of the bucket, of `buckets`, for the encoded parts that follow it.
#[must_use]
pub fn bucket_of(buckets: u16, rest: &[u8]) -> u8 {
    debug_assert!((1..=256).contains(&buckets), "PartKind allows 1 to 256 buckets");
    let bucket = xxhash_rust::xxh3::xxh3_64(rest) % u64::from(buckets.max(1));
    u8::try_from(bucket).expect("a remainder below 256 fits a byte")
}

/// Fills in the bucket of a complete encoded key whose parts are of these kinds. For the derive's use.
#[doc(hidden)]
pub fn fill_bucket(kinds: &[PartKind], key: &mut [u8]) {
    if let (Some(PartType::Bucket(buckets)), Some((bucket, rest))) =
        (kinds.first().map(|kind| kind.part), key.split_first_mut())
    {
        *bucket = bucket_of(buckets, rest);
    }
}

/// Checks a decoded key: nothing left over, and the bucket is the one of the other parts. For the derive's use.
#[doc(hidden)]
pub fn check_decoded(kinds: &[PartKind], row: &[u8], input: &PartReader<'_>) -> Result<(), Invalid> {
    input.finish()?;
    check_bucket(kinds.first().map(|kind| kind.part), row)
}

pub(crate) fn check_bucket(first: Option<PartType>, row: &[u8]) -> Result<(), Invalid> {
    let (Some(PartType::Bucket(buckets)), Some((&bucket, rest))) = (first, row.split_first()) else {
        return Ok(());
    };
    let expected = bucket_of(buckets, rest);
    if bucket == expected {
        return Ok(());
    }
    Err(Invalid::new(format!("the key's bucket is {bucket}, but its parts belong into bucket {expected} of {buckets}")))
}

/// One range per bucket for the keys that begin, after the bucket, with `prefix`. For the derive's use.
#[doc(hidden)]
#[must_use]
pub fn bucket_ranges(kinds: &[PartKind], prefix: &[u8]) -> Vec<KeyRange> {
    let Some(PartType::Bucket(buckets)) = kinds.first().map(|kind| kind.part) else {
        return vec![KeyRange::prefix(prefix)];
    };
    let mut with_bucket = vec![0];
    with_bucket.extend_from_slice(prefix);
    (0..buckets)
        .map(|bucket| {
            with_bucket[0] = u8::try_from(bucket).expect("PartKind allows at most 256 buckets");
            KeyRange::prefix(&with_bucket)
        })
        .collect()
}

#[cfg(test)]
mod tests;
