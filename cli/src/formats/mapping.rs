//! What the fields of a record are: the row key or parts of it, the timestamp, columns.
//!
//! The names are those of the table: `family:qualifier`, the parts of a declared key, and `row` and `timestamp`. They stand
//! in the header of a CSV file, as the columns of a Parquet file, or in `--columns`, where HBase's words are known, too. All
//! names are resolved before the first row is written, so that a misspelt one writes nothing.
//!
//! Invariant: a mapping names the row, or all parts of its key, exactly once, and at least one column.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use terrane_types::keycodec::PartType;
use terrane_types::limits::{QUALIFIER_BYTES_MAX, ROW_BYTES_MAX};
use terrane_types::{KeyDeclaration, Row, TableSchema, ValueType, closest, escape, unescape};

use super::field::{Field, line_error};
use super::jsonl::Declared;
use super::{LineError, Parsed, Record, RecordCell, column_text, row_from_text};

/// A mapping that the command line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    /// What each field is, in order.
    Ordered(Vec<String>),
    /// What the fields of these names are; the others are skipped.
    Named(Vec<(String, String)>),
}

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Skip,
    Row,
    /// A part of the key that has a text form, by its place.
    Part(usize),
    Timestamp,
    Cell {
        family: Bytes,
        qualifier: Bytes,
        kind: Option<ValueType>,
    },
}

/// What a field is used for, where its type matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The row key or a part of it.
    Key,
    /// A part of the key that is a time.
    KeyTime,
    Timestamp,
    Value,
    /// A value that is a time.
    ValueTime,
}

impl Use {
    /// Whether it is milliseconds since 1970, whatever unit the file has.
    pub fn is_time(self) -> bool {
        matches!(self, Use::KeyTime | Use::Timestamp | Use::ValueTime)
    }
}

/// What every field of a file's records is.
#[derive(Clone, Debug)]
pub struct Mapping {
    targets: Vec<Target>,
    /// The declaration of the key, unless keys are taken as bytes.
    key: Option<KeyDeclaration>,
    /// Whether the row is given by its parts.
    by_parts: bool,
    /// What a user may want to know before rows are written.
    notes: Vec<String>,
}

impl Columns {
    /// Parses the value of `--columns`: words between commas, all of them `NAME=TARGET` or none.
    pub fn parse(text: &str) -> Result<Columns, String> {
        let words: Vec<&str> = text.split(',').map(str::trim).collect();
        let named = words.iter().filter(|word| word.contains('=')).count();
        if named == 0 {
            return Ok(Columns::Ordered(words.into_iter().map(str::to_owned).collect()));
        }
        let pair = |word: &str| {
            let (name, target) = word.rsplit_once('=').ok_or_else(|| {
                format!("--columns: {word:?} has no name; give `NAME=TARGET` for all fields or for none (an equals sign in a qualifier is \\x3D)")
            })?;
            let name = unescape(name).map_err(|error| format!("--columns: {error}"))?;
            let name = String::from_utf8(name).map_err(|_| format!("--columns: the name in {word:?} is not UTF-8"))?;
            Ok((name, target.to_owned()))
        };
        words.into_iter().map(pair).collect::<Result<_, String>>().map(Columns::Named)
    }
}

/// The names that a table gives to fields.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    schema: &'a TableSchema,
    raw: bool,
}

impl<'a> Names<'a> {
    /// The names of this table; `raw` ignores what it declares.
    pub fn new(schema: &'a TableSchema, raw: bool) -> Names<'a> {
        Names { schema, raw }
    }

    /// The declared key, unless it is ignored.
    pub fn key(&self) -> Option<&'a KeyDeclaration> {
        self.schema.key.as_ref().filter(|_| !self.raw)
    }

