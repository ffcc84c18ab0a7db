//! The National Climatic Data Center's fixed-width hourly records.
//!
//! The parser uses six fields of the mandatory section (positions count from 1, both ends inclusive): USAF station
//! 5–10, WBAN station 11–15, date 16–23, time 24–27, air temperature 88–92 (a sign and four digits, tenths of °C) and
//! its quality code at 93. It ignores everything after that, so records that end there are accepted.
//!
//! Row key: `USAF-WBAN`, then `Long.MAX_VALUE - time` as eight big-endian bytes, so that a station's newest reading
//! comes first. Times before 1970 are negative; the subtraction wraps, which in unsigned byte order still sorts newest
//! first.

use std::ops::Range;

use bytes::Bytes;
use terrane_types::Time;

use super::{LineError, Parsed, Record, RecordCell, station_key};

/// The family of every record.
pub const FAMILY: &str = "data";
/// The qualifier of the air temperature.
pub const QUALIFIER: &str = "airtemp";
/// The air temperature with its type.
pub const TYPED_COLUMN: &str = "data:airtemp=i32";
/// The key declaration of a table of these records.
pub const KEY_PARTS: &str = "station:bytes12, time:desc time";

const USAF: Range<usize> = 4..10;
const WBAN: Range<usize> = 10..15;
const DATE: Range<usize> = 15..23;
const TIME: Range<usize> = 23..27;
const AIR_TEMPERATURE: Range<usize> = 87..92;
const AIR_TEMPERATURE_QUALITY: usize = 92;
/// A record ends no earlier than the temperature's quality code.
const LINE_BYTES_MIN: usize = AIR_TEMPERATURE_QUALITY + 1;

const MISSING: &[u8] = b"+9999";
const QUALITY_ACCEPTED: &[u8] = b"01459";

/// Parses one record.
pub fn parse(line: &[u8]) -> Result<Parsed, LineError> {
    if line.len() < LINE_BYTES_MIN {
        return Err(LineError::new(format!(
            "the record has {} characters; the air temperature ends at character {LINE_BYTES_MIN}",
            line.len()
        )));
    }
    let station = station_key(&line[USAF], &line[WBAN])?;
    let time_ms = time_ms(&line[DATE], &line[TIME])?;
    let tenths = air_temperature(&line[AIR_TEMPERATURE])?;
    if &line[AIR_TEMPERATURE] == MISSING || !QUALITY_ACCEPTED.contains(&line[AIR_TEMPERATURE_QUALITY]) {
        return Ok(Parsed::Skipped);
    }
    let cell = RecordCell {
        family: Bytes::from_static(FAMILY.as_bytes()),
        qualifier: Bytes::from_static(QUALIFIER.as_bytes()),
        timestamp: None,
        value: Bytes::copy_from_slice(&tenths.to_be_bytes()),
    };
    Ok(Parsed::Record(Record { row: row_key(station, time_ms), cells: vec![cell] }))
}

/// The row of a station's reading; `station` is the 12 bytes `USAF-WBAN`.
pub fn row_key(mut station: Vec<u8>, time_ms: i64) -> Bytes {
    station.extend_from_slice(&i64::MAX.wrapping_sub(time_ms).to_be_bytes());
    station.into()
}

fn air_temperature(field: &[u8]) -> Result<i32, LineError> {
    let magnitude = digits(&field[1..]).and_then(|digits| i32::try_from(digits).ok());
    match (field[0], magnitude) {
        (b'+', Some(tenths)) => Ok(tenths),
        (b'-', Some(tenths)) => Ok(-tenths),
        _ => Err(field_error("air temperature", field, "a sign and four digits")),
    }
}

