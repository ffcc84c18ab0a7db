//! The part of a row that a reader requests: families, columns, versions, a time range, and how many cells.
//!
//! The returned cells are decided in this order: columns, versions and times; then the read's filter, if it has one,
//! which sees the remaining cells (and the columns it tests by name, even if they are not requested); then the offset
//! and limit of cells, which count cells that passed the filter; then values are removed for `keys_only`. A row without
//! remaining cells is not returned.

use bytes::Bytes;

use crate::columns::{Columns, QualifierRange};
use crate::invalid::Invalid;
use crate::limits::{QUALIFIER_BYTES_MAX, VERSIONS_MAX};
use crate::name::FamilyName;

/// Most columns and ranges of columns in one projection: each is looked up in every row.
pub const COLUMNS_MAX: usize = 4_096;

/// The columns, versions and times that a get or scan returns.
///
/// ```
/// use terrane_types::Projection;
/// let one = Projection::all().with_column("data".parse()?, "airtemp");
/// assert!(one.selects(b"data", b"airtemp"));
/// assert!(!one.selects(b"data", b"wind"));
/// assert!(Projection::all().selects(b"data", b"wind"));
/// let some = Projection::all().with_qualifier_prefix("data".parse()?, "air");
/// assert!(some.selects(b"data", b"airtemp") && !some.selects(b"data", b"wind"));
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The requested families with their columns; an empty list means all families.
    pub families: Vec<(FamilyName, Columns)>,
    /// How many versions of each column, at least 1. The family may keep fewer.
    pub versions: u32,
    /// The lowest timestamp returned.
    pub time_min: i64,
    /// The first timestamp above those returned; `i64::MAX`: unbounded.
    pub time_max: i64,
    /// How many cells of each row to skip, counted after the filter.
    pub cell_offset: u32,
    /// How many cells of each row to return after those; 0: all.
    pub cell_limit: u32,
    /// Return cells without their values.
    pub keys_only: bool,
    /// Return one cell of each row: the first one after `cell_offset`.
    pub first_cell_only: bool,
}

/// All columns of a family.
static WHOLE_FAMILY: Columns = Columns::whole_family();

