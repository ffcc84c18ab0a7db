//! Rows with one family that stays and one that is dropped and added repeatedly, while each row's one writer puts ascending
//! numbers into both.
//!
//! - A row is written as a whole: a number shows in the second family only if it was put into both. An acknowledged one
//!   shows there, unless a drop has been attempted since the put began.
//! - A put into a family that does not exist is refused. A put is known to meet a dropped family if it began after the drop
//!   had succeeded, or if a read showed the row without it after the drop. Unless an add was attempted since, it cannot be
//!   acknowledged.
//! - A family that is added starts empty: what was acknowledged before shows nowhere.
//! - A refused put shows nowhere. It is not refused for a family that has been there since before it began.

use std::collections::{BTreeMap, BTreeSet};

use crate::verdict::Verdict;

/// Drops and adds of the family, and the rows.
#[derive(Debug, Default)]
pub struct Families {
    /// Drops that were attempted, and those that have ended.
    drops: u64,
    drops_ended: u64,
    adds: u64,
    /// The family was dropped, and no add was attempted since.
    absent: bool,
    /// It may not exist: a drop was attempted, and no add has succeeded since.
    may_lack: bool,
    /// A drop or an add has an unknown outcome: it may take effect at any time.
    doubt: bool,
    rows: BTreeMap<Vec<u8>, Row>,
}

#[derive(Debug, Default)]
struct Row {
    last: u64,
    /// The puts into both families, with what was known when each began.
    both: BTreeMap<u64, Begun>,
    /// The acknowledged puts, with the adds that had been attempted by then.
    acknowledged: BTreeMap<u64, u64>,
    refused: BTreeSet<u64>,
    /// The least number after which a read showed that the family was dropped, with the adds that had been attempted.
    dropped: Option<Dropped>,
}

/// What was known when a put or a read began.
#[derive(Clone, Copy, Debug)]
struct Begun {
    drops_ended: u64,
    adds: u64,
    absent: bool,
    may_lack: bool,
}

#[derive(Clone, Copy, Debug)]
struct Dropped {
    after: u64,
    adds: u64,
}

/// A read that has started.
#[derive(Clone, Debug)]
#[must_use = "a read that began has to be judged when it ends"]
pub struct Reading {
    row: Vec<u8>,
    /// The newest acknowledged number.
    floor: u64,
    begun: Begun,
}

impl Families {
    /// The family is about to be dropped.
    pub fn attempt_drop(&mut self) {
        self.drops += 1;
        self.may_lack = true;
    }

    /// The drop is over: it succeeded, or it had no effect.
    pub fn end_drop(&mut self, dropped: bool) {
        self.drops_ended += 1;
        self.absent |= dropped;
        self.may_lack = dropped;
    }

    /// The family, which does not exist, is about to be added.
    pub fn attempt_add(&mut self) {
        self.adds += 1;
        self.absent = false;
    }

    /// The add has succeeded.
    pub fn end_add(&mut self) {
        self.may_lack = false;
    }

    /// The add had no effect.
    pub fn refuse_add(&mut self) {
        self.absent = true;
    }

    /// A drop or an add has an unknown outcome.
    pub fn doubt(&mut self) {
        self.doubt = true;
    }

    /// Whether a drop is in progress.
    #[must_use]
    pub const fn is_dropping(&self) -> bool {
        self.drops > self.drops_ended
    }

    /// Whether the family is known not to exist.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.absent
    }

    const fn begun(&self) -> Begun {
        let Self { drops_ended, adds, absent, may_lack, doubt, .. } = *self;
        Begun { drops_ended, adds, absent: absent && !doubt, may_lack: may_lack || doubt }
    }

    /// Starts a put into both families or into the first only; returns its number.
    pub fn attempt_put(&mut self, row: &[u8], both: bool) -> u64 {
        let begun = self.begun();
        let row = self.rows.entry(row.to_vec()).or_default();
        row.last += 1;
        if both {
            row.both.insert(row.last, begun);
        }
        row.last
    }

    /// A put was acknowledged.
    ///
    /// # Errors
    /// If it must have been refused.
    pub fn acknowledge(&mut self, row: &[u8], number: u64) -> Verdict {
        let (adds, doubt) = (self.adds, self.doubt);
        let row = self.rows.entry(row.to_vec()).or_default();
        row.acknowledged.insert(number, adds);
        let Some(begun) = row.both.get(&number).filter(|_| !doubt) else { return Ok(()) };
        if begun.absent && begun.adds == adds {
            return Err(format!("put {number} was acknowledged, but its family had been dropped before it began"));
        }
        match row.dropped {
            Some(dropped) if dropped.after < number && dropped.adds == adds => {
                let after = dropped.after;
                Err(format!("put {number} was acknowledged, but a read showed {after} after its family was dropped"))
            }
            _ => Ok(()),
        }
    }

    /// A put was refused: it has no effect.
    pub fn refuse(&mut self, row: &[u8], number: u64) {
        self.rows.entry(row.to_vec()).or_default().refused.insert(number);
    }

    /// Judges a put that was refused because the family does not exist.
    ///
    /// # Errors
    /// If the family has existed since before the put began.
    pub fn judge_refusal(&self, row: &[u8], number: u64) -> Verdict {
        let begun = self.rows.get(row).and_then(|row| row.both.get(&number));
        if begun.is_some_and(|begun| !begun.may_lack && begun.drops_ended == self.drops && !self.doubt) {
            return Err(format!("put {number} was refused for its family, which exists since before it began"));
        }
        Ok(())
    }

    /// Starts a read of a row.
    pub fn begin_read(&self, row: &[u8]) -> Reading {
        let newest = self.rows.get(row).and_then(|row| row.acknowledged.last_key_value());
        Reading { row: row.to_vec(), floor: newest.map_or(0, |(number, _)| *number), begun: self.begun() }
    }

    /// A read showed these numbers in the two families; 0 and `None`: no cell.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn end_read(&mut self, reading: &Reading, kept: u64, other: Option<u64>) -> Verdict {
        let (drops, doubt) = (self.drops, self.doubt);
        let row = self.rows.entry(reading.row.clone()).or_default();
        row.judge_kept(reading, kept)?;
        row.judge_other(reading, kept, other)?;
        row.judge_missing(kept, other, drops, doubt)?;
        row.learn(reading, kept, other);
        Ok(())
    }
}

