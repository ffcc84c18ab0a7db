//! The planted bugs: deliberate mistakes in production code (`terrane_env::planted!`) that the simulator has to find.
//!
//! They measure the simulator. A bug that no seed finds shows a fault that is not injected or a check that is missing.

use crate::scenario::Kind;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug)]
pub struct PlantedBug {
    /// Its name in the source.
    pub name: &'static str,
    /// What it breaks: one of the rules of ARCHITECTURE.md, or a fault of the track record.
    pub breaks: &'static str,
    /// The scenario that ought to find it.
    pub scenario: Kind,
    /// Whether CI looks for it: it is found within 20 seeds.
    pub quick: bool,
}

/// All planted bugs.
pub const PLANTED: &[PlantedBug] = &[
    PlantedBug {
        name: "acknowledge before the sync",
        breaks: "only what a quorum has synced is acknowledged",
        scenario: Kind::Rows,
        quick: true,
    },
    PlantedBug {
        name: "a lease never ends",
        breaks: "a read is never older than a write acknowledged before it",
        scenario: Kind::Rows,
        quick: true,
    },
    PlantedBug {
        name: "a split forgets the window",
        breaks: "a retried operation applies once",
        scenario: Kind::Counters,
        quick: true,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = PLANTED.iter().map(|bug| bug.name).collect();
        assert_eq!(names.len(), PLANTED.len());
    }
}
