//! Contiguous keys: all keys of a table, keys that start with some parts, or those whose next part lies between two
//! values.
//!
//! `Key::prefix()` (derived with [`RowKey`]) builds a span from the leading parts of a key, in order: each part is a
//! method of the result of the previous one, so that skipping a part does not compile. A span does not include the
//! bucket byte of salted keys; its rows are one range, or one range per bucket.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds, RangeFull};

use super::RowKey;
use crate::invalid::Invalid;
use crate::keycodec::{KeyPart, PartReader, PartType};
use crate::range::KeyRange;

/// Keys of one type that are contiguous, apart from their buckets.
///
/// ```
/// use terrane_types::{Desc, KeyRange, RowKey};
///
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64>, action: u32 }
///
/// let key = Action { user: 7, time: Desc(1_000), action: 3 }.encode()?;
/// let of_user = Action::prefix().user(7);
/// assert!(KeyRange::from(of_user.clone()).contains(&key));
/// assert!(of_user.clone().time_between(900..=1_000).contains(&key));
/// assert!(!of_user.clone().time_between(..1_000).contains(&key));
/// assert!(KeyRange::from(of_user.time(1_000).action(3)).contains(&key));
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// Skipping a part does not compile:
///
/// ```compile_fail
/// use terrane_types::{Desc, RowKey};
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64>, action: u32 }
/// let wrong = Action::prefix().time(1_000);
/// ```
///
/// ```compile_fail
/// use terrane_types::{Desc, RowKey};
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64>, action: u32 }
/// let wrong = Action::prefix().user(7).action(3);
/// ```
///
/// Nor does a part after one that is only bounded, or a value of another type:
///
/// ```compile_fail
/// use terrane_types::{Desc, RowKey};
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64>, action: u32 }
/// let wrong = Action::prefix().user(7).time_between(..5).action(3);
/// ```
///
/// ```compile_fail
/// use terrane_types::{Desc, RowKey};
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64>, action: u32 }
/// let wrong = Action::prefix().user("seven");
/// ```
pub struct KeySpan<K> {
    /// The range of the keys' bytes after the bucket.
    inner: KeyRange,
    key: PhantomData<fn() -> K>,
}

/// Anything that converts into a [`KeySpan`] of `K`: a span, the results of `K::prefix()` and its methods, `..` for all
/// keys, the first part of the key, the first parts as a tuple, or a [`KeyRange`] of keys (without their buckets). Parts
/// are given as their fields have them (`(7, Desc(1_000))`) or as plain values (`(7, 1_000)`); text may be a `&str`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a span of `{K}`",
    note = "spans are `..`, the first part of the key, the first parts as a tuple, and what `{K}::prefix()` builds"
)]
pub trait IntoSpan<K> {
    /// The span.
    fn into_span(self) -> KeySpan<K>;
}

impl<K> KeySpan<K> {
    /// The keys in this range of bytes; for salted keys, the bytes after the bucket.
    #[must_use]
    pub const fn new(inner: KeyRange) -> Self {
        Self { inner, key: PhantomData }
    }

    /// The range of bytes; for salted keys, the bytes after the bucket.
    #[must_use]
    pub const fn inner(&self) -> &KeyRange {
        &self.inner
    }
}

/// The rows of a span, for calls on tables whose keys are bytes. Of a salted key, whose spans are one range in each bucket, this
/// does not compile: use a typed table, or [`KeySpan::ranges`].
///
/// ```
/// use terrane_types::{Desc, KeyRange, RowKey};
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64> }
/// let newest = KeyRange::from(Action::prefix().user(7).time_between(900..));
/// assert!(newest.contains(&Action { user: 7, time: Desc(1_000) }.encode()?));
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// ```compile_fail
/// use terrane_types::{Bucket, Desc, KeyRange, RowKey};
/// #[derive(RowKey)]
/// struct Action { bucket: Bucket<4>, user: u64, time: Desc<i64> }
/// let newest = KeyRange::from(Action::prefix().user(7).time_between(900..));
/// ```
impl<K: RowKey> From<KeySpan<K>> for KeyRange {
    fn from(span: KeySpan<K>) -> Self {
        const { assert!(!matches!(K::KINDS[0].part, PartType::Bucket(_)), "a span of a salted key is not one range") };
        span.inner
    }
}

impl<K: RowKey> KeySpan<K> {
    /// The ranges of rows: one, or for salted keys one per bucket, in the order of buckets.
    #[must_use]
    pub fn ranges(&self) -> Vec<KeyRange> {
        let Some(buckets) = buckets::<K>() else { return vec![self.inner.clone()] };
        (0..buckets)
            .map(|bucket| {
                let bucket = u8::try_from(bucket).expect("PartKind allows at most 256 buckets");
                let whole = KeyRange::prefix(&[bucket]);
                let within = |bytes: &[u8]| [&[bucket], bytes].concat().into();
                let end = if self.inner.end.is_empty() { whole.end } else { within(&self.inner.end) };
                KeyRange { start: within(&self.inner.start), end }
            })
            .collect()
    }

