//! What is wrong with the settings of a process: all of it, since the next one should not be found by
//! another start.

use std::fmt;

use super::file;
use crate::failure::Failure;

/// A mistake in a setting, or in several together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Of the file, counted from 1; `None` if the file does not say it.
    pub line: Option<usize>,
    /// The setting and what is wrong.
    pub message: String,
    /// What to do, if more than that can be said.
    pub advice: Option<String>,
}

impl Mistake {
    /// The message and the advice on one line.
    pub fn with_advice(&self) -> String {
        let advice = self.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
        format!("{}{advice}", self.message)
    }
}

impl From<file::Mistake> for Mistake {
    fn from(file::Mistake { line, message }: file::Mistake) -> Mistake {
        Mistake { line: Some(line), message, advice: None }
    }
}

/// All mistakes in the settings of a process, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The file's name; empty without one.
    pub file: String,
    pub list: Vec<Mistake>,
}

impl Mistakes {
    fn place(&self, mistake: &Mistake) -> String {
        mistake.line.map(|line| format!("{}:{line}: ", self.file)).unwrap_or_default()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.list.as_slice() {
            return write!(f, "{}{}", self.place(only), only.message);
        }
        write!(f, "{} mistakes in the settings:", self.list.len())?;
        self.list.iter().try_for_each(|each| write!(f, "\n  {}{}", self.place(each), each.with_advice()))
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Failure {
        let failure = Failure::usage(mistakes.to_string());
        match mistakes.list.as_slice() {
            [Mistake { advice: Some(advice), .. }] => failure.advise(advice.clone()),
            _ => failure.advise(
                "docs/configuration.md and `terrane config list` have every setting, with its type and default",
            ),
        }
    }
}