fn time_ms(date: &[u8], time: &[u8]) -> Result<i64, LineError> {
    let bad_date = || field_error("date", date, "a day as YYYYMMDD");
    let number =
        |digits_of: &[u8]| digits(digits_of).and_then(|number| i32::try_from(number).ok()).ok_or_else(bad_date);
    let (year, month, day) = (number(&date[..4])?, number(&date[4..6])?, number(&date[6..])?);
    let midnight = Time::from_date(year, month.cast_unsigned(), day.cast_unsigned()).ok_or_else(bad_date)?;
    let bad_time = || field_error("time", time, "a time of day as HHMM");
    let hours = digits(&time[..2]).filter(|&hours| hours < 24).ok_or_else(bad_time)?;
    let minutes = digits(&time[2..]).filter(|&minutes| minutes < 60).ok_or_else(bad_time)?;
    Ok(midnight.millis() + (hours * 60 + minutes) * 60_000)
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0i64, |number, &byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

fn field_error(name: &str, field: &[u8], wanted: &str) -> LineError {
    LineError::new(format!("the {name} {:?} is not {wanted}", terrane_types::escape(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first record of the year 1901.
    const REAL: &str = "0029029070999991901010106004+64333+023450FM-12+000599999V0202701N015919999999N0000001N9-00781\
                        +99999102001ADDGF108991999999999999999999";

    fn with(range: Range<usize>, text: &str) -> Vec<u8> {
        let mut line = REAL.as_bytes().to_vec();
        line[range].copy_from_slice(text.as_bytes());
        line
    }

    fn record(line: &[u8]) -> Record {
        match parse(line) {
            Ok(Parsed::Record(record)) => record,
            other => panic!("not a record: {other:?}"),
        }
    }

    #[test]
    fn a_real_record() {
        let record = record(REAL.as_bytes());
        // 1901-01-01T06:00Z, as Java's clock counts it.
        let time: i64 = -2_177_431_200_000;
        let mut row = b"029070-99999".to_vec();
        row.extend_from_slice(&0x8000_01fa_f903_60ff_u64.to_be_bytes());
        assert_eq!(i64::MAX.wrapping_sub(time) as u64, 0x8000_01fa_f903_60ff);
        assert_eq!(record.row, row);
        assert_eq!(record.cells.len(), 1);
        let cell = &record.cells[0];
        assert_eq!((&cell.family[..], &cell.qualifier[..], cell.timestamp), (&b"data"[..], &b"airtemp"[..], None));
        assert_eq!(cell.value, (-78i32).to_be_bytes().to_vec());
    }

    #[test]
    fn newer_readings_sort_first_across_1970() {
        let at = |year: &str| record(&with(15..19, year)).row;
        let rows = [at("2024"), at("1970"), at("1969"), at("1901")];
        assert!(rows.is_sorted(), "{rows:?}");
    }

    #[test]
    fn missing_temperatures_and_doubtful_ones_are_skipped() {
        assert_eq!(parse(&with(87..92, "+9999")), Ok(Parsed::Skipped));
        for quality in ["2", "3", "6", "7", "A", "P", " "] {
            assert_eq!(parse(&with(92..93, quality)), Ok(Parsed::Skipped), "{quality}");
        }
        for quality in ["0", "1", "4", "5", "9"] {
            record(&with(92..93, quality));
        }
    }

    #[test]
    fn the_extreme_temperatures_are_read() {
        let value = |text: &str| record(&with(87..92, text)).cells[0].value.clone();
        assert_eq!(value("+0000"), 0i32.to_be_bytes().to_vec());
        assert_eq!(value("-0932"), (-932i32).to_be_bytes().to_vec());
        assert_eq!(value("-9999"), (-9999i32).to_be_bytes().to_vec());
    }

    #[test]
    fn malformed_records_are_refused_with_the_field() {
        let cases: [(Range<usize>, &str, &str); 9] = [
            (4..10, "02 070", "USAF"),
            (10..15, "99\t99", "WBAN"),
            (15..23, "19011301", "date"),
            (15..23, "19010229", "date"),
            (15..23, "1901O101", "date"),
            (23..27, "2400", "time"),
            (23..27, "0060", "time"),
            (87..92, "00078", "air temperature"),
            (87..92, "-0x78", "air temperature"),
        ];
        for (range, text, named) in cases {
            let error = parse(&with(range, text)).expect_err(text);
            assert!(error.to_string().contains(named), "{text}: {error}");
        }
        assert!(parse(b"").is_err());
        assert!(parse(&REAL.as_bytes()[..92]).is_err());
        record(&REAL.as_bytes()[..93]);
    }
}
