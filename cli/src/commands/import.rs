//! `import`: writes the records of files into a table.
//!
//! Inputs are read and parsed ahead of the one task that takes their blocks, puts the rows into the [`Sink`] and counts.
//! Malformed lines are counted, and the first few are printed with file and line number; so are rows that servers
//! rejected. Everything else is imported. Under `--strict`, the first malformed line ends the import with exit status
//! 1, after the lines before it have been written. The demo imports its generated weather through [`Importer`], too.
//!
//! Invariants: rows of one input are put in its order; a state is saved only between blocks and after a flush without a
//! failed row, so that it never claims a row that is not durable.

mod checkpoint;
mod counts;
mod inputs;
mod rejects;
mod sink;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use terrane_client::{ClusterId, RowError, Table};
use terrane_env::task::shutdown_signal;
use terrane_types::TableName;
use tokio::time::Instant;

use super::connect;
use crate::args::transfer::Import;
use crate::failure::{During, Failure, chain};
use crate::formats::{Format, Item, Parsed};
use crate::input::{Position, is_standard_input, is_stream, total_bytes};
use crate::output::{Output, counted, grouped, rate};
use crate::progress::Progress;
use checkpoint::{Checkpoints, State};
pub use counts::Counts;
use inputs::{Blocks, Input, ParsedBlock};
use rejects::Rejects;
use sink::Sink;

/// Malformed lines and rejected rows that are printed one by one; further ones are only counted.
const SHOWN_MAX: u64 = 20;
/// What to do after a bulk load that failed.
const AFTER_FAILED_LOAD: &str =
    "each run of a region's rows is there or not; import the same files again: with --state their cells are the same";
/// Rows between two updates of the progress bar, so that drawing stays cheap.
const ROWS_PER_UPDATE: u64 = 256;

pub async fn run(args: Import) -> Result<(), Failure> {
    check(&args).await?;
    let client = connect(&args.connection).await?;
    let during = || format!("import into table {}", args.table);
    let table = match client.table(&args.table.to_string()).await {
        Err(error) if error.is_not_found() => {
            let create = create_command(args.format, &args.table);
            let missing = Failure::new(error.to_string());
            return Err(missing.during(during()).advise(format!("create the table first: `{create}`")));
        }
        opened => opened.during(during())?,
    };
    check_family(&table, args.format)?;
    let inputs = inputs::examine(&args, &table.schema()).await?;
    let mut run = Run::new(&args, client.cluster_id(), &table, inputs).await?;
    let ended = run.import(&args).await;
    run.finish(&args, ended).await
}

/// What the parser of the command line cannot see.
async fn check(args: &Import) -> Result<(), Failure> {
    let mapped = matches!(args.format, Format::Tsv | Format::Jsonl | Format::Csv | Format::Parquet);
    let name = args.format.name();
    if args.columns.is_some() && !mapped {
        return Err(Failure::usage(format!("--columns maps the fields of tsv, csv, jsonl and parquet, not of {name}")));
    }
    let separated = args.format == Format::Csv || (args.format == Format::Tsv && args.columns.is_some());
    if args.separator.is_some() && !separated {
        return Err(Failure::usage("--separator is for csv, and for tsv with --columns"));
    }
    if args.no_escapes && !separated {
        return Err(Failure::usage("--no-escapes is for csv, and for tsv with --columns"));
    }
    if args.no_header && args.format != Format::Csv {
        return Err(Failure::usage(format!("--no-header is for csv; {name} has no header line")));
    }
    if args.format == Format::Parquet && args.rejects.is_some() {
        return Err(Failure::usage("--rejects keeps malformed lines, and a Parquet file has no lines"));
    }
    let written = [("--rejects", &args.rejects), ("--state", &args.state)];
    for (flag, path) in written.iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))) {
        if args.files.contains(path) {
            return Err(Failure::usage(format!("{flag} would overwrite the input {}", path.display())));
        }
    }
    if args.rejects.is_some() && args.rejects == args.state {
        return Err(Failure::usage("--rejects and --state need different files"));
    }
    if args.files.iter().filter(|path| is_standard_input(path)).count() > 1 {
        return Err(Failure::usage("standard input (-) can be read only once"));
    }
    for path in &args.files {
        if !is_stream(path).await {
            continue;
        }
        let name = match is_standard_input(path) {
            true => "standard input".to_owned(),
            false => format!("{}, a pipe,", path.display()),
        };
        if args.format == Format::Parquet {
            return Err(Failure::usage(format!("a Parquet file is read from its end, which {name} does not allow"))
                .advise("name a file"));
        }
        if args.state.is_some() {
            return Err(Failure::usage(format!("--state continues within files, which {name} does not allow"))
                .advise("name a file"));
        }
    }
    Ok(())
}

