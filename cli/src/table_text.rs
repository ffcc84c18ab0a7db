//! Rows and values of one table as text: what a person types and reads.
//!
//! A table that declares its key takes and shows rows part by part (`user=7,time=1000`); a column with a declared type
//! takes and shows its values as that type. Everything else, and everything under `--raw`, is bytes with `\xHH`
//! escapes. A row or value that does not have its declared form is shown as bytes, so that a damaged or older row never
//! hides the others.
//!
//! Times are dates where a person reads and numbers where a program does: JSON, and text unless a terminal shows it or
//! `--time` says otherwise. Both are taken everywhere, and so are times relative to now.
//!
//! Text is interpreted after the table is open, since only the schema knows what it means, and before anything is sent:
//! a bad part or value exits with status 2 and nothing is written.

use std::io::IsTerminal;
use std::sync::Arc;

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use terrane_client::{KeyRange, Table};
use terrane_filter::{Filter, FilterTemplate};
use terrane_types::{Condition, Invalid, KeyDeclaration, TableSchema, Time, ValueType, closest, escape, unescape};

use crate::args::client::{RangeFlags, Raw, Times};
use crate::args::rows::ReadFlags;
use crate::args::values::{Column, TableWord, now};
use crate::failure::Failure;
use crate::formats::column_text;

/// How a table's rows and values are written and shown.
#[derive(Clone)]
pub struct TableText {
    schema: Arc<TableSchema>,
    raw: bool,
    /// Whether rows and values are shown with dates.
    dates: bool,
    /// The declared key with its times as numbers.
    numeric: Option<Arc<KeyDeclaration>>,
}

/// The ranges that range flags select: one, or one per bucket of a salted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    pub ranges: Vec<KeyRange>,
    /// Leading bytes of each row that the order of the rows ignores: the bucket.
    pub skip_bytes: usize,
}

impl TableText {
    /// The text of an open table.
    pub fn of(table: &Table, raw: Raw) -> TableText {
        TableText::new(table.schema(), raw.raw)
    }

    /// The text of a table with this schema.
    pub fn new(schema: Arc<TableSchema>, raw: bool) -> TableText {
        let numeric = schema.key.as_ref().filter(|_| !raw).map(|key| Arc::new(key.as_stored()));
        TableText { schema, raw, dates: false, numeric }
    }

    /// The same text, with times as these flags say.
    pub fn showing(mut self, times: Times) -> TableText {
        self.dates = times.time.is_date(std::io::stdout().is_terminal());
        self
    }

    /// The declaration of the keys, unless they are taken as bytes.
    pub fn key(&self) -> Option<&KeyDeclaration> {
        self.schema.key.as_ref().filter(|_| !self.raw)
    }

    /// The type that the table declares for a column, unless values are taken as bytes.
    pub fn value_type(&self, family: &[u8], qualifier: &[u8]) -> Option<ValueType> {
        self.schema.value_type(family, qualifier).filter(|_| !self.raw)
    }

    /// The filter of these flags, with columns and key parts compared by their declared types, unless they are taken as bytes.
    pub fn filter_of(&self, flags: &ReadFlags) -> Result<Option<Filter>, Failure> {
        let build = |template: &FilterTemplate| match self.raw {
            true => template.build(),
            false => template.build_for(&self.schema),
        };
        let filter = flags.filter.as_ref().map(build).transpose();
        let filter = filter.map_err(|error| Failure::usage(format!("--filter: {error}")))?;
        filter.iter().for_each(|filter| self.note_columns(filter));
        Ok(filter)
    }

    /// Says which columns of a filter were probably meant: a column that does not exist passes nothing, without an error.
    fn note_columns(&self, filter: &Filter) {
        filter.columns().iter().filter_map(|(family, qualifier)| self.meant(family.as_bytes(), qualifier)).for_each(
            |note| {
                eprintln!("note: {note}");
            },
        );
    }

