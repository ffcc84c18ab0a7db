//! The values of the command line as types. Each is parsed in one place and valid from then on.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use clap::builder::{PossibleValue, TypedValueParser};
use terrane_env::trace::{BadTrace, TraceContext};
use terrane_types::{FamilyName, Invalid, Time as Moment, ValueType, escape, unescape};

use crate::formats::column_text;

/// A row key, a bound or a value as typed: its escapes are valid, and the table decides what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableWord(pub String);

impl FromStr for TableWord {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<TableWord, Invalid> {
        unescape(text)?;
        Ok(TableWord(text.to_owned()))
    }
}

impl fmt::Display for TableWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What `now` means in a time: the time of this machine.
pub fn now() -> Moment {
    Moment::from_millis(i64::try_from(terrane_env::time::wall_ms()).expect("milliseconds since 1970 fit 63 bits"))
}

/// Parses the timestamp of a cell, in milliseconds: a date, a number, or relative to now.
pub fn timestamp(text: &str) -> Result<i64, Invalid> {
    Moment::parse_at(text, now()).map(Moment::millis)
}

/// Timestamps `FROM..TO`, from inclusive to exclusive; either side may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub from: i64,
    pub to: i64,
}

impl FromStr for TimeRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<TimeRange, Invalid> {
        let (from, to) = text.split_once("..").ok_or_else(|| {
            Invalid::new(format!(
                "{text:?} is not a range of timestamps; write FROM..TO, FROM inclusive and TO exclusive, or leave one out, as \
                 in 2026-01-01..2026-02-01, -1h.. or ..1769817600000"
            ))
        })?;
        let side = |side: &str, missing: i64| match side.trim() {
            "" => Ok(missing),
            time => timestamp(time),
        };
        let range = TimeRange { from: side(from, 0)?, to: side(to, i64::MAX)? };
        if range.from < 0 || range.from >= range.to {
            return Err(Invalid::new(format!(
                "the range of timestamps {text} is empty; FROM is at least 0 and before TO"
            )));
        }
        Ok(range)
    }
}

/// A column, `family:qualifier`, or just `family` where a command also accepts families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub family: String,
    /// `None`: the whole family.
    pub qualifier: Option<Bytes>,
}

impl FromStr for Column {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Column, Invalid> {
        let (family, qualifier) = match text.split_once(':') {
            Some((family, qualifier)) => (family, Some(unescape(qualifier)?.into())),
            None => (text, None),
        };
        let family = family.parse::<FamilyName>()?.as_str().to_owned();
        Ok(Column { family, qualifier })
    }
}

/// Parses a column with a qualifier, which may be empty: `family:`.
pub fn full_column(text: &str) -> Result<Column, Invalid> {
    let column: Column = text.parse()?;
    if column.qualifier.is_none() {
        return Err(Invalid::new(format!("the column {text:?} is not `family:qualifier`")));
    }
    Ok(column)
}

/// A column whose values are numbers: `i32(data:airtemp)`, or `data:airtemp` in a table that declares its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberColumn {
    pub family: String,
    pub qualifier: Bytes,
    /// `None`: the type that the table declares.
    pub read_as: Option<ValueType>,
}

impl FromStr for NumberColumn {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<NumberColumn, Invalid> {
        let bad = || {
            Invalid::new(format!(
                "{text:?} is not `TYPE(COLUMN)`, for example i32(data:airtemp); the types are i32, i64, u32, u64 and f64; a \
                 column whose type the table declares needs none"
            ))
        };
        let named = text.find('(').filter(|&at| text.find(':').is_none_or(|colon| at < colon));
        let Some(named) = named else {
            let Column { family, qualifier } = full_column(text.trim()).map_err(|_| bad())?;
            return Ok(NumberColumn { family, qualifier: qualifier.unwrap_or_default(), read_as: None });
        };
        let column = text[named + 1..].strip_suffix(')').ok_or_else(bad)?;
        let read_as = ValueType::parse(text[..named].trim())?;
        if !read_as.is_number() {
            return Err(bad());
        }
        let Column { family, qualifier } = full_column(column.trim())?;
        Ok(NumberColumn { family, qualifier: qualifier.unwrap_or_default(), read_as: Some(read_as) })
    }
}

impl fmt::Display for NumberColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.read_as {
            Some(read_as) => write!(f, "{read_as}({})", column_text(self.family.as_bytes(), &self.qualifier)),
            None => f.write_str(&column_text(self.family.as_bytes(), &self.qualifier)),
        }
    }
}

/// A family with its attributes: `F`, or `F:attribute=value,...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySpec {
    pub name: FamilyName,
    pub attributes: Vec<(String, String)>,
}