/// The command that creates a table for the format's records.
fn create_command(format: Format, table: &TableName) -> String {
    let family = format.fixed_family().unwrap_or("FAMILY");
    let column = format.typed_column().map(|column| format!(" --column {column}")).unwrap_or_default();
    let key = format.key_parts().map(|parts| format!(" --key '{parts}'")).unwrap_or_default();
    format!("terrane table create {table} --family {family}{column}{key}")
}

fn check_family(table: &Table, format: Format) -> Result<(), Failure> {
    let Some(family) = format.fixed_family() else { return Ok(()) };
    if table.schema().family(family.as_bytes()).is_some() {
        return Ok(());
    }
    let name = table.name();
    Err(Failure::new(format!("table {name} has no family {family}, which this format requires"))
        .advise(format!("add it with `terrane table alter {name} --add-family {family}`")))
}

/// How an import ended before the end of its inputs.
enum Ended {
    Complete,
    /// By a malformed line under `--strict`.
    Strict,
    /// By the user.
    Interrupted,
}

/// An import of files.
struct Run {
    importer: Importer,
    /// The inputs that were not opened yet, last first.
    waiting: Vec<(usize, Input)>,
    progress: Progress,
    /// Bytes read of each input.
    bytes_read: Vec<u64>,
    rejects: Option<Rejects>,
    checkpoints: Option<(Checkpoints, State)>,
    bulk: bool,
}

impl Run {
    async fn new(args: &Import, cluster: ClusterId, table: &Table, inputs: Vec<Input>) -> Result<Run, Failure> {
        let mut importer = Importer::new(table, args.strict);
        if args.bulk {
            importer.sink = Sink::loader(table, None);
        }
        let mut checkpoints = None;
        if let Some(path) = &args.state {
            let now = i64::try_from(terrane_env::time::wall_ms()).expect("milliseconds since 1970 fit 63 bits");
            let new = State::new(args, cluster, table, &inputs, now).await?;
            let (opened, state) = Checkpoints::open(path, new).await?;
            importer.continue_from(&state.counts);
            checkpoints = Some((opened, state));
        }
        let rejects = match &args.rejects {
            Some(path) => {
                let keep = checkpoints.as_ref().map_or(0, |(_, state)| state.rejects_bytes);
                Some(Rejects::open(path, keep).await?)
            }
            None => None,
        };
        if let Some((_, state)) = &checkpoints
            && state.files.iter().all(|file| file.done)
        {
            let path = args.state.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            eprintln!("every file is imported already, as {path} says; remove it to import them again");
        }
        let done = |at: &usize| checkpoints.as_ref().is_some_and(|(_, state): &(_, State)| state.files[*at].done);
        let bytes_read = vec![0; inputs.len()];
        let waiting = inputs.into_iter().enumerate().filter(|(at, _)| !done(at)).rev().collect();
        let progress = Progress::over_bytes("import", total_bytes(&args.files).await).after(importer.rows());
        Ok(Run { importer, waiting, progress, bytes_read, rejects, checkpoints, bulk: args.bulk })
    }

