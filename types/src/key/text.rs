//! Keys as text, part by part: what a person types and sees for a table that declares its key.
//!
//! Times are dates ([`crate::time`]), numbers are decimal (a NaN other than the usual one is `NaN:` and its bits as hexadecimal digits), a bool is `true` or `false`, a UUID is in its hyphenated form, and everything made of bytes is
//! escaped as everywhere (`\xHH`, `\\`).

use uuid::Uuid;

use super::{KeyDeclaration, KeyPart};
use crate::escape::{escape, unescape};
use crate::invalid::Invalid;
use crate::keycodec::{self, Desc, KeyPart as Codec, PartKind, PartReader, PartType, PlainPart, Tail};
use crate::range::KeyRange;
use crate::row::Row;
use crate::time::Time;

impl KeyDeclaration {
    /// The row of a key with these parts; a bucket is computed.
    ///
    /// # Errors
    /// [`Invalid`] for a wrong number of parts, a text that its part does not accept, or a key too long for a row.
    pub fn encode(&self, texts: &[impl AsRef<str>]) -> Result<Row, Invalid> {
        let parts = self.text_parts();
        if texts.len() != parts.len() {
            let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            return Err(Invalid::new(format!(
                "the key has {} parts ({}), not {}",
                parts.len(),
                names.join(", "),
                texts.len()
            )));
        }
        let mut out = self.encode_parts(texts)?;
        if let PartType::Bucket(buckets) = self.parts()[0].kind.part {
            out.insert(0, keycodec::bucket_of(buckets, &out));
        }
        Row::new(out)
    }

    /// The ranges of all keys that start with these parts: one, or one per bucket.
    ///
    /// # Errors
    /// [`Invalid`] for too many parts, or a text that its part does not accept.
    pub fn prefix_ranges(&self, texts: &[impl AsRef<str>]) -> Result<Vec<KeyRange>, Invalid> {
        if texts.len() > self.text_parts().len() {
            return Err(Invalid::new(format!("the key has {} parts, not {}", self.text_parts().len(), texts.len())));
        }
        let prefix = self.encode_parts(texts)?;
        Ok(keycodec::bucket_ranges(&[self.parts()[0].kind], &prefix))
    }

    pub(super) fn encode_parts(&self, texts: &[impl AsRef<str>]) -> Result<Vec<u8>, Invalid> {
        let mut out = Vec::new();
        for (part, text) in self.text_parts().iter().zip(texts) {
            encode_text(part.kind, text.as_ref(), &mut out).map_err(|error| in_part(part, &error))?;
        }
        Ok(out)
    }

    /// The bytes of one part in a key: those of a smaller value sort first, or last if the part is `desc`.
    ///
    /// # Errors
    /// [`Invalid`] that names the part, for a text that it does not accept.
    pub fn encode_part(&self, place: usize, text: &str) -> Result<Vec<u8>, Invalid> {
        let part = self.parts().get(place).ok_or_else(|| Invalid::new(format!("the key has no part {place}")))?;
        let mut out = Vec::new();
        encode_text(part.kind, text, &mut out).map_err(|error| in_part(part, &error))?;
        Ok(out)
    }

