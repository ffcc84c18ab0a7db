//! Bulk loads: units of rows that no region is ever split between. Of what one load brings into a unit a reader sees all or
//! nothing, however far the load has come elsewhere; once the load is acknowledged, all; and once the rows are deleted,
//! nothing ever again, because a load takes effect once.

use std::collections::BTreeMap;

use crate::verdict::Verdict;

/// The key that the rows of a unit start with.
pub type Unit = [u8; 8];

/// How far a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A load that brings it is under way, or ended without an answer.
    Loading,
    /// The load is acknowledged.
    Loaded,
    /// Its rows are being deleted, one by one.
    Deleting,
    /// All of them are deleted.
    Deleted,
}

/// All units of a run.
#[derive(Debug, Default)]
pub struct Units {
    phases: BTreeMap<Unit, Phase>,
    /// Rows of each unit.
    rows: usize,
}

impl Units {
    /// Units of so many rows each.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { phases: BTreeMap::new(), rows }
    }

    /// A load is about to bring a unit. Returns whether it is new.
    pub fn attempt(&mut self, unit: Unit) -> bool {
        let is_new = !self.phases.contains_key(&unit);
        if is_new {
            self.phases.insert(unit, Phase::Loading);
        }
        is_new
    }

    /// A unit has come this far.
    pub fn enter(&mut self, unit: Unit, phase: Phase) {
        self.phases.insert(unit, phase);
    }

    /// How far a unit is; `None`: no load ever brought it.
    #[must_use]
    pub fn phase(&self, unit: &Unit) -> Option<Phase> {
        self.phases.get(unit).copied()
    }

    /// All units.
    pub fn units(&self) -> impl Iterator<Item = &Unit> {
        self.phases.keys()
    }

    /// The first unit at or after a key; else the first of all.
    #[must_use]
    pub fn some(&self, at: &Unit) -> Option<Unit> {
        self.phases.range(*at..).chain(self.phases.range(..*at)).map(|(unit, _)| *unit).next()
    }

    /// A read at one moment found so many rows of a unit, which was in phase `before` when the read began.
    ///
    /// # Errors
    /// If no order of what happened explains it.
    pub fn found(&self, unit: &Unit, before: Option<Phase>, rows: usize) -> Verdict {
        let (name, of) = (shown(unit), self.rows);
        let (Some(before), Some(after)) = (before, self.phase(unit)) else {
            return if rows == 0 { Ok(()) } else { Err(format!("unit {name} was never loaded and has {rows} rows")) };
        };
        match (before, after) {
            _ if rows > of => Err(format!("unit {name} has {rows} rows of {of}")),
            (Phase::Deleted, _) if rows > 0 => Err(format!("unit {name} was deleted and has {rows} rows again")),
            (Phase::Loaded, Phase::Loaded) if rows < of => {
                Err(format!("unit {name} was loaded and has {rows} rows of {of}"))
            }
            (Phase::Loading, Phase::Loading | Phase::Loaded) if rows > 0 && rows < of => {
                Err(format!("unit {name} was loaded in part: {rows} rows of {of}"))
            }
            _ => Ok(()),
        }
    }
}

/// A unit as the trace shows it.
#[must_use]
pub fn shown(unit: &Unit) -> String {
    format!("{:016x}", u64::from_be_bytes(*unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Unit = [1; 8];

    fn read(phases: &[Phase], before: Phase, rows: usize) -> Verdict {
        let mut units = Units::new(3);
        assert!(units.attempt(A) && !units.attempt(A));
        phases.iter().for_each(|phase| units.enter(A, *phase));
        units.found(&A, Some(before), rows)
    }

    #[test]
    fn a_unit_is_seen_whole_or_not_at_all() {
        for rows in [0, 3] {
            read(&[], Phase::Loading, rows).unwrap();
            read(&[Phase::Loaded], Phase::Loading, rows).unwrap();
        }
        assert!(read(&[], Phase::Loading, 2).unwrap_err().contains("in part"));
        assert!(read(&[Phase::Loaded], Phase::Loading, 1).unwrap_err().contains("in part"));
    }

    #[test]
    fn what_is_acknowledged_stays() {
        read(&[Phase::Loaded], Phase::Loaded, 3).unwrap();
        assert!(read(&[Phase::Loaded], Phase::Loaded, 0).unwrap_err().contains("has 0 rows of 3"));
        read(&[Phase::Loaded, Phase::Deleting], Phase::Loaded, 1).unwrap();
    }

    #[test]
    fn what_is_deleted_does_not_come_back() {
        let deleted = [Phase::Loaded, Phase::Deleting, Phase::Deleted];
        read(&deleted, Phase::Deleted, 0).unwrap();
        assert!(read(&deleted, Phase::Deleted, 3).unwrap_err().contains("again"));
        read(&deleted, Phase::Deleting, 2).unwrap();
    }

    #[test]
    fn rows_that_nobody_loaded_are_found() {
        let units = Units::new(3);
        units.found(&A, None, 0).unwrap();
        assert!(units.found(&A, None, 1).unwrap_err().contains("never loaded"));
    }
}
