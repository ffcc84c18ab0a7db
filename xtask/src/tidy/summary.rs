//! The table of contents of the book, `docs/SUMMARY.md`, lists every document once.
//!
//! A page that the book does not list is a page that a reader does not find. That its entries exist is the rule of links.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::markdown;

/// Where the table of contents is.
pub const FILE: &str = "docs/SUMMARY.md";

/// What is no page: the table of contents itself.
const UNLISTED: &[&str] = &[FILE];

/// Documents that are missing or listed twice.
pub fn examine(documents: &BTreeMap<String, String>) -> Vec<Finding> {
    let Some(summary) = documents.get(FILE) else { return Vec::new() };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for link in markdown::links(summary) {
        let Some(target) = markdown::resolve(FILE, link.target) else { continue };
        if let Some(before) = seen.insert(target, link.line) {
            findings.push(Finding::new(FILE, link.line, format!("{} is in line {before}, too", link.target)));
        }
    }
    let missing = documents.keys().filter(|file| !seen.contains_key(*file) && !UNLISTED.contains(&file.as_str()));
    findings.extend(missing.map(|file| Finding::new(FILE, 1, format!("does not list {file}"))));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(summary: &str) -> Vec<String> {
        let documents = [(FILE, summary), ("docs/a.md", ""), ("README.md", "")];
        let documents = documents.map(|(file, text)| (file.to_owned(), text.to_owned())).into();
        examine(&documents).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn every_document_is_listed_once() {
        assert_eq!(found("[Readme](../README.md)\n- [A](a.md)\n"), [""; 0]);
        assert_eq!(found("- [A](a.md)\n- [B](a.md)\n"), ["a.md is in line 1, too", "does not list README.md"]);
    }
}
