//! Golden scripts: tests as text files of commands and what they print.
//!
//! A test of a pure state machine reads best as the events it gets and the lines it answers. A script holds just that, so a
//! reviewer reads cases as text and adds one without writing Rust. The format:
//!
//! - A script is made of blocks; a blank line ends a block.
//! - A block is one or more command lines, then a line `---`, then what the commands print. A block that prints nothing
//!   has no `---`. Output has no blank lines.
//! - A line that begins with `#` is a comment.
//!
//! `TERRANE_REWRITE=1 cargo test` records what is printed now. Read the difference before you commit it.
//!
//! One claim per file, named for the claim. Print dense lines, one per state: the difference is the assertion.

#![allow(clippy::disallowed_methods, reason = "scripts are files of the source tree, and no node ever runs this crate")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Set to record what the scripts print now.
const REWRITE: &str = "TERRANE_REWRITE";

/// Plays every `.txt` file of `directory`, each on a fresh state of `start`, and compares what it prints with what is
/// recorded.
///
/// `start` makes a state: a closure that carries out one command line and writes what the command prints. It panics on a
/// command that it does not know, so a typing error fails the test.
///
/// # Panics
/// If the directory has no scripts, a script cannot be read, or one prints something else than what is recorded.
pub fn check_scripts<State>(directory: impl AsRef<Path>, start: impl Fn() -> State)
where
    State: FnMut(&str, &mut String),
{
    let directory = directory.as_ref();
    let scripts = scripts_of(directory);
    assert!(!scripts.is_empty(), "{} has no scripts", directory.display());
    let mut failures = String::new();
    for path in scripts {
        // Shown by the test runner if a command panics.
        println!("playing {}", path.display());
        let recorded = std::fs::read_to_string(&path).expect("a script is UTF-8 text");
        let played = play(&recorded, start());
        if std::env::var_os(REWRITE).is_some() {
            std::fs::write(&path, &played).expect("the source tree can be written to");
        } else if played != recorded {
            let line = first_difference(&recorded, &played);
            writeln!(failures, "{}: {line}", path.display()).expect("writing to a string");
        }
    }
    assert!(
        failures.is_empty(),
        "scripts print something else than what is recorded:\n{failures}{REWRITE}=1 records it"
    );
}

fn scripts_of(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("the directory can be listed").path());
    let mut scripts: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect();
    scripts.sort();
    scripts
}

/// The script with what its commands print now.
fn play(script: &str, mut command: impl FnMut(&str, &mut String)) -> String {
    let mut played = String::new();
    for block in script.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let commands = block.split("\n---").next().expect("a split has a first part").trim();
        let mut printed = String::new();
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            command(line, &mut printed);
        }
        let separator = if played.is_empty() { "" } else { "\n" };
        writeln!(played, "{separator}{commands}").expect("writing to a string");
        if !printed.is_empty() {
            write!(played, "---\n{printed}").expect("writing to a string");
        }
    }
    played
}

/// The first line on which two scripts differ, for people.
fn first_difference(recorded: &str, played: &str) -> String {
    let (mut ours, mut theirs) = (played.lines(), recorded.lines());
    for number in 1.. {
        match (theirs.next(), ours.next()) {
            (None, None) => break,
            (theirs, ours) if theirs == ours => {}
            (theirs, ours) => {
                let or_end = |line: Option<&str>| line.map_or("the end".to_owned(), |line| format!("`{line}`"));
                return format!("line {number} is {}, and recorded is {}", or_end(ours), or_end(theirs));
            }
        }
    }
    "they differ in line ends alone".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adder() -> impl FnMut(&str, &mut String) {
        let mut sum = 0;
        move |line, out| match line.split_once(' ') {
            Some(("add", number)) => sum += number.parse::<i64>().expect("a number"),
            None if line == "show" => writeln!(out, "sum={sum}").expect("writing to a string"),
            _ => panic!("no such command: {line}"),
        }
    }

    const SCRIPT: &str = "# Sums are kept over blocks.\nadd 1\n\nadd 2\nshow\n---\nsum=3\n";

    #[test]
    fn a_script_that_prints_what_is_recorded_is_unchanged() {
        assert_eq!(play(SCRIPT, adder()), SCRIPT);
    }

    #[test]
    fn output_that_is_wrong_or_missing_is_replaced() {
        assert_eq!(play(&SCRIPT.replace("sum=3", "sum=4"), adder()), SCRIPT);
        assert_eq!(play("# Sums are kept over blocks.\nadd 1\n\nadd 2\nshow\n", adder()), SCRIPT);
    }

    #[test]
    fn the_first_difference_is_named_by_its_line() {
        let difference = first_difference("a\nb\n", "a\nc\n");
        assert_eq!(difference, "line 2 is `c`, and recorded is `b`");
        assert_eq!(first_difference("a\nb\n", "a\n"), "line 2 is the end, and recorded is `b`");
    }

    #[test]
    #[should_panic(expected = "no such command: subtract 1")]
    fn an_unknown_command_fails() {
        play("subtract 1\n", adder());
    }
}