    /// What the table declares, which replaces bytes that lines leave out.
    pub fn declared(&self) -> Declared {
        let families = self.schema.families.iter().filter(|_| !self.raw);
        let types = families.flat_map(|family| {
            let name = Bytes::copy_from_slice(family.name.as_str().as_bytes());
            family.types.iter().map(move |(qualifier, kind)| ((name.clone(), qualifier.clone()), *kind))
        });
        Declared { key: self.key().cloned(), types: types.collect() }
    }

    /// What to say of a column without a declared type, if the table declares one of nearly its name.
    fn note(&self, target: &Target) -> Option<String> {
        let Target::Cell { family, qualifier, kind: None } = target else { return None };
        let declared = self.schema.family(family).filter(|_| !self.raw)?;
        let names: Vec<String> = declared.types.keys().map(|name| escape(name)).collect();
        let meant = closest(&escape(qualifier), names.iter().map(String::as_str))?;
        Some(format!(
            "column {} has no declared type and is stored as bytes; did you mean {}:{meant}?",
            column_text(family, qualifier),
            declared.name
        ))
    }

    fn part(&self, name: &str) -> Option<usize> {
        self.key()?.text_parts().iter().position(|part| part.name == name)
    }

    fn target(&self, name: &str) -> Result<Target, String> {
        match name {
            "-" => return Ok(Target::Skip),
            "HBASE_ROW_KEY" | "ROW" => return Ok(Target::Row),
            "HBASE_TS_KEY" | "TIMESTAMP" => return Ok(Target::Timestamp),
            _ => {}
        }
        if let Some((family, qualifier)) = name.split_once(':') {
            return self.column(name, family, qualifier);
        }
        if let Some(part) = self.part(name.strip_prefix("KEY.").unwrap_or(name)) {
            return Ok(Target::Part(part));
        }
        match name {
            "row" => Ok(Target::Row),
            "timestamp" => Ok(Target::Timestamp),
            _ => Err(self.unknown(name)),
        }
    }

    fn column(&self, name: &str, shown: &str, qualifier: &str) -> Result<Target, String> {
        let family = unescape(shown).map_err(|error| format!("column {name:?}: {error}"))?;
        if self.schema.family(&family).is_none() {
            let families: Vec<String> = self.schema.families.iter().map(|family| family.name.to_string()).collect();
            let meant = closest(shown, families.iter().map(String::as_str));
            let meant = meant.map(|meant| format!("; did you mean `{meant}:{qualifier}`?")).unwrap_or_default();
            let table = &self.schema.name;
            return Err(format!(
                "column {name:?}: table {table} has no family {shown:?}, only {}{meant}",
                families.join(", ")
            ));
        }
        let qualifier = unescape(qualifier).map_err(|error| format!("column {name:?}: {error}"))?;
        if qualifier.len() > QUALIFIER_BYTES_MAX {
            return Err(format!("column {name:?}: a qualifier has at most {QUALIFIER_BYTES_MAX} bytes"));
        }
        let kind = self.schema.value_type(&family, &qualifier).filter(|_| !self.raw);
        Ok(Target::Cell { family: family.into(), qualifier: qualifier.into(), kind })
    }

    /// The answer to a name that means nothing: the nearest one, and what there is.
    fn unknown(&self, name: &str) -> String {
        let mut known: Vec<String> = vec!["row".to_owned(), "timestamp".to_owned()];
        if let Some(key) = self.key() {
            known.extend(key.text_parts().iter().map(|part| part.name.clone()));
        }
        for family in &self.schema.families {
            known.extend(family.types.keys().map(|qualifier| column_text(family.name.as_str().as_bytes(), qualifier)));
            known.push(format!("{}:", family.name));
        }
        // A column without its family is a common slip.
        let without_family = known.iter().find(|known| known.split_once(':').is_some_and(|(_, end)| end == name));
        let meant = without_family.map(String::as_str).or_else(|| closest(name, known.iter().map(String::as_str)));
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        let parts = match self.key() {
            Some(key) => {
                let parts: Vec<&str> = key.text_parts().iter().map(|part| part.name.as_str()).collect();
                format!(", parts of the key ({})", parts.join(", "))
            }
            None => String::new(),
        };
        format!(
            "{name:?} is not a column of table {}, whose fields are `family:qualifier`{parts}, `row` and `timestamp`; --columns can skip a field{meant}",
            self.schema.name
        )
    }
}