    /// What to say of a column without a declared type, if the table declares one of nearly its name.
    fn meant(&self, family: &[u8], qualifier: &[u8]) -> Option<String> {
        let declared = self.schema.family(family).filter(|_| !self.raw)?;
        if declared.types.contains_key(qualifier) {
            return None;
        }
        let names: Vec<String> = declared.types.keys().map(|name| escape(name)).collect();
        let meant = closest(&escape(qualifier), names.iter().map(String::as_str))?;
        let column = column_text(family, qualifier);
        Some(format!("the table declares no column {column}; did you mean {}:{meant}?", declared.name))
    }

    /// The condition of a write, as [`TableText::filter_of`].
    pub fn condition(&self, template: &FilterTemplate) -> Result<Condition, Failure> {
        let filter = if self.raw { template.build() } else { template.build_for(&self.schema) };
        filter.iter().for_each(|filter| self.note_columns(filter));
        let condition = filter.map_err(Invalid::from).and_then(Filter::into_condition);
        condition.map_err(|error| Failure::usage(format!("--if: {error}")))
    }

    /// The failure with the row named by its key parts; servers and the client name rows by their bytes.
    pub fn name_row(&self, row: &[u8], failure: Failure) -> Failure {
        let named = self.key().and_then(|key| key.line(row).ok()).unwrap_or_else(|| escape(row));
        failure.reword(&format!("row {}", escape(row)), &format!("row {named}"))
    }

    /// The rows between two bounds; a reversed pair is named as the user wrote it.
    fn between(&self, flags: &RangeFlags, start: Bytes, stop: Bytes) -> Result<KeyRange, Failure> {
        let (Some(first), Some(last)) = (&flags.start, &flags.stop) else {
            return KeyRange::new(start, stop).map_err(usage);
        };
        KeyRange::new(start, stop).map_err(|_| {
            let failure = Failure::usage(format!("--start {first} sorts after --stop {last}"));
            let descending = self.key().and_then(|key| key.text_parts().iter().find(|part| part.kind.desc));
            match descending {
                Some(part) => failure.advise(format!(
                    "part {} is descending: its greater values come first; swap --start and --stop if they differ there",
                    part.name
                )),
                None => failure.advise("swap them; --reverse reads the same rows from the last to the first"),
            }
        })
    }

    /// The row that a word names.
    pub fn row(&self, word: &TableWord) -> Result<Bytes, Failure> {
        match self.key() {
            Some(key) => {
                let row = key.with_times_from(&word.0, now()).and_then(|line| key.parse_line(&line));
                Ok(row.map_err(|invalid| self.bad_key("row", word, &invalid))?.into_bytes())
            }
            None => bytes(word),
        }
    }

    /// The boundary between two regions that a word names: leading parts are enough.
    pub fn boundary(&self, word: &TableWord) -> Result<Bytes, Failure> {
        let Some(key) = self.key() else { return bytes(word) };
        if self.is_salted() {
            return Err(Failure::usage(format!(
                "the boundary {word} has no meaning in a salted key, whose rows start with a computed bucket"
            ))
            .advise(r"give the first byte of a bucket with --raw, such as '\x04'"));
        }
        let bound = key.with_times_from(&word.0, now()).and_then(|line| key.parse_bound_line(&line));
        Ok(bound.map_err(|invalid| self.bad_key("boundary", word, &invalid))?.into())
    }

    /// The flags by which `admin split` reads this boundary back, for a shell: `--at user=7`, or its bytes.
    pub fn boundary_flags(&self, at: &[u8]) -> String {
        let reads_back = |line: &String| {
            let word = line.parse::<TableWord>();
            word.is_ok_and(|word| self.boundary(&word).is_ok_and(|read| read == at))
        };
        let escaped = escape(at);
        let Some(key) = self.key() else { return format!("--at {}", shell_word(&escaped)) };
        let leading = |count| KeyDeclaration::new(key.parts()[..count].to_vec()).ok();
        let lines = (1..=key.parts().len()).filter_map(|count| leading(count)?.line(at).ok());
        match lines.into_iter().find(reads_back) {
            Some(line) => format!("--at {}", shell_word(&line)),
            None => format!("--raw --at {}", shell_word(&escaped)),
        }
    }

