//! The simulator's program: building it, and running one seed.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use terrane_lab::{Running, builds};

/// A run takes seconds; one that takes this long never ends.
const RUN_MAX: Duration = Duration::from_secs(180);

/// The simulator, built.
pub struct Program {
    path: PathBuf,
    root: PathBuf,
}

/// How one run ended.
pub struct Run {
    pub seed: u64,
    /// Its whole standard output.
    pub output: String,
    pub ending: Ending,
}

/// The verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Held,
    Broken,
    NotProven,
}

impl Run {
    /// The line with the verdict.
    pub fn last_line(&self) -> &str {
        self.output.lines().last().unwrap_or("no output")
    }
}

impl Program {
    /// Builds the simulator; prints why it cannot be built.
    pub fn built(root: &Path) -> Option<Program> {
        let mut build = builds::cargo(root);
        build
            .args(["build", "--quiet", "--locked", "--profile", "sim", "--package", "terrane-simulator"])
            .args(["--bin", "terrane-sim", "--features", "sim"])
            .stdout(std::io::stderr());
        if builds::succeeds(&mut build) {
            let path = builds::target_directory(root).join("sim").join("terrane-sim");
            return Some(Program { path, root: root.to_owned() });
        }
        eprintln!("the simulator does not build");
        None
    }

    /// Runs it with these words; its output and exit status are passed on.
    pub fn pass_through(&self, words: &[String]) -> ExitCode {
        match self.command(words).status() {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            // A run ended by a signal has no code and counts as failed.
            Ok(status) => {
                status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
            }
            Err(error) => {
                eprintln!("cannot run {}: {error}", self.path.display());
                ExitCode::FAILURE
            }
        }
    }

    /// Runs one seed.
    pub fn run(&self, seed: u64, words: &[String]) -> Run {
        match self.output(&[&["--seed".to_owned(), seed.to_string()], words].concat()) {
            Ok(Output { status, stdout, stderr }) => {
                let mut output = String::from_utf8_lossy(&stdout).into_owned();
                let last = output.lines().last().unwrap_or_default();
                let ending = match (status.success(), last.starts_with(&format!("seed {seed} NOT PROVEN"))) {
                    (true, _) => Ending::Held,
                    (false, true) => Ending::NotProven,
                    (false, false) => Ending::Broken,
                };
                if ending != Ending::Held && !last.starts_with(&format!("seed {seed} ")) {
                    let complaint = String::from_utf8_lossy(&stderr);
                    let complaint = complaint.lines().last().unwrap_or_default();
                    output.push_str(&format!("\nseed {seed} BROKEN: ended with {status} {complaint}"));
                }
                Run { seed, output, ending }
            }
            Err(error) => {
                let output = format!("seed {seed} BROKEN: cannot run {}: {error}", self.path.display());
                Run { seed, output, ending: Ending::Broken }
            }
        }
    }

    /// The lines that the program prints for `FLAG list`; none if it cannot be run, which its runs report.
    pub fn listed(&self, flag: &str) -> Vec<String> {
        let output = self.output(&[flag.to_owned(), "list".to_owned()]).map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).lines().map(str::to_owned).collect()
    }

    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        // A tenth of a run would be spent on memory that is returned to the system and asked for once more.
        command.args(words).current_dir(&self.root).env("MIMALLOC_PURGE_DELAY", "-1");
        command
    }

    /// The output of the program with these words. It is killed when it takes far longer than any run: a task of a node that
    /// never yields stops simulated time.
    fn output(&self, words: &[String]) -> anyhow::Result<Output> {
        Running::start(&mut self.command(words), RUN_MAX)?.finish()
    }
}
