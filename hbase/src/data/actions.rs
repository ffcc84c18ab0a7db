//! `Mutate` and `Multi`: mutations one by one, in batches, and several of one row at once.
//!
//! A region's action is answered for itself: what is wrong with one leaves the others alone, and its cells are taken from the
//! cell block all the same.

use terrane_regionserver::edge::{Mutated, Mutation};
use terrane_types::limits::{BATCH_BYTES_MAX, BATCH_ROWS_MAX};
use terrane_types::{Error, RowOutcome};

use super::DataCalls;
use super::mutation::{Prepared, condition, join, prepare, take_cells};
use super::requests::{Region, exception};
use super::results;
use crate::cell_block::BlockReader;
use crate::exception::Exception;
use crate::frame::{Call, decode_parameter};
use crate::proto;
use crate::serve::{Answer, Outcome};

/// Rows and bytes of one write of a batch: a batch is cut between rows below the limits of the data path.
const WRITE_ROWS_MAX: usize = BATCH_ROWS_MAX / 4;
const WRITE_BYTES_MAX: usize = BATCH_BYTES_MAX / 4;

/// Bytes of cells in one answer to a batch, after which the client asks for the rest again.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What one action of a batch came to: a result, the cells it refers to, or why not.
type Done = Result<(proto::Result, Vec<u8>), Exception>;

/// An action, before it is carried out.
enum Step {
    Get(Box<proto::Get>),
    Write(Box<Prepared>),
    Refused(Exception),
}

/// The outcome of one row of a write.
fn row_outcome(mutated: &mut Mutated, row: u32, repeatable: bool) -> Result<RowOutcome, Exception> {
    if let Some(failure) = mutated.errors.iter().find(|failure| failure.row == row) {
        return Err(exception(&failure.error, repeatable));
    }
    let found = mutated.results.iter().position(|(at, _)| *at == row);
    Ok(found.map(|at| mutated.results.swap_remove(at).1).unwrap_or_default())
}