    /// Imports until the end of all inputs, a malformed line under `--strict`, a failure or Ctrl-C.
    async fn import(&mut self, args: &Import) -> Result<Ended, Failure> {
        let mut interrupt = std::pin::pin!(shutdown_signal());
        let names: Vec<String> = args.files.iter().map(|path| path.display().to_string()).collect();
        let mut headers = vec![None; names.len()];
        let mut open = FuturesUnordered::new();
        loop {
            while open.len() < usize::from(args.parallel)
                && let Some((at, mut input)) = self.waiting.pop()
            {
                headers[at] = input.header.take();
                let blocks = self.start(at, input);
                open.push(next_of(at, blocks));
            }
            let step = async {
                let Some((at, blocks, block)) = open.next().await else { return Ok(Some(Ended::Complete)) };
                let block = match block.transpose()? {
                    Some(block) => block,
                    None => {
                        self.input_done(at);
                        return Ok(None);
                    }
                };
                let (end, bytes_read) = (block.end, block.bytes_read);
                self.take(&names[at], headers[at].as_ref(), block).await?;
                self.bytes_read[at] = bytes_read;
                if self.importer.stopped() {
                    return Ok(Some(Ended::Strict));
                }
                self.block_done(at, end).await?;
                open.push(next_of(at, blocks));
                Ok(None)
            };
            let step: Result<Option<Ended>, Failure> = tokio::select! {
                biased;
                () = &mut interrupt => return Ok(Ended::Interrupted),
                step = step => step,
            };
            if let Some(ended) = step? {
                return Ok(ended);
            }
        }
    }

    fn start(&self, at: usize, input: Input) -> Blocks {
        let (from, stamp) = match &self.checkpoints {
            Some((_, state)) => (state.files[at].position, Some(state.timestamp)),
            None => (input.start, None),
        };
        input.start(from, stamp)
    }

    async fn take(&mut self, name: &str, header: Option<&Vec<u8>>, block: ParsedBlock) -> Result<(), Failure> {
        let read: u64 = self.bytes_read.iter().sum();
        for item in block.items {
            let raw = item.raw.clone();
            if !self.importer.item(name, item, &self.progress).await?
                && let Some(rejects) = &mut self.rejects
                && !raw.is_empty()
            {
                rejects.add(header, &block.bytes[raw]);
            }
            if self.importer.stopped() {
                return Ok(());
            }
            if self.importer.rows().is_multiple_of(ROWS_PER_UPDATE) {
                self.progress.update(read, self.importer.rows());
            }
        }
        Ok(())
    }

    fn input_done(&mut self, at: usize) {
        if let Some((_, state)) = &mut self.checkpoints {
            state.files[at].done = true;
        }
    }

    /// Notes that all rows before `end` are on their way, and saves that if it is time.
    async fn block_done(&mut self, at: usize, end: Position) -> Result<(), Failure> {
        let rejects_bytes = match &mut self.rejects {
            Some(rejects) => Some(rejects.write().await?),
            None => None,
        };
        if let Some((checkpoints, state)) = &mut self.checkpoints {
            state.files[at].position = end;
            state.counts = self.importer.counts.clone();
            state.rejects_bytes = rejects_bytes.unwrap_or(state.rejects_bytes);
            // Each flush of a bulk load ends the runs of all regions; few large ones are cheaper than many small ones.
            if checkpoints.due() && (!self.bulk || checkpoints.long_due()) {
                self.importer.flush(&self.progress).await?;
                self.save().await?;
            }
        }
        Ok(())
    }

    /// Saves the state after a flush, unless a row has failed: then another run has to start before it.
    async fn save(&mut self) -> Result<(), Failure> {
        if self.importer.counts.refused > 0 {
            return Ok(());
        }
        if let Some(rejects) = &self.rejects {
            rejects.sync().await?;
        }
        match &mut self.checkpoints {
            Some((checkpoints, state)) => checkpoints.save(state).await,
            None => Ok(()),
        }
    }

