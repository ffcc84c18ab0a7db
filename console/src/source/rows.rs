//! The data browser: a page of a table's rows.

use serde::{Deserialize, Serialize};

use super::key::{Bound, Key, as_text, from_text};

/// Which page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowQuery {
    /// The table.
    pub table: String,
    /// Only rows with this prefix.
    pub prefix: Option<Bound>,
    /// The first row; with a prefix, within it.
    pub start: Option<Bound>,
    /// The token of the page before; it replaces `start`.
    pub after: Option<String>,
    /// Only these columns (`family` or `family:qualifier`); empty for all.
    pub columns: Vec<String>,
    /// A filter in the language of `scan --filter`.
    pub filter: Option<String>,
    /// The most rows to answer.
    pub limit: usize,
    /// The most bytes of a value to answer; longer ones are cut.
    pub value_bytes_max: usize,
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowPage {
    /// The table.
    pub table: String,
    /// The parts of the declared key, to head the columns; empty without one. The bucket of a salted key is not one.
    pub key_parts: Vec<String>,
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// The token of the next page; `None` when nothing follows.
    pub next: Option<String>,
    /// How long the scan took.
    pub duration_us: u64,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its key.
    pub key: Key,
    /// The text of each key part, as many as the page's `key_parts`.
    pub parts: Vec<String>,
    /// Its cells, in order, newest version of a column first.
    pub cells: Vec<Cell>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Its column, as `family:qualifier`, escaped.
    pub column: String,
    /// Its version.
    pub timestamp: i64,
    /// Its value, at most as many bytes as the query allows; in JSON, escaped.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub value: Vec<u8>,
    /// The value in the declared type of its column, as text.
    pub typed: Option<String>,
    /// How long the whole value is.
    pub value_bytes: u64,
}
