//! Writes: mutations of rows, their conditions and outcomes, and how they are sent.

pub(crate) mod batch_writer;
pub(crate) mod cell;
pub(crate) mod condition;
pub(crate) mod first_try;
pub(crate) mod many;
pub(crate) mod operations;
pub(crate) mod outcome;
pub(crate) mod requests;
pub(crate) mod row_mutation;
pub(crate) mod scatter;
pub(crate) mod table_writes;
pub(crate) mod unit;