    /// The bytes of one part of a row; `None` if the row does not start with such parts.
    ///
    /// ```
    /// use terrane_types::KeyDeclaration;
    /// let key = KeyDeclaration::parse("user:text, time:desc i64")?;
    /// let row = key.encode(&["ann", "5"])?;
    /// assert_eq!(key.part_bytes(&row, 1), Some(&key.encode_part(1, "5")?[..]));
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    #[must_use]
    pub fn part_bytes<'r>(&self, row: &'r [u8], place: usize) -> Option<&'r [u8]> {
        let mut input = PartReader::new(row);
        let mut start = 0;
        for part in self.parts().get(..=place)? {
            start = row.len() - input.remaining();
            skip(part.kind, &mut input).ok()?;
        }
        row.get(start..row.len() - input.remaining())
    }

    /// The parts of a row as text, without a bucket.
    ///
    /// # Errors
    /// [`Invalid`] if the row is not such a key.
    pub fn decode(&self, row: &[u8]) -> Result<Vec<String>, Invalid> {
        let mut input = PartReader::new(row);
        let mut texts = Vec::with_capacity(self.parts().len());
        for part in self.parts() {
            let text = decode_text(part.kind, &mut input).map_err(|error| in_part(part, &error))?;
            texts.extend(text);
        }
        input.finish()?;
        keycodec::check_bucket(self.parts().first().map(|part| part.kind.part), row)?;
        Ok(texts)
    }

    /// The length of the row's first `parts` parts, counting a bucket as a part; `None` if the row does not start with
    /// such parts. If `atomic` is `parts`, a split never separates rows that share these bytes; if `bloom_prefix` is,
    /// such rows are one entry in bloom filters.
    ///
    /// ```
    /// use terrane_types::KeyDeclaration;
    /// let key = KeyDeclaration::parse("user:text, time:desc i64")?;
    /// let row = key.encode(&["ann", "5"])?;
    /// assert_eq!(key.prefix_len(&row, 1), Some(5)); // a n n 00 01
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    #[must_use]
    pub fn prefix_len(&self, row: &[u8], parts: u32) -> Option<usize> {
        let parts = self.parts().get(..parts as usize)?;
        let mut input = PartReader::new(row);
        for part in parts {
            skip(part.kind, &mut input).ok()?;
        }
        Some(row.len() - input.remaining())
    }
}

fn in_part(part: &KeyPart, error: &Invalid) -> Invalid {
    Invalid::new(format!("part {} ({}): {error}", part.name, part.kind))
}

fn encode_text(kind: PartKind, text: &str, out: &mut Vec<u8>) -> Result<(), Invalid> {
    match kind.part {
        PartType::U32 => put::<u32>(kind, integer(text, u32::MIN, u32::MAX)?, out),
        PartType::U64 => put::<u64>(kind, integer(text, u64::MIN, u64::MAX)?, out),
        PartType::I32 => put::<i32>(kind, integer(text, i32::MIN, i32::MAX)?, out),
        PartType::I64 => put::<i64>(kind, integer(text, i64::MIN, i64::MAX)?, out),
        PartType::F64 => put::<f64>(kind, parse_float(text)?, out),
        PartType::Time => put(kind, Time::parse(text)?, out),
        PartType::Bool => put::<bool>(kind, parse(text, "true or false")?, out),
        PartType::Uuid => {
            put::<Uuid>(kind, parse(text, "a UUID, as in 67e55044-10b1-426f-9247-bb680e5fe0c8")?, out);
        }
        PartType::Text => {
            let text = String::from_utf8(unescape(text)?);
            put(kind, text.map_err(|_| Invalid::new("the bytes are not UTF-8, which a text is"))?, out);
        }
        PartType::Bytes => put(kind, unescape(text)?, out),
        PartType::Tail => Tail(unescape(text)?).encode_part(out),
        PartType::Fixed(width) => put_fixed(kind, &unescape(text)?, usize::from(width), out)?,
        PartType::Bucket(_) => {}
    }
    Ok(())
}

/// Reads one part and shows it; `None` for a bucket, which is not shown.
fn decode_text(kind: PartKind, input: &mut PartReader<'_>) -> Result<Option<String>, Invalid> {
    let text = match kind.part {
        PartType::U32 => take::<u32>(kind, input)?.to_string(),
        PartType::U64 => take::<u64>(kind, input)?.to_string(),
        PartType::I32 => take::<i32>(kind, input)?.to_string(),
        PartType::I64 => take::<i64>(kind, input)?.to_string(),
        PartType::F64 => float_text(take::<f64>(kind, input)?),
        PartType::Time => take::<Time>(kind, input)?.to_string(),
        PartType::Bool => take::<bool>(kind, input)?.to_string(),
        PartType::Uuid => take::<Uuid>(kind, input)?.to_string(),
        PartType::Text => escape(take::<String>(kind, input)?.as_bytes()),
        PartType::Bytes => escape(&take::<Vec<u8>>(kind, input)?),
        PartType::Tail => escape(input.tail()),
        PartType::Fixed(width) => escape(&take_fixed(kind, input, usize::from(width))?),
        PartType::Bucket(_) => {
            input.array::<1>()?;
            return Ok(None);
        }
    };
    Ok(Some(text))
}

