//! The form of log lines, and which one a command line asks for.
//!
//! A process must know it before it reads its command line, since it says in that form what is wrong there. So the flag, the
//! variable and the file are looked at here by themselves, without judging anything: a value that is none is refused later, as
//! text.

use std::ffi::OsString;
use std::path::Path;

use crate::config::file::log_format_in;
use crate::config::list::{Role, variable};

const KEY: &str = "log-format";

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

impl std::fmt::Display for LogFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("{text:?} is not a format of the log; write text or json")),
        }
    }
}

/// The form that a command line asks for, the program's name first, by its flag, the environment or the file that it names.
/// Commands other than the roles have text.
pub fn chosen(words: &[OsString]) -> LogFormat {
    chosen_by(words, std::env::var(variable(KEY)).ok(), read)
}

#[expect(clippy::disallowed_methods, reason = "this is before there is a runtime, and the file is small")]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn chosen_by(words: &[OsString], environment: Option<String>, read: impl Fn(&Path) -> Option<String>) -> LogFormat {
    let first = words.get(1).map(|word| word.to_string_lossy().into_owned());
    let Some(role) = Role::ALL.into_iter().find(|role| first.as_deref() == Some(role.name())) else {
        return LogFormat::Text;
    };
    let in_file = || flag(words, "config").and_then(|path| log_format_in(&read(Path::new(&path))?, role));
    let text = flag(words, KEY).or(environment).or_else(in_file);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The value of a flag, in either way of writing it.
fn flag(words: &[OsString], name: &str) -> Option<String> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    words.iter().enumerate().find_map(|(at, word)| {
        let word = text(word);
        let rest = word.strip_prefix("--")?.strip_prefix(name)?;
        if rest.is_empty() { words.get(at + 1).map(text) } else { rest.strip_prefix('=').map(str::to_owned) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_it_is_shown() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("xml".parse::<LogFormat>().unwrap_err().contains("write text or json"));
    }

    #[test]
    fn the_form_is_known_before_the_command_line_is_read() {
        let chosen = |line: &str, environment: Option<&str>, file: &str| {
            let words: Vec<OsString> = std::iter::once("terrane").chain(line.split(' ')).map(Into::into).collect();
            chosen_by(&words, environment.map(str::to_owned), |path| {
                (path == Path::new("t.toml")).then(|| file.to_owned())
            })
        };
        use LogFormat::{Json, Text};
        assert_eq!(chosen("server --log-format json --bogus", None, ""), Json);
        assert_eq!(chosen("master --bogus --log-format=json", None, ""), Json);
        assert_eq!(chosen("server --log-format text", Some("json"), ""), Text, "a flag outranks the environment");
        assert_eq!(chosen("dev", Some("json"), ""), Json);
        assert_eq!(chosen("get t r", Some("json"), ""), Text, "only roles have the setting");
        assert_eq!(chosen("server --log-format xml", None, ""), Text);
        assert_eq!(chosen("server --log-format", None, ""), Text);
        let file = "[master]\nlog-format = 'text'\n[server]\nlog-format = 'json'\nzone = a\n";
        assert_eq!(chosen("server --config t.toml", None, file), Json, "in a file with a mistake, too");
        assert_eq!(chosen("server --config=t.toml", None, file), Json);
        assert_eq!(chosen("master --config t.toml", None, file), Text);
        assert_eq!(chosen("server --config other.toml", None, file), Text);
    }
}
