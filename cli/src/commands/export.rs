//! `export`: writes the rows of a table in a format that `import` reads back.
//!
//! In the layout `cells` every version of every cell is there with its timestamp, and an import makes the same cells: all of
//! `jsonl` and `tsv`, and `csv` and `parquet` if asked. The layout `rows` is for other programs: typed columns, newest
//! versions, no timestamps.

mod destination;
mod rows;

use bytes::Bytes;
use serde::Serialize;
use terrane_client::Scan;
use terrane_types::{TableSchema, closest, escape_family};

use super::connect;
use super::row_printer::{json_line, record_of};
use crate::args::client::TimeForm;
use crate::args::transfer::{Export, ExportFormat, Layout};
use crate::failure::{During, Failure};
use crate::formats::parquet::{CellsWriter, RowsWriter};
use crate::formats::{Record, csv, tsv};
use crate::output::Output;
use crate::progress::Progress;
use crate::table_text::TableText;
use destination::Destination;
use rows::{CsvRows, ExportColumn};

pub async fn run(args: Export) -> Result<(), Failure> {
    let layout = layout(&args)?;
    let during = || format!("export table {}", args.table);
    let client = connect(&args.connection).await?;
    let table = client.table(&args.table.to_string()).await.during(during())?;
    let schema = table.schema();
    let text = TableText::of(&table, args.raw);
    let mut scan = Scan::range(text.one_range(&args.range, "`export`")?);
    let columns = if layout == Layout::Rows { columns(&args, &schema)? } else { Vec::new() };
    scan = match layout {
        // All columns are read, since a row without any of the chosen ones is a row, too.
        Layout::Rows => scan.versions(1),
        Layout::Cells => {
            let kept = || schema.families.iter().map(|family| family.rules.versions).max().unwrap_or(1);
            scan.versions(args.versions.unwrap_or_else(kept))
        }
    };
    let dates = args.time == TimeForm::Date;
    let mut writer =
        Writer::new(args.format, layout, (&schema, text), columns, dates).map_err(Failure::new).during(during())?;
    let mut rows = table.scan(scan).await.during(during())?;
    let mut out = Destination::open(args.out.as_deref()).await?;
    // On a terminal, a progress bar between the rows would make both unreadable.
    let shows_rows = out.is_shown();
    let mut progress = Progress::over_bytes("export", None);
    let mut exported = 0;
    writer.begin(&mut out).await?;
    while let Some(row) = rows.next().await {
        writer.row(&mut out, &record_of(&row.during(during())?)).await.during(during())?;
        exported += 1;
        if !shows_rows {
            progress.update(out.bytes(), exported);
        }
    }
    writer.end(&mut out).await.during(during())?;
    let bytes = out.bytes();
    out.finish().await?;
    progress.finish();
    // Without a file, standard output has the rows and nothing else.
    if args.connection.json && args.out.is_some() {
        let mut output = Output::new(true);
        output.object(&Summary { exported, bytes, seconds: progress.seconds() })?;
        return output.flush();
    }
    eprintln!("{}", progress.summary("exported", exported));
    Ok(())
}

/// What an export into a file prints for scripts.
#[derive(Serialize)]
struct Summary {
    /// Rows.
    exported: u64,
    /// The length of the file.
    bytes: u64,
    seconds: f64,
}

/// The layout, after the checks that the parser of the command line cannot make.
fn layout(args: &Export) -> Result<Layout, Failure> {
    let layout = match (args.format, args.layout) {
        (ExportFormat::Jsonl | ExportFormat::Tsv, Some(Layout::Rows)) => {
            return Err(Failure::usage("jsonl and tsv have every cell; --layout rows is for csv and parquet"));
        }
        (ExportFormat::Jsonl | ExportFormat::Tsv | ExportFormat::Parquet, None) => Layout::Cells,
        (ExportFormat::Csv, None) => Layout::Rows,
        (_, Some(layout)) => layout,
    };
    if args.format == ExportFormat::Parquet && args.out.is_none() {
        return Err(Failure::usage("a Parquet file is no stream for standard output: name it with --out FILE"));
    }
    if layout == Layout::Cells && !args.columns.is_empty() {
        return Err(Failure::usage("--column chooses the columns of --layout rows; the layout cells has all"));
    }
    if layout == Layout::Rows && args.versions.is_some() {
        return Err(Failure::usage(
            "--layout rows has the newest version of each column; --layout cells has all versions",
        ));
    }
    Ok(layout)
}

