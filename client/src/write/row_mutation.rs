//! The mutation of one row: any mixture of puts, deletes, increments and appends, with a condition and the cells to return.
//!
//! Cells are packed while the mutation is built. What only some mutations have is kept in a box, so that a plain put stays
//! small. The first violated limit is recorded and returned when the mutation is used.

use bytes::Bytes;
use terrane_types::cell::pack;
use terrane_types::limits::TIMESTAMP_MAX;
use terrane_types::mutation::checks::MutationParts;
use terrane_types::row::check_row;
use terrane_types::{
    CellKind, CellRef, CellValue, FamilyName, Invalid, LATEST, ReadModifyWrite, ReadModifyWriteKind, Returns, RowKey,
    escape, escape_family,
};

use crate::wire::mutate::RowWriteExtra;
use crate::write::cell::Cell;
use crate::write::condition::Condition;

/// Any mixture of puts, deletes, increments and appends of one row, applied atomically.
///
/// Everything takes effect at one moment: the condition, increments and appends see the row as it was before. If a mutation
/// both deletes and puts a column, the delete hides only what was there *before* the mutation. A column may be named by at most
/// one increment, append or delete of its newest version, and then by no cell.
///
/// ```
/// use terrane_client::{Returns, RowMutation, column};
/// let take = RowMutation::new("job-17")
///     .set("job", "owner", "worker-3")
///     .increment("job", "tries", 1)
///     .when(column("job", "owner").is_absent())
///     .returning(Returns::New);
/// ```
#[derive(Clone, Debug)]
pub struct RowMutation {
    pub(crate) row: Bytes,
    pub(crate) cells: Vec<u8>,
    /// Deletes the whole row before the cells take effect: a delete that named nothing.
    pub(crate) whole_row: bool,
    /// What plain puts and deletes do not have.
    pub(crate) extra: Option<Box<RowWriteExtra>>,
    /// The first limit that was violated while building.
    invalid: Option<Invalid>,
}

