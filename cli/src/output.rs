//! Standard output: one JSON object per line under `--json`, otherwise tables and plain lines.
//!
//! Nothing else in this crate writes to standard output, so that under `--json` it carries only JSON; progress,
//! messages and warnings go to standard error.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;

/// Size of the output buffer.
const BUFFER_BYTES: usize = 64 * 1024;

/// Standard output in the requested format.
pub struct Output {
    json: bool,
    out: io::BufWriter<io::Stdout>,
}

impl Output {
    /// Standard output, as JSON or as text.
    pub fn new(json: bool) -> Output {
        Output { json, out: io::BufWriter::with_capacity(BUFFER_BYTES, io::stdout()) }
    }

    /// Whether the format is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(Failure::output)
    }

    /// Writes an object as one line of JSON.
    pub fn object(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(object)
            .map_err(|error| Failure::new(format!("cannot write a value as JSON: {error}")))?;
        self.line(&text)
    }

    /// Writes a table; nothing if it has neither a heading nor rows.
    pub fn table(&mut self, heading: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        for line in table(heading, rows).lines() {
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }
}

/// Columns separated by spaces, no wider than the terminal. If the output is not a terminal, nothing is wrapped, so
/// that tools see one line per row.
pub fn table(heading: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if !heading.is_empty() {
        table.set_header(heading.iter().map(|name| name.to_uppercase()));
    }
    table.add_rows(rows);
    table.discover_columns();
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table
}

/// A size in its largest exact unit, `64MiB` or `1000B`, which parses back to the same number.
pub fn bytes_text(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit_bytes = 1u64 << shift;
        if bytes >= unit_bytes && bytes.is_multiple_of(unit_bytes) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// A rounded size: `12.3 MiB`.
pub fn bytes_rounded(bytes: u64) -> String {
    let mut amount = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") }
}

/// A number with thousands separators: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rounded duration: `850 µs`, `12.3 ms`, `4.56 s`, `3 min 20 s`.
pub fn duration_text(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        s if s < 0.001 => format!("{} µs", duration.as_micros()),
        s if s < 1.0 => format!("{:.1} ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.2} s"),
        _ => format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60),
    }
}

/// Events per second; 0 for an empty duration.
pub fn rate(count: u64, duration: std::time::Duration) -> f64 {
    let seconds = duration.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sizes_read_back() {
        for bytes in [0, 1, 1000, 1024, 1536, 64 << 20, 256 << 20, 8 << 30, (1 << 30) + 1] {
            let text = bytes_text(bytes);
            assert_eq!(terrane_types::parse_size(&text).expect(&text), bytes, "{text}");
        }
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 1023, 1024, 5 << 20, 3 << 40].map(bytes_rounded),
            ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3072.0 GiB"]
        );
        let durations = [850_000, 12_300_000, 4_560_000_000, 200_000_000_000];
        let texts = durations.map(|ns| duration_text(Duration::from_nanos(ns)));
        assert_eq!(texts, ["850 µs", "12.3 ms", "4.56 s", "3 min 20 s"]);
        assert_eq!(rate(10, Duration::ZERO), 0.0);
    }

    #[test]
    fn a_table_has_a_line_per_row() {
        let rows = vec![vec!["1".to_owned(), "a b".to_owned()], vec!["22".to_owned(), "c".to_owned()]];
        let text = table(&["id", "name"], rows).to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("ID") && lines[2].starts_with("22"), "{text}");
    }
}
