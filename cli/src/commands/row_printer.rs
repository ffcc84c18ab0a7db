//! Prints rows on standard output, as a line of JSON each or as a table.

use serde::Serialize;
use terrane_client::{PageToken, RowData};

use crate::failure::Failure;
use crate::formats::{Record, RecordCell, column_text, jsonl};
use crate::output::{Output, grouped};
use crate::table_text::TableText;

/// Rows of one printed table; the widths of its columns fit its rows.
const TABLE_ROWS: usize = 500;

/// A row that was read, as a record of the formats.
pub fn record_of(row: &RowData) -> Record {
    let cells = row.to_cells().into_iter().map(|cell| RecordCell {
        family: cell.family,
        qualifier: cell.qualifier,
        timestamp: Some(cell.timestamp),
        value: cell.value,
    });
    Record { row: row.row().clone().into_bytes(), cells: cells.collect() }
}

/// A row as every command prints it in JSON: bytes, and beside them what the table declares of them.
pub fn json_line(record: &Record, text: &TableText) -> String {
    let typed = |cell: &RecordCell| text.typed_value(&cell.family, &cell.qualifier, &cell.value);
    jsonl::write(record, text.key_parts(&record.row).as_ref(), typed)
}

/// Prints a row; if there is none, the command fails with status 3.
pub fn print_one(
    json: bool,
    text: TableText,
    row: Option<RowData>,
    absent: impl Fn() -> String,
) -> Result<(), Failure> {
    let Some(row) = row else { return Err(Failure::not_found(absent())) };
    let mut printer = RowPrinter::new(json, text);
    printer.row(&row)?;
    printer.end(None)
}

/// Prints rows as they arrive: JSON at once, text in tables of many rows.
pub struct RowPrinter {
    output: Output,
    text: TableText,
    cells: Vec<Vec<String>>,
    heading_printed: bool,
    rows: u64,
}

impl RowPrinter {
    pub fn new(json: bool, text: TableText) -> RowPrinter {
        RowPrinter { output: Output::new(json), text, cells: Vec::new(), heading_printed: false, rows: 0 }
    }

    pub fn row(&mut self, row: &RowData) -> Result<(), Failure> {
        self.rows += 1;
        if self.output.is_json() {
            return self.output.line(&json_line(&record_of(row), &self.text));
        }
        let key = self.text.show_row(row.row());
        for cell in row.cells() {
            let column = column_text(cell.family, cell.qualifier);
            let value = self.text.show_value(cell.family, cell.qualifier, cell.value);
            self.cells.push(vec![key.clone(), column, self.text.show_timestamp(cell.timestamp), value]);
        }
        if self.cells.len() >= TABLE_ROWS { self.print_cells() } else { Ok(()) }
    }

    fn print_cells(&mut self) -> Result<(), Failure> {
        let heading: &[&str] = if self.heading_printed { &[] } else { &["row", "column", "timestamp", "value"] };
        self.heading_printed = true;
        self.output.table(heading, std::mem::take(&mut self.cells))
    }

    /// Prints the remaining rows, then the token line if `token` is given; `Some(None)` means that nothing follows.
    pub fn end(mut self, token: Option<Option<PageToken>>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct NextPageLine {
            after: Option<String>,
        }
        if !self.cells.is_empty() {
            self.print_cells()?;
        }
        if let Some(token) = token {
            self.output.object(&NextPageLine { after: token.map(|token| token.to_string()) })?;
        }
        self.output.flush()?;
        if !self.output.is_json() {
            let plural = if self.rows == 1 { "" } else { "s" };
            eprintln!("{} row{plural}", grouped(self.rows));
        }
        Ok(())
    }
}