/// The columns of the layout `rows`: those of the command line, or all whose type the table declares.
fn columns(args: &Export, schema: &TableSchema) -> Result<Vec<ExportColumn>, Failure> {
    let mut columns: Vec<ExportColumn> = Vec::new();
    for column in &args.columns {
        if schema.family(column.family.as_bytes()).is_none() {
            let families: Vec<String> = schema.families.iter().map(|family| family.name.to_string()).collect();
            let shown = escape_family(column.family.as_bytes());
            let meant = closest(&shown, families.iter().map(String::as_str));
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            return Err(Failure::usage(format!("table {} has no family {shown}{meant}", schema.name))
                .advise(format!("it has {}", families.join(", "))));
        }
        let family = Bytes::copy_from_slice(column.family.as_bytes());
        let qualifier = column.qualifier.clone().unwrap_or_default();
        let kind = schema.value_type(&family, &qualifier);
        columns.push((family, qualifier, kind));
    }
    if columns.is_empty() {
        for family in &schema.families {
            let name = Bytes::copy_from_slice(family.name.as_str().as_bytes());
            columns.extend(family.types.iter().map(|(qualifier, kind)| (name.clone(), qualifier.clone(), Some(*kind))));
        }
    }
    if columns.is_empty() {
        return Err(Failure::usage(format!(
            "table {} declares no types of columns, so the columns are not known",
            schema.name
        ))
        .advise("name them with --column, or export every cell with --layout cells"));
    }
    Ok(columns)
}

/// Writes rows in one format.
enum Writer {
    Jsonl(TableText),
    Tsv { dates: bool },
    CsvCells { dates: bool },
    CsvRows(CsvRows),
    ParquetCells(Box<CellsWriter>),
    ParquetRows(Box<RowsWriter>),
}

impl Writer {
    fn new(
        format: ExportFormat,
        layout: Layout,
        (schema, text): (&TableSchema, TableText),
        columns: Vec<ExportColumn>,
        dates: bool,
    ) -> Result<Writer, String> {
        let key = schema.key.clone();
        Ok(match (format, layout) {
            (ExportFormat::Jsonl, _) => Writer::Jsonl(text),
            (ExportFormat::Tsv, _) => Writer::Tsv { dates },
            (ExportFormat::Csv, Layout::Cells) => Writer::CsvCells { dates },
            (ExportFormat::Csv, Layout::Rows) => Writer::CsvRows(CsvRows::new(key, columns, dates)),
            (ExportFormat::Parquet, Layout::Cells) => Writer::ParquetCells(Box::new(CellsWriter::new(key)?)),
            (ExportFormat::Parquet, Layout::Rows) => Writer::ParquetRows(Box::new(RowsWriter::new(key, columns)?)),
        })
    }

    /// Writes what comes before the first row.
    async fn begin(&mut self, out: &mut Destination) -> Result<(), Failure> {
        match self {
            Writer::CsvCells { .. } => out.line(&csv::CELLS_HEADER.join(",")).await,
            Writer::CsvRows(rows) => out.line(&rows.header()).await,
            _ => Ok(()),
        }
    }

    async fn row(&mut self, out: &mut Destination, record: &Record) -> Result<(), Failure> {
        let other_type = |why: String| {
            Failure::new(why).advise("--layout cells exports all cells as they are; --column chooses other columns")
        };
        match self {
            Writer::Jsonl(text) => out.line(&json_line(record, text)).await,
            Writer::Tsv { dates } => {
                for cell in &record.cells {
                    out.line(&tsv::write(&record.row, cell, *dates)).await?;
                }
                Ok(())
            }
            Writer::CsvCells { dates } => {
                for cell in &record.cells {
                    out.line(&csv::write_cell(&record.row, cell, *dates)).await?;
                }
                Ok(())
            }
            Writer::CsvRows(rows) => out.line(&rows.line(record).map_err(other_type)?).await,
            Writer::ParquetCells(cells) => {
                cells.push(record);
                out.write(&cells.file.take().map_err(Failure::new)?).await
            }
            Writer::ParquetRows(rows) => {
                rows.push(record).map_err(|error| other_type(error.to_string()))?;
                out.write(&rows.file.take().map_err(Failure::new)?).await
            }
        }
    }

    /// Writes what comes after the last row.
    async fn end(self, out: &mut Destination) -> Result<(), Failure> {
        match self {
            Writer::ParquetCells(cells) => out.write(&cells.file.finish().map_err(Failure::new)?).await,
            Writer::ParquetRows(rows) => out.write(&rows.file.finish().map_err(Failure::new)?).await,
            _ => Ok(()),
        }
    }
}
