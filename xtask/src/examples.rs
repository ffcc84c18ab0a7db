//! Runs every Rust example against a `terrane dev` cluster.
//!
//! An example must exit with success and print something. Examples use separate tables and share one cluster. An example
//! that examples/Cargo.toml does not list would never be built, so that is an error before anything runs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use terrane_lab::{DevCluster, builds};

/// Their folder, and the one source in it that is not an example: a package needs a library or a binary.
const FOLDER: &str = "examples";
const LIBRARY: &str = "lib";
/// Time limit for one example; they run in seconds.
const EXAMPLE_MAX: Duration = Duration::from_secs(120);

/// Builds and runs all examples; prints which one failed and why.
pub fn succeed(root: &Path) -> bool {
    match run(root) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

fn run(root: &Path) -> anyhow::Result<()> {
    let folder = root.join(FOLDER);
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).context("reading examples/Cargo.toml")?;
    let declared = declared(&manifest)?;
    let sources = sources(&folder)?;
    if let Some(lost) = sources.iter().find(|source| !declared.contains(source)) {
        bail!("examples/{lost}.rs is never built: list it in examples/Cargo.toml under [[example]]");
    }
    let programs = builds::debug(root, &["--examples", "--bin", "terrane"])?;
    let cluster = DevCluster::start(&programs.join("terrane"), &[])?;
    for name in &declared {
        let begun = Instant::now();
        let output = cluster.run(&mut Command::new(programs.join(FOLDER).join(name)), EXAMPLE_MAX)?;
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "the example {name} ended with {}\n{said}{errors}", output.status);
        ensure!(!said.trim().is_empty(), "the example {name} printed nothing");
        println!("{name}: ok ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    cluster.stop().map(drop)
}

/// The names under `[[example]]`, in the order of the manifest.
fn declared(manifest: &str) -> anyhow::Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().context("reading examples/Cargo.toml")?;
    let examples = manifest.get("example").and_then(toml::Value::as_array).context("examples/Cargo.toml has none")?;
    let name = |example: &toml::Value| example.get("name").and_then(toml::Value::as_str).map(str::to_owned);
    examples.iter().map(|example| name(example).context("an [[example]] has a name")).collect()
}

/// Sorted names of the sources that must be examples.
fn sources(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).context("listing examples")? {
        let path = entry.context("listing examples")?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|ending| ending == "rs") && name != LIBRARY {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_those_of_the_manifest() {
        let manifest = "[[example]]\nname = \"a\"\npath = \"a.rs\"\n[[example]]\nname = \"b\"\n";
        assert_eq!(declared(manifest).unwrap(), ["a", "b"]);
        assert!(declared("[package]\nname = \"x\"\n").is_err());
    }

    #[test]
    fn sources_are_found_and_the_library_is_none_of_them() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.rs", "a.rs", "lib.rs", "Cargo.toml"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(sources(folder.path()).unwrap(), ["a", "b"]);
    }
}