impl DataCalls {
    fn reader<'a>(&self, cells: &'a [u8]) -> Result<Option<BlockReader<'a>>, Exception> {
        match self.opened.codec {
            Some(codec) => Ok(Some(BlockReader::new(codec, cells))),
            None if cells.is_empty() => Ok(None),
            None => Err(Exception::bad_request("the request has a cell block on a connection without a codec")),
        }
    }

    pub(super) async fn mutate(&self, call: Call) -> Outcome {
        let request: proto::MutateRequest = decode_parameter(call.parameter)?;
        let region = self.requests.region(Some(&request.region), call.timeout)?;
        let mut reader = self.reader(&call.cells)?;
        let cells = take_cells(&request.mutation, reader.as_mut())?;
        if let Some(reader) = &reader {
            reader.finish().map_err(|left| Exception::bad_request(&left.what))?;
        }
        let is_conditional = request.condition.is_some();
        let condition = request.condition.map(|tests| condition(&region, &tests)).transpose()?;
        let prepared = prepare(&region, request.mutation, &cells, condition)?;
        drop((cells, reader));
        let row = prepared.row.row.clone();
        let outcome = self.write_one(&region, prepared).await?;
        let (result, block) = results::of_cells(self.opened.codec, &row, &outcome.cells)?;
        let processed = is_conditional.then_some(!outcome.condition_failed);
        let result = (!outcome.cells.is_empty()).then_some(result);
        Ok(Answer::with_cells(&proto::MutateResponse { result, processed, metrics: None }, block))
    }

    async fn write_one(&self, region: &Region, prepared: Prepared) -> Result<RowOutcome, Exception> {
        let Prepared { row, exact, repeatable } = prepared;
        let mutation = Mutation { rows: vec![row], ..Mutation::default() };
        let mut mutated = self.requests.write(region, mutation, exact, repeatable).await?;
        row_outcome(&mut mutated, 0, repeatable)
    }

    pub(super) async fn multi(&self, call: Call) -> Outcome {
        let request: proto::MultiRequest = decode_parameter(call.parameter)?;
        if request.condition.is_some() && request.region_action.len() != 1 {
            return Err(Exception::bad_request("a condition of the whole batch needs exactly one region action"));
        }
        let mut reader = self.reader(&call.cells)?;
        let (mut response, mut cells) = (proto::MultiResponse::default(), Vec::new());
        for mut action in request.region_action {
            action.condition = action.condition.or_else(|| request.condition.clone());
            // Cells are taken first and for every action: those of the next region follow them.
            let mut taken = Vec::with_capacity(action.action.len().min(WRITE_ROWS_MAX));
            for one in &action.action {
                taken.push(match &one.mutation {
                    Some(mutation) => take_cells(mutation, reader.as_mut())?,
                    None => Vec::new(),
                });
            }
            let region = self.requests.region(Some(&action.region), call.timeout);
            let result = match region {
                Err(refused) => failed(&refused),
                Ok(region) if action.atomic() || action.condition.is_some() => {
                    self.atomic(&region, action, &taken).await
                }
                Ok(region) => self.independent(&region, action, &taken, &mut cells).await,
            };
            if result.processed.is_some() {
                response.processed = result.processed;
            }
            response.region_action_result.push(result);
        }
        if let Some(reader) = reader {
            reader.finish().map_err(|left| Exception::bad_request(&left.what))?;
        }
        Ok(Answer::with_cells(&response, cells))
    }

    /// Several mutations of one row, all or none.
    async fn atomic(
        &self,
        region: &Region,
        action: proto::RegionAction,
        taken: &[Vec<crate::cell_block::KeyValue<'_>>],
    ) -> proto::RegionActionResult {
        // The Java client leaves the numbers out here, and expects places.
        let indices: Vec<Option<u32>> =
            action.action.iter().zip(0..).map(|(one, place)| Some(one.index.unwrap_or(place))).collect();
        let prepared = || {
            let condition = action.condition.as_ref().map(|tests| condition(region, tests)).transpose()?;
            let mut rows = Vec::with_capacity(taken.len());
            for (one, cells) in action.action.iter().zip(taken) {
                let mutation = one.mutation.clone();
                let mutation = mutation.ok_or_else(|| Exception::bad_request("an atomic batch has only mutations"))?;
                rows.push(prepare(region, mutation, cells, None)?);
            }
            join(rows, condition)
        };
        let outcome = match prepared() {
            Ok(prepared) => self.write_one(region, prepared).await,
            Err(refused) => Err(refused),
        };
        match outcome {
            Err(refused) => failed(&refused),
            Ok(outcome) => proto::RegionActionResult {
                result_or_exception: indices
                    .into_iter()
                    .map(|index| done(index, results::empty(self.opened.codec)))
                    .collect(),
                exception: None,
                processed: Some(!outcome.condition_failed),
            },
        }
    }

    /// Actions that succeed or fail each for itself. Mutations keep their order.
    async fn independent(
        &self,
        region: &Region,
        action: proto::RegionAction,
        taken: &[Vec<crate::cell_block::KeyValue<'_>>],
        cells: &mut Vec<u8>,
    ) -> proto::RegionActionResult {
        let mut indices = Vec::with_capacity(taken.len());
        let mut steps = Vec::with_capacity(taken.len());
        for (one, cells) in action.action.into_iter().zip(taken) {
            indices.push(one.index);
            steps.push(match (one.mutation, one.get) {
                (Some(mutation), None) => match prepare(region, mutation, cells, None) {
                    Ok(prepared) => Step::Write(Box::new(prepared)),
                    Err(refused) => Step::Refused(refused),
                },
                (None, Some(get)) => Step::Get(Box::new(get)),
                _ => Step::Refused(Exception::bad_request("an action is a mutation or a get here")),
            });
        }
        let outcomes = self.carry_out(region, steps, cells.len()).await;
        let mut result = proto::RegionActionResult::default();
        for (index, outcome) in indices.into_iter().zip(outcomes) {
            result.result_or_exception.push(match outcome {
                Ok((found, block)) => {
                    cells.extend_from_slice(&block);
                    done(index, found)
                }
                Err(refused) => proto::ResultOrException { index, result: None, exception: Some(refused.to_pair()) },
            });
        }
        result
    }

    /// Writes first, in parts that the data path takes; then reads.
    async fn carry_out(&self, region: &Region, steps: Vec<Step>, mut bytes: usize) -> Vec<Done> {
        let mut outcomes: Vec<Option<Done>> = steps.iter().map(|_| None).collect();
        let (mut part, mut part_bytes) = (Vec::new(), 0);
        let mut gets = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Refused(refused) => outcomes[at] = Some(Err(refused)),
                Step::Get(get) => gets.push((at, get)),
                Step::Write(prepared) => {
                    part_bytes += prepared.row.memory_bytes();
                    part.push((at, *prepared));
                    if part.len() >= WRITE_ROWS_MAX || part_bytes >= WRITE_BYTES_MAX {
                        self.write_part(region, std::mem::take(&mut part), &mut outcomes).await;
                        part_bytes = 0;
                    }
                }
            }
        }
        self.write_part(region, part, &mut outcomes).await;
        for (at, get) in gets {
            let outcome = if bytes > ANSWER_BYTES_MAX {
                Err(Exception::new(crate::exception::RETRY_IMMEDIATELY, "the answer is full; ask for the rest again"))
            } else {
                self.read_row(region, *get).await
            };
            bytes += outcome.as_ref().map_or(0, |(_, block)| block.len());
            outcomes[at] = Some(outcome);
        }
        let missing = || Err(exception(&Error::Uncertain { not_tried: true }, true));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }

    async fn write_part(&self, region: &Region, part: Vec<(usize, Prepared)>, outcomes: &mut [Option<Done>]) {
        if part.is_empty() {
            return;
        }
        let exact = part.iter().any(|(_, prepared)| prepared.exact);
        let (mut rows, mut about) = (Vec::with_capacity(part.len()), Vec::with_capacity(part.len()));
        for (at, Prepared { row, repeatable, .. }) in part {
            about.push((at, row.row.clone(), repeatable));
            rows.push(row);
        }
        let all_repeatable = about.iter().all(|(_, _, repeatable)| *repeatable);
        let mutation = Mutation { rows, ..Mutation::default() };
        let mut mutated = match self.requests.write(region, mutation, exact, all_repeatable).await {
            Ok(mutated) => mutated,
            Err(refused) => {
                about.into_iter().for_each(|(at, ..)| outcomes[at] = Some(Err(refused.clone())));
                return;
            }
        };
        for ((at, row, repeatable), place) in about.into_iter().zip(0u32..) {
            let outcome = row_outcome(&mut mutated, place, repeatable);
            let done = outcome.and_then(|outcome| results::of_cells(self.opened.codec, &row, &outcome.cells));
            outcomes[at] = Some(done);
        }
    }
}

fn done(index: Option<u32>, result: proto::Result) -> proto::ResultOrException {
    proto::ResultOrException { index, result: Some(result), exception: None }
}

fn failed(refused: &Exception) -> proto::RegionActionResult {
    proto::RegionActionResult { exception: Some(refused.to_pair()), ..proto::RegionActionResult::default() }
}
