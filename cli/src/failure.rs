//! Failed commands: the exit status, what failed, and what the user can do next.
//!
//! Every error in this binary becomes a [`Failure`] and is printed once, by `main`: what was attempted and the causes
//! on one line, advice on the next. The exit statuses are part of the grammar.

use std::error::Error as StdError;
use std::fmt;
use std::io::IsTerminal;

use terrane_client::Error as ClientError;

/// The exit status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success. A [`Failure`] has this status only if the reader of our output closed the pipe.
    Done,
    /// The operation failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The row is not there.
    NothingThere,
    /// A condition did not hold, so nothing was written.
    ConditionFailed,
    /// The user stopped the command (Ctrl-C), after it had said what was done.
    Interrupted,
    /// A script of the shell ended with `exit STATUS`.
    Asked(u8),
}

impl Exit {
    /// The number.
    pub fn status(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NothingThere => 3,
            Exit::ConditionFailed => 4,
            Exit::Interrupted => 130,
            Exit::Asked(status) => status,
        }
    }
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

    /// The command line is invalid in a way that the parser cannot see.
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, what: what.into(), advice: None }
    }

    /// The row is not there.
    pub fn not_found(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::NothingThere, what: what.into(), advice: None }
    }

    /// The condition of a write did not hold.
    pub fn condition_failed() -> Failure {
        Failure {
            exit: Exit::ConditionFailed,
            what: "the condition does not hold; nothing was written".to_owned(),
            advice: None,
        }
    }

    /// The user stopped the command, after it had said what was done.
    pub fn interrupted() -> Failure {
        Failure { exit: Exit::Interrupted, what: "interrupted".to_owned(), advice: None }
    }

    /// The exit status of failures that have been printed.
    pub fn printed(exit: Exit) -> Failure {
        Failure { exit, what: String::new(), advice: None }
    }

    /// Adds what the user can do. The first advice stays, since it is closest to the cause.
    pub fn advise(mut self, advice: impl Into<String>) -> Failure {
        self.advice.get_or_insert_with(|| advice.into());
        self
    }

    /// Says something in other words, such as a row by its key parts.
    pub fn reword(mut self, from: &str, to: &str) -> Failure {
        self.what = self.what.replace(from, to);
        self
    }

    /// With advice as a person in the shell types it.
    pub fn in_shell(mut self) -> Failure {
        self.advice = self.advice.map(|advice| advice.replace("`terrane ", "`"));
        self
    }

    /// Prefixes the message with what was attempted.
    pub fn during(mut self, attempt: impl fmt::Display) -> Failure {
        self.what = format!("{attempt}: {}", self.what);
        self
    }

    /// Standard output could not be written. A closed pipe (`| head`) is not an error.
    pub fn output(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure { exit: Exit::Done, what: String::new(), advice: None };
        }
        Failure::new(format!("cannot write to standard output: {error}"))
    }

    /// Prints the failure on standard error.
    pub fn print(&self) {
        let Some((what, next)) = self.said() else { return };
        let (red, bold, plain) = if has_colours() { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
        eprintln!("{red}error:{plain} {what}");
        if let Some(next) = next {
            eprintln!("  {bold}next:{plain} {next}");
        }
    }

    /// What is to be said on standard error, and what to do; `None`: nothing.
    pub fn said(&self) -> Option<(&str, Option<&str>)> {
        (self.exit != Exit::Done && !self.what.is_empty()).then_some((self.what.as_str(), self.advice.as_deref()))
    }
}

/// Whether standard error shows colours: it is a terminal that knows them, and `NO_COLOR` is not set.
pub fn has_colours() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The error and its causes on one line. A cause that its parent already quotes is not repeated.
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
        Failure { exit: Exit::Failed, what: chain(&error), advice: advice(&error) }
    }
}

impl From<terrane_types::Invalid> for Failure {
    fn from(invalid: terrane_types::Invalid) -> Failure {
        Failure::new(invalid.to_string())
    }
}

/// The masters that commands ask if none are named: where `terrane dev` has its first one. What to do about a master that does
/// not answer depends on whether one was named.
pub const MASTERS_DEFAULT: &str = "127.0.0.1:7600";

fn advice(error: &ClientError) -> Option<String> {
    let advice = match error {
        ClientError::Unreachable { masters, .. } if masters == MASTERS_DEFAULT => {
            "start a cluster with `terrane dev`, or name its masters with --masters or TERRANE_MASTERS"
        }
        ClientError::Unreachable { .. } => {
            "on each of these machines, see that the master runs (its log says why not) and that its port is open to this one; if \
             the masters are elsewhere, name them with --masters or TERRANE_MASTERS"
        }
        ClientError::NotAMaster { .. } => {
            "name the masters with --masters or TERRANE_MASTERS; a region server prints them when it starts"
        }
        ClientError::Timeout { uncertain: true, .. } | ClientError::Uncertain { .. } => {
            "it may or may not have been applied: read the row, or describe the table, before you repeat it"
        }
        ClientError::Timeout { .. } => "check `terrane status`; --timeout allows more time",
        ClientError::ResultLost => "the write was applied but its result is lost: read the row",
        ClientError::RetriesSpent { .. } => "reduce the load; check `terrane status`",
        ClientError::Unavailable { .. } => "retry in a moment; check `terrane status`",
        ClientError::Corruption { .. } => "do not retry; keep the file and check the server's log",
        ClientError::NotFound { what } if what.starts_with("table") => "`terrane table list` lists the tables",
        ClientError::NotFound { what } if what.starts_with("region") => "`terrane admin regions` lists the regions",
        ClientError::Disabled { .. } => "`terrane table enable` enables it again",
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Adds what was attempted to an error.
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
    fn a_missing_table_is_a_failure_with_advice() {
        let failure = Failure::from(ClientError::NotFound { what: "table t".to_owned() }).during("scan t");
        assert_eq!(failure.exit, Exit::Failed);
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
    fn a_closed_pipe_is_not_an_error() {
        assert_eq!(Failure::output(std::io::ErrorKind::BrokenPipe.into()).exit, Exit::Done);
        assert_eq!(Failure::output(std::io::ErrorKind::StorageFull.into()).exit, Exit::Failed);
    }
}
