//! `tool check`: verifies the data directories of stopped processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use terrane_env::fs::{self, DirLock, LockError};
use terrane_types::Inspection;
use terrane_types::inspection::{Finding, Watcher};
use tokio::time::Instant;

use crate::args::tool::Check;
use crate::failure::Failure;
use crate::output::{Output, bytes_rounded, grouped};

/// Interval of progress lines.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// Which process a data directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Master,
    Server,
}

pub async fn run(args: Check) -> Result<(), Failure> {
    let roles = find_roles(&args.directory).await?;
    if roles.is_empty() {
        let what = format!("{} is not the data directory of a master or a region server", args.directory.display());
        return Err(Failure::new(what).advise("pass the directory that the process uses as --data"));
    }
    // Lock all directories before reading any: a process that starts now would change what is being verified.
    let mut locks = Vec::new();
    for (directory, _) in &roles {
        locks.push(DirLock::acquire(directory).await.map_err(locked)?);
    }
    let mut inspection = Inspection::new(Some(watcher()));
    for (directory, role) in &roles {
        match role {
            Role::Master => terrane_master::check(directory, &mut inspection).await,
            Role::Server => terrane_regionserver::check(directory, &mut inspection).await,
        }
    }
    drop(locks);
    report(&inspection, args.json)?;
    match inspection.damages() {
        0 => Ok(()),
        damages => Err(Failure::new(format!("{damages} damaged places found in {}", args.directory.display())).advise(
            "do not start the process on it, and keep the other servers running: they have the same regions. Replace the \
             directory only with a copy made after the process last stopped; an older copy lacks writes that this \
             server acknowledged",
        )),
    }
}

/// The directory, or its subdirectories, that belong to a process.
async fn find_roles(directory: &Path) -> Result<Vec<(PathBuf, Role)>, Failure> {
    if let Some(role) = role_of(directory).await? {
        return Ok(vec![(directory.to_owned(), role)]);
    }
    let names = fs::list(directory).await.map_err(|error| unreadable(directory, &error))?;
    let mut roles = Vec::new();
    for path in names.iter().map(|name| directory.join(name)) {
        if let Some(role) = role_of(&path).await? {
            roles.push((path, role));
        }
    }
    Ok(roles)
}

async fn role_of(directory: &Path) -> Result<Option<Role>, Failure> {
    let unreadable = |error: std::io::Error| unreadable(directory, &error);
    if is_directory(directory).await {
        if terrane_regionserver::is_data_directory(directory).await.map_err(unreadable)? {
            return Ok(Some(Role::Server));
        }
        if terrane_master::is_data_directory(directory).await.map_err(unreadable)? {
            // `dev` keeps its master's data in a directory of the name that marks one.
            let is_mark = is_directory(&directory.join("master")).await;
            return Ok((!is_mark).then_some(Role::Master));
        }
    }
    Ok(None)
}

async fn is_directory(path: &Path) -> bool {
    fs::list(path).await.is_ok()
}

fn unreadable(directory: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot read {}: {error}", directory.display()))
}

fn locked(error: LockError) -> Failure {
    let advice = match error {
        LockError::Held { .. } => "stop the process first: files that change during the check would look damaged",
        LockError::Io { .. } => "the check has to lock the directory while it reads",
    };
    Failure::new(error.to_string()).advise(advice)
}

/// Prints progress on standard error if the check takes long.
fn watcher() -> Watcher {
    let (mut files, mut read) = (0, 0);
    let mut said = Instant::now();
    Box::new(move |kind, path, bytes| {
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            let (files, read) = (grouped(files), bytes_rounded(read));
            eprintln!("verified {files} files, {read}; next: {kind} {}", path.display());
        }
        files += 1;
        read += bytes;
    })
}

#[derive(Serialize)]
struct FindingLine<'a> {
    severity: String,
    file: String,
    offset: u64,
    what: &'a str,
}

#[derive(Serialize)]
struct KindLine {
    kind: &'static str,
    files: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct SummaryLine {
    whole: bool,
    damages: usize,
    warnings: usize,
    files: u64,
    bytes: u64,
}

fn report(inspection: &Inspection, json: bool) -> Result<(), Failure> {
    let mut output = Output::new(json);
    let line = |finding: &Finding| {
        format!("{}: {} at {}: {}", finding.severity, finding.file.display(), finding.offset, finding.what)
    };
    for finding in inspection.findings() {
        if json {
            let (severity, file) = (finding.severity.to_string(), finding.file.display().to_string());
            output.object(&FindingLine { severity, file, offset: finding.offset, what: &finding.what })?;
        } else {
            output.line(&line(finding))?;
        }
    }
    let totals = inspection.totals();
    if json {
        for (kind, totals) in totals {
            output.object(&KindLine { kind, files: totals.files, bytes: totals.bytes })?;
        }
    } else {
        let rows = totals
            .iter()
            .map(|(kind, totals)| vec![(*kind).to_owned(), grouped(totals.files), bytes_rounded(totals.bytes)]);
        output.table(&["kind", "files", "bytes"], rows.collect())?;
    }
    let damages = inspection.damages();
    let summary = SummaryLine {
        whole: damages == 0,
        damages,
        warnings: inspection.findings().len() - damages,
        files: totals.values().map(|totals| totals.files).sum(),
        bytes: totals.values().map(|totals| totals.bytes).sum(),
    };
    if json {
        output.object(&summary)?;
    } else {
        let state = if summary.whole { "whole" } else { "damaged" };
        output.line(&format!("{state}: {damages} damages, {} warnings", summary.warnings))?;
    }
    output.flush()
}
