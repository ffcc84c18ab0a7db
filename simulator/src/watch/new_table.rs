//! A table that is created after a disaster: regions in many groups, whose rows are read again later.

use terrane_client::{Client, Error, Get, Put, TableSpec};

use crate::context::Context;
use crate::scenario::{create_table, open_table, patiently};
use crate::verdict::Failure;

const FAMILY: &str = "f";
const ROWS: usize = 24;
const REGION_ROWS: usize = 4;

fn rows() -> impl Iterator<Item = String> {
    (0..ROWS).map(|row| format!("row-{row:02}"))
}

/// Creates the table and writes its rows.
pub async fn write(client: &Client, name: &str) -> Result<(), Error> {
    let spec = TableSpec::new(name)?.family(FAMILY, &[])?;
    let spec = rows().step_by(REGION_ROWS).skip(1).fold(spec, |spec, row| spec.split_at(row.as_bytes()));
    create_table(client, &spec).await?;
    let table = open_table(client, name).await?;
    for row in rows() {
        patiently(async || table.put(Put::new(row.as_bytes()).set(FAMILY, "written", "later")).await).await?;
    }
    Ok(())
}

/// All of its rows are there.
pub async fn read(client: &Client, name: &str, after: &str, context: &Context) -> Result<(), Error> {
    let table = open_table(client, name).await?;
    for row in rows() {
        if patiently(async || table.get(Get::new(row.as_bytes())).await).await?.is_none() {
            context.state.fail(Failure::new(format!("{row} was written after {after} and is gone")));
        }
    }
    context.watch.count("tables of after a disaster that are whole");
    Ok(())
}
