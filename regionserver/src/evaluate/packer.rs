//! Writes the logged form of a write: rows are evaluated one after another, or all before the first is written if the
//! batch is atomic.
//!
//! What is written here is bounded: an entry too large for followers would block all after it. Rows beyond the bound are
//! postponed, and sentences that say why rows are refused are short where there may be many.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use terrane_raft::Packing;
use terrane_types::cell::Cells;

use super::needs::Part;
use super::overlay::Look;
use super::row::{Evaluated, Row};
use super::{Answer, Evaluator, Item, Target, logged, stamp_of};
use crate::group::proposal::Write;
use crate::operation::{LoggedRow, ResultKind, RowResult, WriteEncoder};
use crate::window::{Known, NO_CLIENT, NONCE_CLIENT};

/// Bytes that one write may take in the log once it is evaluated. Together with the largest entry before it, it still fits
/// one frame to a follower.
const LOGGED_BYTES_MAX: usize = 40 << 20;

/// Writes the logged form of a write. Nothing fails from here on.
pub(super) struct Packer<'a> {
    pub(super) evaluator: &'a mut Evaluator,
    pub(super) packing: &'a Packing,
    pub(super) write: &'a Write,
    pub(super) target: &'a Target<'a>,
    pub(super) rows: &'a [Item<'a>],
    pub(super) whole: &'a BTreeMap<(usize, Part), Vec<u8>>,
    /// The places of rows whose key came before, if that matters.
    pub(super) repeated: BTreeSet<usize>,
    /// New rows from this place on are postponed.
    pub(super) until: usize,
}

