//! How many lines and rows of an import had which outcome.

use serde::{Deserialize, Serialize};

use crate::output::{counted, grouped};

/// How many lines and rows had which outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Rows written, by all runs of the import.
    pub imported: u64,
    /// How many of them an earlier run has written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub imported_before: u64,
    /// Records with nothing to write: missing or doubtful readings, rows without a value.
    pub skipped: u64,
    /// Lines that are not valid records of the format.
    pub malformed: u64,
    /// Rows that servers rejected.
    pub refused: u64,
    /// How long this run took,
    pub seconds: f64,
    /// and how many rows it wrote per second.
    pub rows_rate: f64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Counts {
    /// The counts as one line of text.
    pub fn text(&self) -> String {
        let now = self.imported.saturating_sub(self.imported_before);
        let before = match self.imported_before {
            0 => String::new(),
            rows => format!(" after {} of an earlier run", grouped(rows)),
        };
        let mut text = format!(
            "imported {}{before} in {:.2} s ({} rows/s); {} skipped, {} malformed",
            counted(now, "row"),
            self.seconds,
            grouped(self.rows_rate as u64),
            grouped(self.skipped),
            grouped(self.malformed)
        );
        if self.refused > 0 {
            text.push_str(&format!(", {} rejected", grouped(self.refused)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_every_kind_of_line() {
        let counts = Counts {
            imported: 6_500,
            skipped: 60,
            malformed: 5,
            seconds: 0.5,
            rows_rate: 13_000.0,
            ..Counts::default()
        };
        assert_eq!(counts.text(), "imported 6,500 rows in 0.50 s (13,000 rows/s); 60 skipped, 5 malformed");
        let continued = Counts { imported_before: 6_000, ..counts };
        assert!(continued.text().starts_with("imported 500 rows after 6,000 of an earlier run in 0.50 s"));
        let refused = Counts { refused: 2, ..Counts::default() };
        assert!(refused.text().ends_with("0 malformed, 2 rejected"));
    }
}
