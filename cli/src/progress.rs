//! Progress on standard error: a bar on a terminal, a plain line every few seconds elsewhere.
//!
//! Updates are cheap and can come per row: the bar redraws at its own rate, and plain lines are throttled.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::output::{counted, duration_text, grouped, rate};

/// Interval of plain lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The rows written or read so far, out of a number of bytes or rows.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: String,
    started: Instant,
    last_line: Instant,
    rows: u64,
    rows_before: u64,
}

impl Progress {
    /// Progress through an input of this size; `None` if the size is unknown.
    pub fn over_bytes(label: &str, bytes: Option<u64>) -> Progress {
        let template = match bytes {
            Some(_) => "{prefix} {bar:24} {percent:>3}%  {msg}  eta {eta}",
            None => "{prefix} {spinner}  {bytes} read  {msg}",
        };
        Progress::new(label, template, bytes)
    }

    /// Progress through this many rows.
    pub fn over_rows(label: &str, rows: u64) -> Progress {
        Progress::new(label, "{prefix} {bar:24} {percent:>3}%  {msg}  eta {eta}", Some(rows))
    }

    /// Progress through work whose size is only known as it proceeds; the caller supplies the message.
    pub fn with_unknown_total(label: &str) -> Progress {
        Progress::new(label, "{prefix} {bar:24} {percent:>3}%  {msg}  eta {eta}", Some(0))
    }

    /// Updates position, size and message of the work.
    pub fn work(&mut self, position: u64, length: u64, message: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(message.to_owned());
                bar.set_length(length);
                bar.set_position(position);
            }
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                eprintln!("{}: {message}", self.label);
            }
            None => {}
        }
    }

    fn new(label: &str, template: &str, length: Option<u64>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(template).expect("the templates above are constants that parse");
            let bar = length.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            bar.set_style(style.progress_chars("━╸ "));
            bar.set_prefix(label.to_owned());
            bar
        });
        let now = Instant::now();
        Progress { bar, label: label.to_owned(), started: now, last_line: now, rows: 0, rows_before: 0 }
    }

    /// Leaves rows of an earlier run out of the rate.
    pub fn after(mut self, rows_before: u64) -> Progress {
        self.rows_before = rows_before;
        self
    }

    /// Updates the position and the number of rows.
    pub fn update(&mut self, position: u64, rows: u64) {
        self.rows = rows;
        match &self.bar {
            Some(bar) => {
                bar.set_message(self.message());
                bar.set_position(position);
            }
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                eprintln!("{}: {}", self.label, self.message());
            }
            None => {}
        }
    }

    /// Prints a line without disturbing the bar.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The last line: `exported 1,000 rows in 1.20 s (833 rows/s)`.
    pub fn summary(&self, done: &str, rows: u64) -> String {
        let elapsed = self.started.elapsed();
        let per_second = grouped(rate(rows, elapsed) as u64);
        format!("{done} {} in {} ({per_second} rows/s)", counted(rows, "row"), duration_text(elapsed))
    }

    /// The time since the start, to the millisecond.
    pub fn seconds(&self) -> f64 {
        (self.started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0
    }

    fn message(&self) -> String {
        let elapsed = self.started.elapsed();
        let per_second = grouped(rate(self.rows.saturating_sub(self.rows_before), elapsed) as u64);
        format!("{} rows  {per_second} rows/s  {}", grouped(self.rows), duration_text(elapsed))
    }
}

impl Drop for Progress {
    /// A failed command leaves no partial bar on the terminal.
    fn drop(&mut self) {
        self.finish();
    }
}