impl Packer<'_> {
    pub(super) fn pack(mut self, entry: &mut Vec<u8>) {
        let mut encoder = WriteEncoder::new(entry, &self.write.header, stamp_of(self.packing));
        if self.write.header.atomic {
            self.pack_together(&mut encoder)
        } else {
            self.pack_each(&mut encoder)
        }
        encoder.finish();
    }

    fn pack_each(&mut self, encoder: &mut WriteEncoder<'_>) {
        for (at, item) in self.rows.iter().enumerate() {
            if let Some(answer) = item.answer(self.packing.stamp) {
                self.put_answer(encoder, item, answer);
                continue;
            }
            if at < self.until {
                let evaluated = self.evaluate(at, item);
                if encoder.len() + evaluated.bytes(item.row) <= LOGGED_BYTES_MAX {
                    self.put(encoder, item, &evaluated);
                    continue;
                }
                // Those after it are postponed too, so that mutations of one row keep their order.
                self.until = at;
            }
            let kind = ResultKind::Postponed;
            let postponed = RowResult { stamp: self.packing.stamp, kind }.encode();
            self.put_answer(encoder, item, Answer { result: Some(postponed.into()) });
        }
    }

    /// All or nothing: every row is evaluated before any is written, and no two are of one key.
    fn pack_together(&mut self, encoder: &mut WriteEncoder<'_>) {
        if self.rows.iter().any(|item| item.known != Known::New) {
            // The batch was applied before, as a whole. A number that was not applied then was never one of it.
            for item in self.rows {
                let stamp = self.packing.stamp;
                let not_tried = RowResult { stamp, kind: ResultKind::NotTried }.encode();
                let answer = item.answer(stamp).unwrap_or(Answer { result: Some(not_tried.into()) });
                self.put_answer(encoder, item, answer);
            }
            return;
        }
        let mut all: Vec<_> = self.rows.iter().enumerate().map(|(at, item)| self.evaluate(at, item)).collect();
        let bytes: usize = all.iter().zip(self.rows).map(|(evaluated, item)| evaluated.bytes(item.row)).sum();
        if bytes > LOGGED_BYTES_MAX
            && let Some(first) = all.first_mut()
        {
            *first = Evaluated::refused(format!(
                "what the rows become takes {bytes} bytes, more than {LOGGED_BYTES_MAX}: send fewer at once"
            ));
        }
        let failed = all.iter().position(|evaluated| matches!(evaluated, Evaluated::Refused { .. }));
        let unmet = all.iter().any(|evaluated| matches!(evaluated, Evaluated::ConditionFailed { .. }));
        if let Some(failed) = failed {
            // The sentence may be long and the rows many, so it is given in full only where a caller looks first.
            let why = match &all[failed] {
                Evaluated::Refused { what } => what.clone(),
                _ => String::new(),
            };
            for (at, evaluated) in all.iter_mut().enumerate() {
                *evaluated = Evaluated::refused(match at {
                    _ if at == failed => why.clone(),
                    0 => format!("nothing of the atomic batch was applied: {why}"),
                    _ => format!("nothing of the atomic batch was applied, for its row number {failed}"),
                });
            }
        } else if unmet && !terrane_env::planted!("an atomic batch is applied in part") {
            for evaluated in &mut all {
                if matches!(evaluated, Evaluated::Applied { .. }) {
                    *evaluated = Evaluated::ConditionFailed { found: Vec::new() };
                }
            }
        }
        for (item, evaluated) in self.rows.iter().zip(&all) {
            self.put(encoder, item, evaluated);
        }
    }

    fn evaluate(&mut self, at: usize, item: &Item<'_>) -> Evaluated {
        let Some((request, needs)) = &item.request else {
            return Evaluated::plain(item.row);
        };
        let now_ms = stamp_of(self.packing);
        let (overlay, region, schema) = (&mut self.evaluator.overlay, self.write.header.region, self.target.schema);
        let mut columns = BTreeMap::new();
        for column in &needs.columns {
            let Look::Known(newest) = overlay.look(region, &item.row.row, column, schema, now_ms) else {
                // All columns were known before the first row was evaluated, so a row of this very write changed that.
                return Evaluated::refused(format!(
                    "row {} comes twice in the batch, first with a delete that leaves open what {column} holds: \
                     send the two apart",
                    terrane_types::escape(&item.row.row)
                ));
            };
            columns.insert(column.clone(), newest);
        }
        let part = |part| self.whole.get(&(at, part)).map(Vec::as_slice);
        if needs.reads_whole() && self.repeated.contains(&at) {
            return Evaluated::refused(format!(
                "row {} comes twice in the batch, and what is asked of it needs more than its newest cells: send the two \
                 apart",
                terrane_types::escape(&item.row.row)
            ));
        }
        let judged = with_first(part(Part::First), part(Part::Judged));
        Row {
            row: item.row,
            request,
            columns: &columns,
            whole: part(Part::Whole),
            judged: judged.as_deref(),
            merged: part(Part::Merged),
            turned: part(Part::Turned),
            covering: part(Part::Covering),
            schema,
            stamp: now_ms,
        }
        .evaluate()
    }

    fn put(&mut self, encoder: &mut WriteEncoder<'_>, item: &Item<'_>, evaluated: &Evaluated) {
        let (header, packing) = (&self.write.header, self.packing);
        let result = evaluated.result(packing.stamp).map(|result| result.encode());
        if header.client == NONCE_CLIENT && !matches!(evaluated, Evaluated::Applied { .. }) {
            // The record of nonces has no results, so what took no effect is evaluated again when it is tried again.
            return self.put_answer(encoder, item, Answer { result: result.map(Into::into) });
        }
        let stamped = encoder.push(&logged(item.row, evaluated.cells(), result.as_deref()));
        if self.evaluator.overlay.is_active() && !stamped.is_empty() {
            self.evaluator.overlay.note(packing.ordinal, header.region, &item.row.row, stamped, self.target.schema);
        }
        if header.client != NO_CLIENT {
            self.evaluator.in_flight.note(packing.ordinal, header.client, item.row.operation);
        }
    }

    /// Writes the answer to a row to which nothing is applied, without its key, which is of no use in the log.
    fn put_answer(&self, encoder: &mut WriteEncoder<'_>, item: &Item<'_>, answer: Answer) {
        let row = logged(item.row, &[], answer.result.as_deref());
        encoder.push(&LoggedRow { row: &[], untracked: true, ..row });
    }
}

/// The first cell of a row, if that was read, and the cells of some columns of it: in order, and each once.
fn with_first<'a>(first: Option<&'a [u8]>, columns: Option<&'a [u8]>) -> Option<Cow<'a, [u8]>> {
    let place = |cells: &'a [u8]| Cells::new(cells).next().map(|cell| (cell.family, cell.qualifier, cell.timestamp));
    match (first, columns) {
        (Some(first), Some(columns)) if place(first) != place(columns) => Some(Cow::Owned([first, columns].concat())),
        (_, columns) => columns.map(Cow::Borrowed),
    }
}
