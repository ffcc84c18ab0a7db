//! What is wrong with a filter; for text, with the place marked.

use terrane_types::Invalid;

/// Why a filter is refused. The same filter is always refused.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The text does not parse.
    #[error("{}", drawn(what, text, *at))]
    Syntax {
        /// What is wrong and what was expected.
        what: String,
        /// The text.
        text: String,
        /// The byte offset of the error in the text.
        at: usize,
    },
    /// A parameter has no value or one that does not fit, or a value has no parameter.
    #[error("{}", drawn(&format!("parameter {number} {what}"), text, *at))]
    Parameter {
        /// The number of the parameter, from 1 in the order of the text.
        number: usize,
        /// What is wrong and what was expected, as the rest of a sentence.
        what: String,
        /// The text.
        text: String,
        /// The byte offset of the parameter in the text; its length for a value without a parameter.
        at: usize,
    },
    /// The text is too long.
    #[error("the filter has {bytes} bytes of text; the limit is {limit}")]
    TooLong {
        /// The actual number.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Expressions are nested too deep.
    #[error("the filter is nested {depth} deep; the limit is {limit}")]
    TooDeep {
        /// The actual number.
        depth: usize,
        /// The limit.
        limit: usize,
    },
    /// There is too much of something.
    #[error("the filter has {count} {what}; the limit is {limit}")]
    TooMany {
        /// The things counted, in the plural.
        what: &'static str,
        /// The actual number.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A regular expression is malformed or too large.
    #[error("the regular expression '{pattern}' is refused: {why}")]
    Pattern {
        /// The expression, shortened.
        pattern: String,
        /// What is wrong.
        why: String,
    },
    /// `page`, `while` or `keys_only` inside another expression.
    #[error("{name}() is about the whole scan: it stands alone or in the outermost `and`")]
    Misplaced {
        /// The function's name.
        name: &'static str,
    },
    /// A value breaks a rule of its test.
    #[error("{what}")]
    BadOperand {
        /// The rule, as a sentence.
        what: String,
    },
}

impl From<FilterError> for Invalid {
    fn from(error: FilterError) -> Self {
        Self::new(error.to_string())
    }
}

/// How much of a long text is shown on each side of the place.
const SHOWN_CHARS: usize = 60;

/// The sentence, the line of the text around the place, and a caret below it.
fn drawn(what: &str, text: &str, at: usize) -> String {
    let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let column = text[..at].chars().count();
    let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let before: Vec<char> = text[line_start..at].chars().collect();
    let cut = before.len().saturating_sub(SHOWN_CHARS);
    let after: String = text[at..line_end].chars().take(SHOWN_CHARS).collect();
    // Control characters must not move the caret.
    let plain = |shown: char| if shown.is_control() { ' ' } else { shown };
    let mark = if cut > 0 { "…" } else { "" };
    let shown: String = before[cut..].iter().copied().chain(after.chars()).map(plain).collect();
    let more = if text[at..line_end].chars().count() > SHOWN_CHARS { "…" } else { "" };
    let caret = " ".repeat(before.len() - cut + mark.chars().count());
    format!("the filter is wrong at character {}: {what}\n  {mark}{shown}{more}\n  {caret}^", column + 1)
}