    /// The ranges that the flags select.
    pub fn ranges(&self, flags: &RangeFlags) -> Result<Ranges, Failure> {
        let Some(key) = self.key() else {
            let one = |range| Ranges { ranges: vec![range], skip_bytes: 0 };
            if let Some(prefix) = &flags.prefix {
                return Ok(one(KeyRange::prefix(&bytes(prefix)?)));
            }
            let bound = |flag: &Option<TableWord>| flag.as_ref().map_or(Ok(Bytes::new()), bytes);
            return Ok(one(self.between(flags, bound(&flags.start)?, bound(&flags.stop)?)?));
        };
        let skip_bytes = usize::from(self.is_salted());
        if let Some(prefix) = &flags.prefix {
            let ranges = key.with_times_from(&prefix.0, now()).and_then(|line| key.parse_prefix_line(&line));
            let ranges = ranges.map_err(|invalid| self.bad_key("--prefix", prefix, &invalid))?;
            return Ok(Ranges { ranges, skip_bytes });
        }
        let bound = |name, flag: &Option<TableWord>| match flag {
            Some(word) => {
                let bound = key.with_times_from(&word.0, now()).and_then(|line| key.parse_bound_line(&line));
                bound.map_err(|invalid| self.bad_key(name, word, &invalid))
            }
            None => Ok(Vec::new()),
        };
        let (start, stop) = (bound("--start", &flags.start)?, bound("--stop", &flags.stop)?);
        let wanted = self.between(flags, start.into(), stop.into())?;
        if skip_bytes == 0 {
            return Ok(Ranges { ranges: vec![wanted], skip_bytes });
        }
        let in_bucket = |bucket: KeyRange| {
            let place = |bound: &[u8], open: &Bytes| match bound {
                [] => open.clone(),
                bound => [&bucket.start[..], bound].concat().into(),
            };
            KeyRange::new(place(&wanted.start, &bucket.start), place(&wanted.end, &bucket.end)).map_err(usage)
        };
        let buckets = key.parse_prefix_line("").map_err(usage)?;
        Ok(Ranges { ranges: buckets.into_iter().map(in_bucket).collect::<Result<_, _>>()?, skip_bytes })
    }

    /// The one range that the flags select, for a command that cannot read several at once: `what`.
    pub fn one_range(&self, flags: &RangeFlags, what: &str) -> Result<KeyRange, Failure> {
        if *flags == RangeFlags::default() {
            return Ok(KeyRange::default());
        }
        let Ranges { mut ranges, .. } = self.ranges(flags)?;
        match (ranges.pop(), ranges.len()) {
            (Some(range), 0) => Ok(range),
            (_, others) => Err(Failure::usage(format!(
                "{what} reads one range, but the key is salted and these rows are in {} ranges, one per bucket",
                others + 1
            ))
            .advise("give no range for the whole table, or the range of one bucket with --raw")),
        }
    }

    /// A row as it can be typed.
    pub fn show_row(&self, row: &[u8]) -> String {
        let key = if self.dates { self.key() } else { self.numeric.as_deref() };
        key.and_then(|key| key.line(row).ok()).unwrap_or_else(|| escape(row))
    }

    /// The value that a word gives a column.
    pub fn value(&self, column: &Column, word: &TableWord) -> Result<Bytes, Failure> {
        let qualifier = column.qualifier.as_deref().unwrap_or_default();
        match self.value_type(column.family.as_bytes(), qualifier) {
            Some(value_type) => Ok(parsed(value_type, &word.0)
                .map_err(|invalid| {
                    Failure::usage(format!(
                        "column {} ({value_type}): {invalid}",
                        column_text(column.family.as_bytes(), qualifier)
                    ))
                    .advise("--raw writes bytes")
                })?
                .into()),
            None => bytes(word),
        }
    }

    /// A value as it can be typed.
    pub fn show_value(&self, family: &[u8], qualifier: &[u8], value: &[u8]) -> String {
        let shown = |value_type: ValueType| if self.dates { value_type } else { value_type.as_stored() };
        let value_type = self.value_type(family, qualifier).map(shown);
        value_type.and_then(|value_type| value_type.text(value).ok()).unwrap_or_else(|| escape(value))
    }

