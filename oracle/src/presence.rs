//! Rows that come and go: which rows a scan must show, which it may show, and in which order.
//!
//! Every row has one writer, which changes it one change after another: it puts the change's number, or deletes the row.
//! A scan reads each row at some moment between its start and its end. A row is then in a state between the newest change
//! that was certain at the start (acknowledged, or shown to a reader) and the newest that was attempted at the end. If it
//! exists in all of these states, the scan must show it; if in some, it may; the number it shows must be one of them.
//!
//! A change whose outcome stays unknown may take effect at any later time. Its row must not be changed any more, unless
//! a late effect changes nothing.

use std::collections::BTreeMap;

use terrane_types::KeyRange;

use crate::verdict::Violation;

/// What a writer does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes the row with the change's number.
    Put,
    /// Deletes the row.
    Delete,
}

/// All rows and their changes so far.
#[derive(Debug, Default)]
pub struct Presence {
    rows: BTreeMap<Vec<u8>, Row>,
}

#[derive(Debug, Default)]
struct Row {
    /// Change number `n` is at `n - 1`.
    changes: Vec<Change>,
    /// The newest change that took effect for certain.
    certain: u64,
}

/// What a reader asked for: the rows of a range, in an order, after an offset and up to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub range: KeyRange,
    pub reverse: bool,
    pub offset: u64,
    pub limit: Option<u64>,
}

impl Asked {
    /// All rows of a range in order.
    #[must_use]
    pub const fn all(range: KeyRange) -> Asked {
        Asked { range, reverse: false, offset: 0, limit: None }
    }
}

/// A scan that has started, with the rows that it selects and the newest certain change of each.
#[derive(Clone, Debug)]
#[must_use = "a scan that began has to be judged when it ends"]
pub struct Begun {
    asked: Asked,
    floors: BTreeMap<Vec<u8>, u64>,
}

fn violation(row: &[u8], what: impl Into<String>) -> Verdict {
    Err(Violation::new(row, what))
}

/// `Ok`, or the violation.
type Verdict = Result<(), Violation>;

impl Presence {
    /// Adds a row that may be changed. Rows have to be known before the first scan that may show them.
    pub fn know(&mut self, row: &[u8]) {
        self.rows.entry(row.to_vec()).or_default();
    }

    /// Starts a change of a row; returns its number.
    pub fn attempt(&mut self, row: &[u8], change: Change) -> u64 {
        let row = self.rows.entry(row.to_vec()).or_default();
        row.changes.push(change);
        row.changes.len() as u64
    }

    /// A change was acknowledged.
    pub fn acknowledge(&mut self, row: &[u8], number: u64) {
        let row = self.rows.entry(row.to_vec()).or_default();
        assert!(number <= row.changes.len() as u64, "a change is acknowledged after it was attempted");
        row.certain = row.certain.max(number);
    }

    /// Starts a scan of the rows that `selects` accepts.
    pub fn begin(&self, asked: Asked, selects: impl Fn(&[u8]) -> bool) -> Begun {
        let rows = self.rows.iter().filter(|(key, _)| asked.range.contains(key) && selects(key));
        let floors = rows.map(|(key, row)| (key.clone(), row.certain)).collect();
        Begun { asked, floors }
    }

