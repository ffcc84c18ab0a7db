//! What the golden scripts of this crate have in common: command lines of words and `key=value` pairs.

use std::str::FromStr;
use std::time::Duration;

/// Plays the scripts in `testdata/` beside the module at `module` (`lease`, `log/index`).
pub(crate) fn check<State>(module: &str, start: impl Fn() -> State)
where
    State: FnMut(&str, &mut String),
{
    let directory = format!("{}/src/{module}/testdata", env!("CARGO_MANIFEST_DIR"));
    terrane_testscript::check_scripts(directory, start);
}

/// One command line.
pub(crate) struct Line<'a> {
    words: Vec<&'a str>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(line: &'a str) -> Line<'a> {
        Line { words: line.split_whitespace().collect() }
    }

    /// The first word.
    pub(crate) fn command(&self) -> &'a str {
        self.words[0]
    }

    /// The words after the first that are not pairs.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.words[1..].iter().copied().filter(|word| !word.contains('='))
    }

    /// The word at `at` after the first.
    pub(crate) fn word<T: FromStr>(&self, at: usize) -> T {
        parsed(self.words().nth(at).unwrap_or_else(|| panic!("{:?} lacks word {at}", self.words)))
    }

    /// The value of `key=value`, if given.
    pub(crate) fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        let pair = |word: &&'a str| word.split_once('=').filter(|(name, _)| *name == key);
        self.words.iter().find_map(pair).map(|(_, value)| parsed(value))
    }

    /// The same, which must be given.
    pub(crate) fn need<T: FromStr>(&self, key: &str) -> T {
        self.get(key).unwrap_or_else(|| panic!("{:?} lacks {key}=", self.words))
    }

    /// Whether the line has this word.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words[1..].contains(&word)
    }

    /// A pair of milliseconds, as a duration.
    pub(crate) fn ms(&self, key: &str) -> Option<Duration> {
        self.get(key).map(Duration::from_millis)
    }
}

fn parsed<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not what the command needs"))
}

/// Text for an optional value: `-` when there is none.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
