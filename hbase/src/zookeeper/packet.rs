//! ZooKeeper's packets: big-endian fields behind a length.

use bytes::{BufMut as _, Bytes, BytesMut};

/// Reads the fields of a packet.
pub(super) struct Fields<'a>(pub &'a [u8]);

/// A packet that ends inside a field, or holds a text that is not UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl<'a> Fields<'a> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*chunk)
    }

    pub fn int(&mut self) -> Result<i32, Malformed> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub fn long(&mut self) -> Result<i64, Malformed> {
        self.chunk().map(i64::from_be_bytes)
    }

    pub fn flag(&mut self) -> Result<bool, Malformed> {
        self.chunk().map(|[byte]| byte != 0)
    }

    /// Bytes behind their length; a length of -1 is no bytes.
    pub fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(&[]);
        }
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (buffer, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(buffer)
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.buffer()?).map_err(|_| Malformed)
    }
}

/// Writes a packet behind its length.
pub(super) fn packet(fill: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i32(0);
    fill(&mut out);
    let length = i32::try_from(out.len() - 4).expect("packets are short");
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

/// Writes bytes behind their length.
pub(super) fn put_buffer(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(i32::try_from(bytes.len()).expect("what is sent is short"));
    out.put_slice(bytes);
}