impl Mapping {
    /// The mapping of a file whose fields have these names.
    pub fn named(fields: &[&str], columns: Option<&Columns>, names: &Names<'_>) -> Result<Mapping, String> {
        let targets = match columns {
            None => fields.iter().map(|field| names.target(field)).collect::<Result<Vec<_>, _>>()?,
            Some(Columns::Ordered(words)) if words.len() == fields.len() => return Mapping::ordered(words, names),
            Some(Columns::Ordered(words)) => {
                return Err(format!("--columns names {} fields, but the file has {}", words.len(), fields.len()));
            }
            Some(Columns::Named(pairs)) => {
                let mut targets = vec![Target::Skip; fields.len()];
                for (field, target) in pairs {
                    let Some(at) = fields.iter().position(|known| known == field) else {
                        let meant = closest(field, fields.iter().copied());
                        let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
                        return Err(format!("the file has no field {field:?}, only {}{meant}", fields.join(", ")));
                    };
                    targets[at] = names.target(target)?;
                }
                targets
            }
        };
        Mapping::of(targets, names)
    }

    /// The mapping of fields without names.
    pub fn ordered(words: &[String], names: &Names<'_>) -> Result<Mapping, String> {
        let targets = words.iter().map(|word| names.target(word)).collect::<Result<Vec<_>, _>>()?;
        Mapping::of(targets, names)
    }

    fn of(targets: Vec<Target>, names: &Names<'_>) -> Result<Mapping, String> {
        let mut seen = BTreeSet::new();
        for target in &targets {
            let shown = match target {
                Target::Skip => continue,
                Target::Row => "the row key".to_owned(),
                Target::Part(at) => format!("part {}", names.key().map_or("", |key| &key.text_parts()[*at].name)),
                Target::Timestamp => "the timestamp".to_owned(),
                Target::Cell { family, qualifier, .. } => format!("column {}", column_text(family, qualifier)),
            };
            if let Some(twice) = seen.replace(shown) {
                return Err(format!("two fields are {twice}"));
            }
        }
        let parts = targets.iter().filter(|target| matches!(target, Target::Part(_))).count();
        let has_row = targets.contains(&Target::Row);
        match (has_row, parts, names.key()) {
            (true, 0, _) => {}
            (true, _, _) => return Err("the key is given twice, as a whole and by parts".to_owned()),
            (false, given, Some(key)) if given < key.text_parts().len() => {
                let missing = key.text_parts().iter().enumerate();
                let missing = missing.filter(|(at, _)| !targets.contains(&Target::Part(*at)));
                let missing: Vec<&str> = missing.map(|(_, part)| part.name.as_str()).collect();
                return Err(format!("no field is part {} of the key", missing.join(" and part ")));
            }
            (false, _, Some(_)) => {}
            (false, _, None) => return Err("no field is the row key, which is named `row`".to_owned()),
        }
        if !targets.iter().any(|target| matches!(target, Target::Cell { .. })) {
            return Err("no field is a column, `family:qualifier`, so there is nothing to write".to_owned());
        }
        let notes = targets.iter().filter_map(|target| names.note(target)).collect();
        Ok(Mapping { targets, key: names.key().cloned(), by_parts: !has_row, notes })
    }

    /// What a user may want to know before rows are written, such as columns whose names are nearly those of others.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// What this field is used for; `None` if it is skipped.
    pub fn use_of(&self, field: usize) -> Option<Use> {
        match self.targets.get(field)? {
            Target::Skip => None,
            Target::Part(at) if self.part_type(*at) == Some(PartType::Time) => Some(Use::KeyTime),
            Target::Row | Target::Part(_) => Some(Use::Key),
            Target::Timestamp => Some(Use::Timestamp),
            Target::Cell { kind: Some(ValueType::Time), .. } => Some(Use::ValueTime),
            Target::Cell { .. } => Some(Use::Value),
        }
    }

