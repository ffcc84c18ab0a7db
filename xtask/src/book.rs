//! `cargo xtask book`: the documents as a book, made by mdBook, with every link of the pages checked.
//!
//! The table of contents is `docs/SUMMARY.md`. mdBook takes one folder as its source, but our documents also link to files
//! outside of `docs/`: the README, examples, manifests. So the sources are assembled under the target directory at the
//! paths that they have in the checkout, with every file that a page links to, and mdBook is given that. Links therefore
//! work in the book as they do in the checkout. One page is made with the book: the map of the code.
//!
//! mdBook is a program of its own and no dependency: where it is not installed, the step says so and passes, and tidy has
//! still checked the table of contents and every link of the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::markdown;
use terrane_lab::builds::target_directory;

/// The version that `.ci/run` installs.
const VERSION: &str = "0.5.4";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Builds the book and checks it; reports what is wrong.
pub fn succeeds(root: &Path) -> bool {
    match build(root) {
        Ok(said) => {
            println!("{said}");
            true
        }
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

fn build(root: &Path) -> anyhow::Result<String> {
    let book = target_directory(root).join("book");
    let Some(program) = installed(root) else {
        return Ok(format!(
            "mdbook is not installed: the book is not built. `cargo install mdbook --version {VERSION} --locked \
             --no-default-features --features search` installs it."
        ));
    };
    if book.exists() {
        fs::remove_dir_all(&book).with_context(|| format!("removing {}", book.display()))?;
    }
    let pages = assemble(root, &book)?;
    let output = Command::new(&program).arg("build").arg(&book).output().context("running mdbook")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mdbook failed:\n{said}");
    let troubles: Vec<&str> = said.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    ensure!(troubles.is_empty(), "mdbook is not content:\n{}", troubles.join("\n"));
    let html = book.join("html");
    let broken = broken_links(&html, &pages)?;
    ensure!(broken.is_empty(), "the book has broken links:\n{}", broken.join("\n"));
    Ok(format!("{} pages in {}", pages.len(), html.display()))
}

/// mdBook from the path, or where `.ci/run` puts it.
fn installed(root: &Path) -> Option<PathBuf> {
    let ours = target_directory(root).join("tools/bin/mdbook");
    [PathBuf::from("mdbook"), ours].into_iter().find(|program| {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

/// Copies the pages, and what they link to, into `book/src`; returns the pages.
fn assemble(root: &Path, book: &Path) -> anyhow::Result<Vec<String>> {
    let read = |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"));
    let write = |file: String, text: &[u8]| -> anyhow::Result<()> {
        let path = book.join(file);
        let folder = path.parent().context("a file of the book has no folder")?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let summary = read(SUMMARY)?;
    let (contents, pages) = from_root(SUMMARY, &summary);
    write("src/SUMMARY.md".to_owned(), contents.as_bytes())?;
    write("book.toml".to_owned(), read("docs/book.toml")?.as_bytes())?;
    let mut others = BTreeSet::new();
    let (map, code_map) = crate::tidy::code_map(root)?;
    for page in &pages {
        let text = if page == map { code_map.clone() } else { read(page)? };
        let (text, linked) = with_pages_for_folders(root, page, &text);
        write(format!("src/{page}"), text.as_bytes())?;
        others.extend(linked.into_iter().filter(|file| !pages.contains(file)));
    }
    for file in others {
        let bytes = fs::read(root.join(&file)).with_context(|| format!("reading {file}"))?;
        write(format!("src/{file}"), &bytes)?;
    }
    Ok(pages)
}

/// The table of contents with paths from the root of the checkout, and these paths.
fn from_root(file: &str, summary: &str) -> (String, Vec<String>) {
    let mut pages = Vec::new();
    let text = with_targets(summary, |link| {
        let target = markdown::resolve(file, link.target)?;
        pages.push(target.clone());
        Some(target)
    });
    (text, pages)
}

/// A page whose links to folders lead to the README of the folder, which a web server would not do by itself, and the files
/// that it links to.
fn with_pages_for_folders(root: &Path, page: &str, text: &str) -> (String, Vec<String>) {
    let mut linked = Vec::new();
    let text = with_targets(text, |link| {
        let (path, _) = link.parts();
        let target = markdown::resolve(page, path).filter(|_| !link.is_external() && !path.is_empty())?;
        let is_folder = root.join(&target).is_dir();
        linked.push(if is_folder { format!("{target}/README.md") } else { target });
        is_folder.then(|| format!("{}/README.md", path.trim_end_matches('/')))
    });
    (text, linked)
}

/// The text with other targets for the links for which there is one.
fn with_targets(text: &str, mut instead: impl FnMut(&markdown::Link<'_>) -> Option<String>) -> String {
    let mut changed = String::new();
    let mut from = 0;
    for link in markdown::links(text) {
        if let Some(target) = instead(&link) {
            changed.push_str(&text[from..link.place.start]);
            changed.push_str(&target);
            from = link.place.end;
        }
    }
    changed.push_str(&text[from..]);
    changed
}

/// Links of the pages that lead nowhere, checked in what a browser gets.
fn broken_links(html: &Path, pages: &[String]) -> anyhow::Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in pages {
        let page = format!("{}.html", page.trim_end_matches(".md"));
        let text = fs::read_to_string(html.join(&page)).with_context(|| format!("reading the page {page}"))?;
        let targets = ["href=\"", "src=\""].into_iter().flat_map(|attribute| values(&text, attribute));
        for target in targets.filter(|target| !target.contains(':')) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let Some(file) = markdown::resolve(&page, path) else {
                broken.push(format!("{page}: {target} leaves the book"));
                continue;
            };
            let file_path = html.join(&file);
            if !file_path.is_file() {
                broken.push(format!("{page}: {target} does not exist"));
            } else if !anchor.is_empty() && file.ends_with(".html") {
                let there = fs::read_to_string(&file_path).with_context(|| format!("reading {file}"))?;
                if !values(&there, "id=\"").any(|id| id == anchor) {
                    broken.push(format!("{page}: {target} has no such heading"));
                }
            }
        }
    }
    broken.sort_unstable();
    broken.dedup();
    Ok(broken)
}

/// The values of an attribute, given with its opening quote.
fn values<'a>(text: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_name_files_from_the_root() {
        let (text, pages) = from_root(SUMMARY, "[Readme](../README.md)\n- [A](a.md)\n");
        assert_eq!(text, "[Readme](README.md)\n- [A](docs/a.md)\n");
        assert_eq!(pages, ["README.md", "docs/a.md"]);
    }

    #[test]
    fn a_link_to_a_folder_leads_to_its_page() {
        let (text, linked) =
            with_pages_for_folders(&crate::root(), "README.md", "[a](docs/design/) [b](docs/wire.md#x)");
        assert_eq!(text, "[a](docs/design/README.md) [b](docs/wire.md#x)");
        assert_eq!(linked, ["docs/design/README.md", "docs/wire.md"]);
    }

    #[test]
    fn broken_links_of_the_pages_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let a = "<a href=\"b.html#two\">x</a> <a href=\"b.html#three\">x</a> <img src=\"p.svg\"> <a href=\"https://x/y\">x</a>";
        fs::write(folder.path().join("a.html"), a).unwrap();
        fs::write(folder.path().join("b.html"), "<h2 id=\"two\">Two</h2>").unwrap();
        let broken = broken_links(folder.path(), &["a.md".to_owned()]).unwrap();
        assert_eq!(broken, ["a.html: b.html#three has no such heading", "a.html: p.svg does not exist"]);
    }
}
