//! What changed recently, according to git; checks that this cannot affect are skipped.
//!
//! Where git cannot tell, as in an exported tree or in a shallow clone, everything counts as changed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// How many commits are recent: more than a branch usually has when it lands.
const RECENT_COMMITS: u32 = 30;

/// The files that recent commits changed, and those that differ from the last commit.
#[derive(Debug)]
pub struct Recent {
    /// `None`: unknown, so all of them.
    files: Option<Vec<String>>,
    /// How many commits there are; it selects the rotating planted bugs.
    pub commits: usize,
}

impl Recent {
    /// Asks git.
    pub fn of(root: &Path) -> Recent {
        let read = || -> anyhow::Result<(Vec<String>, usize)> {
            ensure!(git(root, &["rev-parse", "--is-shallow-repository"])? == ["false"], "the clone is shallow");
            ensure!(
                git(root, &["rev-parse", "--show-prefix"])?.is_empty(),
                "the checkout is part of another repository"
            );
            let since = format!("HEAD~{RECENT_COMMITS}");
            let mut files = git(root, &["diff", "--name-only", "--no-renames", &since])?;
            files.extend(uncommitted(root)?);
            let commits = git(root, &["rev-list", "--count", "HEAD"])?;
            let commits = commits.first().and_then(|count| count.parse().ok()).context("git counts no commits")?;
            Ok((files, commits))
        };
        match read() {
            Ok((files, commits)) => Recent { files: Some(files), commits },
            Err(error) => {
                println!("everything counts as changed: {error:#}");
                Recent { files: None, commits: 0 }
            }
        }
    }

    /// Whether a file changed for which this holds.
    pub fn any(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.files.as_ref().is_none_or(|files| files.iter().any(|file| is_meant(file)))
    }

    /// The sources that changed, as far as they are still there; `None`: all may have.
    pub fn sources(&self, root: &Path) -> Option<Vec<String>> {
        let files = self.files.as_ref()?.iter().filter(|file| file.ends_with(".rs"));
        Some(files.filter_map(|file| std::fs::read_to_string(root.join(file)).ok()).collect())
    }
}

/// Files that differ from the last commit; if none does, those that it changed.
pub fn of_last_commit(root: &Path) -> anyhow::Result<Vec<String>> {
    let changed = uncommitted(root)?;
    if changed.is_empty() { git(root, &["diff", "--name-only", "--no-renames", "HEAD~1", "HEAD"]) } else { Ok(changed) }
}

fn uncommitted(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut changed = git(root, &["diff", "--name-only", "--no-renames", "HEAD"])?;
    changed.extend(git(root, &["ls-files", "--others", "--exclude-standard"])?);
    Ok(changed)
}

/// The lines that git prints.
fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").current_dir(root).args(arguments).output().context("running git")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), errors.trim_end());
    let text = String::from_utf8(output.stdout).context("reading what git printed")?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_a_repository_everything_counts_as_changed() {
        let folder = tempfile::tempdir().unwrap();
        let recent = Recent::of(folder.path());
        assert!(recent.any(|_| false));
        assert!(recent.sources(folder.path()).is_none());
    }
}
