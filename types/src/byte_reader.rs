//! One bounded reader for every hand-written binary layout: schemas, log records, manifests, catalog edits, tokens.
//!
//! All integers are little-endian. The reader never trusts a length: each field is compared with the bytes that are
//! left, so a length from outside never becomes the size of an allocation. What the fields mean, and checksums, are the
//! caller's.
//!
//! Each crate keeps an error type of its own and converts [`Malformed`] into it, so that `?` works in its decoders.

use bytes::Bytes;

/// Bytes that do not have the layout they should have. Offsets count from where the reader started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field is longer than what is left.
    #[error("the bytes end inside the field at offset {0}")]
    EndsInside(usize),
    /// More elements are announced than the bytes that follow could hold.
    #[error("the count at offset {0} exceeds the bytes that follow")]
    Count(usize),
    /// A flag is neither 0 nor 1.
    #[error("the flag at offset {0} is neither 0 nor 1")]
    Flag(usize),
    /// A text is not UTF-8.
    #[error("the text at offset {0} is not UTF-8")]
    Text(usize),
    /// Bytes follow the last field.
    #[error("{0} bytes follow the last field")]
    LeftOver(usize),
    /// A field of so many bytes cannot be written: its length has 16 bits.
    #[error("a field has {0} bytes; at most 65535 are allowed")]
    TooLong(usize),
}

impl Malformed {
    /// What is wrong, without the place.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::EndsInside(_) => "the bytes end inside a field",
            Self::Count(_) => "a count exceeds the bytes that follow",
            Self::Flag(_) => "a flag is neither 0 nor 1",
            Self::Text(_) => "a text is not UTF-8",
            Self::LeftOver(_) => "bytes follow the last field",
            Self::TooLong(_) => "a field is longer than 65535 bytes",
        }
    }
}

/// Where bytes are read from: `&[u8]`, whose fields borrow, or [`Bytes`], whose fields share the buffer.
pub trait ByteSource: AsRef<[u8]> + Sized {
    /// Takes the first `length` bytes, of at least as many.
    ///
    /// # Panics
    /// When there are fewer.
    fn take_front(&mut self, length: usize) -> Self;

    /// Drops the first `length` bytes, of at least as many.
    ///
    /// # Panics
    /// When there are fewer.
    fn skip_front(&mut self, length: usize);
}

impl ByteSource for &[u8] {
    fn take_front(&mut self, length: usize) -> Self {
        let (front, rest) = self.split_at(length);
        *self = rest;
        front
    }

    fn skip_front(&mut self, length: usize) {
        *self = &self[length..];
    }
}

impl ByteSource for Bytes {
    fn take_front(&mut self, length: usize) -> Self {
        self.split_to(length)
    }

    fn skip_front(&mut self, length: usize) {
        bytes::Buf::advance(self, length);
    }
}

/// Takes fields from the front of some bytes.
///
/// ```
/// use terrane_types::{ByteReader, Malformed};
/// let mut reader = ByteReader::new(&[7, 0, 2, 0, 0, 0, b'o', b'k', 1][..]);
/// assert_eq!(reader.u16()?, 7);
/// assert_eq!(reader.bytes()?, b"ok");
/// assert_eq!(reader.u32(), Err(Malformed::EndsInside(8)));
/// assert_eq!(reader.finish(), Err(Malformed::LeftOver(1)));
/// # Ok::<(), Malformed>(())
/// ```
#[derive(Clone, Debug)]
pub struct ByteReader<S> {
    rest: S,
    offset: usize,
}

impl<S: ByteSource> ByteReader<S> {
    /// A reader that starts at the first of these bytes.
    pub const fn new(bytes: S) -> Self {
        Self { rest: bytes, offset: 0 }
    }

    /// How many bytes were taken.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.as_ref().len()
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.rest.as_ref().is_empty()
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// [`Malformed`] when fewer are left, as for every method that takes a field.
    pub fn take(&mut self, length: usize) -> Result<S, Malformed> {
        if length > self.remaining() {
            return Err(Malformed::EndsInside(self.offset));
        }
        self.offset += length;
        Ok(self.rest.take_front(length))
    }

