//! The steps of `check`, `quick` and `fix`. Each prints its duration; the first failure ends the run.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::changes::Recent;
use crate::quick::{self, Selection};
use crate::{book, examples, interleavings, lab, manifests, package, python, simulator, tidy};
use terrane_lab::builds::{cargo, succeeds};

/// One step: its name, and a function that returns whether it succeeded.
type Step<'a> = (&'static str, Box<dyn Fn() -> bool + 'a>);

/// What CI requires. Writes only to the target directory. Without `all`, it skips slow steps that recent commits are unlikely to
/// affect: planted bugs in unchanged files, packages, manifests, HBase's client, and the documents of crates that are not
/// published.
pub fn check(root: &Path, all: bool) -> ExitCode {
    let cargo = |arguments: &'static [&'static str]| -> Box<dyn Fn() -> bool + '_> {
        Box::new(move || succeeds(cargo(root).args(arguments)))
    };
    let recent = Recent::of(root);
    let changed = |is_meant: fn(&str) -> bool| all || recent.any(is_meant);
    let planted = (!all).then_some(&recent);
    let mut steps: Vec<Step<'_>> = vec![
        ("format", cargo(&["fmt", "--all", "--check"])),
        ("clippy", cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])),
        ("documents", Box::new(move || documents_succeed(root, all))),
        ("tidy", Box::new(move || tidy_succeeds(root))),
        ("book", Box::new(move || book::succeeds(root))),
        ("tests", Box::new(move || tests_succeed(root))),
        ("simulated environment", Box::new(move || succeeds(&mut simulator::env_test(root)))),
        ("simulator", Box::new(move || simulator::ci_succeeds(root, planted))),
        ("interleavings", Box::new(move || succeeds(&mut interleavings::test(root)))),
    ];
    if changed(package::is_about) {
        steps.push(("packages", Box::new(move || package::succeed(root))));
    }
    if changed(manifests::is_about) {
        steps.push(("manifests", Box::new(move || manifests::check_succeeds(root))));
    }
    // After the tests, which build what these run.
    steps.push(("examples", Box::new(move || examples::succeed(root))));
    steps.push(("python", Box::new(move || python::check_succeeds(root))));
    if changed(lab::is_about_hbase) {
        steps.push(("HBase's client", Box::new(move || lab::hbase_succeeds(root))));
    }
    steps.push(("chaos", Box::new(move || lab::chaos_succeeds(root))));
    let verdict = run(&steps);
    let names = ["packages", "manifests", "HBase's client"];
    let skipped = names.into_iter().filter(|name| !steps.iter().any(|(step, _)| step == name));
    let documents = (!all).then_some("documents of crates that are not published");
    let skipped: Vec<&str> = skipped.chain(documents).collect();
    if !skipped.is_empty() {
        println!("skipped: {} (`check --all` runs everything)", skipped.join(", "));
    }
    verdict
}

/// What is worth running after each change: of the crates named, or of those that changed.
pub fn quick(root: &Path, named: &[String]) -> ExitCode {
    let selection = match Selection::of(root, named) {
        Ok(selection) => selection,
        Err(error) => return quick::refused(&error),
    };
    println!("crates: {}", if selection.crates.is_empty() { "none".to_owned() } else { selection.crates.join(", ") });
    let packages = selection.packages();
    let clippy = || {
        let mut command = cargo(root);
        command.args(["clippy", "--locked", "--all-targets", "--quiet"]).args(&packages).args(["--", "-D", "warnings"]);
        packages.is_empty() || succeeds(&mut command)
    };
    let verdict = run(&[
        ("format", Box::new(move || succeeds(cargo(root).args(["fmt", "--all", "--check"])))),
        ("tidy", Box::new(move || tidy_succeeds(root))),
        ("clippy", Box::new(clippy)),
        ("tests", Box::new(|| selection.tests(root).iter_mut().all(succeeds))),
    ]);
    println!("{}", selection.left_out());
    verdict
}

