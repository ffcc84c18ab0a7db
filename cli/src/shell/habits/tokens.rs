//! The tokens of a line of SQL.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name or a keyword, as typed. A colon or dots may be within: `d:count`, `d.count`.
    Name(String),
    /// A name in double quotes or backticks, which is no keyword.
    Quoted(String),
    /// A string in single quotes.
    Text(String),
    Number(String),
    /// Anything else: `(`, `,`, `>=`, `*`.
    Sign(String),
}

impl Token {
    /// Whether it is this keyword, in letters of any case.
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, Token::Name(name) if name.eq_ignore_ascii_case(keyword))
    }

    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Token::Sign(found) if found == sign)
    }

    /// The name, if it is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Token::Name(name) | Token::Quoted(name) => Some(name),
            _ => None,
        }
    }

    /// The value, if it is a literal.
    pub fn value(&self) -> Option<&str> {
        match self {
            Token::Text(text) | Token::Number(text) => Some(text),
            Token::Name(name) if ["true", "false"].contains(&name.to_lowercase().as_str()) => Some(name),
            _ => None,
        }
    }
}

/// Splits a line; `None` if a quote is not closed.
pub fn tokens(line: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '\'' | '"' | '`' => {
                let (text, after) = quoted(rest, first)?;
                (if first == '\'' { Token::Text(text) } else { Token::Quoted(text) }, after)
            }
            _ if first.is_ascii_digit() || (first == '-' && begins_number(&rest[1..])) => {
                let is_inside = |(at, c): (usize, char)| at == 0 || c.is_ascii_alphanumeric() || "._".contains(c);
                let end = rest.char_indices().find(|place| !is_inside(*place)).map_or(rest.len(), |(at, _)| at);
                (Token::Number(rest[..end].to_owned()), &rest[end..])
            }
            _ if is_name(first) => {
                let end = rest.find(|c: char| !is_name(c) && !"-.:".contains(c)).unwrap_or(rest.len());
                (Token::Name(rest[..end].to_owned()), &rest[end..])
            }
            _ => {
                let two = [">=", "<=", "<>", "!=", "=="].into_iter().find(|sign| rest.starts_with(sign));
                let length = two.map_or(first.len_utf8(), str::len);
                (Token::Sign(rest[..length].to_owned()), &rest[length..])
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Some(tokens)
}

fn begins_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text between quotes, in which a doubled quote is one, and what follows.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut inside = String::new();
    let mut rest = &text[1..];
    loop {
        let end = rest.find(quote)?;
        inside.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(quote) {
            Some(after) => {
                inside.push(quote);
                rest = after;
            }
            None => return Some((inside, rest)),
        }
    }
}
