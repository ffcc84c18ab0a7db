//! The one writer of hand-written binary layouts, the counterpart of [`ByteReader`](crate::ByteReader).
//!
//! All integers are little-endian, and a field of bytes comes behind its length in 32 bits. What the fields mean, and checksums,
//! are the caller's.

use crate::byte_reader::Malformed;

/// Appends fields to bytes.
///
/// ```
/// use terrane_types::ByteWriter as _;
/// let mut out = Vec::new();
/// out.u16(7);
/// out.text("ok");
/// assert_eq!(out, [7, 0, 2, 0, 0, 0, b'o', b'k']);
/// ```
pub trait ByteWriter: Sized {
    /// Appends bytes without their length.
    fn raw(&mut self, bytes: &[u8]);

    /// Appends a byte.
    fn u8(&mut self, number: u8) {
        self.raw(&[number]);
    }

    /// Appends 16 bits.
    fn u16(&mut self, number: u16) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends 32 bits.
    fn u32(&mut self, number: u32) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends 64 bits.
    fn u64(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends 64 bits.
    fn i64(&mut self, number: i64) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends a byte that is 0 or 1.
    fn flag(&mut self, flag: bool) {
        self.u8(u8::from(flag));
    }

    /// Appends a count in 32 bits.
    ///
    /// # Panics
    /// If it does not fit.
    fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("what is counted here has limits far below 2^32"));
    }

    /// Appends bytes behind their length.
    ///
    /// # Panics
    /// If there are 4 GiB or more.
    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// Appends bytes behind their length in 16 bits.
    ///
    /// # Errors
    /// [`Malformed`] if there are 64 KiB or more, and then nothing is written.
    fn short(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.u16(u16::try_from(bytes.len()).map_err(|_| Malformed::TooLong(bytes.len()))?);
        self.raw(bytes);
        Ok(())
    }

    /// Appends a text behind its length.
    ///
    /// # Panics
    /// If it has 4 GiB or more.
    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Appends a tag, then numbers.
    fn tagged(&mut self, tag: u8, numbers: &[u64]) {
        self.u8(tag);
        numbers.iter().for_each(|number| self.u64(*number));
    }

    /// Appends a flag, and the value where there is one.
    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Appends a count, then each element.
    ///
    /// # Panics
    /// If there are 2^32 elements or more.
    fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.count(items.len());
        for item in items {
            each(self, item);
        }
    }
}

impl ByteWriter for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_too_long_for_its_length_is_refused_and_not_written() {
        let mut out = Vec::new();
        out.short(&[b'k'; 65_535]).unwrap();
        assert_eq!(crate::ByteReader::new(&out[..]).short().unwrap().len(), 65_535);
        let mut out = Vec::new();
        assert_eq!(out.short(&[b'k'; 65_536]), Err(Malformed::TooLong(65_536)));
        assert!(out.is_empty());
    }
}
