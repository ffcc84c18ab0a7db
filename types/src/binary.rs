//! The little binary form that schemas and descriptors share: a version byte, then little-endian integers and
//! length-prefixed bytes.
//!
//! It carries no checksum: it always travels inside something that does (a log record, a manifest record, a
//! checkpoint). A length is only compared with the bytes that are there, never made the size of an allocation.

use crate::invalid::Invalid;

/// Appends fields in order.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(format: u8) -> Self {
        Self(vec![format])
    }

    pub(crate) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("what is counted here has limits far below 2^32"));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Takes fields in order; says in every error what was being read.
pub(crate) struct Reader<'a> {
    what: &'static str,
    format: u8,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins with the version byte; formats 1 to `newest` are read.
    pub(crate) fn new(what: &'static str, newest: u8, bytes: &'a [u8]) -> Result<Self, Invalid> {
        let mut reader = Self { what, format: 0, rest: bytes };
        reader.format = reader.u8()?;
        if !(1..=newest).contains(&reader.format) {
            return Err(Invalid::new(format!(
                "a {what} has format {}; this build reads up to format {newest}, so use the build that wrote it",
                reader.format
            )));
        }
        Ok(reader)
    }

    /// The format that was found: fields that came later are not in the older ones.
    pub(crate) fn format(&self) -> u8 {
        self.format
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Invalid> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| Invalid::new(format!("the bytes of a {} end too early", self.what)))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Invalid> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Invalid> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Invalid> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn count(&mut self) -> Result<usize, Invalid> {
        self.u32().map(|count| count as usize)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Invalid> {
        let length = self.count()?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Invalid> {
        let what = self.what;
        std::str::from_utf8(self.bytes()?).map_err(|_| Invalid::new(format!("a text in a {what} is not UTF-8")))
    }

    pub(crate) fn finish(self) -> Result<(), Invalid> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Invalid::new(format!("a {} is followed by {} bytes that do not belong to it", self.what, self.rest.len())))
    }
}
