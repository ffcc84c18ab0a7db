//! What the types of Parquet become: the closed list of `docs/import.md`.
//!
//! A column is examined before the first row is written. A type that is not on the list is refused by the column's name and
//! its own, since a number whose unit is not known is a wrong timestamp or a wrong key.

use ::parquet::basic::{Compression, ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use ::parquet::schema::types::ColumnDescriptor;

use super::super::mapping::Use;

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;
/// Digits that every integer of 128 bits has.
const DECIMAL_DIGITS_MAX: i32 = 38;

/// What the numbers or bytes of a column mean beyond their value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Plain,
    Unsigned,
    /// This many make a millisecond.
    PerMillisecond(i64),
    /// Days since 1970 that become milliseconds.
    Days,
    /// Big-endian integers in two's complement.
    Decimal,
}

impl Meaning {
    /// What a signed number becomes.
    pub fn integer(self, value: i64) -> i128 {
        match self {
            Meaning::PerMillisecond(count) => i128::from(value.div_euclid(count)),
            Meaning::Days => i128::from(value) * i128::from(DAY_MS),
            Meaning::Plain | Meaning::Unsigned | Meaning::Decimal => i128::from(value),
        }
    }
}

/// The type of a column as `docs/import.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Integer,
    Unsigned,
    Float,
    /// Without a fraction.
    Decimal,
    Date,
    /// Of a day, in this unit.
    Time(Unit),
    Timestamp(Unit),
    Text,
    Bytes,
    /// Only nulls.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl Unit {
    fn of(unit: &TimeUnit) -> Unit {
        match unit {
            TimeUnit::MILLIS => Unit::Milliseconds,
            TimeUnit::MICROS => Unit::Microseconds,
            TimeUnit::NANOS => Unit::Nanoseconds,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "milliseconds",
            Unit::Microseconds => "microseconds",
            Unit::Nanoseconds => "nanoseconds",
        }
    }

    fn meaning(self) -> Meaning {
        match self {
            Unit::Milliseconds => Meaning::Plain,
            Unit::Microseconds => Meaning::PerMillisecond(1_000),
            Unit::Nanoseconds => Meaning::PerMillisecond(1_000_000),
        }
    }
}

/// What the values of a column mean where they are used, or why they cannot be.
pub fn meaning_of(column: &ColumnDescriptor, used: Use) -> Result<Meaning, String> {
    let name = column.path().string();
    if column.max_rep_level() > 0 || column.max_def_level() > 1 || column.path().parts().len() > 1 {
        return Err(format!("column {name:?} is nested, and a cell has one value: flatten it before, or skip it"));
    }
    let kind = kind_of(column)?;
    let refused = |what: &str, advice: &str| {
        Err(format!("column {name:?} is {what}, which is no timestamp in milliseconds: {advice}"))
    };
    Ok(match (kind, used) {
        (Kind::Bool, used) if used.is_time() => return refused("a BOOLEAN", "map another column to it"),
        (Kind::Float, used) if used.is_time() => {
            return refused(&format!("a {}", column.physical_type()), "write it as INT64 or as a TIMESTAMP");
        }
        (Kind::Time(_), used) if used.is_time() => {
            return refused("a TIME of day", "write a TIMESTAMP, which has the day as well, or skip it");
        }
        (Kind::Bytes, used) if used.is_time() && column.physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            return refused("a FIXED_LEN_BYTE_ARRAY", "write it as INT64 or as a TIMESTAMP");
        }
        (Kind::Date, used) if used.is_time() => Meaning::Days,
        (Kind::Time(unit) | Kind::Timestamp(unit), _) => unit.meaning(),
        (Kind::Unsigned, _) => Meaning::Unsigned,
        (Kind::Decimal, _) => Meaning::Decimal,
        (Kind::Bool | Kind::Float | Kind::Integer | Kind::Date | Kind::Text | Kind::Bytes | Kind::Unknown, _) => {
            Meaning::Plain
        }
    })
}

/// What to say before rows are written, where a column's numbers may be taken for something else.
pub fn note_of(column: &ColumnDescriptor, used: Use) -> Option<String> {
    if used == Use::Timestamp {
        return None;
    }
    let what = match kind_of(column).ok()? {
        Kind::Date if used.is_time() => return None,
        Kind::Date => "a DATE and is stored as days since 1970-01-01".to_owned(),
        Kind::Time(unit) => format!("a TIME in {} and is stored as milliseconds since midnight", unit.name()),
        Kind::Timestamp(unit @ (Unit::Microseconds | Unit::Nanoseconds)) => {
            let unit = unit.name();
            let ends = if matches!(used, Use::Key | Use::KeyTime) {
                ", also where that makes the keys of two rows equal"
            } else {
                ""
            };
            format!(
                "a TIMESTAMP in {unit} and is stored in milliseconds; fractions of them are dropped{ends} (write it as INT64 to keep {unit})"
            )
        }
        _ => return None,
    };
    Some(format!("column {:?} is {what}", column.path().string()))
}

