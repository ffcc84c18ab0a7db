//! The tokens of a filter's text.

use crate::error::FilterError;
use crate::expression::Relation;

/// A token and its offset in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind<'a> {
    /// Letters, digits, `_`, `-` and single dots: names and numbers alike.
    Word(&'a str),
    /// The text between single quotes, with its escapes.
    Quoted(&'a str),
    Relation(Relation),
    Colon,
    Comma,
    Open,
    Close,
    /// `?`: a value that is bound.
    Parameter,
    /// `..`, or `..=` if the end is included.
    Dots {
        inclusive: bool,
    },
    End,
}

impl TokenKind<'_> {
    /// The token as an error names it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{}`", shortened(word)),
            Self::Quoted(text) => format!("'{}'", shortened(text)),
            Self::Relation(relation) => format!("`{relation}`"),
            Self::Colon => "`:`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::Parameter => "`?`".to_owned(),
            Self::Dots { inclusive: false } => "`..`".to_owned(),
            Self::Dots { inclusive: true } => "`..=`".to_owned(),
            Self::End => "the end".to_owned(),
        }
    }
}

fn shortened(word: &str) -> String {
    match word.char_indices().nth(32) {
        Some((at, _)) => format!("{}…", &word[..at]),
        None => word.to_owned(),
    }
}

pub(crate) fn syntax(text: &str, at: usize, what: impl Into<String>) -> FilterError {
    FilterError::Syntax { what: what.into(), text: text.to_owned(), at }
}

/// Splits the text into tokens; the last one is [`TokenKind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, FilterError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let rest = &text[at..];
        let (kind, length) = match byte {
            b'(' => (TokenKind::Open, 1),
            b')' => (TokenKind::Close, 1),
            b',' => (TokenKind::Comma, 1),
            b':' => (TokenKind::Colon, 1),
            b'?' => (TokenKind::Parameter, 1),
            b'\'' => quoted(text, at)?,
            b'.' if rest.starts_with("..=") => (TokenKind::Dots { inclusive: true }, 3),
            b'.' if rest.starts_with("..") => (TokenKind::Dots { inclusive: false }, 2),
            b'<' | b'>' | b'=' | b'!' => relation(text, at)?,
            _ if is_word_byte(byte) => {
                let length = word_length(bytes, at);
                (TokenKind::Word(&text[at..at + length]), length)
            }
            b'"' => return Err(syntax(text, at, "strings stand in single quotes: '…'")),
            b'&' => return Err(syntax(text, at, "write `and` instead of `&`")),
            b'|' => return Err(syntax(text, at, "write `or` instead of `|`")),
            _ => {
                let found = rest.chars().next().unwrap_or(' ').escape_default().to_string();
                return Err(syntax(text, at, format!("`{found}` begins nothing; text goes in single quotes")));
            }
        };
        tokens.push(Token { kind, at });
        at += length;
    }
    tokens.push(Token { kind: TokenKind::End, at: text.len() });
    Ok(tokens)
}

/// Whether a name needs no quotes.
pub(crate) fn is_word(name: &[u8]) -> bool {
    !name.is_empty() && word_length(name, 0) == name.len()
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// A word ends before two dots, which denote a range.
fn word_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let is_end = |index: &usize| !is_word_byte(rest[*index]) || rest[*index..].starts_with(b"..");
    (0..rest.len()).find(is_end).unwrap_or(rest.len())
}

fn quoted(text: &str, at: usize) -> Result<(TokenKind<'_>, usize), FilterError> {
    let inside = &text[at + 1..];
    match inside.find('\'') {
        Some(end) => Ok((TokenKind::Quoted(&inside[..end]), end + 2)),
        None => {
            Err(syntax(text, at, "the string that begins here is not closed; write \\x27 for a quote inside of one"))
        }
    }
}

fn relation(text: &str, at: usize) -> Result<(TokenKind<'static>, usize), FilterError> {
    let rest = &text[at..];
    let known = [
        ("<=", Relation::LessOrEqual),
        (">=", Relation::GreaterOrEqual),
        ("!=", Relation::NotEqual),
        ("<>", Relation::NotEqual),
        ("==", Relation::Equal),
        ("<", Relation::Less),
        (">", Relation::Greater),
        ("=", Relation::Equal),
    ];
    match known.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
        Some((sign, relation)) => Ok((TokenKind::Relation(relation), sign.len())),
        None => Err(syntax(text, at, "write `not` instead of `!`; unequal is `!=`")),
    }
}