    /// Waits for the rows on their way, saves how far the import is, and says what was done.
    async fn finish(mut self, args: &Import, ended: Result<Ended, Failure>) -> Result<(), Failure> {
        if let Some(rejects) = &mut self.rejects {
            rejects.write().await?;
        }
        if matches!(ended, Ok(Ended::Interrupted)) {
            self.progress.say("stopping: waiting for the rows on their way; Ctrl-C again does not wait");
            tokio::select! {
                biased;
                () = shutdown_signal() => {}
                flushed = self.importer.flush(&self.progress) => {
                    flushed?;
                    self.save().await?;
                }
            }
        } else if ended.is_ok() || !self.bulk {
            let flushed = self.importer.flush(&self.progress).await;
            flushed.map_err(|failure| if self.bulk { failure.advise(AFTER_FAILED_LOAD) } else { failure })?;
            self.save().await?;
        }
        let counts = self.importer.summary(&self.progress);
        self.progress.finish();
        match ended {
            Ok(Ended::Complete) => report(&counts, args),
            Ok(Ended::Interrupted) => {
                print(&counts, args.connection.json)?;
                Err(Failure::interrupted().advise(match &args.state {
                    Some(_) => "the same command continues where this one stopped",
                    None => "the same command starts again; with --state it would continue",
                }))
            }
            Ok(Ended::Strict) => {
                print_failed(&counts, args)?;
                Err(Failure::new("stopped at the first malformed line because of --strict"))
            }
            // How many of its rows a failed load has taken in, only the table knows.
            Err(failure) if self.bulk => Err(failure.advise(AFTER_FAILED_LOAD)),
            Err(failure) => {
                print_failed(&counts, args)?;
                Err(failure)
            }
        }
    }
}

/// The next block of an input, with what is needed to ask for the one after it.
async fn next_of(at: usize, mut blocks: Blocks) -> (usize, Blocks, Option<Result<ParsedBlock, Failure>>) {
    let block = blocks.next().await;
    (at, blocks, block)
}

fn print(counts: &Counts, json: bool) -> Result<(), Failure> {
    let mut output = Output::new(json);
    if json {
        output.object(counts)?;
    } else {
        output.line(&counts.text())?;
    }
    output.flush()
}

/// The counts of an import that failed: a script reads them where it reads those of a complete one.
fn print_failed(counts: &Counts, args: &Import) -> Result<(), Failure> {
    if args.connection.json {
        return print(counts, true);
    }
    eprintln!("{}", counts.text());
    Ok(())
}

/// Prints the counts of a complete import, and fails if they are not what the user expects.
fn report(counts: &Counts, args: &Import) -> Result<(), Failure> {
    print(counts, args.connection.json)?;
    if counts.refused > 0 {
        let advice = match &args.state {
            Some(_) => "the same command continues at the last state before them",
            None => "import the same files again: rows that are already there are overwritten with the same values",
        };
        return Err(Failure::new(format!("the servers rejected {}", counted(counts.refused, "row"))).advise(advice));
    }
    let kept = match &args.rejects {
        Some(path) => format!("the malformed lines are in {}", path.display()),
        None => "--rejects FILE keeps the malformed lines".to_owned(),
    };
    if counts.imported == 0 && counts.malformed + counts.skipped > 0 {
        let (malformed, skipped) = (counted(counts.malformed, "line"), counted(counts.skipped, "record"));
        return Err(Failure::new(format!(
            "nothing was imported: {malformed} malformed, {skipped} with nothing to write"
        ))
        .advise(format!("check that the files are {}; {kept}", args.format.name())));
    }
    match args.max_malformed {
        Some(most) if counts.malformed > most => {
            let (malformed, most) = (counted(counts.malformed, "malformed line"), grouped(most));
            Err(Failure::new(format!("{malformed}, more than --max-malformed {most}")).advise(kept))
        }
        _ => Ok(()),
    }
}

/// Puts parsed records into a table and counts.
pub struct Importer {
    sink: Sink,
    strict: bool,
    stopped: bool,
    counts: Counts,
    shown_refused: u64,
    started: Instant,
}

