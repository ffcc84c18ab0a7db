//! Query strings: `?limit=50&prefix=user%3D7`, read strictly.
//!
//! An unknown parameter is refused rather than ignored: a misspelt `limt=10` would otherwise answer something else than was
//! asked for, without a word.

use std::fmt::Display;
use std::str::FromStr;

use terrane_types::{closest, unescape};

use crate::source::Failure;

/// The decoded parameters of a request.
pub(crate) struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Decodes `text`, of which only the `known` parameters are allowed, each once.
    pub(crate) fn parse(text: Option<&str>, known: &[&str]) -> Result<Query, Failure> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (percent_decoded(name)?, percent_decoded(value)?);
            if !known.contains(&name.as_str()) {
                return Err(unknown_parameter(&name, known));
            }
            if parameters.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Failure::bad_input(format!("The parameter {name} is given twice."), "Give it once."));
            }
            parameters.push((name, value));
        }
        Ok(Query { parameters })
    }

    /// The value of a parameter; one that is absent or empty is `None`.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A number, or a value of any type that names its own error.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed = text.parse().map_err(|error| {
            Failure::bad_input(
                format!("The parameter {name} is \"{text}\": {error}."),
                "Give a whole number, 0 or greater.",
            )
        });
        parsed.map(Some)
    }

    /// A limit: `default` if it is absent, refused outside of 1 to `max`.
    pub(crate) fn limit(&self, name: &str, default: usize, max: usize) -> Result<usize, Failure> {
        match self.parsed(name)? {
            None => Ok(default),
            Some(limit) if (1..=max).contains(&limit) => Ok(limit),
            Some(limit) => {
                Err(Failure::bad_input(format!("The parameter {name} is {limit}."), format!("Give 1 to {max}.")))
            }
        }
    }

    /// Bytes of a key, in printable text with `\xHH`.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let bytes = unescape(text).map_err(|error| {
            Failure::bad_input(
                format!("The key \"{text}\" in the parameter {name} is malformed: {error}."),
                r"Write bytes that are not printable as \xHH and a backslash as \\.",
            )
        });
        bytes.map(Some)
    }

    /// One of `choices`, by name; `None` if it is absent.
    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if let Some((_, value)) = choices.iter().find(|(known, _)| *known == text) {
            return Ok(Some(*value));
        }
        let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        let next = match closest(text, known.iter().copied()) {
            Some(near) => format!("Did you mean {near}?"),
            None => format!("Give one of: {}.", known.join(", ")),
        };
        Err(Failure::bad_input(format!("The parameter {name} is \"{text}\"."), next))
    }
}

fn unknown_parameter(name: &str, known: &[&str]) -> Failure {
    let next = match closest(name, known.iter().copied()) {
        Some(near) => format!("Did you mean {near}?"),
        None if known.is_empty() => "This address takes no parameters.".to_owned(),
        None => format!("The parameters are: {}.", known.join(", ")),
    };
    Failure::bad_input(format!("There is no parameter {name} here."), next)
}

fn percent_decoded(text: &str) -> Result<String, Failure> {
    let malformed = || {
        Failure::bad_input(
            format!("The address has \"{text}\", which is not percent-encoded UTF-8."),
            r"Write a percent sign as %25, and bytes of a key as \xHH.",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(malformed)?, digit().ok_or_else(malformed)?);
                bytes.push(u8::try_from(high << 4 | low).expect("two hexadecimal digits are one byte"));
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, known: &[&str]) -> String {
        Query::parse(Some(text), known).err().unwrap().to_string()
    }

    #[test]
    fn values_are_decoded() {
        let query = Query::parse(Some("prefix=user%3D7+a&limit=5&after="), &["prefix", "limit", "after"]).unwrap();
        assert_eq!(query.text("prefix"), Some("user=7 a"));
        assert_eq!(query.limit("limit", 50, 100).unwrap(), 5);
        assert_eq!(query.text("after"), None);
    }

    #[test]
    fn unknown_parameters_are_refused_with_the_nearest() {
        assert_eq!(refused("limt=5", &["limit", "after"]), "There is no parameter limt here. Did you mean limit?");
        assert_eq!(refused("a=1", &[]), "There is no parameter a here. This address takes no parameters.");
        assert_eq!(refused("limit=1&limit=2", &["limit"]), "The parameter limit is given twice. Give it once.");
    }

    #[test]
    fn malformed_values_are_refused() {
        assert!(refused("a=%zz", &["a"]).contains("not percent-encoded UTF-8"));
        assert!(refused("a=%e6%9d", &["a"]).contains("not percent-encoded UTF-8"));
        let query = Query::parse(Some(r"key=a\q&limit=0&id=-1"), &["key", "limit", "id"]).unwrap();
        let failure = query.bytes("key").unwrap_err();
        assert!(failure.message.starts_with(r#"The key "a\q" in the parameter key is malformed:"#), "{failure}");
        assert_eq!(query.limit("limit", 5, 10).unwrap_err().to_string(), "The parameter limit is 0. Give 1 to 10.");
        assert!(query.parsed::<u64>("id").unwrap_err().next.contains("whole number"));
    }

    #[test]
    fn a_choice_suggests_the_nearest() {
        let query = Query::parse(Some("measure=raeds"), &["measure"]).unwrap();
        let failure = query.choice("measure", &[("reads", 1), ("writes", 2)]).unwrap_err();
        assert_eq!(failure.to_string(), r#"The parameter measure is "raeds". Did you mean reads?"#);
    }
}