/// Reads one part and checks it as [`decode_text`] does, without building text, because flushes and reads do this for
/// every row.
fn skip(kind: PartKind, input: &mut PartReader<'_>) -> Result<(), Invalid> {
    match kind.part {
        PartType::U32 => take::<u32>(kind, input).map(drop),
        PartType::U64 => take::<u64>(kind, input).map(drop),
        PartType::I32 => take::<i32>(kind, input).map(drop),
        PartType::I64 => take::<i64>(kind, input).map(drop),
        PartType::F64 => take::<f64>(kind, input).map(drop),
        PartType::Time => take::<Time>(kind, input).map(drop),
        PartType::Bool => take::<bool>(kind, input).map(drop),
        PartType::Uuid => take::<Uuid>(kind, input).map(drop),
        PartType::Text => take::<String>(kind, input).map(drop),
        PartType::Bytes => take::<Vec<u8>>(kind, input).map(drop),
        PartType::Fixed(width) => take_fixed(kind, input, usize::from(width)).map(drop),
        PartType::Bucket(_) => input.array::<1>().map(drop),
        PartType::Tail => {
            let _tail = input.tail();
            Ok(())
        }
    }
}

fn parse<T: std::str::FromStr>(text: &str, takes: &str) -> Result<T, Invalid> {
    text.parse().map_err(|_| Invalid::new(format!("{text:?} is not {takes}")))
}

fn integer<T: std::str::FromStr + std::fmt::Display>(text: &str, min: T, max: T) -> Result<T, Invalid> {
    text.parse().map_err(|_| Invalid::new(format!("{text:?} is not an integer from {min} to {max}")))
}

/// Before the bits of a NaN: keys tell all of them apart, and `NaN` alone means one.
const NAN_BITS: &str = "NaN:";

fn float_text(value: f64) -> String {
    if value.is_nan() && value.to_bits() != f64::NAN.to_bits() {
        return format!("{NAN_BITS}{:016x}", value.to_bits());
    }
    value.to_string()
}

fn parse_float(text: &str) -> Result<f64, Invalid> {
    match text.strip_prefix(NAN_BITS).map(|bits| u64::from_str_radix(bits, 16)) {
        Some(bits) => {
            let value = bits.map(f64::from_bits).ok().filter(|value| value.is_nan());
            value.ok_or_else(|| Invalid::new(format!("{text:?} does not have the bits of a NaN")))
        }
        None => parse(text, "a number"),
    }
}

fn put<T: PlainPart>(kind: PartKind, value: T, out: &mut Vec<u8>) {
    if kind.desc { Desc(value).encode_part(out) } else { value.encode_part(out) }
}

fn take<T: PlainPart>(kind: PartKind, input: &mut PartReader<'_>) -> Result<T, Invalid> {
    if kind.desc { Desc::decode_part(input).map(|Desc(value)| value) } else { T::decode_part(input) }
}

fn put_fixed(kind: PartKind, value: &[u8], width: usize, out: &mut Vec<u8>) -> Result<(), Invalid> {
    if value.len() != width {
        return Err(Invalid::new(format!("{} bytes are given where {width} belong", value.len())));
    }
    let mask = if kind.desc { 0xff } else { 0 };
    out.extend(value.iter().map(|byte| byte ^ mask));
    Ok(())
}

fn take_fixed(kind: PartKind, input: &mut PartReader<'_>, width: usize) -> Result<Vec<u8>, Invalid> {
    if kind.desc { input.reversed(|input| input.fixed(width)) } else { input.fixed(width) }
}