impl Projection {
    /// The newest version of every column.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            families: Vec::new(),
            versions: 1,
            time_min: 0,
            time_max: i64::MAX,
            cell_offset: 0,
            cell_limit: 0,
            keys_only: false,
            first_cell_only: false,
        }
    }

    /// Adds a whole family. It replaces columns of the family that were added before.
    #[must_use]
    pub fn with_family(mut self, family: FamilyName) -> Self {
        match self.families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, columns)) => *columns = Columns::default(),
            None => self.families.push((family, Columns::default())),
        }
        self
    }

    /// Adds one column. Has no effect if the whole family is requested.
    #[must_use]
    pub fn with_column(mut self, family: FamilyName, qualifier: impl Into<Bytes>) -> Self {
        if let Some(columns) = self.columns_mut(family) {
            columns.add(qualifier.into());
        }
        self
    }

    /// Adds a range of columns, with qualifiers from `start` (inclusive) to `end` (exclusive; empty: unbounded). Has no
    /// effect if the whole family is requested.
    #[must_use]
    pub fn with_qualifier_range(mut self, family: FamilyName, start: impl Into<Bytes>, end: impl Into<Bytes>) -> Self {
        if let Some(columns) = self.columns_mut(family) {
            columns.add_range(QualifierRange { start: start.into(), end: end.into() });
        }
        self
    }

    /// Adds the columns whose qualifiers start with `prefix`.
    #[must_use]
    pub fn with_qualifier_prefix(self, family: FamilyName, prefix: impl AsRef<[u8]>) -> Self {
        let QualifierRange { start, end } = QualifierRange::prefix(prefix.as_ref());
        self.with_qualifier_range(family, start, end)
    }

    /// The columns of a family, to add to; `None` if the whole family is requested.
    fn columns_mut(&mut self, family: FamilyName) -> Option<&mut Columns> {
        let at = match self.families.iter().position(|(name, _)| *name == family) {
            Some(at) if self.families[at].1.is_whole_family() => return None,
            Some(at) => at,
            None => {
                self.families.push((family, Columns::default()));
                self.families.len() - 1
            }
        };
        Some(&mut self.families[at].1)
    }

    /// Requests up to this many versions of each column.
    #[must_use]
    pub const fn with_versions(mut self, versions: u32) -> Self {
        self.versions = versions;
        self
    }

    /// Requests timestamps from `time_min` (inclusive) to `time_max` (exclusive).
    #[must_use]
    pub const fn with_times(mut self, time_min: i64, time_max: i64) -> Self {
        self.time_min = time_min;
        self.time_max = time_max;
        self
    }

    /// Skips the first `offset` cells of each row and returns up to `limit` after them; 0: all.
    #[must_use]
    pub const fn with_cells(mut self, offset: u32, limit: u32) -> Self {
        self.cell_offset = offset;
        self.cell_limit = limit;
        self
    }

    /// Requests cells without their values.
    #[must_use]
    pub const fn with_keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Requests only the first cell of each row.
    #[must_use]
    pub const fn with_first_cell_only(mut self) -> Self {
        self.first_cell_only = true;
        self
    }

    /// Checks a projection from outside and brings it into the form that [`Projection::selects`] relies on.
    ///
    /// # Errors
    /// [`Invalid`] for no versions or too many, a reversed time range, a repeated family, too many columns, or a
    /// reversed range of columns.
    pub fn checked(mut self) -> Result<Self, Invalid> {
        if !(1..=VERSIONS_MAX).contains(&self.versions) {
            return Err(Invalid::new(format!("{} versions are requested; request 1 to {VERSIONS_MAX}", self.versions)));
        }
        if self.time_min < 0 || self.time_max < self.time_min {
            return Err(Invalid::new(format!(
                "the time range {}..{} is negative or reversed",
                self.time_min, self.time_max
            )));
        }
        for at in 1..self.families.len() {
            let name = &self.families[at].0;
            if self.families[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Invalid::new(format!("family {name} is requested twice")));
            }
        }
        let named: usize =
            self.families.iter().map(|(_, columns)| columns.qualifiers.len() + columns.ranges.len()).sum();
        if named > COLUMNS_MAX {
            return Err(Invalid::new(format!(
                "{named} columns and ranges of columns are requested; request up to {COLUMNS_MAX}, or whole families"
            )));
        }
        for (family, columns) in &mut self.families {
            check_columns(family, columns)?;
            columns.normalize();
        }
        Ok(self)
    }

    /// Whether any column of the family is requested.
    #[must_use]
    pub fn selects_family(&self, family: &[u8]) -> bool {
        self.families.is_empty() || self.families.iter().any(|(name, _)| name.as_bytes() == family)
    }

    /// The requested columns of the family; `None` if the family is not requested.
    #[must_use]
    pub fn columns(&self, family: &[u8]) -> Option<&Columns> {
        if self.families.is_empty() {
            return Some(&WHOLE_FAMILY);
        }
        let (_, columns) = self.families.iter().find(|(name, _)| name.as_bytes() == family)?;
        Some(columns)
    }

    /// Whether the column is requested.
    #[must_use]
    pub fn selects(&self, family: &[u8], qualifier: &[u8]) -> bool {
        self.columns(family).is_some_and(|columns| columns.selects(qualifier))
    }

    /// Whether the offset or limit may leave out cells of a row.
    #[must_use]
    pub const fn limits_cells(&self) -> bool {
        self.cell_offset > 0 || self.cell_limit > 0 || self.first_cell_only
    }

    /// How many cells of a row to skip, and how many to return after those.
    #[must_use]
    pub fn cell_window(&self) -> (usize, usize) {
        let limit = match (self.first_cell_only, self.cell_limit) {
            (true, _) => 1,
            (false, 0) => usize::MAX,
            (false, limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        (usize::try_from(self.cell_offset).unwrap_or(usize::MAX), limit)
    }
}

fn check_columns(family: &FamilyName, columns: &Columns) -> Result<(), Invalid> {
    let bounds = columns.ranges.iter().flat_map(|range| [&range.start, &range.end]);
    if let Some(long) = columns.qualifiers.iter().chain(bounds).find(|name| name.len() > QUALIFIER_BYTES_MAX + 1) {
        return Err(Invalid::new(format!(
            "a requested qualifier in family {family} has {} bytes; the limit is {QUALIFIER_BYTES_MAX}",
            long.len()
        )));
    }
    match columns.ranges.iter().find(|range| !range.end.is_empty() && range.end < range.start) {
        Some(range) => Err(Invalid::new(format!("the range of columns {range:?} in family {family} is reversed"))),
        None => Ok(()),
    }
}

impl Default for Projection {
    fn default() -> Self {
        Self::all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> FamilyName {
        FamilyName::new(name).expect("a name")
    }

    #[test]
    fn a_whole_family_swallows_its_columns() {
        let projection = Projection::all().with_column(family("f"), "b").with_column(family("f"), "a");
        assert!(projection.selects(b"f", b"a") && projection.selects(b"f", b"b"));
        assert!(!projection.selects(b"f", b"c") && !projection.selects(b"g", b"a"));
        let whole = projection.with_family(family("f")).with_column(family("f"), "z");
        assert!(whole.selects(b"f", b"c"));
    }

    #[test]
    fn what_came_from_outside_is_sorted_or_refused() {
        let columns = Columns { qualifiers: vec!["b".into(), "a".into()], ..Columns::default() };
        let unsorted = Projection { families: vec![(family("f"), columns)], ..Projection::all() };
        assert!(unsorted.checked().expect("valid").selects(b"f", b"a"));
        assert!(Projection::all().with_versions(0).checked().is_err());
        assert!(Projection::all().with_times(5, 4).checked().is_err());
        let twice = vec![(family("f"), Columns::default()), (family("f"), Columns::default())];
        assert!(Projection { families: twice, ..Projection::all() }.checked().is_err());
    }

    #[test]
    fn ranges_of_columns_are_joined_and_looked_up() {
        let range = |start: &'static str, end: &'static str| QualifierRange { start: start.into(), end: end.into() };
        let columns = Columns {
            qualifiers: vec!["zz".into()],
            ranges: vec![range("m", "p"), range("b", "d"), range("c", "f"), range("f", "g"), range("h", "h")],
        };
        let checked = Projection { families: vec![(family("f"), columns)], ..Projection::all() }.checked().unwrap();
        assert_eq!(checked.families[0].1.ranges, [range("b", "g"), range("m", "p")]);
        for (qualifier, selected) in [
            ("a", false),
            ("b", true),
            ("ff", true),
            ("g", false),
            ("m", true),
            ("p", false),
            ("zz", true),
            ("zzz", false),
        ] {
            assert_eq!(checked.selects(b"f", qualifier.as_bytes()), selected, "{qualifier}");
        }
        let open = Projection::all().with_qualifier_range(family("f"), "x", "").checked().unwrap();
        assert!(open.selects(b"f", b"zzz") && !open.selects(b"f", b"w"));
    }

    #[test]
    fn an_empty_range_of_columns_selects_nothing_rather_than_everything() {
        let none = Projection::all().with_qualifier_range(family("f"), "x", "x").checked().unwrap();
        assert!(!none.selects(b"f", b"x") && !none.selects(b"f", b"a") && none.selects_family(b"f"));
        assert!(Projection::all().with_qualifier_range(family("f"), "y", "x").checked().is_err());
    }

    #[test]
    fn the_first_cell_is_the_one_behind_the_offset() {
        assert_eq!(Projection::all().cell_window(), (0, usize::MAX));
        assert_eq!(Projection::all().with_cells(3, 0).cell_window(), (3, usize::MAX));
        assert_eq!(Projection::all().with_cells(3, 2).with_first_cell_only().cell_window(), (3, 1));
    }
}
