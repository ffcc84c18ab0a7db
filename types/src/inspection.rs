//! What an offline look at the files of a stopped process finds.
//!
//! Each room verifies the files that it alone knows (log, engine, identity, catalog) and tells an [`Inspection`], which
//! adds up and remembers; who prints it knows no format. Nothing is decided in here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing that counts is lost. A torn tail, a file that nobody names.
    Warning,
    /// Bytes that counted are not what was written, or are gone.
    Damage,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Damage => "damage",
        })
    }
}

/// Something found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// Where in it, as near as can be told: the beginning of the smallest part that does not hold.
    pub offset: u64,
    /// What does not hold.
    pub what: String,
}

/// What was verified of one kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Told of every file that was verified, before it is read: its kind, its name and its bytes.
pub type Watcher = Box<dyn FnMut(&'static str, &Path, u64) + Send>;

/// The findings so far.
#[derive(Default)]
pub struct Inspection {
    totals: BTreeMap<&'static str, KindTotals>,
    findings: Vec<Finding>,
    watcher: Option<Watcher>,
}

impl Inspection {
    /// Nothing looked at yet; `watcher` is for showing progress.
    #[must_use]
    pub fn new(watcher: Option<Watcher>) -> Self {
        Self { watcher, ..Self::default() }
    }

    /// A file is being verified.
    pub fn looks_at(&mut self, kind: &'static str, file: &Path, bytes: u64) {
        let totals = self.totals.entry(kind).or_default();
        totals.files += 1;
        totals.bytes += bytes;
        if let Some(watcher) = &mut self.watcher {
            watcher(kind, file, bytes);
        }
    }

    /// Something that counted does not hold.
    pub fn damage(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.found(Severity::Damage, file, offset, what.into());
    }

    /// Something worth knowing.
    pub fn warning(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.found(Severity::Warning, file, offset, what.into());
    }

    fn found(&mut self, severity: Severity, file: &Path, offset: u64, what: String) {
        self.findings.push(Finding { severity, file: file.to_owned(), offset, what });
    }

    /// All findings, in the order in which they were made.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What was verified, by kind of file.
    #[must_use]
    pub fn totals(&self) -> &BTreeMap<&'static str, KindTotals> {
        &self.totals
    }

    /// How many damages were found.
    #[must_use]
    pub fn damages(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Damage).count()
    }
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection").field("totals", &self.totals).field("findings", &self.findings).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_adds_up_and_tells_warnings_from_damage() {
        let mut inspection = Inspection::default();
        for bytes in [5, 7] {
            inspection.looks_at("log", Path::new("a"), bytes);
        }
        inspection.warning(Path::new("a"), 3, "torn");
        assert_eq!(inspection.damages(), 0);
        inspection.damage(Path::new("a"), 4, "bad");
        assert_eq!((inspection.damages(), inspection.findings().len()), (1, 2));
        assert_eq!(inspection.totals()["log"], KindTotals { files: 2, bytes: 12 });
    }
}
