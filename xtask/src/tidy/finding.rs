//! What every rule returns.

use std::fmt;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Relative to the checkout.
    pub file: String,
    /// Counted from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    /// A finding at a line, or with line 0 in the file as a whole.
    pub fn new(file: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}
