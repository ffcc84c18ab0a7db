//! One row per line, as a plain JSON object such as other programs write: `{"user":7,"name":"x"}`.
//!
//! A mapping says what its fields are; the others are skipped. A field of an object within is named with a dot, `address.city`.
//! Strings are taken as they are: a backslash is a character.

use std::borrow::Cow;

use serde_json::{Map, Value};
use terrane_types::closest;

use super::field::Field;
use super::mapping::{Columns, Mapping, Names, Use};
use super::{Backslashes, LineError, Parsed};

/// Lines of objects.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The names of the mapping's fields.
    fields: Vec<String>,
    mapping: Mapping,
}

impl Objects {
    /// Objects whose fields these columns name.
    pub fn new(columns: &Columns, names: &Names<'_>) -> Result<Objects, String> {
        let Columns::Named(pairs) = columns else {
            return Err("the fields of a JSON object have names and no order: give `NAME=TARGET` for each".to_owned());
        };
        let fields: Vec<String> = pairs.iter().map(|(name, _)| name.clone()).collect();
        let known: Vec<&str> = fields.iter().map(String::as_str).collect();
        let mapping = Mapping::named(&known, Some(columns), names)?;
        Ok(Objects { fields, mapping })
    }

    /// The notes of the mapping.
    pub fn notes(&self) -> &[String] {
        self.mapping.notes()
    }

    /// Parses one line.
    pub fn parse(&self, line: &[u8]) -> Result<Parsed, LineError> {
        let object: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
            let error = error.to_string().replace(" at line 1 column ", " at character ");
            LineError::new(format!("not a JSON object: {error}"))
        })?;
        let values: Vec<Option<&Value>> = self.fields.iter().map(|name| find(&object, name)).collect();
        for (at, name) in self.fields.iter().enumerate() {
            if values[at].is_none() && self.mapping.use_of(at) == Some(Use::Key) {
                let meant = closest(name, object.keys().map(String::as_str));
                let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
                return Err(LineError::new(format!("the object has no field {name:?}, which is of the key{meant}")));
            }
        }
        let texts: Vec<Cow<'_, str>> = values.iter().map(|value| text_of(*value)).collect();
        self.mapping.record(values.iter().zip(&texts).map(|(value, text)| field_of(*value, text)))
    }
}

/// The field of this name, or of an object within.
fn find<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    if let Some(value) = object.get(name) {
        return Some(value);
    }
    let (outer, inner) = name.split_once('.')?;
    find(object.get(outer)?.as_object()?, inner)
}

/// The text of a value that has one: a string, or a list or an object as JSON.
fn text_of(value: Option<&Value>) -> Cow<'_, str> {
    match value {
        Some(Value::String(text)) => Backslashes::Literal.escaped(text),
        Some(value @ (Value::Array(_) | Value::Object(_))) => {
            Cow::Owned(Backslashes::Literal.escaped(&value.to_string()).into_owned())
        }
        _ => Cow::Borrowed(""),
    }
}

fn field_of<'f>(value: Option<&Value>, text: &'f str) -> Field<'f> {
    match value {
        None | Some(Value::Null) => Field::Null,
        Some(Value::Bool(truth)) => Field::Bool(*truth),
        Some(Value::Number(number)) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => Field::Integer(integer.into()),
            (None, Some(integer), _) => Field::Integer(integer.into()),
            (None, None, Some(float)) => Field::Float(float),
            (None, None, None) => Field::Null,
        },
        Some(Value::String(_) | Value::Array(_) | Value::Object(_)) => Field::Text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::super::mapping::tests::schema;
    use super::*;

    fn objects(key: Option<&str>, columns: &str) -> Result<Objects, String> {
        Objects::new(&Columns::parse(columns).expect("columns"), &Names::new(&schema(key), false))
    }

    fn record(objects: &Objects, line: &str) -> Record {
        match objects.parse(line.as_bytes()) {
            Ok(Parsed::Record(record)) => record,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn fields_become_the_row_and_typed_values() {
        let of = objects(None, "id=ROW,n=d:count,share=d:share,who.name=d:name,tags=d:tags,at=TIMESTAMP")
            .expect("a mapping");
        let line = r#"{"id":"a\\b","n":3,"share":0.5,"who":{"name":"Li \\ \"Wei\""},"tags":["x"],"at":17,"more":{}}"#;
        let read = record(&of, line);
        assert_eq!(&read.row[..], br"a\b");
        let cells: Vec<(&[u8], &[u8])> = read.cells.iter().map(|cell| (&cell.qualifier[..], &cell.value[..])).collect();
        let (three, half) = (3_i64.to_be_bytes(), 0.5_f64.to_be_bytes());
        assert_eq!(
            cells,
            [(&b"count"[..], &three[..]), (b"share", &half), (b"name", &br#"Li \ "Wei""#[..]), (b"tags", br#"["x"]"#)]
        );
        assert!(read.cells.iter().all(|cell| cell.timestamp == Some(17)));
        let partial = record(&of, r#"{"id":7,"n":null,"share":1}"#);
        assert_eq!((&partial.row[..], partial.cells.len()), (&b"7"[..], 1));
        assert_eq!(of.parse(br#"{"id":"k"}"#), Ok(Parsed::Skipped), "nothing to write");
    }

    #[test]
    fn a_declared_key_is_taken_from_its_fields() {
        let key = "user:u64, name:text";
        let of = objects(Some(key), "user=user,name=name,v=d:v").expect("a mapping");
        let row = terrane_types::KeyDeclaration::parse(key).expect("a key").encode(&["7", r"a\\b, c"]).expect("a row");
        assert_eq!(record(&of, r#"{"user":7,"name":"a\\b, c","v":true}"#).row, row.into_bytes());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(objects(None, "ROW,d:a").expect_err("no names").contains("no order"));
        assert!(objects(None, "id=ROW,n=d:count,x=lnger:a").expect_err("a family").contains("longer:a"));
        let of = objects(None, "id=ROW,n=d:count").expect("a mapping");
        for (line, named) in [
            (r#"{"idd":"k","n":1}"#, "did you mean \"idd\"?"),
            (r#"{"id":null,"n":1}"#, "row key is empty"),
            (r#"{"id":"k","n":"x"}"#, "column d:count"),
            (r#"{"id":"k","n":1"#, "not a JSON object: EOF while parsing"),
            (r#"["k"]"#, "not a JSON object"),
        ] {
            let error = of.parse(line.as_bytes()).expect_err(line).to_string();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