impl FromStr for FamilySpec {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<FamilySpec, Invalid> {
        let (name, attributes) = match text.split_once(':') {
            Some((name, attributes)) => {
                (name, attributes.split(',').map(attribute).collect::<Result<Vec<_>, Invalid>>()?)
            }
            None => (text, Vec::new()),
        };
        Ok(FamilySpec { name: name.parse()?, attributes })
    }
}

/// The declared type of a column's values: `d:count=i64`, or `none` to end the declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnType {
    pub family: FamilyName,
    /// The attribute of the family, `type.QUALIFIER`, with the qualifier escaped.
    pub attribute: String,
    /// The name of the type, or `none`.
    pub value_type: String,
}

impl FromStr for ColumnType {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<ColumnType, Invalid> {
        let bad = || Invalid::new(format!("{text:?} is not `family:qualifier=TYPE`, for example d:count=i64"));
        let (column, value_type) = text.rsplit_once('=').ok_or_else(bad)?;
        let column = full_column(column).map_err(|_| bad())?;
        if value_type != "none" {
            ValueType::parse(value_type)?;
        }
        let qualifier = column.qualifier.unwrap_or_default();
        Ok(ColumnType {
            family: FamilyName::new(&column.family)?,
            attribute: format!("type.{}", escape(&qualifier)),
            value_type: value_type.to_owned(),
        })
    }
}

/// Parses `attribute=value`.
pub fn attribute(text: &str) -> Result<(String, String), Invalid> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Invalid::new(format!("{text:?} is not `attribute=value`"))),
    }
}

/// Parses attributes of tables as [`attribute`] does, and names them for the completions of shells.
#[derive(Clone, Copy, Debug)]
pub struct TableAttribute;

impl TypedValueParser for TableAttribute {
    type Value = (String, String);

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        attribute.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
            let sign = |name: &str| if name.ends_with('.') { name.to_owned() } else { format!("{name}=") };
            terrane_types::table_attributes().map(sign).collect()
        });
        Some(Box::new(NAMES.iter().map(|name| PossibleValue::new(name.as_str()))))
    }
}

/// A number of bytes with a unit: `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Size, Invalid> {
        terrane_types::parse_size(text).map(Size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::output::bytes_text(self.0))
    }
}

/// A duration in the spelling that [`duration`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            0 => write!(f, "0s"),
            millis if millis % 3_600_000 == 0 => write!(f, "{}h", millis / 3_600_000),
            millis if millis % 60_000 == 0 => write!(f, "{}m", millis / 60_000),
            millis if millis % 1_000 == 0 => write!(f, "{}s", millis / 1_000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

/// Parses a duration: `500ms`, `30s`, `2m`, or a plain number of seconds, fractions allowed.
pub fn duration(text: &str) -> Result<Duration, Invalid> {
    let bad = || {
        Invalid::new(format!(
            "{text:?} is not a duration; write 500ms, 30s or 2m (a plain number is in seconds), greater than 0"
        ))
    };
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits_end].parse().map_err(|_| bad())?;
    let unit_seconds = match &text[digits_end..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    let duration = Duration::try_from_secs_f64(number * unit_seconds).map_err(|_| bad())?;
    if duration.is_zero() {
        return Err(bad());
    }
    Ok(duration)
}

/// Parses a duration, or `0` and `0s` for none.
pub fn duration_or_zero(text: &str) -> Result<Duration, Invalid> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { duration(text) }
}

/// Parses a share: a number from 0 to 1.
pub fn share(text: &str) -> Result<f64, Invalid> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| Invalid::new(format!("{text:?} is not a share; write a number from 0 to 1, such as 0.01")))
}

/// Parses the address of an OpenTelemetry collector.
pub fn collector(text: &str) -> Result<String, Invalid> {
    match text.strip_prefix("http://") {
        Some(rest) if !rest.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err(Invalid::new(format!(
            "{text:?} is not the address of a collector; write http://HOST:PORT, the collector's port for OTLP over gRPC (often \
             4317)"
        ))),
    }
}

/// The context of a trace; `None` inside if the trace is not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent(pub Option<TraceContext>);

impl FromStr for Traceparent {
    type Err = BadTrace;

    fn from_str(text: &str) -> Result<Traceparent, BadTrace> {
        TraceContext::from_traceparent(text).map(Traceparent)
    }
}

/// Parses a comma-separated list of `HOST:PORT`.
pub fn addresses(text: &str) -> Result<Addresses, Invalid> {
    let list: Vec<String> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    for address in &list {
        address_parts(address)?;
    }
    if list.is_empty() {
        return Err(Invalid::new("no address given; write HOST:PORT, or several separated by commas"));
    }
    Ok(Addresses(list))
}

