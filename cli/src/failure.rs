//! Why a command ends badly: its exit status, what failed, and what the user can do next.
//!
//! Everything that fails in this binary becomes a [`Failure`] and is printed once, by `main`: what was attempted, the
//! causes in one sentence, and advice on a line of its own. The exit statuses are part of the grammar.

use std::error::Error as StdError;
use std::fmt;

use terrane_client::Error as ClientError;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done. A failure has it only when the reader of our output went away, which is its right.
    Done = 0,
    /// The operation failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The row, table or region is not there, or a condition did not hold.
    NothingThere = 3,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    what: String,
    advice: Option<String>,
}

impl Failure {
    /// An operation failed.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::Failed, what: what.into(), advice: None }
    }

    /// The command line is wrong in a way that only shows when its parts are looked at together.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, what: what.into(), advice: None }
    }

    /// What was asked for is not there.
    pub fn nothing_there(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::NothingThere, what: what.into(), advice: None }
    }

    /// Adds what the user can do; the first advice stays, as it is the nearest to the cause.
    pub fn advise(mut self, advice: impl Into<String>) -> Failure {
        self.advice.get_or_insert_with(|| advice.into());
        self
    }

    /// Says first what was attempted.
    pub fn during(mut self, attempt: impl fmt::Display) -> Failure {
        self.what = format!("{attempt}: {}", self.what);
        self
    }

    /// Standard output could not be written. That its reader went away (`| head`) is no failure.
    pub fn output(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure { exit: Exit::Done, what: String::new(), advice: None };
        }
        Failure::new(format!("cannot write to standard output: {error}"))
    }

    /// Prints it for people, on standard error.
    pub fn print(&self) {
        if self.exit == Exit::Done {
            return;
        }
        eprintln!("error: {}", self.what);
        if let Some(advice) = &self.advice {
            eprintln!("  next: {advice}");
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The error and its causes as one sentence. A cause that its parent already quotes is not repeated.
pub fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let exit = if error.is_not_found() { Exit::NothingThere } else { Exit::Failed };
        Failure { exit, what: chain(&error), advice: advice(&error) }
    }
}

impl From<terrane_types::Invalid> for Failure {
    fn from(invalid: terrane_types::Invalid) -> Failure {
        Failure::new(invalid.to_string())
    }
}

fn advice(error: &ClientError) -> Option<String> {
    let advice = match error {
        ClientError::Unreachable { .. } => {
            "start a cluster with `terrane dev`, or say where its masters are with --masters or TERRANE_MASTERS"
        }
        ClientError::Timeout { uncertain: true, .. } => "read what is there before writing again",
        ClientError::Timeout { .. } => "`terrane status` shows what is wrong; --timeout gives it more time",
        ClientError::Uncertain { .. } => "read what is there before writing again",
        ClientError::ResultLost => "read the row",
        ClientError::RetriesSpent { .. } => "send less at once; `terrane status` shows what is wrong",
        ClientError::Unavailable { .. } => "try again in a moment; `terrane status` shows what is wrong",
        ClientError::Corruption { .. } => "do not retry; keep the file and look at the server's log",
        ClientError::NotFound { what } if what.starts_with("table") => "`terrane table list` shows the tables",
        ClientError::NotFound { what } if what.starts_with("region") => "`terrane admin regions` shows the regions",
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Adds what was attempted to any failure.
pub trait During<T> {
    /// See [`Failure::during`].
    fn during(self, attempt: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> During<T> for Result<T, E> {
    fn during(self, attempt: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| error.into().during(attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_status_three_with_advice() {
        let failure = Failure::from(ClientError::NotFound { what: "table t".to_owned() }).during("scan t");
        assert_eq!(failure.exit, Exit::NothingThere);
        assert_eq!(failure.to_string(), "scan t: table t does not exist");
        assert!(failure.advice.expect("advice").contains("table list"));
    }

    #[test]
    fn causes_follow_their_errors_once() {
        let last =
            ClientError::Unavailable { message: "the server is busy".to_owned(), retry_after: Default::default() };
        let after = std::time::Duration::from_secs(1);
        let failure = Failure::from(ClientError::Timeout { after, uncertain: false, last: Some(Box::new(last)) });
        assert_eq!(failure.to_string(), "no success within 1000 ms: the server is busy");
        assert_eq!(failure.exit, Exit::Failed);
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        assert_eq!(Failure::output(std::io::ErrorKind::BrokenPipe.into()).exit, Exit::Done);
        assert_eq!(Failure::output(std::io::ErrorKind::StorageFull.into()).exit, Exit::Failed);
    }
}
