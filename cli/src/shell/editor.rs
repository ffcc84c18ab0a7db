//! The shell at a terminal: line editing, history and completion by rustyline.

use std::path::PathBuf;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use terrane_env::task;

use super::completion::{Completion, complete};
use super::names::Names;
use super::{LineOutcome, Session};
use crate::failure::Failure;

const PROMPT: &str = "terrane> ";
/// Lines that are remembered.
const HISTORY_LINES: usize = 10_000;
/// The environment variable that names the file of the history; empty: none is kept.
const HISTORY_VARIABLE: &str = "TERRANE_HISTORY";
const HISTORY_FILE: &str = ".terrane_history";

/// Reads and runs lines until Ctrl-D or `exit`. A failed line does not fail the session.
pub async fn run(session: &mut Session) -> Result<(), Failure> {
    let failed = |error: ReadlineError| Failure::new(format!("the terminal cannot be used: {error}"));
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)
        .and_then(|config| config.history_ignore_dups(true))
        .map_err(failed)?
        .completion_type(CompletionType::List)
        .build();
    let mut editor: Editor<ShellHelper, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(ShellHelper { names: session.names.clone() }));
    let history = history_file();
    if let Some(file) = &history {
        // The first session has no history yet; one that cannot be read is no reason not to start.
        editor.load_history(file).ok();
    }
    eprintln!(
        "Terrane shell on {}: `help` lists the commands, Tab completes, Ctrl-D ends.",
        session.connection.masters
    );
    // In the background, so that neither the prompt nor the first completion waits for it.
    session.names.refresh();
    let mut ended = Ok(());
    loop {
        let mut reading = editor;
        let read = task::run_blocking(move || {
            let line = reading.readline(PROMPT);
            (reading, line)
        });
        // Ctrl-C is a key to the editor; a signal comes from outside and ends the session.
        let (returned, line) = tokio::select! {
            biased;
            () = task::shutdown_signal() => return Ok(()),
            read = read => read,
        };
        editor = returned;
        let line = match line {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        if !line.trim().is_empty() {
            editor.add_history_entry(line.as_str()).map_err(failed)?;
        }
        match session.line(&line).await {
            Ok(LineOutcome::Continue) => {}
            Ok(LineOutcome::Exit(status)) => {
                ended = status.map_or(Ok(()), |status| session.ended(Some(status)));
                break;
            }
            Err(failure) => failure.in_shell().print(),
        }
    }
    if let Some(file) = &history
        && let Err(error) = editor.append_history(file)
    {
        eprintln!("the history is not kept in {}: {error}", file.display());
    }
    ended
}

fn history_file() -> Option<PathBuf> {
    match std::env::var_os(HISTORY_VARIABLE) {
        Some(file) if file.is_empty() => None,
        Some(file) => Some(PathBuf::from(file)),
        None => Some(PathBuf::from(std::env::var_os("HOME")?).join(HISTORY_FILE)),
    }
}

struct ShellHelper {
    names: Names,
}

impl Helper for ShellHelper {}
impl Highlighter for ShellHelper {}

impl Hinter for ShellHelper {
    type Hint = String;
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, cursor: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Completion { start, candidates } = complete(&line[..cursor], &self.names.tables());
        let pair = |name: String| Pair { display: name.clone(), replacement: finished(name) };
        Ok((start, candidates.into_iter().map(pair).collect()))
    }
}

/// A word that is complete is followed by a blank; one that goes on is not.
fn finished(name: String) -> String {
    if name.ends_with([':', '=', ' ', '(', '.']) { name } else { name + " " }
}

impl Validator for ShellHelper {
    /// A line with an open bracket goes on in the next one.
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_open(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

/// Whether a `{` or `[` outside of quotes has no end yet. An open quote is a typo more often than a line that goes on, so it is
/// an error at once.
fn is_open(line: &str) -> bool {
    let (mut depth, mut open) = (0_i32, None);
    for c in line.chars() {
        match open {
            Some(quote) if c == quote => open = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => open = Some(c),
            None if "{[".contains(c) => depth += 1,
            None if "}]".contains(c) => depth -= 1,
            None => {}
        }
    }
    open.is_none() && depth > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_on_while_a_bracket_is_open() {
        assert!(is_open("scan 't', {LIMIT => 5,"));
        assert!(!is_open("scan 't', {LIMIT => 5}"));
        assert!(!is_open("put t r f:q '{'"));
        assert!(!is_open("put t r f:q 'x"), "an open quote is refused at once");
    }

    #[test]
    fn a_completed_word_is_followed_by_a_blank() {
        assert_eq!(
            ["scan", "f:", "user=", "LIMIT => "].map(|name| finished(name.to_owned())),
            ["scan ", "f:", "user=", "LIMIT => "]
        );
    }
}
