//! Wrappers that change the order or place of a part: reversed, raw to the end, or spread over buckets.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use bytes::Bytes;

use super::variable::into_text;
use super::{KeyPart, PartKind, PartReader, PartType, PlainPart};
use crate::invalid::Invalid;

/// A part that sorts from high to low: the bitwise complement of the inner part's encoding.
///
/// `Desc<i64>` of a timestamp is HBase's classic reverse timestamp, `Long.MAX_VALUE - t`, for every `t`: flipping the
/// sign bit and then all bits leaves `t`'s own bits complemented but for the sign, which is `MAX - t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Desc<T>(
    /// The value itself, not reversed.
    pub T,
);

impl<T: PartialOrd> PartialOrd for Desc<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        other.0.partial_cmp(&self.0)
    }
}

impl<T: Ord> Ord for Desc<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        Reverse(&self.0).cmp(&Reverse(&other.0))
    }
}

impl<T> From<T> for Desc<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

/// The value itself.
impl<T: fmt::Display> fmt::Display for Desc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PlainPart> KeyPart for Desc<T> {
    const KIND: PartKind = T::KIND.reversed();

    fn encode_part(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.0.encode_part(out);
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        input.reversed(T::decode_part).map(Self)
    }
}

/// What a [`Tail`] may hold: text or bytes.
pub trait TailValue: Sized {
    /// The raw bytes.
    fn as_tail(&self) -> &[u8];

    /// The value of these raw bytes.
    ///
    /// # Errors
    /// [`Invalid`] for text that is not UTF-8.
    fn from_tail(bytes: &[u8]) -> Result<Self, Invalid>;
}

impl TailValue for String {
    fn as_tail(&self) -> &[u8] {
        self.as_bytes()
    }

    fn from_tail(bytes: &[u8]) -> Result<Self, Invalid> {
        into_text(bytes.to_vec())
    }
}

impl TailValue for Vec<u8> {
    fn as_tail(&self) -> &[u8] {
        self
    }

    fn from_tail(bytes: &[u8]) -> Result<Self, Invalid> {
        Ok(bytes.to_vec())
    }
}

impl TailValue for Bytes {
    fn as_tail(&self) -> &[u8] {
        self
    }

    fn from_tail(bytes: &[u8]) -> Result<Self, Invalid> {
        Ok(Self::copy_from_slice(bytes))
    }
}

/// Text or bytes, raw to the end of the key, as is usual in HBase tables. Allowed only as the last part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tail<T>(
    /// The value.
    pub T,
);

impl<T> From<T> for Tail<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

/// The value itself.
impl<T: fmt::Display> fmt::Display for Tail<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: TailValue> KeyPart for Tail<T> {
    const KIND: PartKind = PartKind::asc(PartType::Tail);

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_tail());
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        T::from_tail(input.tail()).map(Self)
    }
}

/// Spreads keys that would otherwise all be written at one end of the table over `N` (1 to 256) buckets: one byte, the
/// hash of the following parts modulo `N`. Allowed only as the first part. The value is empty; the codec computes the
/// byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket<const N: usize>;

impl<const N: usize> KeyPart for Bucket<N> {
    const KIND: PartKind = {
        assert!(N >= 1 && N <= 256, "the number of buckets is 1 to 256");
        PartKind::asc(PartType::Bucket(N as u16))
    };

    /// Reserves the byte, which is filled in once the following parts are known.
    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push(0);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        let [_checked_when_all_parts_are_read] = input.array::<1>()?;
        Ok(Self)
    }
}
