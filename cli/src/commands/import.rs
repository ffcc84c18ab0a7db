//! `import`: writes the records of files into a table, through the client's batch writer.
//!
//! Malformed lines are counted, and the first few are printed with file and line number; so are rows that servers
//! rejected. Everything else is imported. Under `--strict`, the first malformed line ends the import with exit status
//! 1, after the lines before it have been written. The demo imports its generated weather through [`Importer`], too.

use std::path::Path;

use serde::Serialize;
use terrane_client::{BatchWriter, Put, Table, WriterOptions};
use terrane_types::TableName;

use super::connect;
use crate::args::client::Import;
use crate::failure::{During, Failure, chain};
use crate::formats::{Format, Parsed, Record};
use crate::input::{Line, LineReader, total_bytes};
use crate::output::{Output, grouped, rate};
use crate::progress::Progress;

/// Malformed lines and rejected rows that are printed one by one; further ones are only counted.
const SHOWN_MAX: u64 = 20;
/// Lines between two updates of the progress bar, so that drawing stays cheap.
const LINES_PER_UPDATE: u64 = 256;

pub async fn run(args: Import) -> Result<(), Failure> {
    let client = connect(&args.connection).await?;
    let during = || format!("import into table {}", args.table);
    let table = match client.table(&args.table.to_string()).await {
        Err(error) if error.is_not_found() => {
            let create = create_command(args.format, &args.table);
            return Err(Failure::nothing_there(error.to_string())
                .during(during())
                .advise(format!("create the table first: `{create}`")));
        }
        opened => opened.during(during())?,
    };
    let mut importer = Importer::new(&table, args.format, args.strict)?;
    let mut progress = Progress::over_bytes("import", total_bytes(&args.files).await);
    let mut done_bytes = 0;
    for path in &args.files {
        let read = import_file(&mut importer, path, done_bytes, &mut progress).await;
        if read.is_err() || importer.stopped() {
            // The lines before the malformed one are written before it is reported.
            let counts = importer.finish(&mut progress).await?;
            progress.finish();
            eprintln!("{}", counts.text());
            read?;
            return Err(Failure::new("stopped at the first malformed line because of --strict"));
        }
        done_bytes += read?;
    }
    let counts = importer.finish(&mut progress).await?;
    progress.finish();
    report(&counts, args.connection.json)
}

/// Imports one file, under `--strict` up to the first malformed line, and returns the bytes read.
async fn import_file(
    importer: &mut Importer,
    path: &Path,
    done_bytes: u64,
    progress: &mut Progress,
) -> Result<u64, Failure> {
    let name = path.display().to_string();
    let unreadable = |error| Failure::new(format!("cannot read {name}: {error}"));
    let mut reader = LineReader::open(path).await.map_err(unreadable)?;
    loop {
        let more = reader.fill().await.map_err(unreadable)?;
        let bytes_read = done_bytes + reader.bytes_read();
        while let Some((number, line)) = reader.line() {
            importer.line(&name, number, line, progress).await?;
            if importer.stopped() {
                return Ok(reader.bytes_read());
            }
            if number.is_multiple_of(LINES_PER_UPDATE) {
                progress.update(bytes_read, importer.rows());
            }
        }
        if !more {
            return Ok(reader.bytes_read());
        }
    }
}

/// The command that creates a table for the format's records.
fn create_command(format: Format, table: &TableName) -> String {
    let family = format.fixed_family().unwrap_or("FAMILY");
    let key = format.key_parts().map(|parts| format!(" --key '{parts}'")).unwrap_or_default();
    format!("terrane table create {table} --family {family}{key}")
}

fn report(counts: &Counts, json: bool) -> Result<(), Failure> {
    let mut output = Output::new(json);
    if json {
        output.object(counts)?;
    } else {
        output.line(&counts.text())?;
    }
    output.flush()?;
    if counts.refused > 0 {
        return Err(Failure::new(format!("{} rows were not written", grouped(counts.refused)))
            .advise("import the same files again: rows that are already there are overwritten with the same values"));
    }
    Ok(())
}

/// How many lines and rows had which outcome.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Rows written.
    pub imported: u64,
    /// Records with nothing to write: missing or doubtful readings.
    pub skipped: u64,
    /// Lines that are not valid records of the format.
    pub malformed: u64,
    /// Rows that servers rejected.
    pub refused: u64,
    pub seconds: f64,
    pub rows_rate: f64,
}