impl RowMutation {
    /// An empty mutation of `row` (1 to 32,767 bytes).
    #[must_use]
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        let row = row.as_ref();
        let invalid = check_row(row).err();
        Self { row: Bytes::copy_from_slice(row), cells: Vec::new(), whole_row: false, extra: None, invalid }
    }

    /// A mutation that cannot be sent; awaiting it returns this error.
    pub(crate) fn refused(invalid: Invalid) -> Self {
        Self { row: Bytes::new(), cells: Vec::new(), whole_row: false, extra: None, invalid: Some(invalid) }
    }

    /// A mutation of the row with this key.
    pub(crate) fn of_key(key: &impl RowKey) -> Self {
        key.encode().map_or_else(Self::refused, Self::new)
    }

    /// Writes a cell with the server's timestamp. The value is bytes, text, a number (`5_i64`; big-endian), `bool`, a UUID or
    /// any other [`CellValue`].
    #[must_use]
    pub fn set<'v>(self, family: &str, qualifier: impl AsRef<[u8]>, value: impl Into<CellValue<'v>>) -> Self {
        self.set_at(family, qualifier, LATEST, value)
    }

    /// Writes a cell with the caller's timestamp: milliseconds since 1970, unless the application defines another meaning.
    #[must_use]
    pub fn set_at<'v>(
        mut self,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        timestamp: i64,
        value: impl Into<CellValue<'v>>,
    ) -> Self {
        match value.into().bytes() {
            Ok(value) => self.push_at(CellKind::Put, family, qualifier.as_ref(), timestamp, value),
            Err(invalid) => {
                let column = format!("{}:{}", escape_family(family.as_bytes()), escape(qualifier.as_ref()));
                self.refuse(format!("column {column}: {}", invalid.what));
            }
        }
        self
    }

    /// Adds one cell with its timestamp ([`LATEST`]: the server's).
    #[must_use]
    pub fn cell(mut self, cell: &Cell) -> Self {
        self.push_at(cell.kind, &String::from_utf8_lossy(&cell.family), &cell.qualifier, cell.timestamp, &cell.value);
        self
    }

    /// Adds `by` to a counter: a column of 8 bytes, a big-endian `i64`. An absent column counts as 0.
    #[must_use]
    pub fn increment(self, family: &str, qualifier: impl AsRef<[u8]>, by: i64) -> Self {
        self.rmw(family, qualifier.as_ref(), ReadModifyWriteKind::Increment(by))
    }

    /// Appends `value` to the value of a column. An absent column counts as empty.
    #[must_use]
    pub fn append(self, family: &str, qualifier: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.rmw(family, qualifier.as_ref(), ReadModifyWriteKind::Append(Bytes::copy_from_slice(value.as_ref())))
    }

    /// Deletes the newest version of a column, whatever its timestamp, so that the one before it shows. An absent column stays
    /// absent. A repeated call deletes the next version; a retry of the client does not.
    #[must_use]
    pub fn delete_newest(self, family: &str, qualifier: impl AsRef<[u8]>) -> Self {
        self.rmw(family, qualifier.as_ref(), ReadModifyWriteKind::DeleteNewest)
    }

    /// Applies the mutation only if this condition holds for the row. With several conditions, all must hold.
    #[must_use]
    pub fn when(mut self, condition: impl Into<Condition>) -> Self {
        let condition = match self.extra.as_mut().and_then(|extra| extra.condition.take()) {
            Some(first) => Condition::from(first).and(condition),
            None => condition.into(),
        };
        match condition.checked() {
            Ok(condition) => self.extra().condition = Some(condition),
            Err(invalid) => {
                self.invalid.get_or_insert(invalid);
            }
        }
        self
    }

    /// Returns the newest version of each column that the mutation names, as it was before or as it is after: up to 1 MiB
    /// together. With more, the mutation is refused and nothing is applied.
    #[must_use]
    pub fn returning(mut self, returns: Returns) -> Self {
        if returns != Returns::Nothing || self.extra.is_some() {
            self.extra().returns = returns;
        }
        self
    }

    /// If the condition does not hold, returns the columns that it names.
    #[must_use]
    pub fn return_found(mut self) -> Self {
        self.extra().return_found = true;
        self
    }

    /// The row written to.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    /// The approximate size of this mutation in a batch, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.row.len() + self.parts().value_bytes()
    }

    fn extra(&mut self) -> &mut RowWriteExtra {
        self.extra.get_or_insert_default()
    }

    fn rmw(mut self, family: &str, qualifier: &[u8], what: ReadModifyWriteKind) -> Self {
        let rmw = FamilyName::new(family).and_then(|family| {
            let rmw = ReadModifyWrite { family, qualifier: Bytes::copy_from_slice(qualifier), what };
            rmw.check().map(|()| rmw)
        });
        match rmw {
            Ok(rmw) => self.extra().read_modify_writes.push(rmw),
            Err(invalid) => {
                self.invalid.get_or_insert(invalid);
            }
        }
        self
    }

    pub(crate) fn join(mut self, other: Self) -> Self {
        if other.row != self.row {
            self.refuse(format!("a mutation is of one row; {} and {} are two", escape(&self.row), escape(&other.row)));
            return self;
        }
        self.invalid = self.invalid.or(other.invalid);
        self.cells.extend_from_slice(&other.cells);
        self.whole_row |= other.whole_row;
        if let Some(extra) = other.extra {
            self.extra().read_modify_writes.extend(extra.read_modify_writes);
        }
        self
    }

    pub(crate) fn push_at(&mut self, kind: CellKind, family: &str, qualifier: &[u8], timestamp: i64, value: &[u8]) {
        if timestamp < 0 {
            self.refuse(format!("a timestamp lies between 0 and {TIMESTAMP_MAX}; this one is {timestamp}"));
            return;
        }
        self.push(kind, family, qualifier, timestamp, value);
    }

    pub(crate) fn push(&mut self, kind: CellKind, family: &str, qualifier: &[u8], timestamp: i64, value: &[u8]) {
        let cell = CellRef { family: family.as_bytes(), qualifier, timestamp, kind, tags: &[], value };
        match cell.check() {
            Ok(()) => pack(&mut self.cells, cell),
            Err(invalid) => {
                self.invalid.get_or_insert(invalid);
            }
        }
    }

    fn refuse(&mut self, what: String) {
        self.invalid.get_or_insert(Invalid::new(what));
    }

    /// Checks the complete mutation, and returns what was wrong while building.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if let Some(invalid) = &self.invalid {
            return Err(invalid.clone());
        }
        self.parts().check()
    }

    /// The mutation as the checks see it.
    pub(crate) fn parts(&self) -> MutationParts<'_> {
        let extra = self.extra.as_deref();
        MutationParts {
            row: &self.row,
            delete_row: self.whole_row,
            cells: &self.cells,
            condition: extra.and_then(|extra| extra.condition.as_ref()),
            read_modify_writes: extra.map_or(&[], |extra| &extra.read_modify_writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::condition::column;
    use crate::write::operations::Increment;

    fn sentence(mutation: RowMutation) -> String {
        mutation.check().expect_err("outside a limit").what
    }

    #[test]
    fn a_column_takes_one_increment_or_append_and_nothing_else() {
        let twice = RowMutation::new("r").increment("f", "n", 1).append("f", "n", "x");
        assert!(sentence(twice).contains("column f:n"));
        let beside = RowMutation::new("r").increment("f", "n", 1).set("f", "n", "x");
        assert!(sentence(beside).contains("column f:n"));
        RowMutation::new("r").increment("f", "n", 1).set("f", "m", "x").append("g", "n", "y").check().unwrap();
    }

    #[test]
    fn an_invalid_condition_or_increment_is_reported_when_the_mutation_is_used() {
        assert!(!sentence(RowMutation::new("r").set("f", "q", "v").when(column("", "q").exists())).is_empty());
        assert!(!sentence(RowMutation::new("r").increment("", "q", 1)).is_empty());
        let long = vec![0; terrane_types::limits::VALUE_BYTES_MAX + 1];
        assert!(sentence(RowMutation::new("r").append("f", "q", long)).contains("10485760"));
        let joined = RowMutation::new("a").increments(Increment::new("b").by("f", "q", 1));
        assert!(sentence(joined).contains("one row"));
    }

    #[test]
    fn several_conditions_are_joined() {
        let both =
            RowMutation::new("r").set("f", "q", "v").when(column("f", "a").exists()).when(column("f", "b").exists());
        let condition = both.extra.unwrap().condition.unwrap();
        assert!(matches!(condition, terrane_types::Condition::All(parts) if parts.len() == 2));
    }
}
