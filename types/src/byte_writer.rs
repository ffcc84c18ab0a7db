//! The one writer of hand-written binary layouts, the counterpart of [`ByteReader`](crate::ByteReader).
//!
//! All integers are little-endian, and a field of bytes comes behind its length in 32 bits. What the fields mean, and checksums,
//! are the caller's.

/// Appends fields to the bytes in it.
///
/// ```
/// use terrane_types::{ByteReader, ByteWriter};
/// let mut out = ByteWriter::default();
/// out.u16(7);
/// out.text("ok");
/// assert_eq!(out.finish(), [7, 0, 2, 0, 0, 0, b'o', b'k']);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ByteWriter(pub Vec<u8>);

impl ByteWriter {
    /// A writer of a record that begins with the number of its format.
    #[must_use]
    pub fn new(format: u8) -> Self {
        Self(vec![format])
    }

    /// Appends a byte.
    pub fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    /// Appends 16 bits.
    pub fn u16(&mut self, number: u16) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends 32 bits.
    pub fn u32(&mut self, number: u32) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends 64 bits.
    pub fn i64(&mut self, number: i64) {
        self.raw(&number.to_le_bytes());
    }

    /// Appends a count in 32 bits.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("what is counted here has limits far below 2^32"));
    }

    /// Appends bytes without their length.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends bytes behind their length.
    ///
    /// # Panics
    /// If there are 4 GiB or more.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// Appends a text behind its length.
    ///
    /// # Panics
    /// If it has 4 GiB or more.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Appends a tag, then numbers.
    pub fn tagged(&mut self, tag: u8, numbers: &[u64]) {
        self.u8(tag);
        numbers.iter().for_each(|number| self.u64(*number));
    }

    /// Appends a count, then each element.
    ///
    /// # Panics
    /// If there are 2^32 elements or more.
    pub fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.count(items.len());
        for item in items {
            each(self, item);
        }
    }

    /// What was written.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}
