//! What Tab offers: pure, from the text before the cursor and the names that are known.
//!
//! In a line of ours the grammar itself says what comes next: subcommands, flags and their values, and by the name of a
//! positional argument tables, columns or key parts. In a line of HBase's, quotes and commas say it: the first string is a
//! table, later strings are columns, and words outside of strings are constants.

mod filter;

use std::sync::LazyLock;

use clap::{Arg, Command, CommandFactory};
use terrane_types::{ValueType, attribute_values, family_attributes, table_attributes};

use super::names::KnownTable;
use super::{OUTSIDE, OWN, hbase};
use crate::args::Cli;

/// The grammar. Building it takes longer than a completion may.
static GRAMMAR: LazyLock<Command> = LazyLock::new(|| {
    let mut root = Cli::command();
    root.build();
    root
});

/// What can complete the text before the cursor: where it starts, and the candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    pub start: usize,
    pub candidates: Vec<String>,
}

/// Completes the text before the cursor.
pub fn complete(text: &str, tables: &[KnownTable]) -> Completion {
    let (start, candidates) = candidates(text, tables);
    let partial = &text[start..];
    let mut candidates: Vec<String> = candidates.into_iter().filter(|name| name.starts_with(partial)).collect();
    candidates.sort();
    candidates.dedup();
    Completion { start, candidates }
}

fn candidates(text: &str, tables: &[KnownTable]) -> (usize, Vec<String>) {
    let lead = text.len() - text.trim_start().len();
    let Some(blank) = text[lead..].find([' ', '\t', '(']).map(|at| lead + at) else { return (lead, verbs()) };
    let verb = &text[lead..blank];
    let is_hbase = hbase::VERBS.iter().any(|(known, _)| *known == verb)
        && (GRAMMAR.find_subcommand(verb).is_none()
            || text[blank..].contains(['\'', '"']) && !text[blank..].contains(" --"));
    if is_hbase && text[blank..].trim_start_matches([' ', '(']).starts_with(['\'', '"']) {
        return in_hbase(&text[blank..], blank, tables);
    }
    if is_hbase && GRAMMAR.find_subcommand(verb).is_none() {
        // Nothing is quoted yet: offer the quoted table.
        let start = text.len() - text[blank + 1..].trim_start().len();
        return (start, tables.iter().map(|table| format!("'{}'", table.name)).collect());
    }
    in_ours(text, tables)
}

fn verbs() -> Vec<String> {
    let ours = GRAMMAR.get_subcommands().map(Command::get_name).filter(|name| !OUTSIDE.contains(name));
    let theirs = hbase::VERBS.iter().map(|(verb, _)| *verb);
    ours.chain(theirs).chain(OWN.iter().map(|(name, _)| *name)).map(str::to_owned).collect()
}

/// Completes in a line of HBase's; `offset` is where its arguments begin.
fn in_hbase(arguments: &str, offset: usize, tables: &[KnownTable]) -> (usize, Vec<String>) {
    let (mut open, mut strings, mut begin, mut first) = (None, 0, 0, "");
    for (at, c) in arguments.char_indices() {
        match open {
            Some(quote) if c == quote => {
                if strings == 1 {
                    first = &arguments[begin..at];
                }
                open = None;
                begin = at + 1;
            }
            Some(_) => {}
            None if c == '\'' || c == '"' => {
                open = Some(c);
                strings += 1;
                begin = at + 1;
            }
            None if !c.is_ascii_alphanumeric() && c != '_' => begin = at + 1,
            None => {}
        }
    }
    let start = offset + begin;
    match (open, strings) {
        (Some(_), 1) => (start, tables.iter().map(|table| table.name.clone()).collect()),
        (Some(_), _) => (start, tables.iter().find(|table| table.name == first).map(columns).unwrap_or_default()),
        (None, 0) => (start, Vec::new()),
        (None, _) => (start, hbase::CONSTANTS.iter().map(|constant| format!("{constant} => ")).collect()),
    }
}

/// A table's families with a colon, and its columns with a declared type.
fn columns(table: &KnownTable) -> Vec<String> {
    table.families.iter().map(|family| format!("{family}:")).chain(table.columns.iter().cloned()).collect()
}

/// Where a word begins that has a quote, which is not closed yet: behind the quote.
fn open_quote(text: &str) -> Option<usize> {
    let mut open: Option<(char, usize)> = None;
    let mut is_inside = false;
    for (at, c) in text.char_indices() {
        match open {
            Some((quote, _)) if c == quote => open = None,
            Some(_) => {}
            None if !is_inside && (c == '\'' || c == '"') => open = Some((c, at + 1)),
            None => {}
        }
        is_inside = open.is_none() && !c.is_whitespace();
    }
    open.map(|(_, at)| at)
}

