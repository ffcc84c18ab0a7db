//! Single rows: `put`, `get`, `delete`, `incr`, `append`.

use std::io::IsTerminal;

use serde::Serialize;
use terrane_client::{Delete, Get, Put, RowMutation, Table};
use terrane_filter::FilterTemplate;
use terrane_types::limits::TIMESTAMP_MAX;
use terrane_types::{TableName, Time, ValueType, escape};

use super::row_printer::print_one;
use super::{connect, no_table};
use crate::args::client::{Connection, Times};
use crate::args::rows as args;
use crate::args::values::{Column, TimeRange};
use crate::failure::{During, Failure};
use crate::formats::column_text;
use crate::output::Output;
use crate::table_text::TableText;

/// Connects and opens a table.
pub async fn open(connection: &Connection, name: &TableName) -> Result<Table, Failure> {
    let client = connect(connection).await?;
    let during = || format!("open table {name}");
    match client.table(&name.to_string()).await {
        Err(error) if error.is_not_found() => Err(no_table(&client, &name.to_string()).await.during(during())),
        opened => opened.during(during()),
    }
}

pub async fn put(args: args::Put) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.raw);
    let (row, value) = (text.row(&args.row)?, text.value(&args.column, &args.value)?);
    let (family, qualifier) = (args.column.family.as_str(), args.column.qualifier.unwrap_or_default());
    let during = format!("put into table {}", args.table);
    let put = match args.timestamp {
        // The value above the largest timestamp means "assigned by the server", which is not what the user wrote.
        Some(timestamp) if timestamp > TIMESTAMP_MAX => {
            let what = format!("the timestamp {timestamp} is outside 0 to {TIMESTAMP_MAX}");
            return Err(Failure::new(what).during(during));
        }
        Some(timestamp) => Put::new(&row).set_at(family, qualifier, timestamp, &value),
        None => Put::new(&row).set(family, qualifier, &value),
    };
    apply(&table, &text, put.into(), args.condition, &during).await
}

pub async fn delete(args: args::Delete) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.raw);
    let delete = Delete::new(text.row(&args.row)?);
    // A tombstone hides versions up to its timestamp. The one with the current time is for reads of the past; the one
    // with the largest timestamp also hides versions with timestamps in the future.
    let of_family = |delete: Delete, family: &str| delete.family(family).family_until(family, TIMESTAMP_MAX);
    let delete = match &args.column {
        Some(Column { family, qualifier: Some(qualifier) }) => {
            delete.column(family, qualifier).column_until(family, qualifier, TIMESTAMP_MAX)
        }
        Some(Column { family, qualifier: None }) => of_family(delete, family),
        None => table.schema().families.iter().fold(delete, |delete, family| of_family(delete, family.name.as_str())),
    };
    apply(&table, &text, delete.into(), args.condition, &format!("delete from table {}", args.table)).await
}

/// Applies the mutation; exits with status 4 if its condition does not hold.
async fn apply(
    table: &Table,
    text: &TableText,
    mutation: RowMutation,
    condition: Option<FilterTemplate>,
    during: &str,
) -> Result<(), Failure> {
    let mutation = match condition {
        Some(condition) => mutation.when(text.condition(&condition)?),
        None => mutation,
    };
    let row = mutation.row().to_vec();
    if table.mutate(mutation).await.during(during).map_err(|failure| text.name_row(&row, failure))?.held {
        return Ok(());
    }
    Err(Failure::condition_failed().during(during))
}

pub async fn incr(args: args::Increment) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Incremented {
        value: i64,
    }
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.raw);
    let row = text.row(&args.row)?;
    let qualifier = args.column.qualifier.unwrap_or_default();
    check_counter(&text, &args.column.family, &qualifier)?;
    let counted = table.increment(&row, &args.column.family, qualifier, args.by);
    let value = counted.await.during(format!("increment in table {}", args.table));
    let value = value.map_err(|failure| text.name_row(&row, failure))?;
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&Incremented { value })?;
    } else {
        output.line(&value.to_string())?;
    }
    output.flush()
}

