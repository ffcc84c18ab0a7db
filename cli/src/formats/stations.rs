//! The fixed-width list of weather stations.
//!
//! Positions count from 1, both ends included: USAF number 1–6, WBAN number 8–12, name 14–42, description (country,
//! state, call sign) 44–57, latitude 59–64 and longitude 66–72 in thousandths of a degree. Lines may end early: missing
//! fields count as blank, and a blank field writes no cell. The row key is the station part of the readings' key.

use std::ops::Range;

use bytes::Bytes;

use super::{LineError, Parsed, Record, RecordCell, station_key};

/// The family of every record.
pub const FAMILY: &str = "info";
/// The key declaration of a table of these records.
pub const KEY_PARTS: &str = "station:bytes12";

const USAF: Range<usize> = 0..6;
const WBAN: Range<usize> = 7..12;
const NAME: Range<usize> = 13..42;
const DESCRIPTION: Range<usize> = 43..57;
const LATITUDE: Range<usize> = 58..64;
const LONGITUDE: Range<usize> = 65..72;
/// The shortest line: the station's two numbers separated by a space.
const LINE_BYTES_MIN: usize = WBAN.end;

/// Parses one line of the list.
pub fn parse(line: &[u8]) -> Result<Parsed, LineError> {
    if line.len() < LINE_BYTES_MIN || line[USAF.end] != b' ' {
        return Err(LineError::new("the line must start with a six-character and a five-character station number"));
    }
    let row = station_key(&line[USAF], &line[WBAN])?;
    let cells = [("name", name(line)), ("location", location(line)?), ("description", description(line))];
    let cells: Vec<RecordCell> =
        cells.into_iter().filter_map(|(qualifier, value)| Some(cell(qualifier, value?))).collect();
    if cells.is_empty() {
        return Ok(Parsed::Skipped);
    }
    Ok(Parsed::Record(Record { row: row.into(), cells }))
}

fn cell(qualifier: &'static str, value: Vec<u8>) -> RecordCell {
    RecordCell {
        family: Bytes::from_static(FAMILY.as_bytes()),
        qualifier: Bytes::from_static(qualifier.as_bytes()),
        timestamp: None,
        value: value.into(),
    }
}

/// The field without surrounding spaces; `None` if it is blank.
fn field(line: &[u8], range: Range<usize>) -> Option<&[u8]> {
    let end = range.end.min(line.len());
    let field = line.get(range.start..end)?.trim_ascii();
    (!field.is_empty()).then_some(field)
}

fn name(line: &[u8]) -> Option<Vec<u8>> {
    field(line, NAME).map(<[u8]>::to_vec)
}

fn description(line: &[u8]) -> Option<Vec<u8>> {
    let words: Vec<&[u8]> =
        field(line, DESCRIPTION)?.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    Some(words.join(&b' '))
}

/// The coordinates as `70.933,-8.667`; `None` unless both are present.
fn location(line: &[u8]) -> Result<Option<Vec<u8>>, LineError> {
    let latitude = coordinate("latitude", line, LATITUDE)?;
    let longitude = coordinate("longitude", line, LONGITUDE)?;
    Ok(latitude.zip(longitude).map(|(latitude, longitude)| format!("{latitude},{longitude}").into_bytes()))
}

fn coordinate(name: &str, line: &[u8], range: Range<usize>) -> Result<Option<String>, LineError> {
    let Some(text) = field(line, range) else { return Ok(None) };
    let bad = || LineError::new(format!("the {name} {:?} is not a sign and digits", terrane_types::escape(text)));
    let (negative, digits) = match text.split_first() {
        Some((b'+', digits)) => (false, digits),
        Some((b'-', digits)) => (true, digits),
        _ => return Err(bad()),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    let thousandths = digits.iter().fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0'));
    let sign = if negative && thousandths != 0 { "-" } else { "" };
    Ok(Some(format!("{sign}{}.{:03}", thousandths / 1000, thousandths % 1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(line: &str) -> Vec<(String, String)> {
        match parse(line.as_bytes()) {
            Ok(Parsed::Record(record)) => {
                assert!(record.cells.iter().all(|cell| cell.family == "info" && cell.timestamp.is_none()));
                let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("text");
                record.cells.iter().map(|cell| (text(&cell.qualifier), text(&cell.value))).collect()
            }
            other => panic!("{line:?} is no record: {other:?}"),
        }
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(qualifier, value)| ((*qualifier).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_full_line() {
        let line = "010010 99999 JAN MAYEN                     NO JN    ENJA  +70933 -008667 +00090";
        let Ok(Parsed::Record(record)) = parse(line.as_bytes()) else { panic!("not read") };
        assert_eq!(record.row, "010010-99999");
        let expected = [("name", "JAN MAYEN"), ("location", "70.933,-8.667"), ("description", "NO JN ENJA")];
        assert_eq!(cells(line), pairs(&expected));
    }

    #[test]
    fn blank_fields_write_no_cell() {
        let without_place = "010013 99999 ROST                          NO NO                               ";
        assert_eq!(cells(without_place), pairs(&[("name", "ROST"), ("description", "NO NO")]));
        assert_eq!(cells(without_place.trim_end()), cells(without_place));
        let without_longitude = "998500 99999 CCSFOR TFBH                            EQAA  +45107         +01590";
        assert_eq!(cells(without_longitude), pairs(&[("name", "CCSFOR TFBH"), ("description", "EQAA")]));
        let nothing = "999999 99999                                                                   ";
        assert_eq!(parse(nothing.as_bytes()), Ok(Parsed::Skipped));
        assert_eq!(parse(b"999999 99999"), Ok(Parsed::Skipped));
    }

    #[test]
    fn coordinates_keep_three_places() {
        let place = |text: &str| {
            let line = format!("{:<58}{text}", "A00002 99999 NEAR NOWHERE");
            cells(&line).remove(1).1
        };
        assert_eq!(place("+59783 +005350"), "59.783,5.350");
        assert_eq!(place("-00500 -000007"), "-0.500,-0.007");
        assert_eq!(place("-00000 +000000"), "0.000,0.000");
        assert_eq!(place("-99999 -999999"), "-99.999,-999.999");
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in ["", "010010", "010010-99999 NAME", "0100 0 99999 NAME", "STATION LIST OF 2011"] {
            assert!(parse(line.as_bytes()).is_err(), "{line:?}");
        }
        let bad_latitude = format!("{:<58}70.933 -008667", "010010 99999 JAN MAYEN");
        assert!(parse(bad_latitude.as_bytes()).expect_err("bad").to_string().contains("latitude"));
        let bad_longitude = format!("{:<58}+70933 -      ", "010010 99999 JAN MAYEN");
        assert!(parse(bad_longitude.as_bytes()).expect_err("bad").to_string().contains("longitude"));
    }
}