fn in_ours(text: &str, tables: &[KnownTable]) -> (usize, Vec<String>) {
    let start = open_quote(text).or_else(|| text.rfind([' ', '\t']).map(|at| at + 1)).unwrap_or(0);
    let is_quoted = text[..start].ends_with(['\'', '"']);
    let head = if is_quoted { &text[..start - 1] } else { &text[..start] };
    let words: Vec<&str> = head.split_whitespace().collect();
    match words[..] {
        ["format"] => return (start, vec!["table".to_owned(), "row".to_owned(), "json".to_owned()]),
        ["time"] => return (start, ["auto", "date", "raw"].map(str::to_owned).to_vec()),
        ["timing"] => return (start, vec!["on".to_owned(), "off".to_owned()]),
        ["help"] => return (start, verbs()),
        _ => {}
    }
    let (mut command, mut depth) = (&*GRAMMAR, 0);
    while let Some(found) = words.get(depth).and_then(|word| command.find_subcommand(word)) {
        (command, depth) = (found, depth + 1);
    }
    if command.has_subcommands() {
        let names = command.get_subcommands().map(|command| command.get_name().to_owned());
        return (start, names.filter(|name| depth > 0 || !OUTSIDE.contains(&name.as_str())).collect());
    }
    let partial = &text[start..];
    let (places, pending) = places(command, &words[depth..]);
    let table = tables.iter().find(|table| places.first() == Some(&table.name.as_str()));
    if let Some(argument) = pending {
        return values(argument, partial, start, tables, table);
    }
    if partial.starts_with('-') {
        let flags = command.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(Arg::get_long);
        return (start, flags.map(|name| format!("--{name}")).collect());
    }
    let positionals: Vec<&Arg> = command.get_positionals().collect();
    match positionals.get(places.len()).or(positionals.last()) {
        Some(argument) => values(argument, partial, start, tables, table),
        None => (start, Vec::new()),
    }
}

/// The positional words so far, and the flag that waits for a value.
fn places<'w, 'c>(command: &'c Command, words: &[&'w str]) -> (Vec<&'w str>, Option<&'c Arg>) {
    let (mut places, mut pending) = (Vec::new(), None);
    for word in words {
        let flag = word.strip_prefix("--").filter(|name| !name.is_empty());
        if let Some(name) = flag {
            let found = command.get_arguments().find(|argument| argument.get_long() == Some(name));
            pending = found.filter(|argument| argument.get_action().takes_values());
        } else if pending.take().is_none() {
            places.push(*word);
        }
    }
    (places, pending)
}

/// The values of an argument, by its declared values or its name.
fn values(
    argument: &Arg,
    partial: &str,
    start: usize,
    tables: &[KnownTable],
    table: Option<&KnownTable>,
) -> (usize, Vec<String>) {
    let declared = argument.get_possible_values();
    if !declared.is_empty() && argument.get_id() != "set" {
        return (start, declared.iter().map(|value| value.get_name().to_owned()).collect());
    }
    let names = || table.map(columns).unwrap_or_default();
    match argument.get_id().as_str() {
        "filter" | "condition" => {
            let (at, words) = filter::candidates(partial, table);
            (start + at, words)
        }
        "set" => attributes(partial, start, table_attributes()),
        "family" | "add_family" if partial.contains(':') => {
            let begin = partial.rfind([':', ',']).map_or(0, |at| at + 1);
            attributes(&partial[begin..], start + begin, family_attributes())
        }
        "column" if partial.contains('=') => {
            let begin = partial.rfind('=').map_or(0, |at| at + 1);
            (start + begin, ValueType::ALL.iter().map(|kind| kind.name().to_owned()).collect())
        }
        "table" | "name" => (start, tables.iter().map(|table| table.name.clone()).collect()),
        "column" | "columns" => {
            let start = start + partial.rfind([',', '(']).map_or(0, |at| at + 1);
            (start, names())
        }
        "family" | "drop_family" => (start, table.map(|table| table.families.clone()).unwrap_or_default()),
        "row" | "prefix" | "start" | "stop" => parts(partial, start, table),
        _ => (start, Vec::new()),
    }
}

/// An attribute's name with its sign, or its values behind it.
fn attributes(partial: &str, start: usize, names: impl Iterator<Item = &'static str>) -> (usize, Vec<String>) {
    match partial.split_once('=') {
        Some((name, _)) => {
            let values = attribute_values(name).iter().map(|value| (*value).to_owned());
            (start + name.len() + 1, values.collect())
        }
        None => {
            let names = names.map(|name| if name.ends_with('.') { name.to_owned() } else { format!("{name}=") });
            (start, names.collect())
        }
    }
}

