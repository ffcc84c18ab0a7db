//! Filters: the server decides which rows and cells a read returns.
//!
//! A filter is an expression in a small language that covers HBase's filters. It is built as a value or parsed from
//! text (`i32(data:airtemp) > 100 and prefix(row, '0290')`). The text is also its form on the wire:
//! [`FromStr`](std::str::FromStr) parses what [`Display`](std::fmt::Display) writes into the same filter.
//! `docs/filters.md` describes the language.
//!
//! # What a filter means
//!
//! A filter answers yes or no for **each cell of a row**. A row is returned with its yes cells, and not at all without
//! one. Tests of the row key, of a named column and of the whole row give all cells of the row the same answer; tests
//! of family, qualifier, value and timestamp answer per cell. `and`, `or` and `not` combine the answers cell by cell. A
//! filter therefore has no state and no order of evaluation, and `not` always means the opposite.
//!
//! - The filter sees the cells that the projection selects, before the projection's offset and limit of cells. A column
//!   that is tested by name is read even if the projection does not select it, and is then left out of the answer.
//! - A column tested by name means its newest version in the projection's time range, unless `any_version` is set. If
//!   the column is absent, the test fails, unless `pass_missing` is set.
//! - A value that cannot be read as the compared type (wrong length, not UTF-8) fails the test, whatever the
//!   comparison.
//! - [`Filter::Page`], [`Filter::While`] and [`Filter::KeysOnly`] apply to the scan, not to a cell: they stand alone or
//!   in the outermost `and`.
//!
//! # Invariants
//! - The same row gets the same answer on every replica and at every retry: [`Filter::Random`] hashes the row key.
//! - Cost is bounded before anything is read: text length, depth, nodes, lists and compiled patterns have limits.
//!
//! # Modules
//!
//! - [`expression`]: the filter as a value; [`limits`] and `check`: what a filter may hold.
//! - `token`, `parse`, `display`: its text. `template`, `parameter`: text with values that are bound. [`error`]: what is
//!   wrong with a filter, and where; `misspelling`: which name was meant.
//! - `into_filter`: what calls take as a filter. `condition`: filters as conditions of writes.
//! - `like`: SQL's patterns, as the tests that they stand for.
//! - `pattern` (regular expressions within limits), `fuzzy_key` (keys with open places) and `key_part` (parts of declared keys):
//!   three tests of their own.
//! - `row_set`: the rows that can pass, as ranges; `column_set`: the columns. `plan`: the filter prepared for evaluation.
//!   [`row_filter`]: evaluation on packed rows, or cell by cell.

#![warn(missing_docs)]

pub mod error;
pub mod expression;
pub mod limits;
pub mod row_filter;

mod check;
mod column_set;
mod condition;
mod display;
mod fuzzy_key;
mod into_filter;
mod key_part;
mod like;
mod misspelling;
mod parameter;
mod parse;
mod pattern;
mod plan;
mod row_set;
mod template;
mod token;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod text_tests;

pub use error::FilterError;
pub use expression::{BitOperator, ColumnSubject, Filter, KeyPartSubject, Operand, Relation, Subject};
pub use fuzzy_key::FuzzyKey;
pub use into_filter::IntoFilter;
pub use pattern::Pattern;
pub use row_filter::{RowFilter, Seek, Verdict};
pub use template::{FilterOutline, FilterTemplate};