impl Row {
    fn judge_kept(&self, reading: &Reading, kept: u64) -> Verdict {
        if !(reading.floor..=self.last).contains(&kept) {
            return Err(format!("shows {kept}, but {} was acknowledged and {} attempted", reading.floor, self.last));
        }
        if self.refused.contains(&kept) { Err(format!("shows {kept}, which was refused")) } else { Ok(()) }
    }

    fn judge_other(&self, reading: &Reading, kept: u64, other: Option<u64>) -> Verdict {
        let Some(other) = other else { return Ok(()) };
        if self.refused.contains(&other) {
            return Err(format!("shows {other}, which was refused"));
        }
        if other > kept || !self.both.contains_key(&other) {
            return Err(format!("shows {kept} and {other}, which were never put together"));
        }
        if self.acknowledged.get(&other).is_some_and(|adds| *adds < reading.begun.adds) {
            return Err(format!("shows {other}, which was put before the family was dropped and added again"));
        }
        Ok(())
    }

    /// The newest acknowledged put into both families shows in the second, unless a drop may have followed it.
    fn judge_missing(&self, kept: u64, other: Option<u64>, drops: u64, doubt: bool) -> Verdict {
        let is_acknowledged = |(number, _): &(&u64, &Begun)| self.acknowledged.contains_key(number);
        let Some((newest, begun)) = self.both.range(..=kept).rev().find(is_acknowledged) else { return Ok(()) };
        if other.unwrap_or_default() < *newest && begun.drops_ended == drops && !doubt {
            return Err(format!(
                "shows {kept} and {other:?}, but {newest} was put into both, and nothing dropped since"
            ));
        }
        Ok(())
    }