fn kind_of(column: &ColumnDescriptor) -> Result<Kind, String> {
    let name = column.path().string();
    let physical = column.physical_type();
    if let Some(logical) = column.logical_type_ref() {
        return match logical {
            LogicalType::Decimal(decimal) => decimal_of(&name, decimal.scale, decimal.precision),
            LogicalType::Integer(integer) if !integer.is_signed => Ok(Kind::Unsigned),
            LogicalType::Integer(_) => Ok(Kind::Integer),
            LogicalType::Date => Ok(Kind::Date),
            LogicalType::Time(time) => Ok(Kind::Time(Unit::of(&time.unit))),
            LogicalType::Timestamp(time) => Ok(Kind::Timestamp(Unit::of(&time.unit))),
            LogicalType::String | LogicalType::Enum | LogicalType::Json => Ok(Kind::Text),
            LogicalType::Bson | LogicalType::Uuid => Ok(Kind::Bytes),
            LogicalType::Unknown => Ok(Kind::Unknown),
            LogicalType::Float16 => Err(format!("column {name:?} is a FLOAT16: write it as FLOAT or DOUBLE")),
            other => {
                // The name of the variant; of one that the crate does not know, `Unknown`.
                let shown = format!("{other:?}");
                let shown = shown
                    .trim_start_matches('_')
                    .split(|letter: char| !letter.is_alphanumeric())
                    .next()
                    .unwrap_or_default();
                Err(unknown(&name, &shown.to_uppercase()))
            }
        };
    }
    match column.converted_type() {
        ConvertedType::NONE => match physical {
            PhysicalType::BOOLEAN => Ok(Kind::Bool),
            PhysicalType::INT32 | PhysicalType::INT64 => Ok(Kind::Integer),
            PhysicalType::INT96 => {
                Err(format!("column {name:?} is an INT96, a deprecated form of timestamps: write it as INT64 instead"))
            }
            PhysicalType::FLOAT | PhysicalType::DOUBLE => Ok(Kind::Float),
            PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY => Ok(Kind::Bytes),
        },
        ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON => Ok(Kind::Text),
        ConvertedType::BSON => Ok(Kind::Bytes),
        ConvertedType::DECIMAL => decimal_of(&name, column.type_scale(), column.type_precision()),
        ConvertedType::DATE => Ok(Kind::Date),
        ConvertedType::TIME_MILLIS => Ok(Kind::Time(Unit::Milliseconds)),
        ConvertedType::TIME_MICROS => Ok(Kind::Time(Unit::Microseconds)),
        ConvertedType::TIMESTAMP_MILLIS => Ok(Kind::Timestamp(Unit::Milliseconds)),
        ConvertedType::TIMESTAMP_MICROS => Ok(Kind::Timestamp(Unit::Microseconds)),
        ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 => {
            Ok(Kind::Unsigned)
        }
        ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64 => {
            Ok(Kind::Integer)
        }
        other @ (ConvertedType::INTERVAL | ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE | ConvertedType::LIST) => {
            Err(unknown(&name, &other.to_string()))
        }
    }
}

fn unknown(name: &str, shown: &str) -> String {
    format!(
        "column {name:?} is of type {shown}, which an import does not read: write it as a number or text, or skip it"
    )
}

fn decimal_of(name: &str, scale: i32, precision: i32) -> Result<Kind, String> {
    match scale {
        0 if precision <= DECIMAL_DIGITS_MAX => Ok(Kind::Decimal),
        0 => Err(format!(
            "column {name:?} is a decimal of {precision} digits, of which at most {DECIMAL_DIGITS_MAX} are read: write it as text"
        )),
        _ => Err(format!(
            "column {name:?} is a decimal with a fraction, DECIMAL({precision},{scale}), which no type of a value is: write it as DOUBLE or as text"
        )),
    }
}

/// The number of a decimal without a fraction; `None` if it has no bytes or more than fit.
pub fn integer_of_decimal(bytes: &[u8]) -> Option<i128> {
    let sign = if *bytes.first()? & 0x80 == 0 { 0x00 } else { 0xff };
    let mut wide = [sign; 16];
    let extra = bytes.len().saturating_sub(wide.len());
    let (extension, rest) = bytes.split_at(extra);
    let at = wide.len() - rest.len();
    wide[at..].copy_from_slice(rest);
    let number = i128::from_be_bytes(wide);
    let same_sign = (number < 0) == (sign == 0xff);
    (same_sign && extension.iter().all(|byte| *byte == sign)).then_some(number)
}

/// Refuses what this build does not decompress.
pub fn check_codec(column: &str, codec: Compression) -> Result<(), String> {
    match codec {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::ZSTD(_)
        | Compression::BROTLI(_)
        | Compression::LZ4
        | Compression::LZ4_RAW => Ok(()),
        Compression::LZO => Err(format!(
            "column {column:?} is compressed with LZO, which an import does not read: write the file with Snappy, gzip, Zstandard, \
             LZ4, Brotli or without compression"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_an_integer_of_any_length() {
        for (bytes, number) in [
            (&[5u8][..], Some(5)),
            (&[0xff], Some(-1)),
            (&[0x00, 0x80], Some(128)),
            (&[0xff, 0xff, 0xff, 0xff, 0x38], Some(-200)),
            (&[0xff; 20], Some(-1)),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Some(i128::MIN)),
            (&[], None),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], None),
            (&[0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], None),
        ] {
            assert_eq!(integer_of_decimal(bytes), number, "{bytes:?}");
        }
    }
}
