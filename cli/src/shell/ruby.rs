//! The arguments of an HBase shell line: the small part of Ruby that people type there.
//!
//! Strings in single or double quotes, numbers, constants, `[lists]`, and `{NAME => value}` hashes, whose braces may be left
//! out at the end of a line. Double-quoted strings know `\xHH`, `\t`, `\n`, `\r`, `\"` and `\\`; in single quotes only `\'` and
//! `\\` are special, as in Ruby.

use terrane_types::{Invalid, escape};

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string, as text with our escapes.
    Text(String),
    /// A number or a constant, such as `5`, `true`, `VERSIONS` or `FOREVER`.
    Word(String),
    List(Vec<Value>),
    /// Names in upper case and their values, in the order given.
    Hash(Vec<(String, Value)>),
}

impl Value {
    /// A string, number or constant as text.
    pub fn text(&self) -> Result<&str, Invalid> {
        match self {
            Value::Text(text) | Value::Word(text) => Ok(text),
            Value::List(_) | Value::Hash(_) => {
                Err(Invalid::new("a string or a number is expected, not a list or a hash"))
            }
        }
    }

    /// The elements of a list; a single value is a list of one.
    pub fn list(&self) -> Result<Vec<&str>, Invalid> {
        match self {
            Value::List(values) => values.iter().map(Value::text).collect(),
            single => Ok(vec![single.text()?]),
        }
    }
}

/// Reads the arguments of a line, which commas separate.
pub fn arguments(text: &str) -> Result<Vec<Value>, Invalid> {
    let mut reader = Reader { text, at: 0 };
    let mut values = Vec::new();
    reader.blanks();
    // `create('t', 'f')` is Ruby, too.
    if reader.rest().starts_with('(') && reader.rest().ends_with(')') {
        reader = Reader { text: &text[..text.len() - 1], at: reader.at + 1 };
        reader.blanks();
    }
    while !reader.rest().is_empty() {
        if !values.is_empty() {
            reader.expect(",")?;
        }
        let value = reader.value()?;
        if reader.takes("=>") {
            let mut pairs = vec![(name_of(&value)?, reader.value()?)];
            while reader.takes(",") {
                pairs.push(reader.pair()?);
            }
            values.push(Value::Hash(pairs));
        } else {
            values.push(value);
        }
        reader.blanks();
    }
    Ok(values)
}

fn name_of(value: &Value) -> Result<String, Invalid> {
    Ok(value.text()?.to_ascii_uppercase())
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn takes(&mut self, token: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
            self.blanks();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), Invalid> {
        if self.takes(token) { Ok(()) } else { Err(self.wrong(&format!("`{token}` is expected"))) }
    }

    fn wrong(&self, what: &str) -> Invalid {
        let rest: String = self.rest().chars().take(20).collect();
        let place = if rest.is_empty() { "at the end of the line".to_owned() } else { format!("at `{rest}`") };
        Invalid::new(format!("{what} {place}"))
    }

    fn pair(&mut self) -> Result<(String, Value), Invalid> {
        let name = name_of(&self.value()?)?;
        self.expect("=>")?;
        Ok((name, self.value()?))
    }

    fn value(&mut self) -> Result<Value, Invalid> {
        self.blanks();
        match self.rest().chars().next() {
            Some(quote @ ('\'' | '"')) => self.string(quote).map(Value::Text),
            Some('[') => self.sequence("[", "]", Reader::value).map(Value::List),
            Some('{') => self.sequence("{", "}", Reader::pair).map(Value::Hash),
            Some(first) if first.is_ascii_alphanumeric() || "-_:".contains(first) => {
                let end = self.rest().find(|c: char| !c.is_ascii_alphanumeric() && !"-_.:".contains(c));
                let word = &self.rest()[..end.unwrap_or(self.rest().len())];
                self.at += word.len();
                Ok(Value::Word(word.to_owned()))
            }
            _ => Err(self.wrong("a value is expected")),
        }
    }

    fn sequence<T>(
        &mut self,
        open: &str,
        close: &str,
        item: impl Fn(&mut Self) -> Result<T, Invalid>,
    ) -> Result<Vec<T>, Invalid> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.takes(close) {
            if self.rest().is_empty() {
                return Err(self.wrong(&format!("`{close}` is expected")));
            }
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn string(&mut self, quote: char) -> Result<String, Invalid> {
        let begin = self.at;
        let mut bytes = Vec::new();
        let mut rest = self.rest()[1..].chars();
        loop {
            let next = rest.next();
            match next {
                None => {
                    self.at = begin;
                    return Err(self.wrong("the string has no closing quote"));
                }
                Some(end) if end == quote => break,
                Some('\\') => {
                    let escaped = rest.clone().next().ok_or_else(|| self.wrong("an escape has no character"))?;
                    let plain = match (quote, escaped) {
                        (_, '\\') => Some(b'\\'),
                        ('\'', '\'') => Some(b'\''),
                        ('"', '"') => Some(b'"'),
                        ('"', 't') => Some(b'\t'),
                        ('"', 'n') => Some(b'\n'),
                        ('"', 'r') => Some(b'\r'),
                        ('"', 'x') => {
                            rest.next();
                            let digits: String = rest.clone().take(2).collect();
                            let byte = u8::from_str_radix(&digits, 16).map_err(|_| {
                                Invalid::new(format!("\\x{digits} is not a byte: two hexadecimal digits follow \\x"))
                            })?;
                            rest.next();
                            Some(byte)
                        }
                        _ => None,
                    };
                    match plain {
                        Some(byte) => {
                            bytes.push(byte);
                            rest.next();
                        }
                        // Ruby keeps other backslashes of a single-quoted string.
                        None => bytes.push(b'\\'),
                    }
                }
                Some(other) => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.at = self.text.len() - rest.as_str().len();
        Ok(escape(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    fn word(text: &str) -> Value {
        Value::Word(text.to_owned())
    }

    #[test]
    fn arguments_are_strings_numbers_lists_and_hashes() {
        let read = |line: &str| arguments(line).expect(line);
        assert_eq!(read("'t', 'f'"), [text("t"), text("f")]);
        assert_eq!(read("('t', 5)"), [text("t"), word("5")]);
        assert_eq!(
            read(r#""a\x00b", '\x00', "q\"'", 'q\'"'"#),
            [text(r"a\x00b"), text(r"\\x00"), text("q\"'"), text("q'\"")]
        );
        let scan = read("'t', {COLUMNS => ['f:a', 'f:b'], LIMIT => 10}");
        let hash =
            vec![("COLUMNS".to_owned(), Value::List(vec![text("f:a"), text("f:b")])), ("LIMIT".to_owned(), word("10"))];
        assert_eq!(scan, [text("t"), Value::Hash(hash.clone())]);
        assert_eq!(
            read("'t', COLUMNS=>['f:a','f:b'], LIMIT=>10"),
            [text("t"), Value::Hash(hash)],
            "braces may be left out"
        );
        assert_eq!(read(""), []);
    }

    #[test]
    fn a_mistake_is_shown_with_its_place() {
        for (line, named) in [
            ("'t', 'f", "closing quote at `'f`"),
            ("'t' 'f'", "`,` is expected at `'f'`"),
            ("'t', {LIMIT 5}", "`=>` is expected at `5}`"),
            ("'t', {LIMIT => }", "a value is expected at `}`"),
            ("'t', [1, 2", "`]` is expected at the end of the line"),
            ("'t', {LIMIT => 2", "`}` is expected at the end of the line"),
            (r#""\xZZ""#, "two hexadecimal digits"),
        ] {
            let error = arguments(line).expect_err(line).to_string();
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