pub async fn append(args: args::Append) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.raw);
    let row = text.row(&args.row)?;
    let qualifier = args.column.qualifier.clone().unwrap_or_default();
    let family = args.column.family.as_str();
    if let Some(number) = text.value_type(family.as_bytes(), &qualifier).filter(|declared| declared.is_number()) {
        let column = column_text(family.as_bytes(), &qualifier);
        return Err(Failure::usage(format!(
            "column {column} holds {number} values; only text and bytes can be appended to"
        ))
        .advise("`terrane incr` adds to a counter"));
    }
    let value = text.value(&args.column, &args.value)?;
    let appended = table.append(&row, family, &qualifier, &value).await;
    let appended = appended.during(format!("append in table {}", args.table));
    let value = appended.map_err(|failure| text.name_row(&row, failure))?;
    let mut output = Output::new(args.connection.json);
    match output.is_json() {
        true => output.object(&serde_json::json!({ "value": escape(&value) }))?,
        false => output.line(&text.show_value(family.as_bytes(), &qualifier, &value))?,
    }
    output.flush()
}

/// Prints a counter as a number, as `get_counter` of HBase's shell does.
pub async fn counter(args: args::Get) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let row = text.row(&args.row)?;
    let [Column { family, qualifier }] = &args.columns[..] else {
        return Err(Failure::usage("a counter is one column"));
    };
    let qualifier = qualifier.clone().unwrap_or_default();
    let column = column_text(family.as_bytes(), &qualifier);
    let found = table.get(Get::new(row).column(family, &qualifier)).await;
    let found = found.during(format!("get from table {}", args.table))?;
    let Some(value) = found.as_ref().and_then(|found| found.value(family, &qualifier)) else {
        let what = format!("row {} of table {} has no counter {column}", args.row, args.table);
        return Err(Failure::not_found(what));
    };
    let Ok(value) = <[u8; 8]>::try_from(value) else {
        return Err(Failure::new(format!("column {column} holds {} bytes; a counter has 8", value.len())));
    };
    let mut output = Output::new(args.connection.json);
    match output.is_json() {
        true => output.object(&serde_json::json!({ "value": i64::from_be_bytes(value) }))?,
        false => output.line(&i64::from_be_bytes(value).to_string())?,
    }
    output.flush()
}

/// A counter is a 64-bit integer; a column that declares another type would not be readable after an increment.
fn check_counter(text: &TableText, family: &str, qualifier: &[u8]) -> Result<(), Failure> {
    match text.value_type(family.as_bytes(), qualifier) {
        None | Some(ValueType::I64 | ValueType::U64 | ValueType::Bytes) => Ok(()),
        Some(other) => {
            let column = column_text(family.as_bytes(), qualifier);
            Err(Failure::usage(format!("column {column} holds {other} values; only i64 and u64 can be incremented")))
        }
    }
}

pub async fn get(args: args::Get) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let text = TableText::of(&table, args.read.raw).showing(args.read.times);
    let mut get = Get::new(text.row(&args.row)?).versions(args.versions);
    for column in &args.columns {
        get = match &column.qualifier {
            Some(qualifier) => get.column(&column.family, qualifier),
            None => get.family(&column.family),
        };
    }
    if let Some(filter) = text.filter_of(&args.read)? {
        get = get.filter(filter);
    }
    if let Some(TimeRange { from, to }) = args.read.time_range {
        get = get.time_range(from, to);
    }
    let request = table.get(get).consistency(args.read.consistency.into()).with_as_of();
    let found = request.await.during(format!("get from table {}", args.table))?;
    print_as_of(found.as_of_ms, args.read.times);
    let is_whole = args.columns.is_empty() && args.read.filter.is_none() && args.read.time_range.is_none();
    let absent = || match is_whole {
        true => format!("table {} has no row {}", args.table, args.row),
        false => format!("row {} of table {} has no such cells", args.row, args.table),
    };
    print_one(args.connection.json, text, found.value, absent)
}

/// Prints as of when a stale read is complete.
pub fn print_as_of(as_of_ms: Option<u64>, times: Times) {
    if let Some(as_of_ms) = as_of_ms {
        let behind_ms = terrane_env::time::wall_ms().saturating_sub(as_of_ms);
        let as_of = match i64::try_from(as_of_ms) {
            Ok(millis) if times.time.is_date(std::io::stderr().is_terminal()) => Time::from_millis(millis).to_string(),
            _ => format!("timestamp {as_of_ms}"),
        };
        eprintln!("complete as of {as_of} ({behind_ms} ms ago by this machine's clock)");
    }
}