    /// A put that the read does not show is applied after it.
    fn learn(&mut self, reading: &Reading, kept: u64, other: Option<u64>) {
        let put = self.both.get(&kept).filter(|_| other.is_none());
        let absent = Some(&reading.begun).filter(|begun| begun.absent);
        let Some(adds) = put.or(absent).map(|begun| begun.adds) else { return };
        match self.dropped {
            Some(known) if known.adds > adds || (known.adds == adds && known.after <= kept) => {}
            _ => self.dropped = Some(Dropped { after: kept, adds }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &[u8] = b"r";

    /// A row with one acknowledged put into both families.
    fn one() -> Families {
        let mut families = Families::default();
        families.attempt_add();
        let number = families.attempt_put(ROW, true);
        families.acknowledge(ROW, number).unwrap();
        families
    }

    fn read(families: &mut Families, kept: u64, other: Option<u64>) -> Verdict {
        let reading = families.begin_read(ROW);
        families.end_read(&reading, kept, other)
    }

    #[test]
    fn acknowledged_cells_stay_unless_their_family_is_dropped() {
        let mut families = one();
        read(&mut families, 1, Some(1)).unwrap();
        assert!(read(&mut families, 1, None).unwrap_err().contains("nothing dropped since"));
        read(&mut families, 0, None).unwrap_err();
        families.attempt_drop();
        read(&mut families, 1, Some(1)).unwrap();
        let meanwhile = families.attempt_put(ROW, true);
        families.acknowledge(ROW, meanwhile).unwrap();
        read(&mut families, 2, None).unwrap();
        families.end_drop(true);
        read(&mut families, 2, None).unwrap();
        families.attempt_add();
        let next = families.attempt_put(ROW, true);
        families.acknowledge(ROW, next).unwrap();
        read(&mut families, 3, None).unwrap_err();
        let reading = families.begin_read(ROW);
        families.end_read(&reading, 3, Some(4)).unwrap_err();
    }

    #[test]
    fn a_drop_with_an_unknown_outcome_may_come_late() {
        let mut families = one();
        families.attempt_drop();
        families.end_drop(false);
        families.doubt();
        read(&mut families, 1, None).unwrap();
        let late = families.attempt_put(ROW, true);
        families.acknowledge(ROW, late).unwrap();
        read(&mut families, 2, None).unwrap();
    }

    #[test]
    fn a_put_that_is_applied_after_the_drop_is_refused() {
        let mut families = one();
        let late = families.attempt_put(ROW, true);
        families.attempt_drop();
        read(&mut families, 1, None).unwrap();
        assert!(families.acknowledge(ROW, late).unwrap_err().contains("was acknowledged"));
        // It may be acknowledged if the family was added again.
        let mut families = one();
        let late = families.attempt_put(ROW, true);
        families.attempt_drop();
        read(&mut families, 1, None).unwrap();
        families.end_drop(true);
        families.attempt_add();
        families.acknowledge(ROW, late).unwrap();
        // Also if the reader came after the add.
        let later = families.attempt_put(ROW, true);
        families.acknowledge(ROW, later).unwrap();
        // Or if it is of the first family only.
        let mut families = one();
        families.attempt_drop();
        read(&mut families, 1, None).unwrap();
        let plain = families.attempt_put(ROW, false);
        families.acknowledge(ROW, plain).unwrap();
        read(&mut families, plain, None).unwrap();
    }

    #[test]
    fn a_put_that_begins_after_the_drop_is_refused() {
        let mut families = one();
        families.attempt_drop();
        families.end_drop(true);
        let late = families.attempt_put(ROW, true);
        assert!(families.acknowledge(ROW, late).unwrap_err().contains("before it began"));
        let mut families = one();
        families.attempt_drop();
        families.end_drop(false);
        let after_a_refused_drop = families.attempt_put(ROW, true);
        families.acknowledge(ROW, after_a_refused_drop).unwrap();
        read(&mut families, 2, Some(2)).unwrap();
    }

    #[test]
    fn a_put_that_is_not_there_after_the_drop_is_refused() {
        let mut families = one();
        let slow = families.attempt_put(ROW, true);
        families.attempt_drop();
        families.end_drop(true);
        read(&mut families, 1, None).unwrap();
        assert!(families.acknowledge(ROW, slow).unwrap_err().contains("was acknowledged"));
        // A read that shows it proves nothing.
        let mut families = one();
        let slow = families.attempt_put(ROW, true);
        families.attempt_drop();
        families.end_drop(true);
        read(&mut families, slow, None).unwrap();
        families.acknowledge(ROW, slow).unwrap();
    }

    #[test]
    fn a_family_that_is_added_again_is_empty() {
        let mut families = one();
        families.attempt_drop();
        families.end_drop(true);
        let early = families.begin_read(ROW);
        families.attempt_add();
        families.end_read(&early, 1, Some(1)).unwrap();
        assert!(read(&mut families, 1, Some(1)).unwrap_err().contains("added again"));
    }

    #[test]
    fn a_put_is_refused_for_a_family_only_while_that_may_be_lacking() {
        let refuse = |families: &mut Families| {
            let number = families.attempt_put(ROW, true);
            families.judge_refusal(ROW, number)
        };
        let mut families = one();
        assert!(refuse(&mut families).unwrap_err().contains("refused for its family"));
        let early = families.attempt_put(ROW, true);
        families.attempt_drop();
        families.judge_refusal(ROW, early).unwrap();
        refuse(&mut families).unwrap();
        families.end_drop(true);
        let slow = families.attempt_put(ROW, true);
        families.attempt_add();
        refuse(&mut families).unwrap();
        families.end_add();
        families.judge_refusal(ROW, slow).unwrap();
        refuse(&mut families).unwrap_err();
        families.doubt();
        refuse(&mut families).unwrap();
    }

    #[test]
    fn a_refused_put_shows_nowhere() {
        let mut families = one();
        let refused = families.attempt_put(ROW, true);
        families.refuse(ROW, refused);
        read(&mut families, 1, Some(1)).unwrap();
        assert!(read(&mut families, refused, Some(1)).unwrap_err().contains("refused"));
    }

    #[test]
    fn a_put_into_the_first_family_leaves_the_second_as_it_is() {
        let mut families = one();
        let plain = families.attempt_put(ROW, false);
        families.acknowledge(ROW, plain).unwrap();
        read(&mut families, plain, Some(1)).unwrap();
        read(&mut families, plain, None).unwrap_err();
        read(&mut families, plain, Some(plain)).unwrap_err();
    }
}
