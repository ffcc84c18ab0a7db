//! Commands on a range of rows: `scan`, `latest`, `first`, `last`, `count`, `aggregate`.

use serde::Serialize;
use terrane_client::{KeyRange, LatestPer, Number, PageToken, RowStream, Scan, Table, ValueType};
use terrane_filter::Filter;
use terrane_types::TableName;

use super::data::{open, print_as_of};
use super::merged_rows::{MergedRows, MergedScan};
use super::row_printer::{RowPrinter, print_one};
use crate::args::client::Times;
use crate::args::rows as args;
use crate::args::rows::{Calculation, CellFlags, ReadFlags};
use crate::args::values::{NumberColumn, TimeRange};
use crate::failure::{During, Failure};
use crate::formats::column_text;
use crate::output::Output;
use crate::table_text::TableText;

/// Rows per page when pages are read one after another.
const PAGE_ROWS: u64 = 1_000;

pub async fn scan(args: args::Scan) -> Result<(), Failure> {
    let after: Option<PageToken> = match &args.after {
        Some(text) => Some(text.parse().map_err(|invalid| Failure::usage(format!("--after: {invalid}")))?),
        None => None,
    };
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let filter = text.filter_of(&args.read)?;
    let of_range = |range: KeyRange| {
        let scan = shown(Scan::range(range), &args.cells, &args.read, filter.as_ref());
        if args.snapshot { scan.snapshot() } else { scan }
    };
    let mut printer = RowPrinter::new(args.connection.json, text.clone());
    let during = || format!("scan table {}", args.table);
    let mut next = None;
    if after.is_some() || (args.token && args.limit.is_some()) {
        let range = text.one_range(&args.range, "a scan by pages")?;
        let scan = if args.reverse { of_range(range).reverse() } else { of_range(range) };
        next = pages(&table, scan, after, args.offset, args.limit, &mut printer).await.during(during())?;
    } else {
        let ranges = text.ranges(&args.range)?;
        let scan = MergedScan { of_range, reverse: args.reverse, offset: args.offset, limit: args.limit };
        let mut rows = MergedRows::open(&table, ranges, scan).await.during(during())?;
        while let Some(row) = rows.next().await.during(during())? {
            printer.row(&row)?;
        }
        print_as_of(rows.as_of_ms(), args.read.times);
    }
    printer.end(args.token.then_some(next))
}

/// Prints the rows after a token, page by page, so that a large limit needs no more memory than a small one. Returns
/// the token after the last row.
async fn pages(
    table: &Table,
    scan: Scan,
    after: Option<PageToken>,
    offset: u64,
    limit: Option<u64>,
    printer: &mut RowPrinter,
) -> Result<Option<PageToken>, Failure> {
    let (mut after, mut offset, mut left) = (after, offset, limit);
    loop {
        let mut request = table.page(scan.clone()).offset(offset).limit(left.unwrap_or(PAGE_ROWS).min(PAGE_ROWS));
        if let Some(token) = after {
            request = request.after(token);
        }
        let page = request.await?;
        for row in &page.rows {
            printer.row(row)?;
        }
        offset = 0;
        left = left.map(|left| left.saturating_sub(page.rows.len() as u64));
        if page.next.is_none() || left == Some(0) {
            return Ok(page.next);
        }
        after = page.next;
    }
}

async fn print_all(mut rows: RowStream, times: Times, printer: &mut RowPrinter) -> Result<(), Failure> {
    while let Some(row) = rows.next().await {
        printer.row(&row?)?;
    }
    print_as_of(rows.as_of_ms(), times);
    Ok(())
}

