//! Verifying a store file as a whole, showing it, and sampling it.

use super::reader::Table;

/// What a check of a file went over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckReport {}
/// How much of a file is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DumpLimits {}
