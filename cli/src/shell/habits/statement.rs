//! Which lines are SQL, and which table they are about.

use super::tokens::{Token, tokens};

/// Verbs that only SQL has.
const VERBS: [&str; 10] = ["select", "show", "insert", "upsert", "replace", "update", "use", "explain", "\\d", "ls"];
/// Verbs that we or HBase's shell have, too, with the word that makes them SQL.
const SECOND: [(&str, &[&str]); 7] = [
    ("create", &["table", "database", "schema", "namespace"]),
    ("drop", &["table", "database", "schema", "namespace"]),
    ("alter", &["table"]),
    ("truncate", &["table"]),
    ("describe", &["table"]),
    ("desc", &["table"]),
    ("list", &["tables", "databases", "namespaces"]),
];

/// Whether the line is SQL.
pub fn is_sql(line: &str) -> bool {
    let words: Vec<String> = line.split_whitespace().take(4).map(str::to_lowercase).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => false,
        // `delete from t` is ours: row t of the table `from`.
        ["delete", "from", _, "where"] => true,
        [first, ..] if first.starts_with('\\') || VERBS.contains(&first) => true,
        [first, second, ..] => {
            let second = second.trim_end_matches(['(', ';']);
            // A name follows: `create 'table', 'f'` has quotes, and `drop table` alone drops the table `table`.
            words.len() > 2 - usize::from(first == "list")
                && SECOND.iter().any(|(verb, words)| *verb == first && words.contains(&second))
        }
        [_] => false,
    }
}

/// The table that a statement is about.
pub fn table_of(line: &str) -> Option<String> {
    let tokens = tokens(line)?;
    let at = tokens.iter().position(|token| ["from", "into", "update", "table"].iter().any(|word| token.is(word)))?;
    let mut rest = tokens[at + 1..].iter();
    let name = rest.find(|token| !["if", "not", "exists", "table", "only"].iter().any(|word| token.is(word)))?;
    name.name().map(table_name)
}

/// A table as it is named here: without the schema `public`, which others have by default.
pub fn table_name(name: &str) -> String {
    name.strip_prefix("public.").unwrap_or(name).to_owned()
}

/// Whether the token begins another clause of a query.
pub fn ends_clause(token: &Token) -> bool {
    ["where", "order", "group", "having", "limit", "offset", "fetch", "union", "join"].iter().any(|word| token.is(word))
        || token.is_sign(";")
}
