//! What one file says about names: the modules and items it declares, what it imports, and which paths it writes.
//!
//! A reader of tokens, not a parser: it looks inside macro calls, which a parser leaves alone, and needs no crate for it.

use crate::tidy::text::{code_of, line_of};

/// One module: a file, or a `mod name { ... }` inside one.
#[derive(Debug, Default)]
pub struct Source {
    /// Modules declared with `mod name;`.
    pub declared: Vec<String>,
    /// Modules with their body in this file.
    pub inline: Vec<(String, Source)>,
    /// Names of items defined here.
    pub items: Vec<String>,
    /// Names brought into scope, with where they come from.
    pub imports: Vec<Import>,
    /// Paths of `use path::*`.
    pub globs: Vec<Mention>,
    /// Paths of two segments or more in the code.
    pub paths: Vec<Mention>,
}

/// One name of a `use`.
#[derive(Debug)]
pub struct Import {
    /// The name in this module.
    pub name: String,
    /// What it stands for.
    pub target: Mention,
}

/// A path and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// The segments, without generics.
    pub path: Vec<String>,
    /// Counted from 1.
    pub line: usize,
}

/// Reads a file's text.
pub fn read(text: &str) -> Source {
    let code = code_of(text);
    let tokens = tokens(&code);
    let mut reader = Reader { tokens: &tokens, at: 0 };
    reader.module()
}

#[derive(Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, line_of(code, 0));
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let raw = if rest.starts_with("r#") { 2 } else { 0 };
        let length = if first.is_alphanumeric() || first == '_' {
            let end = rest[raw..].find(|c: char| !c.is_alphanumeric() && c != '_');
            end.map_or(rest.len(), |end| end + raw)
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(Token { text: rest[..length].trim_start_matches("r#"), line });
        }
        line += usize::from(first == '\n');
        at += length;
    }
    tokens
}

/// Words after which a name is the name of an item.
const ITEM_WORDS: &[&str] = &["struct", "enum", "trait", "fn", "const", "static", "type", "union"];
/// Words that may stand between such a word and the name.
const NO_NAMES: &[&str] = &["fn", "unsafe", "async", "extern", "mut", "impl", "for"];

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

impl Reader<'_> {
    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// Reads up to the brace that closes the module, or to the end of the file.
    fn module(&mut self) -> Source {
        let mut source = Source::default();
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "}" if depth == 0 => break,
                "{" => depth += 1,
                "}" => depth -= 1,
                "#" => {
                    if self.attribute() && !self.skip_tested() {
                        return Source::default();
                    }
                    continue;
                }
                "use" if is_name(self.text(1)) || matches!(self.text(1), "{" | "::") => {
                    self.at += 1;
                    let line = self.line();
                    self.use_tree(&mut Vec::new(), line, &mut source);
                    continue;
                }
                "mod" if depth == 0 && is_name(self.text(1)) => {
                    self.nested(&mut source);
                    continue;
                }
                "macro_rules" if self.text(1) == "!" => source.items.push(self.text(2).to_owned()),
                word if depth == 0 && ITEM_WORDS.contains(&word) => {
                    let name = self.text(1);
                    if is_name(name) && !NO_NAMES.contains(&name) {
                        source.items.push(name.to_owned());
                    }
                }
                word if is_name(word) && self.text(1) == "::" => {
                    self.path(&mut source);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        source
    }

    fn nested(&mut self, source: &mut Source) {
        let name = self.text(1).to_owned();
        self.at += 2;
        if self.text(0) == "{" {
            self.at += 1;
            source.inline.push((name, self.module()));
        } else {
            source.declared.push(name);
        }
        self.at += 1;
    }

    /// Reads an attribute; whether it keeps what follows to test builds.
    fn attribute(&mut self) -> bool {
        self.at += 1 + usize::from(self.text(1) == "!");
        let first = self.at;
        self.skip_brackets();
        let words: Vec<&str> = self.tokens[first..self.at].iter().map(|token| token.text).collect();
        words.starts_with(&["[", "cfg", "(", "test", ")"]) || words.starts_with(&["[", "cfg", "(", "all", "(", "test"])
    }

    /// Skips what a test attribute stands before. `false` when that is the whole module (`#![cfg(test)]`).
    fn skip_tested(&mut self) -> bool {
        let inner = self.tokens[..self.at].iter().rev().find(|token| matches!(token.text, "#" | "!"));
        if inner.is_some_and(|token| token.text == "!") {
            return false;
        }
        while self.text(0) == "#" {
            self.attribute();
        }
        while self.at < self.tokens.len() {
            match self.text(0) {
                "{" => {
                    self.skip_brackets();
                    break;
                }
                "(" | "[" => self.skip_brackets(),
                ";" | "," => {
                    self.at += 1;
                    break;
                }
                "}" => break,
                _ => self.at += 1,
            }
        }
        true
    }

    fn skip_brackets(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            match self.text(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
    }

    fn path(&mut self, source: &mut Source) {
        let global = self.at > 0 && self.tokens[self.at - 1].text == "::";
        let line = self.line();
        let mut path = vec![self.text(0).to_owned()];
        self.at += 1;
        while self.text(0) == "::" && is_name(self.text(1)) {
            path.push(self.text(1).to_owned());
            self.at += 2;
        }
        if path.len() > 1 && !global {
            source.paths.push(Mention { path, line });
        }
    }

    /// Reads one branch of a `use`, after the segments before it.
    fn use_tree(&mut self, before: &mut Vec<String>, line: usize, source: &mut Source) {
        let length = before.len();
        loop {
            match self.text(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(0), "}" | "") {
                        self.use_tree(before, self.line(), source);
                        self.at += usize::from(self.text(0) == ",");
                    }
                    self.at += 1;
                    break;
                }
                "*" => {
                    self.at += 1;
                    source.globs.push(Mention { path: before.clone(), line });
                    break;
                }
                "::" => self.at += 1,
                word if is_name(word) => {
                    if word != "self" || before.is_empty() {
                        before.push(word.to_owned());
                    }
                    self.at += 1;
                    if self.text(0) != "::" {
                        self.imported(before, line, source);
                        break;
                    }
                }
                _ => break,
            }
        }
        before.truncate(length);
    }

    fn imported(&mut self, path: &[String], line: usize, source: &mut Source) {
        let mut name = path.last().cloned().unwrap_or_default();
        if self.text(0) == "as" {
            name = self.text(1).to_owned();
            self.at += 2;
        }
        source.imports.push(Import { name, target: Mention { path: path.to_vec(), line } });
    }
}
