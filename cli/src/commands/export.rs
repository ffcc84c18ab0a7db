//! `export`: writes the rows of a table as lines that `import` reads back to the same cells, including timestamps.

use std::io::IsTerminal;

use terrane_client::Scan;

use super::connect;
use super::ranges::range;
use super::row_printer::record_of;
use crate::args::client::{Export, ExportFormat};
use crate::failure::{During, Failure};
use crate::formats::{Record, jsonl, tsv};
use crate::output::Output;
use crate::progress::Progress;

pub async fn run(args: Export) -> Result<(), Failure> {
    let during = || format!("export table {}", args.table);
    let client = connect(&args.connection).await?;
    let table = client.table(&args.table.to_string()).await.during(during())?;
    let versions = args
        .versions
        .unwrap_or_else(|| table.schema().families.iter().map(|family| family.rules.versions).max().unwrap_or(1));
    let mut rows = table.scan(Scan::range(range(&args.range)?).versions(versions)).await.during(during())?;
    // `--json` adds nothing: lines of the format jsonl are JSON already.
    let mut output = Output::new(args.connection.json);
    // On a terminal, a progress bar between the rows would make both unreadable.
    let shows_rows = std::io::stdout().is_terminal();
    let mut progress = Progress::over_bytes("export", None);
    let (mut exported, mut bytes) = (0, 0);
    while let Some(row) = rows.next().await {
        bytes += write(&mut output, args.format, &record_of(&row.during(during())?))?;
        exported += 1;
        if !shows_rows {
            progress.update(bytes, exported);
        }
    }
    output.flush()?;
    progress.finish();
    eprintln!("{}", progress.summary("exported", exported));
    Ok(())
}

/// Writes one row and returns its bytes.
fn write(output: &mut Output, format: ExportFormat, record: &Record) -> Result<u64, Failure> {
    let lines = match format {
        ExportFormat::Jsonl => vec![jsonl::write(record)],
        ExportFormat::Tsv => record.cells.iter().map(|cell| tsv::write(&record.row, cell)).collect(),
    };
    let mut bytes = 0;
    for line in lines {
        bytes += line.len() + 1;
        output.line(&line)?;
    }
    Ok(u64::try_from(bytes).expect("lengths in memory fit 64 bits"))
}
