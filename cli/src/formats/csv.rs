//! CSV, as RFC 4180 has it: fields between separators, quoted where they contain one, a quote or a line end.
//!
//! Two layouts. A file whose header is `row,column,timestamp,value` has one cell a record, in bytes, and is exact. In any
//! other file a record is a row, and a mapping says what its fields are.
//!
//! The crate `csv` reads the fields. What it does not tell is checked here, on the bytes of a record that has quotes: whether an
//! empty field was quoted (an empty value, where an empty field without quotes writes no cell), and whether the quotes are
//! well-formed, since the crate accepts any.
//!
//! Input is cut into blocks before it is parsed, so that several are parsed at once. [`RecordEnds`] finds where records end.

use std::borrow::Cow;

use terrane_types::escape;

use super::field::Field;
use super::mapping::{Columns, Mapping, Names};
use super::{
    Backslashes, Item, LineError, Parsed, Record, RecordCell, cell_from_text, column_text, row_from_text,
    timestamp_from_text, timestamp_text,
};

/// The header of the layout `cells`.
pub const CELLS_HEADER: [&str; 4] = ["row", "column", "timestamp", "value"];
/// The separator unless another is given.
pub const COMMA: u8 = b',';
const QUOTE: u8 = b'"';

/// What the records of a CSV file are.
#[derive(Clone, Debug)]
pub struct Csv {
    separator: u8,
    backslashes: Backslashes,
    layout: CsvLayout,
}

#[derive(Clone, Debug)]
enum CsvLayout {
    Cells,
    Rows(Mapping),
}

