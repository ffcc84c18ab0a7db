//! Tests of the parts of a declared key: `key(user) = 7 and key(action) in (1, 3)`.
//!
//! A filter's author writes the part's name alone. The declaration joins it where the table is known, which is in the client, and
//! travels in the text: servers evaluate filters without a schema, and a filter means the same at every retry.
//!
//! The encoding of a part sorts as its values do, so tests compare bytes and decode nothing. `row_set` takes from tests of leading
//! parts the rows that can pass.
//!
//! Invariant: a row that is not a key of this declaration passes no test, not even `!=`.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::keycodec::PartType;
use terrane_types::{CellValue, Invalid, KeyDeclaration, escape};

use crate::error::FilterError;
use crate::expression::{Filter, KeyPartSubject, Relation, Subject};

/// What tests of key parts there are.
pub(crate) const RELATIONS: &str = "parts of the key are compared with = != < <= > >= in or between";

impl KeyPartSubject {
    /// The bytes of this text as this part; `None` while the key is not known.
    pub(crate) fn encode(&self, text: &str) -> Result<Option<Vec<u8>>, Invalid> {
        let Some(key) = &self.key else { return Ok(None) };
        key.encode_part(key.place_of(&self.name)?, text).map(Some)
    }

    /// Whether the part is known to be a time.
    pub(crate) fn is_time(&self) -> bool {
        let place = self.key.as_ref().and_then(|key| Some((key, key.place_of(&self.name).ok()?)));
        place.is_some_and(|(key, place)| key.parts()[place].kind.part == PartType::Time)
    }
}

/// The error of a test of a part where the table declares none.
pub(crate) fn no_key(name: &str) -> String {
    format!("the table declares no key, so there is no part {name}; test the row's bytes, or declare a key")
}

/// The text of a bound value.
pub(crate) fn bound(value: &CellValue<'_>) -> Result<String, String> {
    let bytes = value.bytes().map_err(|invalid| format!("has no encoding: {}", invalid.what))?;
    let given = value.value_type();
    if given.is_number() {
        return given
            .as_stored()
            .text(bytes)
            .map_err(|invalid| format!("is not a value of its type: {}", invalid.what));
    }
    Ok(escape(bytes).replace('\'', "\\x27"))
}

impl Filter {
    /// The filter with this key for its tests of key parts that have none yet; `key` is what the table declares.
    ///
    /// # Errors
    /// [`FilterError::BadOperand`] if a part does not exist or its value is not of its type, or if the table declares no key.
    pub fn with_key(&self, key: Option<&KeyDeclaration>) -> Result<Self, FilterError> {
        let Some(name) = self.part_without_key() else { return Ok(self.clone()) };
        let Some(key) = key else {
            return Err(FilterError::BadOperand { what: no_key(name) });
        };
        let mut filter = self.clone();
        filter.take_key(&Arc::new(key.clone()))?;
        filter.check()?;
        Ok(filter)
    }

    /// A key part that is tested without a key: such a filter cannot be evaluated.
    #[must_use]
    pub fn part_without_key(&self) -> Option<&str> {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().find_map(Self::part_without_key),
            Self::Not(inner) | Self::Skip(inner) | Self::Any(inner) | Self::While(inner) => inner.part_without_key(),
            Self::Compare { subject: Subject::KeyPart(KeyPartSubject { name, key: None }), .. }
            | Self::OneOf { subject: Subject::KeyPart(KeyPartSubject { name, key: None }), .. } => Some(name),
            _ => None,
        }
    }

    fn take_key(&mut self, known: &Arc<KeyDeclaration>) -> Result<(), FilterError> {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter_mut().try_for_each(|part| part.take_key(known)),
            Self::Not(inner) | Self::Skip(inner) | Self::Any(inner) | Self::While(inner) => inner.take_key(known),
            Self::Compare { subject: Subject::KeyPart(part), .. }
            | Self::OneOf { subject: Subject::KeyPart(part), .. } => {
                part.key.get_or_insert_with(|| Arc::clone(known));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A test of one part, prepared.
#[derive(Clone, Debug)]
pub(crate) struct KeyPartTest {
    pub(crate) key: Arc<KeyDeclaration>,
    pub(crate) place: usize,
    pub(crate) test: PartRelation,
}

/// Tests of the encoded part.
#[derive(Clone, Debug)]
pub(crate) enum PartRelation {
    /// The relation of the bytes, which is the other way round for a descending part.
    Compare(Relation, Vec<u8>),
    /// Sorted.
    OneOf(Vec<Vec<u8>>),
}

impl KeyPartTest {
    /// The test of a checked filter, if it is one of a part of a known key.
    pub(crate) fn of(filter: &Filter) -> Option<Self> {
        let subject = match filter {
            Filter::Compare { subject, .. } | Filter::OneOf { subject, .. } => subject,
            _ => return None,
        };
        let Subject::KeyPart(KeyPartSubject { name, key: Some(key) }) = subject else { return None };
        let place = key.place_of(name).ok()?;
        let encoded = |operand: &Bytes| key.encode_part(place, std::str::from_utf8(operand).ok()?).ok();
        let test = match filter {
            Filter::Compare { relation, operand, .. } => {
                let relation = if key.parts()[place].kind.desc { reversed(*relation) } else { *relation };
                PartRelation::Compare(relation, encoded(operand)?)
            }
            Filter::OneOf { operands, .. } => {
                let mut operands: Vec<Vec<u8>> = operands.iter().map(encoded).collect::<Option<_>>()?;
                operands.sort();
                PartRelation::OneOf(operands)
            }
            _ => return None,
        };
        Some(Self { key: Arc::clone(key), place, test })
    }

    pub(crate) fn passes(&self, row: &[u8]) -> bool {
        let Some(part) = self.key.part_bytes(row, self.place) else { return false };
        match &self.test {
            PartRelation::Compare(relation, operand) => relation.holds(part.cmp(operand)),
            PartRelation::OneOf(operands) => operands.binary_search_by(|operand| operand[..].cmp(part)).is_ok(),
        }
    }
}

const fn reversed(relation: Relation) -> Relation {
    match relation {
        Relation::Less => Relation::Greater,
        Relation::LessOrEqual => Relation::GreaterOrEqual,
        Relation::Greater => Relation::Less,
        Relation::GreaterOrEqual => Relation::LessOrEqual,
        same => same,
    }
}

#[cfg(test)]
mod tests;
