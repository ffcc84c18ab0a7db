//! Filters: which rows and cells a read shows, decided on the server.
//!
//! A filter is an expression from a closed set that covers what HBase's filters can say. It is built as a value or read from
//! text (`i32(data:airtemp) > 100 and prefix(row, '0290')`); the text is its form on the wire, so both are the same thing:
//! what [`Display`](std::fmt::Display) writes, [`FromStr`](std::str::FromStr) reads back. `docs/filters.md` is the language on one page.
//!
//! # What a filter means
//!
//! A filter is a yes or no for **each cell of a row**; a row is shown with the cells that got a yes, and not at all when none
//! did. Tests of the row key, of a column by name and of the row as a whole have one answer for all cells of the row; tests of
//! family, qualifier, value and timestamp have one for each. `and`, `or` and `not` join the answers cell by cell. So a filter has
//! no state and no order of evaluation, and `not` always means the opposite.
//!
//! - It sees the cells that the projection shows, before the projection's own offset and limit of cells. A column tested by
//!   name is read even when it is not asked for, and left out of the answer then.
//! - A column tested by name stands for its newest version inside the projection's times, unless all versions are to be
//!   looked at. When it is absent the test fails, unless told otherwise.
//! - A value that cannot be read as the type it is compared as (a wrong length, no UTF-8) fails the test, whichever it is.
//! - [`Filter::Page`], [`Filter::While`] and [`Filter::KeysOnly`] are about the scan, not about a cell: they stand alone or in the
//!   outermost `and`.
//!
//! # Invariants
//! - The same row at the same moment gets the same answer on every replica and at every retry: [`Filter::Random`] is a hash of
//!   the row, not a die.
//! - Cost is bounded before anything is read: length, depth, nodes, lists and compiled patterns all have limits.
//!
//! # Modules
//!
//! - [`expression`]: the filter as a value; [`limits`] and `check`: what a filter may hold.
//! - `token`, `parse`, `display`: its text. [`error`]: what is wrong with a text, and where.
//! - `pattern` (regular expressions within limits) and `fuzzy_key` (keys with open places): two tests of their own.
//! - `row_set`: the rows that can pass, as ranges. `plan`: the filter prepared for evaluation. [`row_filter`]: evaluation over
//!   packed rows.

#![warn(missing_docs)]

pub mod error;
pub mod expression;
pub mod limits;
pub mod row_filter;

mod check;
mod display;
mod fuzzy_key;
mod parse;
mod pattern;
mod plan;
mod row_set;
mod token;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod text_tests;

pub use error::FilterError;
pub use expression::{BitOperator, ColumnSubject, Filter, Operand, Relation, Subject};
pub use fuzzy_key::FuzzyKey;
pub use pattern::Pattern;
pub use row_filter::{RowFilter, Seek, Verdict};
