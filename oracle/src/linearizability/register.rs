//! A register: a column with at most one visible version, and what operations do to it.
//!
//! The version of a value is its timestamp. The history may not know it: a write with an unknown outcome has some version.
//! The first operation that sees it determines it. What is not known never causes a violation.

use std::fmt::{Display, Formatter};

use terrane_types::escape;

use crate::verdict::Fate;

/// A visible version of the column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    pub value: Vec<u8>,
    /// Its timestamp, if known.
    pub version: Option<i64>,
}

/// What an operation saw: a version, or that the column is absent.
pub type Seen = Option<Cell>;

/// What the column holds.
pub(super) type State = Option<Cell>;

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Read,
    /// Changes the column if the condition holds.
    Update {
        condition: Condition,
        change: Change,
    },
}

/// What must hold for an update to take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    Absent,
    Exists,
    Equals(Vec<u8>),
    Version(i64),
}

/// How an update changes the column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Vec<u8>),
    Delete,
    /// Adds to a big-endian number of eight bytes; an absent column counts as 0.
    Add(i64),
    Append(Vec<u8>),
}

/// How an operation ended, as far as its client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A read returned this.
    Read(Seen),
    /// An update took effect. `before` and `after` are what it returned, if it was asked to; `version` is the timestamp
    /// that it gave, if known.
    Applied { before: Option<Seen>, after: Option<Seen>, version: Option<i64> },
    /// The condition of an update did not hold; `found` is what it found, if it was asked to return it.
    NotHeld { found: Option<Seen> },
    /// It certainly had no effect.
    Refused,
    /// It may have taken effect, or may still do so.
    Unknown,
}

impl Op {
    pub fn put(value: impl Into<Vec<u8>>) -> Op {
        Op::Update { condition: Condition::Always, change: Change::Put(value.into()) }
    }

    pub fn put_if(condition: Condition, value: impl Into<Vec<u8>>) -> Op {
        Op::Update { condition, change: Change::Put(value.into()) }
    }

    #[must_use]
    pub const fn delete() -> Op {
        Op::Update { condition: Condition::Always, change: Change::Delete }
    }

    #[must_use]
    pub const fn add(amount: i64) -> Op {
        Op::Update { condition: Condition::Always, change: Change::Add(amount) }
    }

    pub fn append(bytes: impl Into<Vec<u8>>) -> Op {
        Op::Update { condition: Condition::Always, change: Change::Append(bytes.into()) }
    }
}

impl From<Fate> for Outcome {
    /// The outcome of an update without a result.
    fn from(fate: Fate) -> Outcome {
        match fate {
            Fate::Applied => Outcome::applied(),
            Fate::Refused => Outcome::Refused,
            Fate::Unknown => Outcome::Unknown,
        }
    }
}

impl Outcome {
    /// An update took effect and returned nothing.
    #[must_use]
    pub const fn applied() -> Outcome {
        Outcome::Applied { before: None, after: None, version: None }
    }

    /// A read returned a value of an unknown version, or nothing.
    #[must_use]
    pub fn read(value: Option<&[u8]>) -> Outcome {
        Outcome::Read(value.map(Cell::of_value))
    }
}

impl Cell {
    /// A value whose version is not known.
    #[must_use]
    pub fn of_value(value: &[u8]) -> Cell {
        Cell { value: value.to_vec(), version: None }
    }
}

/// What an operation does in a state.
pub(super) enum Effect {
    /// Its result is impossible in this state.
    Impossible,
    /// It leads to the same state, and its result says nothing more than what is known of it.
    Nothing,
    /// It leads to this state.
    Next(State),
}

/// What an operation with this outcome does to the state.
pub(super) fn effect(state: &State, op: &Op, outcome: &Outcome) -> Effect {
    let reached = match (op, outcome) {
        (Op::Read, Outcome::Read(seen)) => matched(state, seen),
        (Op::Update { condition, .. }, Outcome::NotHeld { found }) => not_held(state, condition, found.as_ref()),
        (Op::Update { condition, change }, Outcome::Applied { before, after, version }) => {
            applied(state, (condition, change), (before.as_ref(), after.as_ref()), *version)
        }
        // If its condition does not hold at the moment, it takes effect at another or never.
        (Op::Update { condition, change }, Outcome::Unknown) => applied(state, (condition, change), (None, None), None),
        _ => None,
    };
    match reached {
        None => Effect::Impossible,
        Some(reached) if reached == *state => Effect::Nothing,
        Some(reached) => Effect::Next(reached),
    }
}

