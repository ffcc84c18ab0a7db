//! The data browser: pages of rows, of one range or of one per bucket.
//!
//! The token of the next page is the last row shown, in hexadecimal: a page continues after it, whatever was written
//! meanwhile. It is no sealed page token, because a viewer of the console may read every row anyway.

use bytes::Bytes;
use terrane_client::{Client, RowData, Scan};
use terrane_console::source::{Cell, Failure, Row, RowPage, RowQuery};
use terrane_filter::Filter;
use terrane_types::{FamilyName, Invalid, KeyDeclaration, KeyRange, TableSchema, escape, unescape};

use crate::args::values::now;
use crate::formats::column_text;

use super::refusal::refused;
use super::{keys, lookup};

pub(super) async fn page(client: &Client, query: RowQuery) -> Result<RowPage, Failure> {
    let began = terrane_env::time::now_ns();
    let table = lookup::open(client, &query.table).await?;
    let schema = table.schema();
    let ranges = ranges(&schema, &query)?;
    let mut found: Vec<RowData> = Vec::new();
    for range in ranges {
        let wanted = (query.limit + 1).saturating_sub(found.len());
        if wanted == 0 {
            break;
        }
        let mut scan = Scan::range(range).limit(wanted as u64);
        for column in &query.columns {
            scan = match column.split_once(':') {
                Some((family, qualifier)) => scan.column(family_of(family)?.as_str(), bytes_of(qualifier)?),
                None => scan.family(family_of(column)?.as_str()),
            };
        }
        if let Some(filter) = &query.filter {
            scan = scan.filter(Filter::with(filter.as_str()).at(now()));
        }
        let mut rows = table.scan(scan).await.map_err(refused)?;
        while let Some(row) = rows.next().await {
            found.push(row.map_err(refused)?);
        }
    }
    let more = found.len() > query.limit;
    found.truncate(query.limit);
    let next = found.last().filter(|_| more).map(|row| token(row.row()));
    let parts = schema.key.as_ref().map_or(&[][..], KeyDeclaration::text_parts);
    Ok(RowPage {
        table: query.table,
        key_parts: parts.iter().map(|part| part.name.clone()).collect(),
        rows: found.iter().map(|row| shown(&schema, row, query.value_bytes_max)).collect(),
        next,
        duration_us: terrane_env::time::now_ns().saturating_sub(began) / 1_000,
    })
}

/// The ranges of the page, ascending: those of the prefix, from the start or after the page before.
fn ranges(schema: &TableSchema, query: &RowQuery) -> Result<Vec<KeyRange>, Failure> {
    let key = schema.key.as_ref();
    let salted = key.is_some_and(|key| key.text_parts().len() < key.parts().len());
    let mut ranges = match &query.prefix {
        Some(prefix) => keys::prefix(key, prefix)?,
        None if salted => keys::prefix(key, &terrane_console::source::Bound::Typed(String::new()))?,
        None => vec![KeyRange::all()],
    };
    if let Some(after) = &query.after {
        let mut first = row_of(after)?;
        first.push(0);
        ranges.retain_mut(|range| from(range, &first));
    } else if let Some(start) = &query.start {
        let start = keys::start(key, start)?;
        ranges.retain_mut(|range| {
            let bucket = if salted { &range.start[..1.min(range.start.len())] } else { &[] };
            let start = [bucket, &start[..]].concat();
            from(range, &start)
        });
    }
    Ok(ranges)
}

/// Moves the start of a range to a row; returns whether anything is left of it.
fn from(range: &mut KeyRange, first: &[u8]) -> bool {
    if *range.start < *first {
        range.start = Bytes::copy_from_slice(first);
    }
    range.end.is_empty() || range.start < range.end
}

fn token(row: &[u8]) -> String {
    row.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn row_of(token: &str) -> Result<Vec<u8>, Failure> {
    let digits: Option<Vec<u8>> =
        token.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    match digits.filter(|digits| digits.len() % 2 == 0 && !digits.is_empty()) {
        Some(digits) => Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()),
        None => Err(Failure::bad_input("The token of the page is damaged.", "Begin with the first page.")),
    }
}

fn family_of(text: &str) -> Result<FamilyName, Failure> {
    text.parse().map_err(|bad| malformed(text, &bad))
}

fn bytes_of(text: &str) -> Result<Vec<u8>, Failure> {
    unescape(text).map_err(|bad| malformed(text, &bad))
}

fn malformed(text: &str, bad: &Invalid) -> Failure {
    Failure::bad_input(format!("The column {text:?} is malformed: {bad}."), "Write it as `family:qualifier`.")
}

fn shown(schema: &TableSchema, row: &RowData, value_bytes_max: usize) -> Row {
    let key = schema.key.as_ref();
    let parts = key.map_or_else(Vec::new, |key| {
        let unknown = || {
            let mut parts = vec![String::new(); key.text_parts().len()];
            parts[0] = escape(row.row());
            parts
        };
        key.decode(row.row()).unwrap_or_else(|_| unknown())
    });
    let cell = |cell: terrane_client::CellRef<'_>| {
        let value_type = schema.value_type(cell.family, cell.qualifier);
        Cell {
            column: column_text(cell.family, cell.qualifier),
            timestamp: cell.timestamp,
            value: cell.value[..cell.value.len().min(value_bytes_max)].to_vec(),
            typed: value_type.and_then(|value_type| value_type.text(cell.value).ok()),
            value_bytes: cell.value.len() as u64,
        }
    };
    Row { key: keys::shown(key, row.row()), parts, cells: row.cells().map(cell).collect() }
}

#[cfg(test)]
mod tests {
    use terrane_console::source::Bound;

    use super::*;

    #[test]
    fn a_token_is_the_last_row_and_a_damaged_one_is_refused() {
        assert_eq!(row_of(&token(b"a\x00\xff")).unwrap(), b"a\x00\xff");
        for damaged in ["", "a", "zz", "é"] {
            assert_eq!(row_of(damaged).unwrap_err().next, "Begin with the first page.");
        }
    }

    #[test]
    fn a_page_of_a_salted_table_continues_in_its_bucket_and_the_later_ones() {
        let mut schema = TableSchema::new("t".parse().unwrap());
        schema.key = Some(KeyDeclaration::parse("bucket4, user:u64").unwrap());
        let query = RowQuery {
            table: "t".to_owned(),
            prefix: None,
            start: None,
            after: None,
            columns: Vec::new(),
            filter: None,
            limit: 10,
            value_bytes_max: 10,
        };
        assert_eq!(ranges(&schema, &query).unwrap().len(), 4);
        let start = Some(Bound::Typed("7".to_owned()));
        let from_seven = ranges(&schema, &RowQuery { start, ..query.clone() }).unwrap();
        assert!(from_seven.iter().all(|range| range.start.len() == 9 && range.start.ends_with(&[7])), "{from_seven:?}");
        let after = Some(token(&from_seven[2].start));
        let rest = ranges(&schema, &RowQuery { after, ..query }).unwrap();
        assert_eq!(rest.len(), 2);
        assert!(rest[0].start > from_seven[2].start);
    }
}