    /// Whether the encoded key lies inside.
    #[must_use]
    pub fn contains(&self, row: &[u8]) -> bool {
        row.get(usize::from(buckets::<K>().is_some())..).is_some_and(|bytes| self.inner.contains(bytes))
    }
}

/// The number of buckets of this key type; `None`: not salted.
#[must_use]
pub fn buckets<K: RowKey>() -> Option<u16> {
    match K::KINDS.first().map(|kind| kind.part) {
        Some(PartType::Bucket(buckets)) => Some(buckets),
        _ => None,
    }
}

impl<K> Clone for KeySpan<K> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone())
    }
}

impl<K> fmt::Debug for KeySpan<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySpan({})", self.inner)
    }
}

impl<K> PartialEq for KeySpan<K> {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<K> Eq for KeySpan<K> {}

impl<K> IntoSpan<K> for KeySpan<K> {
    fn into_span(self) -> Self {
        self
    }
}

impl<K> IntoSpan<K> for RangeFull {
    fn into_span(self) -> KeySpan<K> {
        KeySpan::new(KeyRange::all())
    }
}

impl<K> IntoSpan<K> for KeyRange {
    fn into_span(self) -> KeySpan<K> {
        KeySpan::new(self)
    }
}

/// The keys that start with `prefix` and whose next part lies within these bounds. The bounds are logical values:
/// `a..b` is from `a` to below `b`, even for a part that sorts from high to low. For the derive's use.
#[doc(hidden)]
#[must_use]
pub fn between<K, T: KeyPart>(prefix: &[u8], desc: bool, bounds: &impl RangeBounds<T>) -> KeySpan<K> {
    let encoded = |bound: Bound<&T>| {
        bound.map(|value| {
            let mut part = Vec::new();
            value.encode_part(&mut part);
            if desc {
                part.iter_mut().for_each(|byte| *byte = !*byte);
            }
            [prefix, &part].concat()
        })
    };
    let (low, high) = (encoded(bounds.start_bound()), encoded(bounds.end_bound()));
    let (first, last) = if desc { (high, low) } else { (low, high) };
    let all = KeyRange::prefix(prefix);
    // Every key with that part starts with these bytes, or equals them if the part is a tail, which is always last.
    let behind = |bytes: Vec<u8>| if T::KIND.is_tail() { KeyRange::row(&bytes) } else { KeyRange::prefix(&bytes) }.end;
    let start = match first {
        Bound::Included(bytes) => bytes.into(),
        Bound::Excluded(bytes) => match behind(bytes) {
            // Nothing follows keys of only 0xFF bytes.
            beyond if beyond.is_empty() => return nothing(&all),
            start => start,
        },
        Bound::Unbounded => all.start.clone(),
    };
    let end = match last {
        Bound::Included(bytes) => behind(bytes),
        Bound::Excluded(bytes) => bytes.into(),
        Bound::Unbounded => all.end.clone(),
    };
    if !end.is_empty() && end <= start {
        return nothing(&all);
    }
    KeySpan::new(KeyRange { start, end })
}

/// An empty range. Its end is not empty, because that would mean unbounded.
fn nothing<K>(near: &KeyRange) -> KeySpan<K> {
    let bound = KeyRange::row(&near.start).end;
    KeySpan::new(KeyRange { start: bound.clone(), end: bound })
}

/// The bytes of a row after its bucket, by which keys of this type are ordered.
///
/// # Errors
/// [`Invalid`] for a row too short to have a bucket.
pub fn after_bucket<K: RowKey>(row: &[u8]) -> Result<&[u8], Invalid> {
    row.get(usize::from(buckets::<K>().is_some())..).ok_or_else(|| Invalid::new("the row is too short for a bucket"))
}

/// The length of the first `parts` parts of a key, given without its bucket; the bucket does not count as a part. The
/// whole length if the key has fewer parts.
///
/// # Errors
/// [`Invalid`] if the bytes are not such a key.
pub fn leading_bytes<K: RowKey>(parts: usize, after_bucket: &[u8]) -> Result<usize, Invalid> {
    let mut input = PartReader::new(after_bucket);
    for kind in K::KINDS.iter().filter(|kind| !kind.is_bucket()).take(parts) {
        let skip = |input: &mut PartReader<'_>| match kind.part {
            PartType::U32 | PartType::I32 => input.fixed(4).map(drop),
            PartType::U64 | PartType::I64 | PartType::F64 | PartType::Time => input.fixed(8).map(drop),
            PartType::Bool | PartType::Bucket(_) => input.fixed(1).map(drop),
            PartType::Uuid => input.fixed(16).map(drop),
            PartType::Fixed(width) => input.fixed(usize::from(width)).map(drop),
            PartType::Text | PartType::Bytes => input.escaped().map(drop),
            PartType::Tail => {
                let _ = input.tail();
                Ok(())
            }
        };
        if kind.desc { input.reversed(skip)? } else { skip(&mut input)? }
    }
    Ok(after_bucket.len() - input.remaining())
}

#[cfg(test)]
mod tests;