impl Csv {
    /// The shape of a file with this header line.
    pub fn of_header(
        header: &[u8],
        separator: u8,
        backslashes: Backslashes,
        columns: Option<&Columns>,
        names: &Names<'_>,
    ) -> Result<Csv, String> {
        if header.is_empty() {
            return Err("the file is empty: a CSV file begins with a header line".to_owned());
        }
        quoted_fields(header, separator).map_err(|why| format!("line 1: {why}"))?;
        let mut fields = ::csv::ByteRecord::new();
        let read = reader(header, separator).read_byte_record(&mut fields);
        read.map_err(|error| format!("line 1: {error}"))?;
        let fields = fields_of(&fields, header).map_err(|error| format!("line 1: {error}"))?;
        let fields: Vec<&str> = fields.iter().map(|field| field.trim()).collect();
        if let [whole] = fields[..]
            && let Some(found) = ['\t', ';', '|', ','].into_iter().find(|other| whole.contains(*other))
        {
            let flag = if found == '\t' { r"\t".to_owned() } else { found.to_string() };
            return Err(format!(
                "line 1: the header {whole:?} is one field; if fields end at {found:?}: --separator '{flag}'"
            ));
        }
        if columns.is_none() && fields == CELLS_HEADER {
            return Ok(Csv { separator, backslashes, layout: CsvLayout::Cells });
        }
        // The names in a header are the file's; in `--columns` they are those of the command line, with escapes.
        let escaped: Vec<Cow<'_, str>> = match columns {
            None => fields.iter().map(|field| backslashes.escaped(field)).collect(),
            Some(_) => fields.iter().map(|field| Cow::Borrowed(*field)).collect(),
        };
        let fields: Vec<&str> = escaped.iter().map(|field| &**field).collect();
        let mapping = Mapping::named(&fields, columns, names).map_err(|error| format!("line 1: {error}"))?;
        Ok(Csv { separator, backslashes, layout: CsvLayout::Rows(mapping) })
    }

    /// A file without a header line.
    pub fn without_header(mapping: Mapping, separator: u8, backslashes: Backslashes) -> Csv {
        Csv { separator, backslashes, layout: CsvLayout::Rows(mapping) }
    }

    /// The notes of the mapping, if there is one.
    pub fn notes(&self) -> &[String] {
        match &self.layout {
            CsvLayout::Cells => &[],
            CsvLayout::Rows(mapping) => mapping.notes(),
        }
    }

    /// Parses complete records, of which the first begins at this line. Empty lines are left out.
    ///
    /// A quote too many makes one record of many lines. Where a record of several lines is malformed as a whole, only its first
    /// line is, and the next record begins at the second.
    pub fn parse_block(&self, bytes: &[u8], first_line: u64) -> Vec<Item> {
        let mut items = Vec::new();
        let mut record = ::csv::ByteRecord::new();
        let mut lines = LineCounter { at: 0, line: first_line };
        let mut begin = 0;
        let mut reader = reader(bytes, self.separator);
        loop {
            let start = begin + reader.position().byte() as usize;
            match reader.read_byte_record(&mut record) {
                Ok(true) => {}
                // Reading bytes from memory without headers and with any number of fields cannot fail.
                Ok(false) | Err(_) => return items,
            }
            let end = begin + reader.position().byte() as usize;
            // Empty lines before the record belong to none.
            let start = start + bytes[start..end].iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
            if super::without_line_end(&bytes[start..end]).is_empty() {
                continue;
            }
            let line = lines.line_at(bytes, start);
            let raw = start..end;
            match self.quotes(&record, &bytes[raw.clone()]) {
                Ok(quoted) => {
                    let parsed = self.parse(&record, &bytes[raw.clone()], &quoted);
                    items.push(Item { line, raw, parsed });
                }
                Err(why) => {
                    let first_end = memchr::memchr(b'\n', &bytes[raw.clone()]).map_or(end, |at| start + at + 1);
                    items.push(Item { line, raw: start..first_end, parsed: Err(why) });
                    if first_end < end {
                        begin = first_end;
                        reader = self::reader(&bytes[begin..], self.separator);
                    }
                }
            }
        }
    }

    /// Which fields are quoted, if the record is one at all: its quotes are well-formed, and it has as many fields as it should.
    fn quotes(&self, record: &::csv::ByteRecord, raw: &[u8]) -> Result<Vec<bool>, LineError> {
        let quoted = quoted_fields(raw, self.separator).map_err(LineError::new)?;
        let expected = match &self.layout {
            CsvLayout::Cells => CELLS_HEADER.len(),
            CsvLayout::Rows(mapping) => mapping.len(),
        };
        if record.len() == expected { Ok(quoted) } else { Err(wrong_count(record.len(), expected)) }
    }

    fn parse(&self, record: &::csv::ByteRecord, raw: &[u8], quoted: &[bool]) -> Result<Parsed, LineError> {
        let fields = fields_of(record, raw).map_err(LineError::new)?;
        match self.backslashes {
            Backslashes::Escape => self.parse_fields(&fields, quoted),
            Backslashes::Literal => {
                let escaped: Vec<Cow<'_, str>> =
                    fields.iter().map(|field| Backslashes::Literal.escaped(field)).collect();
                let fields: Vec<&str> = escaped.iter().map(|field| &**field).collect();
                self.parse_fields(&fields, quoted)
            }
        }
    }

    fn parse_fields(&self, fields: &[&str], quoted: &[bool]) -> Result<Parsed, LineError> {
        match &self.layout {
            CsvLayout::Cells => {
                let [row, column, timestamp, value] = *fields else {
                    return Err(wrong_count(fields.len(), CELLS_HEADER.len()));
                };
                let cell = cell_from_text(column, Some(timestamp_from_text(timestamp)?), value)?;
                Ok(Parsed::Record(Record { row: row_from_text(row)?, cells: vec![cell] }))
            }
            CsvLayout::Rows(mapping) => {
                let blank = |at: usize, field: &str| field.is_empty() && quoted.get(at).is_none_or(|quoted| !quoted);
                let field = |(at, field)| if blank(at, field) { Field::Blank } else { Field::Text(field) };
                mapping.record(fields.iter().copied().enumerate().map(field))
            }
        }
    }
}

