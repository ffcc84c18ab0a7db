//! The faults of a run with their times: printed, kept in a file, and counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;

/// What was done so far.
pub struct Journal {
    begun: Instant,
    file: File,
    counts: BTreeMap<&'static str, u32>,
}

impl Journal {
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create_new(path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self { begun: Instant::now(), file, counts: BTreeMap::new() })
    }

    /// Tells of something, and counts it.
    pub fn count(&mut self, kind: &'static str, what: &str) {
        *self.counts.entry(kind).or_default() += 1;
        self.tell(what);
    }

    /// Tells of something.
    pub fn tell(&mut self, what: &str) {
        let line = format!("{:7.1} s  {what}", self.begun.elapsed().as_secs_f64());
        eprintln!("{line}");
        // The lines are printed too.
        writeln!(self.file, "{line}").ok();
    }

    /// How often each kind of fault struck.
    pub fn summary(&self) -> String {
        self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }
}