pub async fn latest(args: args::Latest) -> Result<(), Failure> {
    let per = match (args.parts, args.prefix_bytes) {
        (Some(parts), _) => LatestPer::parts(parts),
        (None, Some(bytes)) => LatestPer::bytes(bytes),
        (None, None) => {
            return Err(Failure::usage("either --parts or --prefix-bytes is required"));
        }
    };
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let filter = text.filter_of(&args.read)?;
    let range = text.one_range(&args.range, "`latest`")?;
    let mut scan = shown(Scan::range(range), &args.cells, &args.read, filter.as_ref());
    scan = scan.latest(per, args.rows);
    if args.reverse {
        scan = scan.reverse();
    }
    if let Some(limit) = args.limit {
        scan = scan.limit(limit);
    }
    let during = || format!("read the latest rows of table {}", args.table);
    let mut printer = RowPrinter::new(args.connection.json, text);
    print_all(table.scan(scan).await.during(during())?, args.read.times, &mut printer).await.during(during())?;
    printer.end(None)
}

pub async fn first(args: args::FirstOrLast) -> Result<(), Failure> {
    end(args, false).await
}

pub async fn last(args: args::FirstOrLast) -> Result<(), Failure> {
    end(args, true).await
}

async fn end(args: args::FirstOrLast, is_last: bool) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let ranges = text.ranges(&args.range)?;
    let filter = text.filter_of(&args.read)?;
    let of_range = |range: KeyRange| read_by(Scan::range(range), &args.read, filter.as_ref());
    let scan = MergedScan { of_range, reverse: is_last, offset: 0, limit: Some(1) };
    let during = || format!("read table {}", args.table);
    let mut rows = MergedRows::open(&table, ranges, scan).await.during(during())?;
    let found = rows.next().await.during(during())?;
    print_as_of(rows.as_of_ms(), args.read.times);
    print_one(args.connection.json, text, found, || no_row_in_range(&args.table))
}

fn no_row_in_range(table: &TableName) -> String {
    format!("table {table} has no such row in this range")
}

pub async fn count(args: args::Count) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Counted {
        count: u64,
    }
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let ranges = text.ranges(&args.range)?.ranges;
    let filter = text.filter_of(&args.read)?;
    let (mut count, mut as_of_ms) = (0, None);
    for range in ranges {
        let mut request = table.count(range).consistency(args.read.consistency.into());
        if let Some(filter) = &filter {
            request = request.filter(filter);
        }
        if let Some(TimeRange { from, to }) = args.read.time_range {
            request = request.time_range(from, to);
        }
        let found = request.with_as_of().await.during(format!("count table {}", args.table))?;
        count += found.value;
        as_of_ms = as_of_ms.into_iter().chain(found.as_of_ms).min();
    }
    print_as_of(as_of_ms, args.read.times);
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&Counted { count })?;
    } else {
        output.line(&count.to_string())?;
    }
    output.flush()
}

/// The only field of the line that `aggregate` prints.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Calculated {
    Sum(Figure),
    Min(Figure),
    Max(Figure),
    Avg(Figure),
    Count(Figure),
}

/// A number in JSON. NaN and infinite floats become null, since JSON cannot express them.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Figure {
    Integer(i128),
    Float(f64),
}

impl From<Number> for Figure {
    fn from(number: Number) -> Figure {
        match number {
            Number::Integer(integer) => Figure::Integer(integer),
            Number::Float(float) => Figure::Float(float),
        }
    }
}

impl Figure {
    fn text(self) -> String {
        match self {
            Figure::Integer(integer) => integer.to_string(),
            Figure::Float(float) => float.to_string(),
        }
    }
}

