//! `cargo xtask quick [CRATE ..]`: what is worth running after each change.
//!
//! Format, tidy, then clippy and tests of the crates that changed: those named, or those with files that differ from the last
//! commit, or, in a clean checkout, those of the last commit. Crates that depend on them are left to `check`, and so are tests
//! that start processes. What was left out is printed, so that a green `quick` is not taken for more than it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::changes;
use terrane_lab::builds::cargo;

/// Crates whose integration tests start processes or whole clusters, which takes minutes: `quick` runs their unit tests.
const SLOW_TESTS: &[&str] = &[
    "terrane",
    "terrane-tests",
    "terrane-regionserver",
    "terrane-fuzz",
    "terrane-raft",
    "terrane-engine",
    "terrane-simulator",
];

/// A crate of the workspace.
#[derive(Debug, Default)]
struct Member {
    /// Its folder, relative to the checkout.
    folder: String,
    /// The crates of the workspace that it depends on.
    needs: BTreeSet<String>,
    /// The kinds of targets that have unit tests, as cargo's flags name them.
    units: Vec<&'static str>,
}

/// What `quick` runs, and what it leaves out.
#[derive(Debug, Default)]
pub struct Selection {
    /// The crates to lint and test.
    pub crates: Vec<String>,
    /// Those of which only unit tests run, each with the flags that select them; none if it has no unit tests.
    units_only: Vec<(String, Vec<&'static str>)>,
    /// The crates that depend on them, which are left to `check`.
    pub dependants: Vec<String>,
}

impl Selection {
    /// The crates named, or those that changed.
    pub fn of(root: &Path, named: &[String]) -> anyhow::Result<Selection> {
        let members = members(root)?;
        let crates = if named.is_empty() {
            let changed = changes::of_last_commit(root)?;
            crates_of(&members, changed.iter().map(String::as_str))
        } else {
            named.iter().map(|name| find(&members, name)).collect::<anyhow::Result<_>>()?
        };
        Ok(select(&members, &crates))
    }

    /// The arguments that name the crates to cargo. The first one gives external crates the features that they have in other builds.
    pub fn packages(&self) -> Vec<String> {
        packages(&self.crates)
    }

    /// Commands that run the tests: of some crates all of them, of others those that take seconds.
    pub fn tests(&self, root: &Path) -> Vec<Command> {
        let is_whole = |name: &&String| !self.units_only.iter().any(|(other, _)| other == *name);
        let whole: Vec<String> = self.crates.iter().filter(is_whole).cloned().collect();
        let test = |crates: &[String], kinds: &[&str]| {
            let mut command = cargo(root);
            command.args(["test", "--quiet", "--locked"]).args(kinds).args(packages(crates));
            command
        };
        let mut commands = Vec::new();
        if !whole.is_empty() {
            commands.push(test(&whole, &[]));
        }
        let units = self.units_only.iter().filter(|(_, kinds)| !kinds.is_empty());
        commands.extend(units.map(|(name, kinds)| test(std::slice::from_ref(name), kinds)));
        commands
    }

    /// What `check` would run in addition.
    pub fn left_out(&self) -> String {
        let mut left = vec![
            "documents, the book, the simulator, interleavings, packages, examples, other clients and chaos".to_owned(),
        ];
        if !self.units_only.is_empty() {
            let names: Vec<&str> = self.units_only.iter().map(|(name, _)| name.as_str()).collect();
            left.push(format!("the integration tests of {}", names.join(", ")));
        }
        if !self.dependants.is_empty() {
            left.push(format!("clippy and tests of what depends on these: {}", self.dependants.join(", ")));
        }
        format!("`cargo xtask check` adds: {}", left.join("; "))
    }
}

fn select(members: &BTreeMap<String, Member>, crates: &BTreeSet<String>) -> Selection {
    let mut reached = crates.clone();
    while let Some(next) = members
        .iter()
        .find(|(name, member)| !reached.contains(*name) && member.needs.iter().any(|needed| reached.contains(needed)))
    {
        reached.insert(next.0.clone());
    }
    let slow = crates.iter().filter(|name| SLOW_TESTS.contains(&name.as_str()));
    Selection {
        crates: crates.iter().cloned().collect(),
        units_only: slow.map(|name| (name.clone(), members[name].units.clone())).collect(),
        dependants: reached.difference(crates).cloned().collect(),
    }
}

fn find(members: &BTreeMap<String, Member>, named: &str) -> anyhow::Result<String> {
    let is_it = |(name, member): &(&String, &Member)| {
        *name == named || member.folder == named.trim_end_matches('/') || **name == format!("terrane-{named}")
    };
    match members.iter().find(is_it) {
        Some((name, _)) => Ok(name.clone()),
        None => bail!(
            "{named} is no crate of the workspace; there are {}",
            members.keys().cloned().collect::<Vec<_>>().join(", ")
        ),
    }
}

/// The crates that hold these files.
fn crates_of<'a>(members: &BTreeMap<String, Member>, files: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let holds =
        |member: &Member, file: &str| file.strip_prefix(&member.folder).is_some_and(|rest| rest.starts_with('/'));
    // A crate may lie in the folder of another one: the longest folder wins.
    let owner = |file: &str| {
        let holding = members.iter().filter(|(_, member)| holds(member, file));
        holding.max_by_key(|(_, member)| member.folder.len()).map(|(name, _)| name.clone())
    };
    files.filter_map(owner).collect()
}

