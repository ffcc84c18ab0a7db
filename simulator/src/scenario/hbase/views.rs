//! Rows that are written as a whole and read in batches of one cell, with the read point of the first answer wherever their region
//! goes: a reader sees one write in all cells, or its scan ends with an exception.

use terrane_client::Error;
use terrane_hbase::proto;
use terrane_hbase::proto::mutation_proto::MutationType;
use terrane_hbase_client::java_scan::JavaScan;
use terrane_hbase_client::{Change, HbaseClient};

use super::{FAMILY, ROWS, Shared, row};
use crate::scenario::play::{below, pause};
use crate::trace;

const COLUMNS: [&[u8]; 6] = [b"v0", b"v1", b"v2", b"v3", b"v4", b"v5"];
/// Rows that are written and read this way, each beside another one.
const VIEWED: usize = 4;
const PAUSE_MS: u64 = 120;
/// Longest pause between two batches.
const BATCH_PAUSE_MS: u64 = 60;
/// Of so many batches one goes to a server that does not know the scanner.
const LOST_ONE_IN: usize = 5;

fn viewed_row() -> Vec<u8> {
    [&row(below(VIEWED) * (ROWS / VIEWED))[..], b"/view"].concat()
}

/// Writes rows until the faults are over.
pub async fn write(mut client: HbaseClient, shared: Shared) -> Result<(), Error> {
    let mut number = 0_u64;
    while !shared.is_over() {
        pause(PAUSE_MS).await;
        number += 1;
        let value = || [&number.to_be_bytes()[..], &vec![b'v'; shared.context.plan.value_bytes]].concat();
        let change = |qualifier| Change { kind: MutationType::Put, column: (FAMILY, qualifier), value: value() };
        let changes = COLUMNS.map(change);
        let state = shared.context.state.clone();
        if client.mutate(&viewed_row(), &changes, None, || state.is_over()).await.is_ok() {
            shared.context.state.acknowledge();
        }
    }
    Ok(())
}

/// Reads rows until the faults are over.
pub async fn read(who: &str, mut client: HbaseClient, shared: Shared) -> Result<(), Error> {
    while !shared.is_over() {
        pause(PAUSE_MS).await;
        let row = viewed_row();
        let scan = proto::Scan {
            start_row: Some(row.clone().into()),
            stop_row: Some(row.clone().into()),
            include_stop_row: Some(true),
            batch_size: Some(1),
            max_result_size: Some(1),
            ..proto::Scan::default()
        };
        let mut scan = JavaScan::new(scan);
        let ended = loop {
            match scan.next(&mut client, || shared.is_over()).await {
                Ok(true) if below(LOST_ONE_IN) == 0 => scan.lose_scanner(),
                Ok(true) => {}
                ended => break ended,
            }
            pause(BATCH_PAUSE_MS).await;
        };
        let columns = scan.seen.len();
        trace::note(format_args!("{who} read {columns} cells, opened again {} times: {ended:?}", scan.reopened));
        judge(who, &row, &scan, ended.is_ok(), &shared);
    }
    Ok(())
}

fn judge(who: &str, row: &[u8], scan: &JavaScan, is_complete: bool, shared: &Shared) {
    shared.context.state.checked();
    let columns: Vec<_> = scan.seen.iter().map(|cell| cell.qualifier.clone().unwrap_or_default()).collect();
    let values: Vec<_> = scan.seen.iter().map(|cell| cell.value.clone().unwrap_or_default()).collect();
    let is_whole = columns.is_empty() || columns == COLUMNS;
    let is_beginning = columns.iter().zip(COLUMNS).all(|(column, expected)| column == expected);
    let is_one = values.windows(2).all(|pair| pair[0] == pair[1]);
    if is_one && if is_complete { is_whole } else { is_beginning } {
        return;
    }
    let numbers: Vec<_> =
        values.iter().map(|value| value.get(..8).map(<[u8]>::escape_ascii).map(|n| n.to_string())).collect();
    shared.fail(who, row, format_args!("showed a scan {columns:?} with {numbers:?}, which no write left"));
}
