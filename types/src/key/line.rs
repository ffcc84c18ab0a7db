//! Keys as one line of text: `user=7,time=1000,action=1`, or `7,1000,1` in order.
//!
//! A part that contains a comma, an equals sign or a quote needs single quotes, with quotes in it doubled. Inside and
//! outside of quotes a part has the text form of its type, so escapes work everywhere. A prefix or a bound gives leading
//! parts. A bucket is computed; it is neither given nor shown.

use std::fmt::Write as _;

use super::KeyDeclaration;
use crate::escape::escape;
use crate::invalid::Invalid;
use crate::keycodec::PartType;
use crate::range::KeyRange;
use crate::row::Row;
use crate::suggestion::closest;
use crate::time::Time;

/// One part of a line.
struct Field {
    name: Option<String>,
    text: String,
}

impl KeyDeclaration {
    /// The row of a key whose parts are all given, by name or in order.
    ///
    /// ```
    /// use terrane_types::KeyDeclaration;
    /// let key = KeyDeclaration::parse("user:text, time:desc i64")?;
    /// let row = key.parse_line("user='Li, Wei',time=5")?;
    /// assert_eq!(row, key.parse_line("'Li, Wei',5")?);
    /// assert_eq!(key.line(&row)?, "user='Li, Wei',time=5");
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] that names the part and what it takes.
    pub fn parse_line(&self, line: &str) -> Result<Row, Invalid> {
        let texts = self.fields(line)?;
        if let Some(missing) = self.text_parts().get(texts.len()) {
            return Err(Invalid::new(format!(
                "part {} ({}) is missing; {}",
                missing.name,
                missing.kind,
                self.expected()
            )));
        }
        self.encode(&texts)
    }

    /// The ranges of the keys that start with the parts of this line: one, or one per bucket.
    ///
    /// # Errors
    /// As for [`KeyDeclaration::parse_line`].
    pub fn parse_prefix_line(&self, line: &str) -> Result<Vec<KeyRange>, Invalid> {
        self.prefix_ranges(&self.fields(line)?)
    }

    /// The bytes of the leading parts of this line, without a bucket: a bound in the order of keys.
    ///
    /// # Errors
    /// As for [`KeyDeclaration::parse_line`].
    pub fn parse_bound_line(&self, line: &str) -> Result<Vec<u8>, Invalid> {
        self.encode_parts(&self.fields(line)?)
    }

    /// The line with its relative times counted from `now`: `user=7,time=-1h`. A line without any is the same line.
    ///
    /// ```
    /// use terrane_types::{KeyDeclaration, Time};
    /// let key = KeyDeclaration::parse("user:text, time:desc time")?;
    /// let line = key.with_times_from("user=ann,time=-1h", Time::parse("2026-01-31T12:00Z")?)?;
    /// assert_eq!(key.line(&key.parse_line(&line)?)?, "user=ann,time=2026-01-31T11:00:00Z");
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// As for [`KeyDeclaration::parse_bound_line`]; the parts that are no times are not checked.
    pub fn with_times_from(&self, line: &str, now: Time) -> Result<String, Invalid> {
        let mut texts = self.fields(line)?;
        let times = self.text_parts().iter().zip(&mut texts).filter(|(part, _)| part.kind.part == PartType::Time);
        let mut found = false;
        for (_, text) in times.filter(|(_, text)| Time::is_relative(text)) {
            *text = Time::parse_at(text, now)?.millis().to_string();
            found = true;
        }
        if !found {
            return Ok(line.to_owned());
        }
        let quoted: Vec<String> = texts.into_iter().map(quoted).collect();
        Ok(quoted.join(","))
    }

    /// A row as a line of named parts.
    ///
    /// # Errors
    /// [`Invalid`] if the row is not such a key.
    pub fn line(&self, row: &[u8]) -> Result<String, Invalid> {
        let texts = self.decode(row)?;
        let mut line = String::new();
        for (part, text) in self.text_parts().iter().zip(texts) {
            let comma = if line.is_empty() { "" } else { "," };
            write!(line, "{comma}{}={}", part.name, quoted(text)).expect("a string takes any text");
        }
        Ok(line)
    }

    /// A row, or a boundary of regions, as text: a line of named parts as far as it has them, then the rest as bytes. What is no
    /// such key is shown as bytes.
    ///
    /// ```
    /// use terrane_types::KeyDeclaration;
    /// let key = KeyDeclaration::parse("user:u32, name:text")?;
    /// assert_eq!(key.shown(&key.parse_line("7,ann")?), "user=7,name=ann");
    /// assert_eq!(key.shown(&[0, 0, 0, 7]), "user=7");
    /// assert_eq!(key.shown(&[0, 0, 0, 7, 0xff]), r"user=7,\xFF");
    /// assert_eq!(key.shown(&[7]), r"\x07");
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    #[must_use]
    pub fn shown(&self, bytes: &[u8]) -> String {
        if bytes.is_empty() {
            return String::new();
        }
        if let Ok(line) = self.line(bytes) {
            return line;
        }
        for count in (1..self.parts().len()).rev() {
            let length: Option<usize> = (0..count).map(|place| self.part_bytes(bytes, place).map(<[u8]>::len)).sum();
            let Some(length) = length else { continue };
            let leading = KeyDeclaration::new(self.parts()[..count].to_vec());
            let Some(line) = leading.ok().and_then(|leading| leading.line(&bytes[..length]).ok()) else { continue };
            let rest = &bytes[length..];
            return if rest.is_empty() { line } else { format!("{line},{}", escape(rest)) };
        }
        escape(bytes)
    }

    /// The place of this part among the [text parts](KeyDeclaration::text_parts).
    fn text_part(&self, name: &str) -> Result<usize, Invalid> {
        let parts = self.text_parts();
        parts.iter().position(|part| part.name == name).ok_or_else(|| {
            let names = parts.iter().map(|part| part.name.as_str());
            let meant = closest(name, names).map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
            Invalid::new(format!("the key has no part {name:?}; {meant}{}", self.expected()))
        })
    }

    /// The place of this part among all [parts](KeyDeclaration::parts). A bucket is not found: it is computed.
    ///
    /// # Errors
    /// [`Invalid`] that lists the parts and suggests one.
    pub fn place_of(&self, name: &str) -> Result<usize, Invalid> {
        let buckets = self.parts().len() - self.text_parts().len();
        Ok(self.text_part(name)? + buckets)
    }

    fn expected(&self) -> String {
        let parts: Vec<String> =
            self.text_parts().iter().map(|part| format!("{}=<{}>", part.name, part.kind)).collect();
        format!("a key is {}", parts.join(","))
    }

    /// The texts of the leading parts that a line gives.
    fn fields(&self, line: &str) -> Result<Vec<String>, Invalid> {
        let parts = self.text_parts();
        let fields = split(line)?;
        if fields.len() > parts.len() {
            return Err(Invalid::new(format!("{} parts are given; {}", fields.len(), self.expected())));
        }
        let named = fields.iter().filter(|field| field.name.is_some()).count();
        if named == 0 {
            return Ok(fields.into_iter().map(|field| field.text).collect());
        }
        if named < fields.len() {
            return Err(Invalid::new(format!("name all parts or none; {}", self.expected())));
        }
        let mut texts: Vec<Option<String>> = vec![None; parts.len()];
        for Field { name, text } in fields {
            let name = name.expect("all are named");
            let at = self
                .text_part(&name)
                .map_err(|error| Invalid::new(format!("{error}; a text with an equals sign needs single quotes")))?;
            if texts[at].replace(text).is_some() {
                return Err(Invalid::new(format!("part {name} is given twice")));
            }
        }
        let given = texts.iter().take_while(|text| text.is_some()).count();
        if let Some(at) = texts.iter().skip(given).position(Option::is_some) {
            let (missing, later) = (&parts[given].name, &parts[given + at].name);
            return Err(Invalid::new(format!("part {later} is given without {missing}, which comes before it")));
        }
        Ok(texts.into_iter().flatten().collect())
    }
}