/// The next part of a key, `user=` and then `time=`.
fn parts(partial: &str, start: usize, table: Option<&KnownTable>) -> (usize, Vec<String>) {
    let given = partial.matches(',').count();
    let start = start + partial.rfind(',').map_or(0, |at| at + 1);
    let next = table.and_then(|table| table.parts.get(given));
    (start, next.map(|part| format!("{part}=")).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<KnownTable> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        vec![
            KnownTable {
                name: "actions".to_owned(),
                families: names(&["d", "meta"]),
                columns: names(&["d:count"]),
                parts: names(&["user", "time"]),
            },
            KnownTable { name: "web".to_owned(), families: names(&["anchor"]), ..KnownTable::default() },
        ]
    }

    fn offered(text: &str) -> Vec<String> {
        complete(text, &known()).candidates
    }

    #[test]
    fn commands_flags_and_declared_values_come_from_the_grammar() {
        assert_eq!(offered("sc"), ["scan"]);
        assert_eq!(offered("is_"), ["is_disabled", "is_enabled"]);
        assert_eq!(offered("table tr"), ["truncate"]);
        assert_eq!(offered("scan actions --rev"), ["--reverse"]);
        assert_eq!(offered("scan actions --consistency str"), ["strict"]);
        assert_eq!(offered("format r"), ["row"]);
        assert_eq!(offered("time "), ["auto", "date", "raw"]);
        assert_eq!(offered("scan actions --time r"), ["raw"]);
        assert_eq!(offered("mast"), Vec::<String>::new(), "roles do not run in the shell");
    }

    #[test]
    fn tables_columns_and_key_parts_come_from_the_cluster() {
        assert_eq!(offered("scan "), ["actions", "web"]);
        assert_eq!(offered("table describe w"), ["web"]);
        assert_eq!(offered("get actions u"), ["user="]);
        assert_eq!(offered("put actions user=7,"), ["time="]);
        assert_eq!(complete("put actions user=7,t", &known()).start, "put actions user=7,".len());
        assert_eq!(offered("scan actions --prefix us"), ["user="]);
        assert_eq!(offered("put actions user=7,time=1 "), ["d:", "d:count", "meta:"]);
        assert_eq!(offered("scan actions --column d:count,m"), ["meta:"]);
        assert_eq!(offered("table alter web --drop-family a"), ["anchor"]);
        assert_eq!(offered("scan none --column "), Vec::<String>::new());
    }

    #[test]
    fn attributes_and_their_values_follow_their_flags() {
        assert_eq!(offered("table alter web --set str"), ["strict_reads="]);
        assert_eq!(offered("table alter web --set strict_reads="), ["false", "true"]);
        assert_eq!(offered("table create t --set meta"), ["meta."]);
        assert_eq!(offered("table create t --family f:com"), ["compression="]);
        assert_eq!(offered("table alter web --family anchor:bloom=row,compression=z"), ["zstd"]);
        assert_eq!(offered("table create t --family f --column f:n=i"), ["i32", "i64"]);
        assert_eq!(offered("table alter web --family a"), ["anchor"]);
    }

    #[test]
    fn filters_complete_within_their_quotes() {
        assert_eq!(offered("scan actions --filter \"d:c"), ["d:count"]);
        assert_eq!(
            offered("scan actions --filter \"d:count > 5 and ke"),
            ["key(", "key(time)", "key(user)", "keys_only()"]
        );
        assert_eq!(offered("scan actions --filter \"key("), ["time)", "user)"]);
        assert_eq!(offered("scan actions --filter \"d:count b"), ["between"]);
        assert_eq!(offered("scan actions --filter \"d:count between 1 "), ["and", "or"]);
        assert_eq!(offered("scan actions --filter \"row like 'a%' o"), ["or"]);
        assert_eq!(offered("scan actions --filter \"row like 'a "), Vec::<String>::new(), "a value");
        assert_eq!(offered("scan actions --filter \"exists("), ["d:", "d:count", "meta:"]);
        assert_eq!(offered("scan actions --filter \"prefix(ro"), ["row"]);
        assert_eq!(offered("scan actions --filter \"row not i"), ["in ("]);
        assert_eq!(offered("scan actions --filter \"not ex"), ["exists("]);
        assert_eq!(offered("put actions user=7,time=1 d:count 5 --if \"not exists(me"), ["meta:"]);
        assert_eq!(offered("count actions --filter pre"), ["prefix("]);
        assert_eq!(complete("scan actions --filter \"d:c", &known()).start, "scan actions --filter \"".len());
        assert_eq!(offered("scan actions --filter \"row = 'a'\" --rev"), ["--reverse"]);
    }

    #[test]
    fn lines_of_hbase_complete_within_their_quotes() {
        assert_eq!(offered("scan 'a"), ["actions"]);
        assert_eq!(offered("describe '"), ["actions", "web"]);
        assert_eq!(offered("disable w"), Vec::<String>::new());
        assert_eq!(offered("disable "), ["'actions'", "'web'"]);
        assert_eq!(offered("put 'web', 'row', 'a"), ["anchor:"]);
        assert_eq!(offered("scan 'web', {LIM"), ["LIMIT => "]);
        assert_eq!(offered("scan 'web', {COLUMNS => ['an"), ["anchor:"]);
    }
}
