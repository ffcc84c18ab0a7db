//! `cargo xtask package`: the crates that are published, as their users get them.
//!
//! Two checks. The client's dependencies stay few and free of what only servers need: features of a workspace build are the
//! union of all its crates, so a dependency that belongs behind a feature goes unnoticed there. And the packages compile from
//! what they contain, against each other, with the features that they ask for themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context, ensure};

use terrane_lab::builds::{cargo, succeeds, target_directory};

/// The client and the crates of this workspace that it depends on.
pub const PUBLISHED: [&str; 6] =
    ["terrane-types-derive", "terrane-types", "terrane-filter", "terrane-env", "terrane-proto", "terrane-client"];
/// The most packages in the client's tree, its own included.
const CLIENT_PACKAGES_MAX: usize = 100;
/// What has no place in a client.
const SERVERS_ONLY: [&str; 4] = ["axum", "tonic-health", "tonic-reflection", "async-stream"];

/// Whether a change of this file can change what the packages contain or depend on: manifests, and this list. A source that compiles
/// only in the workspace is found by `check --all`.
pub fn is_about(file: &str) -> bool {
    file.ends_with("Cargo.toml") || file == "Cargo.lock" || file == "xtask/src/package.rs"
}

/// Runs both checks.
pub fn run(root: &Path) -> ExitCode {
    if succeed(root) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether both checks succeed; reports why not.
pub fn succeed(root: &Path) -> bool {
    let checked = check_client_tree(root);
    checked.inspect_err(|error| eprintln!("package: {error:#}")).is_ok() && packages_compile(root)
}

/// Checks the packages that a program with the client compiles.
fn check_client_tree(root: &Path) -> anyhow::Result<()> {
    let mut command = cargo(root);
    command.args(["tree", "--locked", "--package", "terrane-client", "--edges", "normal", "--prefix", "none"]);
    let output = command.output().context("running cargo tree")?;
    ensure!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).context("reading the tree")?;
    let packages = packages(&tree);
    println!("the client's tree has {} packages; the limit is {CLIENT_PACKAGES_MAX}", packages.len());
    judge(&packages)
}

/// The packages of a tree as `NAME vVERSION`. A package that occurs again is marked with `(*)`.
fn packages(tree: &str) -> BTreeSet<&str> {
    let packages = tree.lines().map(|line| line.trim_end_matches(" (*)").split(" (").next().unwrap_or_default());
    packages.filter(|package| !package.is_empty()).collect()
}

fn judge(packages: &BTreeSet<&str>) -> anyhow::Result<()> {
    for unwanted in SERVERS_ONLY {
        let there = packages.iter().any(|package| package.split(' ').next() == Some(unwanted));
        ensure!(
            !there,
            "the client depends on {unwanted}, which only servers need: put it behind the feature `server` \
             (`cargo tree -p terrane-client -e normal -i {unwanted}` shows by which way it came)"
        );
    }
    ensure!(
        packages.len() <= CLIENT_PACKAGES_MAX,
        "the client's tree has {} packages; the limit is {CLIENT_PACKAGES_MAX}",
        packages.len()
    );
    Ok(())
}

/// Makes the packages and compiles them, without publishing.
fn packages_compile(root: &Path) -> bool {
    let target = target_directory(root).join("packages");
    if let Err(error) = forget_earlier_packages(&target) {
        eprintln!("package: {error:#}");
        return false;
    }
    let mut command = cargo(root);
    // A checkout with changes is packaged as it is.
    command.args(["package", "--locked", "--allow-dirty", "--quiet"]).arg("--target-dir").arg(&target);
    for package in PUBLISHED {
        command.args(["--package", package]);
    }
    // The check reads no debug information, and writing it takes a third of the time.
    succeeds(command.env("CARGO_PROFILE_DEV_DEBUG", "0"))
}

/// Removes what an earlier run left of the published packages: their unpacked sources and what was compiled of them.
///
/// Cargo takes a package of a registry for the same as long as its version is. The packages here change and keep their version,
/// so without this a package would be compiled against those of an earlier run. Dependencies stay compiled.
fn forget_earlier_packages(target: &Path) -> anyhow::Result<()> {
    for registry in entries(&cargo_home()?.join("registry").join("src"))? {
        // The names of the registries that `cargo package` makes for itself have no host in front of the hash.
        if file_name(&registry).starts_with('-') {
            remove_published(&registry)?;
        }
    }
    remove_published(&target.join("debug").join(".fingerprint"))
}

/// Removes the folders of published packages, `NAME-VERSION` or `NAME-HASH`, in `folder`.
fn remove_published(folder: &Path) -> anyhow::Result<()> {
    for entry in entries(folder)? {
        let name = file_name(&entry);
        if PUBLISHED.iter().any(|package| name.strip_prefix(package).is_some_and(|rest| rest.starts_with('-'))) {
            fs::remove_dir_all(&entry).with_context(|| format!("removing {}", entry.display()))?;
        }
    }
    Ok(())
}

/// The entries of a folder; none if it does not exist.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", folder.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(reading)?,
    };
    entries.map(|entry| Ok(entry.with_context(reading)?.path())).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Where cargo keeps what it has fetched and unpacked.
fn cargo_home() -> anyhow::Result<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("neither CARGO_HOME nor HOME is set")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "terrane-client v0.1.0 (/work/client)\nbytes v1.12.1\nsyn v2.0.1\nsyn v3.0.9 (proc-macro)\n\
                        tonic v0.14.9\nbytes v1.12.1\ntonic v0.14.9 (*)\n";

    #[test]
    fn a_package_counts_once_and_each_of_its_versions() {
        let expected = ["bytes v1.12.1", "syn v2.0.1", "syn v3.0.9", "terrane-client v0.1.0", "tonic v0.14.9"];
        assert_eq!(packages(TREE), BTreeSet::from(expected));
        assert!(judge(&packages(TREE)).is_ok());
    }

    #[test]
    fn what_only_servers_need_and_too_many_packages_are_refused() {
        let with_axum = format!("{TREE}axum v0.8.9\n");
        assert!(judge(&packages(&with_axum)).unwrap_err().to_string().contains("depends on axum"));
        // Only whole names count.
        let similar = format!("{TREE}axum-core v0.5.6\n");
        assert!(judge(&packages(&similar)).is_ok());
        let many: String = (0..=CLIENT_PACKAGES_MAX).map(|at| format!("p{at} v1.0.0\n")).collect();
        assert!(judge(&packages(&many)).unwrap_err().to_string().contains("101 packages"));
    }

    #[test]
    fn what_an_earlier_run_left_of_published_packages_is_removed_and_dependencies_stay() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["terrane-types-0.1.0", "terrane-types-derive-0cb809d3", "bytes-1.12.1", "terrane-bench-0.1.0"];
        for name in names {
            fs::create_dir(folder.path().join(name)).unwrap();
        }

        remove_published(folder.path()).unwrap();

        let mut left: Vec<_> = entries(folder.path()).unwrap().iter().map(|path| file_name(path)).collect();
        left.sort();
        assert_eq!(left, ["bytes-1.12.1", "terrane-bench-0.1.0"]);
        assert!(entries(&folder.path().join("missing")).unwrap().is_empty());
    }
}
