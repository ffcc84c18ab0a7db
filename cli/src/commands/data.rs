//! Rows: `put`, `get`, `delete`, `scan`, `count`, `first`, `last`.

use serde::Serialize;
use terrane_client::{Delete, Get, PageToken, Put, RowData, Scan, Table};
use terrane_types::limits::TIMESTAMP_MAX;
use terrane_types::{TableName, escape};

use super::connect;
use crate::args::client as args;
use crate::args::client::{Connection, RangeFlags};
use crate::args::values::Column;
use crate::failure::{During, Failure};
use crate::formats::{Record, RecordCell, column_text, jsonl};
use crate::output::{Output, grouped};

/// Rows gathered into one table for people before it is printed; its columns are as wide as they need.
const TABLE_ROWS: usize = 500;

/// Opens a table as the flags ask for it.
async fn open(connection: &Connection, name: &TableName) -> Result<Table, Failure> {
    let client = connect(connection).await?;
    client.table(&name.to_string()).await.during(format!("open table {name}"))
}

pub async fn put(args: args::Put) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let qualifier = args.column.qualifier.unwrap_or_default();
    let (family, value) = (args.column.family.as_str(), &args.value.0);
    let put = match args.timestamp {
        // The number above the largest timestamp would ask for the server's, which is not what the line says.
        Some(timestamp) if timestamp > TIMESTAMP_MAX => {
            let what = format!("a timestamp lies between 0 and {TIMESTAMP_MAX}; this one is {timestamp}");
            return Err(Failure::new(what).during(format!("put into table {}", args.table)));
        }
        Some(timestamp) => Put::new(&args.row.0).set_at(family, qualifier, timestamp, value),
        None => Put::new(&args.row.0).set(family, qualifier, value),
    };
    table.put(put).await.during(format!("put into table {}", args.table))
}

pub async fn delete(args: args::Delete) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let delete = Delete::new(&args.row.0);
    // A delete reaches up to its timestamp. The one of now is what a reader of older times goes by; the one above all
    // others takes the versions that were written with a time still to come.
    let of_family = |delete: Delete, family: &str| delete.family(family).family_until(family, TIMESTAMP_MAX);
    let delete = match &args.column {
        Some(Column { family, qualifier: Some(qualifier) }) => {
            delete.column(family, qualifier).column_until(family, qualifier, TIMESTAMP_MAX)
        }
        Some(Column { family, qualifier: None }) => of_family(delete, family),
        None => table.schema().families.iter().fold(delete, |delete, family| of_family(delete, family.name.as_str())),
    };
    table.delete(delete).await.during(format!("delete from table {}", args.table))
}

pub async fn get(args: args::Get) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let mut get = Get::new(&args.row.0).versions(args.versions);
    for column in &args.columns {
        get = match &column.qualifier {
            Some(qualifier) => get.column(&column.family, qualifier),
            None => get.family(&column.family),
        };
    }
    let row = table.get(get).await.during(format!("get from table {}", args.table))?;
    let absent = || format!("row {} has no such cells in table {}", args.row, args.table);
    print_one(args.connection.json, row, absent)
}

pub async fn first(args: args::FirstOrLast) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let row = table.first(range(&args.range)?).await.during(format!("read table {}", args.table))?;
    print_one(args.connection.json, row, || no_row_in_range(&args.table))
}

pub async fn last(args: args::FirstOrLast) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let row = table.last(range(&args.range)?).await.during(format!("read table {}", args.table))?;
    print_one(args.connection.json, row, || no_row_in_range(&args.table))
}

fn no_row_in_range(table: &TableName) -> String {
    format!("table {table} has no row in that range")
}

pub async fn count(args: args::Count) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Counted {
        count: u64,
    }
    let table = open(&args.connection, &args.table).await?;
    let count = table.count(range(&args.range)?).await.during(format!("count table {}", args.table))?;
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&Counted { count })?;
    } else {
        output.line(&count.to_string())?;
    }
    output.flush()
}