    /// The next `N` bytes by value.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let array = *self.rest.as_ref().first_chunk::<N>().ok_or(Malformed::EndsInside(self.offset))?;
        self.offset += N;
        self.rest.skip_front(N);
        Ok(array)
    }

    /// A byte.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// A 16-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// A 32-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// A 64-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A signed 64-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// [`Malformed`], also for any other byte.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        let at = self.offset;
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Flag(at)),
        }
    }

    /// A 32-bit count of elements that take at least `least` bytes each.
    ///
    /// # Errors
    /// [`Malformed`], also for a count that the bytes left cannot hold: an allocation of that size is safe.
    pub fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let at = self.offset;
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed::Count(at))?;
        if count > self.remaining() / least.max(1) { Err(Malformed::Count(at)) } else { Ok(count) }
    }

    /// Bytes after their 32-bit length.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn bytes(&mut self) -> Result<S, Malformed> {
        let at = self.offset;
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed::EndsInside(at))?;
        self.take(length)
    }

    /// Bytes after their 16-bit length: rows, qualifiers, keys.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn short(&mut self) -> Result<S, Malformed> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// UTF-8 after its 32-bit length.
    ///
    /// # Errors
    /// [`Malformed`], also for bytes that are not UTF-8.
    pub fn text(&mut self) -> Result<String, Malformed> {
        let at = self.offset;
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes.as_ref()).map(str::to_owned).map_err(|_| Malformed::Text(at))
    }

    /// A flag, and the value after it where the flag is set.
    ///
    /// # Errors
    /// [`Malformed`], or what `read` answers.
    pub fn option<T, E: From<Malformed>>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A 32-bit count, and so many elements. The list grows as its elements are found.
    ///
    /// # Errors
    /// [`Malformed`], or what `each` answers.
    pub fn list<T, E: From<Malformed>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut items = Vec::new();
        for _ in 0..self.u32()? {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> S {
        let length = self.remaining();
        self.offset += length;
        self.rest.take_front(length)
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// [`Malformed::LeftOver`].
    pub fn finish(self) -> Result<(), Malformed> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(Malformed::LeftOver(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_and_counts_are_compared_with_what_is_left() {
        let mut reader = ByteReader::new(&[9, 0, 1][..]);
        assert_eq!(reader.short(), Err(Malformed::EndsInside(2)));
        let mut reader = ByteReader::new(&[0xFF, 0xFF, 0xFF, 0xFF, 1, 2][..]);
        assert_eq!(reader.clone().count(1), Err(Malformed::Count(0)));
        assert_eq!(reader.bytes(), Err(Malformed::EndsInside(4)));
        let mut reader = ByteReader::new(&[2, 0, 0, 0, 1, 2, 3][..]);
        assert_eq!(reader.clone().count(2), Err(Malformed::Count(0)));
        assert_eq!(reader.count(1), Ok(2));
        let endless = ByteReader::new(&[0xFF, 0xFF, 0xFF, 0xFF, 7][..]).list(ByteReader::u8);
        assert_eq!(endless, Err(Malformed::EndsInside(5)), "the list ends with the bytes");
    }

    #[test]
    fn flags_and_texts_are_checked() {
        assert_eq!(ByteReader::new(&[2][..]).flag(), Err(Malformed::Flag(0)));
        assert_eq!(ByteReader::new(&[1, 0, 0, 0, 0xFF][..]).text(), Err(Malformed::Text(0)));
        assert_eq!(ByteReader::new(&[1, 7][..]).option(ByteReader::u8), Ok(Some(7)));
        assert_eq!(ByteReader::new(&[0, 7][..]).option(ByteReader::u8), Ok(None));
    }

    proptest! {
        #[test]
        fn shared_and_borrowed_bytes_read_alike(bytes in proptest::collection::vec(0..4u8, 0..40)) {
            let mut borrowed = ByteReader::new(&bytes[..]);
            let mut shared = ByteReader::new(Bytes::from(bytes.clone()));
            for step in 0..6 {
                match step {
                    0 => prop_assert_eq!(borrowed.short().map(<[u8]>::to_vec), shared.short().map(|taken| taken.to_vec())),
                    1 => prop_assert_eq!(borrowed.flag(), shared.flag()),
                    2 => prop_assert_eq!(borrowed.count(3), shared.count(3)),
                    3 => prop_assert_eq!(borrowed.text(), shared.text()),
                    4 => prop_assert_eq!(borrowed.list(ByteReader::u16), shared.list(ByteReader::u16)),
                    _ => prop_assert_eq!(borrowed.i64(), shared.i64()),
                }
                prop_assert_eq!((borrowed.offset(), borrowed.remaining()), (shared.offset(), shared.remaining()));
            }
            prop_assert_eq!(borrowed.clone().rest(), &shared.clone().rest()[..]);
            prop_assert_eq!(borrowed.finish(), shared.finish());
        }
    }
}