/// A part as a line has it.
fn quoted(text: String) -> String {
    if text.is_empty() || text.contains([',', '=', '\'']) { format!("'{}'", text.replace('\'', "''")) } else { text }
}

/// Splits a line at the commas outside of quotes.
fn split(line: &str) -> Result<Vec<Field>, Invalid> {
    let mut fields = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let name_end = rest.find([',', '=', '\'']).filter(|&at| rest[at..].starts_with('='));
        let name = name_end.map(|end| rest[..end].to_owned());
        rest = name_end.map_or(rest, |end| &rest[end + 1..]);
        let (text, after) = match rest.strip_prefix('\'') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let text = &rest[..end];
                if text.contains(['=', '\'']) {
                    return Err(Invalid::new(format!(
                        "{text:?} has an equals sign or a quote, so it needs single quotes: '{}'",
                        text.replace('\'', "''")
                    )));
                }
                (text.to_owned(), &rest[end..])
            }
        };
        if !after.is_empty() && !after.starts_with(',') {
            return Err(Invalid::new(format!("a comma belongs between the quoted part and {after:?}")));
        }
        fields.push(Field { name, text });
        match after.strip_prefix(',') {
            Some("") => {
                fields.push(Field { name: None, text: String::new() });
                rest = "";
            }
            Some(more) => rest = more,
            None => rest = "",
        }
    }
    Ok(fields)
}

/// The text up to the closing quote, and what follows it.
fn unquote(quoted: &str) -> Result<(String, &str), Invalid> {
    let mut text = String::new();
    let mut rest = quoted;
    loop {
        let Some(end) = rest.find('\'') else {
            return Err(Invalid::new(format!("the quote before {quoted:?} is not closed; a quote inside is doubled")));
        };
        text.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(more) => {
                text.push('\'');
                rest = more;
            }
            None => return Ok((text, rest)),
        }
    }
}
