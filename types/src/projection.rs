//! The part of a row that a reader requests: families, columns, versions, a time range, and how many cells.
//!
//! The returned cells are decided in this order: columns, versions and times; then the read's filter, if it has one,
//! which sees the remaining cells (and the columns it tests by name, even if they are not requested); then the offset
//! and limit of cells, which count cells that passed the filter; then values are removed for `keys_only`. A row without
//! remaining cells is not returned.

use bytes::Bytes;

use crate::columns::{Columns, QualifierRange};
use crate::invalid::Invalid;
use crate::limits::{FAMILIES_MAX, QUALIFIER_BYTES_MAX, VERSIONS_MAX};
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
    /// Of families that are requested as a whole, only these columns are read: no filter passes others. Only reads within a
    /// server have this.
    pub within: Option<Box<Columns>>,
    /// How many versions of each column, at least 1. The family may keep fewer.
    pub versions: u32,
    /// The lowest timestamp returned.
    pub time_min: i64,
    /// The first timestamp above those returned; `i64::MAX`: unbounded.
    pub time_max: i64,
    /// Families with a lowest timestamp and a first one above of their own, instead of those above. Only reads within a server have them.
    pub family_times: Option<Box<FamilyTimes>>,
    /// Return what is stored: tombstones, and the cells that they or the limit of versions hide, as long as those have not
    /// been collected. Only reads within a server have this.
    pub raw: bool,
    /// Return the times to live that cells have of their own. Only reads within a server have this.
    pub with_ttl: bool,
    /// How many cells of each row to skip, counted after the filter.
    pub cell_offset: u32,
    /// How many cells of each row to return after those; 0: all.
    pub cell_limit: u32,
    /// Return cells without their values.
    pub keys_only: bool,
    /// Return one cell of each row: the first one after `cell_offset`.
    pub first_cell_only: bool,
}

/// Times of single families: the lowest one and the first one above. Few reads have them, so they lie apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FamilyTimes(Vec<(FamilyName, (i64, i64))>);

/// All columns of a family.
static WHOLE_FAMILY: Columns = Columns::whole_family();

impl Projection {
    /// The newest version of every column.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            families: Vec::new(),
            within: None,
            versions: 1,
            time_min: 0,
            time_max: i64::MAX,
            family_times: None,
            raw: false,
            with_ttl: false,
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

    /// Requests timestamps of a family from `time_min` (inclusive) to `time_max` (exclusive), whatever is requested of the
    /// other families.
    #[must_use]
    pub fn with_family_times(mut self, family: FamilyName, time_min: i64, time_max: i64) -> Self {
        let times = &mut self.family_times.get_or_insert_default().0;
        times.retain(|(name, _)| *name != family);
        times.push((family, (time_min, time_max)));
        self
    }

    /// Requests everything that is stored, tombstones included.
    #[must_use]
    pub const fn with_raw(mut self) -> Self {
        self.raw = true;
        self
    }

    /// Requests the times to live of cells, too.
    #[must_use]
    pub const fn with_ttl(mut self) -> Self {
        self.with_ttl = true;
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
        check_times((self.time_min, self.time_max))?;
        let of_families = self.family_times.as_ref().map_or(&[][..], |times| &times.0);
        if of_families.len() > FAMILIES_MAX {
            return Err(Invalid::new(format!("time ranges of more than {FAMILIES_MAX} families are requested")));
        }
        of_families.iter().try_for_each(|(_, times)| check_times(*times))?;
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

    /// The lowest timestamp of the family that is requested, and the first one above.
    #[must_use]
    pub fn times(&self, family: &[u8]) -> (i64, i64) {
        let of_families = self.family_times.as_ref().map_or(&[][..], |times| &times.0);
        let own = of_families.iter().find(|(name, _)| name.as_bytes() == family);
        own.map_or((self.time_min, self.time_max), |(_, times)| *times)
    }

    /// Whether any column of the family is requested.
    #[must_use]
    pub fn selects_family(&self, family: &[u8]) -> bool {
        self.families.is_empty() || self.families.iter().any(|(name, _)| name.as_bytes() == family)
    }

    /// The requested columns of the family; `None` if the family is not requested.
    #[must_use]
    pub fn columns(&self, family: &[u8]) -> Option<&Columns> {
        let columns = if self.families.is_empty() {
            &WHOLE_FAMILY
        } else {
            &self.families.iter().find(|(name, _)| name.as_bytes() == family)?.1
        };
        Some(self.within.as_deref().filter(|_| columns.is_whole_family()).unwrap_or(columns))
    }

    /// Of families that are requested as a whole, reads only these columns.
    #[must_use]
    pub fn with_only(mut self, columns: Columns) -> Self {
        self.within = (!columns.is_whole_family()).then(|| Box::new(columns));
        self
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

fn check_times((time_min, time_max): (i64, i64)) -> Result<(), Invalid> {
    if time_min >= 0 && time_max >= time_min {
        return Ok(());
    }
    Err(Invalid::new(format!("the time range {time_min}..{time_max} is negative or reversed")))
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
        assert!(Projection::all().with_family_times(family("f"), 5, 4).checked().is_err());
        let twice = vec![(family("f"), Columns::default()), (family("f"), Columns::default())];
        assert!(Projection { families: twice, ..Projection::all() }.checked().is_err());
    }

    #[test]
    fn a_family_has_times_of_its_own_or_those_of_all() {
        let projection = Projection::all().with_times(1, 9).with_family_times(family("f"), 3, 4);
        assert_eq!((projection.times(b"f"), projection.times(b"g")), ((3, 4), (1, 9)));
        assert_eq!(projection.with_family_times(family("f"), 5, 6).times(b"f"), (5, 6));
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
