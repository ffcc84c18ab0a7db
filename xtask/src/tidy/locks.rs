//! Lock files agree with the manifests of our crates.
//!
//! Cargo itself checks this with `--locked` for what it builds. The RocksDB benchmark is rarely built, and its lock file
//! contains crates of this workspace, so a new dependency of one of them makes it stale unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;
use toml::{Table, Value};

use super::finding::Finding;

/// Lock files outside the workspace's own.
const LOCKS: &[&str] = &["benches/rocksdb/Cargo.lock"];

/// The names of a crate's dependencies: those it always has, and all.
struct Dependencies {
    always: BTreeSet<String>,
    all: BTreeSet<String>,
}

/// Compares every lock file with the manifests of our crates in it.
pub fn examine(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut ours = BTreeMap::new();
    for member in super::arrows::members(root)? {
        let text = fs::read_to_string(root.join(&member).join("Cargo.toml")).context("reading a manifest")?;
        let manifest: Table = text.parse().context("parsing a manifest")?;
        let name = manifest.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
        ours.insert(name.unwrap_or_default().to_owned(), dependencies(&manifest));
    }
    let mut findings = Vec::new();
    for file in LOCKS.iter().filter(|file| root.join(file).is_file()) {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
        findings.extend(compare(file, &text.parse().with_context(|| format!("parsing {file}"))?, &ours));
    }
    Ok(findings)
}

fn dependencies(manifest: &Table) -> Dependencies {
    let mut found = Dependencies { always: BTreeSet::new(), all: BTreeSet::new() };
    for section in ["dependencies", "build-dependencies"] {
        for (key, value) in manifest.get(section).and_then(Value::as_table).into_iter().flatten() {
            let name = value.get("package").and_then(Value::as_str).unwrap_or(key);
            found.all.insert(name.to_owned());
            if value.get("optional").and_then(Value::as_bool) != Some(true) {
                found.always.insert(name.to_owned());
            }
        }
    }
    found
}

fn compare(file: &str, lock: &Table, ours: &BTreeMap<String, Dependencies>) -> Vec<Finding> {
    let packages = lock.get("package").and_then(Value::as_array).into_iter().flatten();
    let local = packages.filter(|package| package.get("source").is_none());
    let stale = local.filter_map(|package| {
        let name = package.get("name").and_then(Value::as_str)?;
        let declared = ours.get(name)?;
        let listed = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        // A version follows the name where the file has several.
        let names = listed.filter_map(|entry| entry.as_str()?.split(' ').next());
        let locked: BTreeSet<String> = names.map(str::to_owned).collect();
        (!declared.always.is_subset(&locked) || !locked.is_subset(&declared.all)).then_some(name)
    });
    let message = |name| {
        let folder = file.trim_end_matches("Cargo.lock");
        format!("stale for `{name}`: run `cargo update --workspace --manifest-path {folder}Cargo.toml`")
    };
    stale.map(|name| Finding::new(file, 0, message(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(manifest: &str, locked: &str) -> bool {
        let ours = BTreeMap::from([("a".to_owned(), dependencies(&manifest.parse().unwrap()))]);
        let lock = format!("[[package]]\nname = \"a\"\ndependencies = [{locked}]\n");
        !compare("b/Cargo.lock", &lock.parse().unwrap(), &ours).is_empty()
    }

    #[test]
    fn a_lock_that_agrees_is_fine() {
        let manifest = "[dependencies]\nbytes = \"1\"\nx = { package = \"y\", version = \"1\" }\n\
                        sled = { version = \"1\", optional = true }\n[dev-dependencies]\nz = \"1\"\n";
        assert!(!stale(manifest, "\"bytes\", \"y 1.0.0\""));
        assert!(!stale(manifest, "\"bytes\", \"sled\", \"y\""));
    }

    #[test]
    fn a_missing_and_a_superfluous_dependency_are_found() {
        let manifest = "[dependencies]\nbytes = \"1\"\n";
        assert!(stale(manifest, ""));
        assert!(stale(manifest, "\"bytes\", \"gone\""));
    }
}