    /// Ends a scan that returned these rows with their numbers. If it is `complete`, no row followed.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn end(&mut self, begun: &Begun, shown: &[(Vec<u8>, u64)], complete: bool) -> Verdict {
        let Begun { asked, floors } = begun;
        if let Some((row, _)) = shown.get(asked.limit.map_or(usize::MAX, |limit| usize::try_from(limit).expect("few")))
        {
            return violation(row, "is beyond the limit");
        }
        let mut last: Option<&[u8]> = None;
        for (row, number) in shown {
            let in_order = last.is_none_or(|last| if asked.reverse { &row[..] < last } else { &row[..] > last });
            if !in_order || !asked.range.contains(row) {
                return violation(row, "is out of range or order");
            }
            last = Some(row);
            self.may_show(floors.get(row).copied(), row, *number)?;
        }
        self.nothing_left_out(begun, shown, complete)?;
        for (row, number) in shown {
            let certain = &mut self.rows.entry(row.clone()).or_default().certain;
            *certain = (*certain).max(*number);
        }
        Ok(())
    }

    /// Rows before, between and after the shown ones.
    fn nothing_left_out(&self, begun: &Begun, shown: &[(Vec<u8>, u64)], complete: bool) -> Verdict {
        let Begun { asked, floors } = begun;
        let ordered: Box<dyn Iterator<Item = (&Vec<u8>, &u64)>> =
            if asked.reverse { Box::new(floors.iter().rev()) } else { Box::new(floors.iter()) };
        let mut shown = shown.iter().map(|(row, _)| row).peekable();
        let mut is_first = true;
        let (mut must, mut may) = (0, 0);
        for (row, floor) in ordered {
            if shown.peek() == Some(&row) {
                shown.next();
                if is_first && !(must..=may).contains(&asked.offset) {
                    let Asked { offset, .. } = asked;
                    return violation(row, format!("comes after {offset} rows, but {must} to {may} exist before it"));
                }
                is_first = false;
                continue;
            }
            if shown.peek().is_none() && !complete {
                break;
            }
            let states = self.states(row, *floor);
            must += u64::from(states.must());
            may += u64::from(states.may());
            if states.must() && (!is_first || must > asked.offset) {
                let Row { changes, certain } = &self.rows[row];
                let (floor, attempted) = (floor, changes.len());
                return violation(
                    row,
                    format!("is missing, but exists since change {floor} (certain: {certain}, attempted: {attempted})"),
                );
            }
        }
        Ok(())
    }

    fn may_show(&self, floor: Option<u64>, row: &[u8], number: u64) -> Verdict {
        let Some(Row { changes, .. }) = self.rows.get(row) else { return violation(row, "was never written") };
        let Some(floor) = floor else { return violation(row, "is not among the rows that were asked for") };
        let change = number.checked_sub(1).and_then(|at| changes.get(usize::try_from(at).ok()?));
        match change {
            Some(Change::Put) if number >= floor => Ok(()),
            Some(Change::Put) => violation(row, format!("shows {number}, but change {floor} was certain before")),
            Some(Change::Delete) => violation(row, format!("shows {number}, which is a deletion")),
            None => violation(row, format!("shows {number}, but only {} changes were attempted", changes.len())),
        }
    }

    /// Ends a scan that only counted its rows and summed up their numbers.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn end_count(&self, begun: &Begun, counted: u64, sum: Option<u64>) -> Verdict {
        let (mut rows, mut numbers) = ((0, 0), (0, 0));
        for (row, floor) in &begun.floors {
            let states = self.states(row, *floor);
            rows = (rows.0 + u64::from(states.must()), rows.1 + u64::from(states.may()));
            numbers = (numbers.0 + states.least, numbers.1 + states.most);
        }
        let start = &begun.asked.range.start;
        if !(rows.0..=rows.1).contains(&counted) {
            return violation(start, format!("and after: {counted} rows counted, but {} to {} exist", rows.0, rows.1));
        }
        if sum.is_some_and(|sum| !(numbers.0..=numbers.1).contains(&sum)) {
            return violation(
                start,
                format!("and after: the sum is {sum:?}, but can be {} to {}", numbers.0, numbers.1),
            );
        }
        Ok(())
    }

    /// The number of changes that are certain.
    #[must_use]
    pub fn certain(&self) -> u64 {
        self.rows.values().map(|row| row.certain).sum()
    }

    /// The states that a row may be in now, if it was in the state `floor` at least.
    fn states(&self, row: &[u8], floor: u64) -> States {
        let mut states = States { exists: false, absent: floor == 0, least: u64::MAX, most: 0 };
        let changes = self.rows.get(row).map_or(&[][..], |row| &row.changes);
        let from = usize::try_from(floor.max(1)).expect("few changes");
        for (number, change) in (1u64..).zip(changes).skip(from - 1) {
            match change {
                Change::Put => {
                    states.exists = true;
                    states.least = states.least.min(number);
                    states.most = number;
                }
                Change::Delete => states.absent = true,
            }
        }
        if states.absent {
            states.least = 0;
        }
        states
    }
}

/// Whether a row exists in some, and is absent in some, of the states that it may be in; the least and the greatest number
/// it can have, where absent counts as 0.
#[derive(Debug)]
struct States {
    exists: bool,
    absent: bool,
    least: u64,
    most: u64,
}

impl States {
    const fn must(&self) -> bool {
        self.exists && !self.absent
    }

    const fn may(&self) -> bool {
        self.exists
    }
}

#[cfg(test)]
mod tests;
