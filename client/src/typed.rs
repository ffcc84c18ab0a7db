//! Tables of typed rows and keys, on top of the untyped reads and writes.

pub(crate) mod bucket_merge;
pub(crate) mod keyed;
pub(crate) mod mutation;
pub(crate) mod reads;
pub(crate) mod table;
pub(crate) mod typed_row;
pub(crate) mod values;
pub(crate) mod writer;
