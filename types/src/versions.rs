//! Feature levels and format versions: which builds can work in one cluster.
//!
//! A build has a feature level. A cluster has one too: the level at which all its processes can work. A process asks for
//! the cluster's level before it writes something, or makes a call, that a build of a lower level does not know. Masters
//! raise the cluster's level once every process can; it never falls. A build works in clusters of its own level and of the
//! level before, so builds of two neighbouring levels can be mixed while a new one is rolled out. The newest level is open
//! until a release has it: features that are added before join it.
//!
//! - 2: peers report their clock.
//! - 3: servers report to every master; groups change their members and merge their regions.
//! - 4: regions move between groups; groups that lost their majority are recovered, and damaged replicas replaced; masters
//!   are added and removed; columns declare the types of their values; tables are disabled and truncated; sorted rows are
//!   loaded as store files; traced writes carry their trace in the log; regions keep the nonces of HBase's clients; cells have a
//!   time to live of their own; families have any printable name; namespaces have properties; entries of the log and messages
//!   between servers carry checksums; new servers leave others at their address in the catalog, and surplus groups are removed;
//!   replicas are compared.

use std::fmt;

/// The feature level of this build.
pub const FEATURE_LEVEL: u32 = 4;
/// The lowest level of a cluster in which this build can work.
pub const FEATURE_LEVEL_OLDEST: u32 = FEATURE_LEVEL - 1;
/// The level of a cluster whose catalog records none: it was created before levels were recorded.
pub const LEVEL_UNRECORDED: u32 = 3;
/// The level from which regions move between groups.
pub const LEVEL_OF_MOVES: u32 = 4;
/// The level from which groups that lost their majority are recovered, and damaged replicas replaced.
pub const LEVEL_OF_RECOVERY: u32 = 4;
/// The level from which masters are added and removed.
pub const LEVEL_OF_MASTERS: u32 = 4;

/// The level from which columns declare the types of their values, tables are disabled, and families have any printable name.
pub const LEVEL_OF_VALUE_TYPES: u32 = 4;
/// The level from which namespaces have properties.
pub const LEVEL_OF_NAMESPACE_PROPERTIES: u32 = 4;
/// The level from which tables are truncated.
pub const LEVEL_OF_TRUNCATION: u32 = 4;
/// The level from which groups take in files of bulk loads.
pub const LEVEL_OF_LOADS: u32 = 4;
/// The level from which cells have a time to live of their own.
pub const LEVEL_OF_CELL_TTL: u32 = 4;
/// The level from which writes carry their trace in the log.
pub const LEVEL_OF_TRACES: u32 = 4;
/// The level from which regions keep the nonces of operations.
pub const LEVEL_OF_NONCES: u32 = 4;

/// The level from which a new server leaves others at its address in the catalog, and groups are removed.
pub const LEVEL_OF_SUCCESSORS: u32 = 4;

/// The level from which entries of the log carry a checksum, and messages between servers too.
pub const LEVEL_OF_CHECKSUMS: u32 = 4;

/// The level from which the replicas of a region are compared.
pub const LEVEL_OF_COMPARISONS: u32 = 4;

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

    /// Those of a build of an earlier level, or of this one. `None` for a level whose rules this build does not have.
    #[must_use]
    pub const fn as_of(level: u32) -> Option<Self> {
        if level < FEATURE_LEVEL_OLDEST || level > FEATURE_LEVEL {
            return None;
        }
        Some(Self { oldest: level - 1, newest: level })
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
        match (self.oldest, self.newest) {
            (oldest, newest) if oldest == newest => write!(out, "{} {newest}", self.name),
            (oldest, newest) => write!(out, "{} {oldest}-{newest}", self.name),
        }
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
        assert_eq!(Levels::as_of(3), Some(Levels { oldest: 2, newest: 3 }));
        assert_eq!((Levels::as_of(2), Levels::as_of(FEATURE_LEVEL + 1)), (None, None));
    }
}
