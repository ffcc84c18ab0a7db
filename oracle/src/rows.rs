//! Rows with one writer each: which rows reads and scans must show, which they may show, and in which order.
//!
//! The writer changes its row one change after another: it puts the change's number, or deletes the row. A read shows the row at
//! some moment between its start and its end. The row is then in a state between the newest change that was certain at the
//! start (acknowledged, or shown to a reader) and the newest that was attempted at the end; an absent row has number 0. If it
//! exists in all of these states, the read must show it; if in some, it may; the number it shows must be one of them. A register
//! with one writer is linearizable exactly then. A scan reads each row so, and shows each once and in order.
//!
//! A change that was refused is never shown. A change whose outcome stays unknown may take effect at any later time. A scenario
//! that does not say so must make late effects harmless: the number of a put is its timestamp, so that it hides nothing newer,
//! or the row is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use terrane_types::KeyRange;

use crate::verdict::{Fate, Verdict, Violation};

/// What a writer does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes the row with the change's number.
    Put,
    /// Deletes the row.
    Delete,
}

/// One row and its changes so far.
#[derive(Debug, Default)]
pub struct Row {
    /// The number that the row had when it became known.
    first: u64,
    /// The changes after that, with their outcomes.
    changes: Vec<(Change, Option<Fate>)>,
    /// The newest change that took effect for certain.
    certain: u64,
    /// How many rows were known before.
    rows_before: usize,
}

impl Row {
    /// A row that has this number already.
    #[must_use]
    pub fn with(number: u64) -> Row {
        Row { first: number, certain: number, ..Row::default() }
    }

    /// Starts a change; returns its number.
    pub fn attempt(&mut self, change: Change) -> u64 {
        self.changes.push((change, None));
        self.attempted()
    }

    /// A change has ended.
    ///
    /// # Errors
    /// If it was refused, and its effect was shown before.
    pub fn end(&mut self, number: u64, fate: Fate) -> Verdict {
        let index = number.checked_sub(self.first + 1).and_then(|index| usize::try_from(index).ok());
        let change = index.and_then(|index| self.changes.get_mut(index));
        change.expect("a change ends after it was attempted").1 = Some(fate);
        match fate {
            Fate::Applied => self.certain = self.certain.max(number),
            Fate::Refused if self.certain == number => return Err(format!("shows change {number}, which was refused")),
            Fate::Refused | Fate::Unknown => {}
        }
        Ok(())
    }

    /// The newest certain change: a read that starts now shows nothing older.
    #[must_use]
    pub const fn certain(&self) -> u64 {
        self.certain
    }

