//! Keeps flags that take several values from swallowing the table's name.
//!
//! `--family`, `--column` and their like accept several values after one flag, so in `table create --family f t` the
//! parser takes `t` for a second family and then misses the name. If a command line cannot be read, the last of several
//! values of such a flag is moved to the place of the first positional argument, and the line is read once more. A line
//! that can be read as it is written keeps its meaning.

use std::ffi::OsString;

use clap::{Command, CommandFactory, Parser};

use super::Cli;

/// Reads a command line, the program's name first.
pub fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let error = match Cli::try_parse_from(&words) {
        Ok(cli) => return Ok(cli),
        Err(error) if !error.use_stderr() => return Err(error),
        Err(error) => error,
    };
    moved(&Cli::command(), &words).into_iter().find_map(|words| Cli::try_parse_from(words).ok()).ok_or(error)
}

/// The line with the last value of each list moved to the front, one line per list.
fn moved(command: &Command, words: &[OsString]) -> Vec<Vec<OsString>> {
    let (mut command, mut begin) = (command, 1);
    while let Some(found) = words.get(begin).and_then(|word| command.find_subcommand(word)) {
        (command, begin) = (found, begin + 1);
    }
    let is_flag = |word: &OsString| word.to_string_lossy().starts_with("--");
    let is_list = |word: &OsString| {
        let text = word.to_string_lossy();
        let named =
            text.strip_prefix("--").and_then(|name| command.get_arguments().find(|arg| arg.get_long() == Some(name)));
        named.and_then(clap::Arg::get_num_args).is_some_and(|count| count.max_values() > 1)
    };
    let mut lines = Vec::new();
    for at in begin..words.len() {
        if !is_list(&words[at]) {
            continue;
        }
        let values = words[at + 1..].iter().take_while(|word| !is_flag(word)).count();
        if values > 1 {
            let mut line = words.to_vec();
            let name = line.remove(at + values);
            line.insert(begin, name);
            lines.push(line);
        }
    }
    lines
}
