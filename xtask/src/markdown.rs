//! What the checks need of Markdown: links with their places, and the anchors of headings.
//!
//! Code is skipped, fenced or inline. An anchor is a heading in lower case, without punctuation, its blanks as dashes, as
//! GitHub and mdBook make it; a repeated heading gets a number.

use std::collections::BTreeMap;
use std::ops::Range;

/// A link or picture.
#[derive(Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The line, counted from 1.
    pub line: usize,
    /// The bytes of the target in the text.
    pub place: Range<usize>,
    pub target: &'a str,
}

impl Link<'_> {
    /// Whether it leads outside of the checkout.
    pub fn is_external(&self) -> bool {
        ["http://", "https://", "mailto:"].iter().any(|scheme| self.target.starts_with(scheme))
    }

    /// The path and the anchor; either may be empty.
    pub fn parts(&self) -> (&str, &str) {
        self.target.split_once('#').unwrap_or((self.target, ""))
    }
}

/// Every link `[text](target)` and picture of a document.
pub fn links(text: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    for (number, at, line) in prose_lines(text) {
        let visible = without_code(line);
        let mut from = 0;
        while let Some(open) = visible[from..].find("](").map(|open| from + open + 2) {
            let Some(close) = visible[open..].find(')').map(|close| open + close) else { break };
            let target = &line[open..close];
            found.push(Link { line: number, place: at + open..at + close, target });
            from = close;
        }
    }
    found
}

/// The anchors of a document.
pub fn anchors(text: &str) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose_lines(text).filter_map(|(_, _, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let anchors = headings.map(|title| {
        let title = plain(title);
        let kept = title.trim().chars().filter_map(|c| match c {
            c if c.is_whitespace() => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        let anchor: String = kept.flat_map(char::to_lowercase).collect();
        let count = counts.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    });
    anchors.collect()
}

/// Resolves the path of a link in `file`, both from the root of the checkout; `None` if it leads out of it.
pub fn resolve(file: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(file.to_owned());
    }
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside of fenced code, each with its number and first byte.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut at = 0;
    text.split_inclusive('\n').enumerate().filter_map(move |(index, line)| {
        let begin = at;
        at += line.len();
        let bare = line.trim_start();
        let ticks = &bare[..bare.len() - bare.trim_start_matches('`').len()];
        match fence {
            Some(open) if ticks.len() >= open.len() && bare[ticks.len()..].trim().is_empty() => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 => fence = Some(ticks),
            None => return Some((index + 1, begin, line.trim_end())),
        }
        None
    })
}

/// The line with blanks for what is between backticks, at the same places.
fn without_code(line: &str) -> String {
    let mut is_code = false;
    let blank = |c: char| if c == '`' { ' '.len_utf8() } else { c.len_utf8() };
    line.chars()
        .flat_map(|c| {
            is_code ^= c == '`';
            let width = blank(c);
            let shown = if is_code { ' ' } else { c };
            std::iter::repeat_n(shown, if is_code { width } else { 1 })
        })
        .collect()
}

/// A heading without the marks of code and emphasis, and links as their text.
fn plain(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    while let Some(open) = rest.find("](") {
        text.push_str(&rest[..open].replacen('[', "", 1));
        rest = rest[open..].find(')').map_or("", |close| &rest[open + close + 1..]);
    }
    text.push_str(rest);
    text.replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<(usize, &str)> {
        links(text).into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "A [b](c.md), `[d](e.md)` and ![f](g.svg).\n```\n[h](i.md)\n```\nü [`j`](k.md#l)\n";
        assert_eq!(targets(text), [(1, "c.md"), (1, "g.svg"), (5, "k.md#l")]);
        for link in links(text) {
            assert_eq!(&text[link.place.clone()], link.target);
        }
        assert_eq!(links(text)[2].parts(), ("k.md", "l"));
        assert!(links("[a](https://b)")[0].is_external());
    }

    #[test]
    fn a_fence_ends_with_as_many_ticks_as_it_began() {
        assert_eq!(targets("````\n```\n[a](b)\n````\n[c](d)\n"), [(5, "d")]);
    }

    #[test]
    fn anchors_are_those_that_a_browser_finds() {
        let text =
            "# The `terrane admin` command\n## What's new?\n## A_b - c\n# Twice\n# Twice\n```\n# no\n```\n#hash\n";
        assert_eq!(anchors(text), ["the-terrane-admin-command", "whats-new", "a_b---c", "twice", "twice-1"]);
        assert_eq!(anchors("## See [this](that.md)\n"), ["see-this"]);
    }

    #[test]
    fn paths_are_resolved_against_their_file() {
        assert_eq!(resolve("docs/a.md", "b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(resolve("docs/design/a.md", "../../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("docs/a.md", "").as_deref(), Some("docs/a.md"));
        assert_eq!(resolve("README.md", "deploy/").as_deref(), Some("deploy"));
        assert_eq!(resolve("README.md", "../x").as_deref(), None);
    }
}
