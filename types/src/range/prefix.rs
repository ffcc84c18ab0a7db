//! What becomes a prefix of row keys: bytes, text, and the leading parts of a typed key.

use super::KeyRange;

/// A prefix of row keys: bytes, text, or the leading parts of a typed key (`Action::prefix().user(7)`).
///
/// ```
/// use terrane_types::{Desc, IntoPrefix as _, KeyRange, RowKey};
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<i64> }
/// assert_eq!("user-".prefixed_rows(), KeyRange::prefix(b"user-"));
/// assert_eq!(Action::prefix().user(7).prefixed_rows(), KeyRange::prefix(&7_u64.to_be_bytes()));
/// ```
///
/// A salted key has a prefix in each bucket, so this does not compile:
///
/// ```compile_fail
/// use terrane_types::{Bucket, Desc, IntoPrefix as _, RowKey};
/// #[derive(RowKey)]
/// struct Action { bucket: Bucket<4>, user: u64, time: Desc<i64> }
/// let rows = Action::prefix().user(7).prefixed_rows();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a prefix of row keys",
    note = "bytes and text are, and so are the leading parts of a typed key, as `Key::prefix()` builds them",
    note = "keys that are salted have a prefix in each bucket: read them with a typed table"
)]
pub trait IntoPrefix {
    /// The rows that start with it.
    fn prefixed_rows(self) -> KeyRange;
}

impl<R: AsRef<[u8]>> IntoPrefix for R {
    fn prefixed_rows(self) -> KeyRange {
        KeyRange::prefix(self.as_ref())
    }
}
