//! The last reading of the scenario: all rows in all ways.

use std::time::Duration;

use terrane_client::Error;
use terrane_oracle::rows::Asked;
use terrane_types::KeyRange;

use super::pager;
use super::scanner::{Question, Reader};
use super::{RowKind, Shared};
use crate::scenario::play::{LAST_PATIENCE, patiently};

/// Reads all rows in all ways after all writes.
pub async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    let reader = Reader { who: host.to_owned(), table, shared };
    let all = Question::all(KeyRange::all());
    let reverse = Question { asked: Asked { reverse: true, ..all.asked.clone() }, block_bytes: 900, ..all.clone() };
    let snapshot = Question { is_snapshot: true, block_bytes: 400, ..all.clone() };
    for question in [&all, &reverse, &snapshot] {
        patiently(async || reader.scan(question).await).await?;
    }
    for kind in [None, Some(RowKind::Fixed), Some(RowKind::Churn)] {
        let question = Question { kind, ..all.clone() };
        patiently(async || reader.count(&question).await).await?;
    }
    patiently(async || reader.latest().await).await?;
    patiently(async || reader.get().await).await?;
    pager::page_through(&[&reader], &all, Duration::ZERO).await?;
    Ok(())
}
