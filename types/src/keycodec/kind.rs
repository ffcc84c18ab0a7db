//! The kinds of key parts, as a table's `key` attribute declares them.

use std::fmt;

use crate::invalid::Invalid;
use crate::limits::ROW_BYTES_MAX;

/// The type of a key part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartType {
    /// 4 bytes, big-endian.
    U32,
    /// 8 bytes, big-endian.
    U64,
    /// 4 bytes, big-endian, sign bit flipped.
    I32,
    /// 8 bytes, big-endian, sign bit flipped.
    I64,
    /// 8 bytes, IEEE total order.
    F64,
    /// A point in time: milliseconds since 1970, with the bytes of an [`I64`](PartType::I64).
    Time,
    /// One byte, 0 or 1.
    Bool,
    /// 16 bytes.
    Uuid,
    /// UTF-8, end-escaped.
    Text,
    /// Any bytes, end-escaped.
    Bytes,
    /// Any bytes, raw to the end of the key; last only.
    Tail,
    /// This many bytes, raw.
    Fixed(u16),
    /// One byte: a hash of the parts after it modulo this; first only.
    Bucket(u16),
}

/// A key part's type and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartKind {
    /// The type.
    pub part: PartType,
    /// Whether values sort from high to low.
    pub desc: bool,
}

impl PartKind {
    /// A part that sorts from low to high.
    #[must_use]
    pub const fn asc(part: PartType) -> Self {
        Self { part, desc: false }
    }

    /// The same part in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { part: self.part, desc: !self.desc }
    }

    /// The kind with the same bytes whose text is a number: a time as the `i64` that it is stored as.
    #[must_use]
    pub const fn as_stored(self) -> Self {
        match self.part {
            PartType::Time => Self { part: PartType::I64, desc: self.desc },
            _ => self,
        }
    }

    /// Whether this is a tail, which is allowed only as the last part.
    #[must_use]
    pub const fn is_tail(self) -> bool {
        matches!(self.part, PartType::Tail)
    }

    /// Whether this is a bucket, which is allowed only as the first part.
    #[must_use]
    pub const fn is_bucket(self) -> bool {
        matches!(self.part, PartType::Bucket(_))
    }

    /// Parses a kind: `u64`, `desc i64`, `bytes16`, `bucket8`.
    ///
    /// # Errors
    /// [`Invalid`] for an unknown type, and for `desc` before a tail or a bucket.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let text = text.trim();
        let (desc, name) = match text.strip_prefix("desc") {
            Some(rest) if rest.starts_with(char::is_whitespace) => (true, rest.trim_start()),
            _ => (false, text),
        };
        let kind = Self { part: parse_type(name)?, desc };
        if desc && (kind.is_tail() || kind.is_bucket()) {
            return Err(Invalid::new(format!("{text:?}: a tail or a bucket has no direction to reverse")));
        }
        Ok(kind)
    }
}

fn parse_type(name: &str) -> Result<PartType, Invalid> {
    let part = match name {
        "u32" => PartType::U32,
        "u64" => PartType::U64,
        "i32" => PartType::I32,
        "i64" => PartType::I64,
        "f64" => PartType::F64,
        "time" => PartType::Time,
        "bool" => PartType::Bool,
        "uuid" => PartType::Uuid,
        "text" => PartType::Text,
        "bytes" => PartType::Bytes,
        "tail" => PartType::Tail,
        _ => return parse_sized_type(name),
    };
    Ok(part)
}

fn parse_sized_type(name: &str) -> Result<PartType, Invalid> {
    if let Some(size) = name.strip_prefix("bytes").and_then(parse_size) {
        if (1..=ROW_BYTES_MAX).contains(&usize::from(size)) {
            return Ok(PartType::Fixed(size));
        }
        return Err(Invalid::new(format!("{name:?}: the width of a key part is 1 to {ROW_BYTES_MAX} bytes")));
    }
    if let Some(buckets) = name.strip_prefix("bucket").and_then(parse_size) {
        if (1..=256).contains(&buckets) {
            return Ok(PartType::Bucket(buckets));
        }
        return Err(Invalid::new(format!("{name:?}: the number of buckets is 1 to 256")));
    }
    let shown: String = name.chars().take(40).collect();
    Err(Invalid::new(format!(
        "{shown:?} is not the type of a key part; the types are u32 u64 i32 i64 f64 time bool uuid text bytes tail bytesN, \
         `desc` before one, and bucketN as the first part"
    )))
}

fn parse_size(digits: &str) -> Option<u16> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

impl fmt::Display for PartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.desc {
            f.write_str("desc ")?;
        }
        match self.part {
            PartType::U32 => f.write_str("u32"),
            PartType::U64 => f.write_str("u64"),
            PartType::I32 => f.write_str("i32"),
            PartType::I64 => f.write_str("i64"),
            PartType::F64 => f.write_str("f64"),
            PartType::Time => f.write_str("time"),
            PartType::Bool => f.write_str("bool"),
            PartType::Uuid => f.write_str("uuid"),
            PartType::Text => f.write_str("text"),
            PartType::Bytes => f.write_str("bytes"),
            PartType::Tail => f.write_str("tail"),
            PartType::Fixed(size) => write!(f, "bytes{size}"),
            PartType::Bucket(buckets) => write!(f, "bucket{buckets}"),
        }
    }
}
