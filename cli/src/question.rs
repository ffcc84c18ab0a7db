//! Questions to a person before something is lost or hard to undo.
//!
//! Only a person at a terminal is asked. What a command does without one is the command's decision, since scripts rely on
//! it.

use std::io::{BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Whether a person can be asked: both input and output are a terminal.
pub fn asks() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks, and returns the line that the person types, without blanks around it.
pub fn ask(question: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot ask: {error}"));
    print!("{question} ");
    std::io::stdout().flush().map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim().to_owned())
}

/// Whether a loss is confirmed: by `--yes`, by the person who types the name, or because no person can be asked.
pub fn confirms_loss(yes: bool, json: bool, what: &str, name: &str) -> Result<bool, Failure> {
    if yes || json || !asks() {
        return Ok(true);
    }
    Ok(ask(&format!("{what} Type {name} to confirm:"))? == name)
}
