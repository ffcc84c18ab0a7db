//! The table of contents of the book, `docs/SUMMARY.md`, lists every document once.
//!
//! A page that the book does not list is a page that a reader does not find. That its entries exist is the rule of links.
//! mdBook makes no page of the table of contents itself, so a link to it works in the checkout and is broken in the book.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::markdown;

/// Where the table of contents is.
pub const FILE: &str = "docs/SUMMARY.md";

/// What is no page: the table of contents itself.
const UNLISTED: &[&str] = &[FILE];

/// Documents that are missing or listed twice, and links to the table of contents.
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
    for (file, text) in documents {
        let links = markdown::links(text);
        let dead = links.iter().filter(|link| markdown::resolve(file, link.target).as_deref() == Some(FILE));
        findings.extend(dead.map(|link| Finding::new(file, link.line, format!("the book has no page for {FILE}"))));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(summary: &str, page: &str) -> Vec<String> {
        let documents = [(FILE, summary), ("docs/a.md", page), ("README.md", "")];
        let documents = documents.map(|(file, text)| (file.to_owned(), text.to_owned())).into();
        examine(&documents).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn every_document_is_listed_once() {
        assert_eq!(found("[Readme](../README.md)\n- [A](a.md)\n", ""), [""; 0]);
        assert_eq!(found("- [A](a.md)\n- [B](a.md)\n", ""), ["a.md is in line 1, too", "does not list README.md"]);
    }

    #[test]
    fn a_link_to_the_table_of_contents_would_be_broken_in_the_book() {
        let summary = "[Readme](../README.md)\n- [A](a.md)\n";
        assert_eq!(found(summary, "[contents](SUMMARY.md)\n"), ["the book has no page for docs/SUMMARY.md"]);
    }
}
