//! Lock files agree with the manifests of our crates.
//!
//! Cargo checks this with `--locked` for what it builds. The RocksDB benchmark is rarely built, and its lock file contains crates
//! of this workspace, so a new dependency or feature of one of them makes it stale unnoticed. Only Cargo can tell: it resolves
//! features, too. It is asked to lock what the manifests name and forbidden to change the file, which downloads no crate.

use std::path::Path;

use terrane_lab::builds::cargo;

use super::finding::Finding;

/// What Cargo says of a lock file that it would change.
const STALE: &str = "because --locked was passed";

/// Asks Cargo about every lock file among the files.
pub fn examine(root: &Path, files: &[String]) -> Vec<Finding> {
    let locks = files.iter().filter(|file| file.rsplit('/').next() == Some("Cargo.lock"));
    locks.filter_map(|file| stale(root, file)).collect()
}

/// A finding if the lock file is stale. Without an index of the registry on this machine and without a network, it is not known.
fn stale(root: &Path, file: &str) -> Option<Finding> {
    let folder = file.strip_suffix("Cargo.lock")?;
    let locked = |more: &[&str]| {
        let manifest = format!("{folder}Cargo.toml");
        cargo(root).args(["update", "--workspace", "--locked", "--manifest-path", &manifest]).args(more).output()
    };
    if locked(&["--offline"]).is_ok_and(|output| output.status.success()) {
        return None;
    }
    let errors = match locked(&[]) {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    if errors.contains(STALE) {
        let message = format!("is stale: run `cargo update --workspace --manifest-path {folder}Cargo.toml`");
        return Some(Finding::new(file, 0, message));
    }
    eprintln!("{file} is not checked: {}", errors.trim());
    None
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lock_that_lacks_a_dependency_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let package = |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2024\"\n");
        write("beside/Cargo.toml", &package("beside"));
        write("beside/src/lib.rs", "");
        write("room/src/lib.rs", "");
        write("room/Cargo.toml", &package("room"));
        write("room/Cargo.lock", "version = 4\n\n[[package]]\nname = \"room\"\nversion = \"1.0.0\"\n");
        let files = ["room/Cargo.lock".to_owned(), "room/Cargo.toml".to_owned()];
        assert!(examine(folder.path(), &files).is_empty());
        write("room/Cargo.toml", &format!("{}[dependencies]\nbeside = {{ path = \"../beside\" }}\n", package("room")));
        let findings = examine(folder.path(), &files);
        assert_eq!(findings.iter().map(|finding| finding.file.as_str()).collect::<Vec<_>>(), ["room/Cargo.lock"]);
    }
}
