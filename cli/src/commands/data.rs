//! Single rows: `put`, `get`, `delete`, `incr`.

use serde::Serialize;
use terrane_client::{Delete, Get, Put, RowMutation, Table};
use terrane_types::limits::TIMESTAMP_MAX;
use terrane_types::{Condition, TableName};

use super::connect;
use super::row_printer::print_one;
use crate::args::client::Connection;
use crate::args::rows as args;
use crate::args::values::Column;
use crate::failure::{During, Failure};
use crate::output::Output;

/// Connects and opens a table.
pub async fn open(connection: &Connection, name: &TableName) -> Result<Table, Failure> {
    let client = connect(connection).await?;
    client.table(&name.to_string()).await.during(format!("open table {name}"))
}

pub async fn put(args: args::Put) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let qualifier = args.column.qualifier.unwrap_or_default();
    let (family, value) = (args.column.family.as_str(), &args.value.0);
    let during = format!("put into table {}", args.table);
    let put = match args.timestamp {
        // The value above the largest timestamp means "assigned by the server", which is not what the user wrote.
        Some(timestamp) if timestamp > TIMESTAMP_MAX => {
            let what = format!("the timestamp {timestamp} is outside 0 to {TIMESTAMP_MAX}");
            return Err(Failure::new(what).during(during));
        }
        Some(timestamp) => Put::new(&args.row.0).set_at(family, qualifier, timestamp, value),
        None => Put::new(&args.row.0).set(family, qualifier, value),
    };
    apply(&table, put.into(), args.condition, &during).await
}

pub async fn delete(args: args::Delete) -> Result<(), Failure> {
    let table = open(&args.connection, &args.table).await?;
    let delete = Delete::new(&args.row.0);
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
    apply(&table, delete.into(), args.condition, &format!("delete from table {}", args.table)).await
}

/// Applies the mutation; exits with status 3 if its condition does not hold.
async fn apply(
    table: &Table,
    mutation: RowMutation,
    condition: Option<Condition>,
    during: &str,
) -> Result<(), Failure> {
    let mutation = match condition {
        Some(condition) => mutation.when(condition),
        None => mutation,
    };
    if table.mutate(mutation).await.during(during)?.held {
        return Ok(());
    }
    Err(Failure::nothing_there("the condition does not hold; nothing was written").during(during))
}

pub async fn incr(args: args::Increment) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Incremented {
        value: i64,
    }
    let table = open(&args.connection, &args.table).await?;
    let qualifier = args.column.qualifier.unwrap_or_default();
    let counted = table.increment(&args.row.0, &args.column.family, qualifier, args.by);
    let value = counted.await.during(format!("increment in table {}", args.table))?;
    let mut output = Output::new(args.connection.json);
    if output.is_json() {
        output.object(&Incremented { value })?;
    } else {
        output.line(&value.to_string())?;
    }
    output.flush()
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
    if let Some(filter) = &args.read.filter {
        get = get.filter(filter);
    }
    let request = table.get(get).consistency(args.read.consistency.into()).with_as_of();
    let found = request.await.during(format!("get from table {}", args.table))?;
    print_as_of(found.as_of_ms);
    let absent = || format!("row {} of table {} has no such cells", args.row, args.table);
    print_one(args.connection.json, found.value, absent)
}

/// Prints as of when a stale read is complete.
pub fn print_as_of(as_of_ms: Option<u64>) {
    if let Some(as_of_ms) = as_of_ms {
        let behind_ms = terrane_env::time::wall_ms().saturating_sub(as_of_ms);
        eprintln!("complete as of timestamp {as_of_ms} ({behind_ms} ms ago by this machine's clock)");
    }
}