fn wrong_count(found: usize, expected: usize) -> LineError {
    let fields = if found == 1 { "1 field".to_owned() } else { format!("{found} fields") };
    LineError::new(format!("the record has {fields} instead of {expected}"))
}

fn reader(bytes: &[u8], separator: u8) -> ::csv::Reader<&[u8]> {
    ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(separator)
        // A carriage return ends no line by itself; before a line end it is removed below.
        .terminator(::csv::Terminator::Any(b'\n'))
        .from_reader(bytes)
}

/// The fields as text, without the carriage return of the line end.
fn fields_of<'r>(record: &'r ::csv::ByteRecord, raw: &[u8]) -> Result<Vec<&'r str>, String> {
    let mut fields = Vec::with_capacity(record.len());
    for field in record {
        let text = std::str::from_utf8(field);
        fields.push(text.map_err(|_| "the record is not UTF-8; escape bytes as \\xHH".to_owned())?);
    }
    let carriage_return = raw.strip_suffix(b"\n").unwrap_or(raw).ends_with(b"\r");
    if carriage_return && let Some(last) = fields.last_mut() {
        *last = last.strip_suffix('\r').unwrap_or(last);
    }
    Ok(fields)
}

/// Which fields of a record are quoted; empty if none is.
fn quoted_fields(raw: &[u8], separator: u8) -> Result<Vec<bool>, String> {
    if memchr::memchr(QUOTE, raw).is_none() {
        return Ok(Vec::new());
    }
    let raw = super::without_line_end(raw);
    let mut quoted = Vec::new();
    let mut rest = raw;
    loop {
        let is_quoted = rest.first() == Some(&QUOTE);
        if is_quoted {
            rest = after_quotes(&rest[1..])
                .ok_or_else(|| "a quote is not closed; a quote inside of quotes is doubled".to_owned())?;
            if rest.first().is_some_and(|byte| *byte != separator) {
                let shown: String = String::from_utf8_lossy(rest).chars().take(10).collect();
                return Err(format!("{shown:?} follows a closing quote; a quote inside of quotes is doubled"));
            }
        }
        quoted.push(is_quoted);
        match memchr::memchr(separator, rest) {
            Some(at) => rest = &rest[at + 1..],
            None => return Ok(quoted),
        }
    }
}

/// What follows the closing quote.
fn after_quotes(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let end = memchr::memchr(QUOTE, rest)?;
        rest = &rest[end + 1..];
        match rest.first() {
            Some(&QUOTE) => rest = &rest[1..],
            _ => return Some(rest),
        }
    }
}

/// Counts lines from place to place.
struct LineCounter {
    at: usize,
    line: u64,
}

impl LineCounter {
    fn line_at(&mut self, bytes: &[u8], at: usize) -> u64 {
        let passed = memchr::memchr_iter(b'\n', &bytes[self.at..at]).count();
        self.line += u64::try_from(passed).expect("a length in memory fits 64 bits");
        self.at = at;
        self.line
    }
}

/// Finds the ends of records in text that arrives in pieces: a line end inside of quotes ends none.
#[derive(Clone, Debug)]
pub struct RecordEnds {
    separator: u8,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote inside of quotes, which closes them unless another follows.
    AfterQuote,
}

impl RecordEnds {
    /// From the start of a record.
    pub fn new(separator: u8) -> RecordEnds {
        RecordEnds { separator, place: Place::FieldStart }
    }

    /// Begins a record with the next byte, whatever came before.
    pub fn restart(&mut self) {
        self.place = Place::FieldStart;
    }

