//! Mutations of rows as requests, and their replies.

use bytes::Bytes;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use terrane_types::{Condition, Error as Wire, ReadModifyWrite, ReadModifyWriteKind, Returns, RowOutcome};

use crate::wire::failure::{Failure, broken_reply};
use crate::wire::message::{Reply, Request};

/// The mutation of one row: checked, and complete but for its operation number and the time of its first try.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowWrite {
    pub(crate) row: Bytes,
    /// Packed cells.
    pub(crate) cells: Bytes,
    /// Deletes the whole row before the cells take effect.
    pub(crate) delete_row: bool,
    /// What plain puts and deletes do not have.
    pub(crate) extra: Option<Box<RowWriteExtra>>,
    /// 0 until it is numbered.
    pub(crate) operation: u64,
    /// Cluster time of the first try, in milliseconds.
    pub(crate) first_try_ms: u64,
}

/// What a mutation has in addition to its cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowWriteExtra {
    pub(crate) read_modify_writes: Vec<ReadModifyWrite>,
    pub(crate) condition: Option<Condition>,
    pub(crate) returns: Returns,
    pub(crate) return_found: bool,
}

impl RowWrite {
    /// About how many bytes it takes in a request.
    pub(crate) fn size_bytes(&self) -> usize {
        self.row.len() + self.cells.len() + self.extra.as_ref().map_or(0, |extra| extra.size_bytes())
    }

    /// Whether its reply says more than that it was applied.
    pub(crate) fn wants_result(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.condition.is_some() || extra.returns != Returns::Nothing)
    }

    fn to_wire(&self) -> v1::RowMutation {
        let plain = v1::RowMutation {
            row: self.row.clone(),
            cells: self.cells.clone(),
            delete_row: self.delete_row,
            operation: self.operation,
            first_try_ms: self.first_try_ms,
            ..v1::RowMutation::default()
        };
        let Some(extra) = &self.extra else { return plain };
        v1::RowMutation {
            condition: extra.condition.as_ref().map(v1::Condition::from),
            read_modify_writes: extra.read_modify_writes.iter().map(v1::ReadModifyWrite::from).collect(),
            returns: v1::Returns::from(extra.returns).into(),
            return_found: extra.return_found,
            ..plain
        }
    }
}

impl RowWriteExtra {
    fn size_bytes(&self) -> usize {
        let read_modify_write = |rmw: &ReadModifyWrite| {
            let appended = if let ReadModifyWriteKind::Append(value) = &rmw.what { value.len() } else { 8 };
            rmw.family.as_bytes().len() + rmw.qualifier.len() + appended
        };
        let condition =
            self.condition.as_ref().map(|condition| terrane_proto::mutation::condition_bytes(&condition.into()));
        self.read_modify_writes.iter().map(read_modify_write).sum::<usize>() + condition.unwrap_or(0)
    }
}

/// The request for rows of one region. `atomic`: all of them or none; otherwise each by itself.
pub(crate) fn request<'a>(rows: impl Iterator<Item = &'a RowWrite>, atomic: bool) -> Request {
    let rows: Vec<_> = rows.map(RowWrite::to_wire).collect();
    terrane_env::tally!("rows that clients sent to write", rows.len() as u64);
    Request(request::Body::Mutate(v1::Mutate { rows, atomic }))
}

/// The reply to a request of many rows. Rows are named by their place in the request.
pub(crate) struct Mutated {
    /// The rows that were not applied.
    failures: Vec<(usize, Failure)>,
    /// The rows whose reply says more than that they were applied.
    results: Vec<(usize, v1::RowResult)>,
    /// The cluster time of cells without a timestamp of their own, in milliseconds.
    pub(crate) stamp: u64,
}

impl Mutated {
    /// Reads the reply to a request of these rows.
    pub(crate) fn read<'a>(reply: Reply, rows: usize, row: impl Fn(usize) -> &'a RowWrite) -> Result<Self, Failure> {
        let reply::Body::Mutate(reply) = reply.0 else {
            return Err(broken_reply("the reply to a mutation is of another kind"));
        };
        if reply.errors.iter().any(|error| error.row as usize >= rows) {
            return Err(broken_reply("the reply names a row that the request does not have"));
        }
        let failures = reply.errors.into_iter().filter_map(|error| {
            let (at, decided) = (error.row as usize, error.decided);
            let error = terrane_proto::error::from_detail(error.error.unwrap_or_default());
            // Applied before, and there is no result to lose: that is success.
            let done = matches!(error, Wire::AlreadyApplied) && !row(at).wants_result();
            let decided = decided && matches!(error, Wire::Invalid(_));
            let failure = if decided { Failure::Decided(error) } else { Failure::Refused(error) };
            (!done).then_some((at, failure))
        });
        let results = reply.results.into_iter().map(|result| (result.row as usize, result));
        Ok(Self {
            failures: failures.collect(),
            results: results.filter(|(at, _)| *at < rows).collect(),
            stamp: reply.stamp,
        })
    }

    /// The rows that failed.
    pub(crate) fn take_failures(&mut self) -> Vec<(usize, Failure)> {
        std::mem::take(&mut self.failures)
    }

    /// The outcomes of the rows that have more to say than that they were applied.
    pub(crate) fn into_outcomes(self) -> impl Iterator<Item = (usize, Result<RowOutcome, Failure>)> {
        self.results.into_iter().map(|(at, result)| {
            let outcome = terrane_proto::mutation::row_outcome(result).map(|(_, outcome)| outcome);
            (at, outcome.map_err(|error| broken_reply(format!("the outcome of a row cannot be read: {error}"))))
        })
    }
}
