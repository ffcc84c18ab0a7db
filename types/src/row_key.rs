//! Row keys as structs: [`RowKey`], and the spans of keys that share leading parts.
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
//! A [`Tail`](crate::Tail) that is not last, or a [`Bucket`](crate::Bucket) that is not first, does not compile:
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

mod span;

pub use span::{IntoSpan, KeySpan, after_bucket, between, buckets, leading_bytes};
pub use terrane_types_derive::RowKey;

use crate::invalid::Invalid;
use crate::key::KeyDeclaration;
use crate::keycodec::PartKind;
use crate::row::Row;

/// A struct whose fields are the parts of a row key, in order. Derived; see [the module](self).
///
/// Besides these methods the derive gives the struct `prefix_1(&a)`, `prefix_2(&a, &b)` and so on: the range that holds
/// exactly the keys beginning with those parts. Where the first part is a [`Bucket`](crate::Bucket), keys of one prefix
/// are spread over all buckets, so these functions leave the bucket out and give one range for each. And it gives
/// `prefix()`, which takes the leading parts one after another, the last of them bounded if wanted: see [`KeySpan`].
pub trait RowKey: Sized {
    /// The names of the parts: those of the fields.
    const PARTS: &'static [&'static str];

    /// The kinds of the parts.
    const KINDS: &'static [PartKind];

    /// Appends the encoded key.
    fn encode_into(&self, out: &mut Vec<u8>);

    /// Decodes a key from a row.
    ///
    /// # Errors
    /// [`Invalid`] if the bytes are not such a key, or some are left over.
    fn decode(row: &[u8]) -> Result<Self, Invalid>;

    /// The key as a row.
    ///
    /// # Errors
    /// [`Invalid`] when the parts together are longer than a row can be, or (a lone empty [`Tail`](crate::Tail)) empty.
    fn encode(&self) -> Result<Row, Invalid> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        Row::new(out)
    }

    /// The parts by name, as the command shows and takes them: `user=7,time=1000,action=3`. A bucket is left out.
    ///
    /// ```
    /// use terrane_types::{Bucket, Desc, RowKey};
    /// #[derive(RowKey)]
    /// struct Action { bucket: Bucket<4>, user: String, time: Desc<i64> }
    /// let key = Action { bucket: Bucket, user: "ann".into(), time: Desc(1_000) };
    /// assert_eq!(key.line(), "user=ann,time=1000");
    /// ```
    #[must_use]
    fn line(&self) -> String {
        let mut bytes = Vec::new();
        self.encode_into(&mut bytes);
        Self::declaration().shown(&bytes)
    }

    /// The parts as a table declares them.
    #[must_use]
    fn declaration() -> KeyDeclaration {
        KeyDeclaration::of(Self::PARTS, Self::KINDS)
    }
}
