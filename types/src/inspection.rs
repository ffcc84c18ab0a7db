//! The findings of an offline check of a stopped process's files.
//!
//! Each crate verifies the files whose formats it defines (log, engine, identity, catalog) and reports to an
//! [`Inspection`], which collects. The code that prints the result knows no format.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing, but no data is lost: a torn tail, a file without a reference.
    Warning,
    /// Data is not as written, or missing.
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
    /// Its severity.
    pub severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The offset in it: the start of the smallest part that fails verification.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// Totals of the verified files of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Called for every file before it is verified, with its kind, name and size.
pub type Watcher = Box<dyn FnMut(&'static str, &Path, u64) + Send>;

/// The findings so far.
#[derive(Default)]
pub struct Inspection {
    totals: BTreeMap<&'static str, KindTotals>,
    findings: Vec<Finding>,
    watcher: Option<Watcher>,
}

impl Inspection {
    /// An inspection without findings; `watcher` can show progress.
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

    /// Reports damage.
    pub fn damage(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.found(Severity::Damage, file, offset, what.into());
    }

    /// Reports a note.
    pub fn warning(&mut self, file: &Path, offset: u64, what: impl Into<String>) {
        self.found(Severity::Warning, file, offset, what.into());
    }

    fn found(&mut self, severity: Severity, file: &Path, offset: u64, what: String) {
        self.findings.push(Finding { severity, file: file.to_owned(), offset, what });
    }

    /// All findings, in order.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Totals by kind of file.
    #[must_use]
    pub fn totals(&self) -> &BTreeMap<&'static str, KindTotals> {
        &self.totals
    }

    /// The number of damaged places.
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
