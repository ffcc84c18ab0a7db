//! `admin slow` and `admin log`: questions to single processes. The JSON output is part of the grammar.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use terrane_client::{Client, LogFilter, SlowRequest, TableSchema};
use terrane_types::escape;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::output::{Output, duration_text};

pub async fn slow(limit: usize, connection: &Connection) -> Result<(), Failure> {
    let client = connect(connection).await?;
    let found = client.admin().slow_requests(limit).await.during("list the slow requests")?;
    let mut output = Output::new(connection.json);
    if output.is_json() {
        found.requests.iter().try_for_each(|slow| output.object(slow))?;
    } else if found.requests.is_empty() && found.failures.is_empty() {
        output.line("no slow requests since the servers started; the setting slow-request is the threshold")?;
    } else {
        let schemas = schemas(&client).await;
        let rows = found.requests.iter().map(|slow| slow_row(slow, &schemas)).collect();
        output.table(&["age", "server", "operation", "table", "keys", "took", "stages", "failure"], rows)?;
    }
    output.flush()?;
    failed(&found.failures)
}

/// Some processes did not answer: the others' answers are printed, and the command fails.
fn failed(failures: &[String]) -> Result<(), Failure> {
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("; "))) }
}

/// The schemas by table name, to show keys by their declared parts; without them, keys are shown as bytes.
async fn schemas(client: &Client) -> BTreeMap<String, TableSchema> {
    let tables = client.admin().list_tables().await.unwrap_or_default();
    tables.into_iter().map(|table| (table.schema.name.to_string(), table.schema)).collect()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn slow_row(slow: &SlowRequest, schemas: &BTreeMap<String, TableSchema>) -> Vec<String> {
    let key = schemas.get(&slow.table_name).and_then(|schema| schema.key.as_ref());
    let show = |row: &[u8]| key.map_or_else(|| escape(row), |key| key.shown(row));
    let age = Duration::from_millis(terrane_env::time::wall_ms().saturating_sub(slow.at_ms));
    let stages = slow.stages.iter().filter(|stage| stage.took >= Duration::from_millis(1));
    let stages: Vec<String> = stages.map(|stage| format!("{} {:.0} ms", stage.name, ms(stage.took))).collect();
    vec![
        duration_text(age),
        slow.server.clone(),
        slow.operation.clone(),
        slow.table_name.clone(),
        keys_text(slow, show),
        format!("{:.0} ms", ms(slow.took)),
        stages.join(", "),
        slow.failure.clone(),
    ]
}

fn keys_text(slow: &SlowRequest, show: impl Fn(&[u8]) -> String) -> String {
    match (slow.is_range, slow.rows) {
        (true, _) => {
            let bound = |row: &[u8]| if row.is_empty() { String::new() } else { show(row) };
            format!("{} .. {}", bound(&slow.first), bound(&slow.last))
        }
        (false, 0) => String::new(),
        (false, 1) => show(&slow.first),
        (false, rows) => format!("{rows} rows, {} to {}", show(&slow.first), show(&slow.last)),
    }
}

#[derive(Serialize)]
struct LogLine<'a> {
    address: &'a str,
    role: &'a str,
    filter: &'a str,
    failure: &'a str,
}

pub async fn log(filter: Option<&str>, server: Option<&str>, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let during = if filter.is_some() { "change what is logged" } else { "ask what is logged" };
    let processes = admin.log_filters(server, filter).await.during(during)?;
    let mut output = Output::new(connection.json);
    let failure = |process: &LogFilter| process.filter.as_ref().err().cloned();
    if output.is_json() {
        for process in &processes {
            let failure = failure(process).unwrap_or_default();
            let filter = process.filter.as_deref().unwrap_or_default();
            output.object(&LogLine { address: &process.address, role: &process.role, filter, failure: &failure })?;
        }
    } else {
        let row = |process: &LogFilter| {
            let filter = process.filter.clone().unwrap_or_else(|_| "?".to_owned());
            vec![process.address.clone(), process.role.clone(), filter]
        };
        output.table(&["process", "role", "filter"], processes.iter().map(row).collect())?;
    }
    output.flush()?;
    failed(&processes.iter().filter_map(failure).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_answers_do_not_hide_a_failure() {
        assert!(failed(&[]).is_ok());
        let failure = failed(&["process at a:1: gone".to_owned(), "process at b:2: gone".to_owned()]).unwrap_err();
        assert_eq!(failure.to_string(), "process at a:1: gone; process at b:2: gone");
    }
}
