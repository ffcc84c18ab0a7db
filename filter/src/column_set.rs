//! The columns whose cells can pass a filter: a reader need not read the others.
//!
//! The columns may include some whose cells do not pass, but never exclude one whose cells can. A filter that looks at cells other than
//! the one it answers about (their number, or whether some of them pass) says nothing about columns.

use bytes::Bytes;
use terrane_types::{Columns, QualifierRange};

use crate::expression::{Filter, Relation, Subject};

/// The columns that a reader of rows for this filter needs, unless it needs all: those that can pass, and those that it names.
pub(crate) fn columns_needed(filter: &Filter, named: Vec<Bytes>) -> Columns {
    if looks_around(filter) {
        return Columns::whole_family();
    }
    let columns = columns_of(filter);
    if named.is_empty() || columns.is_whole_family() {
        return columns;
    }
    columns.union(&Columns::of_ranges(named.iter().map(|qualifier| QualifierRange::qualifier(qualifier))))
}

/// Whether some answer depends on cells besides the one that it is about, and besides columns that are tested by name.
fn looks_around(filter: &Filter) -> bool {
    match filter {
        Filter::And(parts) | Filter::Or(parts) => parts.iter().any(looks_around),
        Filter::Not(inner) => looks_around(inner),
        Filter::FirstKeyOnly | Filter::Columns { .. } | Filter::Skip(_) | Filter::Any(_) => true,
        // Every cell of the row must pass it, so only one that is about the row can do with fewer.
        Filter::While(inner) => !crate::plan::is_about_row(inner) || looks_around(inner),
        _ => false,
    }
}

fn columns_of(filter: &Filter) -> Columns {
    match filter {
        Filter::And(parts) => {
            let all = Columns::whole_family();
            parts.iter().fold(all, |columns, part| columns.intersect(&columns_of(part)))
        }
        Filter::Or(parts) => {
            let mut parts = parts.iter().map(columns_of);
            let first = parts.next().unwrap_or_default();
            parts.fold(first, |columns, part| columns.union(&part))
        }
        Filter::Qualifiers { start, end } => {
            Columns::of_ranges([QualifierRange { start: start.clone(), end: end.clone() }])
        }
        Filter::Prefix { subject: Subject::Qualifier, prefix } => Columns::of_ranges([QualifierRange::prefix(prefix)]),
        Filter::OneOf { subject: Subject::Qualifier, operands, .. } => {
            Columns::of_ranges(operands.iter().map(|qualifier| QualifierRange::qualifier(qualifier)))
        }
        // Numbers are compared by value and only `=` by their bytes; texts as bytes are.
        Filter::Compare { subject: Subject::Qualifier, read_as, relation, operand } if read_as.width().is_none() => {
            compared(*relation, operand)
        }
        _ => Columns::whole_family(),
    }
}

fn compared(relation: Relation, operand: &Bytes) -> Columns {
    let QualifierRange { start, end: behind } = QualifierRange::qualifier(operand);
    let from = |start: Bytes| QualifierRange { start, end: Bytes::new() };
    // As the end of a range, an empty operand would mean that there is none.
    let until = |end: Bytes| (!end.is_empty()).then(|| QualifierRange { start: Bytes::new(), end });
    Columns::of_ranges(match relation {
        Relation::Equal => vec![QualifierRange { start, end: behind }],
        Relation::NotEqual => until(start).into_iter().chain([from(behind)]).collect(),
        Relation::Less => until(start).into_iter().collect::<Vec<_>>(),
        Relation::LessOrEqual => until(behind).into_iter().collect(),
        Relation::Greater => vec![from(behind)],
        Relation::GreaterOrEqual => vec![from(start)],
    })
}
