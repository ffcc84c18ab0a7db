//! Import arrows between the files of a crate.
//!
//! File `a` points to file `b` when its code names an item that `b` defines, by `use` or by an inline path; names that
//! reach the item through a re-export count for the file that defines it. Arrows must not form a cycle, with one
//! exception: a module and its direct children may know each other, because the parent declares the children and they
//! use what the parent provides. Among siblings, and beyond one family, a cycle is a finding.
//!
//! - [`source`] reads one file: declared modules and items, imports, paths. Test code is skipped.
//! - [`tree`] follows `mod` declarations from a crate's root and resolves names to files.
//! - [`knots`] finds cycles and describes them.
//!
//! Method calls, trait implementations and code that macros generate are invisible here, so a clean result means that
//! the names are acyclic, not that every call is.

mod knots;
mod source;
mod tree;

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::finding::Finding;
use tree::Crate;

/// Crates whose cycles are still being untied. Remove a crate once `cargo xtask tidy --arrows CRATE` prints none.
const STILL_KNOTTED: &[&str] = &[];

/// Checks every crate of the workspace.
pub fn examine(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for member in super::arrows::members(root)? {
        if STILL_KNOTTED.contains(&member.as_str()) {
            continue;
        }
        for unit in read_units(root, &member)? {
            findings.extend(unit.knots().iter().map(|knot| knot.finding(&unit)));
        }
    }
    Ok(findings)
}

/// All cycles of one crate, given by its folder or package name.
pub fn describe(root: &Path, name: &str) -> anyhow::Result<String> {
    let wanted = name.strip_prefix("terrane-").unwrap_or(name);
    let members = super::arrows::members(root)?;
    let member = members.iter().find(|member| *member == wanted || member.replace('/', "-") == wanted);
    let member = member.with_context(|| format!("no crate `{name}` in the workspace; its folders are {members:?}"))?;
    let mut text = String::new();
    for unit in read_units(root, member)? {
        text.push_str(&knots::describe(&unit));
    }
    Ok(text)
}

/// A crate's library and binaries, from the sources in `src/`.
fn read_units(root: &Path, member: &str) -> anyhow::Result<Vec<Crate>> {
    let source = root.join(member).join("src");
    let mut roots: Vec<_> = ["lib.rs", "main.rs"].iter().map(|name| source.join(name)).collect();
    if let Ok(programs) = fs::read_dir(source.join("bin")) {
        roots.extend(programs.filter_map(|entry| entry.ok().map(|entry| entry.path())));
    }
    roots.retain(|file| file.is_file() && file.extension().is_some_and(|extension| extension == "rs"));
    roots.sort();
    roots.iter().map(|file| Crate::read(root, file)).collect()
}

#[cfg(test)]
mod tests;
