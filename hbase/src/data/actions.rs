//! `Multi`: gets and mutations in batches, and several mutations of one row at once.
//!
//! A region's action is answered for itself: what is wrong with one leaves the others alone, and its cells are taken from the
//! cell block all the same. How the actions are carried out is the [`Batch`]'s.

use super::DataCalls;
use super::batch::{Batch, Done};
use super::mutation::take_cells;
use crate::cell_block::BlockReader;
use crate::exception::Exception;
use crate::frame::{Call, decode_parameter};
use crate::proto;
use crate::serve::{Answer, Outcome};

/// Actions of a region for which room is made before their cells are seen.
const TAKEN_MAX: usize = 1_024;

impl DataCalls {
    pub(super) fn reader<'a>(&self, cells: &'a [u8]) -> Result<Option<BlockReader<'a>>, Exception> {
        match self.opened.codec {
            Some(codec) => Ok(Some(BlockReader::new(codec, cells))),
            None if cells.is_empty() => Ok(None),
            None => Err(Exception::bad_request("the request has a cell block on a connection without a codec")),
        }
    }

    pub(super) async fn multi(&self, call: Call) -> Outcome {
        let request: proto::MultiRequest = decode_parameter(call.parameter)?;
        if request.condition.is_some() && request.region_action.len() != 1 {
            return Err(Exception::bad_request("a condition of the whole batch needs exactly one region action"));
        }
        let mut reader = self.reader(&call.cells)?;
        let mut batch = Batch::new(self, self.requests.nonces(request.nonce_group));
        for mut action in request.region_action {
            action.condition = action.condition.or_else(|| request.condition.clone());
            // Cells are taken first and for every action: those of the next region follow them.
            let mut taken = Vec::with_capacity(action.action.len().min(TAKEN_MAX));
            for one in &action.action {
                taken.push(match &one.mutation {
                    Some(mutation) => take_cells(mutation, reader.as_mut())?,
                    None => Vec::new(),
                });
            }
            match self.requests.region(Some(&action.region), call.timeout) {
                Err(refused) => batch.refuse(refused),
                Ok(region) if action.atomic() || action.condition.is_some() => {
                    batch.atomic(&region, &action, &taken).await;
                }
                Ok(region) => batch.independent(&region, action, &taken).await,
            }
        }
        if let Some(reader) = reader {
            reader.finish().map_err(|left| Exception::bad_request(&left.what))?;
        }
        let Done { results, answer_bytes, held } = batch.finish().await;
        // The answer is a copy, and what was read goes when all of it is there.
        let _held = (held, self.requests.build(answer_bytes));
        let cells_bytes = self.opened.codec.map_or(0, |_| answer_bytes);
        let (mut response, mut cells) = (proto::MultiResponse::default(), Vec::with_capacity(cells_bytes));
        for result in results {
            response.processed = result.processed.or(response.processed);
            response.region_action_result.push(result.encode(self, &mut cells));
        }
        Ok(Answer::with_cells(&response, cells))
    }
}
