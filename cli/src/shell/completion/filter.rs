//! What comes next inside a filter or a condition.
//!
//! The text is read only as far as the place of the next word needs it: whether a test begins, a subject stands there, or a value
//! was given. In a value there is nothing to offer.

use super::super::names::KnownTable;
use super::columns;

/// Tests, and types of subjects, as they are typed.
const TESTS: [&str; 27] = [
    "absent(",
    "any(",
    "bits(",
    "bytes(",
    "columns(",
    "contains(",
    "exists(",
    "f64(",
    "first_key_only()",
    "fuzzy(",
    "i32(",
    "i64(",
    "icontains(",
    "keys_only()",
    "key(",
    "matches(",
    "page(",
    "prefix(",
    "qualifiers(",
    "random(",
    "rows(",
    "skip(",
    "text(",
    "timestamps(",
    "u32(",
    "u64(",
    "while(",
];
/// Subjects besides columns and parts of the key.
const SUBJECTS: [&str; 4] = ["family", "qualifier", "row", "value"];
/// What compares a subject, besides signs.
const COMPARISONS: [&str; 8] = ["between", "ilike", "in (", "is not null", "is null", "like", "not in (", "not like"];

/// The place where the next word begins in the text of a filter, and what it can be.
pub fn candidates(text: &str, table: Option<&KnownTable>) -> (usize, Vec<String>) {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    if text.matches('\'').count() % 2 == 1 {
        return (text.len(), Vec::new());
    }
    let start =
        text.rfind(|c: char| !c.is_alphanumeric() && !"_-.:".contains(c)).map_or(0, |at| at + last_char(text, at));
    let before = text[..start].trim_end();
    let columns = || table.map(columns).unwrap_or_default();
    let tested = || {
        let mut all = columns();
        all.extend(names(&SUBJECTS));
        all
    };
    if before.ends_with("key(") {
        let parts = table.map(|table| table.parts.iter().map(|part| format!("{part})")).collect());
        return (start, parts.unwrap_or_default());
    }
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let offered = match before.chars().next_back() {
        // A list of values follows `in`, and nothing is known of values.
        Some('(') if before.trim_end_matches('(').trim_end().ends_with(" in") => Vec::new(),
        Some('(') if before.ends_with("exists(") || before.ends_with("absent(") => columns(),
        Some('(') if TESTS.iter().any(|test| before.ends_with(test) && !["any(", "skip(", "while("].contains(test)) => {
            tested()
        }
        None | Some('(') => beginning(table),
        Some(_) if ["and", "or", "not"].contains(&word) && !follows_subject(before, word) => beginning(table),
        Some(')') => [names(&["and", "or"]), names(&COMPARISONS)].concat(),
        Some('\'') => names(&["and", "or"]),
        Some('=' | '<' | '>' | ',') => Vec::new(),
        Some(_) if ["like", "ilike", "between"].contains(&word) => Vec::new(),
        Some(_) if word == "not" => names(&["between", "in (", "like"]),
        Some(_) if word == "is" => names(&["not null", "null"]),
        Some(_) if word.contains(':') || SUBJECTS.contains(&word) => names(&COMPARISONS),
        Some(_) => names(&["and", "or"]),
    };
    (start, offered)
}

fn last_char(text: &str, at: usize) -> usize {
    text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Whether `not` stands behind a subject, as in `row not in`.
fn follows_subject(before: &str, word: &str) -> bool {
    let earlier = before[..before.len() - word.len()].trim_end();
    let last = earlier.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    word == "not" && (last.contains(':') || last.ends_with(')') || SUBJECTS.contains(&last))
}

/// What a test begins with.
fn beginning(table: Option<&KnownTable>) -> Vec<String> {
    let mut all: Vec<String> = table.map(columns).unwrap_or_default();
    all.extend(table.into_iter().flat_map(|table| table.parts.iter().map(|part| format!("key({part})"))));
    all.extend(TESTS.iter().chain(&SUBJECTS).map(|name| (*name).to_owned()));
    all.push("not".to_owned());
    all
}