    fn part_type(&self, at: usize) -> Option<PartType> {
        self.key.as_ref().and_then(|key| key.text_parts().get(at)).map(|part| part.kind.part)
    }

    /// The record of these fields, as many as the mapping has. Without a single value there is nothing to write.
    pub fn record<'f>(&self, fields: impl Iterator<Item = Field<'f>>) -> Result<Parsed, LineError> {
        let mut row = Bytes::new();
        let part_count = self.key.as_ref().filter(|_| self.by_parts).map_or(0, |key| key.text_parts().len());
        let mut parts: Vec<Cow<'f, str>> = vec![Cow::Borrowed(""); part_count];
        let mut timestamp = None;
        let mut cells = Vec::with_capacity(self.targets.len());
        for (target, field) in self.targets.iter().zip(fields) {
            match target {
                Target::Skip => {}
                Target::Row => row = self.row(field)?,
                Target::Part(at) => parts[*at] = self.part(*at, field)?,
                Target::Timestamp => timestamp = field.timestamp()?,
                Target::Cell { family, qualifier, kind } => {
                    let value = field.value(*kind).map_err(|error| {
                        LineError::new(format!("column {}: {error}", column_text(family, qualifier)))
                    })?;
                    if let Some(value) = value {
                        let (family, qualifier) = (family.clone(), qualifier.clone());
                        cells.push(RecordCell { family, qualifier, timestamp: None, value });
                    }
                }
            }
        }
        if let Some(key) = self.key.as_ref().filter(|_| self.by_parts) {
            row = key.encode(&parts).map_err(line_error)?.into_bytes();
        }
        if cells.is_empty() {
            return Ok(Parsed::Skipped);
        }
        if timestamp.is_some() {
            cells.iter_mut().for_each(|cell| cell.timestamp = timestamp);
        }
        Ok(Parsed::Record(Record { row, cells }))
    }

    fn row(&self, field: Field<'_>) -> Result<Bytes, LineError> {
        match (field, &self.key) {
            (Field::Blank | Field::Null, _) => {
                Err(LineError::new(format!("the row key is empty; rows have 1 to {ROW_BYTES_MAX} bytes")))
            }
            (Field::Bytes(bytes), _) => {
                Row::new(Bytes::copy_from_slice(bytes)).map(Row::into_bytes).map_err(line_error)
            }
            (_, Some(key)) => key.parse_line(&field.text()).map(Row::into_bytes).map_err(line_error),
            (_, None) => row_from_text(&field.text()),
        }
    }

    fn part<'f>(&self, at: usize, field: Field<'f>) -> Result<Cow<'f, str>, LineError> {
        let part = self.key.as_ref().map(|key| &key.text_parts()[at]);
        let kind = part.map(|part| part.kind.part);
        Ok(match field {
            Field::Null => {
                return Err(LineError::new(format!("part {} is null", part.map_or("", |part| &part.name))));
            }
            Field::Bytes(bytes) if bytes.len() == 16 && kind == Some(PartType::Uuid) => Cow::Owned(uuid_text(bytes)),
            // Keys tell all bits of a NaN apart.
            Field::Float(float) if float.is_nan() && float.to_bits() != f64::NAN.to_bits() => {
                Cow::Owned(format!("NaN:{:016x}", float.to_bits()))
            }
            // A part of 64 bits is exactly the number that the file has.
            Field::Single(float) if float.is_nan() || kind == Some(PartType::F64) => {
                return self.part(at, Field::Float(f64::from(float)));
            }
            _ => field.text(),
        })
    }
}

