//! The rules of this repository that the compiler does not check.
//!
//! - [`arrows`]: which crate may depend on which, and which external crates are kept to one crate.
//! - [`limits`] and [`settings`]: the tables of limits and of settings are those that their lists give.
//! - [`links`]: documents link to files and headings that exist.
//! - [`locks`]: lock files that our manifests have outgrown.
//! - [`code_map`]: not a rule, but the page of the book that the sources' headers give, so that links to it are checked.
//! - [`metrics`]: the page of the metrics is the one that their list gives.
//! - [`modules`]: import cycles between the files of a crate.
//! - [`prose`]: phrases to avoid in documents, comments and messages.
//! - [`summary`]: the book's table of contents lists every document.
//! - [`sources`]: what a source file must and must not contain.
//! - [`names`]: file names without meaning.
//! - [`references`]: source files and functions that documents name.
//!
//! Every rule is a function from text to findings, tested on small fixtures with and without findings. The test at the
//! end of this file applies all rules to the checkout.

mod arrows;
mod code_map;
mod finding;
mod limits;
mod links;
mod locks;
mod metrics;
mod modules;
mod names;
mod prose;
mod references;
mod rendered;
mod settings;
mod sources;
mod summary;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use finding::Finding;
pub use modules::describe as describe_modules;
use rendered::Rendered;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// Violations; empty if the checkout is tidy.
    pub findings: Vec<Finding>,
    /// Long files below the limit, with their lines before tests, longest first.
    pub long_files: Vec<(String, usize)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (file, lines) in &self.long_files {
            writeln!(f, "long: {file} has {lines} lines before its tests: is it two ideas?")?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}

/// Checks every file of the checkout.
pub fn examine(root: &Path) -> anyhow::Result<Report> {
    let mut report = Report { findings: arrows::examine(root)?, ..Report::default() };
    report.findings.extend(modules::examine(root)?);
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    files.sort();
    report.findings.extend(locks::examine(root, &files));
    report.findings.extend(names::examine(&files));
    for file in &files {
        if sources::is_checked(file) {
            let text = read(root, file)?;
            report.findings.extend(sources::examine(file, &text));
            report.findings.extend(prose::examine(file, &text));
            report.long_files.extend(sources::long(file, &text).map(|lines| (file.clone(), lines)));
        }
    }
    let sources = read_sources(root, &files)?;
    let documents = files.iter().filter(|file| file.ends_with(".md"));
    let mut documents: BTreeMap<String, String> =
        documents.map(|file| Ok((file.clone(), read(root, file)?))).collect::<anyhow::Result<_>>()?;
    // Only the book has the map of the code, so only the book's table of contents may link to it.
    let in_checkout = documents.keys().filter(|file| *file != summary::FILE);
    report.findings.extend(in_checkout.flat_map(|file| links::examine(file, &documents, &files)));
    documents.insert(code_map::FILE.to_owned(), code_map::render(&sources));
    let mut in_book = files.clone();
    in_book.push(code_map::FILE.to_owned());
    in_book.sort();
    report.findings.extend(links::examine(summary::FILE, &documents, &in_book));
    report.findings.extend(summary::examine(&documents));
    for part in RENDERED.iter().filter(|part| files.iter().any(|file| file == part.file)) {
        report.findings.extend(part.examine(&read(root, part.file)?));
    }
    if let Some(page) = files.iter().any(|file| file == metrics::FILE).then(|| read(root, metrics::FILE)).transpose()? {
        report.findings.extend(metrics::examine(&page));
    }
    for file in files.iter().filter(|file| references::is_checked(file)) {
        report.findings.extend(references::examine(file, &read(root, file)?, &sources));
    }
    report.long_files.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    Ok(report)
}

/// The page of the book that no file of the checkout has, and its text.
pub fn code_map(root: &Path) -> anyhow::Result<(&'static str, String)> {
    let mut files = Vec::new();
    collect(root, root, &mut files)?;
    Ok((code_map::FILE, code_map::render(&read_sources(root, &files)?)))
}

/// The parts of documents that lists in the code give.
const RENDERED: [&Rendered; 2] = [&settings::REFERENCE, &limits::REFERENCE];

/// Writes what documents show of lists in the code: settings, limits, and the page of the metrics.
pub fn write_documents(root: &Path) -> anyhow::Result<()> {
    for part in RENDERED {
        let rendered = part.render(&read(root, part.file)?);
        let rendered = rendered.with_context(|| format!("{} has no place for its list", part.file))?;
        fs::write(root.join(part.file), rendered).with_context(|| format!("writing {}", part.file))?;
    }
    fs::write(root.join(metrics::FILE), metrics::render()).with_context(|| format!("writing {}", metrics::FILE))
}

fn read_sources(root: &Path, files: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let sources = files.iter().filter(|file| file.ends_with(".rs"));
    sources.map(|file| Ok((file.clone(), read(root, file)?))).collect()
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))
}

/// Folders of the checkout without our sources.
const SKIPPED_FOLDERS: &[&str] = &[".git", "target", "node_modules"];

fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry?;
        let path: PathBuf = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            collect(root, &path, files)?;
        } else if kind.is_file() {
            let inside = path.strip_prefix(root).context("a listed file lies outside of the checkout")?;
            files.push(inside.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_checkout_is_tidy() {
        let report = examine(&crate::root()).unwrap();
        assert!(report.findings.is_empty(), "\n{report}");
    }

    #[test]
    fn an_examination_reaches_files_in_folders() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nmembers = []\n[workspace.dependencies]\n");
        write("room/src/deep/fine.rs", "//! Fine.\n");
        write("room/src/deep/bare.rs", "fn bare() {}\n");
        write("target/debug/build/generated.rs", "fn generated() {}\n");
        let files: Vec<String> = examine(folder.path()).unwrap().findings.into_iter().map(|f| f.file).collect();
        assert_eq!(files, ["room/src/deep/bare.rs"]);
    }
}
