//! Parts of a fixed width: integers, times, floats, booleans, UUIDs and byte arrays.

use uuid::Uuid;

use super::{KeyPart, PartKind, PartReader, PartType, PlainPart};
use crate::invalid::Invalid;
use crate::limits::ROW_BYTES_MAX;
use crate::time::Time;

macro_rules! integer_part {
    ($integer:ty, $part:expr, |$value:ident| $encode:expr, |$raw:ident| $decode:expr) => {
        impl KeyPart for $integer {
            const KIND: PartKind = PartKind::asc($part);

            fn encode_part(&self, out: &mut Vec<u8>) {
                let $value = *self;
                out.extend_from_slice(&($encode).to_be_bytes());
            }

            fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
                let $raw = <$integer>::from_be_bytes(input.array()?);
                Ok($decode)
            }
        }

        impl PlainPart for $integer {}
    };
}

integer_part!(u32, PartType::U32, |value| value, |raw| raw);
integer_part!(u64, PartType::U64, |value| value, |raw| raw);
// Flipping the sign bit moves the negative half below the positive one.
integer_part!(i32, PartType::I32, |value| value ^ i32::MIN, |raw| raw ^ i32::MIN);
integer_part!(i64, PartType::I64, |value| value ^ i64::MIN, |raw| raw ^ i64::MIN);

/// The bytes of its milliseconds as an `i64`, so that a declaration of either reads keys of the other.
impl KeyPart for Time {
    const KIND: PartKind = PartKind::asc(PartType::Time);

    fn encode_part(&self, out: &mut Vec<u8>) {
        self.millis().encode_part(out);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        i64::decode_part(input).map(Self::from_millis)
    }
}

impl PlainPart for Time {}

/// The bits of a float, transformed so that comparing them as unsigned integers gives IEEE's total order: negative
/// numbers are complemented (a greater magnitude is less), others get the sign bit set.
pub(crate) fn float_to_ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

pub(crate) fn float_from_ordered(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered ^ 1 << 63 } else { !ordered })
}

impl KeyPart for f64 {
    const KIND: PartKind = PartKind::asc(PartType::F64);

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&float_to_ordered(*self).to_be_bytes());
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        Ok(float_from_ordered(u64::from_be_bytes(input.array()?)))
    }
}

impl PlainPart for f64 {}

impl KeyPart for bool {
    const KIND: PartKind = PartKind::asc(PartType::Bool);

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        match input.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(Invalid::new(format!("the key has {other:02X} where a bool, 00 or 01, should be"))),
        }
    }
}

impl PlainPart for bool {}

impl KeyPart for Uuid {
    const KIND: PartKind = PartKind::asc(PartType::Uuid);

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        Ok(Self::from_bytes(input.array()?))
    }
}

impl PlainPart for Uuid {}

impl<const N: usize> KeyPart for [u8; N] {
    const KIND: PartKind = {
        assert!(N >= 1 && N <= ROW_BYTES_MAX, "the width of a key part is 1 to 32767 bytes");
        PartKind::asc(PartType::Fixed(N as u16))
    };

    fn encode_part(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode_part(input: &mut PartReader<'_>) -> Result<Self, Invalid> {
        input.array()
    }
}

impl<const N: usize> PlainPart for [u8; N] {}
