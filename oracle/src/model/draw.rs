//! Random rows, columns, changes and selections, for the model and for clients.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::plain::{Answers, Change, Columns, Condition, Event, Filter, Kind, ReadModifyWrite, Selection};

/// Families and their numbers of versions.
pub const FAMILIES: [(&str, usize); 2] = [("f", 3), ("g", 1)];
/// Groups of rows that tests write.
pub const GROUPS: usize = 16;

const RESTS: [&str; 4] = ["", "a", "ab", "z"];
/// Qualifiers of counters, lists and put values.
const COUNTERS: [&str; 2] = ["n", "nn"];
const TEXTS: [&str; 3] = ["l", "v", "vv"];
/// A timestamp above every stamp of a server.
const FUTURE: i64 = 5_000_000_000_000;
/// Upper bound of the clients' own timestamps.
const TIMES: i64 = 12;

/// The smallest row of a group.
///
/// # Panics
/// If the number of the group has more than 32 bits.
#[must_use]
pub fn group_start(group: usize) -> Vec<u8> {
    u32::try_from(group).expect("few groups").to_be_bytes().to_vec()
}

/// Draws about rows of some groups.
#[derive(Debug)]
pub struct Draw {
    rng: StdRng,
    groups: Range<usize>,
}

impl Draw {
    /// A seed gives the same draws each time.
    #[must_use]
    pub fn new(seed: u64, groups: Range<usize>) -> Draw {
        Draw { rng: StdRng::seed_from_u64(seed), groups }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Low groups are drawn more often, so that some rows have long histories.
    pub fn group(&mut self) -> usize {
        let most = 1 + self.below(self.groups.len());
        self.groups.start + self.below(most)
    }

    /// A row of such a group.
    pub fn row(&mut self) -> Vec<u8> {
        let mut row = group_start(self.group());
        row.extend_from_slice(self.pick(&RESTS).as_bytes());
        row
    }

    /// A range of rows, often all; an empty end is unbounded.
    pub fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        if self.one_in(3) {
            return (Vec::new(), Vec::new());
        }
        let (one, other) = (self.row(), self.row());
        match self.below(4) {
            0 => (one, Vec::new()),
            1 => (Vec::new(), one),
            _ if one == other => (one, Vec::new()),
            _ => (one.clone().min(other.clone()), one.max(other)),
        }
    }

    /// Small blocks, which end in the middle of results.
    pub fn block_bytes(&mut self) -> u32 {
        self.pick(&[0, 1, 200])
    }

    /// The column of a counter.
    pub fn counter(&mut self) -> (&'static str, &'static str) {
        (self.pick(&FAMILIES).0, self.pick(&COUNTERS))
    }

    fn column(&mut self) -> (&'static str, &'static str) {
        let (family, counter) = self.counter();
        (family, if self.one_in(3) { counter } else { self.pick(&TEXTS) })
    }

    /// A timestamp of a client.
    pub fn timestamp(&mut self) -> i64 {
        if self.one_in(15) { FUTURE } else { self.rng.random_range(0..TIMES) }
    }

    fn value(&mut self, qualifier: &str) -> Vec<u8> {
        if COUNTERS.contains(&qualifier) && !self.one_in(20) {
            return self.rng.random_range(-5..100i64).to_be_bytes().to_vec();
        }
        let length = if self.one_in(10) { 300 } else { self.below(4) };
        vec![self.pick(b"xyz"); length]
    }

    fn event(&mut self) -> Event {
        let (family, qualifier) = self.column();
        let put = Event { family, qualifier, timestamp: None, kind: Kind::Put, value: Vec::new() };
        let own = self.timestamp();
        let sometimes = if self.one_in(2) { Some(own) } else { None };
        match self.below(10) {
            0 => Event { kind: Kind::Version, timestamp: Some(own), ..put },
            1 => Event { kind: Kind::Column, timestamp: sometimes, ..put },
            2 if self.one_in(2) => Event { kind: Kind::Family, qualifier: "", timestamp: sometimes, ..put },
            3 if self.one_in(2) => Event { kind: Kind::FamilyVersion, qualifier: "", timestamp: Some(own), ..put },
            _ => Event { value: self.value(qualifier), timestamp: sometimes, ..put },
        }
    }

    /// A change of any row.
    pub fn change(&mut self) -> Change {
        let row = self.row();
        self.change_of(row)
    }

