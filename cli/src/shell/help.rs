//! The shell's help: the commands of both grammars, each with an example.

use std::fmt::Write as _;

use clap::CommandFactory;

use super::{OUTSIDE, OWN, hbase, said, unknown};
use crate::args::Cli;
use crate::failure::Failure;

/// Examples of our commands.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("admin", &["admin regions t", "admin move 7 --to 3", "admin drain 3"]),
    ("aggregate", &["aggregate t sum d:count", "aggregate weather max i32(data:airtemp) --prefix 029070-99999"]),
    ("append", &["append t row f:q more"]),
    ("bench", &["bench put --seconds 5", "bench load --rows 100000"]),
    ("config", &["config check terrane.toml", "config list --role server"]),
    ("count", &["count t", "count actions --prefix user=7"]),
    ("delete", &["delete t row f:q", "delete actions user=7,time=1000,action=1"]),
    ("export", &["export t --format tsv"]),
    ("first", &["first actions --prefix user=7"]),
    ("get", &["get t row", "get actions user=7,time=1000,action=1 d:kind"]),
    ("import", &["import t --format jsonl rows.jsonl"]),
    ("incr", &["incr t row f:hits", "incr t row f:hits -5"]),
    ("last", &["last actions --prefix user=7"]),
    ("latest", &["latest actions --parts 1"]),
    ("namespace", &["namespace create n"]),
    (
        "put",
        &[
            "put t row f:q value",
            "put actions user=7,time=1000,action=1 d:kind login",
            "put t row f:q v --if \"not exists(f:q)\"",
        ],
    ),
    ("scan", &["scan t --limit 10", "scan actions --prefix user=7 --reverse", "scan t --filter \"f:kind = 'login'\""]),
    ("status", &["status", "status --resources"]),
    (
        "table",
        &[
            "table create t --family f",
            "table create actions --family d --key 'user:u64, time:desc i64, action:u32' --column d:count=i64",
            "table describe t",
        ],
    ),
    ("tool", &["tool check terrane-data"]),
    ("version", &["version"]),
];

/// All commands, with one line each.
pub fn overview() -> Result<(), Failure> {
    let root = Cli::command();
    let mut text = String::from("Commands, as at the command line without `terrane`:\n");
    for command in root.get_subcommands().filter(|command| !OUTSIDE.contains(&command.get_name())) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(text, "  {:<12} {about}", command.get_name()).expect("a string takes any text");
    }
    text.push_str("\nOf the shell itself:\n");
    for (name, about) in OWN {
        writeln!(text, "  {name:<12} {about}").expect("a string takes any text");
    }
    text.push_str("\nLines of HBase's shell are understood, too:\n");
    let verbs: Vec<&str> = hbase::VERBS.iter().map(|(verb, _)| *verb).collect();
    for line in verbs.chunks(7) {
        writeln!(text, "  {}", line.join(", ")).expect("a string takes any text");
    }
    text.push_str("\n`help COMMAND` shows how a command is used, with examples. Tab completes, Ctrl-C clears the line or stops a\ncommand, Ctrl-D ends the session.");
    said(&text).map(drop)
}

/// One command: its usage, flags and examples in both grammars.
pub fn of(words: &[&str]) -> Result<(), Failure> {
    let mut text = String::new();
    let mut root = Cli::command();
    root.build();
    let mut command = Some(&root);
    for word in words {
        command = command.and_then(|command| command.find_subcommand(word));
    }
    let verb = words.first().copied().unwrap_or_default();
    if let Some(command) = command.filter(|_| !OUTSIDE.contains(&verb)) {
        text.push_str(&command.clone().render_help().to_string().replace("terrane ", ""));
        if let Some((_, examples)) = EXAMPLES.iter().find(|(name, _)| *name == verb) {
            text.push_str("\nExamples:\n");
            for example in *examples {
                writeln!(text, "  {example}").expect("a string takes any text");
            }
        }
    }
    if let Some((_, usage)) = hbase::VERBS.iter().find(|(name, _)| *name == verb).filter(|_| words.len() == 1) {
        writeln!(text, "{}As in HBase's shell:\n  {usage}", if text.is_empty() { "" } else { "\n" })
            .expect("a string takes any text");
    }
    if ["create", "alter"].contains(&verb) && words.len() == 1 {
        text.push_str(hbase::ATTRIBUTES);
    }
    if let Some((name, about)) = OWN.iter().find(|(name, _)| *name == verb) {
        writeln!(text, "{name}: {about}").expect("a string takes any text");
    }
    if text.is_empty() {
        return Err(unknown(verb));
    }
    said(text.trim_end()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_an_example_that_is_read() {
        let root = Cli::command();
        for command in root.get_subcommands().map(clap::Command::get_name) {
            if OUTSIDE.contains(&command) || ["demo", "help", "completions", "man"].contains(&command) {
                continue;
            }
            let (_, examples) =
                EXAMPLES.iter().find(|(name, _)| *name == command).unwrap_or_else(|| panic!("{command}"));
            for example in *examples {
                let words = super::super::words::split(example).expect(example);
                let line = std::iter::once("terrane".to_owned()).chain(words);
                assert!(<Cli as clap::Parser>::try_parse_from(line).is_ok(), "{example}");
            }
        }
        for (verb, example) in hbase::VERBS {
            // `status` and `version` are the same in both grammars.
            match hbase::translate(example) {
                Some(translated) => drop(translated.unwrap_or_else(|invalid| panic!("{example}: {invalid}"))),
                None => assert!(root.find_subcommand(verb).is_some(), "{example}"),
            }
        }
    }
}
