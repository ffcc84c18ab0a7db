//! Source files and functions that documents name have to exist.
//!
//! A document refers to code as `folder/src/file.rs` or `folder/src/file.rs::function`, in backticks, from the root of the
//! checkout. A rename that forgets the documents is a finding, so a map of the code stays a map of the code. Bare file names
//! (`file.rs`) are not checked: they are names in a text that says where it is.

use std::collections::BTreeMap;

use super::finding::Finding;

/// Documents whose references are not checked: the changelog describes the past.
const UNCHECKED: &[&str] = &["CHANGELOG.md"];

/// Whether a document's references are checked.
pub fn is_checked(file: &str) -> bool {
    file.ends_with(".md") && !UNCHECKED.contains(&file)
}

/// The references of one document that lead nowhere. `sources` holds the text of every Rust file by its path.
pub fn examine(file: &str, text: &str, sources: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // Every second piece between backticks is code.
        for reference in line.split('`').skip(1).step_by(2) {
            findings.extend(broken(reference, sources).map(|why| Finding::new(file, number + 1, why)));
        }
    }
    findings
}

fn broken(reference: &str, sources: &BTreeMap<String, String>) -> Option<String> {
    let (path, item) = match reference.split_once(".rs::") {
        Some((path, item)) => (format!("{path}.rs"), Some(item)),
        None => (reference.to_owned(), None),
    };
    let is_path =
        path.ends_with(".rs") && path.contains('/') && !path.contains(|c: char| c.is_whitespace() || c == '{');
    if !is_path {
        return None;
    }
    let Some(source) = sources.get(&path) else { return Some(format!("`{path}` does not exist")) };
    let name = item?.rsplit("::").next()?.trim_end_matches("()");
    let defined = ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "mod ", "macro_rules! "]
        .iter()
        .any(|keyword| defines(source, keyword, name));
    (!defined).then(|| format!("`{path}` defines no `{name}`"))
}

/// Whether the source contains `keyword name` as two whole words.
fn defines(source: &str, keyword: &str, name: &str) -> bool {
    let definition = format!("{keyword}{name}");
    source.match_indices(&definition).any(|(at, _)| {
        source[at + definition.len()..].chars().next().is_none_or(|next| !next.is_alphanumeric() && next != '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = "pub struct Log;\nimpl Log {\n    pub async fn append(&self) {}\n}\n".to_owned();
        let sources = BTreeMap::from([("raft/src/log.rs".to_owned(), source)]);
        examine("docs/a.md", text, &sources).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn what_exists_may_be_named() {
        assert_eq!(
            found("See `raft/src/log.rs`, `raft/src/log.rs::append` and `raft/src/log.rs::Log::append`."),
            [""; 0]
        );
        assert_eq!(found("Bare names such as `other.rs` and code such as `a / b` are not references."), [""; 0]);
    }

    #[test]
    fn what_is_gone_is_found() {
        assert_eq!(found("See `raft/src/gone.rs`."), ["`raft/src/gone.rs` does not exist"]);
        assert_eq!(found("See `raft/src/log.rs::app`."), ["`raft/src/log.rs` defines no `app`"]);
    }
}
