//! Commands on a range of rows: `scan`, `latest`, `first`, `last`, `count`, `aggregate`.

use serde::Serialize;
use terrane_client::{LatestPer, Number, PageToken, RowStream, Scan, Table, ValueType};
use terrane_types::TableName;

use super::data::{open, print_as_of};
use super::row_printer::{RowPrinter, print_one};
use crate::args::client::RangeFlags;
use crate::args::rows as args;
use crate::args::rows::{Calculation, CellFlags, ReadFlags};
use crate::failure::{During, Failure};
use crate::output::Output;

/// Rows per page when pages are read one after another.
const PAGE_ROWS: u64 = 1_000;

/// The range that the flags select; a reversed one is an invalid command line.
pub fn range(flags: &RangeFlags) -> Result<terrane_types::KeyRange, Failure> {
    flags.range().map_err(|invalid| Failure::usage(invalid.to_string()))
}

pub async fn scan(args: args::Scan) -> Result<(), Failure> {
    let after: Option<PageToken> = match &args.after {
        Some(text) => Some(text.parse().map_err(|invalid| Failure::usage(format!("--after: {invalid}")))?),
        None => None,
    };
    let mut scan = shown(Scan::range(range(&args.range)?), &args.cells, &args.read);
    if args.reverse {
        scan = scan.reverse();
    }
    if args.snapshot {
        scan = scan.snapshot();
    }
    let table = open(&args.connection, &args.table).await?;
    let mut printer = RowPrinter::new(args.connection.json);
    let during = || format!("scan table {}", args.table);
    let mut next = None;
    if after.is_some() || (args.token && args.limit.is_some()) {
        next = pages(&table, scan, after, args.offset, args.limit, &mut printer).await.during(during())?;
    } else {
        scan = scan.offset(args.offset);
        if let Some(limit) = args.limit {
            scan = scan.limit(limit);
        }
        print_all(table.scan(scan).await.during(during())?, &mut printer).await.during(during())?;
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

async fn print_all(mut rows: RowStream, printer: &mut RowPrinter) -> Result<(), Failure> {
    while let Some(row) = rows.next().await {
        printer.row(&row?)?;
    }
    print_as_of(rows.as_of_ms());
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
    let mut scan = shown(Scan::range(range(&args.range)?), &args.cells, &args.read);
    scan = scan.latest(per, args.rows);
    if args.reverse {
        scan = scan.reverse();
    }
    if let Some(limit) = args.limit {
        scan = scan.limit(limit);
    }
    let table = open(&args.connection, &args.table).await?;
    let during = || format!("read the latest rows of table {}", args.table);
    let mut printer = RowPrinter::new(args.connection.json);
    print_all(table.scan(scan).await.during(during())?, &mut printer).await.during(during())?;
    printer.end(None)
}

pub async fn first(args: args::FirstOrLast) -> Result<(), Failure> {
    end(args, false).await
}

pub async fn last(args: args::FirstOrLast) -> Result<(), Failure> {
    end(args, true).await
}

async fn end(args: args::FirstOrLast, is_last: bool) -> Result<(), Failure> {
    let range = range(&args.range)?;
    let table = open(&args.connection, &args.table).await?;
    let mut request = if is_last { table.last(range) } else { table.first(range) };
    if let Some(filter) = &args.read.filter {
        request = request.filter(filter);
    }
    let found = request.consistency(args.read.consistency.into()).with_as_of();
    let found = found.await.during(format!("read table {}", args.table))?;
    print_as_of(found.as_of_ms);
    print_one(args.connection.json, found.value, || no_row_in_range(&args.table))
}

fn no_row_in_range(table: &TableName) -> String {
    format!("table {table} has no such row in this range")
}

pub async fn count(args: args::Count) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Counted {
        count: u64,
    }
    let range = range(&args.range)?;
    let table = open(&args.connection, &args.table).await?;
    let mut request = table.count(range).consistency(args.read.consistency.into());
    if let Some(filter) = &args.read.filter {
        request = request.filter(filter);
    }
    let found = request.with_as_of().await.during(format!("count table {}", args.table))?;
    print_as_of(found.as_of_ms);
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&Counted { count: found.value })?;
    } else {
        output.line(&found.value.to_string())?;
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
    let range = range(&args.range)?;
    let table = open(&args.connection, &args.table).await?;
    let column = &args.column;
    let mut request = table.aggregate(&column.family, &column.qualifier, column.read_as).range(range);
    if let Some(filter) = &args.read.filter {
        request = request.filter(filter);
    }
    let found = request.consistency(args.read.consistency.into()).with_as_of();
    let found = found.await.during(format!("aggregate {column} of table {}", args.table))?;
    print_as_of(found.as_of_ms);
    let values = found.value;
    let of_none = if column.read_as == ValueType::F64 { Figure::Float(0.0) } else { Figure::Integer(0) };
    let figure = match args.what {
        Calculation::Sum => Some(values.sum().map_or(of_none, Figure::from)),
        Calculation::Min => values.min().map(Figure::from),
        Calculation::Max => values.max().map(Figure::from),
        Calculation::Avg => values.average().map(Figure::Float),
        Calculation::Count => Some(Figure::Integer(values.count().into())),
    };
    let Some(figure) = figure else {
        let what = format!("table {} has no value of {column} in this range", args.table);
        return Err(Failure::nothing_there(what));
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
        output.line(&figure.text())?;
    }
    output.flush()
}

/// The scan with the cells and the consistency that the flags select.
fn shown(scan: Scan, cells: &CellFlags, read: &ReadFlags) -> Scan {
    let mut scan = scan.versions(cells.versions).consistency(read.consistency.into());
    for column in &cells.columns {
        scan = match &column.qualifier {
            Some(qualifier) => scan.column(&column.family, qualifier),
            None => scan.family(&column.family),
        };
    }
    match &read.filter {
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
