//! `Get` and `Mutate`: calls that ask the data path one thing. They are begun where they are read and finished where their
//! answers are written, without a task of their own.

use terrane_regionserver::edge::{Answer as Answered, Mutation, Request};
use terrane_types::Error;

use super::condition::{check_same_row, condition};
use super::finish::{Finish, Mutating, ReadBack};
use super::mutation::{Prepared, prepare, row_of, take_cells};
use super::outcome::row_outcome;
use super::{DataCalls, reading};
use crate::exception::Exception;
use crate::frame::{Call, decode_parameter};
use crate::proto;
use crate::proto::mutation_proto::MutationType;
use crate::results;
use crate::serve::{Answer, Outcome};

/// What the answer to a request comes to.
pub(super) enum Finished {
    Answer(Answer),
    /// To be read first.
    ReadBack(ReadBack),
}

impl DataCalls {
    /// A call's request.
    pub(super) fn request(&self, call: &Call) -> Result<(Request, Finish), Exception> {
        if call.method == "Get" { self.get(call) } else { self.mutate(call) }
    }

    /// Carries a call out.
    pub(super) async fn one(&self, call: &Call) -> Outcome {
        let (request, finish) = self.request(call)?;
        let (answer, _held) = self.requests.one(request).await;
        match self.finish(finish, answer)? {
            Finished::Answer(answer) => Ok(answer),
            Finished::ReadBack(read_back) => self.read_again(read_back).await,
        }
    }

    fn get(&self, call: &Call) -> Result<(Request, Finish), Exception> {
        let request: proto::GetRequest = decode_parameter(call.parameter.clone())?;
        let region = self.requests.region(Some(&request.region), call.timeout)?;
        let exists_only = request.get.existence_only();
        let body = reading::get(&region, request.get)?;
        Ok((region.read(body), Finish::Get { epoch: region.descriptor.epoch, exists_only }))
    }

    fn mutate(&self, call: &Call) -> Result<(Request, Finish), Exception> {
        let request: proto::MutateRequest = decode_parameter(call.parameter.clone())?;
        let region = self.requests.region(Some(&request.region), call.timeout)?;
        let mut reader = self.reader(&call.cells)?;
        let cells = take_cells(&request.mutation, reader.as_mut())?;
        if let Some(reader) = &reader {
            reader.finish().map_err(|left| Exception::bad_request(&left.what))?;
        }
        // As HBase does: increments and appends alone show only what they return.
        let says_processed = request.condition.is_some()
            || matches!(request.mutation.mutate_type(), MutationType::Put | MutationType::Delete);
        let asked = request.condition.as_ref();
        // First: a row of another region would have the client look for that region again, for as long as it tries.
        check_same_row(asked, row_of(&request.mutation, &cells)?)?;
        let condition = asked.map(|tests| condition(&region, tests)).transpose()?.unwrap_or_default();
        let nonces = self.requests.nonces(request.nonce_group);
        let prepared = prepare(&region, &request.mutation, &cells, condition, nonces)?;
        let Prepared { row: received, exact, repeatable, read_back: columns, .. } = prepared;
        let row = received.row.clone();
        let mutation = Mutation { rows: vec![received], ..Mutation::default() };
        let (write, epoch) = (region.write(mutation, exact), region.descriptor.epoch);
        let read_back = (!columns.is_empty()).then(|| ReadBack { region, row: row.clone(), columns, says_processed });
        Ok((write, Finish::Mutate(Box::new(Mutating { epoch, row, says_processed, repeatable, read_back }))))
    }

    /// What a call's answer is, given that of its request.
    pub(super) fn finish(&self, finish: Finish, answer: Result<Answered, Error>) -> Result<Finished, Exception> {
        let mut cells = Vec::new();
        match finish {
            Finish::Get { epoch, exists_only } => {
                let rows = self.requests.rows(epoch, answer)?;
                let result = results::of_row(self.opened.codec_of_gets(), &rows, exists_only, &mut cells)?;
                Ok(Finished::Answer(Answer::with_cells(&proto::GetResponse { result: Some(result) }, cells)))
            }
            Finish::Mutate(mutating) => {
                let Mutating { epoch, row, says_processed, repeatable, read_back } = *mutating;
                let mut mutated = self.requests.mutated(epoch, answer, repeatable)?;
                let (result, holds) = match (row_outcome(&mut mutated, 0, repeatable)?, read_back) {
                    (Some(outcome), _) => {
                        let result = results::of_cells(self.opened.codec, &row, &outcome.cells, &mut cells)?;
                        // Increments and appends alone are answered with what they return, be it nothing.
                        let shown = !outcome.cells.is_empty() || !says_processed;
                        (shown.then_some(result), !outcome.condition_failed)
                    }
                    (None, None) => ((!says_processed).then(|| results::empty(self.opened.codec)), true),
                    (None, Some(read_back)) => return Ok(Finished::ReadBack(read_back)),
                };
                Ok(Finished::Answer(mutated_answer(result, says_processed.then_some(holds), cells)))
            }
        }
    }

    /// The answer to a mutation that was applied before: what its columns hold.
    pub(super) async fn read_again(&self, read_back: ReadBack) -> Outcome {
        let ReadBack { region, row, columns, says_processed } = read_back;
        let (answer, _held) = self.requests.one(region.read(reading::columns(row, columns))).await;
        let rows = self.requests.rows(region.descriptor.epoch, answer)?;
        let mut cells = Vec::new();
        let result = results::of_row(self.opened.codec, &rows, false, &mut cells)?;
        Ok(mutated_answer(Some(result), says_processed.then_some(true), cells))
    }
}

fn mutated_answer(result: Option<proto::Result>, processed: Option<bool>, cells: Vec<u8>) -> Answer {
    Answer::with_cells(&proto::MutateResponse { result, processed, metrics: None }, cells)
}