pub async fn scan(args: args::Scan) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let scan = scan_of(&args)?;
    let mut printer = RowPrinter::new(args.connection.json);
    let during = || format!("scan table {}", args.table);
    let mut after = None;
    if let (true, Some(_)) = (args.token, args.limit) {
        let page = table.page(scan).await.during(during())?;
        for row in &page.rows {
            printer.row(row)?;
        }
        after = page.next;
    } else {
        let mut rows = table.scan(scan).await.during(during())?;
        while let Some(row) = rows.next().await {
            printer.row(&row.during(during())?)?;
        }
    }
    printer.end(args.token.then_some(after))
}

/// The range that the flags mean; one that is turned round is a mistake in the command line.
pub fn range(flags: &RangeFlags) -> Result<terrane_types::KeyRange, Failure> {
    flags.range().map_err(|invalid| Failure::usage(invalid.to_string()))
}

fn scan_of(args: &args::Scan) -> Result<Scan, Failure> {
    let mut scan = Scan::range(range(&args.range)?).offset(args.offset).versions(args.versions);
    if args.reverse {
        scan = scan.reverse();
    }
    if let Some(limit) = args.limit {
        scan = scan.limit(limit);
    }
    for column in &args.columns {
        scan = match &column.qualifier {
            Some(qualifier) => scan.column(&column.family, qualifier),
            None => scan.family(&column.family),
        };
    }
    if let Some(text) = &args.after {
        let token: PageToken = text.parse().map_err(|invalid| Failure::usage(format!("--after: {invalid}")))?;
        scan = scan.after(token);
    }
    Ok(scan)
}

/// A row that was read, as the formats write it.
pub fn record_of(row: &RowData) -> Record {
    let cells = row.to_cells().into_iter().map(|cell| RecordCell {
        family: cell.family,
        qualifier: cell.qualifier,
        timestamp: Some(cell.timestamp),
        value: cell.value,
    });
    Record { row: row.row().clone().into_bytes(), cells: cells.collect() }
}

fn print_one(json: bool, row: Option<RowData>, absent: impl Fn() -> String) -> Result<(), Failure> {
    let Some(row) = row else { return Err(Failure::nothing_there(absent())) };
    let mut printer = RowPrinter::new(json);
    printer.row(&row)?;
    printer.end(None)
}

/// Prints rows as they come: JSON at once, for people in tables of many rows.
struct RowPrinter {
    output: Output,
    cells: Vec<Vec<String>>,
    heading_printed: bool,
    rows: u64,
}

impl RowPrinter {
    fn new(json: bool) -> RowPrinter {
        RowPrinter { output: Output::new(json), cells: Vec::new(), heading_printed: false, rows: 0 }
    }

    fn row(&mut self, row: &RowData) -> Result<(), Failure> {
        self.rows += 1;
        if self.output.is_json() {
            return self.output.line(&jsonl::write(&record_of(row)));
        }
        for cell in row.cells() {
            let column = column_text(cell.family, cell.qualifier);
            self.cells.push(vec![escape(row.row()), column, cell.timestamp.to_string(), escape(cell.value)]);
        }
        if self.cells.len() >= TABLE_ROWS { self.print_cells() } else { Ok(()) }
    }

    fn print_cells(&mut self) -> Result<(), Failure> {
        let heading: &[&str] = if self.heading_printed { &[] } else { &["row", "column", "timestamp", "value"] };
        self.heading_printed = true;
        self.output.table(heading, std::mem::take(&mut self.cells))
    }

    /// Prints what is left, then the token line where one was asked for: `Some(None)` says that nothing follows.
    fn end(mut self, token: Option<Option<PageToken>>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct After {
            after: Option<String>,
        }
        if !self.cells.is_empty() {
            self.print_cells()?;
        }
        if let Some(token) = token {
            self.output.object(&After { after: token.map(|token| token.to_string()) })?;
        }
        self.output.flush()?;
        if !self.output.is_json() {
            let plural = if self.rows == 1 { "" } else { "s" };
            eprintln!("{} row{plural}", grouped(self.rows));
        }
        Ok(())
    }
}
