//! `cargo xtask manifests`: the files for Kubernetes and Compose against the schemas of their makers.
//!
//! `cli/tests/processes/deployment.rs` checks that the files agree with the binary; this checks that those who read them would accept
//! them: every field is one that Kubernetes or Compose knows, with a value of its type. The schemas come with packages pinned in
//! `deploy/requirements.txt`, so no cluster and no network is needed once these are installed. A copy of each file with a
//! misspelt field must be refused, or the check itself would be worth nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::virtual_environment::{self, Missing};

/// The pinned packages.
pub const PINS: &str = "deploy/requirements.txt";
const KUBERNETES: &str = "deploy/kubernetes/terrane.yaml";
const COMPOSE: &str = "deploy/docker/compose.yaml";
/// The oldest and the newest Kubernetes whose schema the manifests follow.
const KUBERNETES_VERSIONS: [&str; 2] = ["1.29", "1.37"];

/// Whether a change of this file can change the verdict.
pub fn is_about(file: &str) -> bool {
    file.starts_with("deploy/kubernetes")
        || file.starts_with("deploy/docker")
        || file == PINS
        || file == "xtask/src/manifests.rs"
}

/// As part of `check`: what is missing is a failure only in CI.
pub fn check_succeeds(root: &Path) -> bool {
    succeeds(root, std::env::var_os("CI").is_some())
}

/// On request: what is missing is a failure.
pub fn succeed(root: &Path) -> bool {
    succeeds(root, true)
}

fn succeeds(root: &Path, must_run: bool) -> bool {
    let outcome = match virtual_environment::programs(root, "manifests", PINS) {
        Ok(Ok(programs)) => check(root, &programs),
        Ok(Err(Missing(what))) => {
            let verdict = if must_run { "cannot be checked" } else { "skipped" };
            eprintln!("the manifests: {verdict}: {what}");
            return !must_run;
        }
        Err(error) => Err(error),
    };
    outcome.inspect_err(|error| eprintln!("the manifests: {error:#}")).is_ok()
}

fn check(root: &Path, programs: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("creating a directory")?;
    for version in KUBERNETES_VERSIONS {
        let validate = |file: &Path| {
            let mut command = Command::new(programs.join("kubernetes-validate"));
            command.args(["--strict", "--quiet", "--kubernetes-version", version]).arg(file);
            command
        };
        judge(root, folder.path(), KUBERNETES, ("serviceName:", "serviceNames:"), validate)?;
        println!("{KUBERNETES}: valid for Kubernetes {version}");
    }
    let validate = |file: &Path| {
        let mut command = Command::new(programs.join("check-jsonschema"));
        command.args(["--builtin-schema", "vendor.compose-spec"]).arg(file);
        command
    };
    judge(root, folder.path(), COMPOSE, ("stop_grace_period:", "stop_grace_periods:"), validate)?;
    println!("{COMPOSE}: valid for Compose");
    Ok(())
}

/// Accepts the file, and refuses it with a misspelt field.
fn judge(
    root: &Path,
    folder: &Path,
    file: &str,
    (field, misspelt): (&str, &str),
    validate: impl Fn(&Path) -> Command,
) -> anyhow::Result<()> {
    let text = fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
    if let Err(complaint) = verdict(&mut validate(&root.join(file)))? {
        bail!("{file} does not follow its schema:\n{complaint}");
    }
    ensure!(text.contains(field), "{file} has no `{field}` to misspell");
    let wrong = folder.join("misspelt.yaml");
    fs::write(&wrong, text.replace(field, misspelt)).context("writing a file")?;
    ensure!(
        verdict(&mut validate(&wrong))?.is_err(),
        "a copy of {file} with `{misspelt}` is not refused: the check is void"
    );
    Ok(())
}

/// What the program says of a file; the error is its complaint.
fn verdict(command: &mut Command) -> anyhow::Result<Result<(), String>> {
    let output = command.output().with_context(|| format!("running {:?}", command.get_program()))?;
    let said = [output.stdout, output.stderr].concat();
    Ok(if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_accepted_only_if_its_misspelt_copy_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.yaml"), "name: terrane\n").unwrap();
        let judged = |program: &str| {
            let run = |file: &Path| {
                let mut command = Command::new("sh");
                command.args(["-c", program, "sh"]).arg(file);
                command
            };
            judge(root.path(), root.path(), "a.yaml", ("name:", "names:"), run).map_err(|error| error.to_string())
        };
        assert_eq!(judged("! grep names: $1"), Ok(()));
        assert!(judged("true").unwrap_err().contains("not refused"));
        assert!(judged("echo bad; false").unwrap_err().contains("bad"));
    }
}
