//! The mutation that writes a struct.

use terrane_types::{Invalid, RowKey, TableRow};

use crate::write::operations::Delete;
use crate::write::row_mutation::RowMutation;

/// Puts the columns that have a value, and deletes the others, so that the row reads back as it was put.
pub(crate) fn mutation_of<R: TableRow>(row: &R) -> Result<RowMutation, Invalid> {
    let name = row.key().encode()?;
    let mut mutation = RowMutation::new(&name);
    for ((family, qualifier), value) in R::COLUMNS.iter().zip(row.columns()?) {
        mutation = match value {
            Some(value) => mutation.set(family, qualifier, value),
            None => mutation.delete(Delete::new(&name).column(family, qualifier)),
        };
    }
    Ok(mutation)
}