    /// Continues with these bytes; returns where the last record in them ends, or with `first_only` the first, where it
    /// stops.
    pub fn scan(&mut self, bytes: &[u8], first_only: bool) -> Option<usize> {
        let mut found = None;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.place {
                Place::FieldStart if byte == QUOTE => self.place = Place::Quoted,
                Place::AfterQuote if byte == QUOTE => self.place = Place::Quoted,
                Place::Quoted => {
                    let Some(quote) = memchr::memchr(QUOTE, &bytes[at..]) else { return found };
                    at += quote;
                    self.place = Place::AfterQuote;
                }
                Place::FieldStart | Place::AfterQuote | Place::Unquoted => {
                    let Some(end) = memchr::memchr2(self.separator, b'\n', &bytes[at..]) else {
                        self.place = Place::Unquoted;
                        return found;
                    };
                    at += end;
                    self.place = Place::FieldStart;
                    if bytes[at] == b'\n' {
                        found = Some(at + 1);
                        if first_only {
                            return found;
                        }
                    }
                }
            }
            at += 1;
        }
        found
    }
}

/// A field as a file has it. An empty value is quoted, to differ from none.
pub fn quoted(field: &str) -> String {
    let plain = !field.is_empty() && !field.contains([',', '"', '\n', '\r']) && field.trim().len() == field.len();
    if plain { field.to_owned() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}

/// The line of a cell in the layout `cells`, without a line end.
pub fn write_cell(row: &[u8], cell: &RecordCell, dates: bool) -> String {
    let column = column_text(&cell.family, &cell.qualifier);
    let timestamp = timestamp_text(cell.timestamp, dates);
    format!("{},{},{timestamp},{}", quoted(&escape(row)), quoted(&column), quoted(&escape(&cell.value)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::mapping::tests::schema;
    use super::super::tests::awkward_record;
    use super::*;

    fn csv(header: &str) -> Result<Csv, String> {
        let schema = schema(None);
        Csv::of_header(header.as_bytes(), COMMA, Backslashes::Escape, None, &Names::new(&schema, false))
    }

    fn parsed(csv: &Csv, text: &str) -> Vec<(u64, Result<Parsed, LineError>)> {
        csv.parse_block(text.as_bytes(), 2).into_iter().map(|item| (item.line, item.parsed)).collect()
    }

    fn values(parsed: &Result<Parsed, LineError>) -> Vec<&[u8]> {
        match parsed {
            Ok(Parsed::Record(record)) => record.cells.iter().map(|cell| &cell.value[..]).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn quotes_hold_separators_quotes_and_line_ends() {
        let csv = csv("row,d:a,d:name\r\n").expect("a header");
        let text = "k,\"a,\"\"b\"\"\r\nc\",x\r\n\r\n\"k2\",,\"\"\r\nk3,in\"side,z";
        let items = parsed(&csv, text);
        assert_eq!(items.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 5, 6]);
        assert_eq!(values(&items[0].1), [&b"a,\"b\"\r\nc"[..], b"x"]);
        assert_eq!(values(&items[1].1), [&b""[..]], "a quoted empty field is an empty value, another is none");
        assert_eq!(values(&items[2].1), [&b"in\"side"[..], b"z"]);
    }

    #[test]
    fn backslashes_can_be_taken_as_they_are() {
        let schema = schema(None);
        let read = |header: &str, line: &str| {
            let names = Names::new(&schema, false);
            let csv = Csv::of_header(header.as_bytes(), COMMA, Backslashes::Literal, None, &names).expect("a header");
            match parsed(&csv, line).pop() {
                Some((_, Ok(Parsed::Record(record)))) => record,
                other => panic!("{other:?}"),
            }
        };
        let record = read(r"row,d:a\b,d:name,d:count", "k\\x41,\"C:\\temp\\new\",\\N,5\n");
        assert_eq!(record.row, br"k\x41"[..]);
        assert_eq!(record.cells[0].qualifier, br"a\b"[..]);
        let values: Vec<&[u8]> = record.cells.iter().map(|cell| &cell.value[..]).collect();
        assert_eq!(values, [&br"C:\temp\new"[..], br"\N", &5i64.to_be_bytes()], "also where a type is declared");
        let record = read("row,column,timestamp,value", "\\\\srv,d:q\\,7,\\x\n");
        assert_eq!((&record.row[..], &record.cells[0].value[..]), (&br"\\srv"[..], &br"\x"[..]));
        assert_eq!(record.cells[0].qualifier, br"q\"[..]);
    }

    #[test]
    fn malformed_records_are_refused_with_their_line() {
        let csv = csv("row,d:count,d:a").expect("a header");
        for (text, line, named) in [
            ("k,1\n", 2, "2 fields instead of 3"),
            ("k,1,2,3\n", 2, "4 fields instead of 3"),
            ("k,1,\"a\nb\"\nk,x,a\n", 4, "column d:count: \"x\" is not an integer"),
            ("k,1,a\nk,1,\"b\n\n", 3, "a quote is not closed"),
            ("k,1,\"b\"c\n", 2, "\"c\" follows a closing quote"),
            (",1,a\n", 2, "row key"),
            ("k,1,\\q\n", 2, "escape"),
        ] {
            let items = parsed(&csv, text);
            let (found, error) = items.last().expect("an item");
            let error = error.as_ref().expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
            assert_eq!(*found, line, "{text}");
        }
        let latin = csv.parse_block(b"k,1,\xe9\n", 2);
        assert!(latin[0].parsed.as_ref().expect_err("Latin-1").to_string().contains("UTF-8"));
    }

    #[test]
    fn a_bad_header_is_refused() {
        for (header, named) in [
            ("", "the file is empty"),
            ("row,cnt\n", "line 1: \"cnt\" is not a column"),
            ("row,\"d:a\n", "line 1: a quote is not closed"),
            ("row,longr:a\n", "did you mean `longer:a`?"),
        ] {
            let error = csv(header).expect_err(header);
            assert!(error.contains(named), "{header}: {error}");
        }
    }

    #[test]
    fn the_layout_cells_reads_back_what_it_wrote() {
        let csv = csv("row,column,timestamp,value").expect("a header");
        let record = awkward_record();
        let text: String = record
            .cells
            .iter()
            .zip([true, false, true, false])
            .map(|(cell, dates)| write_cell(&record.row, cell, dates) + "\n")
            .collect::<Vec<_>>()
            .concat();
        let mut cells = Vec::new();
        for (_, parsed) in parsed(&csv, &text) {
            let Ok(Parsed::Record(read)) = parsed else { panic!("{parsed:?} of {text}") };
            assert_eq!(read.row, record.row);
            cells.extend(read.cells);
        }
        assert_eq!(cells, record.cells);
        let errors = csv.parse_block(b"r,f:q,x,v\nr,f:q,1\nr,fq,1,v\n", 2);
        assert!(errors.len() == 3 && errors.iter().all(|item| item.parsed.is_err()));
    }

    proptest! {
        #[test]
        fn blocks_cut_at_record_ends_parse_as_the_whole(
            fields in proptest::collection::vec("[a\",\n\r]{0,4}", 1..30), pieces in 1usize..9
        ) {
            let text: String = fields.chunks(2).enumerate().map(|(number, fields)| {
                let second = fields.get(1).map_or("", String::as_str);
                format!("k{number},{},{}\n", quoted(&fields[0]), quoted(second))
            }).collect();
            let csv = csv("row,d:a,d:b").expect("a header");
            let whole: Vec<_> = parsed(&csv, &text).into_iter().map(|(_, parsed)| parsed).collect();
            prop_assert_eq!(whole.len(), fields.len().div_ceil(2));
            let mut ends = RecordEnds::new(COMMA);
            let (mut cut, mut waiting) = (Vec::new(), Vec::new());
            for piece in text.as_bytes().chunks(pieces) {
                let end = ends.scan(piece, false).map(|end| waiting.len() + end);
                waiting.extend_from_slice(piece);
                if let Some(end) = end {
                    let rest = waiting.split_off(end);
                    cut.extend(csv.parse_block(&waiting, 1).into_iter().map(|item| item.parsed));
                    waiting = rest;
                }
            }
            prop_assert!(waiting.is_empty());
            prop_assert_eq!(cut, whole);
        }
    }
}