/// The state after something was seen in it, with its version if that was not known before; `None`: it cannot be seen.
fn matched(state: &State, seen: &Seen) -> Option<State> {
    match (state, seen) {
        (None, None) => Some(None),
        (Some(cell), Some(seen)) if cell.value == seen.value => {
            let agree = cell.version.is_none() || seen.version.is_none() || cell.version == seen.version;
            agree.then(|| Some(Cell { value: cell.value.clone(), version: cell.version.or(seen.version) }))
        }
        _ => None,
    }
}

fn not_held(state: &State, condition: &Condition, found: Option<&Seen>) -> Option<State> {
    let state = found.map_or_else(|| Some(state.clone()), |found| matched(state, found))?;
    (holds(&state, condition) != Some(true)).then_some(state)
}

/// Whether the condition holds; `None`: that depends on a version that is not known.
fn holds(state: &State, condition: &Condition) -> Option<bool> {
    Some(match condition {
        Condition::Always => true,
        Condition::Absent => state.is_none(),
        Condition::Exists => state.is_some(),
        Condition::Equals(value) => state.as_ref().is_some_and(|cell| cell.value == *value),
        Condition::Version(version) => match state {
            None => false,
            Some(cell) => cell.version? == *version,
        },
    })
}

fn applied(
    state: &State,
    (condition, change): (&Condition, &Change),
    (before, after): (Option<&Seen>, Option<&Seen>),
    version: Option<i64>,
) -> Option<State> {
    let state = before.map_or_else(|| Some(state.clone()), |before| matched(state, before))?;
    if holds(&state, condition) == Some(false) {
        return None;
    }
    let reached = changed(&state, change, version)?;
    after.map_or_else(|| Some(reached.clone()), |after| matched(&reached, after))
}

fn changed(state: &State, change: &Change, version: Option<i64>) -> Option<State> {
    let old = state.as_ref().map(|cell| cell.value.as_slice());
    let value = match change {
        Change::Delete => return Some(None),
        Change::Put(value) => value.clone(),
        Change::Append(bytes) => [old.unwrap_or_default(), bytes].concat(),
        Change::Add(amount) => {
            // An addition to something else fails.
            let number = old.map_or(Some(0), |old| Some(i64::from_be_bytes(old.try_into().ok()?)))?;
            number.wrapping_add(*amount).to_be_bytes().to_vec()
        }
    };
    Some(Some(Cell { value, version }))
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Op::Update { condition, change } = self else { return f.write_str("read") };
        match change {
            Change::Put(value) => write!(f, "put {}", escape(value))?,
            Change::Delete => f.write_str("delete")?,
            Change::Add(amount) => write!(f, "add {amount}")?,
            Change::Append(bytes) => write!(f, "append {}", escape(bytes))?,
        }
        match condition {
            Condition::Always => Ok(()),
            Condition::Absent => f.write_str(" if absent"),
            Condition::Exists => f.write_str(" if it exists"),
            Condition::Equals(value) => write!(f, " if {}", escape(value)),
            Condition::Version(version) => write!(f, " if of version {version}"),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Read(seen) => show(f, seen),
            Outcome::Applied { before, after, version } => {
                f.write_str("applied")?;
                version.iter().try_for_each(|version| write!(f, " as version {version}"))?;
                before.iter().try_for_each(|seen| f.write_str(" to ").and_then(|()| show(f, seen)))?;
                after.iter().try_for_each(|seen| f.write_str(" giving ").and_then(|()| show(f, seen)))
            }
            Outcome::NotHeld { found } => {
                f.write_str("not held")?;
                found.iter().try_for_each(|seen| f.write_str(", found ").and_then(|()| show(f, seen)))
            }
            Outcome::Refused => f.write_str("refused"),
            Outcome::Unknown => f.write_str("unknown"),
        }
    }
}

fn show(f: &mut Formatter<'_>, seen: &Seen) -> std::fmt::Result {
    let Some(cell) = seen else { return f.write_str("absent") };
    write!(f, "{}", escape(&cell.value))?;
    cell.version.iter().try_for_each(|version| write!(f, " of version {version}"))
}
