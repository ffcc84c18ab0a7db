//! Tests in SQL's words: `between`, `like`, `not in`, `is null`.
//!
//! Each is written out as the tests that it stands for while the text is read. So it is planned as they are, and neither the
//! evaluation nor the wire has to know it.
//!
//! Invariant: as `!=` does, the negated words fail for an absent column and for a value that is not of its type, like a
//! comparison with `NULL` in SQL. `not` before a test is its opposite, here as everywhere.

use bytes::Bytes;
use terrane_types::ValueType;

use super::{Parser, one_or};
use crate::error::FilterError;
use crate::expression::{Filter, Relation, Subject};
use crate::like::Like;
use crate::misspelling::nearest;
use crate::token::{TokenKind, syntax};

/// Up to so many values, `not in` is a list of `!=`, of which conditions of writes consist, too.
const COMPARED_ONE_BY_ONE_MAX: usize = 16;
/// What may follow a subject.
const WORDS: [&str; 7] = ["in", "not in", "like", "ilike", "between", "is null", "is not null"];
/// Tests that people write between a subject and a value.
const TESTS_OF_BYTES: [&str; 4] = ["prefix", "contains", "icontains", "matches"];

impl Parser<'_> {
    /// The keyword test that follows a subject, as operands of an `and`; `None` if a sign follows.
    pub(super) fn in_words(
        &mut self,
        subject: &Subject,
        read_as: Option<ValueType>,
    ) -> Result<Option<Vec<Filter>>, FilterError> {
        let begin = self.token(0).at;
        let negated = self.takes_word("not");
        let test = match self.peek() {
            _ if self.takes_word("in") => self.in_list(subject, read_as, negated),
            _ if self.takes_word("between") => self.between(subject, read_as, negated),
            _ if self.takes_word("like") => self.like(subject, read_as, negated, false),
            _ if self.takes_word("ilike") => self.like(subject, read_as, negated, true),
            _ if negated => return Err(self.expected("`in`, `like` or `between`")),
            _ if self.takes_word("is") => self.is_null(subject, begin),
            TokenKind::Word(word) => {
                return self.unknown_comparison(word).map_or(Ok(None), |what| Err(self.error(what)));
            }
            _ => return Ok(None),
        };
        let test = test?;
        let is_ambiguous = !matches!(test[..], [Filter::OneOf { .. } | Filter::Exists { .. } | Filter::Not(_)]);
        if is_ambiguous
            && (negated || test.len() > 1)
            && matches!(subject, Subject::Column(column) if column.any_version)
        {
            let what = "one version may pass a part of this test and another the rest; with any_version, use = != < <= > >= in";
            return Err(syntax(self.text, begin, what));
        }
        Ok(Some(test))
    }

    fn in_list(
        &mut self,
        subject: &Subject,
        read_as: Option<ValueType>,
        negated: bool,
    ) -> Result<Vec<Filter>, FilterError> {
        self.take(TokenKind::Open)?;
        let mut operands = self.list(|parser| parser.compared_with(subject, read_as))?;
        self.take(TokenKind::Close)?;
        let read_as = read_as.unwrap_or(ValueType::Bytes);
        if !negated {
            return Ok(vec![Filter::OneOf { subject: subject.clone(), read_as, operands }]);
        }
        let one_by_one = if operands.len() > COMPARED_ONE_BY_ONE_MAX { 1 } else { operands.len() };
        let rest = operands.split_off(one_by_one);
        let mut tests: Vec<Filter> =
            operands.into_iter().map(|operand| compare(subject, read_as, Relation::NotEqual, operand)).collect();
        if !rest.is_empty() {
            let others = Filter::OneOf { subject: failing_if_missing(subject), read_as, operands: rest };
            tests.push(Filter::Not(Box::new(others)));
        }
        Ok(tests)
    }

    fn between(
        &mut self,
        subject: &Subject,
        read_as: Option<ValueType>,
        negated: bool,
    ) -> Result<Vec<Filter>, FilterError> {
        let first = self.compared_with(subject, read_as)?;
        if !self.takes_word("and") {
            return Err(self.expected("`and` and the other end of `between`"));
        }
        let last = self.compared_with(subject, read_as)?;
        let read_as = read_as.unwrap_or(ValueType::Bytes);
        let ends = |low, high| vec![compare(subject, read_as, low, first), compare(subject, read_as, high, last)];
        Ok(match negated {
            true => vec![Filter::Or(ends(Relation::Less, Relation::Greater))],
            false => ends(Relation::GreaterOrEqual, Relation::LessOrEqual),
        })
    }

    fn like(
        &mut self,
        subject: &Subject,
        read_as: Option<ValueType>,
        negated: bool,
        ignore_case: bool,
    ) -> Result<Vec<Filter>, FilterError> {
        let at = self.token(0).at;
        if let Subject::KeyPart(_) = subject {
            return Err(self.error(format!("{}; for a pattern, test the row", crate::key_part::RELATIONS)));
        }
        let read_as = read_as.unwrap_or(ValueType::Bytes);
        if read_as.is_number() {
            return Err(
                self.error(format!("`like` compares text, and this is a number ({read_as}): use = < > or between"))
            );
        }
        let pattern = self.string("a pattern in single quotes, like 'ab%'")?;
        let like = Like::read(&pattern).map_err(|what| syntax(self.text, at, what))?;
        let tested = if negated { failing_if_missing(subject) } else { subject.clone() };
        let tests =
            like.tests(tested, read_as, ignore_case).map_err(|error| syntax(self.text, at, error.to_string()))?;
        if !negated {
            return Ok(tests);
        }
        let unlike = Filter::Not(Box::new(one_or(tests, Filter::And)));
        Ok(match subject {
            Subject::Column(column) if !column.pass_missing => {
                let (family, qualifier) = (column.family.clone(), column.qualifier.clone());
                vec![Filter::Exists { family, qualifier }, unlike]
            }
            _ => vec![unlike],
        })
    }

    fn is_null(&mut self, subject: &Subject, at: usize) -> Result<Vec<Filter>, FilterError> {
        let negated = self.takes_word("not");
        if !self.takes_word("null") {
            return Err(self.expected(if negated { "`null`" } else { "`null` or `not null`" }));
        }
        let Subject::Column(column) = subject else {
            return Err(syntax(self.text, at, "only a column like data:airtemp can be absent, which `is null` asks"));
        };
        let exists = Filter::Exists { family: column.family.clone(), qualifier: column.qualifier.clone() };
        Ok(vec![if negated { exists } else { Filter::Not(Box::new(exists)) }])
    }

    /// What to say of a word that compares nothing, if it is nearly one that does or a test that is written in another way.
    fn unknown_comparison(&self, word: &str) -> Option<String> {
        let named = |meant: &str| format!("there is no comparison `{word}`; did you mean `{meant}`?");
        if let Some(test) = TESTS_OF_BYTES.into_iter().find(|test| word.eq_ignore_ascii_case(test)) {
            return Some(format!("the test `{test}` stands before its subject: {test}(…, '…')"));
        }
        nearest(word, WORDS).map(named)
    }

    /// Nothing is compared with `null`, which is no value.
    pub(super) fn refuse_null(&self) -> Result<(), FilterError> {
        match self.peek() {
            TokenKind::Word(word) if word.eq_ignore_ascii_case("null") => {
                Err(self.error("nothing equals null; write `is null` or `is not null`"))
            }
            _ => Ok(()),
        }
    }
}

fn compare(subject: &Subject, read_as: ValueType, relation: Relation, operand: Bytes) -> Filter {
    Filter::Compare { subject: subject.clone(), read_as, relation, operand }
}

/// The subject inside of a `not`, where rows pass that fail.
fn failing_if_missing(subject: &Subject) -> Subject {
    let mut subject = subject.clone();
    if let Subject::Column(column) = &mut subject {
        column.pass_missing = false;
    }
    subject
}