    /// The timestamp of a cell.
    pub fn show_timestamp(&self, timestamp: i64) -> String {
        self.show_number(timestamp.into(), ValueType::Time)
    }

    /// A number that was computed from values of this type.
    pub fn show_number(&self, number: i128, value_type: ValueType) -> String {
        match i64::try_from(number) {
            Ok(millis) if self.dates && value_type == ValueType::Time => Time::from_millis(millis).to_string(),
            _ => number.to_string(),
        }
    }

    /// The parts of a row for JSON; `None` if the table declares none or the row does not have them.
    pub fn key_parts(&self, row: &[u8]) -> Option<KeyParts<'_>> {
        let key = self.numeric.as_deref()?;
        Some(KeyParts { key, texts: key.decode(row).ok()? })
    }

    /// A value of a column with a declared type for JSON; `None` if it has none or the value does not have it.
    pub fn typed_value(&self, family: &[u8], qualifier: &[u8], value: &[u8]) -> Option<JsonScalar> {
        let value_type = self.value_type(family, qualifier)?.as_stored();
        let is_number = value_type.is_number();
        value_type.text(value).ok().map(|text| JsonScalar::of(text, is_number))
    }

    fn is_salted(&self) -> bool {
        self.key().is_some_and(|key| key.text_parts().len() < key.parts().len())
    }

    fn bad_key(&self, what: &str, word: &TableWord, invalid: &Invalid) -> Failure {
        let failure = Failure::usage(format!("{what} {word}: {invalid}"));
        match self.key() {
            Some(key) => failure.advise(format!("the table's key is '{key}'; --raw takes bytes")),
            None => failure,
        }
    }
}

/// The bytes of a value of this type; a time may be relative to now.
fn parsed(value_type: ValueType, text: &str) -> Result<Vec<u8>, Invalid> {
    match value_type {
        ValueType::Time => Ok(Time::parse_at(text, now())?.millis().to_be_bytes().into()),
        other => other.parse_text(text),
    }
}

fn usage(invalid: Invalid) -> Failure {
    Failure::usage(invalid.to_string())
}

/// Text as one word of a shell's line.
fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.,:=/@%+".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn bytes(word: &TableWord) -> Result<Bytes, Failure> {
    unescape(&word.0).map(Bytes::from).map_err(usage)
}

/// The parts of a key as a JSON object, in the order of the declaration.
pub struct KeyParts<'k> {
    key: &'k KeyDeclaration,
    texts: Vec<String>,
}

impl Serialize for KeyParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use terrane_types::keycodec::PartType;
        let mut map = serializer.serialize_map(Some(self.texts.len()))?;
        for (part, text) in self.key.text_parts().iter().zip(&self.texts) {
            let is_number =
                matches!(part.kind.part, PartType::U32 | PartType::U64 | PartType::I32 | PartType::I64 | PartType::F64);
            let scalar = match part.kind.part {
                PartType::Bool => JsonScalar::Bool(text == "true"),
                _ => JsonScalar::of(text.clone(), is_number),
            };
            map.serialize_entry(&part.name, &scalar)?;
        }
        map.end()
    }
}

/// One typed value in JSON. A float that JSON cannot express stays text.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(untagged)]
pub enum JsonScalar {
    Integer(i128),
    Float(f64),
    Bool(bool),
    Text(String),
}

