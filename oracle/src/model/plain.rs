//! The plain model: a list of all applied cells in write order, which every read replays. It shares only names with the
//! code under test.

use std::collections::{BTreeMap, BTreeSet};

/// The kind of a cell in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value.
    Put,
    /// One version of a column.
    Version,
    /// The newest version of a column, as the row was before the change.
    Newest,
    /// A column's versions up to a timestamp.
    Column,
    /// A family's versions up to a timestamp.
    Family,
    /// A family's versions of one timestamp.
    FamilyVersion,
}

/// A cell to apply; without a timestamp it gets one from the server.
#[derive(Clone, Debug)]
pub struct Event {
    /// The column's family.
    pub family: &'static str,
    /// The column's qualifier; empty for what concerns the whole family.
    pub qualifier: &'static str,
    /// Milliseconds since 1970, or any number that clients agree on.
    pub timestamp: Option<i64>,
    /// What it does.
    pub kind: Kind,
    /// The value of a put.
    pub value: Vec<u8>,
}

/// An increment or append.
#[derive(Clone, Debug)]
pub enum ReadModifyWrite {
    /// Adds to a counter of 8 bytes.
    Increment(i64),
    /// Adds bytes at the end.
    Append(Vec<u8>),
}

/// A condition on a row.
#[derive(Clone, Debug)]
pub enum Condition {
    /// The column has no value.
    Absent(&'static str, &'static str),
    /// The column has a value.
    Exists(&'static str, &'static str),
    /// The newest value is this one.
    Equals(&'static str, &'static str, Vec<u8>),
    /// The newest value is another one.
    Differs(&'static str, &'static str, Vec<u8>),
    /// Reads the column as a counter; a value of another length fails the mutation.
    Above(&'static str, &'static str, i64),
    /// The newest version has this timestamp.
    Version(&'static str, &'static str, i64),
    /// Both hold.
    And(Box<Condition>, Box<Condition>),
    /// One of them holds.
    Or(Box<Condition>, Box<Condition>),
}

/// The columns that a mutation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// None.
    Nothing,
    /// As they were before.
    Old,
    /// As they are now.
    New,
}

/// A mutation of one row.
#[derive(Clone, Debug)]
pub struct Change {
    /// The row.
    pub row: Vec<u8>,
    /// Cells, in their order.
    pub events: Vec<Event>,
    /// Increments and appends, each of a column.
    pub read_modify_writes: Vec<(&'static str, &'static str, ReadModifyWrite)>,
    /// It is applied only if this holds.
    pub condition: Option<Condition>,
    /// What it returns once it is applied.
    pub answers: Answers,
    /// Whether it returns what the condition read, if that does not hold.
    pub return_found: bool,
}

/// The expected outcome of a change.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// It takes effect.
    Applied,
    /// The condition does not hold; has the columns that it names.
    NotHeld(Vec<Seen>),
    /// An increment or a condition read a value that is not a counter.
    Refused,
}

/// A cell as a reader sees it.
pub type Seen = (String, String, i64, Vec<u8>);
/// Rows with their cells, in order.
pub type Rows = Vec<(Vec<u8>, Vec<Seen>)>;

/// The selection of each row.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Families, optionally with a qualifier or a prefix of qualifiers; empty means all.
    pub columns: Vec<Columns>,
    /// Most versions of a column.
    pub versions: usize,
    /// Timestamps from the first one up to but excluding the second one.
    pub times: Option<(i64, i64)>,
    /// How many cells of the row to leave out, and how many to return.
    pub cells: Option<(usize, usize)>,
    /// The same for each family.
    pub family_cells: Option<(usize, usize)>,
    /// Values are left out.
    pub keys_only: bool,
    /// Which cells pass.
    pub filter: Option<Filter>,
}

