//! Links of documents lead to files that exist, and to headings that these files have.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::markdown;

/// The broken links of a document. `documents` has the text of every Markdown file, `files` every file of the checkout,
/// sorted.
pub fn examine(file: &str, documents: &BTreeMap<String, String>, files: &[String]) -> Vec<Finding> {
    let Some(text) = documents.get(file) else { return Vec::new() };
    let links = markdown::links(text).into_iter().filter(|link| !link.is_external());
    let broken = links.filter_map(|link| {
        let why = why_broken(file, &link, documents, files)?;
        Some(Finding::new(file, link.line, format!("the link {} is broken: {why}", link.target)))
    });
    broken.collect()
}

fn why_broken(
    file: &str,
    link: &markdown::Link<'_>,
    documents: &BTreeMap<String, String>,
    files: &[String],
) -> Option<String> {
    let (path, anchor) = link.parts();
    let Some(target) = markdown::resolve(file, path) else { return Some("it leaves the checkout".to_owned()) };
    let folder = format!("{target}/");
    let is_folder =
        files[files.partition_point(|file| *file < folder)..].first().is_some_and(|file| file.starts_with(&folder));
    if !is_folder && files.binary_search(&target).is_err() {
        return Some(format!("{target} does not exist"));
    }
    let document = documents.get(&target).filter(|_| !anchor.is_empty())?;
    let is_there = markdown::anchors(document).iter().any(|there| there == anchor);
    (!is_there).then(|| format!("{target} has no heading #{anchor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<String> {
        let documents = [("docs/a.md", text), ("docs/b.md", "# One\n## Two words\n"), ("README.md", "")];
        let documents: BTreeMap<_, _> = documents.map(|(file, text)| (file.to_owned(), text.to_owned())).into();
        let mut files: Vec<String> = documents.keys().cloned().collect();
        files.extend(["docs/pictures/p.svg".to_owned(), "docs-old".to_owned()]);
        files.sort();
        let findings = examine("docs/a.md", &documents, &files).into_iter();
        findings.map(|finding| format!("{}: {}", finding.line, finding.message)).collect()
    }

    #[test]
    fn what_exists_may_be_linked() {
        let text = "# Here\n[a](b.md) [b](b.md#two-words) [c](#here) [d](../README.md) [e](https://x/y) ![f](pictures/p.svg)\n\
                    [g](../docs/) [h](pictures)\n";
        assert_eq!(broken(text), [""; 0]);
    }

    #[test]
    fn what_is_gone_is_found() {
        assert_eq!(broken("x\n[a](c.md)"), ["2: the link c.md is broken: docs/c.md does not exist"]);
        assert_eq!(broken("[a](b.md#three)"), ["1: the link b.md#three is broken: docs/b.md has no heading #three"]);
        assert_eq!(broken("[a](#there)"), ["1: the link #there is broken: docs/a.md has no heading #there"]);
        assert_eq!(broken("[a](../../x.md)"), ["1: the link ../../x.md is broken: it leaves the checkout"]);
    }
}
