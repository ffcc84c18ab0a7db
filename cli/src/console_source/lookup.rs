//! Finds a table by its name. A page names tables in its address, so a name may be anything.

use terrane_client::{Client, TableInfo};
use terrane_console::source::Failure;

use super::refusal::refused;

/// Describes a table; an unknown name gets the nearest that there is.
pub(super) async fn describe(client: &Client, name: &str) -> Result<TableInfo, Failure> {
    match client.admin().describe_table(name).await {
        Err(error) if error.is_not_found() => Err(unknown(client, name).await),
        described => described.map_err(refused),
    }
}

/// Opens a table; an unknown name gets the nearest that there is.
pub(super) async fn open(client: &Client, name: &str) -> Result<terrane_client::Table, Failure> {
    match client.table(name).await {
        Err(error) if error.is_not_found() => Err(unknown(client, name).await),
        opened => opened.map_err(refused),
    }
}

async fn unknown(client: &Client, name: &str) -> Failure {
    let tables = client.admin().list_tables().await.unwrap_or_default();
    let names: Vec<String> = tables.iter().map(|table| table.schema.name.to_string()).collect();
    Failure::unknown("table", name, names.iter().map(String::as_str))
}
