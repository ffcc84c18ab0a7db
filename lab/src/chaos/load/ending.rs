//! The end of a run: everything that was written is read once more, when all processes run again.

use anyhow::Context;
use terrane_client::Get;
use terrane_oracle::check::{Action, Answer};

use super::{COLUMN, FAMILY, Shared, counters, registers, scans};
use crate::chaos::value;

/// Rows per call.
const BATCH: usize = 200;

/// Reads all rows by a scan and acknowledged ones also by gets, which take another path, all counters and registers. A read
/// that fails here is an error: the cluster is healthy.
pub async fn read_everything(shared: &Shared) -> anyhow::Result<()> {
    let table = shared.tables.first().context("the client with the longest timeout")?;
    let history = &shared.history;
    let op = history.call(Action::Scan { start: String::new(), stop: String::new() });
    let rows = scans::rows(table, "", "", false).await.context("the table cannot be scanned")?;
    history.end(op, Answer::Rows(rows));
    let written = shared.written.lock().clone();
    for batch in written.chunks(BATCH) {
        let call = |row: &String| history.call(Action::Get { row: row.clone() });
        let calls: Vec<u64> = batch.iter().map(call).collect();
        let found = table.get_many(batch.iter().map(Get::new)).await.context("rows cannot be read")?;
        for (op, row) in calls.into_iter().zip(found) {
            let name = row.map(|row| row.value(FAMILY, COLUMN).map_or_else(String::new, value::name_of));
            history.end(op, Answer::Found(name));
        }
    }
    for counter in (0..counters::COUNTERS).map(counters::name) {
        let op = history.call(Action::Count { counter: counter.clone() });
        let number = counters::count(table, &counter).await.with_context(|| format!("{counter} cannot be read"))?;
        history.end(op, Answer::Number(number));
    }
    for register in shared.registers.all() {
        let op = history.call(Action::Read { register: register.clone() });
        let answer = registers::read(table, &register).await.with_context(|| format!("{register} cannot be read"))?;
        history.end(op, answer);
    }
    Ok(())
}