/// Addresses in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(pub Vec<String>);

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Parses one `HOST:PORT`.
pub fn address(text: &str) -> Result<String, Invalid> {
    address_parts(text).map(|_| text.to_owned())
}

/// Host (without the brackets of IPv6) and port of an address.
pub fn address_parts(text: &str) -> Result<(&str, u16), Invalid> {
    let bad = || Invalid::new(format!("{text:?} is not an address; write HOST:PORT, for example 127.0.0.1:7600"));
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let port = port.parse().map_err(|_| bad())?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or_else(bad)?,
        None if host.contains(':') => return Err(bad()),
        None => host,
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/@[]".contains(c)) {
        return Err(bad());
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_with_escapes() {
        let column: Column = r"f:a\x00:b".parse().expect("a column");
        assert_eq!((column.family.as_str(), column.qualifier.as_deref()), ("f", Some(&b"a\0:b"[..])));
        assert_eq!(full_column("f:").expect("an empty qualifier").qualifier.as_deref(), Some(&b""[..]));
        assert_eq!("f".parse::<Column>().expect("a family").qualifier, None);
        assert!(full_column("f").is_err());
        let free: Column = r"a b\x2C:c d".parse().expect("a family with a space");
        assert_eq!((free.family.as_str(), free.qualifier.as_deref()), ("a b,", Some(&b"c d"[..])));
        for bad in ["", ":q", "a/b:q", r"a\x3Ab:q", r"f:\q"] {
            assert!(bad.parse::<Column>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn typed_columns_name_type_and_column() {
        let column: NumberColumn = r"i32(data:a\x00(b))".parse().expect("a typed column");
        assert_eq!(
            (column.read_as, column.family.as_str(), &column.qualifier[..]),
            (Some(ValueType::I32), "data", &b"a\0(b)"[..])
        );
        assert_eq!(column.to_string(), r"i32(data:a\x00(b))");
        let free: NumberColumn = r"i32(a\x28b:c)".parse().expect("a family with a bracket");
        assert_eq!((free.family.as_str(), free.to_string().as_str()), ("a(b", r"i32(a\x28b:c)"));
        let plain: NumberColumn = "data:a(b)".parse().expect("a column");
        assert_eq!((plain.read_as, plain.to_string().as_str()), (None, "data:a(b)"));
        for bad in ["", "data", "i32(data)", "i32/data:a", "i33(data:a)", "text(data:a)", "i32(data:a", "i32(:a)"] {
            assert!(bad.parse::<NumberColumn>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn families_are_read_with_attributes() {
        let family: FamilySpec = "data:versions=3,ttl=5".parse().expect("a family");
        assert_eq!(family.name.to_string(), "data");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(family.attributes, [pair("versions", "3"), pair("ttl", "5")]);
        let free: FamilySpec = r"a\x2Cb=:versions=3".parse().expect("a family with a comma");
        assert_eq!((free.name.as_str(), free.attributes.len()), ("a,b=", 1));
        for bad in ["", "f:", "f:versions", "f:=3", "a/b", r"a\x3Ab"] {
            assert!(bad.parse::<FamilySpec>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ranges_of_timestamps_may_be_open() {
        let range = |text: &str| text.parse::<TimeRange>().map(|range| (range.from, range.to));
        assert_eq!(range("5..7"), Ok((5, 7)));
        assert_eq!(range("..7"), Ok((0, 7)));
        assert_eq!(range("5.."), Ok((5, i64::MAX)));
        assert_eq!(range("1970-01-01..1970-01-02T00:00:00.250"), Ok((0, 86_400_250)));
        let hour = range("-1h..now").expect("the last hour");
        assert!((3_600_000..3_601_000).contains(&(hour.1 - hour.0)), "{hour:?}");
        for bad in ["", "5", "7..5", "5..5", "a..b", "-1..5", "2026-02-01..2026-01-01", "2026-13-01.."] {
            assert!(range(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms").expect("ms"), Duration::from_millis(500));
        assert_eq!(duration("1.5").expect("seconds"), Duration::from_millis(1500));
        assert_eq!(duration("30s").expect("s"), Duration::from_secs(30));
        assert_eq!(duration("2m").expect("m"), Duration::from_secs(120));
        for bad in ["", "s", "-1", "0", "1 day", "1e999", "1.2.3", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_name_host_and_port() {
        assert_eq!(address_parts("127.0.0.1:7600").expect("v4"), ("127.0.0.1", 7600));
        assert_eq!(address_parts("[::1]:7600").expect("v6"), ("::1", 7600));
        assert_eq!(addresses("a:1, b:2").expect("two").0, ["a:1", "b:2"]);
        for bad in ["", "localhost", ":7600", "a:b", "a:70000", "::1:7600", "http://a:1", ","] {
            assert!(addresses(bad).is_err(), "{bad:?}");
        }
    }
}