#[derive(Clone, Copy, Debug)]
pub enum Columns {
    /// A whole family.
    Family(&'static str),
    /// One column.
    One(&'static str, &'static str),
    /// The columns of a family whose qualifiers begin so.
    Prefix(&'static str, &'static str),
}

#[derive(Clone, Debug)]
pub enum Filter {
    /// The newest version of a column, read as a counter, is above this.
    Above(&'static str, &'static str, i64),
    /// Only cells of this qualifier.
    Qualifier(&'static str),
    /// Rows that have the column, whether or not it is selected.
    Exists(&'static str, &'static str),
    /// What does not pass the other.
    Not(Box<Filter>),
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            columns: Vec::new(),
            versions: 1,
            times: None,
            cells: None,
            family_cells: None,
            keys_only: false,
            filter: None,
        }
    }
}

/// All rows.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Families and their numbers of versions.
    families: BTreeMap<&'static str, usize>,
    rows: BTreeMap<Vec<u8>, Vec<Event>>,
}

impl Model {
    /// No rows yet. Families come with their numbers of versions.
    #[must_use]
    pub fn new(families: &[(&'static str, usize)]) -> Self {
        Self { families: families.iter().copied().collect(), rows: BTreeMap::new() }
    }

    /// Takes a row out, as a model of its own.
    #[must_use]
    pub fn take_row(&mut self, row: &[u8]) -> Self {
        let taken = self.rows.remove_entry(row);
        Self { families: self.families.clone(), rows: taken.into_iter().collect() }
    }

    /// Adds the rows of another model, which this one does not have.
    pub fn add_rows(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// The rows that were ever written, in order.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.rows.keys().map(Vec::as_slice)
    }

    /// What becomes of a change.
    #[must_use]
    pub fn decide(&self, change: &Change) -> Decision {
        let newest = |family: &str, qualifier: &str| self.newest(&change.row, family, qualifier);
        if let Some(condition) = &change.condition {
            match condition.holds(&newest) {
                None => return Decision::Refused,
                Some(true) => {}
                Some(false) if change.return_found => {
                    let named: BTreeSet<_> = condition.columns().into_iter().collect();
                    let found = named.into_iter().filter_map(|(family, qualifier)| newest(family, qualifier));
                    return Decision::NotHeld(found.collect());
                }
                Some(false) => return Decision::NotHeld(Vec::new()),
            }
        }
        let counts = |(family, qualifier, rmw): &(&str, &str, ReadModifyWrite)| match rmw {
            ReadModifyWrite::Increment(_) => newest(family, qualifier).is_none_or(|seen| seen.3.len() == 8),
            ReadModifyWrite::Append(_) => true,
        };
        if change.read_modify_writes.iter().all(counts) { Decision::Applied } else { Decision::Refused }
    }

    /// Applies a change with its stamp; returns its result.
    pub fn apply(&mut self, change: &Change, stamp: i64) -> Vec<Seen> {
        let named = |seen: &Seen| {
            let marked = change.events.iter().any(|event| event.is_of_family() && event.family == seen.0);
            let by_event = change.events.iter().any(|event| event.family == seen.0 && event.qualifier == seen.1);
            let by_rmw = change.read_modify_writes.iter().any(|rmw| rmw.0 == seen.0 && rmw.1 == seen.1);
            marked || by_event || by_rmw
        };
        let all = Selection::default();
        let before = self.read(&change.row, &all);
        let updated: Vec<Event> =
            change.read_modify_writes.iter().map(|rmw| self.updated(&change.row, rmw, stamp)).collect();
        let stamped = change.events.iter().filter_map(|event| match event.kind {
            Kind::Newest => {
                let newest = self.newest(&change.row, event.family, event.qualifier)?;
                Some(Event { timestamp: Some(newest.2), kind: Kind::Version, ..event.clone() })
            }
            _ => Some(Event { timestamp: Some(event.timestamp.unwrap_or(stamp)), ..event.clone() }),
        });
        let events: Vec<Event> = stamped.chain(updated).collect();
        self.rows.entry(change.row.clone()).or_default().extend(events);
        match change.answers {
            Answers::Nothing => Vec::new(),
            Answers::Old => before.into_iter().filter(named).collect(),
            Answers::New => self.read(&change.row, &all).into_iter().filter(named).collect(),
        }
    }

    fn updated(
        &self,
        row: &[u8],
        (family, qualifier, rmw): &(&'static str, &'static str, ReadModifyWrite),
        stamp: i64,
    ) -> Event {
        let newest = self.newest(row, family, qualifier);
        let timestamp = newest.as_ref().map_or(stamp, |seen| seen.2.max(stamp));
        let before = newest.map(|seen| seen.3).unwrap_or_default();
        let value = match rmw {
            ReadModifyWrite::Increment(by) => {
                let before = before.try_into().map_or(0, i64::from_be_bytes);
                (before + by).to_be_bytes().to_vec()
            }
            ReadModifyWrite::Append(value) => [&before[..], value].concat(),
        };
        Event { family, qualifier, timestamp: Some(timestamp), kind: Kind::Put, value }
    }

    /// The newest version of a column.
    #[must_use]
    pub fn newest(&self, row: &[u8], family: &str, qualifier: &str) -> Option<Seen> {
        let seen = self.read(row, &Selection::default());
        seen.into_iter().find(|seen| seen.0 == family && seen.1 == qualifier)
    }

    /// The cells that a read of one row returns.
    #[must_use]
    pub fn read(&self, row: &[u8], selection: &Selection) -> Vec<Seen> {
        let shown = self.live(row, selection, |family, qualifier| selection.has(family, qualifier));
        let passed: Vec<Seen> = match &selection.filter {
            None => shown,
            Some(filter) => {
                let all = self.live(row, selection, |_, _| true);
                shown.into_iter().filter(|seen| filter.passes(seen, &all)).collect()
            }
        };
        let passed = match selection.family_cells {
            None => passed,
            Some((offset, limit)) => self
                .families
                .keys()
                .flat_map(|family| passed.iter().filter(|seen| seen.0 == *family).skip(offset).take(limit).cloned())
                .collect(),
        };
        let (offset, limit) = selection.cells.unwrap_or((0, usize::MAX));
        let cells = passed.into_iter().skip(offset).take(limit);
        cells.map(|seen| if selection.keys_only { (seen.0, seen.1, seen.2, Vec::new()) } else { seen }).collect()
    }

    /// The rows of a range with selected cells, in order.
    #[must_use]
    pub fn scan(&self, from: &[u8], to: &[u8], selection: &Selection) -> Rows {
        let within = |row: &Vec<u8>| &row[..] >= from && (to.is_empty() || &row[..] < to);
        let rows = self.rows.keys().filter(|row| within(row));
        rows.map(|row| (row.clone(), self.read(row, selection))).filter(|(_, cells)| !cells.is_empty()).collect()
    }

    fn live(&self, row: &[u8], selection: &Selection, has: impl Fn(&str, &str) -> bool) -> Vec<Seen> {
        let Some(events) = self.rows.get(row) else { return Vec::new() };
        let columns: BTreeSet<(&str, &str)> = events.iter().map(|event| (event.family, event.qualifier)).collect();
        let mut seen = Vec::new();
        for (family, qualifier) in columns.into_iter().filter(|(family, qualifier)| has(family, qualifier)) {
            let versions = self.versions(events, family, qualifier);
            let (least, below) = selection.times.unwrap_or((0, i64::MAX));
            let versions = versions.into_iter().filter(|(timestamp, _)| (least..below).contains(timestamp));
            let versions = versions.take(selection.versions);
            seen.extend(versions.map(|(at, value)| (family.to_owned(), qualifier.to_owned(), at, value)));
        }
        seen
    }

    /// The visible versions of a column, newest first.
    fn versions(&self, events: &[Event], family: &str, qualifier: &str) -> Vec<(i64, Vec<u8>)> {
        let mut live: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
        let of_family = events.iter().filter(|event| event.family == family);
        for event in of_family.filter(|event| event.is_of_family() || event.qualifier == qualifier) {
            let at = event.timestamp.expect("what is applied is stamped");
            match event.kind {
                Kind::Put => {
                    live.insert(at, event.value.clone());
                    while live.len() > self.families[family] {
                        live.pop_first();
                    }
                }
                Kind::Newest => unreachable!("it becomes the delete of a version when it is applied"),
                Kind::Version | Kind::FamilyVersion => drop(live.remove(&at)),
                Kind::Column | Kind::Family => live.retain(|timestamp, _| *timestamp > at),
            }
        }
        live.into_iter().rev().collect()
    }
}

impl Event {
    /// Whether it concerns a whole family.
    #[must_use]
    pub const fn is_of_family(&self) -> bool {
        matches!(self.kind, Kind::Family | Kind::FamilyVersion)
    }
}

impl Selection {
    fn has(&self, family: &str, qualifier: &str) -> bool {
        let one = |columns: &Columns| match *columns {
            Columns::Family(of) => of == family,
            Columns::One(of, name) => of == family && name == qualifier,
            Columns::Prefix(of, prefix) => of == family && qualifier.starts_with(prefix),
        };
        self.columns.is_empty() || self.columns.iter().any(one)
    }
}

impl Filter {
    /// Whether a cell passes; `all` are the visible cells of its row.
    fn passes(&self, seen: &Seen, all: &[Seen]) -> bool {
        let newest = |family: &str, qualifier: &str| all.iter().find(|seen| seen.0 == family && seen.1 == qualifier);
        match self {
            Self::Above(family, qualifier, least) => newest(family, qualifier)
                .and_then(|seen| Some(i64::from_be_bytes(seen.3[..].try_into().ok()?)))
                .is_some_and(|value| value > *least),
            Self::Qualifier(name) => seen.1 == *name,
            Self::Exists(family, qualifier) => newest(family, qualifier).is_some(),
            Self::Not(filter) => !filter.passes(seen, all),
        }
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Above(family, qualifier, least) => write!(f, "i64({family}:{qualifier}) > {least}"),
            Self::Qualifier(name) => write!(f, "qualifier = '{name}'"),
            Self::Exists(family, qualifier) => write!(f, "exists({family}:{qualifier})"),
            Self::Not(filter) => write!(f, "not ({filter})"),
        }
    }
}

impl Condition {
    /// Whether it holds; `None` if a column does not have the compared type.
    fn holds(&self, newest: &impl Fn(&str, &str) -> Option<Seen>) -> Option<bool> {
        let value = |family, qualifier| newest(family, qualifier).map(|seen| seen.3);
        Some(match self {
            Self::Absent(family, qualifier) => value(family, qualifier).is_none(),
            Self::Exists(family, qualifier) => value(family, qualifier).is_some(),
            Self::Equals(family, qualifier, wanted) => value(family, qualifier).as_ref() == Some(wanted),
            Self::Differs(family, qualifier, other) => value(family, qualifier).is_some_and(|value| value != *other),
            Self::Above(family, qualifier, least) => match value(family, qualifier) {
                None => false,
                Some(value) => i64::from_be_bytes(value.try_into().ok()?) > *least,
            },
            Self::Version(family, qualifier, at) => newest(family, qualifier).is_some_and(|seen| seen.2 == *at),
            Self::And(one, other) => one.holds(newest)? && other.holds(newest)?,
            Self::Or(one, other) => one.holds(newest)? || other.holds(newest)?,
        })
    }

    fn columns(&self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Absent(family, qualifier)
            | Self::Exists(family, qualifier)
            | Self::Equals(family, qualifier, _)
            | Self::Differs(family, qualifier, _)
            | Self::Above(family, qualifier, _)
            | Self::Version(family, qualifier, _) => vec![(family, qualifier)],
            Self::And(one, other) | Self::Or(one, other) => [one.columns(), other.columns()].concat(),
        }
    }
}
