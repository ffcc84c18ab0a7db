//! The order-preserving row-key codec: typed parts whose bytes sort as their values do.
//!
//! A row key of several parts is the concatenation of their encodings. Comparing encodings compares values, and no
//! encoding is a prefix of another of the same type. So whole keys are ordered by their parts, and all keys that share
//! leading parts lie in one range. Fixed-width parts are big-endian, so that common HBase key layouts are reproduced
//! byte for byte. `docs/formats/key.md` has the table and the reasons.
//!
//! [`RowKey`](crate::RowKey) is the struct that has such parts.

mod fixed;
mod kind;
mod reader;
mod variable;
mod wrappers;

pub use kind::{PartKind, PartType};
pub use reader::PartReader;
pub use wrappers::{Bucket, Desc, Tail, TailValue};

use crate::invalid::Invalid;
use crate::range::KeyRange;

/// A type that is one part of a row key.
///
/// Implementations guarantee that encodings sort as values do, and that no encoding is a proper prefix of another
/// (except for [`Tail`], which is always last).
pub trait KeyPart: Sized {
    /// How the part is declared.
    const KIND: PartKind;

    /// Appends the part's encoding.
    fn encode_part(&self, out: &mut Vec<u8>);

    /// Decodes the part from the front of the rest of a key.
    ///
    /// # Errors
    /// [`Invalid`] if the bytes are not an encoding of this type.
    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid>;
}

/// A part that [`Desc`] can reverse: its own bytes determine where it ends.
pub trait PlainPart: KeyPart {}

/// The bucket, out of `buckets`, for the encoded parts that follow it.
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

/// Checks a decoded key: no bytes are left over, and the bucket matches the other parts. For the derive's use.
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
    Err(Invalid::new(format!("the key's bucket is {bucket}, but its parts belong in bucket {expected} of {buckets}")))
}

/// One range per bucket of the keys that start, after the bucket, with `prefix`. For the derive's use.
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
