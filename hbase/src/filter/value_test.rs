//! A comparator by itself: what a condition compares the value of one column with.

use bytes::Bytes;
use terrane_types::Invalid;

use super::compare::{Comparator, Operator, Test};
use super::decode::comparator;
use crate::proto::{self, CompareType};

/// The comparison of a condition with the value of one column.
pub(crate) struct ValueTest {
    test: Test,
    /// What was given has no bytes: it stands for a column that is absent or empty.
    is_of_nothing: bool,
}

impl ValueTest {
    /// Reads a comparator.
    ///
    /// # Errors
    /// [`Invalid`] for one that is malformed, unknown or over the limits.
    pub fn read(given: &proto::Comparator, operator: CompareType) -> Result<Self, Invalid> {
        let (comparator, is_of_nothing) = comparator(given)?;
        Ok(Self { test: Test { operator: Operator::of(operator), comparator: Some(comparator) }, is_of_nothing })
    }

    /// The bytes that the stored value is compared with, if that is all: none stand for nothing.
    pub fn given(&self) -> Option<Bytes> {
        match &self.test.comparator {
            _ if self.is_of_nothing => Some(Bytes::new()),
            Some(Comparator::Binary(given)) => Some(given.clone()),
            _ => None,
        }
    }

    /// Whether the condition holds for what is stored.
    pub fn holds(&self, stored: Option<&[u8]>) -> Result<bool, Invalid> {
        match stored {
            stored if self.is_of_nothing => {
                Ok(stored.is_none_or(<[u8]>::is_empty) == (self.test.operator != Operator::NotEqual))
            }
            Some(stored) => self.test.passes(stored),
            None => Ok(false),
        }
    }
}