impl Counts {
    /// The counts as one line of text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "imported {} rows in {:.2} s ({} rows/s); {} skipped, {} malformed",
            grouped(self.imported),
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

/// Writes lines of one format into one table.
pub struct Importer {
    writer: BatchWriter,
    format: Format,
    strict: bool,
    stopped: bool,
    counts: Counts,
    started: tokio::time::Instant,
}

impl Importer {
    /// An importer into an open table, which must have the format's family.
    pub fn new(table: &Table, format: Format, strict: bool) -> Result<Importer, Failure> {
        if let Some(family) = format.fixed_family()
            && table.schema().family(family.as_bytes()).is_none()
        {
            return Err(Failure::new(format!(
                "table {} has no family {family}, which this format requires",
                table.name()
            ))
            .advise(format!("add it with `terrane table alter {} --add-family {family}`", table.name())));
        }
        let writer = table.writer(WriterOptions::default());
        Ok(Importer {
            writer,
            format,
            strict,
            stopped: false,
            counts: Counts::default(),
            started: tokio::time::Instant::now(),
        })
    }

    /// Imports one line of the input `source`; waits while the writer's buffers are full. Empty lines are skipped.
    pub async fn line(
        &mut self,
        source: &str,
        number: u64,
        line: Line<'_>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let parsed = match line {
            Line::Bytes([]) => return Ok(()),
            Line::Bytes(bytes) => self.format.parse(bytes).map_err(|error| error.to_string()),
            Line::TooLong => Err("the line is longer than any valid record".to_owned()),
        };
        match parsed {
            Ok(Parsed::Skipped) => self.counts.skipped += 1,
            Ok(Parsed::Record(record)) => match self.writer.put(put_of(record)).await {
                Ok(()) => self.counts.imported += 1,
                // An unknown family or an oversized row shows only here; the line counts as malformed, too.
                Err(error) if error.is_invalid() => self.malformed(source, number, &chain(&error), progress),
                Err(error) => return Err(error.into()),
            },
            Err(why) => self.malformed(source, number, &why, progress),
        }
        Ok(())
    }

    /// Whether `--strict` has ended the import.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Rows accepted so far, including those not written yet.
    pub fn rows(&self) -> u64 {
        self.counts.imported
    }

    /// Waits until all rows are written or rejected, and returns the counts.
    pub async fn finish(mut self, progress: &mut Progress) -> Result<Counts, Failure> {
        let refused = self.writer.close().await.map_or_else(|error| error.rows, |()| Vec::new());
        for (index, row) in (0..SHOWN_MAX).zip(&refused) {
            if index == 0 {
                progress.say("rejected rows:");
            }
            progress.say(&format!("  {}", chain(row)));
        }
        self.counts.refused = u64::try_from(refused.len()).expect("lengths in memory fit 64 bits");
        self.counts.imported -= self.counts.refused.min(self.counts.imported);
        if self.counts.malformed > SHOWN_MAX {
            progress.say(&format!("{} malformed lines in total", grouped(self.counts.malformed)));
        }
        let elapsed = self.started.elapsed();
        self.counts.seconds = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
        self.counts.rows_rate = rate(self.counts.imported, elapsed).round();
        Ok(self.counts)
    }

    fn malformed(&mut self, source: &str, number: u64, why: &str, progress: &Progress) {
        self.counts.malformed += 1;
        self.stopped = self.strict;
        if self.counts.malformed <= SHOWN_MAX {
            progress.say(&format!("{source}:{number}: {why}"));
        }
    }
}

fn put_of(record: Record) -> Put {
    record.cells.iter().fold(Put::new(&record.row), |put, cell| {
        // Families come from a parser that has checked them, so they are ASCII.
        let family = String::from_utf8_lossy(&cell.family);
        match cell.timestamp {
            Some(timestamp) => put.set_at(&family, &cell.qualifier, timestamp, &cell.value),
            None => put.set(&family, &cell.qualifier, &cell.value),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_create_the_table_is_exact() {
        let table = TableName::new("observations").expect("a name");
        assert_eq!(
            create_command(Format::Ncdc, &table),
            "terrane table create observations --family data --key 'station:bytes12, time:desc i64'"
        );
        let words = [
            "terrane",
            "table",
            "create",
            "observations",
            "--family",
            "data",
            "--key",
            crate::formats::ncdc::KEY_PARTS,
        ];
        assert!(<crate::args::Cli as clap::Parser>::try_parse_from(words).is_ok());
        assert!(terrane_types::KeyDeclaration::parse(crate::formats::ncdc::KEY_PARTS).is_ok());
        assert!(terrane_types::KeyDeclaration::parse(crate::formats::stations::KEY_PARTS).is_ok());
    }

    #[test]
    fn the_summary_counts_every_kind_of_line() {
        let counts =
            Counts { imported: 6_500, skipped: 60, malformed: 5, seconds: 0.5, rows_rate: 13_000.0, refused: 0 };
        assert_eq!(counts.text(), "imported 6,500 rows in 0.50 s (13,000 rows/s); 60 skipped, 5 malformed");
        let refused = Counts { refused: 2, ..Counts::default() };
        assert!(refused.text().ends_with("0 malformed, 2 rejected"));
    }
}