fn members(root: &Path) -> anyhow::Result<BTreeMap<String, Member>> {
    let mut command = cargo(root);
    let output = command
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
        .output()
        .context("running cargo")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo's metadata")?;
    let packages = metadata["packages"].as_array().context("cargo's metadata has no packages")?;
    packages.iter().map(|package| member(root, package)).collect()
}

fn member(root: &Path, package: &Value) -> anyhow::Result<(String, Member)> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("a package without a name or a path");
    let (name, manifest) = (text(&package["name"])?, text(&package["manifest_path"])?);
    let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
    let folder = folder.context("a crate of the workspace is outside the checkout")?.display().to_string();
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let needs = dependencies.filter(|needed| needed["path"].is_string()).map(|needed| text(&needed["name"]));
    let targets = package["targets"].as_array().into_iter().flatten();
    let mut units: Vec<&str> = targets
        .filter_map(|target| match target["kind"][0].as_str()? {
            "lib" | "proc-macro" => Some("--lib"),
            "bin" => Some("--bins"),
            _ => None,
        })
        .collect();
    units.dedup();
    Ok((name, Member { folder, needs: needs.collect::<anyhow::Result<_>>()?, units }))
}

fn packages(crates: &[String]) -> Vec<String> {
    let named = crates.iter().flat_map(|name| ["--package".to_owned(), name.clone()]);
    let shared = (!crates.is_empty()).then(|| ["--package", "terrane-shared-features"].map(str::to_owned));
    shared.into_iter().flatten().chain(named).collect()
}

/// Prints why nothing can be selected.
pub fn refused(error: &anyhow::Error) -> ExitCode {
    eprintln!("quick: {error:#}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> BTreeMap<String, Member> {
        let crates = [
            ("terrane-types", "types", &[][..]),
            ("terrane-types-derive", "types/derive", &[]),
            ("terrane-engine", "engine", &["terrane-types"]),
            ("terrane", "cli", &["terrane-engine"]),
            ("terrane-tests", "tests", &["terrane"]),
        ];
        let units = |name: &str| match name {
            "terrane-tests" => Vec::new(),
            "terrane" => vec!["--bins"],
            _ => vec!["--lib"],
        };
        let member = |name: &str, folder: &str, needs: &[&str]| Member {
            folder: folder.to_owned(),
            needs: needs.iter().map(|name| (*name).to_owned()).collect(),
            units: units(name),
        };
        crates.map(|(name, folder, needs)| (name.to_owned(), member(name, folder, needs))).into()
    }

    #[test]
    fn a_file_belongs_to_the_innermost_crate_around_it() {
        let files = ["types/derive/src/lib.rs", "engine/src/lib.rs", "engines/x.rs", "README.md"];
        let crates = crates_of(&workspace(), files.into_iter());
        assert_eq!(crates.into_iter().collect::<Vec<_>>(), ["terrane-engine", "terrane-types-derive"]);
    }

    #[test]
    fn what_depends_on_a_changed_crate_is_named_and_not_run() {
        let selection = select(&workspace(), &["terrane-types".to_owned()].into());
        assert_eq!(selection.crates, ["terrane-types"]);
        assert_eq!(selection.dependants, ["terrane", "terrane-engine", "terrane-tests"]);
        assert!(selection.left_out().ends_with("what depends on these: terrane, terrane-engine, terrane-tests"));
        let selection = select(&workspace(), &["terrane".to_owned(), "terrane-types".to_owned()].into());
        let commands = selection.tests(Path::new("/"));
        let arguments = |command: &Command| -> Vec<String> {
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(
            arguments(&commands[0]).join(" "),
            "test --quiet --locked --package terrane-shared-features --package terrane-types"
        );
        // Its integration tests start processes, and it has no library, which cargo would refuse to test.
        let units = "test --quiet --locked --bins --package terrane-shared-features --package terrane";
        assert_eq!(arguments(&commands[1]).join(" "), units);
        let selection = select(&workspace(), &["terrane-tests".to_owned()].into());
        assert!(selection.tests(Path::new("/")).is_empty(), "it has nothing else");
        assert!(selection.left_out().contains("the integration tests of terrane-tests"));
    }

    #[test]
    fn a_crate_is_named_by_its_name_its_folder_or_without_the_prefix() {
        for name in ["terrane-engine", "engine", "engine/"] {
            assert_eq!(find(&workspace(), name).unwrap(), "terrane-engine");
        }
        assert_eq!(find(&workspace(), "cli").unwrap(), "terrane");
        assert!(find(&workspace(), "engin").unwrap_err().to_string().contains("there are terrane, terrane-engine"));
    }
}
