//! Reads the parts of an encoded key from front to back, ascending or reversed.

use crate::invalid::Invalid;

/// The rest of an encoded key. While a reversed part is read, every byte is complemented, so that each type needs only
/// one decoder.
#[derive(Clone, Debug)]
pub struct PartReader<'a> {
    rest: &'a [u8],
    /// 0x00, or 0xFF while a reversed part is read.
    mask: u8,
}

impl<'a> PartReader<'a> {
    /// A reader of this key.
    #[must_use]
    pub const fn new(key: &'a [u8]) -> Self {
        Self { rest: key, mask: 0 }
    }

    /// Runs `read` with the bytes complemented.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn reversed<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Invalid>) -> Result<T, Invalid> {
        self.mask = !self.mask;
        let result = read(self);
        self.mask = !self.mask;
        result
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`Invalid`] if fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Invalid> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        array.iter_mut().for_each(|byte| *byte ^= self.mask);
        Ok(array)
    }

    /// The next `length` bytes, for a width known only at run time.
    ///
    /// # Errors
    /// [`Invalid`] if fewer are left.
    pub fn fixed(&mut self, length: usize) -> Result<Vec<u8>, Invalid> {
        let mask = self.mask;
        Ok(self.take(length)?.iter().map(|byte| byte ^ mask).collect())
    }

    /// The next end-escaped bytes, unescaped, their end consumed.
    ///
    /// # Errors
    /// [`Invalid`] if the end is missing, or a zero byte is followed by an invalid byte.
    pub fn escaped(&mut self) -> Result<Vec<u8>, Invalid> {
        let mut value = Vec::new();
        loop {
            let [byte] = self.array()?;
            if byte != 0 {
                value.push(byte);
                continue;
            }
            match self.array()? {
                [0xff] => value.push(0),
                [0x01] => return Ok(value),
                [other] => {
                    return Err(Invalid::new(format!(
                        "the key has 00 {other:02X} inside a text, where 00 FF or 00 01 may be"
                    )));
                }
            }
        }
    }

    /// Everything that is left.
    #[must_use]
    pub fn tail(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// How many bytes are left.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    /// [`Invalid`] if bytes are left over.
    pub fn finish(&self) -> Result<(), Invalid> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Invalid::new(format!("the key has {} bytes more than its parts", self.rest.len())))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Invalid> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| {
            Invalid::new(format!("the key ends inside a part: {length} bytes are wanted and {} left", self.rest.len()))
        })?;
        self.rest = rest;
        Ok(taken)
    }
}