/// Applies mechanical fixes.
pub fn fix(root: &Path) -> ExitCode {
    run(&[
        ("format", Box::new(move || succeeds(cargo(root).args(["fmt", "--all"])))),
        ("documents", Box::new(move || reported(tidy::write_documents(root)))),
    ])
}

/// Checks only the repository's own rules.
pub fn tidy_alone(root: &Path) -> ExitCode {
    run(&[("tidy", Box::new(move || tidy_succeeds(root)))])
}

/// Builds only the book.
pub fn book_alone(root: &Path) -> ExitCode {
    run(&[("book", Box::new(move || book::succeeds(root)))])
}

/// Prints the import cycles between the files of one crate.
pub fn arrows(root: &Path, package: &str) -> ExitCode {
    match tidy::describe_modules(root, package) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot read the crate's modules: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs only the Rust examples.
pub fn examples_alone(root: &Path) -> ExitCode {
    run(&[("examples", Box::new(move || examples::succeed(root)))])
}

/// Checks only the files for Kubernetes and Compose.
pub fn manifests_alone(root: &Path) -> ExitCode {
    run(&[("manifests", Box::new(move || manifests::succeed(root)))])
}

/// Runs only the Python example.
pub fn python_alone(root: &Path) -> ExitCode {
    run(&[("python", Box::new(move || python::succeed(root)))])
}

fn run(steps: &[Step<'_>]) -> ExitCode {
    let begun = Instant::now();
    let mut times: Vec<(Duration, &str)> = Vec::new();
    for (name, step) in steps {
        println!("== {name}");
        let step_begun = Instant::now();
        let well = step();
        let verdict = if well { "ok" } else { "FAILED" };
        println!("== {name}: {verdict} ({:.1} s)", step_begun.elapsed().as_secs_f64());
        if !well {
            return ExitCode::FAILURE;
        }
        times.push((step_begun.elapsed(), name));
    }
    println!("all {} steps ok ({:.1} s)", steps.len(), begun.elapsed().as_secs_f64());
    if steps.len() > SLOWEST {
        println!("slowest: {}", slowest(times));
    }
    ExitCode::SUCCESS
}

/// How many of the slowest steps are named at the end.
const SLOWEST: usize = 5;

fn slowest(mut times: Vec<(Duration, &str)>) -> String {
    times.sort_by(|one, other| other.cmp(one));
    let named = times.iter().take(SLOWEST).map(|(took, name)| format!("{name} {:.0} s", took.as_secs_f64()));
    named.collect::<Vec<_>>().join(", ")
}

/// Whether it succeeded; reports why not.
fn reported(outcome: anyhow::Result<()>) -> bool {
    outcome.inspect_err(|error| eprintln!("{error:#}")).is_ok()
}

fn tidy_succeeds(root: &Path) -> bool {
    match tidy::examine(root) {
        Ok(report) => {
            print!("{report}");
            report.findings.is_empty()
        }
        Err(error) => {
            eprintln!("tidy cannot read the checkout: {error:#}");
            false
        }
    }
}

/// Compiles the tests, and begins to run them when the disk is idle again: until then, a sync of a log waits for gigabytes of
/// what was compiled, and a cluster has no quorum for tens of seconds.
fn tests_succeed(root: &Path) -> bool {
    let tests = || {
        let mut command = cargo(root);
        command.args(["test", "--workspace", "--quiet", "--locked"]);
        command
    };
    succeeds(tests().arg("--no-run")) && succeeds(&mut Command::new("sync")) && succeeds(&mut tests())
}

/// Of the published crates, which are what others read, or of all.
fn documents_succeed(root: &Path, all: bool) -> bool {
    let mut command = cargo(root);
    command.args(["doc", "--locked", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    if all {
        command.arg("--workspace");
    } else {
        command.args(package::PUBLISHED.iter().flat_map(|name| ["--package", name]));
    }
    succeeds(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_steps_come_first() {
        let times =
            (1..=6).map(|seconds| (Duration::from_secs(seconds), ["a", "b", "c", "d", "e", "f"][seconds as usize - 1]));
        assert_eq!(slowest(times.collect()), "f 6 s, e 5 s, d 4 s, c 3 s, b 2 s");
    }
}
