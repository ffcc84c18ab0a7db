//! Reads everything in several ways after all writes: every acknowledged write must be there.

use std::time::Duration;

use terrane_client::{Error, KeyRange};

use super::clients::{Reader, TABLE, connect, open_table, passes, watch};
use super::run_state::RunState;
use super::trace::{self, chain};
use crate::plan::ROWS;

const PATIENCE: Duration = Duration::from_secs(20);

/// Adds a client that reads all rows and compares.
pub fn add(sim: &mut turmoil::Sim<'static>, host: &'static str, state: &RunState) {
    sim.client(host, watch(host, state.clone(), read_everything(host, state.clone())));
}

async fn read_everything(host: &'static str, state: RunState) -> Result<(), Error> {
    let client = connect(PATIENCE).await?;
    let table = open_table(&client).await?;
    let reader = Reader { who: host.to_owned(), table, state: state.clone() };
    let forward = patiently(async || reader.scan(KeyRange::all(), false, None).await).await?;
    let mut backward = patiently(async || reader.scan(KeyRange::all(), true, None).await).await?;
    backward.reverse();
    let counted = patiently(async || reader.table.count(KeyRange::all()).await).await?;
    if let Some((one, other)) = forward.iter().zip(&backward).find(|(one, other)| one != other) {
        state.fail(format_args!("{host}: forwards {one:?}, backwards {other:?}, without writes in between"));
    }
    let lengths = [forward.len() as u64, backward.len() as u64, counted];
    if lengths.iter().any(|length| *length != lengths[0]) || lengths[0] < state.certain_keys() {
        let least = state.certain_keys();
        state.fail(format_args!("{host}: forwards, backwards and counted {lengths:?} rows; at least {least} exist"));
    }
    if forward.len() < ROWS {
        state.fail(format_args!("{host}: {} rows exist, {ROWS} were written", forward.len()));
    }
    for (key, _) in forward.iter().step_by(7) {
        patiently(async || reader.get(key).await).await?;
    }
    let regions = patiently(async || client.admin().regions(Some(TABLE)).await).await?;
    state.show_regions(regions.len());
    trace::note(format_args!("{host} read {} rows in {} regions", forward.len(), regions.len()));
    Ok(())
}

/// Retries after transient errors: if the cluster never recovers, the run is stuck.
pub async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match ask().await {
            Err(error) if passes(&error) => trace::note(format_args!("no answer yet: {}", chain(&error))),
            done => return done,
        }
    }
}
