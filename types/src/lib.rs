//! The types that all of Terrane's crates share.
//!
//! Ids, limits, row keys and ranges, table schemas, the packed cell, the rules that decide which cells a reader sees,
//! and the typed row-key codec. There is no I/O, no async and no protobuf here: everything is a function of its input,
//! so that it can be tested with property tests and works the same in a client, a server and an offline tool.
//!
//! A value of one of these types is valid: its constructor (`new`, `validate`, `parse`) checks the input, and no later
//! code has to.
//!
//! Reading order: [`cell`] and [`rows`] (the bytes), [`schema`] (what a table is), [`visibility`] (what a reader sees),
//! [`mutation`] (what a write may hold), [`keycodec`], [`key`] and [`row_key`] (typed keys), [`table_row`] (typed
//! rows), [`time`] (dates).

#![warn(missing_docs)]

pub mod admin;
pub mod byte_reader;
pub mod byte_writer;
pub mod cell;
pub mod cell_value;
pub mod columns;
pub mod condition;
pub mod endpoint;
pub mod error;
pub mod escape;
pub mod health;
pub mod ids;
pub mod inspection;
pub mod invalid;
pub mod key;
pub mod keycodec;
pub mod limits;
pub mod mutation;
pub mod name;
pub mod onward;
pub mod place;
pub mod projection;
pub mod range;
pub mod row;
pub mod row_key;
pub mod rows;
pub mod schema;
pub mod states;
pub mod table_row;
pub mod time;
pub mod value_type;
pub mod versions;
pub mod visibility;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

mod attribute;
mod binary;
mod named;
mod quantity;
mod region_counts;
mod suggestion;

// The derive generates paths that start with `::terrane_types`; this makes them valid inside the crate as well.
extern crate self as terrane_types;

pub use attribute::{attribute_values, family_attributes, table_attributes};
pub use byte_reader::{ByteReader, ByteSource, Malformed};
pub use byte_writer::ByteWriter;
pub use cell::{CellKind, CellRef, LATEST, PackedCells};
pub use cell_value::CellValue;
pub use columns::{Columns, QualifierRange};
pub use condition::{ColumnTest, Condition, Test};
pub use endpoint::{Endpoint, MasterEndpoint, ServerEndpoint};
pub use error::Error;
pub use escape::{escape, escape_family, unescape};
pub use health::{Issue, IssueKind, Severity};
pub use ids::{ClusterId, GroupId, MoveId, RegionEpoch, RegionId, ReplicaId, ServerId, TableId};
pub use inspection::Inspection;
pub use invalid::Invalid;
pub use key::KeyDeclaration;
pub use keycodec::{Bucket, Desc, Tail};
pub use mutation::{ReadModifyWrite, ReadModifyWriteKind, Returns, RowOutcome};
pub use name::{FamilyName, NamespaceName, TableName};
pub use onward::Onward;
pub use place::Place;
pub use projection::Projection;
pub use quantity::{parse_duration_ms, parse_size};
pub use range::{IntoPrefix, KeyRange};
pub use region_counts::RegionCounts;
pub use row::Row;
pub use row_key::{IntoSpan, KeySpan, RowKey};
// The derive macro has the same name as the type `Row`.
pub use rows::{PackedRow, PackedRows, pack_row};
pub use schema::{
    Bloom, Compression, FamilyRules, FamilySchema, FamilyStorage, KeepDeleted, RegionDescriptor, SplitPolicy,
    TableSchema,
};
pub use suggestion::closest;
pub use table_row::{ColumnValue, TableRow};
#[doc(no_inline)]
pub use terrane_types_derive::Row;
#[doc(hidden)]
pub use terrane_types_derive::{ClientRow, ClientRowKey};
pub use time::Time;
pub use value_type::{Value, ValueType};
