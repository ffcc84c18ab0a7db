//! Feature levels and format versions: which builds can work in one cluster.
//!
//! A build has a feature level. A cluster has one too: the level at which all its processes can work. A process asks for
//! the cluster's level before it writes something, or makes a call, that a build of a lower level does not know. Masters
//! raise the cluster's level once every process can; it never falls. A build works in clusters of its own level and of the
//! level before, so builds of two neighbouring levels can be mixed while a new one is rolled out. The newest level is open
//! until a release has it: features that are added before join it.
//!
//! - 1: everything so far.
//!
//! [`LEVEL_NEXT`] belongs to the next build. Nothing runs at it outside tests, which roll it out over this one: what a level
//! protects keeps being tried while there is one level only.

use std::fmt;
use std::ops::RangeInclusive;

/// The feature level of this build.
pub const FEATURE_LEVEL: u32 = 1;
/// The lowest level of a cluster in which this build can work.
pub const FEATURE_LEVEL_OLDEST: u32 = 1;
/// The level of the next build, at which leaders write log entries in their next format.
pub const LEVEL_NEXT: u32 = FEATURE_LEVEL + 1;

/// The levels of clusters in which a process can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The lowest.
    pub oldest: u32,
    /// The highest: the level of its build.
    pub newest: u32,
}

impl Levels {
    /// Those of this build.
    pub const BUILD: Self = Self { oldest: FEATURE_LEVEL_OLDEST, newest: FEATURE_LEVEL };

    /// Those of the next build: it works in clusters of this level and of its own.
    pub const NEXT: Self = Self { oldest: FEATURE_LEVEL, newest: LEVEL_NEXT };

    /// Those of a build of this level. `None` for a level whose rules this build does not have.
    #[must_use]
    pub const fn as_of(level: u32) -> Option<Self> {
        match level {
            FEATURE_LEVEL => Some(Self::BUILD),
            LEVEL_NEXT => Some(Self::NEXT),
            _ => None,
        }
    }

    /// Why a build of these levels is too old for a cluster that was seen at this level, and what to do; `None`: it is not.
    #[must_use]
    pub fn outgrown(self, cluster: u32) -> Option<String> {
        let newest = self.newest;
        (newest < cluster).then(|| {
            format!(
                "its build has feature level {newest}, and the cluster is at level {cluster}, which does not fall; start a \
                 build of level {cluster} (`terrane version` shows the level of a build)"
            )
        })
    }

    /// Why a process of these levels cannot work in a cluster of this level, and what to do; `None`: it can.
    #[must_use]
    pub fn refusal(self, cluster: u32) -> Option<String> {
        let Self { oldest, newest } = self;
        if let Some(outgrown) = self.outgrown(cluster) {
            return Some(outgrown);
        }
        (oldest > cluster).then(|| {
            format!(
                "its build has feature level {newest} and works with level {oldest} or higher, and the cluster is at level \
                 {cluster}; roll out a build of level {} first (`terrane version` shows the level of a build)",
                cluster + 1
            )
        })
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::BUILD
    }
}

/// Versions as `3` or `1-3`.
#[must_use]
pub fn range_text(versions: &RangeInclusive<u32>) -> String {
    match (versions.start(), versions.end()) {
        (oldest, newest) if oldest == newest => newest.to_string(),
        (oldest, newest) => format!("{oldest}-{newest}"),
    }
}

/// The versions of one durable or wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatVersions {
    /// Its name.
    pub name: &'static str,
    /// The oldest version that this build reads.
    pub oldest: u32,
    /// The newest version that it reads and writes.
    pub newest: u32,
}

impl fmt::Display for FormatVersions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.name, range_text(&(self.oldest..=self.newest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_works_with_its_level_and_the_one_before() {
        let levels = Levels { oldest: 6, newest: 7 };
        assert_eq!((levels.refusal(6), levels.refusal(7)), (None, None));
        assert!(levels.refusal(8).is_some_and(|why| why.contains("level 7, and the cluster is at level 8")));
        let skipped = levels.refusal(5).expect("two levels are never mixed");
        assert!(skipped.contains("roll out a build of level 6 first"), "{skipped}");
    }

    #[test]
    fn only_levels_whose_rules_are_here_can_be_taken() {
        assert_eq!(Levels::as_of(FEATURE_LEVEL), Some(Levels::BUILD));
        assert_eq!(Levels::as_of(LEVEL_NEXT), Some(Levels { oldest: FEATURE_LEVEL, newest: LEVEL_NEXT }));
        assert_eq!((Levels::as_of(FEATURE_LEVEL - 1), Levels::as_of(LEVEL_NEXT + 1)), (None, None));
    }
}