pub async fn aggregate(args: args::Aggregate) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let range = text.one_range(&args.range, "`aggregate`")?;
    let column = &args.column;
    let read_as = number_type(&table, column)?;
    if read_as == ValueType::Time && args.what == Calculation::Sum {
        return Err(Failure::usage(format!("column {column} holds times, which have no sum"))
            .advise("times have min, max, avg and count; read them as numbers for a sum, as in i64(COLUMN)"));
    }
    let mut request = table.aggregate(&column.family, &column.qualifier, read_as).range(range);
    if let Some(TimeRange { from, to }) = args.read.time_range {
        request = request.time_range(from, to);
    }
    if let Some(filter) = text.filter_of(&args.read)? {
        request = request.filter(filter);
    }
    let found = request.consistency(args.read.consistency.into()).with_as_of();
    let found = found.await.during(format!("aggregate {column} of table {}", args.table))?;
    print_as_of(found.as_of_ms, args.read.times);
    let values = found.value;
    let of_none = if read_as == ValueType::F64 { Figure::Float(0.0) } else { Figure::Integer(0) };
    let figure = match args.what {
        Calculation::Sum => Some(values.sum().map_or(of_none, Figure::from)),
        Calculation::Min => values.min().map(Figure::from),
        Calculation::Max => values.max().map(Figure::from),
        Calculation::Avg => values.average().map(Figure::Float),
        Calculation::Count => Some(Figure::Integer(values.count().into())),
    };
    let Some(figure) = figure else {
        let what = format!("table {} has no value of {column} in this range", args.table);
        return Err(Failure::not_found(what));
    };
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&match args.what {
            Calculation::Sum => Calculated::Sum(figure),
            Calculation::Min => Calculated::Min(figure),
            Calculation::Max => Calculated::Max(figure),
            Calculation::Avg => Calculated::Avg(figure),
            Calculation::Count => Calculated::Count(figure),
        })?;
    } else {
        let shown = match figure {
            Figure::Integer(number) if args.what != Calculation::Count => text.show_number(number, read_as),
            Figure::Float(average) if read_as == ValueType::Time => text.show_number(average.round() as i128, read_as),
            figure => figure.text(),
        };
        output.line(&shown)?;
    }
    output.flush()
}

/// The type as which a column is aggregated: the given one, or the one that the table declares.
fn number_type(table: &Table, column: &NumberColumn) -> Result<ValueType, Failure> {
    let declared = || table.schema().value_type(column.family.as_bytes(), &column.qualifier);
    match column.read_as.or_else(declared) {
        Some(read_as) if read_as.is_number() => Ok(read_as),
        found => {
            let why = match found {
                Some(other) => format!("holds {other} values"),
                None => "has no declared type".to_owned(),
            };
            Err(Failure::usage(format!("column {column} {why}, and a calculation needs numbers")).advise(format!(
                "name their type, as in i64({})",
                column_text(column.family.as_bytes(), &column.qualifier)
            )))
        }
    }
}

/// The scan with the cells and the consistency that the flags select.
fn shown(scan: Scan, cells: &CellFlags, read: &ReadFlags, filter: Option<&Filter>) -> Scan {
    let scan = cells.columns.iter().fold(scan.versions(cells.versions), |scan, column| match &column.qualifier {
        Some(qualifier) => scan.column(&column.family, qualifier),
        None => scan.family(&column.family),
    });
    read_by(scan, read, filter)
}

/// The scan with the filter, the times and the consistency that the flags select.
fn read_by(scan: Scan, read: &ReadFlags, filter: Option<&Filter>) -> Scan {
    let mut scan = scan.consistency(read.consistency.into());
    if let Some(TimeRange { from, to }) = read.time_range {
        scan = scan.time_range(from, to);
    }
    match filter {
        Some(filter) => scan.filter(filter),
        None => scan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_an_aggregate_has_one_field() {
        let line = |calculated: Calculated| serde_json::to_string(&calculated).expect("JSON");
        assert_eq!(line(Calculated::Sum(Figure::Integer(-7))), r#"{"sum":-7}"#);
        let large = i128::from(u64::MAX) * 1_000;
        assert_eq!(line(Calculated::Max(Figure::Integer(large))), format!("{{\"max\":{large}}}"));
        assert_eq!(line(Calculated::Avg(Figure::Float(2.5))), r#"{"avg":2.5}"#);
        assert_eq!(line(Calculated::Min(Figure::Float(f64::NAN))), r#"{"min":null}"#);
        assert_eq!(line(Calculated::Count(Figure::Integer(3))), r#"{"count":3}"#);
    }
}
