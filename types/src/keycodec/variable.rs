//! Variable-width parts that other parts may follow: text and bytes, end-escaped.
//!
//! A zero byte inside becomes `00 FF`, and `00 01` ends the part. So the empty string sorts first, a string sorts
//! before its extensions (its end, `00 01`, is below any other byte and below an escaped zero), and no encoding is a
//! prefix of another, whichever bytes follow.

use bytes::Bytes;

use super::{KeyPart, PartKind, PartReader, PartType, PlainPart};
use crate::invalid::Invalid;

pub(crate) fn encode_escaped(value: &[u8], out: &mut Vec<u8>) {
    out.reserve(value.len() + 2);
    for &byte in value {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

pub(crate) fn into_text(bytes: Vec<u8>) -> Result<String, Invalid> {
    String::from_utf8(bytes).map_err(|_| Invalid::new("a text in the key is not UTF-8"))
}

impl KeyPart for String {
    const KIND: PartKind = PartKind::asc(PartType::Text);

    fn encode_part(&self, out: &mut Vec<u8>) {
        encode_escaped(self.as_bytes(), out);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        into_text(input.escaped()?)
    }
}

impl PlainPart for String {}

impl KeyPart for Vec<u8> {
    const KIND: PartKind = PartKind::asc(PartType::Bytes);

    fn encode_part(&self, out: &mut Vec<u8>) {
        encode_escaped(self, out);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        input.escaped()
    }
}

impl PlainPart for Vec<u8> {}

impl KeyPart for Bytes {
    const KIND: PartKind = PartKind::asc(PartType::Bytes);

    fn encode_part(&self, out: &mut Vec<u8>) {
        encode_escaped(self, out);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        input.escaped().map(Self::from)
    }
}

impl PlainPart for Bytes {}