impl JsonScalar {
    fn of(text: String, is_number: bool) -> JsonScalar {
        if !is_number {
            return JsonScalar::Text(text);
        }
        match (text.parse::<i128>(), text.parse::<f64>()) {
            (Ok(integer), _) => JsonScalar::Integer(integer),
            (_, Ok(float)) if float.is_finite() => JsonScalar::Float(float),
            _ => JsonScalar::Text(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::{FamilyName, FamilySchema, TableName};

    use crate::args::client::TimeForm;

    use super::*;

    fn text(key: Option<&str>, raw: bool) -> TableText {
        let mut schema = TableSchema::new(TableName::new("t").expect("a name"));
        schema.key = key.map(|key| KeyDeclaration::parse(key).expect("a key"));
        let mut family = FamilySchema::new(FamilyName::new("d").expect("a name"));
        family.types.insert(Bytes::from_static(b"count"), ValueType::I64);
        family.types.insert(Bytes::from_static(b"seen"), ValueType::Time);
        schema.add_family(family).expect("one family");
        TableText::new(Arc::new(schema), raw)
    }

    fn word(text: &str) -> TableWord {
        text.parse().expect("good escapes")
    }

    fn flags(prefix: Option<&str>, start: Option<&str>, stop: Option<&str>) -> RangeFlags {
        RangeFlags { prefix: prefix.map(word), start: start.map(word), stop: stop.map(word) }
    }

    #[test]
    fn a_declared_key_is_typed_and_shown_by_parts() {
        let table = text(Some("user:u64, time:desc i64, action:u32"), false);
        let row = table.row(&word("user=7,time=1767225600000,action=1")).expect("a row");
        assert_eq!(row, table.row(&word("7,1767225600000,1")).expect("a row"));
        assert_eq!(table.show_row(&row), "user=7,time=1767225600000,action=1");
        assert_eq!(table.show_row(b"odd"), "odd", "a row without the parts is shown as bytes");
        let json = serde_json::to_string(&table.key_parts(&row)).expect("JSON");
        assert_eq!(json, r#"{"user":7,"time":1767225600000,"action":1}"#);
        let prefix = table.ranges(&flags(Some("user=7"), None, None)).expect("a range");
        assert_eq!(prefix.ranges, [KeyRange::prefix(&7_u64.to_be_bytes())]);
        let bounds = table.ranges(&flags(None, Some("7"), Some("9"))).expect("a range");
        assert_eq!(bounds.ranges[0].start[..], 7_u64.to_be_bytes());
        assert_eq!(bounds.ranges[0].end[..], 9_u64.to_be_bytes());
        let failure = table.row(&word("user=x,time=1,action=1")).expect_err("not a number");
        assert_eq!(failure.exit, crate::failure::Exit::Usage);
        assert!(failure.to_string().contains("part user (u64)"), "{failure}");
    }

    #[test]
    fn the_flags_of_a_boundary_are_read_back_as_its_bytes() {
        let eight = |user: u64| user.to_be_bytes().to_vec();
        let named = KeyDeclaration::parse("name:text").expect("a key").encode(&["Ada, L."]).expect("a name");
        for (key, at, flags) in [
            (None, b"row-5".to_vec(), "--at row-5"),
            (None, b"it's \x00".to_vec(), r"--at 'it'\''s \x00'"),
            (Some("user:u64, time:u64"), eight(7), "--at user=7"),
            (Some("user:u64, time:u64"), [eight(7), eight(9)].concat(), "--at user=7,time=9"),
            // Half a part.
            (Some("user:u64, time:u64"), vec![0, 1], r"--raw --at '\x00\x01'"),
            (Some("bucket4, user:u64"), vec![2], r"--raw --at '\x02'"),
            (Some("name:text, time:u64"), named.into_bytes().to_vec(), r"--at 'name='\''Ada, L.'\'''"),
        ] {
            assert_eq!(text(key, false).boundary_flags(&at), flags);
            let (raw, line) = flags.strip_prefix("--raw ").map_or((false, flags), |line| (true, line));
            let line = line.strip_prefix("--at ").expect("the flag");
            let quoted = line.strip_prefix('\'').and_then(|line| line.strip_suffix('\''));
            let line = quoted.map_or_else(|| line.to_owned(), |line| line.replace(r"'\''", "'"));
            assert_eq!(text(key, raw).boundary(&word(&line)).expect("a boundary")[..], at[..], "{line}");
        }
    }

    #[test]
    fn raw_takes_bytes_in_any_table() {
        let table = text(Some("user:u64"), true);
        assert_eq!(table.row(&word(r"a\x00")).expect("a row")[..], *b"a\0");
        assert_eq!(table.show_row(&7_u64.to_be_bytes()), r"\x00\x00\x00\x00\x00\x00\x00\x07");
        let column: Column = "d:count".parse().expect("a column");
        assert_eq!(table.value(&column, &word("7")).expect("bytes")[..], *b"7");
        assert!(table.key_parts(&7_u64.to_be_bytes()).is_none());
    }

    #[test]
    fn a_salted_key_has_a_range_per_bucket() {
        let table = text(Some("bucket4, user:u64, seq:u32"), false);
        let all = table.ranges(&RangeFlags::default()).expect("ranges");
        assert_eq!((all.ranges.len(), all.skip_bytes), (4, 1));
        let some = table.ranges(&flags(None, Some("7"), Some("9"))).expect("ranges");
        let row = table.row(&word("user=8,seq=1")).expect("a row");
        assert_eq!(some.ranges.iter().filter(|range| range.contains(&row)).count(), 1);
        let outside = table.row(&word("user=9,seq=1")).expect("a row");
        assert!(!some.ranges.iter().any(|range| range.contains(&outside)));
        let refused = table.one_range(&flags(Some("7"), None, None), "`latest`").expect_err("four ranges");
        assert!(refused.to_string().contains("4 ranges"), "{refused}");
        assert_eq!(table.one_range(&RangeFlags::default(), "`latest`").expect("one range"), KeyRange::default());
    }

    #[test]
    fn times_are_taken_as_dates_and_shown_as_asked() {
        let table = |time| text(Some("user:u64, time:desc time"), false).showing(Times { time });
        let (dates, numbers) = (table(TimeForm::Date), table(TimeForm::Raw));
        let row = dates.row(&word("user=7,time=2026-01-31T12:00+02:00")).expect("a row");
        assert_eq!(row, numbers.row(&word("7,1769853600000")).expect("a row"));
        assert_eq!(dates.show_row(&row), "user=7,time=2026-01-31T10:00:00Z");
        assert_eq!(numbers.show_row(&row), "user=7,time=1769853600000");
        for table in [&dates, &numbers] {
            let json = serde_json::to_string(&table.key_parts(&row)).expect("JSON");
            assert_eq!(json, r#"{"user":7,"time":1769853600000}"#);
        }
        let newest = dates.ranges(&flags(None, Some("7"), Some("7,-1h"))).expect("the last hour");
        assert!(newest.ranges[0].contains(&dates.row(&word("7,now")).expect("a row")), "greater times come first");
        assert!(!newest.ranges[0].contains(&row));
        let column: Column = "d:seen".parse().expect("a column");
        let seen = dates.value(&column, &word("2026-01-31")).expect("a time");
        assert_eq!((dates.show_value(b"d", b"seen", &seen), seen.len()), ("2026-01-31T00:00:00Z".to_owned(), 8));
        assert_eq!(numbers.show_value(b"d", b"seen", &seen), "1769817600000");
        assert_eq!(numbers.typed_value(b"d", b"seen", &seen), Some(JsonScalar::Integer(1_769_817_600_000)));
        assert_eq!(
            (dates.show_timestamp(7), numbers.show_timestamp(7)),
            ("1970-01-01T00:00:00.007Z".to_owned(), "7".to_owned())
        );
        let failure = dates.row(&word("user=7,time=2026-13-01")).expect_err("no month");
        assert!(
            failure.to_string().contains("part time (desc time): \"2026-13-01\" is not a time: there is no month 13"),
            "{failure}"
        );
    }

    #[test]
    fn a_typed_column_takes_and_shows_its_type() {
        let table = text(None, false);
        let column: Column = "d:count".parse().expect("a column");
        let value = table.value(&column, &word("-5")).expect("a number");
        assert_eq!(value[..], (-5_i64).to_be_bytes());
        assert_eq!(table.show_value(b"d", b"count", &value), "-5");
        assert_eq!(table.show_value(b"d", b"count", b"ab\0"), r"ab\x00", "a value of another width is shown as bytes");
        assert_eq!(table.typed_value(b"d", b"count", &value), Some(JsonScalar::Integer(-5)));
        assert_eq!(table.typed_value(b"d", b"other", &value), None);
        let failure = table.value(&column, &word("five")).expect_err("not a number");
        assert!(failure.to_string().contains("d:count (i64)"), "{failure}");
    }
}