    /// A read shows this number, 0 if the row is absent; `floor` was certain when it started.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn show(&mut self, floor: u64, number: u64) -> Verdict {
        self.may_show(floor, number)?;
        self.certain = self.certain.max(number);
        Ok(())
    }

    fn may_show(&self, floor: u64, number: u64) -> Verdict {
        if number == 0 {
            return if self.states(floor).must() { Err(self.missing(floor)) } else { Ok(()) };
        }
        let index = number.checked_sub(self.first + 1).map(usize::try_from);
        let change = match index {
            None => Some(&(Change::Put, Some(Fate::Applied))),
            Some(index) => index.ok().and_then(|index| self.changes.get(index)),
        };
        match change {
            None => Err(format!("shows {number}, but nothing above {} was attempted", self.attempted())),
            Some((Change::Delete, _)) => Err(format!("shows {number}, which is a deletion")),
            Some((_, Some(Fate::Refused))) => Err(format!("shows {number}, which was refused")),
            Some((_, Some(Fate::Unknown))) => Ok(()),
            Some(_) if number < floor => Err(format!("shows {number}, but change {floor} was certain before")),
            Some(_) => Ok(()),
        }
    }

    fn missing(&self, floor: u64) -> String {
        let (certain, attempted) = (self.certain, self.attempted());
        format!("is missing, but exists since change {floor} (certain: {certain}, attempted: {attempted})")
    }

    fn attempted(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// The states that the row may be in now, if it was in the state `floor` at least.
    fn states(&self, floor: u64) -> States {
        let exists = self.first > 0 && floor <= self.first;
        let (least, most) = if exists { (self.first, self.first) } else { (u64::MAX, 0) };
        let mut states = States { exists, absent: floor == 0, least, most };
        for (number, (change, fate)) in (self.first + 1..).zip(&self.changes) {
            let possible = match fate {
                Some(Fate::Refused) => false,
                Some(Fate::Unknown) => true,
                Some(Fate::Applied) | None => number >= floor,
            };
            match change {
                _ if !possible => {}
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
}

/// All rows and their changes so far, by their keys.
#[derive(Debug, Default)]
pub struct Rows {
    rows: BTreeMap<Vec<u8>, Row>,
}

/// What a reader asks for: the rows of a range, in an order, after an offset and up to a limit.
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

/// A read of one row that has started.
#[derive(Clone, Debug)]
#[must_use = "a read that began has to be judged when it ends"]
pub struct Reading {
    row: Vec<u8>,
    floor: u64,
}

/// A scan that has started, with the rows that it selects and the newest certain change of each.
#[derive(Clone, Debug)]
#[must_use = "a scan that began has to be judged when it ends"]
pub struct Scanning {
    asked: Asked,
    floors: BTreeMap<Vec<u8>, u64>,
    /// How many rows were known. Later ones may be shown, and are not asked whether they are selected.
    known: usize,
    /// The rows that it has shown so far.
    shown: Vec<Vec<u8>>,
}

impl Scanning {
    /// The rows that were known when it began.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.floors.keys().map(Vec::as_slice)
    }
}

fn violation(row: &[u8], what: impl Into<String>) -> Verdict<Violation> {
    Err(Violation::new(row, what))
}

impl Rows {
    fn row(&mut self, row: &[u8]) -> &mut Row {
        let rows_before = self.rows.len();
        self.rows.entry(row.to_vec()).or_insert_with(|| Row { rows_before, ..Row::default() })
    }

    /// Adds a row that may be changed. Rows have to be known before the first scan that selects some of them.
    pub fn know(&mut self, row: &[u8]) {
        self.row(row);
    }

    /// Starts a change of a row; returns its number.
    pub fn attempt(&mut self, row: &[u8], change: Change) -> u64 {
        self.row(row).attempt(change)
    }

    /// A change has ended.
    ///
    /// # Errors
    /// If it was refused, and its effect was shown before.
    pub fn end(&mut self, row: &[u8], number: u64, fate: Fate) -> Verdict<Violation> {
        self.row(row).end(number, fate).map_err(|what| Violation::new(row, what))
    }

    /// A change was acknowledged.
    pub fn acknowledge(&mut self, row: &[u8], number: u64) {
        self.end(row, number, Fate::Applied).expect("only a refused change contradicts what was shown");
    }

    /// Starts a read of one row.
    pub fn begin_read(&self, row: &[u8]) -> Reading {
        Reading { row: row.to_vec(), floor: self.rows.get(row).map_or(0, Row::certain) }
    }

    /// Ends a read that returned this number; 0 means that the row is absent.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn end_read(&mut self, reading: &Reading, number: u64) -> Verdict<Violation> {
        self.judge(&reading.row, reading.floor, number)?;
        if let Some(row) = self.rows.get_mut(&reading.row) {
            row.certain = row.certain.max(number);
        }
        Ok(())
    }

    /// Judges a read that may be older than acknowledged changes: only what was written can be read. It says nothing about
    /// later reads either: a member may apply a write before the leader does, which acknowledges it.
    ///
    /// # Errors
    /// If it was not written.
    pub fn judge_stale(&self, row: &[u8], number: u64) -> Verdict<Violation> {
        self.judge(row, 0, number)
    }

    fn judge(&self, row: &[u8], floor: u64, number: u64) -> Verdict<Violation> {
        match self.rows.get(row) {
            None if number == 0 => Ok(()),
            None => violation(row, format!("shows {number}, but was never written")),
            Some(state) => state.may_show(floor, number).map_err(|what| Violation::new(row, what)),
        }
    }

    /// Starts a scan of the rows that `selects` accepts.
    pub fn begin_scan(&self, asked: Asked, selects: impl Fn(&[u8]) -> bool) -> Scanning {
        let KeyRange { start, end } = &asked.range;
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&end[..]) };
        let is_empty = asked.range.is_empty();
        let rows = (!is_empty).then(|| self.rows.range::<[u8], _>((Bound::Included(&start[..]), end)));
        let rows = rows.into_iter().flatten().filter(|(key, _)| selects(key));
        let floors = rows.map(|(key, row)| (key.clone(), row.certain)).collect();
        Scanning { asked, floors, known: self.rows.len(), shown: Vec::new() }
    }

    /// A scan shows its next row. One with number 0 that is not known here belongs to others.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn show(&mut self, scanning: &mut Scanning, row: &[u8], number: u64) -> Verdict<Violation> {
        let Scanning { asked, floors, known, shown } = scanning;
        if asked.limit.is_some_and(|limit| shown.len() as u64 >= limit) {
            return violation(row, "is beyond the limit");
        }
        let in_order = shown.last().is_none_or(|last| if asked.reverse { row < &last[..] } else { row > &last[..] });
        if !in_order || !asked.range.contains(row) {
            return violation(row, "is out of range or order");
        }
        shown.push(row.to_vec());
        let Some(state) = self.rows.get_mut(row) else { return self.judge(row, 0, number) };
        let floor = floors.get(row).copied().or((state.rows_before >= *known).then_some(0));
        let Some(floor) = floor else { return violation(row, "is not among the rows that were asked for") };
        if number == 0 {
            return violation(row, "shows none of its changes");
        }
        state.show(floor, number).map_err(|what| Violation::new(row, what))
    }

    /// Ends a scan. If it is `complete`, no row followed the shown ones.
    ///
    /// # Errors
    /// If a row is missing before, between or after them.
    pub fn end_scan(&self, scanning: &Scanning, complete: bool) -> Verdict<Violation> {
        let Scanning { asked, floors, shown, .. } = scanning;
        let rows: BTreeSet<&Vec<u8>> = floors.keys().chain(shown).collect();
        let ordered: Box<dyn Iterator<Item = &Vec<u8>>> =
            if asked.reverse { Box::new(rows.into_iter().rev()) } else { Box::new(rows.into_iter()) };
        let mut shown = shown.iter().peekable();
        let mut is_first = true;
        let (mut must, mut may) = (0, 0);
        for row in ordered {
            if shown.next_if_eq(&row).is_some() {
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
            let states = self.rows[row].states(floors[row]);
            must += u64::from(states.must());
            may += u64::from(states.exists);
            if states.must() && (!is_first || must > asked.offset) {
                return violation(row, self.rows[row].missing(floors[row]));
            }
        }
        Ok(())
    }

    /// Judges a scan that returned these rows with their numbers.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn judge_scan(
        &mut self,
        mut scanning: Scanning,
        shown: &[(Vec<u8>, u64)],
        complete: bool,
    ) -> Verdict<Violation> {
        shown.iter().try_for_each(|(row, number)| self.show(&mut scanning, row, *number))?;
        self.end_scan(&scanning, complete)
    }

    /// Ends a scan that only counted its rows and summed up their numbers.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn end_count(&self, scanning: &Scanning, counted: u64, sum: Option<u64>) -> Verdict<Violation> {
        let (mut rows, mut numbers) = ((0, 0), (0, 0));
        for (row, floor) in &scanning.floors {
            let states = self.rows[row].states(*floor);
            rows = (rows.0 + u64::from(states.must()), rows.1 + u64::from(states.exists));
            numbers = (numbers.0 + states.least, numbers.1 + states.most);
        }
        let start = &scanning.asked.range.start;
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

    /// The number of rows that took a change for certain.
    #[must_use]
    pub fn certain_rows(&self) -> u64 {
        self.rows.values().filter(|row| row.certain > 0).count() as u64
    }
}

#[cfg(test)]
mod tests;
