//! What part of a row a reader asks for: families, columns, versions, a time range.

use bytes::Bytes;

use crate::error::Invalid;
use crate::limits::VERSIONS_MAX;
use crate::name::FamilyName;

/// The columns, versions and times that a get or scan returns.
///
/// ```
/// use terrane_types::Projection;
/// let one = Projection::all().with_column("data".parse()?, "airtemp");
/// assert!(one.selects(b"data", b"airtemp"));
/// assert!(!one.selects(b"data", b"wind"));
/// assert!(Projection::all().selects(b"data", b"wind"));
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Families with the columns asked for in each, columns sorted; a family without columns is asked for whole, and
    /// no family at all means every one.
    pub families: Vec<(FamilyName, Vec<Bytes>)>,
    /// How many versions of each column, at least 1. The family may keep fewer.
    pub versions: u32,
    /// The lowest timestamp shown.
    pub time_min: i64,
    /// The first timestamp above those shown; `i64::MAX` is no bound.
    pub time_max: i64,
}

impl Projection {
    /// The newest version of every column.
    #[must_use]
    pub const fn all() -> Self {
        Self { families: Vec::new(), versions: 1, time_min: 0, time_max: i64::MAX }
    }

    /// Adds a whole family. Of a family that is there with columns, all are asked for from now on.
    #[must_use]
    pub fn with_family(mut self, family: FamilyName) -> Self {
        match self.families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, qualifiers)) => qualifiers.clear(),
            None => self.families.push((family, Vec::new())),
        }
        self
    }

    /// Adds one column. In a family that is asked for whole this changes nothing.
    #[must_use]
    pub fn with_column(mut self, family: FamilyName, qualifier: impl Into<Bytes>) -> Self {
        let qualifier = qualifier.into();
        match self.families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, qualifiers)) if qualifiers.is_empty() => {}
            Some((_, qualifiers)) => {
                if let Err(at) = qualifiers.binary_search(&qualifier) {
                    qualifiers.insert(at, qualifier);
                }
            }
            None => self.families.push((family, vec![qualifier])),
        }
        self
    }

    /// Asks for up to this many versions.
    #[must_use]
    pub const fn with_versions(mut self, versions: u32) -> Self {
        self.versions = versions;
        self
    }

    /// Asks for timestamps from `time_min` up to, not including, `time_max`.
    #[must_use]
    pub const fn with_times(mut self, time_min: i64, time_max: i64) -> Self {
        self.time_min = time_min;
        self.time_max = time_max;
        self
    }

    /// Brings what came from outside into the form that [`Projection::selects`] relies on, and checks it.
    ///
    /// # Errors
    /// [`Invalid`] for no versions or too many, a time range turned round, or a family named twice.
    pub fn checked(mut self) -> Result<Self, Invalid> {
        if !(1..=VERSIONS_MAX).contains(&self.versions) {
            return Err(Invalid::new(format!("{} versions are asked for; ask for 1 to {VERSIONS_MAX}", self.versions)));
        }
        if self.time_min < 0 || self.time_max < self.time_min {
            return Err(Invalid::new(format!(
                "the time range {}..{} is negative or turned round",
                self.time_min, self.time_max
            )));
        }
        for at in 1..self.families.len() {
            let name = &self.families[at].0;
            if self.families[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(Invalid::new(format!("family {name} is asked for twice")));
            }
        }
        for (_, qualifiers) in &mut self.families {
            qualifiers.sort();
            qualifiers.dedup();
        }
        Ok(self)
    }

    /// Whether any column of the family is asked for.
    #[must_use]
    pub fn selects_family(&self, family: &[u8]) -> bool {
        self.families.is_empty() || self.families.iter().any(|(name, _)| name.as_bytes() == family)
    }

    /// The columns asked for in the family: `None` when the family is not asked for, an empty slice for all of them.
    #[must_use]
    pub fn qualifiers(&self, family: &[u8]) -> Option<&[Bytes]> {
        if self.families.is_empty() {
            return Some(&[]);
        }
        let (_, qualifiers) = self.families.iter().find(|(name, _)| name.as_bytes() == family)?;
        Some(qualifiers)
    }

    /// Whether the column is asked for.
    #[must_use]
    pub fn selects(&self, family: &[u8], qualifier: &[u8]) -> bool {
        self.qualifiers(family).is_some_and(|qualifiers| {
            qualifiers.is_empty() || qualifiers.binary_search_by(|wanted| wanted[..].cmp(qualifier)).is_ok()
        })
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
        let unsorted = Projection { families: vec![(family("f"), vec!["b".into(), "a".into()])], ..Projection::all() };
        assert!(unsorted.checked().expect("valid").selects(b"f", b"a"));
        assert!(Projection::all().with_versions(0).checked().is_err());
        assert!(Projection::all().with_times(5, 4).checked().is_err());
        let twice = vec![(family("f"), vec![]), (family("f"), vec![])];
        assert!(Projection { families: twice, ..Projection::all() }.checked().is_err());
    }
}
