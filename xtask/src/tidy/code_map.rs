//! The map of the code, a page of the book: one line per source file, the first sentence of the file's own header.
//!
//! A map in the checkout would be wrong as soon as a file moves, so `cargo xtask book` makes it with the book.

use std::collections::BTreeMap;

/// Where the book has it. The checkout has no such file.
pub const FILE: &str = "docs/code-map.md";

/// The crates of the map, in reading order: their folders.
const CRATES: &[&str] = &[
    "types",
    "filter",
    "proto",
    "env",
    "engine",
    "raft",
    "regionserver",
    "master",
    "client",
    "console",
    "cli",
    "tests",
    "testscript",
    "browser",
    "oracle",
    "lab",
    "xtask",
];

const OPENING: &str = "\
# Code map

For engineers who look for the file that does something. It lists every source file with the first sentence of its header, crate by crate; tests are left out.
[ARCHITECTURE.md](../ARCHITECTURE.md) says how the parts work together.
";

/// The map of these sources, each with its path.
pub fn render(sources: &BTreeMap<String, String>) -> String {
    let mut map = OPENING.to_owned();
    for folder in CRATES {
        let root = format!("{folder}/src/");
        let files: Vec<_> = sources.iter().filter(|(path, _)| path.starts_with(&root) && !is_test(path)).collect();
        if files.is_empty() {
            continue;
        }
        map.push_str(&format!("\n## `{folder}/src/`\n\n"));
        for (path, source) in files {
            let name = &path[root.len()..];
            map.push_str(&format!("- `{name}`: {}\n", first_sentence(source)));
        }
    }
    map
}

fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs" || name.ends_with("_tests.rs") || path.contains("/tests/")
}

/// The first sentence of a module's header, links as plain code.
fn first_sentence(source: &str) -> String {
    let header = source.lines().skip_while(|line| line.starts_with("#![") || line.is_empty());
    let lines = header.map_while(|line| line.strip_prefix("//!")).map(str::trim).take_while(|line| !line.is_empty());
    let paragraph = lines.collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    without_links(&paragraph[..end])
}

/// A link to an item stays as its name: the map is no part of the crate's own documents.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("[`") {
        let Some(end) = rest[start..].find("`]").map(|end| start + end) else { break };
        plain.push_str(&rest[..start]);
        plain.push_str(&rest[start + 1..=end]);
        rest = &rest[end + 2..];
        if let Some(target) = rest.strip_prefix('(').and_then(|target| target.find(')')) {
            rest = &rest[target + 2..];
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_file_is_named_by_the_first_sentence_of_its_header() {
        let map = render(&sources(&[
            ("raft/src/log/writer.rs", "//! The one loop\n//! that writes. More.\n//!\n//! - Never\n\nuse x;\n"),
            ("raft/src/log/writer/tests.rs", "//! Tests.\n"),
            ("raft/src/lib.rs", "//! Groups, see [`Group`] and [`Log`](crate::log::Log): all of them.\n"),
        ]));
        let lines: Vec<&str> = map.strip_prefix(OPENING).unwrap().lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                "## `raft/src/`",
                "- `lib.rs`: Groups, see `Group` and `Log`: all of them.",
                "- `log/writer.rs`: The one loop that writes.",
            ]
        );
    }
}
