//! Standard output: one JSON object per line under `--json`, otherwise tables and plain lines.
//!
//! Nothing else in this crate writes to standard output, so that under `--json` it carries only JSON; progress,
//! messages and warnings go to standard error.

use std::io::{self, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;
use crate::scope::as_records;

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

    /// Writes bytes that are lines already.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(Failure::output)
    }

    /// Writes an object as one line of JSON.
    pub fn object(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(object)
            .map_err(|error| Failure::new(format!("cannot write a value as JSON: {error}")))?;
        self.line(&text)
    }

    /// Writes a table; nothing if it has neither a heading nor rows.
    pub fn table(&mut self, heading: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        if as_records() && !heading.is_empty() {
            return records(heading, &rows).lines().try_for_each(|line| self.line(line));
        }
        table_text(heading, &rows, terminal_width()).lines().try_for_each(|line| self.line(line))
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(Failure::output)
    }
}

/// The width of the terminal; `None` if the output is none.
fn terminal_width() -> Option<usize> {
    Table::new().width().map(usize::from).filter(|width| *width > 0)
}

/// Spaces between two columns.
const COLUMN_GAP: usize = 2;
/// The least width of a last column whose text is wrapped.
const LAST_COLUMN_MIN: usize = 16;

/// Rows as text. Without a terminal nothing is wrapped, so that tools see one line per row. On a terminal, only the last
/// column is wrapped; if that is not enough, each row is shown as lines of `NAME value`, since columns of a few characters
/// cannot be read.
pub fn table_text(heading: &[&str], rows: &[Vec<String>], terminal: Option<usize>) -> String {
    let columns = heading.len().max(rows.first().map_or(0, Vec::len));
    let lines_of = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let width = |at: usize| {
        let of_rows = rows.iter().filter_map(|row| row.get(at)).map(|text| lines_of(text)).max().unwrap_or(0);
        of_rows.max(heading.get(at).map_or(0, |name| name.chars().count()))
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let fixed: usize = widths.iter().rev().skip(1).map(|width| width + COLUMN_GAP).sum();
    if terminal.is_some_and(|terminal| {
        fixed + widths.last().map_or(0, |last| (*last).min(LAST_COLUMN_MIN)) > terminal && !heading.is_empty()
    }) {
        return records(heading, rows);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(terminal) = terminal {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(terminal).unwrap_or(u16::MAX));
    }
    if !heading.is_empty() {
        table.set_header(heading.iter().map(|name| name.to_uppercase()));
    }
    table.add_rows(rows.to_vec());
    table.discover_columns();
    let last = columns.saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { COLUMN_GAP as u16 }));
        if at < last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Each row as lines of `NAME value`, with an empty line between two rows.
fn records(heading: &[&str], rows: &[Vec<String>]) -> String {
    let widest = heading.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let record = |row: &Vec<String>| {
        let lines = heading.iter().zip(row).filter(|(_, value)| !value.is_empty());
        lines.map(|(name, value)| format!("{:<widest$}  {value}", name.to_uppercase())).collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
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

/// A number of things: `1 line`, `2,000 lines`.
pub fn counted(number: u64, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", grouped(number))
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
        let text = table_text(&["id", "name"], &rows, None);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("ID") && lines[2].starts_with("22"), "{text}");
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_records() {
        let row = |n: usize| vec![format!("127.0.0.1:770{n}"), "live".to_owned(), "x".repeat(30), "none".to_owned()];
        let rows = [row(1), row(2)];
        let heading = ["address", "state", "zone", "drain"];
        let wide = table_text(&heading, &rows, Some(80));
        assert_eq!(wide.lines().count(), 3, "{wide}");
        let narrow = table_text(&heading, &rows, Some(50));
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(
            lines[..4],
            ["ADDRESS  127.0.0.1:7701", "STATE    live", &format!("ZONE     {}", "x".repeat(30)), "DRAIN    none"]
        );
        assert_eq!((lines[4], lines.len()), ("", 9));
        // Only the text of the last column is wrapped.
        let rows = [vec!["1".to_owned(), "a long sentence of many words that needs two lines".to_owned()]];
        let wrapped = table_text(&["id", "what"], &rows, Some(40));
        assert!(wrapped.lines().count() == 3 && wrapped.lines().all(|line| line.chars().count() <= 40), "{wrapped}");
    }
}