    fn change_of(&mut self, row: Vec<u8>) -> Change {
        let mut change = Change {
            row,
            events: Vec::new(),
            read_modify_writes: Vec::new(),
            condition: None,
            answers: self.pick(&[Answers::Nothing, Answers::Old, Answers::New]),
            return_found: self.one_in(2),
        };
        if !self.one_in(3) {
            change.events = (0..=self.below(4)).map(|_| self.event()).collect();
        }
        for _ in 0..self.below(3) {
            let (family, counter) = self.counter();
            if self.one_in(2) {
                let by = self.rng.random_range(-3..10);
                add_read_modify_write(&mut change, family, counter, ReadModifyWrite::Increment(by));
            } else {
                let value = vec![self.pick(b"pq"); 1 + self.below(3)];
                add_read_modify_write(&mut change, family, "l", ReadModifyWrite::Append(value));
            }
        }
        if change.events.is_empty() && change.read_modify_writes.is_empty() {
            change.events.push(self.event());
        }
        if self.one_in(3) {
            change.condition = Some(self.condition(2));
        }
        change
    }

    fn condition(&mut self, deep: usize) -> Condition {
        let (family, qualifier) = self.column();
        let value = self.value(qualifier);
        match self.below(if deep > 0 { 8 } else { 6 }) {
            0 => Condition::Absent(family, qualifier),
            1 => Condition::Exists(family, qualifier),
            2 => Condition::Equals(family, qualifier, value),
            3 => Condition::Differs(family, qualifier, value),
            // Nested, the order of evaluation would matter if a cell is not a counter.
            4 if deep == 2 => Condition::Above(family, self.pick(&COUNTERS), self.rng.random_range(-5..60)),
            4 | 5 => Condition::Version(family, qualifier, self.timestamp()),
            6 => Condition::And(Box::new(self.condition(deep - 1)), Box::new(self.condition(deep - 1))),
            _ => Condition::Or(Box::new(self.condition(deep - 1)), Box::new(self.condition(deep - 1))),
        }
    }

    /// Changes of different rows in one group.
    pub fn atomic_changes(&mut self) -> Vec<Change> {
        let group = self.group();
        let first = self.below(2);
        let rests = RESTS[first..=first + self.below(RESTS.len() - first)].iter();
        let rows: Vec<Vec<u8>> = rests.map(|rest| [&group_start(group)[..], rest.as_bytes()].concat()).collect();
        rows.into_iter().map(|row| self.change_of(row)).collect()
    }

    /// A delete of everything in a row up to now.
    pub fn delete_of_a_row(&mut self) -> Change {
        let event =
            |(family, _)| Event { family, qualifier: "", timestamp: None, kind: Kind::Family, value: Vec::new() };
        Change {
            row: self.row(),
            events: FAMILIES.map(event).to_vec(),
            read_modify_writes: Vec::new(),
            condition: None,
            answers: Answers::Nothing,
            return_found: false,
        }
    }

    /// What a read selects.
    pub fn selection(&mut self) -> Selection {
        let mut selection = Selection { versions: 1 + self.below(4), ..Selection::default() };
        if self.one_in(2) {
            for _ in 0..=self.below(3) {
                let (family, qualifier) = self.column();
                selection.columns.push(match self.below(3) {
                    0 => Columns::Family(family),
                    1 => Columns::Prefix(family, &qualifier[..1]),
                    _ => Columns::One(family, qualifier),
                });
            }
        }
        if self.one_in(4) {
            let (one, other) = (self.timestamp(), self.timestamp());
            selection.times = Some((one.min(other), one.max(other) + 1));
        }
        if self.one_in(4) {
            selection.cells = Some((self.below(3), 1 + self.below(4)));
        }
        selection.keys_only = self.one_in(5);
        if self.one_in(4) {
            let filter = self.filter();
            selection.filter = Some(if self.one_in(3) { Filter::Not(Box::new(filter)) } else { filter });
        }
        selection
    }

    fn filter(&mut self) -> Filter {
        let (family, qualifier) = self.column();
        match self.below(3) {
            0 => Filter::Above(family, self.pick(&COUNTERS), self.rng.random_range(-5..60)),
            1 => Filter::Qualifier(qualifier),
            _ => Filter::Exists(family, qualifier),
        }
    }
}

/// Adds an increment or append unless its column is already in the change.
fn add_read_modify_write(change: &mut Change, family: &'static str, qualifier: &'static str, rmw: ReadModifyWrite) {
    change.events.retain(|event| event.is_of_family() || event.family != family || event.qualifier != qualifier);
    if !change.read_modify_writes.iter().any(|rmw| rmw.0 == family && rmw.1 == qualifier) {
        change.read_modify_writes.push((family, qualifier, rmw));
    }
}