/// 16 bytes as a UUID's hyphenated text.
fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use terrane_types::{FamilyName, FamilySchema, TableName};

    use super::*;

    /// A table with families `d` (count: i64, share: f64, name: text, seen: time) and `longer`.
    pub fn schema(key: Option<&str>) -> TableSchema {
        let mut schema = TableSchema::new(TableName::new("clicks").expect("a name"));
        schema.key = key.map(|key| KeyDeclaration::parse(key).expect("a key"));
        for name in ["d", "longer"] {
            let mut family = FamilySchema::new(FamilyName::new(name).expect("a name"));
            if name == "d" {
                for (qualifier, kind) in [
                    ("count", ValueType::I64),
                    ("share", ValueType::F64),
                    ("name", ValueType::Text),
                    ("seen", ValueType::Time),
                ] {
                    family.types.insert(Bytes::from(qualifier), kind);
                }
            }
            schema.add_family(family).expect("a family");
        }
        schema
    }

    fn named(key: Option<&str>, fields: &str, columns: Option<&str>) -> Result<Mapping, String> {
        let schema = schema(key);
        let columns = columns.map(|columns| Columns::parse(columns).expect("columns"));
        let fields: Vec<&str> = fields.split(' ').collect();
        Mapping::named(&fields, columns.as_ref(), &Names::new(&schema, false))
    }

    fn record(mapping: &Mapping, fields: &[Field<'_>]) -> Record {
        match mapping.record(fields.iter().copied()) {
            Ok(Parsed::Record(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_has_its_typed_values_and_one_timestamp() {
        let mapping = named(None, "row d:count timestamp d:other longer:", None).expect("a mapping");
        let text = [r"k\x00", "-2", "17", r"\xFFz", ""].map(Field::Text);
        let read = record(&mapping, &text);
        assert_eq!(&read.row[..], b"k\0");
        let cells: Vec<(&[u8], &[u8], Option<i64>)> =
            read.cells.iter().map(|cell| (&cell.qualifier[..], &cell.value[..], cell.timestamp)).collect();
        let minus_two = (-2i64).to_be_bytes();
        assert_eq!(
            cells,
            [(&b"count"[..], &minus_two[..], Some(17)), (b"other", b"\xffz", Some(17)), (b"", b"", Some(17))]
        );
        let blank = [Field::Text("k"), Field::Blank, Field::Blank, Field::Blank, Field::Null];
        assert_eq!(mapping.record(blank.into_iter()), Ok(Parsed::Skipped));
    }

    #[test]
    fn a_declared_key_is_given_by_parts_or_as_a_whole() {
        let declared = "user:u64, time:desc i64";
        let key = KeyDeclaration::parse(declared).expect("a key");
        let row = key.encode(&["7", "1000"]).expect("a row").into_bytes();
        let by_parts = named(Some(declared), "d:a time user", None).expect("a mapping");
        assert_eq!(record(&by_parts, &["v", "1000", "7"].map(Field::Text)).row, row);
        assert_eq!(record(&by_parts, &[Field::Text("v"), Field::Integer(1000), Field::Integer(7)]).row, row);
        let whole = named(Some(declared), "ROW d:a", None).expect("a mapping");
        assert_eq!(record(&whole, &["user=7,time=1000", "v"].map(Field::Text)).row, row);
        assert_eq!(record(&whole, &[Field::Bytes(&row), Field::Text("v")]).row, row);
        let renamed = named(Some(declared), "who when x v", Some("when=KEY.time,v=d:v,who=user")).expect("a mapping");
        assert_eq!(record(&renamed, &["7", "1000", "?", "v"].map(Field::Text)).row, row);
        let error = by_parts.record(["v", "soon", "7"].map(Field::Text).into_iter()).expect_err("no number");
        assert!(error.to_string().contains("part time"), "{error}");
        let error = by_parts.record([Field::Text("v"), Field::Null, Field::Null].into_iter()).expect_err("null");
        assert!(error.to_string().contains("part time is null"), "{error}");
    }

    #[test]
    fn dates_stand_wherever_a_time_does() {
        let declared = "user:u64, time:desc time";
        let key = KeyDeclaration::parse(declared).expect("a key");
        let mapping = named(Some(declared), "user time d:seen timestamp", None).expect("a mapping");
        let read = record(&mapping, &["7", "2026-01-31T12:00+02:00", "2026-01-31", "1970-01-02"].map(Field::Text));
        assert_eq!(key.line(&read.row).as_deref(), Ok("user=7,time=2026-01-31T10:00:00Z"));
        assert_eq!(read.cells[0].value, 1_769_817_600_000_i64.to_be_bytes().to_vec());
        assert_eq!(read.cells[0].timestamp, Some(86_400_000));
        assert_eq!(
            [0, 1, 2, 3].map(|field| mapping.use_of(field)),
            [Some(Use::Key), Some(Use::KeyTime), Some(Use::ValueTime), Some(Use::Timestamp)]
        );
        let refused =
            |fields: [&str; 4]| mapping.record(fields.map(Field::Text).into_iter()).expect_err("no date").to_string();
        assert!(refused(["7", "31.01.2026", "5", "5"]).contains("the year comes first"));
        assert!(refused(["7", "5", "2026-02-30", ""]).contains("column d:seen"));
        assert!(refused(["7", "5", "5", "noon"]).contains("the timestamp \"noon\" is not a time"));
    }

    #[test]
    fn hbase_words_are_known() {
        let schema = schema(None);
        let Ok(Columns::Ordered(words)) = Columns::parse("HBASE_ROW_KEY,d:a,HBASE_TS_KEY,-,d:b") else {
            panic!("named")
        };
        let mapping = Mapping::ordered(&words, &Names::new(&schema, false)).expect("a mapping");
        let read = record(&mapping, &["k", "1", "5", "skipped", "2"].map(Field::Text));
        assert_eq!((read.cells.len(), read.cells[1].timestamp), (2, Some(5)));
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest() {
        let declared = Some("user:u64, time:i64");
        for (key, fields, columns, said) in [
            (None, "row cuont", None, "\"cuont\" is not a column"),
            (None, "row count", None, "did you mean `d:count`?"),
            (None, "row d:a timestmp", None, "did you mean `timestamp`?"),
            (None, "row lnger:a", None, "did you mean `longer:a`?"),
            (None, "row e:a", None, "only d, longer"),
            (None, "d:a d:b", None, "no field is the row key"),
            (None, "row timestamp", None, "no field is a column"),
            (None, "row d:a d:a", None, "two fields are column d:a"),
            (None, "row d:\\q", None, "escape"),
            (None, "id n", Some("idd=ROW,n=d:n"), "the file has no field \"idd\""),
            (None, "ident n", Some("idnt=ROW,n=d:n"), "did you mean \"ident\"?"),
            (None, "id n", Some("ROW,d:a,d:b"), "--columns names 3 fields, but the file has 2"),
            (declared, "user d:a", None, "no field is part time"),
            (declared, "usr time d:a", None, "did you mean `user`?"),
            (declared, "row user d:a", None, "the key is given twice"),
        ] {
            let error = named(key, fields, columns).expect_err(fields);
            assert!(error.contains(said), "{fields}: {error}");
        }
        assert!(Columns::parse("a=ROW,d:b").expect_err("mixed").contains("for all fields or for none"));
    }

    #[test]
    fn raw_takes_bytes_whatever_is_declared() {
        let schema = schema(Some("user:u64"));
        let names = Names::new(&schema, true);
        let mapping = Mapping::named(&["row", "d:count"], None, &names).expect("a mapping");
        let read = record(&mapping, &["7", "12"].map(Field::Text));
        assert_eq!((&read.row[..], &read.cells[0].value[..]), (&b"7"[..], &b"12"[..]));
        assert!(Mapping::named(&["user", "d:count"], None, &names).is_err());
    }
}