impl Importer {
    /// An importer into an open table.
    pub fn new(table: &Table, strict: bool) -> Importer {
        Importer {
            sink: Sink::writer(table),
            strict,
            stopped: false,
            counts: Counts::default(),
            shown_refused: 0,
            started: Instant::now(),
        }
    }

    fn continue_from(&mut self, counts: &Counts) {
        self.counts = counts.clone();
        self.counts.imported_before = counts.imported;
    }

    /// Imports a record of the input `source`; waits while too many rows are on their way. Returns false if it is
    /// malformed.
    pub async fn item(&mut self, source: &str, item: Item, progress: &Progress) -> Result<bool, Failure> {
        let why = match item.parsed {
            Ok(Parsed::Skipped) => {
                self.counts.skipped += 1;
                return Ok(true);
            }
            Ok(Parsed::Record(record)) => match self.sink.put(record).await {
                Ok(()) => {
                    self.counts.imported += 1;
                    return Ok(true);
                }
                // An unknown family or an oversized row shows only here; the line counts as malformed, too.
                Err(error) if error.is_invalid() => chain(&error),
                Err(error) => return Err(error.into()),
            },
            Err(why) => why.to_string(),
        };
        self.counts.malformed += 1;
        self.stopped = self.strict;
        if self.counts.malformed <= SHOWN_MAX {
            progress.say(&format!("{source}:{}: {why}", item.line));
        }
        Ok(false)
    }

    /// Whether `--strict` has ended the import.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Rows accepted so far, including those not written yet.
    pub fn rows(&self) -> u64 {
        self.counts.imported
    }

    /// Waits until all rows so far are written or rejected.
    async fn flush(&mut self, progress: &Progress) -> Result<(), Failure> {
        let refused = self.sink.flush().await.during("write the rows on their way")?;
        self.refused(&refused, progress);
        Ok(())
    }

    fn refused(&mut self, refused: &[RowError], progress: &Progress) {
        for row in refused {
            if self.shown_refused == 0 {
                progress.say("rejected rows:");
            }
            if self.shown_refused < SHOWN_MAX {
                progress.say(&format!("  {}", chain(row)));
            }
            self.shown_refused += 1;
        }
        let count = u64::try_from(refused.len()).expect("lengths in memory fit 64 bits");
        self.counts.refused += count;
        self.counts.imported -= count.min(self.counts.imported);
    }

    /// Waits until all rows are written or rejected, and returns the counts.
    pub async fn finish(mut self, progress: &Progress) -> Result<Counts, Failure> {
        self.flush(progress).await?;
        let counts = self.summary(progress);
        let rest = self.sink.finish().await?;
        match rest.first() {
            Some(row) => Err(Failure::new(chain(row))),
            None => Ok(counts),
        }
    }

    /// The counts, after a flush.
    fn summary(&mut self, progress: &Progress) -> Counts {
        if self.counts.malformed > SHOWN_MAX {
            progress.say(&format!("{} in total", counted(self.counts.malformed, "malformed line")));
        }
        let elapsed = self.started.elapsed();
        self.counts.seconds = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
        self.counts.rows_rate = rate(self.counts.imported.saturating_sub(self.counts.imported_before), elapsed).round();
        self.counts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_create_the_table_is_exact() {
        let table = TableName::new("observations").expect("a name");
        assert_eq!(
            create_command(Format::Ncdc, &table),
            "terrane table create observations --family data --column data:airtemp=i32 --key 'station:bytes12, time:desc time'"
        );
        let words = [
            "terrane",
            "table",
            "create",
            "observations",
            "--family",
            "data",
            "--column",
            crate::formats::ncdc::TYPED_COLUMN,
            "--key",
            crate::formats::ncdc::KEY_PARTS,
        ];
        assert!(<crate::args::Cli as clap::Parser>::try_parse_from(words).is_ok());
        assert!(terrane_types::KeyDeclaration::parse(crate::formats::ncdc::KEY_PARTS).is_ok());
        assert!(terrane_types::KeyDeclaration::parse(crate::formats::stations::KEY_PARTS).is_ok());
    }
}
